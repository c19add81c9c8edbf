"""The points of a lidar's sweeps, each with its own time.

::

    sweeps = SweepPoints(recorded_spec(stream), destaggered=True)
    sample = stream.sample(index, sweeps.channels)
    start_ns, points = sweeps.points(sample, t_ns)      # t_ns: the sample's stamp
    points["x"], start_ns + points["t"].astype(np.int64)

A point is measured at the time of its column: `start_ns` is the time of the earliest column of the
sweep, and ``t`` the time from there.  The stamp of a sweep is the time of its last column.  Column
times are the sensor's (``t_col``); without them they are spread evenly (`frames.sweep_times`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.formats.ros2.clouds import NO_TIME
from recorder.perception.encoded import EncodedSamples
from recorder.perception.frames import Times, sweep_times
from recorder.perception.lidar.lidar import OusterOptics, pixel_shifts
from recorder.session.stream import Stream

POINT: Final = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "u1"), ("return", "u1"),
     ("ring", "<u2"), ("t", "<u4")]
)  # fmt: skip
"""A point: m, in the sensor's frame; reflectivity; 0 for the first return; row of the sweep, which
is the beam; ns from the earliest column of the sweep."""

METADATA: Final = "lidar.json"
RETURNS: Final = (("rng", "rng_far", "rfl"), ("rng2", "rng2_far", "rfl2"))
"""Channels of each return: range, excess of a range over 65535 mm, reflectivity."""
_PERIOD_NS: Final = 100_000_000
_LATEST: Final = np.iinfo(np.uint32).max

Values = npt.NDArray[Any]


class PointSource(ABC):
    """A converter from the sweeps of one lidar to points.  Safe for several threads.

    Points are structured arrays [n].  Each has the fields x, y and z: m, in the sensor's frame, f4
    or f8.  What else a point has depends on the lidar: ``intensity``, ``ring`` (row of the sweep),
    ``return`` (0 for the first), ``t`` (u4, ns from the start that `points` returns; `NO_TIME`
    where it is unknown), and others.  x, y and z are NaN or all 0 where there is no return.

    Attributes:
        channels: channels of a sample that `points` needs.
        point: dtype of the points.
        frequency_hz: sweeps per second, as the lidar declares them; None where it does not.
        returns: number of returns of a pixel, as in the field ``return``.
    """

    channels: tuple[str, ...]
    point: np.dtype[Any]
    frequency_hz: float | None
    returns = 1

    @property
    def timed(self) -> bool:
        """Whether each point has its own time."""
        return "t" in (self.point.names or ())

    @abstractmethod
    def points(self, sample: Mapping[str, Values], t_ns: int) -> tuple[int, Values]:
        """Return the points of a sweep.

        Args:
            sample: the sweep's values by channel.
            t_ns: the sweep's stamp, epoch ns.

        Returns:
            epoch ns from which ``t`` counts, and the points; without ``t``, all points have that
            time.

        Raises:
            FormatError: the sample does not fit the stream's declaration.
        """

    def read(self, stream: Stream, index: int) -> tuple[int, Values]:
        """Return what `points` returns for a sweep of a recorded stream.

        Raises:
            FormatError: the sweep is damaged.
        """
        t_ns = int(stream.times(index, index + 1)[0])
        return self.points(self.read_sample(stream, index), t_ns)

    def read_sample(self, stream: Stream, index: int) -> dict[str, Values]:
        """Read the values of a sweep that `points` needs."""
        return stream.sample(index, self.channels)

    def decode_sample(self, samples: EncodedSamples, message: Message) -> dict[str, Values]:
        """Decode the values of a message's newest sweep that `points` needs."""
        return {name: samples.decoded(message, name) for name in self.channels}


class RangeSource(PointSource):
    """A converter from sweeps that are images of ranges.

    Attributes:
        shape: beams and columns of a sweep.
    """

    shape: tuple[int, int]

    @abstractmethod
    def image(self, values: Values) -> Values:
        """Return values of a sweep [beams, columns], in the order of the points of a row."""

    @abstractmethod
    def ranges_m(self, sample: Mapping[str, Values], number: int = 0) -> npt.NDArray[np.float32]:
        """Return the ranges of a return [beams, columns], as measured, in m, 0 without a return."""

    @abstractmethod
    def start_ns(self, sample: Mapping[str, Values], t_ns: int) -> int:
        """Return the start of a sweep, epoch ns, as `points` does."""


def point_times(start_ns: int, points: Values) -> Times:
    """Return the times of points, int64 [n], epoch ns, from what `PointSource.points` returns.

    A point whose time is unknown gets that of the start.
    """
    times = np.full(len(points), start_ns, np.int64)
    known = find_times(points)
    if known.any():
        times[known] += points["t"][known]
    return times


def find_times(points: Values) -> npt.NDArray[np.bool_]:
    """Return whether the time of each point [n] is known."""
    if "t" not in (points.dtype.names or ()):
        return np.zeros(len(points), np.bool_)
    return np.asarray(points["t"] != NO_TIME)


@np.errstate(invalid="ignore", over="ignore")
def stack_xyz(points: Values) -> npt.NDArray[np.float32]:
    """Return the positions of points with the fields x, y and z, f4 [n, 3]."""
    made = np.empty((len(points), 3), np.float32)
    for at, axis in enumerate("xyz"):
        made[:, at] = points[axis]
    return made


@np.errstate(invalid="ignore")
def find_returns(points: Values) -> npt.NDArray[np.bool_]:
    """Return whether each point [n] has a return: its position is neither 0, 0, 0 nor NaN."""
    xyz = stack_xyz(points)
    return np.asarray(np.isfinite(xyz).all(axis=1) & xyz.any(axis=1))


def without_wide_integers(dtype: np.dtype[Any]) -> list[tuple[str, str]]:
    """Return names and types of a point's fields, f8 in place of integers of 64 bits.

    Point clouds of ROS 2 and Foxglove have no such integers.
    """
    kinds = [(name, dtype[name].str) for name in dtype.names or ()]
    return [(name, "<f8" if kind[1:] in ("u8", "i8") else kind) for name, kind in kinds]


@np.errstate(invalid="ignore", over="ignore")
def convert_points(points: Values, dtype: np.dtype[Any]) -> Values:
    """Return points with the fields of another dtype, by name; padding is 0."""
    if points.dtype == dtype:
        return points
    made = np.zeros(len(points), dtype)
    for name in dtype.names or ():
        made[name] = points[name]
    return made


class SweepPoints(RangeSource):
    """A converter from the sweeps of an Ouster to points.

    Args:
        spec: declaration of the lidar's stream.
        destaggered: the points of a row are in the order of their azimuths: all rows begin at the
            same azimuth.  Else they are in the order in which they were measured.
        organized: a pixel without a return has a point too, whose x, y and z are NaN.

    Attributes:
        optics: of the sensor.
        shape: beams and columns of a sweep.

    Raises:
        FormatError: ``lidar.json`` is missing or wrong, or does not fit the sweeps.
    """

    def __init__(
        self, spec: StreamSpec, *, destaggered: bool = False, organized: bool = False
    ) -> None:
        where, text = f"{spec.name}: {METADATA}", spec.files.get(METADATA, "")
        optics = self.optics = OusterOptics.of_metadata(text, where)
        self.shape = optics.beams, optics.columns
        if spec.channel("rng").shape != self.shape:
            found = list(spec.channel("rng").shape)
            raise FormatError(
                f"{where}: is of sweeps {list(self.shape)}, the channel rng has {found}"
            )
        names = {channel.name for channel in spec.channels}
        self._returns = [each for each in RETURNS if each[0] in names]
        known = {name for each in self._returns for name in each} | {"t_col"}
        self.returns, self.point = len(self._returns), POINT
        self.frequency_hz = optics.frequency_hz
        self.channels = tuple(c.name for c in spec.channels if c.name in known)
        rate_hz = optics.frequency_hz or spec.rate_hz
        self._period_ns = round(1e9 / rate_hz) if rate_hz else _PERIOD_NS
        self._organized = organized
        rows = np.arange(optics.beams)[:, None]
        columns = np.broadcast_to(np.arange(optics.columns), self.shape)
        if destaggered:
            columns = (columns - pixel_shifts(text, optics, where)[:, None]) % optics.columns
        self._direction, self._start = optics.lines
        self._places: npt.NDArray[np.intp] | None = None
        if destaggered:
            places = self._places = (rows * optics.columns + columns).reshape(-1)
            self._direction, self._start = self._direction[:, places], self._start[:, places]
        self._columns = columns.reshape(-1)
        self._rings = np.repeat(np.arange(optics.beams, dtype=np.uint16), optics.columns)

    def points(self, sample: Mapping[str, Values], t_ns: int) -> tuple[int, Values]:
        """Return the points of a sweep: of the first returns, then of the second returns.

        Args:
            sample: the sweep's values by channel, [beams, columns]; ``t_col`` u8 [columns].
            t_ns: the sweep's stamp, epoch ns.

        Returns:
            epoch ns of the earliest column, and the points, `POINT` [n], row by row;
            [returns * beams * columns] if organized.
        """
        start_ns, columns_ns = self.column_times(sample, t_ns)
        parts = []
        for number, (_, _, reflectivity) in enumerate(self._returns):
            range_mm = self.image(self.range_mm(sample, number)).reshape(-1)
            range_m = range_mm.astype(np.float32) * np.float32(1e-3)
            if self._organized:
                range_m[range_mm == 0] = np.nan
            # Whole columns, of which rows are taken, cost less than the taken values of each.
            points = np.empty(len(range_m), POINT)
            for axis, direction, start in zip("xyz", self._direction, self._start, strict=True):
                np.add(direction * range_m, start, out=points[axis])
            if reflectivity in sample:
                points["intensity"] = self.image(np.asarray(sample[reflectivity])).reshape(-1)
            else:
                points["intensity"] = 0
            points["return"], points["ring"] = number, self._rings
            points["t"] = columns_ns.take(self._columns)
            parts.append(points if self._organized else points.take(np.flatnonzero(range_mm)))
        return start_ns, parts[0] if len(parts) == 1 else np.concatenate(parts)

    def image(self, values: Values) -> Values:
        return values if self._places is None else values.take(self._places).reshape(self.shape)

    def range_mm(self, sample: Mapping[str, Values], number: int = 0) -> Values:
        """Return the ranges of a return [beams, columns], as measured, in mm, 0 without a return.

        Returns:
            u4 where ranges beyond 65535 mm are recorded, else the channel's own u2.
        """
        near, far, _ = self._returns[number]
        values = np.asarray(sample[near])
        return values + np.asarray(sample[far]) if far in sample else values

    def ranges_m(self, sample: Mapping[str, Values], number: int = 0) -> npt.NDArray[np.float32]:
        return self.range_mm(sample, number).astype(np.float32) * np.float32(1e-3)

    def start_ns(self, sample: Mapping[str, Values], t_ns: int) -> int:
        return self.column_times(sample, t_ns)[0]

    def column_times(self, sample: Mapping[str, Values], t_ns: int) -> tuple[int, Values]:
        """Return the times of a sweep's columns.

        Args:
            sample: the sweep's values by channel.
            t_ns: the sweep's stamp, epoch ns.

        Returns:
            epoch ns of the earliest column, and u4 [columns], ns from there.
        """
        times = sweep_times(sample.get("t_col"), self.optics.columns, t_ns, self._period_ns)
        since = np.minimum(times.columns_ns - times.start_ns, _LATEST)
        return times.start_ns, since.astype(np.uint32)
