"""Who is connected to the writer, what it has open, and what it tells of the one to the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection
from dataclasses import dataclass, field

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
    """

    sensor: str
    specs: dict[str, StreamSpec]
    window_bytes: int = 0
    buffer_bytes: int = 0
    unreported: int = 0
    finish_told: bool = False


@dataclass(slots=True)
class Finishing:
    """A session that was told to end: who asked, whose drivers live, when patience ends."""

    peer: bytes | None  # nobody: its disk is full
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


def share_out(peers: Collection[Peer], buffer_bytes: int) -> None:
    """Split buffer and window: half evenly, half by expected bytes per second."""
    rates = [sum(s.bytes_per_second for s in peer.specs.values()) for peer in peers]
    for peer, rate in zip(peers, rates, strict=True):
        share = 0.5 / len(rates) + 0.5 * rate / sum(rates)
        peer.buffer_bytes = round(buffer_bytes * share)
        peer.window_bytes = round(min(WINDOW_BYTES, buffer_bytes) * share)


def hello(peer: Peer, current: Opened | None) -> Message:
    """What a driver is told: the session, the message expected next of each stream, its credit."""
    session = None
    positions = {}
    if current is not None:
        last = [current.last_ns[s] for s in peer.specs if s in current.last_ns]
        session = {
            "key": current.writer.key,
            "start_ns": current.writer.start_mono_ns,
            "until_ns": current.until_ns,
            "last_ns": max(last) if last else None,
        }
        for name in peer.specs:
            position = current.positions[name]
            epoch, appended = current.writer.appended.get(name, (0, 0))
            received = appended if epoch == position.epoch else 0
            positions[name] = (position.epoch, position.number, received)
    return Message(
        Kind.HELLO,
        values={
            "session": session,
            "positions": positions,
            "buffer_bytes": peer.buffer_bytes,
            "window_bytes": peer.window_bytes,
        },
    )


def acknowledgement(peer: Peer, current: Opened) -> Message:
    """How much of each of a driver's streams is durable, and how much was appended."""
    positions = {}
    for name in peer.specs:
        epoch, appended = current.writer.appended.get(name, (0, 0))
        of_epoch, durable = current.writer.durable.get(name, (0, 0))
        positions[name] = (epoch, durable if of_epoch == epoch else 0, appended)
    return Message(Kind.ACK, values={"positions": positions})
