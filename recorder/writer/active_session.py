"""Who is connected to the writer, what it has open, and what it tells of the one to the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from recorder.contract.errors import ProtocolError
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Kind, Message
from recorder.writer.sequencing import Position
from recorder.writer.session_writer import SessionWriter

SPLIT = "split"
"""Why a stream ends that goes on in the next session."""

WINDOW_BYTES = 32_000_000
"""Bytes that may be under way from all drivers together: bounds the writer's memory."""


@dataclass(slots=True)
class Peer:
    """A driver that has joined.

    Attributes:
        sensor: its sensor's name.
        specs: its streams by name.
        window_bytes, buffer_bytes: its share of credit, and of the rings.
        unreported: bytes appended since its last ack.
        finish_sent: it knows that the session ends.
        behind: it has not crossed the seam to the session that continues another.
        since_ns: start of its process, CLOCK_MONOTONIC; 0: not known.
    """

    sensor: str
    specs: dict[str, StreamSpec]
    window_bytes: int = 0
    buffer_bytes: int = 0
    unreported: int = 0
    finish_sent: bool = False
    behind: bool = False
    since_ns: int = 0

    @classmethod
    def of(cls, message: Message) -> Peer:
        """Who introduces itself with a `join` message.

        Raises:
            ProtocolError: it is none.
        """
        values = message.values
        try:
            specs = [StreamSpec.from_wire(spec) for spec in values["streams"]]
            since_ns = int(values.get("since_ns", 0))
            return cls(values["sensor"], {spec.name: spec for spec in specs}, since_ns=since_ns)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"not a join message: {error}") from None


@dataclass(slots=True)
class Finishing:
    """A session that was told to end: who asked, whose drivers live, when patience ends."""

    peer: bytes | None  # nobody: its disk is full, or another session continues it
    request: int
    live: set[str]
    deadline_ns: int
    at_seam: bool = False  # only who is behind the seam has something for it


@dataclass(slots=True)
class ActiveSession:
    """The open session and its threads.

    Attributes:
        last_ns: latest ``t_mono`` received by stream; one for all parts that continue each other.
        due: streams that went on at the end of the part before, and have given nothing since.
        late: those of them whose driver began only in this part: what they missed of it is lost.
        closer: closes the session; from then on no message is taken any more.
        closed: it has done so, or failed.
    """

    writer: SessionWriter
    interval_s: float
    until_ns: int | None
    positions: dict[str, Position] = field(default_factory=dict)
    last_ns: dict[str, int] = field(default_factory=dict)
    inbox: queue.SimpleQueue[tuple[bytes, Message] | None] = field(
        default_factory=queue.SimpleQueue
    )
    stop: threading.Event = field(default_factory=threading.Event)
    commit_due: threading.Event = field(default_factory=threading.Event)
    uncommitted: int = 0  # bytes appended since the last commit began
    threads: list[threading.Thread] = field(default_factory=list)
    failure: Exception | None = None
    full: str | None = None  # why it has to end: the disk's floor is reached
    finishing: Finishing | None = None
    due: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    closer: threading.Thread | None = None
    closed: bool = False
    waiting_since_ns: int | None = None  # when something was received first since the last commit
    committing_since_ns: int | None = None  # the same, of what the present commit makes durable
    commits: int = 0
    commit_ns: int = 0  # that they took together
    commit_last_ns: int = 0
    commit_max_ns: int = 0

    def oldest_uncommitted_s(self, now_ns: int) -> float:
        """Age of what waits longest here to be durable, in seconds."""
        known = [self.waiting_since_ns, self.committing_since_ns]
        return max(((now_ns - t_ns) / 1e9 for t_ns in known if t_ns is not None), default=0.0)

    def committed(self, took_ns: int) -> None:
        """Count a commit."""
        self.committing_since_ns = None
        self.commits += 1
        self.commit_ns += took_ns
        self.commit_last_ns = took_ns
        self.commit_max_ns = max(self.commit_max_ns, took_ns)

    def describe(self, now_ns: int, leaving: ActiveSession | None) -> dict[str, Any]:
        """How it stands, for whoever asks the writer; times in seconds.

        Args:
            now_ns: CLOCK_MONOTONIC.
            leaving: the session that it continues, while that is not closed: what waits there
                waits as well.
        """
        waits_s = [o.oldest_uncommitted_s(now_ns) for o in (self, leaving) if o is not None]
        return {
            "session": str(self.writer.path),
            "start_mono_ns": self.writer.start_mono_ns,
            "streams": self.writer.positions(),
            "oldest_uncommitted_s": max(waits_s),
            "commits": self.commits,
            "commit_s": self.commit_ns / 1e9,
            "commit_last_s": self.commit_last_ns / 1e9,
            "commit_max_s": self.commit_max_ns / 1e9,
        }

    def is_over(self, peers: Collection[Peer], now_ns: int) -> bool:
        """Whether all that live drivers have for it has come, or the grace is over."""
        asked = self.finishing
        if asked is None or now_ns >= asked.deadline_ns:
            return asked is not None
        # A new writer is asked before the drivers have found it: they still hold samples.
        missing = asked.live - {known.sensor for known in peers}
        owing = (k for k in peers if k.behind or not asked.at_seam)
        return not missing and all(self.all_ended(k) for k in owing if k.sensor in asked.live)

    @property
    def failed(self) -> bool:
        """Whether it is to be sealed now."""
        return self.failure is not None and (self.closed or self.closer is None)

    def declare(self, known: Peer) -> None:
        """Take a driver's streams, as `SessionWriter.declare` does."""
        for spec in known.specs.values():
            self.writer.declare(spec, known.sensor)
            state = self.writer.positions()[spec.name]
            self.positions.setdefault(spec.name, Position.of(state))

    def go_on(self) -> None:
        """Take the positions that the session's writer has come to."""
        for name, state in self.writer.positions().items():
            self.positions[name] = Position.of(state)
            if state["samples"]:
                self.last_ns[name] = state["last_ns"]

    def go_on_from(self, ends: Mapping[str, str | None], last_ns: dict[str, int]) -> None:
        """Take over what is known of the part before; both go on with the latest times."""
        for name, reason in ends.items():
            if reason in (None, SPLIT) and not self.positions.get(name, Position()).epoch:
                self.due.add(name)
        for name, t_ns in self.last_ns.items():
            last_ns[name] = max(t_ns, last_ns.get(name, t_ns))
        self.last_ns = last_ns

    def ends(self) -> dict[str, str | None]:
        """By stream, why it has ended; None: it goes on."""
        return {name: position.ended for name, position in self.positions.items()}

    def changed(self, known: Peer) -> bool:
        """Whether a driver has ended here for its streams are others now."""
        return any(p.ended == "changed" for n, p in self.positions.items() if n in known.specs)

    def owes_ack(self, known: Peer) -> bool:
        """Whether something that a driver has sent is under way to the disk."""
        for name in known.specs:
            position = self.positions.get(name, Position())
            if self.writer.durable.get(name, (0, 0)) != (position.epoch, position.number):
                return True
        return False

    def all_ended(self, known: Peer) -> bool:
        """Whether all of a driver's streams have ended in this session."""
        found = [self.positions.get(name) for name in known.specs]
        return all(position is not None and position.ended is not None for position in found)


def share_out(peers: Collection[Peer], buffer_bytes: int) -> None:
    """Split buffer and window: half evenly, half by expected bytes per second."""
    rates = [sum(s.bytes_per_second for s in peer.specs.values()) for peer in peers]
    for peer, rate in zip(peers, rates, strict=True):
        share = 0.5 / len(rates) + 0.5 * rate / sum(rates)
        peer.buffer_bytes = round(buffer_bytes * share)
        peer.window_bytes = round(min(WINDOW_BYTES, buffer_bytes) * share)


def hello(
    peer: Peer, current: ActiveSession | None, following: ActiveSession | None, left: str | None
) -> Message:
    """What a driver is told: the session, the message expected next of each stream, its credit.

    Args:
        peer: the driver.
        current: the session that it is in; None where none is open.
        following: the session that it is to cross to; None where it has, or need not.
        left: key of the session that another continues and that is not closed yet: what the
            driver holds for it is still owed to it.
    """
    positions = {}
    for name in peer.specs:
        if current is None:
            break
        position = current.positions.get(name, Position())
        epoch, appended = current.writer.appended.get(name, (0, 0))
        received = appended if epoch == position.epoch else 0
        positions[name] = (position.epoch, position.number, received)
    return Message(
        Kind.HELLO,
        values={
            "session": None if current is None else announcement(peer, current),
            "next": None if following is None else announcement(peer, following),
            "crossing": left,
            "positions": positions,
            "buffer_bytes": peer.buffer_bytes,
            "window_bytes": peer.window_bytes,
        },
    )


def announcement(peer: Peer, opened: ActiveSession) -> dict[str, Any]:
    """A session as a driver knows it (`drivers._kit.session_announcement.Session`)."""
    last = [opened.last_ns[s] for s in peer.specs if s in opened.last_ns]
    writer = opened.writer
    return {
        "key": writer.key,
        "start_ns": writer.play_start_mono_ns,
        "until_ns": opened.until_ns,
        "last_ns": max(last) if last else None,
        "seam_ns": writer.start_mono_ns if writer.previous is not None else None,
    }


def acknowledgement(peer: Peer, current: ActiveSession) -> Message:
    """How much of each of a driver's streams is durable, and how much was appended."""
    positions = {}
    for name in peer.specs:
        epoch, appended = current.writer.appended.get(name, (0, 0))
        of_epoch, durable = current.writer.durable.get(name, (0, 0))
        positions[name] = (epoch, durable if of_epoch == epoch else 0, appended)
    return Message(Kind.ACK, values={"positions": positions})
