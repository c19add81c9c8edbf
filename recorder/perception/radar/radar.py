"""Detections from the raw samples of an FMCW radar with time-multiplexed transmitters (TDM-MIMO).

Range and Doppler are computed by Fourier transforms (TI, "The fundamentals of millimeter wave radar
sensors", SPYY005).  Targets are detected by a CFAR on the logarithm of the power summed over all
antennas.  Directions are found by matching the phases over the virtual array.  `radar.json`
contains all parameters.

::

    radar = RadarProcessor(RadarGeometry.of_metadata(text, where), threshold_db=12.0)
    found = radar.detect(iq)             # int16 [chirps, tx, rx, values]
    found.range_m, found.velocity_m_s, found.direction

A target faster than ``max_velocity`` appears with a speed that is off by a multiple of twice that
value.  The target also moves between the chirps of two transmitters, so that the phases over the
array fit one multiple best.  The fit decides only where `radar_array.decided` trusts it; see
`radar_frames` for the other detections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.perception.radar.array import AntennaArray, decided
from recorder.perception.radar.geometry import Floats, RadarGeometry
from recorder.perception.radar.spectra import (
    DOPPLER,
    RANGE,
    Complex64,
    antenna_spectra,
    find_peaks,
    hann_window,
    log_noise,
    log_power,
    mean_power,
    strongest,
    values_at,
    vertex,
)

__all__ = ["Detections", "RadarGeometry", "RadarProcessor", "SpeedMethod"]

Float32 = npt.NDArray[np.float32]
Turns = npt.NDArray[np.int16]


class SpeedMethod(IntEnum):
    """Method by which the multiple of a detection's speed was found."""

    AMBIGUOUS = 0
    """Unresolved: the speed is the one nearest to zero."""
    ARRAY = 1
    """Resolved by the phases over the calibrated array."""
    RANGE_RATE = 2
    """Resolved by the range in the frames before and after."""


@dataclass(frozen=True)
class Detections:
    """Detections of a frame, the strongest first.

    Attributes:
        range_m: f4 [n].
        velocity_m_s: f4 [n], radial, positive where the range grows.
        power_db: f4 [n], dB above one step of the converter squared, per antenna.
        snr_db: f4 [n], dB above the surrounding noise.
        direction: f4 [n, 3], unit vectors, x forward, y left, z up.
        margin_db: f4 [n], how much better the chosen speed fits the phases over the array than the
            best other one; negative where another one fits better, 0 with one transmitter.
        method: u1 [n], a `SpeedMethod`.
        turns: i2 [n], multiples of twice `max_velocity` in `velocity_m_s`.
        directions: f4 [n, multiple, 3], the directions for ``turns % multiples``.
        fit_db: f4 [n, multiple], how well the phases fit; dB above an arbitrary level.
    """

    range_m: Float32
    velocity_m_s: Float32
    power_db: Float32
    snr_db: Float32
    direction: Float32
    margin_db: Float32
    method: npt.NDArray[np.uint8]
    turns: Turns = field(repr=False)
    directions: Float32 = field(repr=False)
    fit_db: Float32 = field(repr=False)

    def __len__(self) -> int:
        return len(self.range_m)

    def turned(
        self,
        where: npt.NDArray[np.bool_],
        turns: Turns,
        method: SpeedMethod,
        geometry: RadarGeometry,
    ) -> Detections:
        """Return these detections with other multiples.

        Args:
            where: bool [n], the detections to change.
            turns: i2 [n], their new multiples.
            method: how the multiples were found.
            geometry: of the radar.
        """
        new = np.where(where, turns, self.turns)
        shift = (new.astype(np.int64) - self.turns) * 2 * geometry.max_velocity
        every, kind = np.arange(len(self)), new % self.fit_db.shape[1]
        distance = np.maximum(self.range_m - shift * geometry.coupling_s, 0.0)
        return replace(
            self,
            range_m=np.where(where, distance, self.range_m).astype(np.float32),
            velocity_m_s=(self.velocity_m_s + shift).astype(np.float32),
            direction=self.directions[every, kind],
            margin_db=margins_db(self.fit_db, kind),
            method=np.where(where, np.uint8(method), self.method).astype(np.uint8),
            turns=new.astype(np.int16),
        )


def rcs_db(found: Detections, reference_db: float) -> Float32:
    """Return radar cross sections, f4 [n], dB above 1 m2.

    Args:
        found: the detections.
        reference_db: power of a target of 1 m2 at 1 m, dB above one step of the converter squared.
    """
    spread = 40 * np.log10(np.maximum(found.range_m, np.float32(0.01)))
    return np.asarray(found.power_db + spread - reference_db, np.float32)


def margins_db(fit_db: Float32, chosen: npt.NDArray[np.integer]) -> Float32:
    """Return the margin of the chosen multiples over the best other ones in dB, f4 [n]."""
    if fit_db.shape[1] < 2:
        return np.zeros(len(fit_db), np.float32)
    others = fit_db.copy()
    every = np.arange(len(fit_db))
    others[every, chosen] = -np.inf
    return np.asarray(fit_db[every, chosen] - others.max(axis=1), np.float32)


class RadarProcessor:
    """A detector of targets in frames of one chirp configuration.  Safe for several threads.

    Args:
        geometry: geometry of the radar.
        threshold_db: level above the surrounding noise that a cell must exceed.
        limit: largest number of detections kept per frame, the strongest first.
    """

    def __init__(
        self, geometry: RadarGeometry, threshold_db: float = 12.0, limit: int = 256
    ) -> None:
        self.geometry = geometry
        self.limit = limit
        self._threshold = threshold_db / 10 * np.log(10)  # difference of natural logarithms
        chirps, tx, _, samples = geometry.shape
        self._window = hann_window(chirps, samples, geometry.iq_order)
        self._array: AntennaArray | None = None
        if geometry.tx_m is not None and geometry.rx_m is not None:
            self._array = AntennaArray(
                geometry.tx_m, geometry.rx_m, geometry.wavelength, geometry.view_deg
            )
        self._factors = geometry.factors
        calibration = geometry.calibration
        self._bias_m = 0.0 if calibration is None else calibration.range_bias_m
        # Multiples that differ by tx turn the phases alike; only the one nearest to zero is kept.
        turns = np.arange(tx)
        self._multiples = [
            np.where(turns > half, turns - tx, turns) for half in ((tx - 1) // 2, tx / 2)
        ]

    def spectra(self, iq: npt.NDArray[np.int16]) -> Complex64:
        """Return Doppler and range spectra of each antenna pair.

        Args:
            iq: int16 [chirps, tx, rx, values], as recorded.

        Returns:
            complex64 [tx, rx, doppler, range], contiguous; Doppler cells begin at 0 and wrap
            around.
        """
        return antenna_spectra(iq, self._window, self.geometry.iq_order)

    def cube(self, iq: npt.NDArray[np.int16]) -> Complex64:
        """Return the result of `spectra` as complex64 [doppler, tx, rx, range]."""
        return self.spectra(iq).transpose(2, 0, 1, 3)

    def detect(self, iq: npt.NDArray[np.int16]) -> Detections:
        """Detect the targets of a frame.

        Args:
            iq: int16 [chirps, tx, rx, values], as recorded.
        """
        return self.find(self.spectra(iq))

    def find(self, spectra: Complex64) -> Detections:
        """Find the targets of a frame in its spectra.

        Args:
            spectra: complex64 [tx, rx, doppler, range], from `spectra`.
        """
        return self.find_all([spectra])[0]

    def find_all(self, spectra: Sequence[Complex64]) -> list[Detections]:
        """Find the targets of several frames, with the same results as one by one, at a lower cost.

        Args:
            spectra: for each frame complex64 [tx, rx, doppler, range], from `spectra`.
        """
        power = np.stack([mean_power(one) for one in spectra])  # [frames, doppler, range]
        level = log_power(power)
        noise = log_noise(level)
        cells = find_peaks(power, level > noise + self._threshold)
        cells, counts = strongest(power, cells, self.limit)
        ends = np.cumsum(counts)
        geometry, (_, chirps, ranges) = self.geometry, power.shape
        place = cells % (chirps * ranges)
        doppler, column = place // ranges, place % ranges
        at_doppler = doppler + vertex(level, cells, DOPPLER)
        at_doppler = np.where(at_doppler >= chirps / 2, at_doppler - chirps, at_doppler)
        velocity = at_doppler * geometry.doppler_resolution
        snr_db = 10 / np.log(10) * (level.take(cells) - noise.take(cells))
        turns, good = np.zeros(len(cells), np.int16), np.zeros(len(cells), np.bool_)
        fit_db, directions = np.zeros((len(cells), 1)), np.zeros((len(cells), 1, 3))
        directions[..., 0] = 1.0
        if self._array is not None:
            parts = zip(spectra, np.split(place, ends[:-1]), strict=True)
            signal = np.concatenate([values_at(*part) for part in parts]) * self._factors
            fit_db, directions = self._fit(self._array, signal, velocity)
            if geometry.calibration is not None:
                power_sum = np.sum(np.abs(signal) ** 2, axis=(1, 2))
                total_db = 10 * np.log10(signal[0].size * power_sum) if len(signal) else power_sum
                residual = geometry.calibration.residual_deg
                good = decided(fit_db, total_db, snr_db, residual, signal.shape[1:])
                best = np.argmax(fit_db, axis=1)
                turns = np.where(
                    good, self._list_turns(velocity)[np.arange(len(cells)), best], turns
                )
        velocity = velocity + turns * 2 * geometry.max_velocity
        distance = (column + vertex(level, cells, RANGE)) * geometry.range_resolution
        distance = np.maximum(distance - self._bias_m - velocity * geometry.coupling_s, 0.0)
        kind = turns % fit_db.shape[1]
        fit32, unit32 = fit_db.astype(np.float32), _normalize(directions)
        columns: tuple[npt.NDArray[Any], ...] = (
            distance.astype(np.float32),
            velocity.astype(np.float32),
            (10 * np.log10(power.take(cells))).astype(np.float32),
            snr_db.astype(np.float32),
            unit32[np.arange(len(cells)), kind],
            margins_db(fit32, kind),
            np.where(good, SpeedMethod.ARRAY, SpeedMethod.AMBIGUOUS).astype(np.uint8),
            turns.astype(np.int16),
            unit32,
            fit32,
        )
        return [
            Detections(*(column[first:end] for column in columns))
            for first, end in pairwise([0, *ends.tolist()])
        ]

    def _list_turns(self, velocity: Floats) -> npt.NDArray[np.int64]:
        """Return candidate multiples, [n, multiple]; column k holds multiples of k modulo tx."""
        return np.where(velocity[:, None] > 0, *self._multiples)

    def _fit(
        self, array: AntennaArray, signal: npt.NDArray[np.complex128], velocity: Floats
    ) -> tuple[Floats, Floats]:
        """Return how well each multiple fits the phases over the array, and the directions for it.

        Args:
            array: the radar's antenna array.
            signal: [n, tx, rx], calibrated.
            velocity: [n], velocities of the Doppler cells.

        Returns:
            f8 [n, multiple], dB; f8 [n, multiple, 3].
        """
        count, tx, rx = signal.shape
        speeds = velocity[:, None] + self._list_turns(velocity) * 2 * self.geometry.max_velocity
        phase = -4 * np.pi / self.geometry.wavelength * speeds[..., None] * self.geometry.late_s
        turned = signal[:, None] * np.exp(1j * phase)[..., None]  # [n, multiple, tx, rx]
        turned = turned.reshape(count, tx, tx * rx)
        _, start = array.coarse(turned)
        fitted, direction = array.climb(turned.reshape(count * tx, tx * rx), start.reshape(-1))
        fit_db = 10 * np.log10(np.maximum(fitted, 1e-30))
        return fit_db.reshape(count, tx), direction.reshape(count, tx, 3)


def _normalize(vectors: Floats) -> Float32:
    unit: Float32 = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return unit
