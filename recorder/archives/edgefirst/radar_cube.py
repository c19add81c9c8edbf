"""Range and Doppler of a radar's frames as int16, in the layout of EdgeFirst's cubes.

::

    spectra = processor.spectra(iq)                # processor: RadarProcessor
    cube, cut = quantized(spectra, gain=16.0)
    cube = cropped(cube, ranges=200, doppler=32)
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

_MOST = 32_767.0


def quantized(spectra: npt.NDArray[np.complex64], gain: float) -> tuple[npt.NDArray[np.int16], int]:
    """Convert a frame's spectra to int16; also returns how many values were clipped.

    Args:
        spectra: complex64 [tx, rx, doppler, range]; Doppler bins begin at 0 and wrap round.
        gain: units of the result per step of the converter.

    Returns:
        int16 [tx, rx, range, doppler, 2], real and imaginary part, rounded; Doppler bins rise, the
        bin of 0 m/s has index doppler // 2.
    """
    tx, rx, chirps, ranges = spectra.shape
    values = np.ascontiguousarray(spectra).view(np.float32).reshape(-1, 2 * ranges)
    # OpenCV multiplies, rounds and clips in one pass; a clipped value lies at an end of int16.
    rounded: npt.NDArray[Any] = cv2.addWeighted(values, gain, values, 0.0, 0.0, None, cv2.CV_16S)
    cut = 0
    if cv2.norm(rounded, cv2.NORM_INF) >= _MOST:
        exact = np.rint(values * np.float32(gain))
        cut = int(np.count_nonzero(np.abs(exact) > _MOST))
        rounded = np.clip(exact, -_MOST, _MOST).astype(np.int16)
    pairs = rounded.view(np.int32).reshape(tx, rx, chirps, ranges)  # moves both parts as one value
    low = chirps // 2  # index of Doppler 0 in the result
    rising = np.concatenate([pairs[:, :, chirps - low :], pairs[:, :, : chirps - low]], axis=2)
    grid = np.empty((tx, ranges, rx * chirps), np.int32)  # layout of `cube_picture`
    for of_sequence, cells in zip(rising.reshape(tx, rx * chirps, ranges), grid, strict=True):
        cv2.transpose(of_sequence, cells)
    return grid.view(np.int16).reshape(tx, ranges, rx, chirps, 2).transpose(0, 2, 1, 3, 4), cut


def cropped(cube: npt.NDArray[np.int16], ranges: int, doppler: int) -> npt.NDArray[np.int16]:
    """The first range bins, and the Doppler bins around 0; a bound of 0 keeps all bins.

    Args:
        cube: int16 [tx, rx, range, doppler, 2], from `quantized`.
        ranges: number of range bins to keep.
        doppler: number of Doppler bins to keep; 0 m/s gets the index doppler // 2.
    """
    if ranges:
        cube = cube[:, :, :ranges]
    have = cube.shape[3]
    if doppler and doppler < have:
        first = have // 2 - doppler // 2
        cube = cube[:, :, :, first : first + doppler]
    return cube
