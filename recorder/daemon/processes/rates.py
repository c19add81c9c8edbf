"""Minimum rates of the streams, checked while recording.

A stream's floor is its sensor's ``min_rate``, or half of the rate that its driver expects.  A
stream is below its floor if the last seconds lack more than one sample, until as many seconds
lack none.  So a stream near its minimum is reported once::

    watch = RateWatch()
    for change in watch.update(now_ns, {"imu": 1200}, {"imu": Floor(95.0, 100.0)}):
        change.stream, change.rate_hz, change.broken
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from recorder.contract.config.settings import SensorEntry
from recorder.contract.streams import StreamSpec

WINDOW_S = 3.0
_PERIODS = 3  # of the floor: a slow stream is given longer
_SHARE = 0.5  # of the expected rate, where no `min_rate` is set
_STEP_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class Floor:
    """The rate that a stream must keep, in Hz, and the rate that its driver expects.

    `agreed` is true if the config sets the rate (``min_rate``).
    """

    floor_hz: float
    expected_hz: float | None = None
    agreed: bool = True

    @property
    def window_s(self) -> float:
        return max(WINDOW_S, _PERIODS / self.floor_hz)


def floor_of(entry: SensorEntry, spec: StreamSpec) -> Floor | None:
    """The floor of one of a sensor's streams; None if it has none.

    ``min_rate`` concerns the stream that has the sensor's name; further streams (a lidar's IMU) are
    compared with their expected rates.
    """
    expected = spec.rate_hz or None
    if spec.name == entry.name and entry.min_rate is not None:
        return Floor(entry.min_rate, expected) if entry.min_rate > 0 else None
    return None if expected is None else Floor(expected * _SHARE, expected, agreed=False)


@dataclass(frozen=True, slots=True)
class Change:
    """A stream fell below its floor, or is above it again."""

    stream: str
    broken: bool
    rate_hz: float
    floor: Floor


@dataclass(slots=True)
class _Track:
    history: deque[tuple[int, int]] = field(default_factory=deque)
    broken: bool = False
    below_ns: int = 0  # the last time that it was below its floor
    rate_hz: float | None = None


class RateWatch:
    """Compares counts of samples with floors."""

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
        self, now_ns: int, samples: Mapping[str, int], floors: Mapping[str, Floor | None]
    ) -> list[Change]:
        """Take the count of samples of each stream.

        Args:
            now_ns: CLOCK_MONOTONIC.
            samples: samples so far by stream; a smaller count than before (a new part) restarts.
            floors: the streams to judge; all others are forgotten.
        """
        for name in self._tracks.keys() - floors.keys():
            del self._tracks[name]
        changes = []
        for name, floor in floors.items():
            change = self.count(now_ns, name, samples.get(name, 0), floor)
            if change is not None:
                changes.append(change)
        return changes

    def count(
        self, now_ns: int, name: str, count: int, floor: Floor | None = None
    ) -> Change | None:
        """Take the count of one stream; see `update`."""
        track = self._tracks.setdefault(name, _Track())
        history = track.history
        if history and count < history[-1][1]:
            history.clear()
        if not history or now_ns - history[-1][0] >= _STEP_NS:
            history.append((now_ns, count))
        window_s = WINDOW_S if floor is None else floor.window_s
        window_ns = round(window_s * 1e9)
        while len(history) > 1 and now_ns - history[1][0] >= window_ns:
            history.popleft()
        since_ns, before = history[0]
        seconds = (now_ns - since_ns) / 1e9
        if seconds > 0.5:
            track.rate_hz = (count - before) / seconds
        if floor is None or now_ns - since_ns < window_ns:
            return None
        below = (count - before + 1) / seconds < floor.floor_hz
        if below:
            track.below_ns = now_ns
        broken = below or (track.broken and now_ns - track.below_ns < window_ns)
        if broken == track.broken:
            return None
        track.broken = broken
        return Change(name, broken, (count - before) / seconds, floor)
