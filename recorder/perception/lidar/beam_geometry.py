"""Geometry of lidars whose ranges are corrected by distance.

::

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
