"""A lidar's sweeps for screens: every so manieth ray, in few bytes.

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

from recorder.processing.lidar import Float32, OusterOptics

_LARGEST: Final = 0xFFFF
_WHITE_SHARE: Final = 0.99  # of the values are not brighter than white


class SweepGrid:
    """The rays of a sweep that are shown.

    Args:
        optics: the sensor's beams.
        shifts: from `recorder.processing.lidar.pixel_shifts`.
        rows, columns: largest numbers of rows and columns; 0: all.
        points: largest number of rays; 0: all.  The step of the denser direction grows first, so
            that the distances of points are alike in both directions.

    Attributes:
        row_step, column_step: every so manieth row and column is shown.
        shape: rows and columns that are shown.
        direction: f4 [rows * columns, 3], unit vectors in the sensor's frame, row by row.
        origin: f4 [rows * columns, 3], the points of range 0, m.
        shift: int [rows], columns of the shown ones by which each row moves to the right, around
            the end, so that a column has the same azimuth in all rows.
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
        column_rad = 2 * np.pi / optics.columns
        while points and (
            -(-optics.beams // row_step) * -(-optics.columns // column_step) > points
        ):
            wide = column_step * column_rad > row_step * row_rad
            if (wide and row_step < optics.beams) or column_step >= optics.columns:
                row_step += 1
            else:
                column_step += 1
        self.row_step, self.column_step = row_step, column_step
        full = (3, optics.beams, optics.columns)
        directions, origins = (self.cut(values.reshape(full)) for values in optics.lines)
        self.shape: tuple[int, int] = directions.shape[1:]
        self.direction: Float32 = np.ascontiguousarray(directions.reshape(3, -1).T)
        self.origin: Float32 = np.ascontiguousarray(origins.reshape(3, -1).T)
        shown = np.rint(shifts[::row_step] / column_step).astype(np.intp)
        self.shift: npt.NDArray[np.intp] = shown % self.shape[1]

    def cut(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values [..., beams, columns] of the shown rays, a view [..., rows, columns]."""
        return values[..., :: self.row_step, :: self.column_step]


def pack_ranges(range_mm: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint16], float]:
    """Ranges in 16 bits.

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
    """Brightness in 8 bits; values of 8 bits (reflectivity) are as recorded.

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
