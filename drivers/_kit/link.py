"""A driver's link to the writer: the thread that owns the sockets and the ring."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from drivers._kit.counters import Counters
from drivers._kit.keyframe_gate import SEAM_PATIENCE_NS
from drivers._kit.outbox import Outbox
from drivers._kit.read_watchdog import ReadWatchdog
from drivers._kit.session_announcement import Session, interval_of_loss
from drivers._kit.tap_queue import SMALL_BYTES, TapQueue
from recorder.contract.bus import DriverSocket, TapPublisher, Waker, tap_address
from recorder.contract.clock import Clock
from recorder.contract.errors import ProtocolError
from recorder.contract.messages import Ack, Fault, Finish, Hello, Join
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import OVERHEAD, Kind, Message

_POLL_S = 0.25
_PING_NS = 500_000_000  # above the time from ack to ack on a slow disk
_IDLE_PING_NS = 1_000_000_000
_STATS_NS = 250_000_000  # so that a page shows within a second that nothing comes any more
_GATHER_NS = 50_000_000  # longest time that a small message waits for others
_SEAM_PATIENCE_NS = 1_000_000_000  # after a seam, for a driver that publishes nothing

Report = Callable[..., None]


class Link:
    """Publishes messages to the writer, without loss, and to the tap, without waiting.

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
        keyed = any(spec.keyed for spec in specs)
        self._seam_patience_ns = SEAM_PATIENCE_NS if keyed else _SEAM_PATIENCE_NS
        self._clock = clock
        self._report = report
        self._waker = Waker()
        self._socket = DriverSocket(run_folder, self._waker)
        self._tap = TapPublisher(tap_address(run_folder, sensor))
        for spec in specs:
            self._tap.declare(spec)
        self._tap_queue = TapQueue(specs)
        self.counters = Counters(specs)
        self._wanted: frozenset[str] = frozenset()
        self._changed = threading.Condition()
        self._session: Session | None = None
        self._outbox: Outbox | None = None
        self._next: Session | None = None  # continues the present session
        self._leaving: tuple[str, Outbox] | None = None  # unacknowledged, of the session before
        self._admitted = False  # the writer accepts the outbox's messages
        self._ended_by: tuple[str, str] = ("", "")
        self._granted_bytes = 0  # for the rings of both sessions at a seam
        self._since_ns = clock.monotonic_ns()
        self._absent_since_ns: int | None = None
        self._last_ns: dict[str, int] = {}  # of each stream's latest sample
        self._finishing = False
        self._reported_ended = self._warned_too_large = False
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

    def wait_for_session(self, timeout: float) -> Session | None:
        """Return the session that accepts this driver's samples; None if no session is open."""
        with self._changed:
            if not self._open() and timeout:
                self._changed.wait_for(lambda: self._open() or self._interrupted, timeout)
            self._raise_failure()
            return self._session if self._open() else None

    def is_open(self, session: Session) -> bool:
        """Whether the session, or its continuation, still accepts this driver's samples."""
        self._raise_failure()
        return self._is_current(session) and self._open()

    def _is_current(self, session: Session) -> bool:
        current = self._session
        return current is not None and current.goes_on_from(session)

    def seam_ns(self) -> int | None:
        """Return the time at which the next session begins; None if no next session is known."""
        following = self._next
        return None if following is None else following.seam_ns

    def cross(self) -> None:
        """Continue with the next session: it receives all messages published from now on."""
        with self._changed:
            self._cross()
        self._waker.wake()

    def wait_until_armed(self, timeout: float) -> None:
        """Wait for the writer's first answer; no session is known until then."""
        with self._changed:
            self._changed.wait_for(lambda: self._armed or self._interrupted, timeout)

    def device_late(self, since_ns: int) -> None:
        """Report a device that was absent since then, at this driver's first start."""
        with self._changed:
            first = self._session is not None and self._session.last_ns is None
            for spec in self._specs if first else ():
                self._report_loss(spec, "device", since_ns)
        self._waker.wake()

    def device_lost(self) -> None:
        """Record that the device is lost: sessions get an interval of loss until it is back."""
        with self._changed:
            if self._absent_since_ns is None:
                self._absent_since_ns = self._clock.monotonic_ns()

    def device_back(self) -> None:
        """Report to the session how long the device was absent."""
        with self._changed:
            self._report_absence()
            self._absent_since_ns = None
        self._waker.wake()

    def wait_for_room(self, stream: str, size: int, timeout: float) -> bool:
        """Wait until the ring has room for that many bytes of a stream; False: not yet."""
        with self._changed:
            outbox = self._outbox
            if outbox is None or not outbox.fits(size):  # the ring refuses it in any case
                return True
            if outbox.room_for(stream, size) or self._finishing:
                return True
            self._send_gathered()  # these messages use room, too
            return self._changed.wait_for(
                lambda: outbox.room_for(stream, size) or self._finishing, timeout
            )

    def fits(self, size: int) -> bool:
        """Whether the ring can ever accept a message of that many bytes."""
        outbox = self._outbox
        return outbox is None or outbox.fits(size)

    def wanted(self, stream: str) -> bool:
        """Whether the stream's tap has a subscriber."""
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
                last_ns = self._last_ns[message.stream] = int(np.max(message.t_mono_ns))
                size = message.nbytes - OVERHEAD
                self.counters.encoded(message.stream, message.count or 1, last_ns, size)
            if session is not None and self._outbox is not None and self.is_open(session):
                taken = self._outbox.offer(message)
                if not taken and not self._outbox.fits(message.nbytes):
                    self._warn_too_large(message, self._outbox.ring_bytes)
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
            if self._is_current(session):
                self._end_outbox(reason, detail)
        self._waker.wake()

    def drain(self, timeout: float) -> bool:
        """Wait until all messages are durable; False: not yet."""
        with self._changed:
            outbox = self._outbox
            self._send_gathered()
            if outbox is None:
                return True
            self._changed.wait_for(lambda: self._empty() or self._failure is not None, timeout)
            return self._empty()

    def _empty(self) -> bool:
        behind = self._leaving is None or self._leaving[1].empty
        return behind and (self._outbox is None or self._outbox.empty)

    def _end_outbox(self, reason: str, detail: str = "") -> None:
        if self._outbox is None or self._outbox.ended:
            return
        if self._absent_since_ns is not None:
            self._report_absence("absent")
        elif reason == "stopped":
            self._report_stall()
        self._outbox.end(reason, detail)
        self._ended_by = reason, detail

    def _report_absence(self, cause_of_all: str = "device") -> None:
        """Report the loss while the device is absent; `cause_of_all`: for a whole session."""
        if self._absent_since_ns is None or self._session is None:
            return
        for spec in self._specs:
            since_ns = self._last_ns.get(spec.name, self._absent_since_ns)
            cause = cause_of_all if since_ns <= self._session.begin_ns else "device"
            self._report_loss(spec, cause, since_ns)

    def _report_stall(self) -> None:
        """Report the loss of a driver that hangs or is late when its session ends."""
        session = self._session
        until_ns = None if session is None else session.until_ns
        late = until_ns is not None and self._clock.monotonic_ns() >= until_ns
        cause = self._stall.cause_of_loss(late=late)
        if session is not None and cause is not None:
            for spec in self._specs:
                since_ns = self._last_ns.get(spec.name, session.begin_ns)
                self._report_loss(spec, cause, since_ns, self._stall.stalled_ns)

    def _report_loss(
        self, spec: StreamSpec, cause: str, since_ns: int, at_least_ns: int | None = None
    ) -> None:
        """Report an interval of loss up to now, limited to the present session.

        With `at_least_ns`, it ends with the session's duration and is always reported.
        """
        if self._session is None or self._outbox is None or self._outbox.ended:
            return
        now_ns = self._clock.monotonic_ns()
        lost = interval_of_loss(self._session, spec, cause, (since_ns, now_ns), at_least_ns)
        if lost is not None:
            assert isinstance(lost.t_mono_ns, int)
            self._last_ns[spec.name] = lost.t_mono_ns
            self._outbox.offer(lost)

    def _cross(self) -> None:
        """End the present session and begin the next; the caller holds the lock."""
        if self._next is None or self._session is None or self._outbox is None:
            return
        went_on = not self._outbox.ended
        self._end_outbox("split")
        self._leaving = (self._session.key, self._outbox)
        self._session, self._next = self._next, None
        self._begin_outbox()
        self._share_ring()
        if not went_on:
            self._end_outbox(*self._ended_by)

    def _share_ring(self) -> None:
        """Reduce the ring by the bytes that it still holds for the session before the seam."""
        if self._outbox is not None:
            held = 0 if self._leaving is None else self._leaving[1].bytes_held
            self._outbox.buffer_bytes = max(0, self._granted_bytes - held)
            self._outbox.ring_bytes = self._granted_bytes

    def _warn_too_large(self, message: Message, ring_bytes: int) -> None:
        """Print, once per process, that the config must be changed."""
        if not self._warned_too_large:
            self._warned_too_large = True
            text = f"a sample of {message.nbytes / 1e6:.3g} MB is larger than the ring of its "
            text += f"driver ({ring_bytes / 1e6:.3g} MB): refused; raise storage.buffer_mb"
            print(f"{message.stream}: {text}", file=sys.stderr, flush=True)

    def _begin_outbox(self) -> None:
        assert self._session is not None
        self._outbox = Outbox(
            self._specs,
            epoch=self._clock.realtime_ns(),
            merge_bytes=SMALL_BYTES,
            session=self._session.key,
        )
        self._admitted = False
        self._finishing = self._reported_ended = False

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
                if self._next is not None and now_ns > self._next.begin_ns + self._seam_patience_ns:
                    self._cross()  # no message was published since the seam
            blocked = self._send_all()
            self._publish_tap()
            with self._changed:
                waiting = not self._armed or not self._empty()
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
                known = Ack.of(message).positions
                with self._changed:
                    if self._leaving is not None:
                        self._leaving[1].acknowledge(known)
                        self._share_ring()
                    if self._outbox is not None:
                        self._outbox.acknowledge(known)
                        self._report_ended()
                    self._changed.notify_all()
            case Kind.FINISH:
                finish = Finish.of(message)
                with self._changed:
                    if self._session is not None and self._session.key == finish.session:
                        self._finishing = True
                        self._end_outbox("stopped")
                    self._changed.notify_all()
            case Kind.FAULT:
                raise ProtocolError(f"the writer refuses: {Fault.of(message).text}")
            case _:
                raise ProtocolError(f"the writer sent a {message.kind} message")

    def _hello(self, hello: Hello) -> None:
        with self._changed:
            self._granted_bytes = hello.buffer_bytes
            self._follow(hello)
            self._share_ring()
            self._report_ended()
            armed, self._armed = self._armed, True
            self._changed.notify_all()
        if not armed:
            self._report("armed", streams=[s.to_wire() for s in self._specs])

    def _follow(self, hello: Hello) -> None:
        """Enter the writer's present session; the caller holds the lock."""
        session = hello.session
        if session is not None and self._leaving and self._leaving[0] == session.key:
            self._apply_hello(self._leaving[1], hello)  # a restarted writer resumes that session
            return
        if self._leaving is not None and self._leaving[0] != hello.crossing:
            self._leaving = None  # that session is closed
        if session is None:
            self._session = self._outbox = self._next = None
            return
        if self._session is None or self._session.key != session.key:
            self._next = session
            if self._session is not None and self._session.key == hello.crossing:
                self._cross()  # the writer has all messages before the seam
            else:
                self._begin_session(session)
        self._next = hello.next
        if self._outbox is not None:
            self._admitted = True
            self._apply_hello(self._outbox, hello)
            if self._outbox.ended:
                self._cross()  # no more messages will be published

    def _begin_session(self, session: Session) -> None:
        """Enter a session that this driver did not expect."""
        before, behind = self._session, self._outbox
        self._session, self._next, self._leaving = session, None, None
        self._begin_outbox()
        if before is None or behind is None or not session.goes_on_from(before):
            return
        if behind.ended and self._ended_by[0] not in ("stopped", "split"):
            self._end_outbox(*self._ended_by)  # an ended stream does not restart in a later part
        elif not behind.empty:
            # The part before is closed already: its unacknowledged messages are lost.
            for spec in self._specs:
                self._report_loss(spec, "driver", session.begin_ns)

    @staticmethod
    def _apply_hello(outbox: Outbox, hello: Hello) -> None:
        ring_bytes, window_bytes = hello.buffer_bytes, hello.window_bytes
        outbox.hello(hello.positions, buffer_bytes=ring_bytes, window_bytes=window_bytes)

    def _send_all(self) -> bool:
        """Send the messages within the credit; return True if the socket is blocked."""
        if self._owes_join:
            streams = [s.to_wire() for s in self._specs]
            if not self._socket.send(Join(self._sensor, streams, self._since_ns).message()):
                return True
            self._owes_join = False
        while True:
            with self._changed:
                outbox = None if self._leaving is None else self._leaving[1]
                message = None if outbox is None else outbox.next_to_send()
                if message is None and self._admitted:
                    outbox = self._outbox
                    message = None if outbox is None else outbox.next_to_send()
                if message is None or outbox is None:
                    return False
                if not self._socket.send(message):
                    return True
                outbox.mark_sent(message)

    def _publish_tap(self) -> None:
        if self._tap_queue:
            with self._changed:
                messages = self._tap_queue.take()
            for message in messages:
                self._tap.publish(message)
        self._wanted = frozenset(s.name for s in self._specs if self._tap.wanted(s.name))

    def _report_ended(self) -> None:
        outbox = self._outbox
        if outbox is not None and outbox.ended and outbox.empty and not self._reported_ended:
            self._reported_ended = True
            self._report_stats()
            self._report("ended")

    def _report_stats(self) -> None:
        held, buffer, refused = 0, self._granted_bytes, dict[str, int]()
        if (outbox := self._outbox) is not None:
            held = outbox.bytes_held + (self._leaving[1].bytes_held if self._leaving else 0)
            buffer, refused = outbox.buffer_bytes, dict(outbox.refused)
        given = self.counters.report()
        self._report("stats", held=held, buffer=buffer, refused=refused, given=given)
