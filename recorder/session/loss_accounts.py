"""The accounts of a session's losses: gaps in sample numbers, and lost events.

``seq`` counts from 0 in every epoch (one start of a driver) and includes lost samples, so that a
counted loss is a gap.  An uncounted loss is an event without numbers.  In a clip the first epoch of
a stream may begin at a later number.

The proof is one sum per epoch: stored samples and counted losses equal the number of samples that
the driver reports as sent at the end of the epoch (`balance`).

`loss_intervals` lists the losses one by one.  A counted loss lasts from the sample before to the
sample after, and its cause is in a ``lost`` event with the same numbers.  A loss without a gap
(uncounted, or at the end of an epoch) has the interval of its event.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from recorder.session.stream import Stream

WINDOW = 65536
"""Sample numbers read at a time."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing sample numbers, before a sample or at the end of an epoch.

    Attributes:
        index: index of the sample right after the gap (the stream's length at its end).
        epoch: position of the epoch in the stream, from 0.
        first_seq, last_seq: the missing numbers, both included.
    """

    index: int
    epoch: int
    first_seq: int
    last_seq: int

    @property
    def count(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class Run:
    """The samples of one epoch: indices [start, stop), the last number among them (-1: none)."""

    epoch: int
    start: int
    stop: int
    last_seq: int


def scan(stream: Stream) -> Iterator[Gap | Run]:
    """Yield gaps in a stream's sample numbers in order, and after each epoch's gaps its `Run`.

    In a session without recorded epochs (it was not closed), a number that does not increase
    starts an epoch.  Numbers that do not increase within a recorded epoch are ignored: validation
    reports that damage.  Yields nothing for a stream without ``seq``.
    """
    if "seq" not in stream.meta:
        return
    length = len(stream)
    reported = None if stream.epochs is None else read_epoch_starts(stream)
    numbers = _read_first_numbers(stream)
    epoch, run_start, previous = 0, 0, numbers.get(0, 0) - 1
    for at in range(0, length, WINDOW):
        stop = min(at + WINDOW, length)
        seq = stream.channels["seq"].read(at, stop).astype(np.int64)
        before = np.concatenate(([previous], seq[:-1]))
        if reported is None:
            starts = np.flatnonzero(seq <= before)
        else:
            starts = reported[(reported >= max(at, 1)) & (reported < stop)] - at
        last_before = before[starts]
        before[starts] = [numbers.get(at + int(j), 0) - 1 for j in starts]
        jumps = np.flatnonzero(seq > before + 1)
        for j in sorted({*starts.tolist(), *jumps.tolist()}):
            k = int(np.searchsorted(starts, j))
            if k < len(starts) and starts[k] == j:
                yield Run(epoch, run_start, at + j, int(last_before[k]))
                epoch, run_start = epoch + 1, at + j
            if seq[j] > before[j] + 1:
                yield Gap(at + j, epoch, int(before[j]) + 1, int(seq[j]) - 1)
        previous = int(seq[-1])
    yield Run(epoch, run_start, length, previous)


def read_epoch_starts(stream: Stream) -> Any:
    """Return the first samples of the recorded epochs, int64 [n], ascending."""
    first = {int(entry.get("first_sample", 0)) for entry in stream.epochs or ()}
    return np.array(sorted(first), np.int64)


def _read_first_numbers(stream: Stream) -> dict[int, int]:
    """Return the number that an epoch begins with if it is not 0, by index of its first sample."""
    return {
        int(entry.get("first_sample", 0)): int(entry["first_seq"])
        for entry in stream.epochs or ()
        if entry.get("first_seq")
    }


def gaps(stream: Stream) -> Iterator[Gap]:
    """Yield the gaps in a stream's sample numbers, in order."""
    return (item for item in scan(stream) if isinstance(item, Gap))


def epoch_ids(stream: Stream, runs: Iterable[Run]) -> dict[int, int | None]:
    """Return the recorded number of each run's epoch, by `Run.epoch`; None without one."""
    ids: dict[int, int | None] = {}
    for run in runs:
        ids[run.epoch] = None
        for entry in stream.epochs or ():
            # Of several epochs that began at one index, only the last has samples.
            if int(entry.get("first_sample", 0)) == run.start:
                ids[run.epoch] = entry.get("epoch")
    return ids


def find_losses_beyond_gaps(
    stream: Stream, runs: Sequence[Run], events: Iterable[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], int]]:
    """Return counted losses without a gap, since no sample of their epoch follows.

    Args:
        stream: the stream.
        runs: its epochs' runs, as `scan` yields them.
        events: its ``lost`` events, in order.

    Returns:
        Events with the number of their samples that are in no gap.
    """
    ids = epoch_ids(stream, runs)
    last = {ids[run.epoch]: run.last_seq for run in runs}
    final = runs[-1].last_seq if runs else -1
    found = []
    for event in events:
        count, last_seq = event.get("count"), event.get("last_seq")
        if not isinstance(count, int) or not isinstance(last_seq, int):
            continue
        epoch = event.get("epoch") if None not in last else None
        # Without recorded epochs, only the end of the last one can be judged.
        seen = final if epoch is None else last.get(epoch, -1)
        if last_seq > seen:
            found.append((event, min(count, last_seq - seen)))
            if epoch is None:
                final = last_seq
            else:
                last[epoch] = last_seq
    return found


@dataclass(frozen=True, slots=True)
class EpochAccount:
    """The account of the samples of one epoch (one start of a driver).

    Attributes:
        stream: name of the stream.
        position, of: position of the epoch in the stream, from 1, and how many there are.
        epoch: its recorded number.
        stored: samples on disk.
        lost: counted losses by cause.
        sent: samples that the driver reports as sent; None without a report.
        ended: why it ended (``eof``, ``stopped``, ``duration``, ..., ``gone``).
        intervals: uncounted losses, each ``{cause, t_ns, duration_ns, estimate}``.
        fault: why the sum is wrong; None if it is right.
    """

    stream: str
    position: int
    of: int
    epoch: int
    stored: int
    lost: dict[str, int]
    sent: int | None
    ended: str
    intervals: list[dict[str, Any]]
    fault: str | None

    @property
    def counted(self) -> int:
        """Samples counted as lost, over all causes."""
        return sum(self.lost.values())

    def to_wire(self) -> dict[str, Any]:
        """Return a plain mapping for JSON; ``balanced`` is None if only an interval is known."""
        balanced = False if self.fault else None if self.sent is None else True
        wire: dict[str, Any] = {"balanced": balanced}
        keys = ("stream", "epoch", "stored", "lost", "sent", "ended", "intervals")
        return {key: getattr(self, key) for key in keys} | wire

    def __str__(self) -> str:
        """Format the account as one line for people."""
        of = f" epoch {self.position} of {self.of}" if self.of > 1 else ""
        causes = ", ".join(f"{cause} {count}" for cause, count in self.lost.items() if count)
        text = f"{self.stream}{of}: {self.stored} stored + {self.counted} lost"
        text += f" ({causes})" if causes else ""
        known = [_format_interval(interval) for interval in self.intervals]
        if self.sent is not None:
            text += f" = {self.stored + self.counted} of {self.sent} sent; ended: {self.ended}"
            return "; ".join([text, *known])
        return (
            f"{text}; its driver did not report how many it sent: {'; '.join(known) or 'no event'}"
        )


def _format_interval(interval: Mapping[str, Any]) -> str:
    text = f"uncounted loss ({interval['cause']})"
    if isinstance(interval.get("duration_ns"), int):
        text += f" within {interval['duration_ns'] / 1e9:.3f} s"
    if isinstance(interval.get("estimate"), int):
        text += f", about {interval['estimate']} samples"
    return text


def balance(
    stream: str,
    epochs: Sequence[Mapping[str, Any]],
    length: int,
    runs: Iterable[Run],
    events: Sequence[Mapping[str, Any]],
) -> Iterator[EpochAccount]:
    """Yield a stream's accounts, epoch by epoch.

    Args:
        stream: name of the stream.
        epochs: from ``session.json``, ``[{epoch, first_sample, sent, ended}]``, and ``first_seq``
            where numbers do not begin with 0.
        length: samples of the stream.
        runs: its epochs' runs, as `scan` yields them; none for a stream without samples.
        events: its ``lost`` events.
    """
    last_seqs = {run.start: run.last_seq for run in runs if run.stop > run.start}
    starts = [int(entry.get("first_sample", 0)) for entry in epochs]
    for k, (start, stop) in enumerate(zip(starts, [*starts[1:], length], strict=False)):
        entry = epochs[k]
        reported = [event for event in events if event.get("epoch") == entry.get("epoch")]
        lost, intervals = losses(reported)
        stored, counted, sent = max(0, stop - start), sum(lost.values()), entry.get("sent")
        # An uncounted loss begins at a number too: all samples before it were sent.
        known = [e["last_seq"] + 1 for e in reported if isinstance(e.get("last_seq"), int)]
        known += [e["first_seq"] for e in reported if isinstance(e.get("first_seq"), int)]
        reached = max([last_seqs.get(start, -1) + 1 if stored else 0, *known])
        first_seq = int(entry.get("first_seq") or 0)
        sent, reached = sent - first_seq if isinstance(sent, int) else None, reached - first_seq
        fault = None
        if isinstance(sent, int):
            if stored + counted != sent:
                fault = f"{stored} stored + {counted} counted as lost are {stored + counted}"
                fault += f", but {sent} were sent"
        elif stored + counted > reached:
            fault = f"{stored} stored + {counted} counted as lost"
            fault += f", but numbers end at {first_seq + reached - 1}"
        elif not intervals:
            fault = "did not end, and no event says that something may be lost"
        yield EpochAccount(
            stream,
            k + 1,
            len(epochs),
            int(entry.get("epoch", 0)),
            stored,
            {cause: count for cause, count in lost.items() if count},
            sent,
            str(entry.get("ended") or "gone"),
            intervals,
            fault,
        )


def group_lost_events(events: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the ``lost`` events by stream, in order."""
    lost: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("type") == "lost" and isinstance(event.get("stream"), str):
            lost.setdefault(event["stream"], []).append(dict(event))
    return lost


def losses(events: Iterable[Mapping[str, Any]]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return counted losses by cause, and the intervals of uncounted losses.

    A cause with uncounted losses only has the count 0.
    """
    counted: dict[str, int] = {}
    intervals = []
    for event in events:
        cause, count = str(event.get("cause") or "unknown"), event.get("count")
        counted.setdefault(cause, 0)
        if isinstance(count, int):
            counted[cause] += count
        else:
            keys = ("cause", "t_ns", "duration_ns", "estimate")
            intervals.append({key: event.get(key) for key in keys})
    return counted, intervals


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
