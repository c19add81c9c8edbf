"""Who is connected to the writer, what it has open, and what it tells of the one to the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Kind, Message
from recorder.writer.intake import Position
from recorder.writer.session_writer import SessionWriter

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
        finish_told: it knows that the session ends.
        behind: it has not crossed the seam to the session that continues another.
    """

    sensor: str
    specs: dict[str, StreamSpec]
    window_bytes: int = 0
    buffer_bytes: int = 0
    unreported: int = 0
    finish_told: bool = False
    behind: bool = False


@dataclass(slots=True)
class Finishing:
    """A session that was told to end: who asked, whose drivers live, when patience ends."""

    peer: bytes | None  # nobody: its disk is full, or another session continues it
    request: int
    live: set[str]
    deadline_ns: int


@dataclass(slots=True)
class Opened:
    """The open session and its threads."""

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
    waiting_since_ns: int | None = None  # when something was received first since the last commit
    committing_since_ns: int | None = None  # the same, of what the present commit makes durable
    commits: int = 0
    commit_ns: int = 0  # that they took together
    commit_last_ns: int = 0
    commit_max_ns: int = 0

    def oldest_uncommitted_ns(self) -> int | None:
        """When what waits longest to be durable was received (CLOCK_MONOTONIC); None: nothing."""
        known = [self.waiting_since_ns, self.committing_since_ns]
        return min((t_ns for t_ns in known if t_ns is not None), default=None)

    def committed(self, took_ns: int) -> None:
        """Count a commit."""
        self.committing_since_ns = None
        self.commits += 1
        self.commit_ns += took_ns
        self.commit_last_ns = took_ns
        self.commit_max_ns = max(self.commit_max_ns, took_ns)

    def describe(self, now_ns: int) -> dict[str, Any]:
        """How it stands, for whoever asks the writer; times in seconds."""
        since_ns = self.oldest_uncommitted_ns()
        return {
            "session": str(self.writer.path),
            "start_mono_ns": self.writer.start_mono_ns,
            "streams": self.writer.positions(),
            "oldest_uncommitted_s": 0.0 if since_ns is None else (now_ns - since_ns) / 1e9,
            "commits": self.commits,
            "commit_s": self.commit_ns / 1e9,
            "commit_last_s": self.commit_last_ns / 1e9,
            "commit_max_s": self.commit_max_ns / 1e9,
        }

    def all_ended(self, known: Peer) -> bool:
        """Whether all of a driver's streams have ended in this session."""
        return all(
            self.positions[name].ended is not None for name in known.specs if name in self.positions
        )


def share_out(peers: Collection[Peer], buffer_bytes: int) -> None:
    """Split buffer and window: half evenly, half by expected bytes per second."""
    rates = [sum(s.bytes_per_second for s in peer.specs.values()) for peer in peers]
    for peer, rate in zip(peers, rates, strict=True):
        share = 0.5 / len(rates) + 0.5 * rate / sum(rates)
        peer.buffer_bytes = round(buffer_bytes * share)
        peer.window_bytes = round(min(WINDOW_BYTES, buffer_bytes) * share)


def hello(peer: Peer, current: Opened | None, following: Opened | None) -> Message:
    """What a driver is told: the session, the message expected next of each stream, its credit.

    Args:
        peer: the driver.
        current: the session that it is in; None where none is open.
        following: the session that continues another, while that is not closed yet: the driver
            is to cross to it, or has.
    """
    session = None
    positions = {}
    if current is not None:
        session = announcement(peer, current)
        for name in peer.specs:
            position = current.positions[name]
            epoch, appended = current.writer.appended.get(name, (0, 0))
            received = appended if epoch == position.epoch else 0
            positions[name] = (position.epoch, position.number, received)
    return Message(
        Kind.HELLO,
        values={
            "session": session,
            "next": announcement(peer, following) if peer.behind and following else None,
            "crossing": following is not None,
            "positions": positions,
            "buffer_bytes": peer.buffer_bytes,
            "window_bytes": peer.window_bytes,
        },
    )


def announcement(peer: Peer, opened: Opened) -> dict[str, Any]:
    """A session as a driver knows it (`drivers._kit.link.Session`)."""
    last = [opened.last_ns[s] for s in peer.specs if s in opened.last_ns]
    writer = opened.writer
    return {
        "key": writer.key,
        "start_ns": writer.play_start_mono_ns,
        "until_ns": opened.until_ns,
        "last_ns": max(last) if last else None,
        "seam_ns": writer.start_mono_ns if writer.previous is not None else None,
    }


def acknowledgement(peer: Peer, current: Opened) -> Message:
    """How much of each of a driver's streams is durable, and how much was appended."""
    positions = {}
    for name in peer.specs:
        epoch, appended = current.writer.appended.get(name, (0, 0))
        of_epoch, durable = current.writer.durable.get(name, (0, 0))
        positions[name] = (epoch, durable if of_epoch == epoch else 0, appended)
    return Message(Kind.ACK, values={"positions": positions})
