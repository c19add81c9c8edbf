"""Range and Doppler spectra of an FMCW radar, and the cells of their power that contain a target.

::

    window = hann_window(chirps, samples, order)
    made = antenna_spectra(iq, window, order)
    power = mean_power(made)
    level = log_power(power[None])                  # [frames, doppler, range]
    cells = find_peaks(power[None], level > log_noise(level) + threshold)
"""

from __future__ import annotations

from typing import TypeVar

import cv2
import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Complex64 = npt.NDArray[np.complex64]
Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.intp]
Value = TypeVar("Value", np.int16, np.float32)

_PLACES = {"qqii": (2, 0, 3, 1), "iiqq": (0, 2, 1, 3)}
"""Indices of I, Q, I, Q of two samples among four recorded values.

Two LVDS lanes carry a chirp, so that two I values are stored beside two Q values.
"""
ORDERS = tuple(_PLACES)

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


def hann_window(chirps: int, samples: int, order: str | None) -> Float32:
    """Return a window for recorded values; a tone of amplitude 1 then has power 1.

    Args:
        chirps, samples: numbers of chirps and samples of a frame.
        order: order of the values, one of `ORDERS`; None where samples are real.

    Returns:
        f4 [chirps, values].
    """
    over, along = np.hanning(chirps + 2)[1:-1], np.hanning(samples + 2)[1:-1]
    window = np.outer(over, along) / (along.sum() * over.sum())
    # For real samples, the unused half of the spectrum holds half of the amplitude.
    window = window * 2 if order is None else np.repeat(window, 2, axis=1)
    return window.astype(np.float32)


def antenna_spectra(iq: npt.NDArray[np.int16], window: Float32, order: str | None) -> Complex64:
    """Return Doppler and range spectra of each antenna pair.

    Args:
        iq: int16 [chirps, tx, rx, values], as recorded.
        window: window from `hann_window`.
        order: order of the values, one of `ORDERS`; None where samples are real.

    Returns:
        complex64 [tx, rx, doppler, range], contiguous; Doppler cells begin at 0 and wrap around.
    """
    chirps, tx, rx, values = iq.shape
    if order is None:
        spectrum = np.fft.rfft(iq.transpose(1, 2, 0, 3) * window, axis=-1)[..., : values // 2]
        return np.ascontiguousarray(np.fft.fft(spectrum, axis=-2), np.complex64)
    made = np.empty((tx * rx, chirps, values), np.float32)
    made[...] = to_pairs(iq, order).reshape(chirps, tx * rx, values).transpose(1, 0, 2)
    made *= window
    for one in made.reshape(tx * rx, chirps, values // 2, 2):
        cv2.dft(one, one, cv2.DFT_COMPLEX_OUTPUT)
    return made.view(np.complex64).reshape(tx, rx, chirps, values // 2)


def to_pairs(iq: npt.NDArray[Value], order: str) -> npt.NDArray[Value]:
    """Reorder recorded values [..., values], so that each sample's I and Q are adjacent."""
    quads = np.ascontiguousarray(iq).reshape(1, -1, 4)
    pairs = np.empty_like(quads)
    moves = [place for move in zip(_PLACES[order], range(4), strict=True) for place in move]
    cv2.mixChannels([quads], [pairs], moves)
    return pairs.reshape(iq.shape)


def mean_power(spectra: Complex64) -> Float32:
    """Return the mean power over all antennas, f4 [doppler, range], of [tx, rx, doppler, range]."""
    tx, rx, doppler, ranges = spectra.shape
    parts = spectra.view(np.float32).reshape(tx * rx, -1)
    squares = np.einsum("ai,ai->i", parts, parts).reshape(doppler, ranges, 2)
    return np.asarray((squares[..., 0] + squares[..., 1]) * np.float32(1 / (tx * rx)))


def values_at(spectra: Complex64, places: npt.NDArray[np.intp]) -> Complex64:
    """Return spectra at indices into the flat map of Doppler and range: c8 [n, tx, rx]."""
    tx, rx = spectra.shape[:2]
    flat = spectra.reshape(tx * rx, -1)
    return flat.take(places, axis=1).T.reshape(-1, tx, rx)


# A cell holds a target if it exceeds the surrounding noise (a CFAR on logarithms), the leakage from
# stronger cells, and its neighbours.  Most cells do not exceed the noise; the other conditions are
# tested only for the cells that do.


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
