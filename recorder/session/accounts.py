"""What a session says about its losses: gaps in sample numbers against lost events.

``seq`` counts from 0 in every epoch (one start of a driver) and goes on over what was lost, so
that a counted loss is a gap; a loss that nobody could count is an event without numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recorder.session.stream import Stream

WINDOW = 65536
"""Sample numbers read at a time."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Sample numbers that are missing before a sample, or at the end of an epoch.

    Attributes:
        index: index of the sample right after the gap (the stream's length at its end).
        epoch: position of the epoch in the stream, from 0.
        first_seq, last_seq: the numbers missing, both included.
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
    """Gaps in a stream's sample numbers in order, and after each epoch's gaps its `Run`.

    Where the session does not tell its epochs (it was not closed), a number that does not grow
    starts one.  Numbers that do not grow within a told epoch are passed over: that is damage, and
    validation reports it.  Yields nothing for a stream without ``seq``.
    """
    if "seq" not in stream.meta:
        return
    length = len(stream)
    told = None if stream.epochs is None else epoch_starts(stream)
    epoch, run_start, previous = 0, 0, -1
    for at in range(0, length, WINDOW):
        stop = min(at + WINDOW, length)
        seq = stream.channels["seq"].read(at, stop).astype(np.int64)
        before = np.concatenate(([previous], seq[:-1]))
        if told is None:
            starts = np.flatnonzero(seq <= before)
        else:
            starts = told[(told >= max(at, 1)) & (told < stop)] - at
        last_before = before[starts]
        before[starts] = -1
        jumps = np.flatnonzero(seq > before + 1)
        for j in np.union1d(starts, jumps).tolist():
            k = int(np.searchsorted(starts, j))
            if k < len(starts) and starts[k] == j:
                yield Run(epoch, run_start, at + j, int(last_before[k]))
                epoch, run_start = epoch + 1, at + j
            if seq[j] > before[j] + 1:
                yield Gap(at + j, epoch, int(before[j]) + 1, int(seq[j]) - 1)
        previous = int(seq[-1])
    yield Run(epoch, run_start, length, previous)


def epoch_starts(stream: Stream) -> Any:
    """First samples of the epochs that have samples, int64 [n], ascending, as the session says."""
    first = {int(entry.get("first_sample", 0)) for entry in stream.epochs or ()}
    return np.array(sorted(first), np.int64)


def gaps(stream: Stream) -> Iterator[Gap]:
    """The gaps in a stream's sample numbers, in order."""
    return (item for item in scan(stream) if isinstance(item, Gap))


def epoch_ids(stream: Stream, runs: Iterable[Run]) -> dict[int, int | None]:
    """The session's own number of each run's epoch, by `Run.epoch`; None where it tells none."""
    ids: dict[int, int | None] = {}
    for run in runs:
        ids[run.epoch] = None
        for entry in stream.epochs or ():
            # Of several that began at one index, all but the last gave no sample.
            if int(entry.get("first_sample", 0)) == run.start:
                ids[run.epoch] = entry.get("epoch")
    return ids


def untold(
    stream: Stream, runs: Sequence[Run], events: Iterable[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], int]]:
    """Counted losses that no gap shows, since no sample of their epoch follows.

    Args:
        stream: the stream.
        runs: its epochs' runs, as `scan` yields them.
        events: its ``lost`` events, in order.

    Returns:
        Events with the number of their samples that no gap shows.
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
        # A session that does not tell its epochs: only the last one's end can be judged.
        seen = final if epoch is None else last.get(epoch, -1)
        if last_seq > seen:
            found.append((event, min(count, last_seq - seen)))
            if epoch is None:
                final = last_seq
            else:
                last[epoch] = last_seq
    return found


def lost_events(events: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The ``lost`` events by stream, in order."""
    lost: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("type") == "lost" and isinstance(event.get("stream"), str):
            lost.setdefault(event["stream"], []).append(dict(event))
    return lost


def losses(events: Iterable[Mapping[str, Any]]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Counted losses by cause, and the intervals in which nobody could count.

    A cause that was only ever seen uncounted is there with 0: it did lose something.
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
