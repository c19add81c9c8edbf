"""Range and Doppler of a radar's frames as int16, as EdgeFirst's cubes are.

::

    spectra = processor.spectra(iq)                # of RadarProcessor
    cube, cut = quantized(spectra, gain=16.0)
    cube = cropped(cube, ranges=200, doppler=32)
"""

from __future__ import annotations

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
    values = np.ascontiguousarray(spectra).view(np.float32).reshape(tx, rx, chirps, ranges, 2)
    scaled = values * np.float32(gain)
    np.rint(scaled, out=scaled)
    cut = 0
    if scaled.size and max(scaled.max(), -scaled.min()) > _MOST:
        cut = int(np.count_nonzero(np.abs(scaled) > _MOST))
        np.clip(scaled, -_MOST, _MOST, out=scaled)
    pairs = scaled.astype(np.int16).view(np.uint32)[..., 0]  # both parts are moved as one
    half = chirps - chirps // 2  # as fftshift has it
    out = np.empty((tx, rx, ranges, chirps), np.uint32)
    out[..., : chirps - half] = pairs[:, :, half:].transpose(0, 1, 3, 2)
    out[..., chirps - half :] = pairs[:, :, :half].transpose(0, 1, 3, 2)
    return out.view(np.int16).reshape(tx, rx, ranges, chirps, 2), cut


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
