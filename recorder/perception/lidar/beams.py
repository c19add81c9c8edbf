"""The points of lidars whose sweeps are ranges in the packet's unit, by their ``beams.json``.

::

    source = BeamPoints(spec)
    start_ns, points = source.read(stream, index)
    points["x"], points["ring"], points["return"]
    model = source.model()                       # its spinning model
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.beams import BEAMS, Beams
from recorder.codecs.mirrors import TurningMirrors
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.perception.lidar.beam_geometry import TwoPointRanges
from recorder.perception.lidar.lidar import SpinningModel
from recorder.perception.lidar.points import POINT, RangeSource, Values
from recorder.perception.lidar.spinning import DerivedModel

RANGES: Final = ("rng", "rng2", "rng3")
REFLECTIVITIES: Final = ("rfl", "rfl2", "rfl3")
_FAST: Final = 3.0
"""Columns that are so many times further apart than most have others missing between them."""
_LATEST: Final = np.iinfo(np.uint32).max
_LONGEST_NS: Final = 2_000_000_000
"""Time of a sweep beyond which its device's clock was set in the meantime."""
_COLUMNS: Final = 9_000
"""Columns of the spinning model.  A turn has its columns at other azimuths than the turn before, so
the model has more: each ray lies within 0.02 deg of its element.  NVIDIA's software takes 32767."""

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]
Pixels = tuple[npt.NDArray[Any], ...]
"""Rows and columns of some pixels."""


class BeamPoints(RangeSource):
    """A converter from such sweeps to points.

    A point has the time of its channel's firing.  A return that repeats an earlier return of its
    pixel, in range and reflectivity, is no point.  The points of a row are in the order of their
    firing.  The sweep's stamp is the time of its last measurement.

    Args:
        spec: declaration of the lidar's stream.
        organized: a pixel without a return has a point too, whose x, y and z are NaN.

    Attributes:
        beams: the description of the beams.

    Raises:
        FormatError: ``beams.json`` is missing or wrong, or does not fit the sweeps.
    """

    def __init__(self, spec: StreamSpec, *, organized: bool = False) -> None:
        where = f"{spec.name}: {BEAMS}"
        self.beams = beams = Beams.of_text(spec.files.get(BEAMS, ""), where)
        shape = spec.channel(RANGES[0]).shape
        if fault := beams.find_fault({channel.name: channel.shape for channel in spec.channels}):
            raise FormatError(f"{where}: {fault}")
        self.shape = shape[0], shape[1]
        self.returns, self.point, self.frequency_hz = len(beams.returns), POINT, spec.rate_hz
        names = {channel.name for channel in spec.channels}
        self._ranges, self._reflectivities = RANGES[: self.returns], REFLECTIVITIES[: self.returns]
        wanted = ("state", "azimuth", "t_col", *self._ranges, *self._reflectivities)
        self.channels = tuple(name for name in wanted if name in names)
        self._organized = organized
        self._firing_ns = {
            int(state): np.array([t or 0 for t in row], np.int64)
            for state, row in beams.firing_ns.items()
        }
        self._fires = {
            int(state): np.array([t is not None for t in row])
            for state, row in beams.firing_ns.items()
        }
        self._azimuth = np.radians(beams.azimuth_deg)[:, None]
        elevation = np.radians(beams.elevation_deg)[:, None]
        self._level, self._up = np.cos(elevation), np.sin(elevation)
        rise_mm = np.array(beams.rise_mm or [0.0] * shape[0])[:, None]
        self._height_m = (rise_mm + beams.lens_mm[1]) / 1000
        self._two_point = None if beams.two_point is None else TwoPointRanges(beams)
        self._mirrors = None if beams.mirrors is None else TurningMirrors(beams)

    def points(self, sample: Mapping[str, Values], t_ns: int) -> tuple[int, Values]:
        """Return the points of a sweep: of the first returns, then of the second and third ones.

        Args:
            sample: the sweep's values by channel, [beams, columns] and [columns].
            t_ns: the sweep's stamp, epoch ns.

        Returns:
            epoch ns of the earliest measurement, and the points, `POINT` [n], row by row;
            [returns * beams * columns] if organized.
        """
        there, firing_ns, measured_ns = self._find_times(sample)
        if not len(there) and not self._organized:
            return t_ns, np.empty(0, POINT)
        span_ns = int(np.ptp(measured_ns)) if len(there) else 0
        column, azimuth = self._find_azimuths(sample, there, firing_ns)
        taken = [
            (np.asarray(sample[r])[:, there], np.asarray(sample[i])[:, there])
            for r, i in zip(self._ranges, self._reflectivities, strict=True)
        ]
        parts = []
        for number, (ranges, reflectivity) in enumerate(taken):
            found = ranges > 0
            for earlier, other in taken[:number]:
                found &= (ranges != earlier) | (reflectivity != other)
            at: Pixels = np.nonzero(found)
            x, y, z = self._place(ranges[at], at, column, azimuth)
            if self._organized:
                points: Values = np.zeros(self.shape, POINT)
                for axis in "xyz":
                    points[axis] = np.nan
                points["ring"] = np.arange(self.shape[0])[:, None]
                at = at[0], there[at[1]]
                points["t"] = min(span_ns, _LATEST)
                if len(there):
                    points["t"][:, there] = measured_ns - measured_ns.min()
                own: Any = at
            else:
                points = np.zeros(len(x), POINT)
                points["ring"] = at[0]
                points["t"] = measured_ns[at] - measured_ns.min()
                own = slice(None)
            points["return"] = number
            for axis, values in (("x", x), ("y", y), ("z", z)):
                points[axis][own] = values
            points["intensity"][own] = reflectivity[found]
            parts.append(points.reshape(-1))
        return t_ns - span_ns, parts[0] if len(parts) == 1 else np.concatenate(parts)

    def image(self, values: Values) -> Values:
        return values

    def ranges_m(self, sample: Mapping[str, Values], number: int = 0) -> npt.NDArray[np.float32]:
        ranges = np.asarray(sample[self._ranges[number]]).astype(np.float32)
        return ranges * np.float32(self.beams.unit_mm / 1000)

    def start_ns(self, sample: Mapping[str, Values], t_ns: int) -> int:
        there, _, measured_ns = self._find_times(sample)
        return t_ns - int(np.ptp(measured_ns)) if len(there) else t_ns

    def measurements(
        self, sample: Mapping[str, Values]
    ) -> tuple[Values, Floats, npt.NDArray[np.bool_]]:
        """Return the columns that a sweep has, and the measurements of their channels.

        Returns:
            int [n]; azimuths f8 [channels, n], rad, NaN outside of the fields of mirrors; and
            whether a channel fires in that column, [channels, n].
        """
        there, firing_ns, _ = self._find_times(sample)
        _, azimuth = self._find_azimuths(sample, there, firing_ns)
        fires = self._fires[0][:, None]
        if "state" in sample:
            states = np.asarray(sample["state"])[there].tolist()
            rows = [self._fires.get(state, self._fires[0]) for state in states]
            fires = np.stack(rows, axis=1) if rows else np.empty(azimuth.shape, np.bool_)
        return there, azimuth, np.broadcast_to(fires, azimuth.shape)

    @property
    def field_rad(self) -> tuple[float, float] | None:
        """First and last azimuth of the fields of turning mirrors; None where the lidar turns."""
        return None if self._mirrors is None else self._mirrors.field_rad

    def model(self) -> DerivedModel:
        """Return the spinning model: rows are the channels, columns the azimuths of a turn."""
        beams = self.beams
        elevation, azimuth = np.radians(beams.elevation_deg), np.radians(beams.azimuth_deg)
        if beams.turns_while_firing and self.frequency_hz:
            azimuth = azimuth + 2 * np.pi * self.frequency_hz * 1e-9 * self._firing_ns[0]
        order = np.argsort(-elevation, kind="stable")
        rows = elevation[order].astype(np.float32)
        for row in range(1, len(rows)):  # the rows of a model fall strictly
            rows[row] = min(rows[row], np.nextafter(rows[row - 1], np.float32(-np.inf)))
        row_of_beam = np.empty(len(order), np.intp)
        row_of_beam[order] = np.arange(len(order))
        first = 0.0 if beams.zero == "x" else np.pi / 2
        columns = first - 2 * np.pi * np.arange(_COLUMNS) / _COLUMNS
        columns = np.pi - (np.pi - columns) % (2 * np.pi)
        spinning = SpinningModel(
            "cw", row_of_beam, rows.astype(np.float64), -azimuth[order], columns
        )
        rings = np.arange(len(order), dtype=np.int64)
        return DerivedModel(spinning, rings, self.frequency_hz or 10.0, np.pi / _COLUMNS)

    def _find_times(self, sample: Mapping[str, Values]) -> tuple[Values, Times, Times]:
        """Return the columns that are there, and firing and device times, ns [channels, columns].

        Where the device's clock was set within the sweep, columns follow one another evenly.
        """
        t_col = np.asarray(sample["t_col"])
        there = np.flatnonzero(t_col)
        firing_ns = self._find_firing_ns(sample, there)
        columns_ns = t_col[there].astype(np.int64)
        steps = np.diff(columns_ns)
        if len(steps) and (steps.min() < 0 or columns_ns[-1] - columns_ns[0] > _LONGEST_NS):
            columns_ns = np.rint(np.arange(len(there)) * self.beams.column_ns).astype(np.int64)
        return there, firing_ns, columns_ns + firing_ns

    def _find_firing_ns(self, sample: Mapping[str, Values], there: Values) -> Times:
        """Return the channels' times after their columns', ns [channels, columns]."""
        if "state" not in sample:
            shape = self.shape[0], len(there)
            return np.broadcast_to(self._firing_ns[0][:, None], shape)
        states = np.asarray(sample["state"])[there].tolist()
        default = self._firing_ns[0]
        rows = [self._firing_ns.get(state, default) for state in states]
        return np.stack(rows, axis=1) if rows else np.empty((self.shape[0], 0), np.int64)

    def _find_azimuths(
        self, sample: Mapping[str, Values], there: Values, firing_ns: Times
    ) -> tuple[Floats, Floats]:
        """Return azimuths of the lens and of the measurements, rad [channels, columns].

        Where mirrors turn, those of the lens are the columns' own.
        """
        turn = self.beams.turn
        column = np.asarray(sample["azimuth"])[there].astype(np.float64)
        if self._mirrors is not None:
            return np.broadcast_to(column, firing_ns.shape), self._mirrors.find_azimuths(column)
        lens = np.broadcast_to(column, firing_ns.shape)
        if self.beams.turns_while_firing and len(column) > 1:
            steps = np.diff(column) % turn
            usual = np.median(steps)
            steps[steps > _FAST * usual] = usual
            lens = column + firing_ns / self.beams.column_ns * np.append(steps, steps[-1])
        lens = lens * (2 * np.pi / turn)
        return lens, lens + self._azimuth

    def _place(
        self, ranges: Values, at: Pixels, column: Floats, azimuth: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return x, y and z, m, of the ranges of the pixels `at`."""
        rows = at[0]
        range_m = ranges * (self.beams.unit_mm / 1000)
        if self._mirrors is not None:
            elevation = self._mirrors.find_elevations(column[0])[at]
            level_m = range_m * np.cos(elevation)
            x, y = level_m * np.sin(azimuth[at]), level_m * np.cos(azimuth[at])
            return x, y, range_m * np.sin(elevation)
        if self._two_point is not None:
            ahead, across, up = self._two_point.place(range_m, rows, azimuth[at])
            return ahead, -across, up
        level_m, lens_m = range_m * self._level[rows, 0], self.beams.lens_mm[0] / 1000
        ahead, across = level_m * np.cos(azimuth[at]), level_m * np.sin(azimuth[at])
        if lens_m:
            ahead, across = (
                ahead + lens_m * np.cos(column[at]),
                across + lens_m * np.sin(column[at]),
            )
        x, y = (ahead, -across) if self.beams.zero == "x" else (across, ahead)
        return x, y, range_m * self._up[rows, 0] + self._height_m[rows, 0]
