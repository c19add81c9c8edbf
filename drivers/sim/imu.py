"""What an IMU in a gently turning vehicle measures, as a function of the sample's number alone.

The vehicle drives on a plane at 8 to 12 m/s along winding curves and leans a little in roll and
pitch; acceleration, rate of turn and orientation are derivatives of one motion and fit together.
White noise of an MTi's size lies on acceleration and rate of turn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

GRAVITY = 9.81
TICK_NS = 100_000
"""Tick of the device clock, that of an MTi's SampleTimeFine."""

_BOOT_NS = 60_000_000_000  # the device has been running for a minute when the source starts
_NOISE_BLOCK = 1024
_ACC_NOISE = 0.004
_AVEL_NOISE = 0.0012

# Angles and speed are sums of sines: (amplitude in rad or m/s, period in s)
_YAW = ((1.2, 60.0), (0.3, 17.0))
_PITCH = ((0.03, 5.3),)
_ROLL = ((0.04, 7.1),)
_SPEED = ((2.0, 23.0),)
_MEAN_SPEED = 10.0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ImuSamples:
    """Consecutive samples.

    Attributes:
        t_ns: int64 [n], time since the start of the source.
        t_dev_ns: int64 [n], the device's own clock, in ticks of 100 us.
        acc: float32 [n, 3], specific force in m/s^2, sensor frame (x forward, y left, z up).
        avel: float32 [n, 3], rate of turn in rad/s, sensor frame.
        rot: float32 [n, 3], roll, pitch, yaw in rad, sensor to a local frame with z up.
    """

    t_ns: npt.NDArray[np.int64]
    t_dev_ns: npt.NDArray[np.int64]
    acc: npt.NDArray[np.float32]
    avel: npt.NDArray[np.float32]
    rot: npt.NDArray[np.float32]


class SimulatedImu:
    """An endless, deterministic IMU: the same sample numbers give the same bytes, however cut.

    Usage::

        imu = SimulatedImu(rate_hz=100.0, seed=0)
        batch = imu.samples(first=0, count=10)

    Args:
        rate_hz: samples a second, at most 10000 (the device clock's ticks tell them apart).
        seed: seed of the noise; the motion is the same for all seeds.
    """

    def __init__(self, rate_hz: float, seed: int = 0) -> None:
        self._rate_hz = rate_hz
        self._seed = seed
        self._block = -1
        self._noise: npt.NDArray[np.float32] = np.empty((0, 6), np.float32)

    def samples(self, first: int, count: int) -> ImuSamples:
        """Samples `first` to `first + count - 1`."""
        t_ns = np.rint(np.arange(first, first + count) * (1e9 / self._rate_hz)).astype(np.int64)
        t = t_ns * 1e-9
        (yaw, yaw_rate), (pitch, pitch_rate), (roll, roll_rate), (swing, thrust) = (
            _sines(t, terms) for terms in (_YAW, _PITCH, _ROLL, _SPEED)
        )
        sin_pitch, cos_pitch, sin_roll, cos_roll = (
            np.sin(pitch),
            np.cos(pitch),
            np.sin(roll),
            np.cos(roll),
        )
        # Acceleration less gravity in the level frame that turns with yaw, then into the sensor.
        sideways = (_MEAN_SPEED + swing) * yaw_rate
        level = thrust * sin_pitch + GRAVITY * cos_pitch
        acc = np.stack(
            [
                thrust * cos_pitch - GRAVITY * sin_pitch,
                sideways * cos_roll + level * sin_roll,
                level * cos_roll - sideways * sin_roll,
            ],
            axis=1,
        )
        avel = np.stack(
            [
                roll_rate - yaw_rate * sin_pitch,
                pitch_rate * cos_roll + yaw_rate * cos_pitch * sin_roll,
                yaw_rate * cos_pitch * cos_roll - pitch_rate * sin_roll,
            ],
            axis=1,
        )
        noise = self._noise_of(first, count)
        return ImuSamples(
            t_ns=t_ns,
            t_dev_ns=(t_ns + _BOOT_NS) // TICK_NS * TICK_NS,
            acc=acc.astype("<f4") + np.float32(_ACC_NOISE) * noise[:, :3],
            avel=avel.astype("<f4") + np.float32(_AVEL_NOISE) * noise[:, 3:],
            rot=np.stack([roll, pitch, yaw], axis=1).astype("<f4"),
        )

    def _noise_of(self, first: int, count: int) -> npt.NDArray[np.float32]:
        """Noise by sample number: each block of samples has a generator of its own."""
        parts = [np.empty((0, 6), np.float32)]
        stop = first + count
        while first < stop:
            block, start = divmod(first, _NOISE_BLOCK)
            if block != self._block:
                generator = np.random.Generator(np.random.PCG64([self._seed, block]))
                self._noise = generator.standard_normal((_NOISE_BLOCK, 6), np.float32)
                self._block = block
            part = self._noise[start : start + stop - first]
            parts.append(part)
            first += len(part)
        return np.concatenate(parts)


def _sines(t: Floats, terms: tuple[tuple[float, float], ...]) -> tuple[Floats, Floats]:
    """A sum of sines and its derivative at the times `t` in s."""
    value, rate = np.zeros_like(t), np.zeros_like(t)
    for amplitude, period in terms:
        omega = 2.0 * np.pi / period
        value += amplitude * np.sin(omega * t)
        rate += amplitude * omega * np.cos(omega * t)
    return value, rate
