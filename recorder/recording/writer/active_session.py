"""Session that is being recorded: its drivers and their credit, its inbox, and its threads."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from recorder.bus.messages import CHANGED, Join, Status
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock
from recorder.common.errors import RecorderError
from recorder.common.files import Disk
from recorder.recording.writer.disk_policy import Floor
from recorder.recording.writer.sequencing import Position, Verdict
from recorder.recording.writer.session_writer import SessionWriter

WINDOW_BYTES = 32_000_000
"""Limit of the unacknowledged bytes of all drivers, which bounds the writer's memory."""


@dataclass(slots=True)
class Peer:
    """A driver that has joined.

    Only the receiving thread writes these attributes.

    Attributes:
        sensor: name of the driver's sensor.
        specs: the driver's streams by name.
        window_bytes, buffer_bytes: the driver's share of the window and of the rings.
        finish_sent: whether the driver was informed that the session ends.
        behind: whether the driver has yet to cross to the session that continues the previous one.
        since_ns: start of the driver's process, CLOCK_MONOTONIC; 0: unknown.
    """

    sensor: str
    specs: dict[str, StreamSpec]
    window_bytes: int = 0
    buffer_bytes: int = 0
    finish_sent: bool = False
    behind: bool = False
    since_ns: int = 0

    @classmethod
    def from_join(cls, message: Message) -> Peer:
        """Create the peer from a driver's `join` message.

        Raises:
            ProtocolError: the message does not declare a sensor and its streams.
        """
        join = Join.of(message)
        return cls(join.sensor, join.specs(), since_ns=join.since_ns)


@dataclass(slots=True)
class Credit:
    """Use of one driver's window in a session.

    Attributes:
        appended_bytes: bytes appended to the session.
        requested_bytes: appended bytes at the last request for an acknowledgement.
        acknowledged_bytes: appended bytes at the last acknowledgement.
    """

    appended_bytes: int = 0
    requested_bytes: int = 0
    acknowledged_bytes: int = 0


def share_out(peers: Collection[Peer], buffer_bytes: int) -> None:
    """Divide buffer and window: half evenly, half by expected bytes per second."""
    rates = [sum(s.bytes_per_second for s in peer.specs.values()) for peer in peers]
    for peer, rate in zip(peers, rates, strict=True):
        share = 0.5 / len(rates) + 0.5 * rate / sum(rates)
        peer.buffer_bytes = round(buffer_bytes * share)
        peer.window_bytes = round(min(WINDOW_BYTES, buffer_bytes) * share)


@dataclass(slots=True)
class StopRequest:
    """Request to end a session: its sender, the live sensors, the deadline."""

    peer: bytes | None  # None: the disk is full, or another session continues it
    request: int
    live: set[str]
    deadline_ns: int
    at_seam: bool = False  # only drivers that are behind still have samples


@dataclass(slots=True)
class CommitTimes:
    """Count and durations of the commits so far.

    Attributes:
        count: number of commits.
        total_ns, last_ns, max_ns: durations of all commits, of the last, and of the longest.
    """

    count: int = 0
    total_ns: int = 0
    last_ns: int = 0
    max_ns: int = 0

    def add(self, took_ns: int) -> None:
        """Count a commit."""
        self.count += 1
        self.total_ns += took_ns
        self.last_ns = took_ns
        self.max_ns = max(self.max_ns, took_ns)


SPLIT = "split"
"""End reason of a stream that continues in the next session."""

_COMMITS_PER_BUFFER = 4
"""Divisor of the drivers' ring bytes: a commit is due when uncommitted bytes reach the result."""

_ACKS_PER_WINDOW = 4
"""Divisor of a driver's window: an acknowledgement is due when used bytes reach the result."""

_Received = tuple[Peer, bytes, Message, bool]
"""An accepted message: its driver, its identity, and whether an interval was lost before it."""


class ActiveSession:
    """Session that is being recorded, with its inbox and its threads::

        session = ActiveSession(writer, disk, clock, buffer_bytes, notify)
        session.start()                           # the append thread and the sync thread
        session.take(peer, identity, message)     # for each received message
        session.begin_close()                     # the close thread
        session.closed                            # true later; a `notify` follows

    Four threads use it.  *receive* is the service's thread.  It never waits for the disk, and it
    alone calls the public methods; any thread may call `fail` and `join_threads`.  *append* takes
    messages from the inbox and hands their bytes to the kernel.  *sync* makes them durable every
    sync interval, and at once when the last open stream has ended; it watches the disk's floor.
    *close* waits for these two and closes the session.  A fifth thread, *make*, exists while the
    next session of the recording is created.  It writes the name of that session into the journal
    of this one.

    Every attribute has one owner: only that thread writes the attribute and its content.  A *fixed*
    attribute is set at the start only, and its object is thread-safe.  A thread that changes
    something that *receive* has to act on calls `notify`.

    =========================  =======  ==========================================================
    attribute                  owner    readers; hand-over
    =========================  =======  ==========================================================
    writer                     fixed    all; `SessionWriter` has a lock and documents its scope
    inbox                      fixed    a queue: *receive* puts, *append* takes; None: the end
    failures                   fixed    a deque: all threads append; all read the first
    acks_requested             fixed    a deque: *append* appends, *receive* takes
    stop                       fixed    an event: all set it; *sync* ends
    commit_due                 fixed    an event: all set it; *sync* clears it and commits
    committed                  fixed    an event: *sync* sets it; *receive* clears it
    _disk                      fixed    *sync*
    _clock                     fixed    *receive*, *sync*
    _buffer_bytes              fixed    *append*
    _notify                    fixed    all call it: wakes *receive*
    positions                  receive  none
    last_ns                    receive  none; all parts of a recording share it
    due                        receive  none
    finishing                  receive  *append*, at the end of a stream
    _threads                   receive  *close*, which *receive* starts later
    closer                     receive  none
    _waiting                   receive  *sync*: a tuple, replaced as a whole
    full                       sync     *receive*, after each turn
    commits                    sync     *receive*, for a status
    CommitTimes.count          sync     *receive*, for a status
    CommitTimes.total_ns       sync     *receive*, for a status
    CommitTimes.last_ns        sync     *receive*, for a status
    CommitTimes.max_ns         sync     *receive*, for a status
    _commits_begun             sync     *receive*, with each message
    _committing_since_ns       sync     *receive*, for a status
    _committed_bytes           sync     *append*, with each message
    _appended_bytes            append   *sync*, when a commit begins
    _credits                   append   *receive*, which changes only `Credit.acknowledged_bytes`
    Credit.appended_bytes      append   *receive*, when it acknowledges
    Credit.requested_bytes     append   none
    Credit.acknowledged_bytes  receive  *append*, with each message
    closed                     close    *receive*, after `notify`
    Peer.window_bytes          receive  *append*, with each message
    Peer.buffer_bytes          receive  none
    Peer.finish_sent           receive  none
    Peer.behind                receive  none
    PendingSplit.live          receive  none
    PendingSplit.waiting       receive  none
    PendingSplit.thread        receive  none
    PendingSplit.writer        make     *receive*, once `done`
    PendingSplit.error         make     *receive*, once `done`
    PendingSplit.done          make     *receive*, after `notify`
    =========================  =======  ==========================================================

    `tests/drivers/kit/ownership.py` reads this table and checks simulated writers against it.

    Args:
        writer: writer of the session's files.
        disk: disk whose free space is watched.
        clock: source of times, for waits, too.
        buffer_bytes: sum of the drivers' rings.
        notify: wakes the receiving thread; safe in any thread.

    Attributes:
        inbox: accepted messages that are not yet appended.
        positions: by stream, the next expected message.
        last_ns: by stream, the latest received ``t_mono``; shared with the previous part.
        due: streams that had not ended in the previous part, and have sent nothing since.
        failures: errors that end the session; the first is the cause of the others.
        full: why the session must end, once the disk's floor is reached; else None.
        finishing: the request to end the session; None before it.
        closer: the thread that closes the session; no message is accepted once it exists.
        closed: whether the closer has closed the session, or failed.
        commits: count and durations of the commits.
        acks_requested: identities of drivers that have used much of their window.
        committed: event that data was committed since the last acknowledgement of the drivers.
    """

    def __init__(
        self,
        writer: SessionWriter,
        disk: Disk,
        clock: Clock,
        buffer_bytes: int,
        notify: Callable[[], None],
    ) -> None:
        self.writer = writer
        self._disk = disk
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._notify = notify
        self.inbox: queue.SimpleQueue[_Received | None] = queue.SimpleQueue()
        self.failures: deque[Exception] = deque()
        self.acks_requested: deque[bytes] = deque()
        self.stop = threading.Event()
        self.commit_due = threading.Event()
        self.committed = threading.Event()
        self.positions: dict[str, Position] = {}
        self.last_ns: dict[str, int] = {}
        self.due: set[str] = set()
        self.finishing: StopRequest | None = None
        self._threads: list[threading.Thread] = []
        self.closer: threading.Thread | None = None
        self._waiting = (-1, 0)  # commits begun at the first message, and its time
        self.full: str | None = None
        self.commits = CommitTimes()
        self._commits_begun = 0
        self._committing_since_ns: int | None = None
        self._committed_bytes = 0  # appended bytes at the start of the last commit
        self._appended_bytes = 0
        self._credits: dict[str, Credit] = {}  # by sensor
        self.closed = False
        for name, state in writer.positions().items():
            self.positions[name] = Position.from_state(state)
            if state["samples"]:
                self.last_ns[name] = state["last_ns"]

    # The receiving thread

    def start(self) -> None:
        """Start the append thread and the sync thread."""
        self._threads = [
            threading.Thread(target=self._append, args=(), name="append"),
            threading.Thread(target=self._sync, args=(), name="sync"),
        ]
        for thread in self._threads:
            thread.start()

    def take(self, peer: Peer, identity: bytes, message: Message) -> bool:
        """Accept the next message of a stream and queue it for the append thread.

        Returns:
            Whether earlier messages are missing, so that the driver has to send them again.

        Raises:
            ProtocolError: see `Position.judge`.
        """
        stream = message.stream
        position = self.positions.get(stream)
        if position is None:
            return False  # the driver has changed the stream and will declare it again
        verdict = position.judge(message)
        if verdict is not Verdict.ACCEPT:
            return verdict is Verdict.HOLE
        lost_before = False
        if stream in self.due:
            self.due.discard(stream)
            # A driver that began in this part has missed earlier samples.
            lost_before = peer.since_ns > self.writer.start_mono_ns
        if message.kind is Kind.DATA and not isinstance(message.t_mono_ns, int):
            self.last_ns[stream] = int(message.t_mono_ns[-1])
        begun = self._commits_begun
        if self._waiting[0] != begun:
            self._waiting = (begun, self._clock.monotonic_ns())
        self.inbox.put((peer, identity, message, lost_before))
        return False

    def declare(self, known: Peer) -> None:
        """Declare a driver's streams; see `SessionWriter.declare`."""
        for spec in known.specs.values():
            self.writer.declare(spec, known.sensor)
            state = self.writer.positions()[spec.name]
            self.positions.setdefault(spec.name, Position.from_state(state))

    def continue_from(self, ends: Mapping[str, str | None], last_ns: dict[str, int]) -> None:
        """Continue the state of the previous part; both then share the latest times."""
        for name, reason in ends.items():
            if reason in (None, SPLIT) and not self.positions.get(name, Position()).epoch:
                self.due.add(name)
        for name, t_ns in self.last_ns.items():
            last_ns[name] = max(t_ns, last_ns.get(name, t_ns))
        self.last_ns = last_ns

    def reset_credit(self, known: Peer) -> None:
        """Reset the used bytes of a driver's window when the driver is acknowledged."""
        credit = self._credits.get(known.sensor)
        if credit is not None:
            credit.acknowledged_bytes = credit.appended_bytes

    @property
    def waiting_since_ns(self) -> int | None:
        """Arrival of the first message since the last commit's start, CLOCK_MONOTONIC; or None."""
        begun, t_ns = self._waiting
        return t_ns if begun == self._commits_begun else None

    def oldest_uncommitted_s(self, now_ns: int) -> float:
        """Return the age of the oldest message that is not durable, in seconds."""
        known = [self.waiting_since_ns, self._committing_since_ns]
        return max(((now_ns - t_ns) / 1e9 for t_ns in known if t_ns is not None), default=0.0)

    def describe(self, status: Status, now_ns: int, leaving: ActiveSession | None) -> None:
        """Add an open session to the writer's status.

        Args:
            status: the status to complete.
            now_ns: CLOCK_MONOTONIC.
            leaving: the session that this one continues, until it is closed; its messages
                count too.
        """
        waits_s = [o.oldest_uncommitted_s(now_ns) for o in (self, leaving) if o is not None]
        status.session = str(self.writer.path)
        status.start_ns = self.writer.start_ns
        status.start_mono_ns = self.writer.start_mono_ns
        status.streams = self.writer.positions()
        status.oldest_uncommitted_s = max(waits_s)
        status.commits = self.commits.count
        status.commit_s = self.commits.total_ns / 1e9
        status.commit_last_s = self.commits.last_ns / 1e9
        status.commit_max_s = self.commits.max_ns / 1e9

    def is_over(self, peers: Collection[Peer], now_ns: int) -> bool:
        """Return whether all live drivers have sent their last message or the time has run out."""
        asked = self.finishing
        if asked is None or now_ns >= asked.deadline_ns:
            return asked is not None
        # Drivers that have not yet joined a new writer still hold samples.
        missing = asked.live - {known.sensor for known in peers}
        owing = (k for k in peers if k.behind or not asked.at_seam)
        return not missing and all(self.has_ended(k) for k in owing if k.sensor in asked.live)

    def ends(self) -> dict[str, str | None]:
        """Return the end reason by stream; None while the stream continues."""
        return {name: position.ended for name, position in self.positions.items()}

    def has_changed(self, known: Peer) -> bool:
        """Return whether a driver ended its streams here because their declarations changed."""
        return any(p.ended == CHANGED for n, p in self.positions.items() if n in known.specs)

    def owes_ack(self, known: Peer) -> bool:
        """Return whether a received message of a driver is not yet durable."""
        found = [(name, self.positions.get(name, Position())) for name in known.specs]
        durable = self.writer.durable
        return any(durable.get(name, (0, 0)) != (p.epoch, p.number) for name, p in found)

    def has_ended(self, known: Peer) -> bool:
        """Return whether all of a driver's streams have ended in this session."""
        return all(self.positions.get(name, Position()).ended is not None for name in known.specs)

    @property
    def failure(self) -> Exception | None:
        """The error that ends the session; None without an error."""
        return self.failures[0] if self.failures else None

    def begin_close(self) -> None:
        """Close the session in a new thread; `closed` is set at the end."""
        self.closer = threading.Thread(target=self._close, args=(), name="close")
        self.closer.start()

    # Any thread

    def fail(self, error: Exception) -> None:
        """Stop writing: the disk has failed."""
        self.failures.append(error)
        self.stop.set()
        self.commit_due.set()
        self._notify()

    def join_threads(self) -> None:
        """Append all received messages, then end the threads."""
        self.stop.set()
        self.commit_due.set()
        self.inbox.put(None)
        for thread in self._threads:
            thread.join()

    # The session's own threads

    def _append(self) -> None:
        """Append the messages of the inbox up to the final None."""
        writer, credits = self.writer, self._credits
        while (item := self.inbox.get()) is not None:
            if self.failures:
                return
            peer, identity, message, lost_before = item
            try:
                if lost_before:
                    writer.lose_tail(message.stream)  # from the start of this part to now
                writer.append(message)
            except (OSError, RecorderError) as error:
                self.fail(error)
                return
            size, ends, over = message.nbytes, message.kind is Kind.END, False
            del item, message  # free the memory before the driver may send more
            self._appended_bytes += size
            uncommitted = self._appended_bytes - self._committed_bytes
            if ends and self.finishing is None:  # otherwise closing commits
                over = all(p["ended"] is not None for p in writer.positions().values())
            if over or uncommitted * _COMMITS_PER_BUFFER >= self._buffer_bytes:
                self.commit_due.set()
            credit = credits.get(peer.sensor)
            if credit is None:
                credit = credits[peer.sensor] = Credit()
            credit.appended_bytes += size
            used = credit.appended_bytes - max(credit.requested_bytes, credit.acknowledged_bytes)
            if used * _ACKS_PER_WINDOW >= peer.window_bytes:
                credit.requested_bytes = credit.appended_bytes
                self.acks_requested.append(identity)
                self._notify()

    def _sync(self) -> None:
        """Commit every sync interval until `stop` is set."""
        writer, clock = self.writer, self._clock
        floor = Floor(self._disk, writer.path, writer.reserve_bytes, clock, writer.bytes)
        while not self.stop.is_set():
            clock.wait(self.commit_due, writer.sync_interval_s)
            if self.stop.is_set():
                break
            self.commit_due.clear()
            self._committed_bytes = self._appended_bytes
            self._committing_since_ns = self.waiting_since_ns
            self._commits_begun += 1
            began_ns = clock.monotonic_ns()
            try:
                writer.commit()
                self.commits.add(clock.monotonic_ns() - began_ns)
                self._committing_since_ns = None
                self.full = self.full or floor.check(writer.bytes)
            except (OSError, RecorderError) as error:
                self.fail(error)
                return
            self.committed.set()
            self._notify()

    def _close(self) -> None:
        """Close the session; `failure` holds the error if that fails.

        The interval from the last sample to now is lost for a stream that has not ended, and for a
        device's stream that ended because the device changed.
        """
        self.join_threads()
        try:
            if not self.failures:
                for name, state in self.writer.positions().items():
                    if state["ended"] in (None, CHANGED):
                        self.writer.lose_tail(name)
                self.writer.close("clean")
        except (OSError, RecorderError) as error:
            self.failures.append(error)
        self.closed = True
        self._notify()
