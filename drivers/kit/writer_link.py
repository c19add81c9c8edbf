"""A driver's link to the writer: the thread that owns the sockets and the ring."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from drivers.kit.read_watchdog import ReadWatchdog
from drivers.kit.send_ring import SMALL_BYTES, SendRing
from drivers.kit.session_seam import SessionSeam
from recorder.bus.messages import Ack, Fault, Finish, Hello, Join
from recorder.bus.messages import AnnouncedSession as Session
from recorder.bus.sockets import DriverSocket, TapPublisher, Waker, tap_address
from recorder.bus.wire import OVERHEAD, Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock
from recorder.common.errors import ProtocolError


@dataclass(slots=True)
class _Counts:
    sample_bytes: float  # of the last encoded sample; of a declared one before
    samples: int = 0
    nbytes: float = 0.0
    last_ns: int | None = None


class Counters:
    """Counts of samples and encoded bytes by stream.

    Args:
        specs: the driver's streams.
    """

    def __init__(self, specs: Iterable[StreamSpec]) -> None:
        self._counts = {spec.name: _Counts(spec.encoded_bytes) for spec in specs}

    def declare(self, spec: StreamSpec) -> None:
        """Add a stream."""
        self._counts[spec.name] = _Counts(spec.encoded_bytes)

    def count_encoded(self, stream: str, samples: int, last_ns: int, nbytes: int) -> None:
        """Count samples with their encoded bytes; `last_ns`: the last one's CLOCK_MONOTONIC."""
        counts = self._counts[stream]
        counts.samples += samples
        counts.nbytes += nbytes
        counts.last_ns = last_ns
        counts.sample_bytes = nbytes / samples

    def count_unencoded(self, stream: str, samples: int, last_ns: int) -> None:
        """Count samples without a recipient, which are not encoded; their bytes are estimated."""
        counts = self._counts[stream]
        counts.samples += samples
        counts.nbytes += samples * counts.sample_bytes
        counts.last_ns = last_ns

    def report(self) -> dict[str, tuple[int, int, int | None]]:
        """Return by stream: samples, bytes, CLOCK_MONOTONIC ns of the latest sample (or None)."""
        counts = list(self._counts.items())  # a stream may be declared meanwhile
        return {n: (g.samples, round(g.nbytes), g.last_ns) for n, g in counts}


_POLL_S = 0.25
_PING_NS = 500_000_000  # above the time from ack to ack on a slow disk
_IDLE_PING_NS = 1_000_000_000
_STATS_NS = 250_000_000  # so that a page shows within a second that nothing comes any more
_GATHER_NS = 50_000_000  # longest time that a small message waits for others

Report = Callable[..., None]


class WriterLink:
    """Publisher of messages to the writer, without loss, and to the tap, without waiting.

    Any thread may call its methods; the link's own thread sends and receives.

    Attributes:
        counters: samples since the driver's start; reported four times a second.
    """

    def __init__(
        self,
        sensor: str,
        specs: tuple[StreamSpec, ...],
        run_folder: Path,
        clock: Clock,
        report: Report,
        stall: ReadWatchdog | None = None,
    ) -> None:
        self._sensor = sensor
        self._stall = stall or ReadWatchdog()
        self._specs = specs
        self._clock = clock
        self._report = report
        self._waker = Waker()
        self._socket = DriverSocket(run_folder, self._waker)
        self._tap = TapPublisher(tap_address(run_folder, sensor))
        self._undeclared = list(specs)  # to the tap
        self._tap_queue = TapQueue(specs)
        self.counters = Counters(specs)
        self._wanted: frozenset[str] = frozenset()
        self._changed = threading.Condition()
        self.seam = SessionSeam(specs, clock, self._stall)
        self._since_ns = clock.monotonic_ns()
        self._reported_ended: SendRing | None = None
        self._warned_too_large = False
        self._owes_join = True
        self._armed = False
        self._interrupted = False
        self._closing = False
        self._woken_ns = 0
        self._gathered = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and close the sockets; unacknowledged messages are dropped."""
        self._closing = True
        self._waker.wake()
        self._thread.join()
        self._socket.close()
        self._tap.close()
        self._waker.close()

    def interrupt(self) -> None:
        """Wake all waiting threads; safe in a signal handler, because it takes no lock."""
        self._interrupted = True
        self._waker.wake()

    def declare(self, spec: StreamSpec) -> None:
        """Declare a further stream to the writer, before its first message, and to the tap.

        Raises:
            ProtocolError: the stream was declared before.
        """
        with self._changed:
            if any(spec.name == known.name for known in self._specs):
                raise ProtocolError(f"{spec.name}: is declared a second time")
            self._specs = (*self._specs, spec)
            self._undeclared.append(spec)
            self.seam.declare(spec)
            self.counters.declare(spec)
            self._tap_queue.declare(spec)
            self._owes_join = True
            if self._armed:
                self._report("streams", streams=[spec.to_wire()])
        self._waker.wake()

    def wait_for_session(self, timeout: float) -> Session | None:
        """Return the session that accepts this driver's samples; None if no session is open."""
        with self._changed:
            if self.seam.session is None and timeout:
                self._changed.wait_for(lambda: self.seam.session or self._interrupted, timeout)
            self._raise_failure()
            return self.seam.session

    def is_open(self, session: Session) -> bool:
        """Return whether the session, or its continuation, still accepts this driver's samples."""
        self._raise_failure()
        return self.seam.is_open(session)

    def enter(self, session: Session | None) -> None:
        """Cross the seam if a session is the next one; it receives all further messages."""
        if self.seam.begins(session):
            with self._changed:
                if self.seam.begins(session):
                    self.seam.cross()
            self._waker.wake()

    def wait_until_armed(self, timeout: float) -> None:
        """Wait for the writer's first answer; no session is known until then."""
        with self._changed:
            self._changed.wait_for(lambda: self._armed or self._interrupted, timeout)

    def report_late_device(self, since_ns: int) -> None:
        """Report a device that has been absent since `since_ns`, at the driver's first start."""
        with self._changed:
            self.seam.report_late_device(since_ns)
        self._waker.wake()

    def mark_device_lost(self) -> None:
        """Record that the device is lost: sessions get an interval of loss until it is back."""
        with self._changed:
            self.seam.mark_device_lost()

    def mark_device_back(self) -> None:
        """Report to the session how long the device was absent."""
        with self._changed:
            self.seam.mark_device_back()
        self._waker.wake()

    def wait_for_room(self, stream: str, size: int, timeout: float) -> bool:
        """Wait until the ring has room for that many bytes of a stream; False: not yet."""
        with self._changed:
            part = self.seam.present
            if part is None or not part.ring.fits(size):  # the ring refuses it in any case
                return True

            def ready() -> bool:
                return part.ring.room_for(stream, size) or part.finishing

            if ready():
                return True
            self._send_gathered()  # these messages use room, too
            return self._changed.wait_for(ready, timeout)

    def fits(self, size: int) -> bool:
        """Return whether the ring can ever accept a message of that many bytes."""
        ring = self.seam.ring
        return ring is None or ring.fits(size)

    def wanted(self, stream: str) -> bool:
        """Return whether the stream's tap has a subscriber."""
        return stream in self._wanted

    def publish(self, message: Message, session: Session | None) -> bool:
        """Offer a message to the writer (if there is a session) and to the tap.

        Returns:
            False if the ring was full: the samples are refused and counted.
        """
        taken = True
        now_ns = self._clock.monotonic_ns()
        gather = message.kind is Kind.DATA and message.nbytes < SMALL_BYTES
        with self._changed:
            self._raise_failure()
            if message.kind is Kind.DATA:
                last_ns = self.seam.last_ns[message.stream] = int(np.max(message.t_mono_ns))
                size = message.nbytes - OVERHEAD
                self.counters.count_encoded(message.stream, message.count or 1, last_ns, size)
            if session is not None and not self.seam.offer(message, session):
                taken = False
                self._warn_if_too_large(message)
            if message.stream in self._wanted:
                self._tap_queue.put(message)
            if gather and 0 <= now_ns - self._woken_ns < _GATHER_NS:
                self._gathered = True
                return taken
            self._woken_ns, self._gathered = now_ns, False
        self._waker.wake()
        return taken

    def end(self, session: Session, reason: str, detail: str) -> None:
        """End this session's streams: the `end` messages follow the pending messages."""
        with self._changed:
            if self.seam.is_current(session):
                self.seam.end(reason, detail)
        self._waker.wake()

    def drain(self, timeout: float) -> bool:
        """Wait until all messages are durable; False: not yet."""
        with self._changed:
            self._send_gathered()
            if self.seam.present is None:
                return True
            self._changed.wait_for(lambda: self.seam.empty or self._failure is not None, timeout)
            return self.seam.empty

    def _warn_if_too_large(self, message: Message) -> None:
        """Print, once per process, that the config must be changed."""
        ring_bytes = self.seam.granted_bytes
        if message.nbytes > ring_bytes and not self._warned_too_large:
            self._warned_too_large = True
            text = f"a sample of {message.nbytes / 1e6:.3g} MB is larger than the ring of its "
            text += f"driver ({ring_bytes / 1e6:.3g} MB): refused; raise storage.buffer_mb"
            print(f"{message.stream}: {text}", file=sys.stderr, flush=True)

    def _send_gathered(self) -> None:
        if self._gathered:
            self._gathered = False
            self._waker.wake()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001  the main thread raises it again
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _loop(self) -> None:
        heard_ns = pinged_ns = stats_ns = self._clock.monotonic_ns()
        blocked = True  # the join message is pending
        while not self._closing:
            poll_s = _GATHER_NS / 1e9 if self._wanted else _POLL_S
            self._socket.wait(poll_s, until_writable=blocked)
            now_ns = self._clock.monotonic_ns()
            if self._interrupted:
                with self._changed:
                    self._changed.notify_all()
            while (message := self._socket.receive()) is not None:
                heard_ns = now_ns
                self._handle(message)
            with self._changed:
                self.seam.cross_when_silent(now_ns)
            blocked = self._send_all()
            self._publish_tap()
            with self._changed:
                waiting = not self._armed or not self.seam.empty
            due_ns = _PING_NS if waiting else _IDLE_PING_NS
            if now_ns - max(heard_ns, pinged_ns) >= due_ns:
                # A restarted writer does not know this driver yet.
                pinged_ns = now_ns
                self._socket.send(Message(Kind.PING))
            if news := self._stall.look(now_ns):
                self._report("stall", **news)
            if now_ns - stats_ns >= _STATS_NS:
                stats_ns = now_ns
                self._report_stats()

    def _handle(self, message: Message) -> None:
        match message.kind:
            case Kind.WHO:
                self._owes_join = True
            case Kind.HELLO:
                self._hello(Hello.of(message))
            case Kind.ACK:
                with self._changed:
                    self.seam.acknowledge(Ack.of(message).positions)
                    self._report_ended()
                    self._changed.notify_all()
            case Kind.FINISH:
                with self._changed:
                    self.seam.finish(Finish.of(message).session)
                    self._changed.notify_all()
            case Kind.FAULT:
                raise ProtocolError(f"the writer refuses: {Fault.of(message).text}")
            case _:
                raise ProtocolError(f"the writer sent a {message.kind} message")

    def _hello(self, hello: Hello) -> None:
        with self._changed:
            self.seam.follow(hello)
            self._report_ended()
            if not self._armed:
                self._armed = True
                self._report("armed", streams=[s.to_wire() for s in self._specs])
            self._changed.notify_all()

    def _send_all(self) -> bool:
        """Send the messages within the credit; return True if the socket is blocked."""
        while True:
            with self._changed:
                if self._owes_join:  # precedes the first message of a stream that it declares
                    streams = [s.to_wire() for s in self._specs]
                    if not self._socket.send(Join(self._sensor, streams, self._since_ns).message()):
                        return True
                    self._owes_join = False
                if (found := self.seam.next_to_send()) is None:
                    return False
                ring, message = found
                if not self._socket.send(message):
                    return True
                ring.mark_sent(message)

    def _publish_tap(self) -> None:
        while self._undeclared:
            self._tap.declare(self._undeclared.pop(0))
        if self._tap_queue:
            with self._changed:
                messages = self._tap_queue.take()
            for message in messages:
                self._tap.publish(message)
        self._wanted = frozenset(s.name for s in self._specs if self._tap.wanted(s.name))

    def _report_ended(self) -> None:
        ring = self.seam.ring
        if ring is None or not ring.ended or not ring.empty:
            return
        if self._reported_ended is not ring:
            self._reported_ended = ring
            self._report_stats()
            self._report("ended")

    def _report_stats(self) -> None:
        held, buffer, refused = 0, self.seam.granted_bytes, dict[str, int]()
        if (ring := self.seam.ring) is not None:
            held, buffer, refused = self.seam.bytes_held, ring.buffer_bytes, dict(ring.refused)
        given = self.counters.report()
        self._report("stats", held=held, buffer=buffer, refused=refused, given=given)


_RUNS = 8  # live views get the latest
_MOST = 64  # small messages in a run


class TapQueue:
    """Queue of messages for a tap.  The caller protects it with a lock.

    Args:
        specs: the driver's streams.
    """

    def __init__(self, specs: Iterable[StreamSpec]) -> None:
        self._joinable = frozenset(spec.name for spec in specs if spec.joinable)
        self._runs: deque[list[Message]] = deque(maxlen=_RUNS)

    def __bool__(self) -> bool:
        return bool(self._runs)

    def declare(self, spec: StreamSpec) -> None:
        """Add a stream."""
        if spec.joinable:
            self._joinable |= {spec.name}

    def put(self, message: Message) -> None:
        """Queue a message after it was offered to the ring, which numbers it."""
        if message.stream in self._joinable and _small(message):
            message = replace(message)  # the ring may join further samples to its own
            last = next((r for r in reversed(self._runs) if r[0].stream == message.stream), None)
            if last is not None and len(last) < _MOST and _continues(last[-1], message):
                last.append(message)
                return
        self._runs.append([message])

    def take(self) -> list[Message]:
        """Remove and return the waiting messages; small messages of a stream become one."""
        messages = []
        for message, *others in self._runs:
            if others:
                message.join(*others)
            messages.append(message)
        self._runs.clear()
        return messages


def _small(message: Message) -> bool:
    return message.kind is Kind.DATA and message.nbytes < SMALL_BYTES


def _continues(last: Message, message: Message) -> bool:
    """Return whether samples follow the last message's; without an epoch they have no numbers."""
    numbered = not message.epoch or last.next_seq == message.seq
    return _small(last) and last.epoch == message.epoch and numbered
