"""Detection of the cells of a radar's range-Doppler map that contain a target.

A cell holds a target if it exceeds the surrounding noise (a CFAR on logarithms), the leakage from
stronger cells, and its neighbours.  Most cells do not exceed the noise; the other conditions are
tested only for the cells that do.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.intp]

GUARD = (3, 3)
"""Cells of range and Doppler on each side of a cell that are excluded from its noise estimate."""
TRAIN = (8, 4)
"""Cells of range and Doppler beyond the guard, on each side, that the noise is estimated from."""
DOPPLER, RANGE = 1, 2
"""Axes of maps [frames, doppler, range]."""
_TINY = np.float32(1e-30)
_NEXT = np.array([-1, 1])
_LEAK_STEPS = np.concatenate([np.arange(2, 13), -np.arange(2, 13)])
_LEAK_SHARES = (10 ** (-2.5 - 6 * np.log10(np.maximum(abs(_LEAK_STEPS), 2.5) / 2.5))).astype(
    np.float32
)
"""Largest leakage of a cell into a cell that many steps away, as a share of its power.

A Hann window's side lobes begin at -31 dB, 2.4 cells away, and fall by 18 dB an octave.  A cell
more than 6 dB above these side lobes is a separate target.
"""


def log_power(power: Float32) -> Float32:
    """Return natural logarithms of powers; finite also for zero power."""
    level: Float32 = np.log(np.maximum(power, _TINY))
    return level


def log_noise(level: Float32) -> Floats:
    """Return the mean of the cells around each cell, without the nearest: f8, shape of `level`.

    The mean of logarithms hardly rises with a few strong targets nearby, which would otherwise
    hide weaker targets.  Doppler wraps around; in range, cells beyond the ends are not counted.

    Args:
        level: f4 [frames, doppler, range], logarithms of powers.
    """
    _, doppler, ranges = level.shape
    outer = min(GUARD[1] + TRAIN[1], (doppler - 1) // 2)
    reach = ((outer, GUARD[0] + TRAIN[0]), (min(GUARD[1], max(0, outer - 1)), GUARD[0]))
    counted, nearest = (_count_box_cells(ranges, *one) for one in reach)
    share = 1 / np.maximum(counted - nearest, 1)
    noise = np.empty(level.shape)
    for frame, into in zip(level, noise, strict=True):
        wrapped = np.concatenate([frame[doppler - outer :], frame, frame[:outer]])
        total, near = (_sum_boxes(wrapped, *one)[outer : outer + doppler] for one in reach)
        np.subtract(total, near, out=into)
        into *= share
    return noise


def _sum_boxes(values: Float32, up: int, along: int) -> Floats:
    """Return sums over boxes of cells, f8, in double precision by OpenCV; 0 beyond the edges."""
    size = (2 * along + 1, 2 * up + 1)
    sums = cv2.boxFilter(values, cv2.CV_64F, size, normalize=False, borderType=cv2.BORDER_CONSTANT)
    return np.asarray(sums, np.float64)


def _count_box_cells(ranges: int, up: int, along: int) -> Floats:
    """Return the number of cells in each column's sum, f8 [range]."""
    columns = np.arange(ranges)
    low, high = np.maximum(columns - along, 0), np.minimum(columns + along + 1, ranges)
    return np.asarray((high - low) * float(2 * up + 1))


def find_peaks(power: Float32, good: npt.NDArray[np.bool_]) -> Cells:
    """Return cells that no neighbour exceeds, and that exceed the leakage from stronger cells.

    The first cell of range is excluded, because it contains leakage from the transmitter.

    Args:
        power: f4 [frames, doppler, range].
        good: bool [frames, doppler, range], the candidate cells.

    Returns:
        [n], indices into the flat `power`, in order.
    """
    cells = np.flatnonzero(good)
    cells = cells[cells % power.shape[2] > 0]
    for axis in (DOPPLER, RANGE):
        here = power.take(cells)
        before, after = _take_beside(power, cells, axis, _NEXT)
        cells = cells[(here > before) & (here >= after)]  # the first of equal cells
    here = power.take(cells)
    strong = np.ones(len(cells), np.bool_)
    for axis in (DOPPLER, RANGE):
        near = power.shape[axis] > 2 * abs(_LEAK_STEPS)
        beside = _take_beside(power, cells, axis, _LEAK_STEPS[near])
        strong &= (beside * _LEAK_SHARES[near, None] < here).all(axis=0)
    return np.asarray(cells[strong])


def strongest(power: Float32, cells: Cells, limit: int) -> tuple[Cells, Cells]:
    """Return the strongest cells of each frame, in descending order, and their number per frame.

    Args:
        power: f4 [frames, doppler, range].
        cells: cells from `find_peaks`.
        limit: largest number of cells per frame.
    """
    frame = cells // power[0].size
    counts = np.bincount(frame, minlength=len(power))
    order = np.lexsort((-power.take(cells), frame))
    rank = np.arange(len(cells)) - np.repeat(np.cumsum(counts) - counts, counts)
    return cells[order[rank < limit]], np.minimum(counts, limit)


def vertex(level: Float32, cells: Cells, axis: int) -> Floats:
    """Return the offset of a peak from its cell's centre, -0.5 to 0.5, by a parabola of logarithms.

    Args:
        level: f4 [frames, doppler, range], logarithms of powers.
        cells: [n], indices into the flat `level`.
        axis: `DOPPLER` or `RANGE`; at the ends of the range the offset is 0.
    """
    before, after = _take_beside(level, cells, axis, _NEXT).astype(np.float64)
    middle = level.take(cells).astype(np.float64)
    curve = before - 2 * middle + after
    shift = np.where(curve < 0, 0.5 * (before - after) / np.where(curve < 0, curve, 1.0), 0.0)
    if axis == RANGE:
        at = cells % level.shape[RANGE]
        shift = np.where((at == 0) | (at == level.shape[RANGE] - 1), 0.0, shift)
    return np.asarray(np.clip(shift, -0.5, 0.5))


def _take_beside(values: Float32, cells: Cells, axis: int, steps: Cells) -> Float32:
    """Return values some steps from cells, [steps, n]; Doppler wraps around, 0 beyond the range."""
    _, doppler, ranges = values.shape
    steps = steps[:, None]
    if axis == DOPPLER:
        row = cells // ranges % doppler
        return np.asarray(values.take(cells + ((row + steps) % doppler - row) * ranges))
    at = cells % ranges + steps
    inside = (at >= 0) & (at < ranges)
    return np.where(inside, values.take(np.where(inside, cells + steps, 0)), np.float32(0))
