"""What of a recording is kept for events, and what of a ring is deleted: pure, it only decides.

Times are epoch ns on the clock of the recording.  A part is a session; its samples may be stamped
up to `SLACK_NS` before its start or after its end, since a driver needs time for a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recorder.session.kept_events import KeptEvent

SLACK_NS = 2_000_000_000
TRIGGER_NS = 5_000_000_000
"""A trigger may ask so late for the seconds before its moment: a ring holds so much more."""


@dataclass(frozen=True, slots=True)
class Part:
    """A session, as far as decisions need it.

    Attributes:
        path: its folder.
        start_ns: its start.
        end_ns: its end; None while it is open, and after a crash until it is recovered.
        reach_ns: of a session that a crash left open, the latest stamp that it may hold; else None.
        bytes: of all its files; 0 if that does not matter.
        of_ring: it was recorded into a ring.
        kept: for an event, or by a person.
        previous: name of the part that it continues; None: of none.
        volatile: it is in RAM.
    """

    path: Path
    start_ns: int
    end_ns: int | None = None
    bytes: int = 0
    of_ring: bool = False
    kept: bool = False
    previous: str | None = None
    volatile: bool = False
    reach_ns: int | None = None

    @property
    def closed(self) -> bool:
        return self.end_ns is not None

    @property
    def durable(self) -> bool:
        """Whether all of it is on disk."""
        return self.closed and not self.volatile


def touches(part: Part, event: KeptEvent) -> bool:
    """Whether a part may hold samples of an event's window."""
    if part.start_ns - SLACK_NS > event.until_ns:
        return False
    end_ns = part.reach_ns if part.end_ns is None else part.end_ns
    return end_ns is None or end_ns + SLACK_NS >= event.from_ns


def is_over(event: KeptEvent, parts: Iterable[Part], now_ns: int) -> bool:
    """Whether all that will ever be recorded of an event's window is in closed parts on disk."""
    if is_awaited(event, now_ns):
        return False
    return all(part.durable for part in parts if touches(part, event))


def is_awaited(event: KeptEvent, now_ns: int) -> bool:
    """Whether samples of an event's window may still arrive."""
    return now_ns <= event.until_ns + SLACK_NS


def split_due(events: Iterable[KeptEvent], live: Part, now_ns: int) -> bool:
    """Whether a ring's open part should end now.

    On disk: its events are over, and no other has begun.  In RAM: an event needs it.
    """
    waiting = [event for event in events if touches(live, event)]
    if live.volatile:
        return bool(waiting)
    return bool(waiting) and not any(is_awaited(event, now_ns) for event in waiting)


def droppable(
    parts: Iterable[Part],
    events: Sequence[KeptEvent],
    now_ns: int,
    *,
    seconds: float,
    most_bytes: float,
    missing_bytes: float = 0.0,
) -> list[Part]:
    """The parts of a ring that are to be deleted, oldest first.

    A part goes when nothing of it is within the ring's length any more, or when the ring is too
    large, or when the disk needs the space.  A part that is kept, or that an open event needs,
    never goes.

    Args:
        parts: all parts.
        events: the open events.
        now_ns: now, on the clock of the recording.
        seconds: length of the ring.
        most_bytes: what its parts may take that are not kept.
        missing_bytes: so much more the disk should have free.
    """
    ring = sorted((p for p in parts if p.of_ring and not p.kept), key=lambda p: p.start_ns)
    total = sum(part.bytes for part in ring)
    horizon_ns = now_ns - round(seconds * 1e9) - TRIGGER_NS - SLACK_NS
    dropped = []
    for part in ring:
        if part.end_ns is None or any(touches(part, event) for event in events):
            continue
        if part.end_ns < horizon_ns or total > most_bytes or missing_bytes > 0:
            dropped.append(part)
            total -= part.bytes
            missing_bytes -= part.bytes
    return dropped
