"""Sockets of the data plane; the only module that uses ZeroMQ.

Drivers (DEALER) send to the writer (ROUTER) over ``ipc://`` in a folder of their own, 0700, one per
run. High-water marks are low, because the sender cannot control messages inside ZeroMQ; credit
limits the bytes, above this module. A sample may vanish here when a peer dies. That is not a loss:
drivers keep all messages that are not acknowledged, and the writer names the message that it
expects next.

The *tap* is a PUB socket per driver for live views. It may lose messages, and never delays
recording::

    with TapSubscriber([tap_address(run_folder, "camera")]) as tap:
        for message in tap.messages(timeout=5.0):
            if message.kind is Kind.JOIN:
                spec = StreamSpec.from_wire(message.values["stream"])   # repeated every second
            else:
                ...  # Kind.DATA: message.frames, one per channel of spec
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import zmq

from recorder.bus.messages import TapJoin
from recorder.bus.wire import Kind, Message, decode, encode
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ProtocolError, StorageError
from recorder.common.files import Buffer, Closeable, buffer_size

_DATA_MARK = 32  # messages; credit bounds their bytes
_REPLY_MARK = 1000  # acks and hellos: small
_TAP_MARK = 8
_IN, _OUT = int(zmq.POLLIN), int(zmq.POLLOUT)  # as plain numbers: enums are slow to combine
_LAST = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_BESIDES_BYTES = 8_000_000  # declarations with their files, for rings of any size
_COPY_BELOW = 16 * 1024  # smaller frames are cheaper to copy than to track
_MAX_ADDRESS = 100  # sun_path holds 108 bytes


def writer_address(run_folder: Path) -> str:
    """Return the writer's address in a run folder."""
    return f"ipc://{run_folder}/writer"


def tap_address(run_folder: Path, sensor: str) -> str:
    """Return the address of a sensor's tap in a run folder; topics are stream names."""
    return f"ipc://{run_folder}/tap-{sensor}"


class Waker:
    """Waker of a thread that waits in a poll, for other threads and signal handlers.

    After `close`, `wake` does nothing: the descriptor's number may belong to another file by then.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._open = True
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread's `wake`

    def fileno(self) -> int:
        return self._fd

    def wake(self) -> None:
        with self._lock:
            if self._open:
                os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._fd)


class ZmqSocket(Closeable):
    """ZeroMQ socket with a poller that also watches a waker."""

    def __init__(
        self,
        kind: int,
        waker: Waker | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self._socket: zmq.Socket[bytes] = (context or zmq.Context.instance()).socket(kind)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._waker = waker
        self._poller = zmq.Poller()
        self._watched = 0
        if waker is not None:
            self._poller.register(waker.fileno(), _IN)

    def _bind(self, address: str) -> None:
        if address.startswith("ipc://"):
            path = address.removeprefix("ipc://")
            if len(os.fsencode(path)) > _MAX_ADDRESS:
                self.close()
                raise StorageError(f"{path}: too long for a socket ({_MAX_ADDRESS} bytes)")
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise StorageError(f"{address}: cannot be bound: {error}") from None

    def wait(self, seconds: float, *, until_writable: bool = False) -> None:
        """Wait until a message can be received, the waker is woken, or time is up."""
        events = _IN | _OUT if until_writable else _IN
        if events != self._watched:
            self._watched = events
            self._poller.register(self._socket, events)
        for ready, _ in self._poller.poll(max(0, round(seconds * 1000))):
            if self._waker is not None and ready is not self._socket:
                self._waker.clear()

    def _waiting(self) -> bool:
        """Return whether a message can be received.

        Receiving without a message, with its exception, takes half as long again.
        """
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _IN)

    def close(self) -> None:
        self._socket.close()


class DriverSocket(ZmqSocket):
    """Data-plane socket of a driver or the supervisor."""

    def __init__(self, run_folder: Path, waker: Waker | None = None) -> None:
        super().__init__(zmq.DEALER, waker)
        self._socket.setsockopt(zmq.SNDHWM, _DATA_MARK)
        self._socket.setsockopt(zmq.RCVHWM, _REPLY_MARK)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        self._socket.connect(writer_address(run_folder))

    def send(self, message: Message) -> bool:
        """Send without copying large frames; return False where ZeroMQ would have to wait."""
        try:
            _send(self._socket, encode(message))
        except zmq.Again:
            return False
        return True

    def receive(self) -> Message | None:
        """Return the next message from the writer; None if no message waits.

        Raises:
            ProtocolError: the frames are not a message.
        """
        return decode(self._socket.recv_multipart(_LAST)) if self._waiting() else None


class WriterSocket(ZmqSocket):
    """Data-plane socket of the writer.

    Args:
        run_folder: the run's folder.
        waker: ends `wait`.
        most_bytes: largest frame; a peer that sends a larger one is disconnected before it is
            received.
    """

    def __init__(
        self, run_folder: Path, waker: Waker | None = None, *, most_bytes: int | None = None
    ) -> None:
        super().__init__(zmq.ROUTER, waker)
        if most_bytes is not None:
            self._socket.setsockopt(zmq.MAXMSGSIZE, most_bytes + _BESIDES_BYTES)
        self._socket.setsockopt(zmq.SNDHWM, _REPLY_MARK)
        self._socket.setsockopt(zmq.RCVHWM, _DATA_MARK)
        self._bind(writer_address(run_folder))

    def send(self, peer: bytes, message: Message) -> bool:
        """Send to a peer; return False if that would have to wait.

        A message to a peer that is gone is dropped.
        """
        try:
            self._socket.send_multipart([peer, *encode(message)], zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> tuple[bytes, Message | ProtocolError] | None:
        """Return the next message with its peer's identity; None if no message waits.

        A message that cannot be decoded is returned as the error, so that the caller can answer its
        sender.
        """
        if not self._waiting():
            return None
        frame = self._socket.recv(_LAST, copy=False)
        peer = frame.bytes
        frames: list[Buffer] = []
        while frame.more:  # the parts of a message come together
            frame = self._socket.recv(_LAST, copy=False)
            frames.append(frame.buffer if frames else frame.bytes)
        try:
            return peer, decode(frames)
        except ProtocolError as error:
            return peer, error


class TapPublisher(ZmqSocket):
    """Publisher of messages for live views; drops what a slow subscriber does not take.

    A message without a subscriber to its stream costs nothing: call `wanted` before encoding.
    """

    def __init__(self, address: str) -> None:
        super().__init__(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, _TAP_MARK)
        self._socket.setsockopt(zmq.XPUB_MANUAL, 1)  # a subscriber is known before its first sample
        self._bind(address)
        self._topics: Counter[bytes] = Counter()  # count of subscribers by topic
        self._specs: dict[bytes, StreamSpec] = {}  # by topic
        self._announced_s = 0.0

    def declare(self, spec: StreamSpec) -> None:
        """Announce a stream at the next `publish` and every second after it."""
        self._specs[spec.name.encode()] = spec
        self._announced_s = 0.0

    def wanted(self, stream: str) -> bool:
        """Return whether a subscriber wants the stream.

        The name of a declared stream is a topic for that stream alone, not for ``lidar_imu`` beside
        ``lidar``; any other topic is a prefix, and an empty one subscribes to all streams.
        """
        self._read_subscriptions()
        name = stream.encode()
        if name in self._topics:
            return True
        return any(name.startswith(topic) and topic not in self._specs for topic in self._topics)

    def publish(self, message: Message) -> None:
        """Publish a message under its stream's name; announce the streams when that is due."""
        if not self.wanted(message.stream):
            return
        now = time.monotonic()
        if now - self._announced_s >= 1.0:
            self._announced_s = now
            for spec in self._specs.values():
                announcement = TapJoin(spec.to_wire()).to_wire()
                self._send(Message(Kind.JOIN, stream=spec.name, values=announcement))
        self._send(message)

    def _send(self, message: Message) -> None:
        _send(self._socket, [message.stream.encode(), *encode(message)])

    def _read_subscriptions(self) -> None:
        while self._waiting():
            change = self._socket.recv(_LAST)
            topic = change[1:]
            if change[:1] == b"\x01":
                self._socket.setsockopt(zmq.SUBSCRIBE, topic)  # for the subscriber that sent this
                self._topics[topic] += 1
                self._announced_s = 0.0
            else:
                self._socket.setsockopt(zmq.UNSUBSCRIBE, topic)
                self._topics[topic] -= 1
                self._topics += Counter()  # drops topics without subscribers


class TapSubscriber(ZmqSocket):
    """Receiver of live messages from one or more taps; see the module's example.

    Args:
        addresses: of the taps.
        streams: names of the streams; an empty name subscribes to all.
    """

    def __init__(self, addresses: Sequence[str], streams: Sequence[str] = ("",)) -> None:
        super().__init__(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, _TAP_MARK)
        self._topics = {stream.encode() for stream in streams}
        for topic in self._topics:
            self._socket.setsockopt(zmq.SUBSCRIBE, topic)
        for address in addresses:
            self._socket.connect(address)

    def receive(self, timeout: float) -> Message | None:
        """Return the next message; None if none came within `timeout` seconds."""
        deadline_s = time.monotonic() + timeout
        while self._socket.poll(max(0, round((deadline_s - time.monotonic()) * 1000))):
            topic, *frames = self._socket.recv_multipart()
            if topic in self._topics or b"" in self._topics:  # ZeroMQ takes a topic for a prefix
                return decode(frames)
        return None

    def messages(self, timeout: float) -> Iterator[Message]:
        """Yield messages as they come; end where none came for `timeout` seconds."""
        while (message := self.receive(timeout)) is not None:
            yield message


class TapReader(Closeable):
    """Receiver from many taps in one thread, whose subscriptions may change at any time.

    ::

        with TapReader(waker) as reader:
            while running:
                reader.subscribe({tap_address(run_folder, "lidar"): frozenset({"lidar"})})
                for message in reader.receive(1.0):
                    ...                          # of "lidar" alone, not of "lidar_imu"

    The subscription to a tap that vanishes stays: its driver may come back.

    Args:
        waker: ends `receive` early.
    """

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._poller = zmq.Poller()
        self._poller.register(waker.fileno(), _IN)
        self._taps: dict[str, tuple[zmq.Socket[bytes], frozenset[bytes]]] = {}
        self._by_socket: dict[object, str] = {}

    def subscribe(self, streams: Mapping[str, frozenset[str]]) -> None:
        """Subscribe to these streams, by the tap's address, and to no others."""
        wanted = {address: names for address, names in streams.items() if names}
        for address in self._taps.keys() - wanted.keys():
            self._drop(address)
        for address, names in wanted.items():
            topics = frozenset(name.encode() for name in names)
            socket, before = self._taps.get(address) or (self._connect(address), frozenset())
            for topic in topics - before:
                socket.setsockopt(zmq.SUBSCRIBE, topic)
            for topic in before - topics:
                socket.setsockopt(zmq.UNSUBSCRIBE, topic)
            self._taps[address] = socket, topics

    def receive(self, seconds: float) -> Iterator[Message]:
        """Yield the messages that wait, oldest first in a tap.

        Wait at most `seconds` for the first. A message that cannot be decoded is left out.
        """
        for ready, _ in self._poller.poll(max(0, round(seconds * 1000))):
            if (address := self._by_socket.get(ready)) is None:
                self._waker.clear()
                continue
            socket, topics = self._taps[address]
            with contextlib.suppress(zmq.Again):
                while True:
                    topic, *frames = socket.recv_multipart(_LAST, copy=False)
                    if frames and topic.bytes in topics:  # a topic is a prefix of other names, too
                        payload = [frame.buffer for frame in frames[1:]]
                        with contextlib.suppress(ProtocolError):
                            yield decode([frames[0].bytes, *payload])

    def _connect(self, address: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, _TAP_MARK)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        socket.connect(address)
        self._poller.register(socket, _IN)
        self._by_socket[socket] = address
        return socket

    def _drop(self, address: str) -> None:
        socket, _ = self._taps.pop(address)
        self._poller.unregister(socket)
        del self._by_socket[socket]
        socket.close()

    def close(self) -> None:
        for address in list(self._taps):
            self._drop(address)


def _send(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    left = len(frames)
    for frame in frames:
        left -= 1
        flags = _MORE if left else _LAST
        socket.send(frame, flags, copy=buffer_size(frame) < _COPY_BELOW)
