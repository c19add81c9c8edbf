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
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import NUMBERED, Kind, Message, check_data
from recorder.formats.disk import Disk
from recorder.session.layout import SessionPlan
from recorder.writer.disk_policy import DISK, Floor, ending, ending_of, what_failed
from recorder.writer.intake import Position, Verdict, check_told
from recorder.writer.opened import Finishing, Opened, Peer, acknowledgement, hello, share_out
from recorder.writer.rest import REST_S, Rest
from recorder.writer.session_writer import SessionWriter

_POLL_S = 0.5
_COMMITS_PER_BUFFER = 4
"""Much that waits in the drivers' rings is committed before its interval is over."""
_DROPPED_PEERS = 64
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
        self._socket = WriterSocket(run_folder, self._waker)
        self._buffer_bytes = buffer_bytes
        self._clock = clock
        self._disk = disk
        self._peers: dict[bytes, Peer] = {}
        self._strangers: set[bytes] = set()
        self._open: Opened | None = None
        self._quit = False
        self._ended: dict[str, Any] | None = None  # how the last session did
        self._rest = Rest(clock)
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
            if self._open is not None and self._open.failure is not None:
                self._seal(self._open)
            if self._open is not None and self._open.full and self._open.finishing is None:
                self._end_full(self._open, self._open.full)
            if self._ack_due.is_set():
                self._ack_due.clear()
                self._acks_due.clear()
                for peer in self._peers:
                    self._acknowledge(peer)
            while self._acks_due:
                if (peer := self._acks_due.pop()) in self._peers:
                    self._acknowledge(peer)
            if self._open is not None and self._open.finishing is not None:
                self._finish(self._open)
            elif self._open is not None and self._rest.earned(taken, size):
                self._clock.wait(self._hurry, REST_S)
        if self._open is not None:
            self._join_threads(self._open)
            if self._open.failure is not None:
                self._seal(self._open)
            else:
                self._open.writer.abandon()
        self._socket.close()

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
        if self._open is not None and known is not None:
            self._open.writer.event(
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
        try:
            sensor = message.values["sensor"]
            specs = [StreamSpec.from_wire(s) for s in message.values["streams"]]
        except (KeyError, TypeError) as error:
            raise ProtocolError(f"not a join message: {error}") from None
        for other, known in list(self._peers.items()):
            if known.sensor == sensor and other != peer:
                del self._peers[other]  # an earlier start of the same driver
            elif known.sensor != sensor and (both := known.specs.keys() & {s.name for s in specs}):
                raise ProtocolError(f"{sensor} and {known.sensor} both declare {min(both)!r}")
        self._strangers.discard(peer)
        self._peers[peer] = Peer(sensor, {s.name: s for s in specs})
        if self._open is not None:
            for spec in specs:
                self._open.writer.declare(spec, sensor)
                state = self._open.writer.positions()[spec.name]
                self._open.positions.setdefault(spec.name, Position.of(state))
        self._share_out()
        for other in self._peers:
            self._hello(other)
        self._tell_finish(peer)

    def _share_out(self) -> None:
        share_out(self._peers.values(), self._buffer_bytes)

    def _hello(self, peer: bytes) -> None:
        self._socket.send(peer, hello(self._peers[peer], self._open))

    def _take(self, peer: bytes, message: Message) -> None:
        current = self._open
        if current is None:
            return
        spec = self._peers[peer].specs.get(message.stream)
        if spec is None:
            raise ProtocolError(f"{message.stream}: a message of a stream that was not declared")
        if message.kind is Kind.DATA:
            check_data(message, spec)
        else:
            check_told(message)
        match current.positions[message.stream].judge(message):
            case Verdict.ACCEPT:
                if message.kind is Kind.DATA and not isinstance(message.t_mono_ns, int):
                    current.last_ns[message.stream] = int(message.t_mono_ns[-1])
                current.inbox.put((peer, message))
            case Verdict.HOLE:
                self._hello(peer)
            case _:
                pass

    def _ping(self, peer: bytes) -> None:
        """A driver is owed something and hears nothing: say where we are.

        Where nothing of it is under way here, what it has sent has vanished: it goes back.
        """
        current = self._open
        if current is not None:
            for name in self._peers[peer].specs:
                position = current.positions[name]
                if current.writer.durable.get(name, (0, 0)) != (position.epoch, position.number):
                    self._acknowledge(peer)
                    return
        self._hello(peer)

    def _acknowledge(self, peer: bytes) -> None:
        current = self._open
        if current is None:
            return
        known = self._peers[peer]
        known.unreported = 0
        self._socket.send(peer, acknowledgement(known, current))

    def _command(self, peer: bytes, message: Message) -> None:
        values = message.values
        try:
            match values.get("op"):
                case "start":
                    self._start(values)
                case "stop":
                    self._stop(peer, message)
                    return  # answered when the session is closed
                case "status":
                    pass
                case "event":
                    if self._open is not None:
                        self._open.writer.event(**values["event"])
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
        if (current := self._open) is not None:
            status |= {
                "session": str(current.writer.path),
                "start_mono_ns": current.writer.start_mono_ns,
                "streams": current.writer.positions(),
            }
        return status

    def _start(self, values: dict[str, Any]) -> None:
        if self._open is not None:
            raise StorageError(f"{self._open.writer.path}: a session is being recorded already")
        plan = SessionPlan(**values["plan"])
        self._ended = None
        try:
            writer = SessionWriter.create(self._disk, plan, self._clock)
        except OSError as error:
            raise StorageError(f"{plan.root}: {error}") from None
        self._begin(writer, writer.sync_interval_s, writer.until_ns)
        for peer in self._peers:
            self._hello(peer)

    def _resume(self, path: Path) -> None:
        """Go on with a session; where that cannot be, say how it ended or why not."""
        try:
            writer = SessionWriter.resume(self._disk, path, self._clock)
        except (OSError, RecorderError) as error:
            why = f"{path}: a new writer cannot go on with it: {what_failed(error)}"
            self._ended = ending_of(path) or ending(path, sealed=why)
        else:
            self._begin(writer, writer.sync_interval_s, writer.until_ns)

    def _begin(self, writer: SessionWriter, interval_s: float, until_ns: int | None) -> None:
        current = self._open = Opened(writer, interval_s, until_ns)
        for known in self._peers.values():
            known.finish_told = False
            for spec in known.specs.values():
                writer.declare(spec, known.sensor)
                current.positions[spec.name] = Position()
        for name, state in writer.positions().items():
            current.positions[name] = Position.of(state)
            if state["samples"]:
                current.last_ns[name] = state["last_ns"]
        current.threads = [
            threading.Thread(target=self._append_all, args=(current,), name="append"),
            threading.Thread(target=self._sync_all, args=(current,), name="sync"),
        ]
        for thread in current.threads:
            thread.start()

    def _append_all(self, current: Opened) -> None:
        while (item := current.inbox.get()) is not None:
            peer, message = item
            if current.failure is not None:
                return
            try:
                current.writer.append(message)
            except (OSError, RecorderError) as error:
                self._fail(current, error)
                return
            current.uncommitted += message.nbytes
            if current.uncommitted * _COMMITS_PER_BUFFER >= self._buffer_bytes:
                current.commit_due.set()
            known = self._peers.get(peer)
            if known is not None:
                known.unreported += message.nbytes
                if known.unreported * 4 >= known.window_bytes:
                    known.unreported = 0
                    self._acks_due.add(peer)
                    self._waker.wake()

    def _sync_all(self, current: Opened) -> None:
        writer = current.writer
        floor = Floor(self._disk, writer.path, writer.reserve_bytes, self._clock, writer.bytes)
        while not current.stop.is_set():
            self._clock.wait(current.commit_due, current.interval_s)
            if current.stop.is_set():
                break
            current.commit_due.clear()
            current.uncommitted = 0
            try:
                writer.commit()
                current.full = current.full or floor.reached(writer.bytes)
            except (OSError, RecorderError) as error:
                self._fail(current, error)
                return
            self._ack_due.set()
            self._waker.wake()

    def _fail(self, current: Opened, error: Exception) -> None:
        current.failure = error
        current.stop.set()
        current.commit_due.set()
        self._waker.wake()

    def _seal(self, current: Opened) -> None:
        """The disk failed: nothing more is promised of this session, and it is said so."""
        self._join_threads(current)
        assert current.failure is not None
        cause = what_failed(current.failure)
        reason = f"{current.writer.path}: sealed at its last commit: {cause}"
        current.writer.seal(reason)
        self._over(current, sealed=reason)

    def _over(self, current: Opened, sealed: str | None = None) -> None:
        """The session is closed: tell the drivers, and whoever asked for its end."""
        self._open = None
        writer = current.writer
        self._ended = ending(writer.path, writer.positions(), sealed, current.full)
        for peer in self._peers:
            self._hello(peer)
        if (asked := current.finishing) is not None and asked.peer is not None:
            self._reply(asked.peer, asked.request, **self._ended)

    def _end_full(self, current: Opened, why: str) -> None:
        """The disk's floor is reached: the session ends as if it had been told to."""
        current.writer.event(DISK, cause="floor", detail=why)
        live = {known.sensor for known in self._peers.values()}
        deadline = self._clock.monotonic_ns() + _FULL_GRACE_NS
        current.finishing = Finishing(None, 0, live, deadline)
        for identity in self._peers:
            self._tell_finish(identity)

    def _stop(self, peer: bytes, message: Message) -> None:
        current = self._open
        if current is None:
            self._reply(peer, message.number, **(self._ended or ending(None)))
            return
        grace_s, live = message.values["grace_s"], set(message.values["live"])
        deadline = self._clock.monotonic_ns() + round(grace_s * 1e9)
        if current.finishing is not None:
            deadline = current.finishing.deadline_ns
        current.finishing = Finishing(peer, message.number, live, deadline)
        for identity, known in list(self._peers.items()):
            if not known.finish_told:
                self._tell_finish(identity)

    def _tell_finish(self, peer: bytes) -> None:
        if self._open is not None and self._open.finishing is not None:
            self._peers[peer].finish_told = True
            values = {"session": self._open.writer.key}
            self._socket.send(peer, Message(Kind.FINISH, values=values))

    def _finish(self, current: Opened) -> None:
        """Close once every live driver's streams have ended, or when the grace is over."""
        asked = current.finishing
        assert asked is not None
        peers = self._peers.values()
        # A new writer is asked before the drivers have found it: they still hold samples.
        missing = asked.live - {known.sensor for known in peers}
        owed = any(
            current.positions[name].ended is None
            for known in peers
            if known.sensor in asked.live
            for name in known.specs
        )
        if (missing or owed) and self._clock.monotonic_ns() < asked.deadline_ns:
            return
        self._join_threads(current)
        if current.failure is not None:
            self._seal(current)
            return
        try:
            for name, state in current.writer.positions().items():
                if state["ended"] is None:
                    current.writer.lose_tail(name)
            current.writer.close("clean")
        except (OSError, RecorderError) as error:
            current.failure = error
            self._seal(current)
            return
        for identity in self._peers:
            self._acknowledge(identity)
        self._over(current)

    def _join_threads(self, current: Opened) -> None:
        current.stop.set()
        current.commit_due.set()
        current.inbox.put(None)
        for thread in current.threads:
            thread.join()
