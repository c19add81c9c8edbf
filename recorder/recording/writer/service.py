"""Receiving thread of the writer, for messages from drivers and commands from the supervisor.

The receiving thread never waits for the disk.  It puts accepted messages into a session's inbox,
whose size is limited by the drivers' credit.  Each session has its own threads
(`recorder.recording.writer.active_session`), which wake the receiving thread.  Only durable
messages are acknowledged.
"""

from __future__ import annotations

from pathlib import Path

from recorder.bus.messages import (
    AskStatus,
    Ending,
    PutEvent,
    Quit,
    Refusal,
    Reply,
    SessionPlan,
    Split,
    Start,
    Status,
    Stop,
    read_command,
)
from recorder.bus.sockets import Waker, WriterSocket
from recorder.bus.wire import NUMBERED, Kind, Message, check_data
from recorder.common.clock import Clock, SignalEvent
from recorder.common.errors import ProtocolError, RecorderError, StorageError
from recorder.common.files import Disk
from recorder.recording.writer.active_session import ActiveSession, Peer, StopRequest
from recorder.recording.writer.disk_policy import DISK, describe_error, read_ending
from recorder.recording.writer.driver_registry import DriverRegistry
from recorder.recording.writer.open_sessions import OpenSessions
from recorder.recording.writer.pending_split import PendingSplit, create
from recorder.recording.writer.sequencing import check_report
from recorder.recording.writer.session_writer import SessionWriter

REST_S = 0.02
_REST_NS = round(REST_S * 1e9)
_LITTLE = 16  # messages; a socket queues twice as many of each driver
_LITTLE_BYTES = 2_000_000  # in the time of a rest: 100 MB/s


class ReceiveBatching:
    """Policy that decides after each turn of the receiving thread whether to rest.

    Messages that arrive during a rest are handled together, since waking up with cold caches for
    each message costs several times the work itself.  There is no rest at high data rates: a fast
    driver would use up its window within the rest and then wait for its end.

    >>> rest = ReceiveBatching(clock)
    >>> if rest.should_rest(messages=3, size=70_000):
    ...     clock.wait(hurry, REST_S)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy = False
        self._since_ns = 0
        self._bytes = 0

    def should_rest(self, messages: int, size: int) -> bool:
        """Return whether a rest may follow a turn with this number of messages and bytes."""
        if not self._busy:
            if size >= _LITTLE_BYTES:
                self._busy, self._bytes = True, 0
                self._since_ns = self._clock.monotonic_ns()
            return 0 < messages < _LITTLE and not self._busy
        self._bytes += size
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._since_ns >= _REST_NS:
            self._busy = self._bytes * _REST_NS >= _LITTLE_BYTES * (now_ns - self._since_ns)
            self._since_ns, self._bytes = now_ns, 0
        return False


_POLL_S = 0.5
_FULL_GRACE_NS = 10_000_000_000  # for drivers, when the disk's floor ends a session


class WriterService:
    """Service of one writer process.

    Args:
        run_folder: the run's folder, in which the socket is bound.
        buffer_bytes: sum of all drivers' rings.
        clock, disk: injectable.
        resume: session to resume, which an earlier writer left open; None without one.
    """

    def __init__(
        self,
        run_folder: Path,
        buffer_bytes: int,
        clock: Clock,
        disk: Disk,
        resume: Path | None = None,
    ) -> None:
        self._waker = Waker()
        self._socket = WriterSocket(run_folder, self._waker, most_bytes=buffer_bytes)
        self._clock = clock
        self._disk = disk
        self._sessions = OpenSessions(disk, clock, buffer_bytes, self._waker.wake)
        self._drivers = DriverRegistry(self._socket, self._sessions, buffer_bytes)
        self._peers = self._drivers.peers  # used for each message
        self._pending_split: PendingSplit | None = None  # the next part, while it is created
        self._quit = False
        self._batching = ReceiveBatching(clock)
        self._hurry = SignalEvent()
        if resume is not None:
            self._sessions.resume(resume)

    def quit(self) -> None:
        """End `run`; safe in a signal handler.  An open session stays open in its journal."""
        self._quit = True
        self._hurry.set()
        self._waker.wake()

    def run(self) -> None:
        """Serve until `quit`."""
        sessions = self._sessions
        while not self._quit:
            self._socket.wait(_POLL_S)
            taken = size = 0
            while (received := self._socket.receive()) is not None:
                size += self._handle(*received)
                taken += 1
            if self._pending_split is not None and self._pending_split.done:
                self._go_on(self._pending_split)
            if self._pending_split is None:
                self._end_what_must()
            self._drivers.acknowledge_due()
            # A session must not end before the session that it continues.
            first = sessions.previous or sessions.active
            if first is not None and first.finishing is not None:
                self._finish(first)
            goes_on = sessions.active is not None and sessions.active.finishing is None
            if goes_on and self._batching.should_rest(taken, size):
                self._clock.wait(self._hurry, REST_S)
        if self._pending_split is not None:
            self._pending_split.abandon()
        for current in sessions:
            if current.closer is not None:
                current.closer.join()
            if current.failure is not None:
                self._seal(current)
            elif current.closer is None:
                current.join_threads()
                current.writer.abandon()
        self._socket.close()

    def _end_what_must(self) -> None:
        """Seal failed sessions; end the open session if its disk is full."""
        for current in self._sessions:
            if current.failures and (current.closed or current.closer is None):
                self._seal(current)
        active = self._sessions.active
        if active is not None and active.full and active.finishing is None:
            self._end_full(active, active.full)

    # Drivers

    def _handle(self, peer: bytes, message: Message | ProtocolError) -> int:
        """Handle a message; return its size in bytes."""
        if isinstance(message, ProtocolError):
            self._drivers.refuse(peer, message)
            return 0
        try:
            match message.kind:
                case Kind.JOIN:
                    self._join(peer, message)
                case Kind.COMMAND:
                    self._command(peer, message)
                case _ if peer not in self._peers:
                    self._drivers.ask_who(peer, again=message.kind is Kind.PING)
                case Kind.PING:
                    self._drivers.answer_ping(peer)
                case kind if kind in NUMBERED:
                    self._take(peer, message)
                case kind:
                    raise ProtocolError(f"a {kind} message is not for the writer")
        except ProtocolError as error:
            self._drivers.refuse(peer, error)
        return message.nbytes

    def _join(self, peer: bytes, message: Message) -> None:
        known = Peer.from_join(message)
        if self._pending_split is not None and known.since_ns >= self._pending_split.asked_ns:
            self._pending_split.waiting.append((peer, message))
            return
        self._drivers.join(peer, known)

    def _take(self, peer: bytes, message: Message) -> None:
        known = self._peers[peer]
        current = self._sessions.find(known)
        if current is None or message.session not in ("", current.writer.key) or current.closer:
            return  # a driver resends messages of a closed session
        spec = known.specs.get(message.stream)
        if spec is None:
            raise ProtocolError(f"{message.stream}: a message of a stream that was not declared")
        if message.kind is Kind.DATA:
            check_data(message, spec)
        else:
            check_report(message)
        if current.take(known, peer, message):
            self._drivers.hello(peer)
        elif current is self._sessions.previous and message.kind is Kind.END:
            self._drivers.cross(peer, current)

    # Commands

    def _command(self, peer: bytes, message: Message) -> None:
        try:
            match read_command(message):
                case Stop() | Split() if self._pending_split is not None:
                    self._pending_split.waiting.append((peer, message))
                    return
                case Start() as command:
                    self._start(command.plan)
                case Stop() as command:
                    self._stop(peer, message.number, command)
                    return  # answered when the session is closed
                case Split() as command:
                    self._split(peer, message.number, command)
                    return  # answered when the split session is closed
                case PutEvent() as command:
                    if self._sessions.active is not None:
                        self._sessions.active.writer.event(**command.event)
                case Quit():
                    self._quit = True
                case AskStatus():
                    pass
        except RecorderError as error:
            self._reply(peer, message.number, Refusal(str(error), error.exit_code))
            return
        self._reply(peer, message.number, self._status())

    def _reply(self, peer: bytes, request: int, reply: Reply) -> None:
        self._socket.send(peer, reply.message(request))

    def _status(self) -> Status:
        sensors = {p.sensor: sorted(p.specs) for p in self._peers.values()}
        status = Status(sensors, ended=self._sessions.ended)
        previous = self._sessions.previous
        if (current := self._sessions.active) is not None:
            current.describe(status, self._clock.monotonic_ns(), previous)
            status.splitting = previous is not None or self._pending_split is not None
        return status

    def _start(self, plan: SessionPlan) -> None:
        if (current := self._sessions.active or self._sessions.previous) is not None:
            raise StorageError(f"{current.writer.path}: a session is being recorded already")
        self._sessions.ended = None
        self._begin(create(self._disk, plan, self._clock, self._peers.values()))
        self._drivers.hello_all()

    def _begin(self, writer: SessionWriter) -> ActiveSession:
        for known in self._peers.values():
            known.finish_sent = False
        return self._sessions.begin(writer)

    def _split(self, peer: bytes, request: int, command: Split) -> None:
        """Begin the session that continues the open one; drivers cross to it one by one.

        A request that is repeated after a writer's death joins the split in progress.
        """
        asked_for = command.session
        left = self._sessions.previous
        if left is not None and (seam := left.finishing) is not None:
            if asked_for not in (None, str(left.writer.path)):
                raise StorageError(f"{left.writer.path}: is still being split")
            seam.peer, seam.request = peer, request
            seam.live = seam.live if command.live is None else set(command.live)
            return
        current = self._sessions.active
        if current is None or current.finishing is not None:
            raise StorageError("no session is being recorded that could be split")
        if asked_for is not None and asked_for != str(current.writer.path):
            if current.writer.previous != Path(asked_for).name:
                raise StorageError(f"{asked_for}: is not the session that is being recorded")
            self._reply(peer, request, self._after_split(Path(asked_for)))
            return
        live = set(current.writer.sensors if command.live is None else command.live)
        same = [known for known in self._peers.values() if not current.has_changed(known)]
        now_ns = self._clock.monotonic_ns()
        self._pending_split = PendingSplit(current, peer, request, live, now_ns)
        self._pending_split.start(self._disk, command.plan, self._clock, same, self._waker.wake)

    def _go_on(self, made: PendingSplit) -> None:
        """Begin the created next part; if its creation failed, continue the open one."""
        self._pending_split, current = None, made.current
        if made.writer is not None:
            self._sessions.leave(current, made.peer, made.request, made.live)
            self._drivers.leave(current)
            following = self._begin(made.writer)
            for known in self._peers.values():
                if not current.has_changed(known):
                    following.declare(known)  # includes drivers that joined since the request
            following.continue_from(current.ends(), current.last_ns)
            self._drivers.hello_all()
        elif (error := made.error) is not None:
            self._reply(made.peer, made.request, Refusal(str(error), error.exit_code))
        for peer, message in made.waiting:
            self._handle(peer, message)

    def _after_split(self, left: Path, how: Ending | None = None) -> Status:
        status = self._status()
        status.previous = how or read_ending(left) or Ending(str(left))
        return status

    def _stop(self, peer: bytes, request: int, command: Stop) -> None:
        current, previous = self._sessions.active, self._sessions.previous
        if current is None:
            self._reply(peer, request, self._sessions.ended or Ending(None))
            return
        live = set(command.live)
        deadline = self._clock.monotonic_ns() + round(command.grace_s * 1e9)
        if current.finishing is not None:
            deadline = current.finishing.deadline_ns
        if previous is not None and (seam := previous.finishing) is not None:
            seam.live &= live
        current.finishing = StopRequest(peer, request, live, deadline)
        for identity, known in list(self._peers.items()):
            if not known.finish_sent:
                self._drivers.send_finish(identity)

    # The end of a session

    def _end_full(self, current: ActiveSession, why: str) -> None:
        """End a session whose disk is nearly full, as if it had been stopped."""
        current.writer.event(DISK, cause="floor", detail=why)
        live = {known.sensor for known in self._peers.values()}
        deadline = self._clock.monotonic_ns() + _FULL_GRACE_NS
        current.finishing = StopRequest(None, 0, live, deadline)
        for identity in self._peers:
            self._drivers.send_finish(identity)

    def _finish(self, current: ActiveSession) -> None:
        """Close a session once its drivers have ended it; never wait for the disk."""
        now_ns = self._clock.monotonic_ns()
        if current.closed and current.failure is None:
            for peer in self._peers:
                self._drivers.acknowledge(peer)
            self._over(current)
        elif current.closer is None and current.is_over(self._peers.values(), now_ns):
            current.begin_close()

    def _seal(self, current: ActiveSession) -> None:
        """Seal a session whose disk failed, and record the reason in it."""
        current.join_threads()
        assert current.failure is not None
        cause = describe_error(current.failure)
        reason = f"{current.writer.path}: sealed at its last commit: {cause}"
        current.writer.seal(reason)
        self._over(current, sealed=reason)

    def _over(self, current: ActiveSession, sealed: str | None = None) -> None:
        """Remove a closed session; inform the drivers and the sender of the request."""
        writer = current.writer
        how = Ending(str(writer.path), writer.positions(), sealed, current.full)
        asked, was_left = current.finishing, current is self._sessions.previous
        self._sessions.remove(current, how)
        self._drivers.session_over()
        if asked is not None and asked.peer is not None:
            answer = self._after_split(writer.path, how) if was_left else how
            self._reply(asked.peer, asked.request, answer)
