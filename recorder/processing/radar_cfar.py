"""Which cells of a radar's range-Doppler map hold a target.

A cell does if it exceeds the noise around it (a CFAR on logarithms), what stronger cells leak into
it, and its neighbours.  Most cells do not even exceed the noise: all else is asked only of those
that do.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.intp]

GUARD = (3, 3)
"""Cells of range and Doppler on each side of a cell that tell nothing of the noise around it."""
TRAIN = (8, 4)
"""Cells of range and Doppler beyond those, on each side, that do."""
_TINY = np.float32(1e-30)
_LEAK_CELLS = np.arange(2, 13)
_LEAK_SHARES = (10 ** (-2.5 - 6 * np.log10(np.maximum(_LEAK_CELLS, 2.5) / 2.5))).astype(np.float32)
"""What a cell puts into one so many cells away, at most.

A Hann window's side lobes begin at -31 dB, 2.4 cells away, and fall by 18 dB an octave; what is
above 6 dB more than that is a target of its own.
"""


def log_power(power: Float32) -> Float32:
    """Natural logarithms of powers; those of silence are finite, too."""
    level: Float32 = np.log(np.maximum(power, _TINY))
    return level


def log_noise(level: Float32) -> Floats:
    """The mean of the cells around each one, without its nearest: f8 of the shape of `level`.

    Of logarithms the mean is hardly moved by a few strong targets nearby, which would hide weaker
    ones.  Doppler (axis 0) wraps round; in range (axis 1) cells beyond the ends do not count.

    Args:
        level: f4 [doppler, range], logarithms of powers.
    """
    doppler = len(level)
    outer = min(GUARD[1] + TRAIN[1], (doppler - 1) // 2)
    reach = ((outer, GUARD[0] + TRAIN[0]), (min(GUARD[1], max(0, outer - 1)), GUARD[0]))
    wrapped = np.concatenate([level[doppler - outer :], level, level[:outer]])
    (total, counted), (near, nearest) = (_box(wrapped, *one) for one in reach)
    total -= near
    total *= 1 / np.maximum(counted - nearest, 1)
    return total[outer : outer + doppler]


def _box(values: Float32, up: int, along: int) -> tuple[Floats, Floats]:
    """Sums over boxes of cells, and how many cells each column's have: f8 [rows, columns], f8.

    OpenCV adds in double precision, and zeros stand beyond the edges.
    """
    size = (2 * along + 1, 2 * up + 1)
    sums = cv2.boxFilter(values, cv2.CV_64F, size, normalize=False, borderType=cv2.BORDER_CONSTANT)
    columns = np.arange(values.shape[1])
    low, high = np.maximum(columns - along, 0), np.minimum(columns + along + 1, len(columns))
    return np.asarray(sums, np.float64), (high - low) * float(2 * up + 1)


def find_peaks(power: Float32, good: npt.NDArray[np.bool_]) -> Cells:
    """Cells that no neighbour exceeds, and that are more than leaks from stronger ones.

    The first cell of range is left out: it holds what leaks from the transmitter.

    Args:
        power: f4 [doppler, range]; Doppler wraps round, and beyond the ends of the range is none.
        good: bool [doppler, range], of those that may be one.

    Returns:
        [n, (doppler, range)], in order.
    """
    doppler, ranges = power.shape
    row, column = np.nonzero(good[:, 1:])
    column += 1
    # Where nothing is, power is 0: a column of it is what lies beyond the range.
    padded = np.zeros((doppler, ranges + 1), np.float32)
    padded[:, :ranges] = power
    for axis, step in ((0, -1), (0, 1), (1, -1), (1, 1)):
        here, beside = power[row, column], _beside(padded, row, column, axis, step)
        kept = here > beside if step < 0 else here >= beside  # of equal ones the first
        row, column = row[kept], column[kept]
    here = power[row, column]
    strong = np.ones(len(here), np.bool_)
    for axis in (0, 1):
        near = power.shape[axis] > 2 * _LEAK_CELLS
        for steps in (_LEAK_CELLS[near], -_LEAK_CELLS[near]):
            beside = _beside(padded, row[:, None], column[:, None], axis, steps)
            strong &= (beside * _LEAK_SHARES[near] < here[:, None]).all(axis=1)
    return np.stack([row[strong], column[strong]], axis=1)


def _beside(padded: Float32, row: Cells, column: Cells, axis: int, step: int | Cells) -> Float32:
    """Powers some steps away along an axis; the last column is what lies beyond the range."""
    doppler, ranges = padded.shape[0], padded.shape[1] - 1
    if axis == 0:
        return np.asarray(padded[(row + step) % doppler, column])
    at = column + step
    return np.asarray(padded[row, np.where((at < 0) | (at > ranges), ranges, at)])


def vertex(power: Float32, cells: Cells, axis: int, *, wrap: bool) -> Floats:
    """How far from its cell's middle a peak is, -0.5 to 0.5: of a parabola through logarithms."""
    size = power.shape[axis]
    at = cells[:, axis]
    values = []
    for step in (-1, 0, 1):
        where = (at + step) % size if wrap else np.clip(at + step, 0, size - 1)
        pair = (where, cells[:, 1]) if axis == 0 else (cells[:, 0], where)
        values.append(log_power(power[pair]).astype(np.float64))
    before, middle, after = values
    curve = before - 2 * middle + after
    shift = np.where(curve < 0, 0.5 * (before - after) / np.where(curve < 0, curve, 1.0), 0.0)
    if not wrap:
        shift = np.where((at == 0) | (at == size - 1), 0.0, shift)
    return np.asarray(np.clip(shift, -0.5, 0.5))
