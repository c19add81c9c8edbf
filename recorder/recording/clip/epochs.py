"""Selection of the samples, sequence numbers and losses that a clip holds of each epoch.

Sample numbers stay as recorded.  A cut epoch begins at the number after the last sample before the
clip, and ends at the number of the first sample after it.  So the clip contains the gaps at both
cuts, with their losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recorder.session.events import make_event
from recorder.session.loss_accounts import find_gap_losses, get_event_interval_ns
from recorder.session.stream import Stream

CUT = "clip"
"""End reason of an epoch that continues after the clip."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class EpochCut:
    """The part of an epoch that is in a clip.

    Attributes:
        epoch: number of the epoch in the source session.
        start, stop: indices [start, stop) of the samples in the source session's stream.
        first_seq: sequence number of the first sample, stored or lost.
        sent: sequence number after the last sample, stored or lost; None if the driver reported
            none.
        ended: end reason; `CUT` if the epoch continues after the clip.
        losses: the ``lost`` events; those at the cuts are trimmed to the clip's sequence numbers.
    """

    epoch: int
    start: int
    stop: int
    first_seq: int
    sent: int | None
    ended: str
    losses: list[dict[str, Any]]


def cut_epochs(
    stream: Stream, events: Sequence[Event], begin_ns: int | None, end_ns: int | None
) -> list[EpochCut]:
    """Return the epochs of a stream with samples or losses in ``[begin_ns, end_ns)``.

    Args:
        stream: of a closed session of the recorder.
        events: the stream's ``lost`` events.
        begin_ns, end_ns: epoch ns; None: unbounded.

    Raises:
        FormatError: stamps or numbers cannot be read.
    """
    inside = stream.between(begin_ns, end_ns)
    entries = list(stream.epochs or ())
    firsts = [int(entry.get("first_sample", 0)) for entry in entries]
    cuts = []
    for entry, first, behind in zip(entries, firsts, [*firsts[1:], len(stream)], strict=True):
        own = [event for event in events if event.get("epoch") == entry.get("epoch")]
        start, stop = max(first, inside.start), min(behind, inside.stop)
        if start < stop:
            cuts.append(_cut(stream, entry, (first, behind), (start, stop), own, begin_ns, end_ns))
        elif first == behind and (kept := _select_overlapping(own, begin_ns, end_ns)):
            sent = entry.get("sent")  # the epoch has no sample
            ended = str(entry.get("ended") or "gone")
            cuts.append(EpochCut(int(entry["epoch"]), first, first, 0, sent, ended, kept))
    return cuts


def _cut(
    stream: Stream,
    entry: Mapping[str, Any],
    whole: tuple[int, int],
    part: tuple[int, int],
    events: Sequence[Event],
    begin_ns: int | None,
    end_ns: int | None,
) -> EpochCut:
    (first, behind), (start, stop) = whole, part
    first_seq = int(entry.get("first_seq") or 0)
    if start > first:
        first_seq = _read_seq(stream, start - 1) + 1
    sent, ended = entry.get("sent"), str(entry.get("ended") or "gone")
    limit: int | None = None
    later = [event for event in events if end_ns is not None and _get_begin_ns(event) >= end_ns]
    if stop < behind:
        limit = sent = _read_seq(stream, stop)
        ended = CUT
    elif later:  # the epoch ended after the clip
        limit = sent = _read_seq(stream, stop - 1) + 1
        ended = CUT
    numbers = first_seq, limit
    losses = [
        *_select_whole(events, numbers, begin_ns, end_ns),
        *_trim_events(stream, events, numbers),
    ]
    losses.sort(key=lambda event: int(event["t_ns"]))
    if sent is None and all(_is_counted(event) for event in losses):
        ended = CUT  # the unknown end lies outside the clip
        sent = 1 + max([_read_seq(stream, stop - 1), *(int(event["last_seq"]) for event in losses)])
    return EpochCut(int(entry["epoch"]), start, stop, first_seq, sent, ended, losses)


def _select_whole(
    events: Sequence[Event],
    numbers: tuple[int, int | None],
    begin_ns: int | None,
    end_ns: int | None,
) -> Iterator[dict[str, Any]]:
    """Yield the events that the clip contains unchanged."""
    for event in events:
        if not _is_counted(event):
            yield from _select_overlapping([event], begin_ns, end_ns)
        elif _is_within(event, numbers):
            yield dict(event)


def _trim_events(
    stream: Stream, events: Sequence[Event], numbers: tuple[int, int | None]
) -> Iterator[dict[str, Any]]:
    """Yield new events for the parts in the clip of events that cross its ends."""
    first_seq, limit = numbers
    cut = [
        event
        for event in events
        if _is_counted(event)
        and not _is_within(event, numbers)
        and event["last_seq"] >= first_seq
        and (limit is None or event["first_seq"] < limit)
    ]
    if not cut:
        return
    epoch = cut[0].get("epoch")
    for lost in find_gap_losses(stream, cut):
        if not lost.reported or lost.first_seq is None or lost.last_seq is None:
            continue
        low = max(lost.first_seq, first_seq)
        high = lost.last_seq if limit is None else min(lost.last_seq, limit - 1)
        at_ns = lost.end_ns if lost.end_ns is not None else lost.start_ns
        if low <= high and at_ns is not None:
            yield make_event(
                "lost", at_ns, stream.name, lost.cause,
                first_seq=low, last_seq=high, count=high - low + 1, epoch=epoch,
            )  # fmt: skip


def _select_overlapping(
    events: Sequence[Event], begin_ns: int | None, end_ns: int | None
) -> list[dict[str, Any]]:
    """Return copies of the events whose interval overlaps the clip."""
    found = []
    for event in events:
        interval = get_event_interval_ns(event)
        if interval is None:
            continue
        before = begin_ns is not None and interval[1] < begin_ns
        behind = end_ns is not None and interval[0] >= end_ns
        if not before and not behind:
            found.append(dict(event))
    return found


def _get_begin_ns(event: Event) -> int:
    interval = get_event_interval_ns(event)
    return -1 if interval is None else interval[0]


def _is_counted(event: Event) -> bool:
    return all(isinstance(event.get(key), int) for key in ("count", "first_seq", "last_seq"))


def _is_within(event: Event, numbers: tuple[int, int | None]) -> bool:
    first_seq, limit = numbers
    return bool(event["first_seq"] >= first_seq and (limit is None or event["last_seq"] < limit))


def _read_seq(stream: Stream, index: int) -> int:
    return int(stream.channels["seq"].read(index, index + 1)[0])
