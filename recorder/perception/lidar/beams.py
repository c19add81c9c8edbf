"""The points of lidars whose sweeps are ranges in the packet's unit, by their ``beams.json``.

::

    source = BeamPoints(spec)
    start_ns, points = source.read(stream, index)
    points["x"], points["ring"], points["return"]
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from recorder.codecs.beams import BEAMS, Beams
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.perception.lidar.points import POINT, PointSource, Values

_FAST = 3.0
"""Columns that are so many times further apart than most have others missing between them."""
_LATEST = np.iinfo(np.uint32).max

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]


class BeamPoints(PointSource):
    """A converter from such sweeps to points.

    A point has the time of its channel's firing.  A return that repeats an earlier return of its
    pixel, in range and reflectivity, is no point.

    Args:
        spec: declaration of the lidar's stream.

    Raises:
        FormatError: ``beams.json`` is missing or wrong, or does not fit the sweeps.
    """

    def __init__(self, spec: StreamSpec) -> None:
        where = f"{spec.name}: {BEAMS}"
        self.beams = beams = Beams.of_text(spec.files.get(BEAMS, ""), where)
        channels = spec.channel("rng").shape[0]
        if channels != len(beams.elevation_deg):
            raise FormatError(
                f"{where}: is of {len(beams.elevation_deg)} channels, the sweeps have {channels}"
            )
        self.returns, self.point, self.frequency_hz = len(beams.returns), POINT, spec.rate_hz
        names = {channel.name for channel in spec.channels}
        self._ranges = ["rng", "rng2", "rng3"][: self.returns]
        self._reflectivities = ["rfl", "rfl2", "rfl3"][: self.returns]
        wanted = ("state", "azimuth", "t_col", *self._ranges, *self._reflectivities)
        self.channels = tuple(name for name in wanted if name in names)
        self._firing_ns = {
            int(state): np.array([np.nan if t is None else t for t in row], np.float64)
            for state, row in beams.firing_ns.items()
        }
        self._azimuth = np.radians(beams.azimuth_deg)[:, None]
        elevation = np.radians(beams.elevation_deg)[:, None]
        self._level, self._up = np.cos(elevation), np.sin(elevation)
        rise_mm = np.array(beams.rise_mm or [0.0] * channels)[:, None]
        self._height_m = (rise_mm + beams.lens_mm[1]) / 1000

    def points(self, sample: Mapping[str, Values], t_ns: int) -> tuple[int, Values]:
        there = np.flatnonzero(np.asarray(sample["t_col"]))
        if not len(there):
            return t_ns, np.empty(0, POINT)
        firing_ns = self._find_firing_ns(sample, there)
        measured_ns = np.asarray(sample["t_col"])[there].astype(np.int64) + firing_ns
        column, azimuth = self._find_azimuths(sample, there, firing_ns)
        images = [
            (np.asarray(sample[r])[:, there], np.asarray(sample[i])[:, there])
            for r, i in zip(self._ranges, self._reflectivities, strict=True)
        ]
        parts = []
        for number, (ranges, reflectivity) in enumerate(images):
            found = ranges > 0
            for earlier, other in images[:number]:
                found &= (ranges != earlier) | (reflectivity != other)
            rows, columns = np.nonzero(found)
            points = np.zeros(len(rows), POINT)
            range_m = ranges[rows, columns] * (self.beams.unit_mm / 1000)
            level_m = range_m * self._level[rows, 0]
            lens_m, turned = self.beams.lens_mm[0] / 1000, column[rows, columns]
            at = azimuth[rows, columns]
            cosine = level_m * np.cos(at) + lens_m * np.cos(turned)
            sine = level_m * np.sin(at) + lens_m * np.sin(turned)
            x, y = (cosine, -sine) if self.beams.zero == "x" else (sine, cosine)
            points["x"], points["y"] = x, y
            points["z"] = range_m * self._up[rows, 0] + self._height_m[rows, 0]
            points["intensity"] = reflectivity[rows, columns]
            points["return"], points["ring"] = number, rows
            since = measured_ns[rows, columns] - measured_ns.min()
            points["t"] = np.minimum(since, _LATEST)
            parts.append(points)
        span_ns = int(measured_ns.max() - measured_ns.min())
        return t_ns - min(span_ns, _LATEST), np.concatenate(parts)

    def _find_firing_ns(self, sample: Mapping[str, Values], there: Values) -> Times:
        """Return the channels' times after their columns', ns [channels, columns]."""
        shape = len(self.beams.elevation_deg), len(there)
        if "state" not in sample:
            return np.broadcast_to(np.nan_to_num(self._firing_ns[0])[:, None], shape).astype(int)
        states = np.asarray(sample["state"])[there].tolist()
        default = next(iter(self._firing_ns.values()))
        rows = [self._firing_ns.get(state, default) for state in states]
        return np.nan_to_num(np.stack(rows, axis=1)).astype(np.int64)

    def _find_azimuths(
        self, sample: Mapping[str, Values], there: Values, firing_ns: Times
    ) -> tuple[Floats, Floats]:
        """Return azimuths of the lens and of the measurements, rad [channels, columns]."""
        turn = self.beams.turn
        column = np.asarray(sample["azimuth"])[there].astype(np.float64)
        lens = np.broadcast_to(column, firing_ns.shape)
        if self.beams.turns_while_firing and len(column) > 1:
            steps = np.diff(column) % turn
            usual = np.median(steps)
            steps[steps > _FAST * usual] = usual
            lens = column + firing_ns / self.beams.column_ns * np.append(steps, steps[-1])
        lens = lens * (2 * np.pi / turn)
        return lens, lens + self._azimuth
