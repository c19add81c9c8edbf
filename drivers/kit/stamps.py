"""Stamps of samples: late samples, steps of a source's clock, and the session's timeline.

Samples that can be placed are kept: after a step of the clock, samples continue on the previous
time base, and the step is reported.  A sample cannot be placed if its stamp fits neither the stamp
before nor the stamp after; it is counted as lost, cause ``time``::

    stamps = Stamps(specs, report_step)          # of a played source; a device passes its clock
    for item in stamps.take(driver.read()):      # none, one, or several that were held back
        ...
    for item in stamps.flush():                  # at the source's end
        ...

A played source's sample that jumps is held until the next sample of its stream.  That sample shows
whether the source has paused (a gap ahead, which is kept, however long), its clock was set back, or
only one stamp is wrong.  Samples of captures and logs that are a few milliseconds late are put in
their places first (`LateSamples`).  A device's sample is not held: the first sample
after a step is counted as lost, the later samples are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, Sample, State
from drivers.kit.sample_batches import single_samples
from recorder.codecs.streams import StreamSpec


class LateSamples:
    """Sorter of one stream's samples by their stamps, within a bounded time.

    A capture that is merged of two queues or interfaces, and a log of several buses, have samples
    that lie some milliseconds before their predecessors.  Their stamps are valid, so they are
    sorted::

        late = LateSamples(100_000_000)      # for one stream
        for item in late.take(item):         # no later sample can precede these
            ...
        for item in late.flush():            # at the end of the source
            ...

    A sample that lies further back is not late.  It keeps its place in the source, and `Stamps`
    judges it.

    Args:
        late_ns: how far a sample may lie before its predecessor.
    """

    def __init__(self, late_ns: int) -> None:
        self._late_ns = late_ns
        self._held: deque[Item] = deque()
        self._latest_ns: int | None = None

    def take(self, item: Item) -> Sequence[Item]:
        """Return the items, in order, that no later sample can precede."""
        ready: list[Item] = []
        if not isinstance(item, Sample):
            self._held.append(item)
        elif len(item.t_ns):
            first_ns, last_ns = int(item.t_ns[0]), int(item.t_ns[-1])
            rises = item.count == 1 or bool((np.diff(item.t_ns) >= 0).all())
            if rises and (self._latest_ns is None or first_ns >= self._latest_ns):
                self._held.append(item)
                self._latest_ns = last_ns
            else:
                for sample in single_samples(item):
                    ready += self._place(sample)
        return [*ready, *self._ready()]

    def flush(self) -> Sequence[Item]:
        """Return the held samples at the end of the source."""
        held = list(self._held)
        self._held.clear()
        self._latest_ns = None
        return held

    def _place(self, sample: Sample) -> Sequence[Item]:
        """Hold one sample in its place; return the samples before one that is not late."""
        t_ns, latest_ns = int(sample.t_ns[0]), self._latest_ns
        if latest_ns is None or t_ns >= latest_ns:
            self._held.append(sample)
            self._latest_ns = t_ns
            return ()
        if latest_ns - t_ns > self._late_ns:
            before = self.flush()
            self._held.append(sample)
            self._latest_ns = t_ns
            return before
        behind: list[Item] = []  # of the sample, the last first
        while self._held:
            item = self._held.pop()
            if isinstance(item, Sample) and item.count > 1 and int(item.t_ns[-1]) > t_ns:
                self._held.extend(single_samples(item))
                continue
            if isinstance(item, Sample) and int(item.t_ns[0]) <= t_ns:
                self._held.append(item)
                break
            behind.append(item)
        self._held.append(sample)
        self._held.extend(reversed(behind))
        return ()

    def _ready(self) -> list[Item]:
        ready: list[Item] = []
        while self._held:
            item = self._held[0]
            if (
                isinstance(item, Sample)
                and self._latest_ns is not None
                and int(item.t_ns[-1]) > self._latest_ns - self._late_ns
            ):
                break
            ready.append(self._held.popleft())
        return ready


CAUSE = "time"
"""Cause of the loss of samples that cannot be placed, and type of the event of a step."""
_PAUSE_NS = 1800 * 1_000_000_000
"""A longer jump ahead of a played source is a pause only if a further sample confirms it."""
_TOLERANCE_NS = 1_000_000  # backward steps up to this: the writer moves the stamp forward
_AHEAD_NS = 1_000_000_000  # a device's stamp is never further in the future
_BEHIND_NS = 60_000_000_000  # a device's first sample is never older
_PERIODS = 10  # shorter jumps are usual

ReportStep = Callable[[str, int, str], None]
"""Reports a step: the stream, the size of the step, and how it was handled."""


@dataclass(slots=True)
class _Track:
    usual_ns: int  # longest usual jump
    interval_ns: int
    last_ns: int | None = None  # of the latest sample that was placed
    shift_ns: int = 0  # added to the source's stamps
    held: Sample | None = None  # played source: with the source's own stamp
    suspect_ns: int | None = None  # device: the latest stamp that was not placed
    waiting: list[State | Lost] = field(default_factory=list)


def _make_track(spec: StreamSpec) -> _Track:
    interval_ns = round(1e9 / spec.rate_hz) if spec.rate_hz else 0
    usual_ns = max(_AHEAD_NS, _PERIODS * interval_ns) if interval_ns else _PAUSE_NS
    return _Track(usual_ns, interval_ns or _TOLERANCE_NS)


class Stamps:
    """Checks and corrections of the stamps of a source's items; see the module.

    Args:
        specs: the source's streams by name; streams may be added later.
        report_step: see `ReportStep`.
        now_ns: CLOCK_MONOTONIC, for a device; None: the source is played.
        late_ns: how far a played source's sample may lie before its predecessor and be sorted.
    """

    def __init__(
        self,
        specs: Mapping[str, StreamSpec],
        report_step: ReportStep,
        now_ns: Callable[[], int] | None = None,
        late_ns: int = 0,
    ) -> None:
        self._specs = specs
        self._late_ns = late_ns
        self._late = {name: LateSamples(late_ns) for name in specs} if late_ns else {}
        self._report_step = report_step
        self._now_ns = now_ns
        self._tracks: dict[str, _Track] = {}
        self.reset()

    def reset(self) -> None:
        """Forget all stamps: the source starts again."""
        self._tracks = {name: _make_track(spec) for name, spec in self._specs.items()}

    def take(self, item: Item) -> Sequence[Item]:
        """Return the items to continue with, in order, on one time base without steps."""
        if item.stream not in self._tracks:  # declared after the others
            self._tracks[item.stream] = _make_track(self._specs[item.stream])
            if self._late_ns:
                self._late[item.stream] = LateSamples(self._late_ns)
        if not self._late:
            return self._take(item)
        late = self._late[item.stream]
        return [each for placed in late.take(item) for each in self._take(placed)]

    def _take(self, item: Item) -> Sequence[Item]:
        track = self._tracks[item.stream]
        if not isinstance(item, Sample):
            return self._take_report(item, track)
        times = item.t_ns
        if not len(times):
            return ()
        if track.held is None and not track.waiting and self._is_usual(times, track):
            if track.shift_ns:
                item.t_ns = times + track.shift_ns
            track.last_ns, track.suspect_ns = int(item.t_ns[-1]), None
            return (item,)
        items: list[Item] = []
        for sample in single_samples(item):
            items += self._take_one(sample, track)
        return items

    def flush(self) -> Sequence[Item]:
        """Return the held items at the end of a played source."""
        items: list[Item] = []
        for late in self._late.values():
            for item in late.flush():
                items += self._take(item)
        for track in self._tracks.values():
            held, track.held = track.held, None
            if held is not None and track.last_ns is not None:
                ahead_ns = int(held.t_ns[0]) + track.shift_ns - track.last_ns
                fits = 0 < ahead_ns <= _PAUSE_NS
                items += self._place(held, track) if fits else self._lose(held, track)
            items += self._release(track, track.last_ns or 0)
        return items

    def _is_usual(self, times: npt.NDArray[np.int64], track: _Track) -> bool:
        first, last = int(times[0]) + track.shift_ns, int(times[-1]) + track.shift_ns
        if len(times) > 1:
            steps = np.diff(times)
            if int(steps.min()) < -_TOLERANCE_NS:
                return False
            if self._now_ns is None and int(steps.max()) > track.usual_ns:
                return False
        return self._fits(first, track) and (len(times) == 1 or self._is_past(last))

    def _fits(self, t_ns: int, track: _Track) -> bool:
        """Return whether a stamp continues from the stamp before."""
        if track.last_ns is None:
            recent = self._now_ns is None or t_ns >= self._now_ns() - _BEHIND_NS
            return recent and self._is_past(t_ns)
        if t_ns < track.last_ns - _TOLERANCE_NS or not self._is_past(t_ns):
            return False
        return self._now_ns is not None or t_ns - track.last_ns <= track.usual_ns

    def _is_past(self, t_ns: int) -> bool:
        return self._now_ns is None or t_ns <= self._now_ns() + _AHEAD_NS

    def _take_one(self, sample: Sample, track: _Track) -> list[Item]:
        raw_ns = int(sample.t_ns[0])
        if self._fits(raw_ns + track.shift_ns, track):
            lost = self._lose(track.held, track) if track.held is not None else []
            return lost + self._place(sample, track)
        if self._now_ns is not None:
            return self._take_of_device(sample, track, self._now_ns())
        held, track.held = track.held, sample
        if held is None:
            return []
        held_ns = int(held.t_ns[0])
        if not 0 < raw_ns - held_ns <= track.usual_ns:
            return self._lose(held, track, keep=sample)
        assert track.last_ns is not None  # the first sample fits
        if held_ns + track.shift_ns <= track.last_ns:
            self._step(track, sample.stream, held_ns, track.last_ns + track.interval_ns)
        return self._place(held, track) + self._place(sample, track)

    def _take_of_device(self, sample: Sample, track: _Track, now_ns: int) -> list[Item]:
        raw_ns, before_ns = int(sample.t_ns[0]), track.suspect_ns
        track.suspect_ns = raw_ns
        if before_ns is None or not 0 < raw_ns - before_ns <= track.usual_ns:
            return self._lose(sample, track)
        earliest_ns = now_ns if track.last_ns is None else track.last_ns + _TOLERANCE_NS
        self._step(track, sample.stream, raw_ns, max(now_ns, earliest_ns))
        state = State(sample.stream, now_ns, {"stamps_shifted_ns": track.shift_ns}, lasting=True)
        return [state, *self._place(sample, track)]

    def _step(self, track: _Track, stream: str, raw_ns: int, at_ns: int) -> None:
        """Shift the samples from a stamp of the source on, and report the step."""
        step_ns = raw_ns + track.shift_ns - at_ns
        track.shift_ns = at_ns - raw_ns
        self._report_step(
            stream, step_ns, f"its stamps step by {step_ns / 1e9:+.3f} s; stored without the step"
        )

    def _place(self, sample: Sample, track: _Track) -> list[Item]:
        sample.t_ns = sample.t_ns + track.shift_ns
        track.held = track.suspect_ns = None
        track.last_ns = int(sample.t_ns[0])
        return [*self._release(track, track.last_ns), sample]

    def _lose(self, sample: Sample, track: _Track, keep: Sample | None = None) -> list[Item]:
        """Count a sample that cannot be placed."""
        track.held = keep
        t_ns = track.last_ns
        if t_ns is None or self._now_ns is not None:
            t_ns = self._now_ns() if self._now_ns is not None else int(sample.t_ns[0])
        detail = {"stamp_ns": int(sample.t_ns[0])}
        return [Lost(sample.stream, t_ns, CAUSE, 1, detail=detail)]

    def _take_report(self, item: State | Lost, track: _Track) -> Sequence[Item]:
        """Keep the time of a state or loss, or give it the time of the next sample."""
        item.t_ns += track.shift_ns
        if self._now_ns is not None:
            item.t_ns = min(item.t_ns, self._now_ns() + _AHEAD_NS)
            return (item,)
        if track.last_ns is None or (
            not track.waiting and item.t_ns - track.last_ns <= track.usual_ns
        ):
            return (item,)
        track.waiting.append(item)
        return ()

    def _release(self, track: _Track, until_ns: int) -> list[Item]:
        waiting, track.waiting = track.waiting, []
        for item in waiting:
            item.t_ns = min(item.t_ns, until_ns)
        return list(waiting)


class Timeline:
    """Mapping of a played source's items to the host's monotonic clock, in place.

    ``t_mono`` = session start + (source stamp - the source's first stamp), whatever the pace.  Each
    loop is shifted by one period, and so are its device times.

    Args:
        specs: the source's streams.
        start_ns: CLOCK_MONOTONIC of the session's start.
        origin_ns: source stamp that is played at the start; None: the first item's stamp.
    """

    def __init__(
        self, specs: Mapping[str, StreamSpec], start_ns: int, origin_ns: int | None = None
    ) -> None:
        self._specs = specs
        self._start_ns = start_ns
        self._origin_ns = origin_ns
        self._loop_ns = 0
        self._end_ns = 0  # earliest start of the next loop, relative to the origin, without loops

    def place(self, item: Item) -> None:
        """Move an item's times from the source's time base to the session's."""
        if self._origin_ns is None:
            self._origin_ns = int(np.min(item.t_ns))
        shift = self._start_ns + self._loop_ns - self._origin_ns
        if not isinstance(item, Sample):
            item.t_ns += shift
            return
        spec = self._specs[item.stream]
        times = np.asarray(item.t_ns, np.int64)
        interval = round(1e9 / spec.rate_hz) if spec.rate_hz else 1
        self._end_ns = max(self._end_ns, int(times[-1]) - self._origin_ns + interval)
        item.t_ns = times + shift
        if not self._loop_ns:
            return
        if item.t_dev_ns is not None:
            item.t_dev_ns = item.t_dev_ns + self._loop_ns
        moved = {
            c.name: np.where(values != 0, values + values.dtype.type(self._loop_ns), values)
            for c in spec.channels
            if c.device_time and isinstance(values := item.data[c.name], np.ndarray)
        }
        if moved:  # a device time of 0 means "not measured" and is not shifted
            item.data = {**item.data, **moved}

    def loop(self) -> None:
        """Shift all following items by one period: the source starts again."""
        self._loop_ns += self._end_ns
