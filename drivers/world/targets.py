"""Standing and moving objects along the road: boxes on the ground and vertical poles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from drivers.world.mounts import about_z
from drivers.world.trajectory import Trajectory

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shape:
    """A target's constant properties.

    Attributes:
        kind: ``car``, ``truck``, ``cyclist``, ``pedestrian``, ``pole``, ``building``.
        size_m: (length, width, height) of its box; a pole's length and width are its diameter.
        reflectivity: 0 to 1, of its surface at a lidar's wavelength.
        rcs_m2: radar cross section.
        colour: blue, green, red.
    """

    kind: str
    size_m: tuple[float, float, float]
    reflectivity: float
    rcs_m2: float
    colour: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Course:
    """A target's motion along the road, at a lateral offset.

    Attributes:
        start: path parameter at time 0; if `follows`, its distance ahead of the vehicle's.
        speed: change of the parameter in 1/s; negative against the vehicle's direction.
        lateral_m: to the left of the path.
        backward: heads against the path's direction.
        follows: moves with the vehicle, `start` ahead of it.
        sway, sways: if `follows`, the amplitude of its oscillating distance, and the oscillations
            per period of the path.
        circle_m, circle_s: radius and period of a circular walk around that place.
    """

    start: float
    speed: float = 0.0
    lateral_m: float = 0.0
    backward: bool = False
    follows: bool = False
    sway: float = 0.0
    sways: int = 0
    circle_m: float = 0.0
    circle_s: float = 1.0


@dataclass(frozen=True, slots=True)
class TargetStates:
    """States of targets at times: all arrays begin with [targets, times].

    Attributes:
        centre_m: f8 [m, n, 3], of the box, in the world.
        cos_yaw, sin_yaw: f8 [m, n], direction of the box's length.
        velocity_m_s: f8 [m, n, 3], in the world.
    """

    centre_m: Floats
    cos_yaw: Floats
    sin_yaw: Floats
    velocity_m_s: Floats


class Fleet:
    """All targets of a world, as arrays.

    A target that is half of the path's period behind the vehicle reappears ahead of it: on a closed
    road that is the same place, on an endless road the targets repeat.

    >>> states = fleet.states(np.array([1.0, 1.1]))            # of all targets
    >>> states.centre_m.shape                                  # (targets, 2, 3)
    """

    def __init__(
        self, trajectory: Trajectory, shapes: Sequence[Shape], courses: Sequence[Course]
    ) -> None:
        self._trajectory = trajectory
        self._half_height = np.array([shape.size_m[2] / 2 for shape in shapes])
        self._start = np.array([c.start for c in courses])
        self._speed = np.array([c.speed for c in courses])
        self._lateral = np.array([c.lateral_m for c in courses])
        self._way = np.array([-1.0 if c.backward else 1.0 for c in courses])
        self._follows = np.array([c.follows for c in courses])
        self._sway = np.array([c.sway for c in courses])
        self._sways = np.array([float(c.sways) for c in courses])
        self._circle = np.array([c.circle_m for c in courses])
        self._circle_s = np.array([c.circle_s for c in courses])

    def states(
        self, t_s: npt.ArrayLike, which: Sequence[int] | slice | None = None
    ) -> TargetStates:
        """Return the targets `which` (default: all; numbers as in `World.targets`) at times [n]."""
        t = np.asarray(t_s, np.float64)
        k: Sequence[int] | slice = slice(None) if which is None else which
        u, rate = self._along(t, k)
        count, times = u.shape
        place = self._trajectory.path.at(u.reshape(-1))
        tangent = place.tangent.reshape(count, times, 2)
        position = place.position_m.reshape(count, times, 2)
        lateral = self._lateral[k][:, None]
        tx, ty = tangent[..., 0], tangent[..., 1]
        x, y = position[..., 0] - lateral * ty, position[..., 1] + lateral * tx
        # Beside a bend, the distance is shorter on its inside.
        speed = (place.stretch.reshape(u.shape) - lateral * place.turn.reshape(u.shape)) * rate
        vx, vy = tx * speed, ty * speed
        way = self._way[k][:, None]
        cosine, sine = way * tx, way * ty
        radius = self._circle[k][:, None]
        if np.any(radius > 0):
            turn = math.tau / self._circle_s[k][:, None]
            s, c = np.sin(turn * t), np.cos(turn * t)
            # Around the place, in the road's axes: radius * (cos, sin), heading (-sin, cos).
            ahead, aside = radius * c, radius * s
            x, y = x + ahead * tx - aside * ty, y + ahead * ty + aside * tx
            vx, vy = vx - turn * (aside * tx + ahead * ty), vy - turn * (aside * ty - ahead * tx)
            cosine = np.where(radius > 0, -s * tx - c * ty, cosine)
            sine = np.where(radius > 0, -s * ty + c * tx, sine)
        z = np.broadcast_to(self._half_height[k][:, None], u.shape)
        return TargetStates(
            np.stack([x, y, z], axis=-1),
            cosine,
            sine,
            np.stack([vx, vy, np.zeros_like(vx)], axis=-1),
        )

    def _along(self, t: Floats, k: Sequence[int] | slice) -> tuple[Floats, Floats]:
        """Return path parameter and its rate, f8 [m, n]."""
        ego, ego_rate, _ = self._trajectory.along(t)
        period = self._trajectory.path.length
        start, follows = self._start[k][:, None], self._follows[k][:, None]
        own = start + self._speed[k][:, None] * t
        own = own - period * np.rint((own - ego) / period)
        if not np.any(follows):
            return own, np.broadcast_to(self._speed[k][:, None], own.shape)
        per_u = math.tau / period * self._sways[k][:, None]
        sine, cosine = np.sin(per_u * ego), np.cos(per_u * ego)
        sway = self._sway[k][:, None]
        led = ego + start + sway * sine
        led_rate = ego_rate * (1.0 + sway * per_u * cosine)
        return np.where(follows, led, own), np.where(follows, led_rate, self._speed[k][:, None])


@dataclass(frozen=True, slots=True)
class Target(Shape):
    """One target: a shape on the ground, with its state at any time.

    The box is axis-aligned in the target's frame: x along its heading (length), y to the left
    (width), z up (height), origin in its middle.

    >>> centre_m, yaw_rad = target.pose(np.array([0.0, 0.1]))   # f8 [2, 3], f8 [2]

    Attributes:
        track: its identity, such as ``car_03``.
        number: its place in `World.targets`.
        standing: its velocity is always 0.
    """

    track: str
    number: int
    standing: bool
    fleet: Fleet = field(repr=False)

    def pose(self, t_s: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return centre f8 [n, 3] in m and yaw f8 [n] in rad (about z, 0 is east) at times [n]."""
        state = self.fleet.states(t_s, [self.number])
        sine = state.sin_yaw[0] + 0.0  # no negative zero: a half turn is pi, not -pi
        return state.centre_m[0], np.arctan2(sine, state.cos_yaw[0])

    def frame(self, t_s: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return centre f8 [n, 3] in m and rotation f8 [n, 3, 3], target to world."""
        state = self.fleet.states(t_s, [self.number])
        return state.centre_m[0], about_z(state.cos_yaw[0], state.sin_yaw[0])
