"""A radar that needs no hardware: point targets as beat tones, in the layout of a raw capture.

All phases are integers, 65536 to a turn, and tones come from tables, so that a frame is the same
on every machine and costs an addition and a table look-up per value and target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers._protocols.chirp import ChirpConfig, lane_columns

Frame = npt.NDArray[np.int16]

_TURN = 1 << 16
_NOISE_SIGMA = 6.0
_NOISE_SPARE = 1 << 16  # by how much a frame's cut of the noise may be shifted
_AMPLITUDES = (1600, 1000, 700, 450)


@dataclass(frozen=True, slots=True)
class TargetState:
    """A target as one frame sees it.

    Attributes:
        range_m: at the frame's first chirp.
        velocity_mps: radial, positive where the range grows.
        azimuth_rad: from broadside.
        amplitude: of its tone, in units of the ADC.
    """

    range_m: float
    velocity_mps: float
    azimuth_rad: float
    amplitude: int


@dataclass(frozen=True, slots=True)
class _Target:
    """Swings about a range: r(t) = centre + swing * sin(2 pi t / period + phase)."""

    centre_m: float
    swing_m: float
    period_s: float
    phase_rad: float
    azimuth_rad: float
    amplitude: int

    def at(self, t_s: float) -> TargetState:
        turn = 2 * math.pi / self.period_s
        angle = turn * t_s + self.phase_rad
        return TargetState(
            self.centre_m + self.swing_m * math.sin(angle),
            self.swing_m * turn * math.cos(angle),
            self.azimuth_rad,
            self.amplitude,
        )


class SimulatedRadar:
    """Synthesizes frame `k` of an endless sequence; any `k` at any time, without state.

    A target at range bin b (range / range_resolution) and Doppler bin d (velocity /
    doppler_resolution) turns by b / adc_samples from sample to sample and by d / frame_length
    from loop to loop, and by its angle from one virtual antenna to the next (half a wavelength
    apart, in the order tx, rx).  The beat does not change within a frame.

    >>> radar = SimulatedRadar(chirp, "qqii", seed=0)
    >>> frame = radar.frame(0)           # int16 chirp.shape; the caller may keep it
    >>> radar.targets(0)[0].range_m      # what it shows

    Args:
        chirp: the configuration; fixes shape and resolutions.
        iq_order: order of the lanes, see `drivers._protocols.chirp.lane_columns`.
        seed: of the targets and of the noise.
    """

    def __init__(self, chirp: ChirpConfig, iq_order: str, seed: int = 0) -> None:
        self.chirp = chirp
        rng = np.random.default_rng(seed)
        self._targets = [_target(chirp, rng, amplitude) for amplitude in _AMPLITUDES]
        angles = np.arange(_TURN) * (2 * math.pi / _TURN)
        self._tables = [
            np.round(t.amplitude * np.cos(angles)).astype(np.int16) for t in self._targets
        ]
        count = math.prod(chirp.shape) + _NOISE_SPARE
        noise = rng.standard_normal(count, np.float32) * np.float32(_NOISE_SIGMA)
        self._noise = np.round(noise).astype(np.int16)
        self._shifts = rng.integers(0, _NOISE_SPARE, 1021).tolist()
        # For every value of a chirp the number of its sample, and a quarter turn back for Q.
        samples = np.arange(chirp.adc_samples)
        if chirp.antennas.complex_samples:
            i, q = lane_columns(chirp.adc_samples, iq_order)
            self._sample_of = np.empty(chirp.shape[3], np.int64)
            self._sample_of[i] = self._sample_of[q] = samples
            self._offset = np.zeros(chirp.shape[3], np.uint16)
            self._offset[q] = 3 * _TURN // 4
        else:
            self._sample_of, self._offset = samples, np.zeros(len(samples), np.uint16)

    def targets(self, index: int) -> list[TargetState]:
        """The targets as frame `index` shows them, the strongest first."""
        t_s = index * self.chirp.frame_period / 1e3
        return [target.at(t_s) for target in self._targets]

    def frame(self, index: int) -> Frame:
        """Frame `index` (0 and up): int16 [chirps, tx, rx, values], newly made."""
        shift = self._shifts[index % len(self._shifts)]
        size = math.prod(self.chirp.shape)
        frame = self._noise[shift : shift + size].reshape(self.chirp.shape).copy()
        for table, target in zip(self._tables, self.targets(index), strict=True):
            # uint16 wraps at a turn by itself, and is in the table's range whatever its value.
            phases = self._slow(target)[..., None] + self._fast(target)
            frame += table.take(phases, mode="clip")
        return frame

    def _fast(self, target: TargetState) -> npt.NDArray[np.uint16]:
        """Phases of a chirp's values, uint16 [values]."""
        step = target.range_m / self.chirp.range_resolution / self.chirp.adc_samples
        return _phase(step * self._sample_of) + self._offset

    def _slow(self, target: TargetState) -> npt.NDArray[np.uint16]:
        """Phases of a frame's chirps at its antennas, uint16 [chirps, tx, rx]."""
        chirp, antennas = self.chirp, self.chirp.antennas
        loops = np.arange(chirp.frame_length)[:, None, None]
        tx = np.arange(antennas.tx)[:, None]
        rx = np.arange(antennas.rx)
        per_loop = target.velocity_mps / chirp.doppler_resolution / chirp.frame_length
        start = 2 * target.range_m / chirp.wavelength
        angle = 0.5 * math.sin(target.azimuth_rad) * (tx * antennas.rx + rx)
        return _phase(start + per_loop * (loops + tx / antennas.tx) + angle)


def _phase(turns: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint16]:
    return np.round(turns % 1.0 * _TURN).astype(np.uint32).astype(np.uint16)


def _target(chirp: ChirpConfig, rng: np.random.Generator, amplitude: int) -> _Target:
    """A target that stays well within the unambiguous range and speed."""
    period_s = float(rng.uniform(8, 20))
    fastest = 0.6 * chirp.max_doppler * period_s / (2 * math.pi)
    return _Target(
        centre_m=float(rng.uniform(0.25, 0.75)) * chirp.max_range,
        swing_m=min(0.15 * chirp.max_range, fastest),
        period_s=period_s,
        phase_rad=float(rng.uniform(0, 2 * math.pi)),
        azimuth_rad=float(rng.uniform(-0.8, 0.8)),
        amplitude=amplitude,
    )
