"""Pure functions that decide which ring parts to keep and which to delete.

Times are epoch ns on the clock of the recording.  A part is a session; its samples may be stamped
up to `SLACK_NS` before its start or after its end, since a driver needs time for a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recorder.session.event_clips import KeptEvent

SLACK_NS = 2_000_000_000
TRIGGER_NS = 5_000_000_000
"""Longest delay of a trigger after its moment; a ring holds this much more than its length, ns."""


@dataclass(frozen=True, slots=True)
class Part:
    """A session, with the facts that decisions need.

    Attributes:
        path: the session's folder.
        start_ns: start of the recording.
        end_ns: end of the recording; None while it is open, and after a crash until recovery.
        reach_ns: latest stamp that a session left open by a crash may have; otherwise None.
        bytes: size of all files; 0 outside a ring.
        of_ring: whether it was recorded into a ring.
        kept: whether it is kept, for an event or by a user.
        previous: name of the part that this one continues; None without one.
        volatile: whether it is in RAM.
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
    """Return whether a part may hold samples of an event's window."""
    if part.start_ns - SLACK_NS > event.until_ns:
        return False
    end_ns = part.reach_ns if part.end_ns is None else part.end_ns
    return end_ns is None or end_ns + SLACK_NS >= event.from_ns


def is_over(event: KeptEvent, parts: Iterable[Part], now_ns: int) -> bool:
    """Return whether an event's window has passed and all its parts are closed and on disk."""
    if is_awaited(event, now_ns):
        return False
    return all(part.durable for part in parts if touches(part, event))


def is_awaited(event: KeptEvent, now_ns: int) -> bool:
    """Return whether samples of an event's window may still arrive."""
    return now_ns <= event.until_ns + SLACK_NS


def split_due(events: Iterable[KeptEvent], live: Part, now_ns: int) -> bool:
    """Return whether a ring's open part should end now.

    A part on disk should end when its events are over and no other has begun.  A part in RAM should
    end as soon as an event needs it.
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
    """Return the parts of a ring to delete, oldest first.

    A part is deleted when it is older than the ring's length, when the ring is too large, or when
    the disk needs the space.  A part that is kept, or that an open event needs, is never deleted.

    Args:
        parts: all parts.
        events: the open events.
        now_ns: now, on the clock of the recording.
        seconds: length of the ring.
        most_bytes: size limit of the parts that are not kept.
        missing_bytes: bytes by which the disk's free space is too small.
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
