"""Geometry of lidars whose beams need more than an elevation and an azimuth.

::

    azimuth = TurningMirrors(beams).find_azimuths(column)
    x, y, z = TwoPointRanges(beams).place(range_m, rows, azimuth)
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.beams import Beams

_FAR_M: Final = 25.04
_NEAR_X_M: Final = 2.40
_NEAR_Y_M: Final = 1.93
_ADJUSTMENT_DEG: Final = 0.01

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]


class TwoPointRanges:
    """Ranges that are corrected by distance, see `recorder.codecs.beams.TwoPoint`.

    Args:
        beams: with `two_point`.
    """

    def __init__(self, beams: Beams) -> None:
        assert beams.two_point is not None
        two_point = beams.two_point
        self._far_m = np.array(two_point.distance_mm) / 1000
        self._near_m = np.array([two_point.near_x_mm, two_point.near_y_mm]) / 1000
        self._side_m = np.array(two_point.side_mm) / 1000
        elevation = np.radians(beams.elevation_deg)
        self._level, self._up = np.cos(elevation), np.sin(elevation)
        self._height_m = np.array(beams.rise_mm or [0.0] * len(elevation)) / 1000

    def place(self, range_m: Floats, rows: Rows, azimuth: Floats) -> tuple[Floats, Floats, Floats]:
        """Return how far ranges reach along azimuth 0, to its right, and up, m.

        Args:
            range_m: as measured.
            rows: the channel of each.
            azimuth: of each, rad, clockwise.
        """
        cosine, sine = np.cos(azimuth), np.sin(azimuth)
        far_m, level = self._far_m[rows], self._level[rows]
        near_m = self._near_m[:, rows]
        flat_m = np.abs((range_m + far_m) * level * np.stack([sine, cosine]))
        begin_m = np.array([[_NEAR_X_M], [_NEAR_Y_M]])
        share = (flat_m - begin_m) / (_FAR_M - begin_m)
        two_point = (near_m != 0).all(axis=0) & (range_m < _FAR_M)
        across, along = range_m + np.where(two_point, near_m + share * (far_m - near_m), far_m)
        side_m = self._side_m[rows]
        ahead_m = along * level * cosine + side_m * sine
        right_m = across * level * sine - side_m * cosine
        return ahead_m, right_m, along * self._up[rows] + self._height_m[rows]


class TurningMirrors:
    """Angles of a lidar with turning mirrors, see `recorder.codecs.beams.Mirrors`.

    Args:
        beams: with `mirrors`.
    """

    def __init__(self, beams: Beams) -> None:
        assert beams.mirrors is not None
        self._mirrors, self._turn = beams.mirrors, beams.turn
        self._azimuth = np.radians(beams.azimuth_deg)
        self._elevation = np.radians(beams.elevation_deg)
        shape = len(self._azimuth), -1

        def read(adjustments: bytes) -> Floats:
            values = np.frombuffer(adjustments, np.int8).reshape(shape)
            return np.asarray(np.radians(values * _ADJUSTMENT_DEG))

        self._azimuth_adjust = read(beams.mirrors.azimuth_adjust)
        self._elevation_adjust = read(beams.mirrors.elevation_adjust)

    @property
    def field_rad(self) -> tuple[float, float]:
        """The least and the largest azimuth of a measurement."""
        widths = np.subtract(self._mirrors.ends, self._mirrors.begins) % self._turn
        adjust, turned = self._azimuth_adjust, float(widths.max()) * 4 * np.pi / self._turn
        first = (self._azimuth + adjust.min(axis=1)).min()
        return float(first), float((self._azimuth + adjust.max(axis=1)).max()) + turned

    def find_azimuths(self, column: Floats) -> Floats:
        """Return azimuths, rad [channels, columns]; NaN outside of the mirrors' fields.

        Args:
            column: azimuths of columns, as in the packets.
        """
        begins, ends = (
            np.array(each)[:, None] for each in (self._mirrors.begins, self._mirrors.ends)
        )
        behind = (column - begins) % self._turn
        inside = behind <= (ends - begins) % self._turn
        chosen = np.take_along_axis(behind, np.argmax(inside, axis=0)[None], axis=0)[0]
        turned = np.where(inside.any(axis=0), chosen * (4 * np.pi / self._turn), np.nan)
        azimuth = turned + self._azimuth[:, None]
        return np.asarray(azimuth + self._interpolate(self._azimuth_adjust, column))

    def find_elevations(self, column: Floats) -> Floats:
        """Return elevations, rad [channels, columns]."""
        return self._elevation[:, None] + self._interpolate(self._elevation_adjust, column)

    def _interpolate(self, adjustments: Floats, column: Floats) -> Floats:
        place = column / self._mirrors.step
        before = np.floor(place).astype(np.intp)
        count, share = adjustments.shape[1], place - before
        first, second = adjustments[:, before % count], adjustments[:, (before + 1) % count]
        return np.asarray(first + share * (second - first))
