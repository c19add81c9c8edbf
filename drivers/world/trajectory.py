"""The vehicle's drive: straights, corners, stops and starts, repeated without end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.world.mounts import about_z
from drivers.world.noise import uniform
from drivers.world.path import Path

Floats = npt.NDArray[np.float64]

PITCH, ROLL, HEAVE = range(3)
_LENGTHS_M: Final = np.array([61.0, 37.0, 12.7, 7.1, 3.3])
_AMPLITUDES: Final = np.array(
    [
        [0.030, 0.018, 0.016, 0.012, 0.006],  # pitch, rad
        [0.025, 0.020, 0.016, 0.011, 0.004],  # roll, rad
        [0.000, 0.000, 0.008, 0.006, 0.003],  # heave, m
    ]
)


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the drive: the speed along the path changes smoothly from `start` to `end` m/s.

    Attributes:
        duration_s: its duration.
        start, end: speed in units of the path's parameter per second.
    """

    duration_s: float
    start: float
    end: float

    @property
    def distance(self) -> float:
        return 0.5 * (self.start + self.end) * self.duration_s


@dataclass(frozen=True, slots=True)
class Motion:
    """The rig's exact motion at n times.

    Attributes:
        position_m: f8 [n, 3], the rig's origin in the world.
        rotation: f8 [n, 3, 3], rig to world.
        velocity_m_s: f8 [n, 3], of the rig's origin, in the world.
        acceleration_m_s2: f8 [n, 3], of the rig's origin, in the world, without gravity.
        angular_rate_rad_s: f8 [n, 3], in the rig's axes.
        angular_acceleration_rad_s2: f8 [n, 3], in the rig's axes.
    """

    position_m: Floats
    rotation: Floats
    velocity_m_s: Floats
    acceleration_m_s2: Floats
    angular_rate_rad_s: Floats
    angular_acceleration_rad_s2: Floats


class Ride:
    """Pitch, roll and heave on a rough road, as functions of the path's parameter.

    Each is a sum of waves: slopes of some 50 m, and bumps of 3 to 13 m.  At 6 to 9 m/s, pitch and
    roll change by 0.05 to 0.2 rad/s; a standing vehicle does not move.  The ground itself stays the
    plane z = 0: slopes turn the vehicle, they do not lift the road.

    >>> value, first, second = Ride(seed=0).at(np.array([12.0]))
    >>> value[PITCH], value[ROLL], value[HEAVE]        # rad, rad, m

    Args:
        seed: of the waves' phases.
    """

    def __init__(self, seed: int = 0) -> None:
        self._phases = math.tau * uniform(seed, "ride", 0, _AMPLITUDES.size).reshape(
            _AMPLITUDES.shape
        )

    def at(self, u: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the values at parameters `u` [n] and their two derivatives, each f8 [3, n]."""
        waves = math.tau / _LENGTHS_M[:, None]
        angle = waves * u + self._phases[:, :, None]
        sine = _AMPLITUDES[:, :, None] * np.sin(angle)
        cosine = _AMPLITUDES[:, :, None] * np.cos(angle)
        return sine.sum(axis=1), (waves * cosine).sum(axis=1), (-waves * waves * sine).sum(axis=1)


class Trajectory:
    """The vehicle's motion as a function of time only, for every time (also below 0).

    The vehicle heads along the path, flat on z = 0 unless the road is rough.  Position, velocity
    and acceleration are continuous; all are exact derivatives of one curve, not differences.

    >>> position_m, rotation = trajectory.pose(np.array([0.0, 0.1]))
    >>> trajectory.motion(np.array([0.1])).angular_rate_rad_s

    Args:
        path: the road.
        start: its parameter at time 0.
        phases: one round of the drive, which is repeated.

    Attributes:
        path: the road.
        ride: pitch, roll and heave on a rough road; None: the vehicle stays flat.
    """

    def __init__(self, path: Path, start: float, phases: tuple[Phase, ...]) -> None:
        self.path = path
        self.ride: Ride | None = None
        self._start = start
        self._bounds = np.cumsum([0.0, *(phase.duration_s for phase in phases)])
        self._reached = np.cumsum([0.0, *(phase.distance for phase in phases)])
        self._speeds = np.array([phase.start for phase in phases])
        self._gains = np.array([phase.end - phase.start for phase in phases])
        self._durations = np.array([phase.duration_s for phase in phases])

    @property
    def period_s(self) -> float:
        """Duration of a round."""
        return float(self._bounds[-1])

    def along(self, t_s: npt.ArrayLike) -> tuple[Floats, Floats, Floats]:
        """Return path parameter at the times `t_s` [n], with first and second time derivative."""
        t = np.asarray(t_s, np.float64)
        round_ = np.floor(t / self._bounds[-1])
        t = t - round_ * self._bounds[-1]
        k = np.clip(np.searchsorted(self._bounds, t, "right") - 1, 0, len(self._durations) - 1)
        duration, gain = self._durations[k], self._gains[k]
        w = (t - self._bounds[k]) / duration
        blend = w * w * (3.0 - 2.0 * w)
        reached = (self._speeds[k] * w + gain * (w * w * w * (1.0 - 0.5 * w))) * duration
        u = self._start + round_ * self._reached[-1] + (self._reached[k] + reached)
        return u, self._speeds[k] + gain * blend, gain * (6.0 * w * (1.0 - w)) / duration

    def pose(self, t_s: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return position f8 [n, 3] in m and rotation f8 [n, 3, 3], rig to world, at times [n]."""
        motion = self.motion(t_s)
        return motion.position_m, motion.rotation

    def motion(self, t_s: npt.ArrayLike) -> Motion:
        """Return the complete motion at the times [n]."""
        u, rate, rate_change = self.along(t_s)
        place = self.path.at(u)
        speed = rate[:, None]
        curve = place.second * (speed * speed) + place.first * rate_change[:, None]
        turn = place.turn * rate
        turn_change = place.turn_change * (rate * rate) + place.turn * rate_change
        flat = Motion(
            _flat(place.position_m),
            about_z(place.tangent[:, 0], place.tangent[:, 1]),
            _flat(place.first * speed),
            _flat(curve),
            _vertical(turn),
            _vertical(turn_change),
        )
        if self.ride is None:
            return flat
        value, first, second = self.ride.at(u)
        return _tilt(flat, value, first * rate, second * (rate * rate) + first * rate_change)


def _tilt(flat: Motion, value: Floats, rate: Floats, change: Floats) -> Motion:
    """Return a motion with pitch, roll and heave: R = Rz(yaw) Ry(pitch) Rx(roll).

    Args:
        flat: the motion on a plane.
        value, rate, change: f8 [3, n], of `Ride`, and their time derivatives.
    """
    yaw_rate, yaw_change = flat.angular_rate_rad_s[:, 2], flat.angular_acceleration_rad_s2[:, 2]
    sp, cp = np.sin(value[PITCH]), np.cos(value[PITCH])
    sr, cr = np.sin(value[ROLL]), np.cos(value[ROLL])
    pitch, roll = rate[PITCH], rate[ROLL]
    zero = np.zeros_like(sp)
    rows = [[cp, sp * sr, sp * cr], [zero, cr, -sr], [-sp, cp * sr, cp * cr]]
    tilt = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
    level, level_change = yaw_rate * cp, yaw_change * cp - yaw_rate * pitch * sp
    turning = [roll - yaw_rate * sp, pitch * cr + level * sr, level * cr - pitch * sr]
    swinging = [
        change[ROLL] - yaw_change * sp - yaw_rate * pitch * cp,
        change[PITCH] * cr - pitch * roll * sr + level_change * sr + level * roll * cr,
        level_change * cr - level * roll * sr - change[PITCH] * sr - pitch * roll * cr,
    ]
    lift = np.array([0.0, 0.0, 1.0])
    return Motion(
        flat.position_m + value[HEAVE][:, None] * lift,
        flat.rotation @ tilt,
        flat.velocity_m_s + rate[HEAVE][:, None] * lift,
        flat.acceleration_m_s2 + change[HEAVE][:, None] * lift,
        np.stack(turning, axis=-1),
        np.stack(swinging, axis=-1),
    )


def _flat(xy: Floats) -> Floats:
    return np.concatenate([xy, np.zeros((len(xy), 1))], axis=1)


def _vertical(z: Floats) -> Floats:
    return np.stack([np.zeros_like(z), np.zeros_like(z), z], axis=1)
