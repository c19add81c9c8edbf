"""Beat signals of point scatterers, as sampled by an FMCW radar's ADC.

The phase of the beat at time t' of a ramp that starts at frequency f0 with slope S, for an echo
with the delay tau, is ``f0 tau + S tau t' - S tau^2 / 2`` turns (TI, "Programming Chirp Parameters
in TI Radar Devices", SWRA553, section 2).  tau is exact for every chirp, transmitter and receiver,
and changes evenly within a chirp.

A frame is a matrix product for every loop: antennas by scatterers times scatterers by samples.
Amplitudes and tones are whole numbers in float64 below 2^53 in all sums, so that the product has
the same bits in any order of a BLAS's additions, and with or without fused additions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.mmwave.chirp import SPEED_OF_LIGHT, ChirpConfig, lane_columns

Floats = npt.NDArray[np.float64]
Frame = npt.NDArray[np.int16]

NOISE_UNIT: Final = 16  # parts of an ADC's step

_TURN_BITS: Final = 14
_TURN: Final = 1 << _TURN_BITS
_TONE: Final = 1 << 14  # scale of the tones
_GAIN: Final = 1 << 10  # scale of the amplitudes: 2^24 * 2^14 * 2^10 are below 2^53
_STEP_BITS: Final = 40
_LOUDEST: Final = float(1 << 20)  # amplitude, in steps of the ADC
_PRODUCT: Final = 240_000  # multiplications per product
_LOOPS: Final = 4  # loops per product: the operands stay in the cache


@dataclass(frozen=True, slots=True)
class Scatterers:
    """Points in the radar's view during one frame.

    Attributes:
        place_m: f8 [n, 3], in the radar's frame at the middle of the frame.
        velocity_m_s: f8 [n, 3], in the same frame at the same time.
        acceleration_m_s2: f8 [n, 3].
        amplitude: f8 [n], of the tone in steps of the ADC.
    """

    place_m: Floats
    velocity_m_s: Floats
    acceleration_m_s2: Floats
    amplitude: Floats


class BeatSignal:
    """Generator of frames of one chirp configuration.

    >>> signal = BeatSignal(chirp, "qqii")
    >>> frame = signal.frame(scatterers, noise=None)    # int16 chirp.shape

    Args:
        chirp: the configuration.
        iq_order: order of the lanes, see `drivers.mmwave.chirp.lane_columns`.
        errors: f8 [tx, rx], errors of the antennas' phases in turns; None: ideal antennas.
    """

    def __init__(self, chirp: ChirpConfig, iq_order: str, errors: Floats | None = None) -> None:
        self._chirp = chirp
        device = chirp.antennas
        places = device.antennas_m()
        self._tx, self._rx = np.array(places["tx_m"]), np.array(places["rx_m"])
        extent = [v.min(axis=0) + v.max(axis=0) for v in (self._tx, self._rx)]
        self._centre = 0.25 * (extent[0] + extent[1])
        turns = np.array(device.tx_turns or (0.0,) * device.tx)[:, None]
        self._antenna_turns = turns if errors is None else turns + errors
        self._samples = chirp.adc_samples
        self._parts = 2 if device.complex_samples else 1
        self._q_first = False
        if device.complex_samples:
            in_phase, quadrature = lane_columns(chirp.adc_samples, iq_order)
            self._q_first = bool(quadrature[0] < in_phase[0])
        angle = np.arange(_TURN) * (math.tau / _TURN)
        self._cosine, self._sine = np.rint(np.cos(angle) * _TONE), np.rint(np.sin(angle) * _TONE)
        ramp_s = (chirp.idle_time + chirp.ramp_end_time) * 1e-6
        # The middle of the samples, in the ramp and (by loop and transmitter) in the frame.
        middle_s = 0.5 * (chirp.adc_samples - 1) / (chirp.sample_rate * 1e3)
        self._in_ramp_s = chirp.adc_start_time * 1e-6 + middle_s
        number = np.arange(chirp.frame_length * device.tx).reshape(chirp.frame_length, device.tx)
        start_s = number * ramp_s + chirp.idle_time * 1e-6 + self._in_ramp_s
        self._times_s = start_s - 0.5 * chirp.frame_time * 1e-3

    @property
    def noise_shape(self) -> tuple[int, int, int, int]:
        """Shape of the noise of a frame: [chirps, 2 or 1, antennas, samples]."""
        device = self._chirp.antennas
        return self._chirp.frame_length, self._parts, device.tx * device.rx, self._samples

    def frame(self, points: Scatterers, noise: npt.NDArray[np.int16] | None) -> Frame:
        """Return one frame as a new array, int16 chirp.shape; too strong signals saturate.

        Args:
            points: the scatterers; may be empty.
            noise: int16 `noise_shape`, in 1 / NOISE_UNIT steps of the ADC.
        """
        chirp = self._chirp
        loops, _, antennas, samples = self.noise_shape
        frame = np.empty(chirp.shape, "<i2")
        if not len(points.amplitude):
            points = Scatterers(*(np.ones((1, 3)),) * 3, np.zeros(1))
        antenna_phase, beat = self._phases(points)
        loudness = np.minimum(points.amplitude, _LOUDEST)
        steps = np.rint(beat * (0.5 * (1 << _STEP_BITS))).astype(np.int64)
        twice = 2 * np.arange(samples) - (samples - 1)
        for first in range(0, loops, _LOOPS):
            part = slice(first, min(first + _LOOPS, loops))
            signal = np.zeros((part.stop - first, self._parts, antennas, samples))
            for some in self._groups(len(points.amplitude)):
                at = steps[part, some, None] * twice
                at >>= _STEP_BITS - _TURN_BITS
                at &= _TURN - 1
                signal += self._sum(antenna_phase[part, :, some], loudness[some], at)
            signal *= NOISE_UNIT / (_GAIN * _TONE)
            if noise is not None:
                signal += noise[part]
            signal *= 1 / NOISE_UNIT
            np.clip(np.rint(signal, out=signal), -32768, 32767, out=signal)
            self._lay_out(signal.astype("<i2"), frame[part])
        return frame

    def _groups(self, count: int) -> Iterator[slice]:
        """Split the scatterers into groups too small for a BLAS's threads, which cost more."""
        _, _, antennas, samples = self.noise_shape
        size = max(1, _PRODUCT // (2 * antennas * samples))
        for first in range(0, count, size):
            yield slice(first, min(first + size, count))

    def _sum(
        self, antenna_phase: npt.NDArray[np.int64], loudness: Floats, at: npt.NDArray[np.int64]
    ) -> Floats:
        """Return the sum of tones, whole numbers [loops, 2 or 1, antennas, samples].

        Args:
            antenna_phase: [loops, antennas, n], of each tone's middle.
            loudness: [n].
            at: [loops, n, samples], phases of the tones before `antenna_phase` is added.
        """
        size, count, samples = at.shape
        tones = np.empty((size, 2 * count, samples))
        tones[:, :count] = self._cosine.take(at, mode="clip")
        tones[:, count:] = self._sine.take(at, mode="clip")
        real = np.rint(loudness * self._cosine[antenna_phase] * (_GAIN / _TONE))
        imaginary = np.rint(loudness * self._sine[antenna_phase] * (_GAIN / _TONE))
        out = np.empty((size, self._parts, antenna_phase.shape[1], samples))
        np.matmul(np.concatenate([real, -imaginary], axis=2), tones, out=out[:, 0])
        if self._parts == 2:
            np.matmul(np.concatenate([imaginary, real], axis=2), tones, out=out[:, 1])
        return out

    def _phases(self, points: Scatterers) -> tuple[npt.NDArray[np.int64], Floats]:
        """Return the phases at the middle of the samples, and their growth per sample.

        Returns:
            int64 [loops, antennas, n], `_TURN` per turn; f8 [loops, n], in turns.
        """
        chirp = self._chirp
        t = self._times_s[..., None]
        # [n, loops, tx, 3]
        place, velocity, acceleration = (
            v[:, None, None] for v in (points.place_m, points.velocity_m_s,
                                       points.acceleration_m_s2)
        )  # fmt: skip
        at = place + (velocity + 0.5 * acceleration * t) * t
        way = _length(at - self._tx)[..., None] + _length(at[..., None, :] - self._rx)
        delay = way / SPEED_OF_LIGHT
        slope, start = chirp.freq_slope * 1e12, chirp.frequency * 1e9
        turns = delay * (start + slope * self._in_ramp_s) - (0.5 * slope) * (delay * delay)
        turns += self._antenna_turns
        turns -= np.floor(turns)
        phase = np.rint(turns * _TURN).astype(np.int64) & (_TURN - 1)
        # All antennas share the tone that the middle of the array has (0.01 cells from theirs) in
        # the middle of a loop; the phases above are each antenna's own.
        middle = self._times_s.shape[1] // 2
        now, t = at[:, :, middle] - self._centre, self._times_s[:, middle, None]
        speed = points.velocity_m_s[:, None] + points.acceleration_m_s2[:, None] * t
        distance = _length(now)
        closing = now * speed
        rate = (closing[..., 0] + closing[..., 1] + closing[..., 2]) / distance
        delay, change = 2 * distance / SPEED_OF_LIGHT, 2 * rate / SPEED_OF_LIGHT
        frequency = slope * delay + (start + slope * self._in_ramp_s) * change
        count, loops = distance.shape
        beat = frequency / (chirp.sample_rate * 1e3)
        return np.moveaxis(phase.reshape(count, loops, -1), 0, -1).copy(), beat.T

    def _lay_out(self, signal: npt.NDArray[np.int16], frame: Frame) -> None:
        """Write [loops, 2 or 1, antennas, samples] into the lanes' order."""
        size, _, antennas, samples = signal.shape
        if self._parts == 1:
            frame[...] = signal.reshape(frame.shape)
            return
        # Two samples' values of the same kind are adjacent: one 32-bit word.
        words = signal.view("<u4")
        lanes = frame.view("<u4").reshape(size, antennas, samples // 2, 2)
        lanes[..., int(self._q_first)] = words[:, 0]
        lanes[..., 1 - int(self._q_first)] = words[:, 1]


def _length(vector: Floats) -> Any:
    x, y, z = vector[..., 0], vector[..., 1], vector[..., 2]
    return np.sqrt(x * x + y * y + z * z)
