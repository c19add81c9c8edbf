"""Rates of the streams by the host's clock, compared with their minimum while recording.

A stream is below its minimum rate (`recorder.session.minimum_rate`) if the last seconds lack more
than one sample, until as many seconds lack none.  So a stream near its minimum is reported once::

    watch = RateWatch()
    for change in watch.update(now_ns, {"imu": 1200}, {"imu": 95.0}):
        change.stream, change.rate_hz, change.broken

The writer counts losses by the samples' own times, when an interval is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from recorder.session.minimum_rate import WINDOW_NS, window_ns

_STEP_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """A stream fell below its minimum rate, or is above it again."""

    stream: str
    broken: bool
    rate_hz: float
    floor_hz: float


@dataclass(slots=True)
class _Track:
    history: deque[tuple[int, int]] = field(default_factory=deque)
    broken: bool = False
    below_ns: int = 0  # the last time that it was below its floor
    rate_hz: float | None = None


class RateWatch:
    """Compares counts of samples with minimum rates."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}

    @property
    def broken(self) -> list[str]:
        """Streams below their floor now."""
        return [name for name, track in self._tracks.items() if track.broken]

    def rate(self, stream: str) -> float | None:
        """The stream's count per second over the last seconds; None before there is one."""
        track = self._tracks.get(stream)
        return None if track is None else track.rate_hz

    def reset(self) -> None:
        """Forget all counts: a session begins or ends."""
        self._tracks.clear()

    def update(
        self, now_ns: int, samples: Mapping[str, int], floors: Mapping[str, float | None]
    ) -> list[Change]:
        """Take the count of samples of each stream.

        Args:
            now_ns: CLOCK_MONOTONIC.
            samples: samples so far by stream; a smaller count than before (a new part) restarts.
            floors: minimum rates in Hz of the streams to judge; all others are forgotten.
        """
        for name in self._tracks.keys() - floors.keys():
            del self._tracks[name]
        changes = []
        for name, floor_hz in floors.items():
            change = self.count(now_ns, name, samples.get(name, 0), floor_hz)
            if change is not None:
                changes.append(change)
        return changes

    def count(
        self, now_ns: int, name: str, count: int, floor_hz: float | None = None
    ) -> Change | None:
        """Take the count of one stream; see `update`."""
        track = self._tracks.setdefault(name, _Track())
        history = track.history
        if history and count < history[-1][1]:
            history.clear()
        if not history or now_ns - history[-1][0] >= _STEP_NS:
            history.append((now_ns, count))
        length_ns = WINDOW_NS if floor_hz is None else window_ns(floor_hz)
        while len(history) > 1 and now_ns - history[1][0] >= length_ns:
            history.popleft()
        since_ns, before = history[0]
        seconds = (now_ns - since_ns) / 1e9
        if seconds > 0.5:
            track.rate_hz = (count - before) / seconds
        if floor_hz is None or now_ns - since_ns < length_ns:
            return None
        below = (count - before + 1) / seconds < floor_hz
        if below:
            track.below_ns = now_ns
        broken = below or (track.broken and now_ns - track.below_ns < length_ns)
        if broken == track.broken:
            return None
        track.broken = broken
        return Change(name, broken, (count - before) / seconds, floor_hz)
