"""Directions of targets, by matching the phases over a radar's virtual array.

The transmitters of a radar take turns, and a moving target turns their phases.  Each multiple of
twice the largest unambiguous speed turns them differently, so that the multiple with the best match
may be the right one: `decided` returns where the match is trustworthy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Complex64 = npt.NDArray[np.complex64]
Complex128 = npt.NDArray[np.complex128]
Indices = npt.NDArray[np.intp]

_SURE = 4.0
"""Standard deviations by which the best multiple must exceed the second."""
_SPARE_DB = 0.3
"""Margin that is required even without any error: the search for a direction is not exact."""
_SECOND_WAVE = 0.15
"""Largest share of the power that one plane wave may leave unexplained, beside the errors."""
_LEVELS = 6
_LEVEL_WAVELENGTHS = 1e-6
SINGLE_THREADED = 65_536
"""Multiplications of a product up to which OpenBLAS computes it in the calling thread.  OpenBLAS
gives larger products to threads that wait by spinning, which costs twenty times as much on a busy
machine.
"""


class AntennaArray:
    """An antenna array that finds the directions of signals by their phases.

    Args:
        tx_m, rx_m: f8 [antennas, 3], x forward, y left, z up.
        wavelength: m.
        view_deg: largest azimuth and elevation to each side of straight ahead; no direction beyond
            is found.
    """

    def __init__(
        self,
        tx_m: Floats,
        rx_m: Floats,
        wavelength: float,
        view_deg: tuple[float, float] = (90.0, 44.4),
    ) -> None:
        places = (tx_m[:, None] + rx_m[None]).reshape(-1, 3)
        self._places = 2 * np.pi / wavelength * places  # in radians per unit of direction
        deep, wide, high = (places.max(axis=0) - places.min(axis=0)) / wavelength
        self._plane = bool(deep < _LEVEL_WAVELENGTHS)
        level = bool(high < _LEVEL_WAVELENGTHS)
        sideways = _compute_sines(wide)
        self._wide, self._high = (float(np.sin(np.radians(angle))) for angle in view_deg)
        up = np.zeros(1) if level else _compute_sines(high) * self._high
        grid = np.stack(np.meshgrid(sideways, up, indexing="ij"), axis=-1).reshape(-1, 2)
        self._grid = grid[self._is_visible(*grid.T) & (np.sum(grid * grid, axis=1) <= 0.999)]
        self._steering: Complex128 = self._steer(self._grid)
        self._coarse: Complex64 = np.ascontiguousarray(self._steering.T.astype(np.complex64))
        ways = [(a, b) for a in (-1, 0, 1) for b in ((0,) if level else (-1, 0, 1))]
        step = np.array([sideways[1] - sideways[0], 0.0 if level else up[1] - up[0]])
        moves = [np.array(ways) * step / 2**n for n in range(1, _LEVELS + 1)]
        self._moves = [np.ascontiguousarray(move.T) for move in moves]
        # For a plane array across x, the phase change of a move does not depend on its start.
        self._turns = [np.exp(1j * (self._places[:, 1:] @ move)) for move in self._moves]

    def _is_visible(self, left: Floats, up: Floats) -> npt.NDArray[np.bool_]:
        """Return whether directions are in the field of view."""
        room = 1 - up * up
        inside = (np.abs(up) <= self._high + 1e-9) & (left * left <= self._wide**2 * room + 1e-9)
        return np.asarray(inside & (left * left <= room))

    def steering(self, direction: Floats) -> Complex128:
        """Return factors that turn back the phases of targets in these directions.

        Args:
            direction: f8 [n, 3], unit vectors.

        Returns:
            c16 [n, antennas].
        """
        return np.asarray(np.exp(1j * (direction @ self._places.T)))

    def _steer(self, sines: Floats) -> Complex128:
        """Return factors [n, antennas] that turn back the phases of targets in these directions."""
        return self.steering(np.concatenate([_compute_forward(sines)[..., None], sines], axis=-1))

    def coarse(self, signal: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], Indices]:
        """Find the best direction of a grid whose step is a quarter of the beam's width.

        Args:
            signal: complex [n, multiple, antennas].

        Returns:
            its power, f4 [n, multiple], at most 0.5 dB below the maximum, and its grid index.
        """
        flat = signal.astype(np.complex64)
        columns = max(1, SINGLE_THREADED // max(1, flat.shape[1] * len(self._coarse)))
        ends = range(0, self._coarse.shape[1], columns)
        fit = np.abs(
            np.concatenate([flat @ self._coarse[:, at : at + columns] for at in ends], axis=-1)
        )
        return fit.max(axis=-1) ** 2, np.argmax(fit, axis=-1)

    def climb(self, signal: npt.NDArray[Any], start: Indices) -> tuple[Floats, Floats]:
        """Refine directions of the grid; return the best fit's power [n] and unit vectors [n, 3].

        Args:
            signal: complex [n, antennas].
            start: grid indices from `coarse`.
        """
        every = np.arange(len(signal))
        sines = self._grid[start].T
        turned = signal * self._steering[start]
        for moves, turns in zip(self._moves, self._turns, strict=True):  # each step is halved
            around = np.add(sines[..., None], moves[:, None], order="C")  # [2, n, move]
            if self._plane:
                value = np.abs(turned[:, None] @ turns)[:, 0]
            else:
                steering = self._steer(np.moveaxis(around, 0, 2))
                value = np.abs(np.einsum("nma,na->nm", steering, signal))
            value[~self._is_visible(*around)] = -1.0
            best = np.argmax(value, axis=1)
            sines = around[:, every, best]
            turned *= turns.T[best]
        return value[every, best] ** 2, np.stack([_compute_forward(sines.T), *sines], axis=1)


def _compute_sines(extent: float) -> Floats:
    """Return sines, a quarter of a beam's width apart; the array's extent is in wavelengths."""
    return np.linspace(-1, 1, 2 * max(4, int(np.ceil(4 * extent))) + 1)


def _compute_forward(sines: Floats) -> Floats:
    return np.asarray(np.sqrt(np.maximum(1 - np.sum(sines * sines, axis=-1), 0.0)))


def decided(
    fit_db: Floats, total_db: Floats, snr_db: Floats, residual_deg: float, pairs: tuple[int, ...]
) -> npt.NDArray[np.bool_]:
    """Return whether the best multiple of each detection can be trusted, bool [n].

    The errors of the phases come from noise and from the calibration's residual.  Their variance
    e^2, relative to the signal's power, is the sum of both.  With n antenna pairs the best match F
    and the second F(1 - d) then differ by ``sqrt(n d / (2 e^2))`` standard deviations of the
    difference, because the errors that both matches share cancel.  The residual counts as an error
    that all receivers of a transmitter share, because a speed turns their phases alike.

    Args:
        fit_db: f8 [n, multiple], power of the best plane wave.
        total_db: f8 [n], the power that a plane wave would have that explains the whole signal.
        snr_db: f8 [n], of a channel.
        residual_deg: of the calibration.
        pairs: numbers of transmitters and receivers.
    """
    if fit_db.shape[1] < 2:
        return np.zeros(len(fit_db), np.bool_)
    second, best = np.partition(fit_db, -2, axis=1)[:, -2:].T
    tx, rx = pairs
    error = rx * np.radians(residual_deg) ** 2 + 10 ** (-snr_db / 10)
    lead = 1 - 10 ** ((second - best) / 10)
    unexplained = 1 - 10 ** ((best - total_db) / 10)
    sure = lead >= 2 * _SURE**2 * error / (tx * rx)
    return np.asarray(
        sure & (best - second >= _SPARE_DB) & (unexplained <= _SECOND_WAVE + np.minimum(error, 0.1))
    )
