"""Choice of the pictures that become samples; their matches, poses, motion, places and groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recorder.perception.earth import is_position, position_channel
from recorder.perception.frames import time_windows
from recorder.perception.geometry import Floats
from recorder.perception.poses import PoseSource, RollingTrajectory, Times
from recorder.session.stream import Stream

_SLACK = 0.1
"""Share of a period by which a picture may be early and still count as the one that is due.  The
picture may not be early by more than half of the time since the previous picture."""
_LONGEST_GAP_NS = 1_000_000_000


def choose_pictures(
    stream: Stream, every: int = 1, max_rate_hz: float | None = None
) -> Iterator[tuple[int, int]]:
    """Yield index and stamp (ns) of each picture that becomes a sample.

    Args:
        stream: the camera's stream.
        every: choose the pictures whose index is divisible by this number.
        max_rate_hz: largest rate of the pictures, evenly spaced; None: all pictures.
    """
    period_ns = round(1e9 / max_rate_hz) if max_rate_hz else 0
    due: int | None = None
    before_ns = 0
    for start, times in time_windows(stream):
        for index, t_ns in enumerate(times.tolist(), start):
            gap_ns, before_ns = t_ns - before_ns, t_ns
            if (index + stream.first) % every:
                continue
            if period_ns:
                if due is not None and t_ns < due - min(gap_ns / 2, _SLACK * period_ns):
                    continue
                due = t_ns + period_ns if due is None else max(due + period_ns, t_ns)
            yield index, t_ns


def nearest_all(stream: Stream, t_ns: Times, tolerance_ns: int) -> npt.NDArray[np.int64]:
    """Return the samples of a stream that are nearest to given times, as `Stream.at` chooses.

    Args:
        stream: a stream with times.
        t_ns: int64 [n].
        tolerance_ns: largest distance in time of a sample.

    Returns:
        indices of the samples, int64 [n]; -1 where no sample is near enough.
    """
    times, order = stream.t_ns, None
    if not len(times):
        return np.full(len(t_ns), -1)
    if (times[1:] < times[:-1]).any():  # a trace during which the clock was set back
        order = np.argsort(times, kind="stable")
        times = times[order]
    after = np.searchsorted(times, t_ns)
    before = np.maximum(after - 1, 0)
    after = np.minimum(after, len(times) - 1)
    best = np.where(np.abs(t_ns - times[before]) <= np.abs(times[after] - t_ns), before, after)
    near = np.abs(times[best] - t_ns) <= tolerance_ns
    return np.where(near, best if order is None else order[best], -1)


class PoseWalk:
    """Poses of the rig at rising times, from a source that yields blocks.

    Attributes:
        unknown: number of requested times without a pose.
    """

    def __init__(self, source: PoseSource) -> None:
        self._path = RollingTrajectory(source.blocks())
        self.unknown = 0

    def at(self, t_ns: Times) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return poses, f8 [n, 4, 4], rig to world, and which of them are known, bool [n].

        A pose is unknown more than 0.1 s before the first or after the last pose, and between two
        poses that are more than a second apart.

        Args:
            t_ns: int64 [n], rising, also from call to call.
        """
        poses, known = self._path.at(t_ns), self._path.knows(t_ns)
        self._path.forget(int(t_ns[0]))
        self.unknown += int(np.count_nonzero(~known))
        return poses, known


class Places:
    """Positions (latitude, longitude, height) from a stream of a satellite receiver."""

    def __init__(self, stream: Stream, channel: str) -> None:
        self.name = stream.name
        self._stream, self._channel = stream, channel

    def at(self, t_ns: int) -> tuple[float, float, float | None] | None:
        """Return latitude and longitude in degrees and height in m, interpolated between two fixes.

        None if the two fixes are more than two seconds apart, or one of them is invalid.
        """
        times = self._stream.t_ns
        after = int(np.clip(np.searchsorted(times, t_ns), 1, max(1, len(times) - 1)))
        first = after - 1
        values = self._stream.read(first, min(after + 1, len(times)), [self._channel])
        fixes = values[self._channel].astype(np.float64)
        if not is_position(fixes).all():
            return None
        span = int(times[min(after, len(times) - 1)] - times[first])
        late = t_ns - int(times[first])
        if late < -2 * _LONGEST_GAP_NS or late - span > 2 * _LONGEST_GAP_NS:
            return None
        if span > 2 * _LONGEST_GAP_NS:
            return None
        share = min(1.0, max(0.0, late / span)) if span else 0.0
        fix = fixes[0] + share * (fixes[-1] - fixes[0])
        if abs(fixes[-1][1] - fixes[0][1]) > 180:  # across the date line
            fix = fixes[round(share)]
        height = float(fix[2]) if len(fix) > 2 and np.isfinite(fix[2]) else None
        return float(fix[0]), float(fix[1]), height


def find_places(streams: list[Stream]) -> Places | None:
    """Return the first stream with a channel of latitude and longitude in degrees (and height)."""
    for stream in streams:
        channel = position_channel(stream)
        if channel is not None:
            return Places(stream, channel)
    return None


TRAIN, VAL, TEST = "train", "val", "test"
GROUPS = (TRAIN, VAL, TEST)
BLOCK_NS = 60_000_000_000


@dataclass(frozen=True)
class Split:
    """Split of samples into training, validation and testing.

    A hash of a name assigns whole sequences, or blocks of a minute.  Adding samples to a dataset
    never moves a sample to another group, and all cameras of a session get the same group::

        share = first 8 bytes of SHA-256 of KEY, big endian, / 2**64
        test if share < TEST, val if share < TEST + VAL, else train

    KEY is ``:SEQUENCE`` or, by blocks, ``:SEQUENCE:NUMBER``; NUMBER counts blocks from the start of
    the session.

    Attributes:
        by: ``sequence``, ``block`` or ``none``.
        val, test: shares of these groups, 0 to 1; the remaining samples are for training.
    """

    by: str = "sequence"
    val: float = 0.2
    test: float = 0.0

    def group(self, sequence: str, since_start_ns: int) -> str | None:
        """Return the group of a sample; None without a split.

        Args:
            sequence: name of the session's sequence, without the camera's name.
            since_start_ns: time from the session's start to the sample.
        """
        if self.by == "none":
            return None
        key = f":{sequence}"
        if self.by == "block":
            key += f":{since_start_ns // BLOCK_NS}"
        share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
        if share < self.test:
            return TEST
        return VAL if share < self.test + self.val else TRAIN
