"""Range and Doppler spectra of each antenna pair of an FMCW radar, by Fourier transforms.

::

    window = hann_window(chirps, samples, order)
    made = antenna_spectra(iq, window, order)
    power = mean_power(made)
"""

from __future__ import annotations

from typing import TypeVar

import cv2
import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Complex64 = npt.NDArray[np.complex64]
Value = TypeVar("Value", np.int16, np.float32)

_PLACES = {"qqii": (2, 0, 3, 1), "iiqq": (0, 2, 1, 3)}
"""Indices of I, Q, I, Q of two samples among four recorded values.

Two LVDS lanes carry a chirp, so that two I values are stored beside two Q values.
"""
ORDERS = tuple(_PLACES)


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
