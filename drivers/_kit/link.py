"""A driver's link to the writer: the thread that owns the sockets and the ring."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivers._kit.outbox import Outbox
from recorder.contract.bus import DriverSocket, TapPublisher, Waker, tap_address
from recorder.contract.clock import Clock
from recorder.contract.errors import ProtocolError
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Kind, Message

_POLL_S = 0.25
_PING_NS = 500_000_000  # above the time from ack to ack on a slow disk
_IDLE_PING_NS = 1_000_000_000
_STATS_NS = 1_000_000_000
_GATHER_NS = 50_000_000  # a small message waits so long for others before it is sent
_GATHER_BYTES = 4096
_TAP_QUEUE = 8  # messages; live views get the newest

Report = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Session:
    """A session as the writer announces it to drivers.

    Attributes:
        key: names the session on the bus.
        start_ns: its start, CLOCK_MONOTONIC.
        until_ns: samples at or after this time are not wanted; None: no end is set.
        last_ns: latest ``t_mono`` that the session already holds of this sensor's streams; None
            unless an earlier start of this driver has recorded into it.
    """

    key: str
    start_ns: int
    until_ns: int | None
    last_ns: int | None


class Link:
    """Publishes messages to the writer, without loss, and to the tap, without waiting.

    All methods may be called from any thread; a thread of its own sends and receives.
    """

    def __init__(
        self,
        sensor: str,
        specs: tuple[StreamSpec, ...],
        run_folder: Path,
        clock: Clock,
        report: Report,
    ) -> None:
        self._sensor = sensor
        self._specs = specs
        self._clock = clock
        self._report = report
        self._waker = Waker()
        self._socket = DriverSocket(run_folder, self._waker)
        self._tap = TapPublisher(tap_address(run_folder, sensor))
        for spec in specs:
            self._tap.declare(spec)
        self._tap_queue: deque[Message] = deque(maxlen=_TAP_QUEUE)
        self._wanted: frozenset[str] = frozenset()
        self._changed = threading.Condition()
        self._session: Session | None = None
        self._outbox: Outbox | None = None
        self._finishing = False
        self._said_ended = False
        self._owes_join = True
        self._armed = False
        self._interrupted = False
        self._closing = False
        self._woken_ns = 0
        self._gathered = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)

    def start(self) -> None:
        """Begin to talk to the writer."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and close the sockets; what is unacknowledged is dropped."""
        self._closing = True
        self._waker.wake()
        self._thread.join()
        self._socket.close()
        self._tap.close()
        self._waker.close()

    def interrupt(self) -> None:
        """Wake whoever waits (also from a signal handler, hence no lock is taken)."""
        self._interrupted = True
        self._waker.wake()

    def wait_for_session(self, timeout: float) -> Session | None:
        """The session that is open for this driver's samples; None where there is none."""
        with self._changed:
            if not self._open() and timeout:
                self._changed.wait_for(lambda: self._open() or self._interrupted, timeout)
            self._raise_failure()
            return self._session if self._open() else None

    def is_open(self, session: Session) -> bool:
        """Whether the session still takes this driver's samples."""
        self._raise_failure()
        current = self._session
        return current is not None and current.key == session.key and self._open()

    def wait_for_room(self, stream: str, size: int, timeout: float) -> bool:
        """Wait until the ring has room for so many bytes of a stream; False: not yet."""
        with self._changed:
            outbox = self._outbox
            if outbox is None or outbox.room_for(stream, size) or self._finishing:
                return True
            self._send_gathered()  # it takes room, too
            return self._changed.wait_for(
                lambda: outbox.room_for(stream, size) or self._finishing, timeout
            )

    def wanted(self, stream: str) -> bool:
        """Whether somebody watches the stream's tap."""
        return stream in self._wanted

    def publish(self, message: Message, session: Session | None) -> bool:
        """Offer a message to the writer (if there is a session) and to the tap.

        Returns:
            False where the ring was full and the sample was refused, which is counted.
        """
        taken = True
        now_ns = self._clock.monotonic_ns()
        gather = message.kind is Kind.DATA and message.nbytes < _GATHER_BYTES
        with self._changed:
            self._raise_failure()
            if session is not None and self._outbox is not None and self.is_open(session):
                taken = self._outbox.offer(message)
            if message.stream in self._wanted:
                self._tap_queue.append(message)
                gather = False
            if gather and 0 <= now_ns - self._woken_ns < _GATHER_NS:
                self._gathered = True
                return taken
            self._woken_ns, self._gathered = now_ns, False
        self._waker.wake()
        return taken

    def end(self, session: Session, reason: str, detail: str) -> None:
        """No more samples come for this session; its `end` messages are sent in order."""
        with self._changed:
            if self._session is not None and self._session.key == session.key and self._outbox:
                self._outbox.end(reason, detail)
        self._waker.wake()

    def drain(self, timeout: float) -> bool:
        """Wait until the writer has everything durable; False where it has not yet."""
        with self._changed:
            outbox = self._outbox
            self._send_gathered()
            if outbox is None:
                return True
            self._changed.wait_for(lambda: outbox.empty or self._failure is not None, timeout)
            return outbox.empty

    def _send_gathered(self) -> None:
        if self._gathered:
            self._gathered = False
            self._waker.wake()

    def _open(self) -> bool:
        return (
            self._session is not None
            and self._outbox is not None
            and not self._outbox.ended
            and not self._finishing
        )

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001  the main thread raises it on
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _loop(self) -> None:
        heard_ns = pinged_ns = stats_ns = self._clock.monotonic_ns()
        blocked = True  # by the introduction that is owed
        while not self._closing:
            self._socket.wait(_POLL_S, until_writable=blocked)
            now_ns = self._clock.monotonic_ns()
            if self._interrupted:
                with self._changed:
                    self._changed.notify_all()
            while (message := self._socket.receive()) is not None:
                heard_ns = now_ns
                self._handle(message)
            blocked = self._send_all()
            self._publish_tap()
            with self._changed:
                waiting = not self._armed or (self._outbox is not None and not self._outbox.empty)
            due_ns = _PING_NS if waiting else _IDLE_PING_NS
            if now_ns - max(heard_ns, pinged_ns) >= due_ns:
                # Nothing heard: the writer may be a new one, which does not know this driver.
                pinged_ns = now_ns
                self._socket.send(Message(Kind.PING))
            if now_ns - stats_ns >= _STATS_NS:
                stats_ns = now_ns
                self._tell_stats()

    def _join(self) -> bool:
        return self._socket.send(
            Message(
                Kind.JOIN,
                values={"sensor": self._sensor, "streams": [s.to_wire() for s in self._specs]},
            )
        )

    def _handle(self, message: Message) -> None:
        match message.kind:
            case Kind.WHO:
                self._owes_join = True
            case Kind.HELLO:
                self._hello(message.values)
            case Kind.ACK:
                with self._changed:
                    if self._outbox is not None:
                        positions = message.values["positions"]
                        self._outbox.acknowledge({k: tuple(v) for k, v in positions.items()})
                        self._say_ended()
                        self._changed.notify_all()
            case Kind.FINISH:
                with self._changed:
                    if self._session is not None and self._session.key == message.values["session"]:
                        self._finishing = True
                        if self._outbox is not None:
                            self._outbox.end("stopped")
                    self._changed.notify_all()
            case Kind.FAULT:
                raise ProtocolError(f"the writer refuses: {message.values['message']}")
            case _:
                raise ProtocolError(f"the writer sent a {message.kind} message")

    def _hello(self, values: dict[str, Any]) -> None:
        announced = values["session"]
        with self._changed:
            if announced is None:
                self._session = self._outbox = None
            elif self._session is None or self._session.key != announced["key"]:
                self._session = Session(**announced)
                self._outbox = Outbox(
                    self._specs, epoch=self._clock.realtime_ns(), merge_bytes=_GATHER_BYTES
                )
                self._finishing = self._said_ended = False
            if self._outbox is not None:
                self._outbox.hello(
                    {k: tuple(v) for k, v in values["positions"].items()},
                    buffer_bytes=values["buffer_bytes"],
                    window_bytes=values["window_bytes"],
                )
                self._say_ended()
            self._changed.notify_all()
        if not self._armed:
            self._armed = True
            self._report("armed", streams=[s.to_wire() for s in self._specs])

    def _send_all(self) -> bool:
        """Send what credit allows; True where the socket would have to wait."""
        if self._owes_join and not self._join():
            return True
        self._owes_join = False
        while True:
            with self._changed:
                message = None if self._outbox is None else self._outbox.next_to_send()
                if message is None or self._outbox is None:
                    return False
                if not self._socket.send(message):
                    return True
                self._outbox.mark_sent(message)

    def _publish_tap(self) -> None:
        while self._tap_queue:
            self._tap.publish(self._tap_queue.popleft())
        self._wanted = frozenset(s.name for s in self._specs if self._tap.wanted(s.name))

    def _say_ended(self) -> None:
        outbox = self._outbox
        if outbox is not None and outbox.ended and outbox.empty and not self._said_ended:
            self._said_ended = True
            self._tell_stats()
            self._report("ended")

    def _tell_stats(self) -> None:
        outbox = self._outbox
        if outbox is not None:
            self._report(
                "stats",
                held=outbox.bytes_held,
                buffer=outbox.buffer_bytes,
                refused=dict(outbox.refused),
            )
