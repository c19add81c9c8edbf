"""Pictures of sweeps whose columns lie at other azimuths in every turn, by their ``beams.json``.

::

    pictures = BeamPictures(spec)
    places = pictures.find_places(sample)
    ranges = pictures.select(sample["rng"], places)      # [rows, columns]

A picture is like an Ouster's that is destaggered: the highest beam is the first row, a column has
one azimuth, and azimuth 0 is in the middle, with azimuths that grow to the right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import StreamSpec
from recorder.perception.lidar.beams import BeamPoints
from recorder.perception.lidar.points import Values
from recorder.perception.lidar.sweeps import find_steps

CHANNELS: Final = ("azimuth", "t_col", "state")
"""Channels of a sweep that the places depend on, where it has them."""

Places = npt.NDArray[np.intp]


class BeamPictures:
    """The places of a sweep's measurements in a picture.  Safe for several threads.

    A pixel has the latest measurement whose azimuth is nearest to the pixel's.  A pixel without a
    measurement of its own, between two that have one, has that of its left neighbour: columns vary
    with the motor's speed.  Where mirrors turn, the picture has the azimuths of their fields.

    Args:
        spec: declaration of the lidar's stream.
        points: largest number of pixels; 0: all.  The step of the denser direction grows first.

    Attributes:
        unit_m: unit of the ranges, m.
        row_step, column_step: steps between the shown rows and columns.
        shape: rows and columns that are shown.
        channels: channels that `find_places` needs.

    Raises:
        FormatError: ``beams.json`` is missing or wrong, or does not fit the sweeps.
    """

    def __init__(self, spec: StreamSpec, *, points: int = 0) -> None:
        self._source = source = BeamPoints(spec)
        beams = source.beams
        self.unit_m = beams.unit_mm / 1000
        names = {channel.name for channel in spec.channels}
        self.channels = tuple(name for name in CHANNELS if name in names)
        sweep_ns = 1e9 / spec.rate_hz if spec.rate_hz else beams.column_ns * source.shape[1]
        per_sweep = sweep_ns / beams.column_ns
        if beams.mirrors is not None:  # a sweep each; behind one, azimuths turn twice as far
            per_sweep *= len(beams.mirrors.begins) / 2
        columns = max(1, round(per_sweep))
        self._pixel_rad = 2 * np.pi / columns
        self._first_rad = -np.pi
        if (field := source.field_rad) is not None:
            self._first_rad = field[0]
            columns = min(columns, int((field[1] - field[0]) / self._pixel_rad) + 1)
        self._columns = columns
        rows = len(beams.elevation_deg)
        tall = np.radians(np.ptp(beams.elevation_deg)) / max(1, rows - 1)
        steps = find_steps((rows, columns), (float(tall), self._pixel_rad), points)
        self.row_step, self.column_step = steps
        self._rows = np.argsort(-np.array(beams.elevation_deg), kind="stable")[:: self.row_step]
        self.shape = len(self._rows), -(-columns // self.column_step)

    def find_places(self, sample: Mapping[str, Values]) -> Places:
        """Return the place of each pixel's measurement in a sweep, counted row by row.

        Args:
            sample: the sweep's values by channel, with `channels`.

        Returns:
            int [rows, columns], -1 where a pixel has no measurement.

        Raises:
            FormatError: the sample does not fit the stream's declaration.
        """
        there, azimuth, fires = self._source.measurements(sample)
        azimuth, fires = azimuth[self._rows], fires[self._rows]
        turned = np.where(fires, azimuth, np.nan) - self._first_rad
        fires = np.isfinite(turned)
        whole = round(2 * np.pi / self._pixel_rad)
        pixel = np.rint(np.where(fires, turned, 0.0) / self._pixel_rad).astype(np.intp) % whole
        row, at = np.nonzero(fires & (pixel < self._columns))
        width = self._source.shape[1]
        places = np.full((len(self._rows), self._columns), -1, np.intp)
        places[row, pixel[row, at]] = self._rows[row] * width + there[at]
        before, after = np.roll(places, 1, axis=1), np.roll(places, -1, axis=1)
        single = (places < 0) & (before >= 0) & (after >= 0)
        return np.where(single, before, places)[:, :: self.column_step]

    @staticmethod
    def select(values: npt.NDArray[Any], places: Places) -> npt.NDArray[Any]:
        """Return the values of a sweep [channels, width] at the places; 0 where there is none."""
        return np.where(places < 0, values.dtype.type(0), values.reshape(-1).take(places))
