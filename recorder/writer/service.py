"""The writer's threads: receive, append, sync.

The receiving thread never waits for the disk; what it accepts goes into a queue whose bytes are
bounded by the drivers' credit.  The append thread hands bytes to the kernel, the sync thread
makes them durable every sync interval, and only what is durable is acknowledged.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from recorder.contract.bus import Waker, WriterSocket
from recorder.contract.clock import Clock, SignalEvent
from recorder.contract.errors import ProtocolError, RecorderError, StorageError
from recorder.contract.wire import NUMBERED, Kind, Message, check_data
from recorder.formats.disk import Disk
from recorder.session.layout import SessionPlan
from recorder.writer.active_session import (
    ActiveSession,
    Finishing,
    Peer,
    acknowledgement,
    hello,
    share_out,
)
from recorder.writer.disk_policy import DISK, came_to, ending, ending_of, next_of, what_failed
from recorder.writer.pending_split import PendingSplit
from recorder.writer.receive_batching import REST_S, ReceiveBatching
from recorder.writer.sequencing import Verdict, check_report
from recorder.writer.session_writer import SessionWriter
from recorder.writer.work import append_all, close, create, join_threads, sync_all

_POLL_S = 0.5
_DROPPED_PEERS = 64
_SEAM_GRACE_NS = 10_000_000_000  # for drivers, to hand over what they hold for a session
_FULL_GRACE_NS = 10_000_000_000  # for drivers, when the disk's floor ends a session


class WriterService:
    """One writer process's work.

    Args:
        run_folder: the run's folder, where the socket is bound.
        buffer_bytes: sum of all drivers' rings.
        clock, disk: injectable.
        resume: session that an earlier writer left open.
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
        self._buffer_bytes = buffer_bytes
        self._clock = clock
        self._disk = disk
        self._peers: dict[bytes, Peer] = {}
        self._strangers: set[bytes] = set()
        self._active: ActiveSession | None = None
        self._previous: ActiveSession | None = None  # the session that the open one continues
        self._pending_split: PendingSplit | None = (
            None  # the session that will continue the open one
        )
        self._quit = False
        self._ended: dict[str, Any] | None = None  # how the last session did
        self._batching = ReceiveBatching(clock)
        self._hurry = SignalEvent()
        self._ack_due = threading.Event()  # to all, for a commit
        self._acks_due: set[bytes] = set()  # to those who have used much of their window
        if resume is not None:
            self._resume(resume)

    def quit(self) -> None:
        """End `run`; safe in a signal handler.  An open session stays as the journal has it."""
        self._quit = True
        self._hurry.set()
        self._waker.wake()

    def run(self) -> None:
        """Serve until told to quit."""
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
            if self._ack_due.is_set():
                self._ack_due.clear()
                self._acks_due.clear()
                for peer in self._peers:
                    self._acknowledge(peer)
            while self._acks_due:
                if (peer := self._acks_due.pop()) in self._peers:
                    self._acknowledge(peer)
            # One after the other: a session is not over before the one that it continues.
            first = self._previous or self._active
            if first is not None and first.finishing is not None:
                self._finish(first)
            goes_on = self._active is not None and self._active.finishing is None
            if goes_on and self._batching.earned(taken, size):
                self._clock.wait(self._hurry, REST_S)
        if self._pending_split is not None:
            self._pending_split.abandon()
        for current in filter(None, (self._previous, self._active)):
            if current.closer is not None:
                current.closer.join()
            if current.failure is not None:
                self._seal(current)
            elif current.closer is None:
                join_threads(current)
                current.writer.abandon()
        self._socket.close()

    def _end_what_must(self) -> None:
        """Seal what has failed; end the open session where its disk is full."""
        for current in filter(None, (self._previous, self._active)):
            if current.failed:
                self._seal(current)
        if self._active is not None and self._active.full and self._active.finishing is None:
            self._end_full(self._active, self._active.full)

    def _handle(self, peer: bytes, message: Message | ProtocolError) -> int:
        """Act on a message; returns its size in bytes."""
        if isinstance(message, ProtocolError):
            self._refuse(peer, message)
            return 0
        try:
            match message.kind:
                case Kind.JOIN:
                    self._join(peer, message)
                case Kind.COMMAND:
                    self._command(peer, message)
                case _ if peer not in self._peers:
                    self._who(peer, again=message.kind is Kind.PING)
                case Kind.PING:
                    self._ping(peer)
                case kind if kind in NUMBERED:
                    self._take(peer, message)
                case kind:
                    raise ProtocolError(f"a {kind} message is not for the writer")
        except ProtocolError as error:
            self._refuse(peer, error)
        return message.nbytes

    def _refuse(self, peer: bytes, error: ProtocolError) -> None:
        """Tell a peer that broke the protocol, and forget it; its process will be restarted."""
        known = self._peers.pop(peer, None)
        if self._active is not None and known is not None:
            self._active.writer.event(
                "fault", cause="protocol", sensor=known.sensor, detail=str(error)
            )
        self._socket.send(peer, Message(Kind.FAULT, values={"message": str(error)}))

    def _who(self, peer: bytes, again: bool) -> None:
        if peer in self._strangers and not again:
            return
        if len(self._strangers) >= _DROPPED_PEERS:
            self._strangers.clear()
        self._strangers.add(peer)
        self._socket.send(peer, Message(Kind.WHO))

    def _join(self, peer: bytes, message: Message) -> None:
        known = Peer.of(message)
        if self._pending_split is not None and known.since_ns >= self._pending_split.asked_ns:
            self._pending_split.waiting.append((peer, message))
            return
        for identity, other in list(self._peers.items()):
            if other.sensor == known.sensor and identity != peer:
                del self._peers[identity]  # an earlier start of the same driver
            elif other.sensor != known.sensor and (both := other.specs.keys() & known.specs.keys()):
                raise ProtocolError(f"{known.sensor} and {other.sensor} both declare {min(both)!r}")
        self._strangers.discard(peer)
        self._peers[peer] = known
        left = self._previous
        known.behind = left is not None and left.closer is None and self._owes(known, left)
        for current in filter(None, (left if known.behind else None, self._active)):
            if current.closer is None:
                current.declare(known)
        self._share_out()
        for identity in self._peers:
            self._hello(identity)
        self._tell_finish(peer)

    def _owes(self, known: Peer, left: ActiveSession) -> bool:
        """Whether a driver that joins has something for the session that is left."""
        began = self._active is not None and known.since_ns > self._active.writer.start_mono_ns
        return not (began or left.all_ended(known))

    def _share_out(self) -> None:
        share_out(self._peers.values(), self._buffer_bytes)

    def _hello(self, peer: bytes) -> None:
        known = self._peers[peer]
        following = self._active if known.behind else None
        left = None if self._previous is None else self._previous.writer.key
        self._socket.send(peer, hello(known, self._session_of(known), following, left))

    def _session_of(self, known: Peer) -> ActiveSession | None:
        return self._previous if known.behind and self._previous is not None else self._active

    def _take(self, peer: bytes, message: Message) -> None:
        current = self._session_of(self._peers[peer])
        if current is None or message.session not in ("", current.writer.key) or current.closer:
            return  # what a driver has sent again for a session that is over
        spec = self._peers[peer].specs.get(message.stream)
        if spec is None:
            raise ProtocolError(f"{message.stream}: a message of a stream that was not declared")
        if message.kind is Kind.DATA:
            check_data(message, spec)
        else:
            check_report(message)
        position = current.positions.get(message.stream)
        if position is None:
            return  # its driver has changed it, and declares it anew
        match position.judge(message):
            case Verdict.ACCEPT:
                if message.stream in current.due:
                    current.due.discard(message.stream)
                    if self._peers[peer].since_ns > current.writer.start_mono_ns:
                        current.late.add(message.stream)
                if message.kind is Kind.DATA and not isinstance(message.t_mono_ns, int):
                    current.last_ns[message.stream] = int(message.t_mono_ns[-1])
                if current.waiting_since_ns is None:
                    current.waiting_since_ns = self._clock.monotonic_ns()
                current.inbox.put((peer, message))
                if message.kind is Kind.END and current is self._previous:
                    self._cross(peer, current)
            case Verdict.HOLE:
                self._hello(peer)
            case _:
                pass

    def _ping(self, peer: bytes) -> None:
        """A driver is owed something and hears nothing: say where we are.

        Where nothing of it is under way here, what it has sent has vanished: it goes back.
        """
        current = self._session_of(self._peers[peer])
        if current is not None and current.owes_ack(self._peers[peer]):
            self._acknowledge(peer)
        else:
            self._hello(peer)

    def _acknowledge(self, peer: bytes) -> None:
        known = self._peers[peer]
        known.unreported = 0
        for current in filter(None, (self._previous, self._active)):
            self._socket.send(peer, acknowledgement(known, current))

    def _command(self, peer: bytes, message: Message) -> None:
        values = message.values
        try:
            match values.get("op"):
                case "stop" | "split" if self._pending_split is not None:
                    self._pending_split.waiting.append((peer, message))
                    return
                case "start":
                    self._start(values)
                case "stop":
                    self._stop(peer, message)
                    return  # answered when the session is closed
                case "split":
                    self._split(peer, message)
                    return  # answered when the session that was split is closed
                case "status":
                    pass
                case "event":
                    if self._active is not None:
                        self._active.writer.event(**values["event"])
                case "quit":
                    self._quit = True
                case op:
                    raise ProtocolError(f"no command {op!r}")
        except RecorderError as error:
            self._reply(peer, message.number, error=str(error), exit_code=error.exit_code)
            return
        self._reply(peer, message.number, **self._status())

    def _reply(self, peer: bytes, request: int, **values: Any) -> None:
        self._socket.send(peer, Message(Kind.STATUS, number=request, values=values))

    def _status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "sensors": {p.sensor: sorted(p.specs) for p in self._peers.values()},
            "session": None,
            "ended": self._ended,
        }
        if (current := self._active) is not None:
            status |= current.describe(self._clock.monotonic_ns(), self._previous)
            status["splitting"] = self._previous is not None or self._pending_split is not None
        return status

    def _start(self, values: dict[str, Any]) -> None:
        if (current := self._active or self._previous) is not None:
            raise StorageError(f"{current.writer.path}: a session is being recorded already")
        self._ended = None
        plan = SessionPlan(**values["plan"])
        self._begin(create(self._disk, plan, self._clock, self._peers.values()))
        for peer in self._peers:
            self._hello(peer)

    def _split(self, peer: bytes, message: Message) -> None:
        """Begin the session that continues the open one; drivers cross the seam by and by.

        Asked again, since an earlier writer died over it, it is answered for the seam there is.
        """
        asked_for = message.values.get("session")
        left = self._previous
        if left is not None and (seam := left.finishing) is not None:
            if asked_for not in (None, str(left.writer.path)):
                raise StorageError(f"{left.writer.path}: is still being split")
            seam.peer, seam.request = peer, message.number
            seam.live = set(message.values.get("live", seam.live))
            return
        current = self._active
        if current is None or current.finishing is not None:
            raise StorageError("no session is being recorded that could be split")
        if asked_for not in (None, str(current.writer.path)):
            if current.writer.previous != Path(asked_for).name:
                raise StorageError(f"{asked_for}: is not the session that is being recorded")
            self._reply(peer, message.number, **self._after_split(Path(asked_for)))
            return
        plan = SessionPlan(**message.values["plan"])
        live = set(message.values.get("live", current.writer.sensors))
        same = [known for known in self._peers.values() if not current.changed(known)]
        now_ns = self._clock.monotonic_ns()
        making = self._pending_split = PendingSplit(current, peer, message.number, live, now_ns)
        how = self._disk, plan, self._clock, same, self._fail, self._waker.wake
        making.thread = threading.Thread(target=making.make, args=how, name="make")
        making.thread.start()

    def _go_on(self, making: PendingSplit) -> None:
        """The next part is there: all cross to it.  Or it cannot be: all goes on as before."""
        self._pending_split, current = None, making.current
        if making.writer is not None:
            self._leave(current, making.peer, making.request, making.live)
            following = self._begin(making.writer)
            for known in self._peers.values():
                if not current.changed(known):
                    following.declare(known)  # who has joined since it was asked for
            following.go_on_from(current.ends(), current.last_ns)
            for identity in self._peers:
                self._hello(identity)
        elif (error := making.error) is not None:
            self._reply(making.peer, making.request, error=str(error), exit_code=error.exit_code)
        for peer, message in making.waiting:
            self._handle(peer, message)

    def _leave(
        self, current: ActiveSession, peer: bytes | None, request: int, live: set[str]
    ) -> None:
        """From here on a session only takes what drivers still have for it."""
        self._previous = current
        for known in self._peers.values():
            known.behind = not current.all_ended(known)
        deadline = self._clock.monotonic_ns() + _SEAM_GRACE_NS
        current.finishing = Finishing(peer, request, live, deadline, at_seam=True)

    def _cross(self, peer: bytes, leaving: ActiveSession) -> None:
        """A driver's streams may all have ended in the session that is left."""
        known = self._peers[peer]
        if known.behind and leaving.all_ended(known) and self._active is not None:
            known.behind = False
            self._hello(peer)
            self._tell_finish(peer)

    def _after_split(self, left: Path, how: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._status() | {"previous": how or ending_of(left) or ending(left)}

    def _resume(self, path: Path) -> None:
        """Go on with a session; where that cannot be, say how it ended or why not.

        Where another continues it already, with that one, and with this one's end, too, unless
        it is closed.
        """
        try:
            while (following := next_of(path)) is not None:
                if ending_of(path) is None:
                    self._begin(SessionWriter.resume(self._disk, path, self._clock))
                    assert self._active is not None
                    self._leave(self._active, None, 0, set(self._active.writer.sensors))
                path = following
            writer = SessionWriter.resume(self._disk, path, self._clock)
        except (OSError, RecorderError) as error:
            self._previous = None  # what was left is open still, and has only to be closed
            why = f"{path}: a new writer cannot go on with it: {what_failed(error)}"
            self._ended = ending_of(path) or ending(path, sealed=why)
        else:
            current = self._begin(writer)
            if self._previous is not None:
                current.go_on_from(self._previous.ends(), self._previous.last_ns)
            elif (how := ending_of(path.parent / (writer.previous or ""))) is not None:
                current.go_on_from(*came_to(how["streams"]))

    def _begin(self, writer: SessionWriter) -> ActiveSession:
        current = self._active = ActiveSession(writer, writer.sync_interval_s, writer.until_ns)
        for known in self._peers.values():
            known.finish_sent = False
        current.go_on()
        append = current, self._buffer_bytes, self._appended, self._fail
        sync = current, self._disk, self._clock, self._committed, self._fail
        current.threads = [
            threading.Thread(target=append_all, args=append, name="append"),
            threading.Thread(target=sync_all, args=sync, name="sync"),
        ]
        for thread in current.threads:
            thread.start()
        return current

    def _appended(self, peer: bytes, size: int) -> None:
        known = self._peers.get(peer)
        if known is not None:
            known.unreported += size
            if known.unreported * 4 >= known.window_bytes:
                known.unreported = 0
                self._acks_due.add(peer)
                self._waker.wake()

    def _committed(self) -> None:
        self._ack_due.set()
        self._waker.wake()

    def _fail(self, current: ActiveSession, error: Exception) -> None:
        current.failure = error
        current.stop.set()
        current.commit_due.set()
        self._waker.wake()

    def _seal(self, current: ActiveSession) -> None:
        """The disk failed: nothing more is promised of this session, and it is said so."""
        join_threads(current)
        assert current.failure is not None
        cause = what_failed(current.failure)
        reason = f"{current.writer.path}: sealed at its last commit: {cause}"
        current.writer.seal(reason)
        self._over(current, sealed=reason)

    def _over(self, current: ActiveSession, sealed: str | None = None) -> None:
        """The session is closed: tell the drivers, and whoever asked for its end."""
        writer = current.writer
        how = ending(writer.path, writer.positions(), sealed, current.full)
        asked, left = current.finishing, None
        if current is self._previous:
            self._previous, left = None, writer.path
        else:
            self._active, self._ended = None, how
        for peer, known in self._peers.items():
            known.behind = known.behind and self._previous is not None
            self._hello(peer)
            self._tell_finish(peer)
        if asked is not None and asked.peer is not None:
            answer = how if left is None else self._after_split(left, how)
            self._reply(asked.peer, asked.request, **answer)

    def _end_full(self, current: ActiveSession, why: str) -> None:
        """The disk's floor is reached: the session ends as if it had been told to."""
        current.writer.event(DISK, cause="floor", detail=why)
        live = {known.sensor for known in self._peers.values()}
        deadline = self._clock.monotonic_ns() + _FULL_GRACE_NS
        current.finishing = Finishing(None, 0, live, deadline)
        for identity in self._peers:
            self._tell_finish(identity)

    def _stop(self, peer: bytes, message: Message) -> None:
        current = self._active
        if current is None:
            self._reply(peer, message.number, **(self._ended or ending(None)))
            return
        grace_s, live = message.values["grace_s"], set(message.values["live"])
        deadline = self._clock.monotonic_ns() + round(grace_s * 1e9)
        if current.finishing is not None:
            deadline = current.finishing.deadline_ns
        if self._previous is not None and (seam := self._previous.finishing) is not None:
            seam.live &= live
        current.finishing = Finishing(peer, message.number, live, deadline)
        for identity, known in list(self._peers.items()):
            if not known.finish_sent:
                self._tell_finish(identity)

    def _tell_finish(self, peer: bytes) -> None:
        known = self._peers[peer]
        current = self._session_of(known)
        # Who is behind is told when it has crossed, if there is anything to cross to.
        crosses = known.behind and self._active is not None
        if current is not None and current.finishing is not None and not crosses:
            known.finish_sent = True
            values = {"session": current.writer.key}
            self._socket.send(peer, Message(Kind.FINISH, values=values))

    def _finish(self, current: ActiveSession) -> None:
        """Close it once its drivers have come to its end; the disk is not waited for here."""
        now_ns = self._clock.monotonic_ns()
        if current.closed and current.failure is None:
            for identity in self._peers:
                self._acknowledge(identity)
            self._over(current)
        elif current.closer is None and current.is_over(self._peers.values(), now_ns):
            done = self._waker.wake
            current.closer = threading.Thread(target=close, args=(current, done), name="close")
            current.closer.start()
