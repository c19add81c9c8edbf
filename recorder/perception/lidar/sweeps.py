"""Sweeps of a lidar for screens: every Nth ray, destaggered, in a compact form.

::

    grid = SweepGrid(optics, pixel_shifts(text, optics, where), points=32768)
    values, unit_m = pack_ranges(grid.cut(range_mm))
    points = grid.origin + grid.direction * values.reshape(-1, 1) * unit_m      # where values > 0

Ranges of 16 bits have half the bytes of those of 32 bits.  A sweep without a range beyond 65.5 m is
exact, in millimetres.  Another sweep gets the smallest unit of 2, 4, 8 mm or more that its longest
range fits into.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.perception.lidar.lidar import OusterOptics

_LARGEST: Final = 0xFFFF
_WHITE_SHARE: Final = 0.99  # of the values are not brighter than white


class SweepGrid:
    """The selected rays of a sweep, as a destaggered picture.

    A sweep is staggered, as recorded: the beams of a column have different azimuths.  In the
    picture a column has one azimuth.

    Args:
        optics: the sensor's beams.
        shifts: from `recorder.perception.lidar.lidar.pixel_shifts`.
        rows, columns: largest numbers of rows and columns; 0: all.
        points: largest number of rays; 0: all.  The step of the denser direction grows first, so
            that the distances of points are alike in both directions.

    Attributes:
        row_step, column_step: steps between the shown rows and columns.
        shape: rows and columns that are shown.
        direction: f4 [rows * columns, 3], unit vectors in the sensor's frame, row by row.
        origin: f4 [rows * columns, 3], the points of range 0, m.
    """

    def __init__(
        self,
        optics: OusterOptics,
        shifts: npt.NDArray[np.intp],
        *,
        rows: int = 0,
        columns: int = 0,
        points: int = 0,
    ) -> None:
        row_step = -(-optics.beams // rows) if rows else 1
        column_step = -(-optics.columns // columns) if columns else 1
        altitude = optics.altitude_rad.reshape(optics.beams, -1)[:, 0]
        row_rad = float(np.ptp(altitude)) / max(1, optics.beams - 1)
        shape, apart_rad = (optics.beams, optics.columns), (row_rad, 2 * np.pi / optics.columns)
        row_step, column_step = find_steps(shape, apart_rad, points, (row_step, column_step))
        self.row_step, self.column_step = row_step, column_step
        rows_at = np.arange(0, optics.beams, row_step)
        columns_at = np.arange(0, optics.columns, column_step)
        measured = (columns_at - shifts[rows_at, None]) % optics.columns
        self._places = rows_at[:, None] * optics.columns + measured
        self.shape: tuple[int, int] = measured.shape
        self.direction, self.origin = (
            np.ascontiguousarray(line[:, self._places.reshape(-1)].T) for line in optics.lines
        )

    def cut(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Select the values [rows, columns] of the shown rays from a sweep [beams, columns]."""
        return values.reshape(-1).take(self._places)


def find_steps(
    shape: tuple[int, int],
    apart_rad: tuple[float, float],
    points: int,
    least: tuple[int, int] = (1, 1),
) -> tuple[int, int]:
    """Return the steps between the shown rows and columns.

    The step of the denser direction grows first.

    Args:
        shape: rows and columns.
        apart_rad: angle between two rows, and between two columns.
        points: largest number of shown pixels; 0: all.
        least: smallest steps.
    """
    (rows, columns), (row_rad, column_rad), (row_step, column_step) = shape, apart_rad, least
    while points and -(-rows // row_step) * -(-columns // column_step) > points:
        wide = column_step * column_rad > row_step * row_rad
        if (wide and row_step < rows) or column_step >= columns:
            row_step += 1
        else:
            column_step += 1
    return row_step, column_step


def pack_ranges(range_mm: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint16], float]:
    """Convert ranges to 16 bits.

    Args:
        range_mm: unsigned integers in mm, 0 without a return.

    Returns:
        u2 of the same shape, 0 without a return, and their unit in m; half a unit is the largest
        error.
    """
    longest, power = int(range_mm.max(initial=0)), 0
    while (longest + (1 << power >> 1)) >> power > _LARGEST:
        power += 1
    if not power:
        return np.ascontiguousarray(range_mm, np.uint16), 1e-3
    scaled = (range_mm.astype(np.uint32) + (1 << power - 1)) >> power
    # A return nearer than half a unit remains a return.
    return np.maximum(scaled, range_mm > 0).astype(np.uint16), 1e-3 * (1 << power)


def pack_brightness(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], float]:
    """Convert brightness to 8 bits; values of 8 bits (reflectivity) are as recorded.

    Args:
        values: unsigned integers.

    Returns:
        u1 of the same shape, and the value that 255 stands for; 99% of the values are below it.
    """
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values), 255.0
    flat = values.reshape(-1)
    at = int(_WHITE_SHARE * (flat.size - 1))
    white = max(float(np.partition(flat, at)[at]), 1.0) if flat.size else 1.0
    scaled = np.minimum(values * np.float32(255 / white) + np.float32(0.5), np.float32(255))
    return scaled.astype(np.uint8), white
