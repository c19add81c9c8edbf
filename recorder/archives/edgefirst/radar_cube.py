"""Range and Doppler of a radar's frames as int16, as EdgeFirst's cubes are.

::

    spectra = processor.spectra(iq)                # of RadarProcessor
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
    """Spectra of a frame as int16, and how many values were cut.

    Args:
        spectra: complex64 [tx, rx, doppler, range]; Doppler bins begin at 0 and wrap round.
        gain: values of the result per step of the converter.

    Returns:
        int16 [tx, rx, range, doppler, 2], real and imaginary part, rounded; Doppler bins rise, 0
        stands at doppler // 2.
    """
    tx, rx, chirps, ranges = spectra.shape
    values = np.ascontiguousarray(spectra).view(np.float32).reshape(-1, 2 * ranges)
    # OpenCV multiplies, rounds and cuts at once; what it cut stands at an end of int16.
    rounded: npt.NDArray[Any] = cv2.addWeighted(values, gain, values, 0.0, 0.0, None, cv2.CV_16S)
    cut = 0
    if cv2.norm(rounded, cv2.NORM_INF) >= _MOST:
        exact = np.rint(values * np.float32(gain))
        cut = int(np.count_nonzero(np.abs(exact) > _MOST))
        rounded = np.clip(exact, -_MOST, _MOST).astype(np.int16)
    pairs = rounded.view(np.int32).reshape(tx, rx, chirps, ranges)  # both parts are moved as one
    low = chirps // 2  # where Doppler 0 comes to stand
    rising = np.concatenate([pairs[:, :, chirps - low :], pairs[:, :, : chirps - low]], axis=2)
    grid = np.empty((tx, ranges, rx * chirps), np.int32)  # as it stands in pictures
    for of_sequence, cells in zip(rising.reshape(tx, rx * chirps, ranges), grid, strict=True):
        cv2.transpose(of_sequence, cells)
    return grid.view(np.int16).reshape(tx, ranges, rx, chirps, 2).transpose(0, 2, 1, 3, 4), cut


def cropped(cube: npt.NDArray[np.int16], ranges: int, doppler: int) -> npt.NDArray[np.int16]:
    """The first range bins, and the Doppler bins around 0; a bound of 0 leaves all.

    Args:
        cube: int16 [tx, rx, range, doppler, 2], from `quantized`.
        ranges: range bins that stay.
        doppler: Doppler bins that stay; 0 m/s stands at doppler // 2 again.
    """
    if ranges:
        cube = cube[:, :, :ranges]
    have = cube.shape[3]
    if doppler and doppler < have:
        first = have // 2 - doppler // 2
        cube = cube[:, :, :, first : first + doppler]
    return cube
