"""Angles of lidars with turning mirrors, by their ``beams.json``.

::

    azimuth = TurningMirrors(beams).find_azimuths(column)
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.beams import Beams

_ADJUSTMENT_DEG: Final = 0.01

Floats = npt.NDArray[np.float64]


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
        """The least and the largest azimuth of a measurement, about."""
        if self._mirrors.view_deg is not None:
            first, last = np.radians(self._mirrors.view_deg)
            around = float(np.ptp(self._azimuth))
            return float(first) - around, float(last) + around
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
