"""Pictures of a radar's frame: power over range and speed, and over range and azimuth.

::

    maps = RadarMaps(processor.geometry)
    spectra = processor.spectra(iq)
    level_db, noise_db = maps.range_doppler(spectra)     # f4 [speeds, ranges]
    level_db, noise_db = maps.range_azimuth(spectra)     # f4 [azimuths, ranges]
    found = processor.find(spectra)                      # the targets in them

A map's levels are dB above its noise, which is the median of the map.

Azimuths come from a plane wave's fit to the calibrated phases over the virtual array, at elevation
0.  A moving target turns the phases between transmitters that take turns; this is compensated for
the speed of the target's Doppler cell, the one nearest to zero.  A target whose speed wraps around
may appear in another azimuth: `RadarProcessor.find` resolves the speeds that can be resolved.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.perception.radar.array import SINGLE_THREADED, AntennaArray
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.spectra import Complex64, Float32, mean_power

_DOPPLER_CELLS: Final = 4
"""Number of the strongest cells of each range whose azimuths are computed; others hold noise."""
_LEAST_AZIMUTHS: Final = 91
_TINY: Final = np.float32(1e-30)


class RadarMaps:
    """Maps of the frames of one chirp configuration.  Safe for several threads.

    Args:
        geometry: of the radar.

    Attributes:
        range_m: f8 [ranges], of the columns.
        velocity_m_s: f8 [speeds], of the rows of `range_doppler`, rising; positive where the range
            grows.
        azimuth_rad: f8 [azimuths], of the rows of `range_azimuth`, rising; positive to the left.
            Empty where `radar.json` has no antennas.
    """

    def __init__(self, geometry: RadarGeometry) -> None:
        self.geometry = geometry
        chirps, tx, rx, _ = geometry.shape
        bias_m = 0.0 if geometry.calibration is None else geometry.calibration.range_bias_m
        self.range_m = np.arange(geometry.ranges) * geometry.range_resolution - bias_m
        order = np.fft.fftshift(np.arange(chirps))
        cells = np.where(order >= chirps / 2, order - chirps, order)
        self.velocity_m_s = cells * geometry.doppler_resolution
        self._first = int(order[0])
        self.azimuth_rad = np.empty(0)
        if geometry.tx_m is None or geometry.rx_m is None:
            return
        array = AntennaArray(geometry.tx_m, geometry.rx_m, geometry.wavelength, geometry.view_deg)
        # At least four azimuths in the width of a beam.
        wide = (np.ptp(geometry.tx_m[:, 1]) + np.ptp(geometry.rx_m[:, 1])) / geometry.wavelength
        widest = np.radians(geometry.view_deg[0])
        count = max(_LEAST_AZIMUTHS, 2 * int(np.ceil(4 * wide * widest)) + 1)
        self.azimuth_rad = np.linspace(-widest, widest, count)
        level = np.zeros(count)
        ahead = np.stack([np.cos(self.azimuth_rad), np.sin(self.azimuth_rad), level], axis=1)
        steering = array.steering(ahead) / (tx * rx)
        self._steering: Complex64 = steering.astype(np.complex64)
        # By which the signals of each antenna pair and Doppler cell are multiplied.
        speeds = np.fft.ifftshift(self.velocity_m_s)
        phase = -4 * np.pi / geometry.wavelength * speeds * geometry.late_s[:, None]
        turned = geometry.factors[..., None] * np.exp(1j * phase)[:, None]
        self._factors: Complex64 = turned.reshape(tx * rx, chirps).astype(np.complex64)

    def range_doppler(self, spectra: Complex64) -> tuple[Float32, float]:
        """Return the mean power over all antennas.

        Args:
            spectra: complex64 [tx, rx, doppler, range], from `RadarProcessor.spectra`.

        Returns:
            f4 [speeds, ranges], dB above the noise; the noise, dB above one step of the converter
            squared.
        """
        return _compute_levels(np.roll(mean_power(spectra), -self._first, axis=0))

    def range_azimuth(self, spectra: Complex64) -> tuple[Float32, float]:
        """Return, by azimuth, the largest plane-wave power among the strongest Doppler cells.

        Args:
            spectra: complex64 [tx, rx, doppler, range], from `RadarProcessor.spectra`.

        Returns:
            f4 [azimuths, ranges], dB above the noise; the noise, dB above one step of the converter
            squared.

        Raises:
            FormatError: `radar.json` has no antennas.
        """
        if not len(self.azimuth_rad):
            raise FormatError("radar.json: lacks antennas")
        power = mean_power(spectra)
        chirps, ranges = power.shape
        kept = min(_DOPPLER_CELLS, chirps)
        rows = np.argpartition(power, chirps - kept, axis=0)[chirps - kept :]  # [kept, range]
        flat = spectra.reshape(-1, chirps * ranges)
        signal = flat.take(rows * ranges + np.arange(ranges), axis=1)  # [antenna, kept, range]
        signal *= self._factors.take(rows, axis=1)
        waves = self._compute_wave_power(signal.reshape(len(flat), -1))
        return _compute_levels(waves.reshape(-1, kept, ranges).max(axis=1))

    def _compute_wave_power(self, signal: Complex64) -> Float32:
        """Return the power of plane waves, f4 [azimuths, n], per antenna, of [antennas, n]."""
        step = max(1, SINGLE_THREADED // self._steering.size)
        power = np.empty((len(self._steering), signal.shape[1]), np.float32)
        for at in range(0, signal.shape[1], step):
            wave = self._steering @ signal[:, at : at + step]
            power[:, at : at + step] = wave.real**2 + wave.imag**2
        return power


def _compute_levels(power: Float32) -> tuple[Float32, float]:
    """Return power in dB above the median, and the median in dB."""
    level = np.log10(np.maximum(power, _TINY))
    level *= np.float32(10)
    noise = np.float32(np.median(level))
    level -= noise
    return level, float(noise)


def in_db_steps(level_db: Float32, least_db: float, step_db: float) -> npt.NDArray[np.uint8]:
    """Return levels as ``least_db + step_db * u1``, limited to what 8 bits can hold."""
    steps = (level_db - np.float32(least_db)) * np.float32(1 / step_db) + np.float32(0.5)
    return np.asarray(np.clip(steps, 0, 255), np.uint8)
