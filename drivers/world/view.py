"""A sweep of a lidar's rays through the world: the two surfaces that each meets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from drivers.world import TargetStates, World, raycast
from drivers.world.faults import Fault, LidarFaults
from drivers.world.mounts import Mount, rotate, rotate_back
from drivers.world.raycast import Hits, Image

Floats = npt.NDArray[np.float64]


class SensorRays(Protocol):
    """Rays of a turning sensor in its own frame.

    Attributes:
        direction: f4 [3, h, w], unit vectors.
        origin: f4 [3, h or 1, w], start of each ray, m.
        azimuth_rad: f8 [w], the middle of each column's rays, for a rough selection.
        spread_rad: largest deviation of a column's rays from it.
        slope: f8 [h], the z of each row's rays divided by their length along x and y.
        step_ns: from column to column, not rounded.
    """

    direction: Image
    origin: Image
    azimuth_rad: Floats
    spread_rad: float
    slope: Floats
    step_ns: float


HORIZON_M: Final = 260.0
"""Distance beyond which surfaces are ignored."""

_SUN: Final = (0.48, 0.36, 0.8)  # unit vector towards the sun, in the world
_INTERVALS: Final = 16  # intervals per sweep in which targets move evenly (to 0.03 mm)
_JUMP_M: Final = 3.0  # a target that moves farther in an interval was relocated
_NEAR_M: Final = 0.1  # more than the distance of the beams' origins from the sensor's origin


@dataclass(slots=True)
class Seen:
    """The surfaces of one return.

    Attributes:
        distance: f4 [h, w] m along the ray, inf without a surface.
        reflectivity: f4 [h, w], 0 to 1.
        cosine: f4 [h, w], of the angle between ray and normal.
        sunlight: f4 [h, w], cosine of the sun's angle to the normal, 0 in the shade.
    """

    distance: Image
    reflectivity: Image
    cosine: Image
    sunlight: Image


@dataclass(slots=True)
class _Layer:
    """Distances, and surfaces: 0 the ground, else 1 + FACES * (place in the list) + face."""

    distance: Image
    code: npt.NDArray[np.int16]
    cosine: Image

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> _Layer:
        cosine = np.zeros(shape, np.float32)
        return cls(np.full_like(cosine, np.inf), np.zeros(shape, np.int16), cosine)

    def cut(self, rows: slice, columns: slice) -> _Layer:
        """Return views of a part."""
        part = rows, columns
        return _Layer(self.distance[part], self.code[part], self.cosine[part])

    def put(self, other: _Layer, where: npt.NDArray[np.bool_]) -> None:
        np.copyto(self.distance, other.distance, where=where)
        np.copyto(self.code, other.code, where=where)
        np.copyto(self.cosine, other.cosine, where=where)


@dataclass(slots=True)
class _Candidate:
    """A target, and the rays that may meet it; no part of it is nearer than `gap_m`."""

    number: int
    runs: list[slice]
    rows: slice
    gap_m: float
    moves: bool
    jumps: bool


@dataclass(slots=True)
class _Rays:
    """Rays in the world's axes, relative to the sensor's position at the time of each column.

    Attributes:
        t_s: f8 [w], of the columns.
        position: f8 [w, 3], of the sensor.
        origin: f4 [3, h or 1, w], relative to the position.
        direction: f4 [3, h, w].
    """

    t_s: Floats
    position: Floats
    origin: Image
    direction: Image

    def cut(self, rows: slice, columns: slice) -> _Rays:
        """Return views of a part."""
        tall = slice(None) if self.origin.shape[1] == 1 else rows
        return _Rays(
            self.t_s[columns],
            self.position[columns],
            self.origin[:, tall, columns],
            self.direction[:, rows, columns],
        )


class View:
    """Caster of a moving sensor's rays into the world, each column at its own time.

    >>> first, second = View(world, mount, beams, divergence=None, reach_m=reach).look(t_s=1.0)

    Args:
        world: the world.
        mount: of the sensor.
        beams: its rays.
        divergence: half of the beam's divergence in rad; None: no second returns.
        reach_m: f8 [targets], distance beyond which each target is too dim.
        faults: of the sensor, see `LidarFaults`.
        seed: of the faults.
    """

    def __init__(
        self,
        world: World,
        mount: Mount,
        beams: SensorRays,
        divergence: float | None,
        reach_m: Floats,
        faults: Sequence[Fault] = (),
        seed: int = 0,
    ) -> None:
        self._faults = LidarFaults(faults, seed, beams.azimuth_rad, beams.direction.shape[1])
        self._world, self._beams, self._divergence = world, beams, divergence
        self._ground = world.ground  # made now, so that it does not delay the first sweep
        self._rotation, self._translation = mount.rotation, mount.translation
        self._reach_m = np.minimum(reach_m, HORIZON_M)
        self._half = world.sizes_m / 2
        self._radius = np.sqrt((self._half * self._half).sum(axis=1))
        signs = [[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
        self._corners = self._half[:, None, :] * np.array(signs, np.float64)  # [m, 8, 3]
        self._reflectivity = np.array([t.reflectivity for t in world.targets], np.float32)
        self._poles = [target.kind == "pole" for target in world.targets]

    def sensor(self, t_s: Floats) -> tuple[Floats, Floats]:
        """Return position f8 [n, 3] and rotation f8 [n, 3, 3] of the sensor in the world."""
        position, rotation = self._world.trajectory.pose(t_s)
        return (
            position + rotate(rotation, self._translation),
            rotation @ self._rotation,
        )

    def look(self, t_s: float) -> tuple[Seen, Seen | None]:
        """Return the first and second returns of the sweep that begins at world time `t_s`."""
        beams = self._beams
        h, w = beams.direction.shape[1:]
        step_s = beams.step_ns * 1e-9
        times = np.asarray(t_s + np.arange(w) * step_s, np.float64)
        knots = np.asarray(t_s + np.arange(_INTERVALS + 1) * (w / _INTERVALS * step_s), np.float64)
        states = self._world.states(knots)
        candidates = self._candidates(states, *self.sensor(knots))
        rays = self._rays(times)
        first = _ground(rays)
        second = _Layer.empty((h, w)) if self._divergence is not None else None
        grazed = np.zeros((h, w), bool)
        for place, candidate in enumerate(candidates):
            for columns in candidate.runs:
                known, edges = (v[candidate.rows, columns] for v in (first.distance, grazed))
                if candidate.gap_m - _NEAR_M > known.max() and not edges.any():
                    continue  # hidden, also from the parts of beams that pass an edge
                hits = self._cast(candidate, rays.cut(candidate.rows, columns), columns, states)
                near = first.cut(candidate.rows, columns)
                far = second.cut(candidate.rows, columns) if second is not None else None
                _add(near, far, grazed[candidate.rows, columns], hits, place)
        tables = self._tables([candidate.number for candidate in candidates], states)
        seen = self._surfaces(first, tables, rays)
        behind = None
        if second is not None:
            second.distance[~grazed] = np.inf
            behind = self._surfaces(second, tables, rays)
        self._faults.apply((part.distance for part in (seen, behind) if part is not None), t_s)
        return seen, behind

    def _rays(self, times: Floats) -> _Rays:
        """Return the sweep's rays in the world's axes."""
        position, rotation = self.sensor(times)
        return _Rays(
            times,
            position,
            raycast.turn(rotation, self._beams.origin),
            raycast.turn(rotation, self._beams.direction),
        )

    def _candidates(
        self, states: TargetStates, position: Floats, rotation: Floats
    ) -> list[_Candidate]:
        """Return targets within reach, with all columns and rows that may meet them.

        The choice may include too many rays: it only affects the computing time.
        """
        away = states.centre_m - position
        distance = np.sqrt((away * away).sum(axis=2))
        near = np.flatnonzero((distance - self._radius[:, None]).min(axis=1) < self._reach_m)
        moved = np.abs(np.diff(states.centre_m[near], axis=1)).max(axis=(1, 2))
        cosine, sine = states.cos_yaw[near, :, None], states.sin_yaw[near, :, None]
        corner = self._corners[near, None]
        x = cosine * corner[..., 0] - sine * corner[..., 1]
        y = sine * corner[..., 0] + cosine * corner[..., 1]
        z = np.broadcast_to(corner[..., 2], x.shape)
        offset = np.stack([x, y, z], axis=-1) + away[near, :, None]  # [m, times, 8, 3]
        in_sensor = rotate_back(rotation[None, :, None], offset)
        bearing = np.arctan2(in_sensor[..., 1], in_sensor[..., 0])
        middle = rotate_back(rotation[None], away[near])
        heading = np.arctan2(middle[..., 1], middle[..., 0])
        # The distance to the box itself, in its own axes.
        ahead = np.abs(away[near, :, 0] * cosine[..., 0] + away[near, :, 1] * sine[..., 0])
        aside = np.abs(away[near, :, 1] * cosine[..., 0] - away[near, :, 0] * sine[..., 0])
        over = np.abs(away[near, :, 2])
        outside = [np.maximum(v - self._half[near, None, k], 0)
                   for k, v in enumerate((ahead, aside, over))]  # fmt: skip
        gap = np.sqrt(outside[0] ** 2 + outside[1] ** 2 + outside[2] ** 2)
        room = np.maximum(gap.min(axis=1), 0.01)
        apart = _wrap(bearing - heading[..., None])
        drift = _wrap(heading - heading[:, :1])
        margin = self._beams.spread_rad + 2 * _NEAR_M / room
        low = (apart.min(axis=2) + drift).min(axis=1) - margin
        high = (apart.max(axis=2) + drift).max(axis=1) + margin
        jumps = moved > _JUMP_M
        half = np.where(jumps | (np.ptp(apart, axis=2).max(axis=1) > 3), 4.0, (high - low) / 2)
        turned = heading[:, 0] + (low + high) / 2
        seen = np.abs(_wrap(self._beams.azimuth_rad - turned[:, None])) <= half[:, None]
        edge = np.zeros((len(near), seen.shape[1] + 2), bool)
        edge[:, 1:-1] = seen
        owner, column = np.nonzero(edge[:, 1:] != edge[:, :-1])
        runs: list[list[slice]] = [[] for _ in near]
        for k, a, b in zip(owner[::2].tolist(), column[::2].tolist(), column[1::2].tolist(),
                           strict=True):  # fmt: skip
            runs[k].append(slice(a, b))
        lowest, highest = self._rows(in_sensor[..., 2], room, jumps)
        moves = (moved > 0) | (np.ptp(states.cos_yaw[near], axis=1) > 0)
        found = [
            _Candidate(int(near[k]), runs[k], slice(int(lowest[k]), int(highest[k])),
                       float(room[k]), bool(moves[k]), bool(jumps[k]))
            for k in np.argsort(room, kind="stable").tolist()
        ]  # fmt: skip
        return [candidate for candidate in found if candidate.rows.start < candidate.rows.stop]

    def _rows(
        self, z: Floats, gap_m: Floats, jumps: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the range [first, end) of rows that may meet points at the heights z."""
        low, high = z.min(axis=(1, 2)) - _NEAR_M, z.max(axis=(1, 2)) + _NEAR_M
        tall = np.maximum(np.abs(low), np.abs(high))
        near = np.sqrt(np.maximum(gap_m * gap_m - tall * tall, 0.0)) - _NEAR_M
        close = (near <= 0.5) | jumps
        near = np.where(close, 1.0, near)[:, None]
        slope = self._beams.slope
        fits = slope <= np.maximum(high, 0.0)[:, None] / near + 0.01
        fits &= slope >= np.minimum(low, 0.0)[:, None] / near - 0.01
        fits |= close[:, None]
        first, last = fits.argmax(axis=1), len(slope) - fits[:, ::-1].argmax(axis=1)
        return first, np.where(fits.any(axis=1), last, 0)

    def _course(
        self, candidate: _Candidate, rays: _Rays, columns: slice, states: TargetStates
    ) -> tuple[Floats, Floats, Floats]:
        """Return centre f8 [n, 3], cosine and sine of the yaw f8 [n]; n is 1 if it stands still."""
        k = candidate.number
        if candidate.jumps:
            exact = self._world.states(rays.t_s, [k])
            return exact.centre_m[0], exact.cos_yaw[0], exact.sin_yaw[0]
        if not candidate.moves:
            return states.centre_m[k, :1], states.cos_yaw[k, :1], states.sin_yaw[k, :1]
        place = np.arange(columns.start, columns.stop) * (_INTERVALS / len(self._beams.azimuth_rad))
        at = place.astype(np.intp)
        part = place - at

        def between(values: Floats) -> Floats:
            share = part[:, None] if values.ndim == 2 else part
            return np.asarray(values[at] + (values[at + 1] - values[at]) * share)

        return between(states.centre_m[k]), between(states.cos_yaw[k]), between(states.sin_yaw[k])

    def _cast(
        self, candidate: _Candidate, rays: _Rays, columns: slice, states: TargetStates
    ) -> Hits:
        k = candidate.number
        centre, cosine, sine = self._course(candidate, rays, columns, states)
        offset = (rays.position - centre).T.astype(np.float32)
        origin = rays.origin + offset[:, None]
        if self._poles[k]:
            half = self._half[k]
            return raycast.pole(origin, rays.direction, half[0], half[2], self._divergence)
        c, s = cosine.astype(np.float32), sine.astype(np.float32)
        return raycast.box(
            raycast.about_z(origin, c, s),
            raycast.about_z(rays.direction, c, s),
            self._half[k],
            self._divergence,
        )

    def _tables(self, numbers: list[int], states: TargetStates) -> tuple[Image, Image]:
        """Return reflectivity and sunlight by code; the ground's reflectivity is 0 here."""
        materials = np.repeat(self._reflectivity[numbers], raycast.FACES)
        middle = _INTERVALS // 2
        c, s = states.cos_yaw[numbers, middle], states.sin_yaw[numbers, middle]
        ahead, left = c * _SUN[0] + s * _SUN[1], c * _SUN[1] - s * _SUN[0]
        half = np.full_like(c, 0.4)
        faces = [-ahead, ahead, -left, left, np.full_like(c, 0.0), np.full_like(c, _SUN[2]), half]
        lights = np.maximum(np.stack(faces, axis=1), 0).reshape(-1)
        return (
            np.concatenate([[0], materials]).astype(np.float32),
            np.concatenate([[_SUN[2]], lights]).astype(np.float32),
        )

    def _surfaces(self, layer: _Layer, tables: tuple[Image, Image], rays: _Rays) -> Seen:
        reflectivity, sunlight = (table[layer.code] for table in tables)
        ground = (layer.code == 0) & (layer.distance < np.inf)
        rows = np.flatnonzero(ground.any(axis=1))
        if len(rows):
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            on = ground[part]
            met = rays.cut(part, slice(None))
            along = np.where(on, layer.distance[part], np.float32(0))
            texture = self._ground.reflectivity(
                (met.direction[0] * along + met.origin[0]) + rays.position[:, 0],
                (met.direction[1] * along + met.origin[1]) + rays.position[:, 1],
            )
            np.copyto(reflectivity[part], texture, where=on)
        return Seen(layer.distance, reflectivity, layer.cosine, sunlight)


def _ground(rays: _Rays) -> _Layer:
    slope = rays.direction[2]
    distance = raycast.plane(rays.origin[2] + rays.position[:, 2].astype(np.float32), slope)
    distance[distance > HORIZON_M] = np.inf
    return _Layer(distance, np.zeros(distance.shape, np.int16), np.abs(slope))


def _add(
    first: _Layer, second: _Layer | None, grazed: npt.NDArray[np.bool_], hits: Hits, place: int
) -> None:
    """Insert a target's hits before or behind the present surfaces."""
    code = hits.face.astype(np.int16)
    code += 1 + raycast.FACES * place
    layer = _Layer(hits.distance, code, hits.cosine)
    closer = hits.distance < first.distance
    if second is not None and hits.grazed is not None:
        between = (hits.distance < second.distance) & ~closer
        second.put(layer, between)
        second.put(first, closer)
        np.copyto(grazed, hits.grazed, where=closer)
    first.put(layer, closer)


def _wrap(angle: npt.NDArray[Any]) -> Floats:
    """Wrap angles in rad to the range from -pi to pi."""
    return np.asarray(np.remainder(angle + np.pi, 2 * np.pi) - np.pi)
