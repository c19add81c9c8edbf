"""An IMU's measurements on the simulated vehicle, as a function of the sample's number only.

Specific force and rate of turn follow from the world's trajectory at the sensor's own place, in
its own axes.  A bias and white noise of an MTi's size are added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.world import GRAVITY_M_S2, World, mounts
from drivers.world.faults import IMU_FAULTS, Fault, read_faults
from drivers.world.mounts import rotate, rotate_back
from drivers.world.noise import noise_seed, normal

TICK_NS = 100_000
"""Tick of the device clock, that of an MTi's SampleTimeFine."""

BOOT_NS = 60_000_000_000
"""The device has been running for a minute when the source starts."""

_NOISE_BLOCK = 1024
_POLE = 1e-9  # this near to straight up or down, roll and yaw are the same rotation
ACC_NOISE, AVEL_NOISE = 0.004, 0.0012
"""Standard deviations of white noise per sample, m/s^2 and rad/s."""
ACC_BIAS, AVEL_BIAS = 0.02, 0.0006
"""Standard deviations between devices of the constant biases, m/s^2 and rad/s."""

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ImuSamples:
    """Consecutive samples.

    Attributes:
        t_ns: int64 [n], world time.
        t_dev_ns: int64 [n], the device's own clock, in ticks of 100 us.
        acc: float32 [n, 3], specific force in m/s^2, in the sensor's axes.
        avel: float32 [n, 3], rate of turn in rad/s, in the sensor's axes.
        rot: float32 [n, 3], roll, pitch, yaw in rad, sensor to world (x east, y north, z up):
            R = Rz(yaw) Ry(pitch) Rx(roll).
        rotation: float64 [n, 3, 3], the same as a matrix.
    """

    t_ns: npt.NDArray[np.int64]
    t_dev_ns: npt.NDArray[np.int64]
    acc: npt.NDArray[np.float32]
    avel: npt.NDArray[np.float32]
    rot: npt.NDArray[np.float32]
    rotation: Floats


class SimulatedImu:
    """An endless, deterministic IMU: the same sample numbers give the same bytes in any batches.

    Usage::

        imu = SimulatedImu(100.0, World("drive", seed=0))
        batch = imu.samples(first=0, count=10)

    Args:
        rate_hz: samples per second, at most 10000, the rate of the device clock's ticks.
        world: the world, with the vehicle's motion.
        mount: the sensor's place.
        noise: scale of bias and noise; 0: none.
        seed: of bias and noise; default: the world's.
        faults: ``stick`` (the amount is the axis that keeps its value, 0 to 2 of acc, 3 to 5 of
            avel), ``clip`` (largest rate of turn, rad/s).

    Attributes:
        rate_hz: samples per second.
        bias: f8 [6], constant error of acc and avel.
    """

    def __init__(
        self,
        rate_hz: float,
        world: World | None = None,
        mount: mounts.Mount = mounts.IMU,
        noise: float = 1.0,
        seed: int | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._faults = faults
        self._world = world = world or World()
        self._seed = world.seed if seed is None else seed
        self.rate_hz = rate_hz
        self._rotation = mount.rotation
        self._lever_m = mount.translation
        self._sigma = noise * np.array([ACC_NOISE] * 3 + [AVEL_NOISE] * 3)
        spread = noise * np.array([ACC_BIAS] * 3 + [AVEL_BIAS] * 3)
        self.bias: Floats = spread * normal(self._seed, "imu bias", 0, 6)
        self._block = -1
        self._noise: Floats = np.empty((0, 6))

    def stamps(self, first: int, count: int) -> tuple[Times, Times]:
        """Return `ImuSamples.t_ns` and `t_dev_ns` of samples, at almost no cost."""
        t_ns = np.rint(np.arange(first, first + count) * (1e9 / self.rate_hz)).astype(np.int64)
        return t_ns, (t_ns + BOOT_NS) // TICK_NS * TICK_NS

    def place(self, t_s: Floats) -> tuple[Floats, Floats]:
        """Return the sensor's position (m) and velocity (m/s) in the world at times, f8 [n, 3]."""
        motion = self._world.trajectory.motion(t_s)
        swing = np.cross(motion.angular_rate_rad_s, self._lever_m)
        return (
            motion.position_m + rotate(motion.rotation, self._lever_m),
            motion.velocity_m_s + rotate(motion.rotation, swing),
        )

    def samples(self, first: int, count: int) -> ImuSamples:
        """Return samples `first` to `first + count - 1`; sample 0 is at world time 0."""
        found = self._measure(first, count)
        for fault in self._faults:
            active = fault.active(found.t_ns / 1e9)
            if fault.kind == "clip":
                found.avel[active] = np.clip(found.avel[active], -fault.size, fault.size)
            elif active.any():
                since = self._measure(math.ceil(fault.from_s * self.rate_hz), 1)
                axis = round(fault.size)
                (found.acc if axis < 3 else found.avel)[active, axis % 3] = np.concatenate(
                    [since.acc[0], since.avel[0]]
                )[axis]
        return found

    def _measure(self, first: int, count: int) -> ImuSamples:
        """Return samples without faults."""
        t_ns, t_dev_ns = self.stamps(first, count)
        motion = self._world.trajectory.motion(t_ns / 1e9)
        turn = motion.angular_rate_rad_s
        force = motion.acceleration_m_s2 + np.array([0.0, 0.0, GRAVITY_M_S2])
        # Away from the rig's origin, the rig's rotation adds acceleration to the sensor.
        swing = np.cross(motion.angular_acceleration_rad_s2, self._lever_m)
        outwards = np.cross(turn, np.cross(turn, self._lever_m))
        in_rig = rotate_back(motion.rotation, force) + swing + outwards
        parts = [rotate_back(self._rotation, vector) for vector in (in_rig, turn)]
        values: npt.NDArray[Any] = np.concatenate(parts, axis=1)
        values = (values + self.bias + self._sigma * self._make_noise(first, count)).astype("<f4")
        rotation = motion.rotation @ self._rotation
        return ImuSamples(
            t_ns=t_ns,
            t_dev_ns=t_dev_ns,
            acc=values[:, :3].copy(),
            avel=values[:, 3:].copy(),
            rot=angles(rotation).astype("<f4"),
            rotation=rotation,
        )

    def _make_noise(self, first: int, count: int) -> Floats:
        """Return the noise by sample number: each block of samples has its own random numbers."""
        parts = [np.empty((0, 6))]
        stop = first + count
        while first < stop:
            block, start = divmod(first, _NOISE_BLOCK)
            if block != self._block:
                flat = normal(self._seed, "imu", block, 6 * _NOISE_BLOCK)
                self._noise, self._block = flat.reshape(_NOISE_BLOCK, 6), block
            part = self._noise[start : start + stop - first]
            parts.append(part)
            first += len(part)
        return np.concatenate(parts)


def angles(rotation: Floats) -> Floats:
    """Return roll, pitch, yaw in rad, [n, 3], of rotations [n, 3, 3]; straight up, roll is 0."""
    r = rotation + 0.0  # no negative zeros: a half turn is pi, not -pi
    level = np.sqrt(r[:, 0, 0] * r[:, 0, 0] + r[:, 1, 0] * r[:, 1, 0])
    pole = level < _POLE
    roll = np.where(pole, 0.0, np.arctan2(r[:, 2, 1], r[:, 2, 2]))
    pitch = np.arctan2(0.0 - r[:, 2, 0], level)
    yaw = np.arctan2(
        np.where(pole, 0.0 - r[:, 0, 1], r[:, 1, 0]), np.where(pole, r[:, 1, 1], r[:, 0, 0])
    )
    return np.stack([roll, pitch, yaw], axis=1)


def make_imu(name: str, options: Mapping[str, Any], rate_hz: float) -> SimulatedImu:
    """Make the IMU that a sensor's checked options describe.

    Raises:
        ConfigError: an invalid fault.
        SourceError: an invalid mount; the message names sensor and option.
    """
    return SimulatedImu(
        rate_hz,
        World.of(options),
        mounts.make_mount(name, options["mount"], mounts.IMU),
        options["noise"],
        noise_seed(options["seed"], name, "imu"),
        read_faults(name, options, IMU_FAULTS),
    )
