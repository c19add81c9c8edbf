"""The losses of a stream one by one, each with its interval of time.

A counted loss is a gap in the sample numbers: it lasts from the sample before to the sample after.
Its cause is in a ``lost`` event with the same numbers.  A loss without a gap (uncounted, or at the
end of an epoch) has the interval of its event.  Only stamps and numbers are read.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from recorder.session.loss_accounts import Gap, Run, epoch_ids, find_losses_beyond_gaps, scan
from recorder.session.stream import Stream

UNKNOWN = "unknown"
"""Cause of a loss without one."""

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LossInterval:
    """A loss.

    Attributes:
        start_ns: stamp of the sample before, or the start of the event; None: not known.
        end_ns: stamp of the sample after, or the end of the event; None: not known.
        cause: as in the event; `UNKNOWN` without one.
        count: number of samples; None if it was not counted.
        estimate: estimated number of samples of an uncounted loss.
        first_seq, last_seq: the missing numbers, both included, of a gap.
        reported: whether an event reports the loss.
    """

    start_ns: int | None
    end_ns: int | None
    cause: str
    count: int | None
    estimate: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    reported: bool = True

    def to_wire(self) -> dict[str, Any]:
        """Return a plain mapping for JSON."""
        keys = ("start_ns", "end_ns", "cause", "count", "estimate", "first_seq", "last_seq")
        wire: dict[str, Any] = {key: getattr(self, key) for key in keys}
        known = self.start_ns is not None and self.end_ns is not None
        wire["duration_ns"] = wire["end_ns"] - wire["start_ns"] if known else None
        return wire


def loss_intervals(stream: Stream | None, events: Sequence[Event]) -> Iterator[LossInterval]:
    """Yield all losses of a stream in order of time.

    Args:
        stream: the stream; None if it has no sample.
        events: its ``lost`` events.

    Raises:
        FormatError: stamps or numbers cannot be read.
    """
    if stream is None:
        return iter(sorted(map(_convert_event, events), key=_get_start_ns))
    runs = [item for item in scan(stream) if isinstance(item, Run)]
    beyond = {id(event): count for event, count in find_losses_beyond_gaps(stream, runs, events)}
    rest = []
    for event in events:
        if not isinstance(event.get("count"), int):
            rest.append(_convert_event(event))
        elif count := beyond.get(id(event)):
            rest.append(_convert_event(event, count))
    return heapq.merge(
        find_gap_losses(stream, events), sorted(rest, key=_get_start_ns), key=_get_start_ns
    )


def find_gap_losses(stream: Stream, events: Iterable[Event]) -> Iterator[LossInterval]:
    """Yield the gaps in a stream's sample numbers, in order; one loss for each cause of a gap.

    Args:
        stream: the stream.
        events: its ``lost`` events.

    Raises:
        FormatError: stamps or numbers cannot be read.
    """
    items = list(scan(stream))
    ids = epoch_ids(stream, (item for item in items if isinstance(item, Run)))
    reported: dict[Any, list[Event]] = {}
    for event in events:
        if isinstance(event.get("first_seq"), int) and isinstance(event.get("last_seq"), int):
            for epoch in {event.get("epoch"), None}:
                reported.setdefault(epoch, []).append(event)
    tables = {epoch: _Reported(known) for epoch, known in reported.items()}
    for gap in items:
        if not isinstance(gap, Gap):
            continue
        start_ns = end_ns = None
        if gap.index:
            start_ns = int(stream.times(gap.index - 1, gap.index)[0])
        if gap.index < len(stream):
            end_ns = int(stream.times(gap.index, gap.index + 1)[0])
        table = tables.get(ids.get(gap.epoch))
        parts = [(gap.first_seq, gap.last_seq, None)] if table is None else table.parts(gap)
        for first, last, cause in parts:
            yield LossInterval(
                start_ns, end_ns, cause or UNKNOWN, last - first + 1,
                first_seq=first, last_seq=last, reported=cause is not None,
            )  # fmt: skip


def get_event_interval_ns(event: Event) -> tuple[int, int] | None:
    """Return start and end of a ``lost`` event, epoch ns; None without a time.

    Its duration ends at its time; that of merged events begins there.
    """
    t_ns, duration_ns = event.get("t_ns"), event.get("duration_ns")
    if not isinstance(t_ns, int):
        return None
    length_ns = duration_ns if isinstance(duration_ns, int) else 0
    return (t_ns, t_ns + length_ns) if "merged" in event else (t_ns - length_ns, t_ns)


class _Reported:
    """An index of the events that report the numbers of a gap."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = sorted(events, key=lambda event: int(event["first_seq"]))
        self._firsts = [int(event["first_seq"]) for event in self._events]
        # The largest last number of the events up to each one.
        self._last = list(accumulate((int(event["last_seq"]) for event in self._events), max))

    def parts(self, gap: Gap) -> list[tuple[int, int, str | None]]:
        """Return the numbers of a gap by cause, in order; the cause is None without an event."""
        found = []
        k = bisect_right(self._firsts, gap.last_seq) - 1
        while k >= 0 and self._last[k] >= gap.first_seq:
            found.append(self._events[k])
            k -= 1
        # An event that was merged has the numbers of samples between its gaps, too: it comes last.
        found.sort(key=lambda event: int(event["last_seq"]) - int(event["first_seq"]))
        left = [(gap.first_seq, gap.last_seq)]
        parts: list[tuple[int, int, str | None]] = []
        for event in found:
            cause = str(event.get("cause") or UNKNOWN)
            rest = []
            for first, last in left:
                low, high = max(first, event["first_seq"]), min(last, event["last_seq"])
                if low > high:
                    rest.append((first, last))
                    continue
                parts.append((low, high, cause))
                rest += [(a, b) for a, b in ((first, low - 1), (high + 1, last)) if a <= b]
            left = rest
        return sorted(parts + [(first, last, None) for first, last in left], key=lambda p: p[:2])


def _convert_event(event: Event, count: int | None = None) -> LossInterval:
    start_ns, end_ns = get_event_interval_ns(event) or (None, None)
    counted, estimate = event.get("count"), event.get("estimate")
    if count is None and isinstance(counted, int):
        count = counted
    return LossInterval(
        start_ns,
        end_ns,
        str(event.get("cause") or UNKNOWN),
        count,
        estimate if count is None and isinstance(estimate, int) else None,
    )


def _get_start_ns(lost: LossInterval) -> int:
    return -1 if lost.start_ns is None else lost.start_ns
