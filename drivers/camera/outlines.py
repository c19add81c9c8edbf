"""A camera's view of targets: flat polygons in pixels, the farther ones first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.camera.lens import Lens
from drivers.camera.paint import Paint, make_paint
from drivers.world import TargetStates, World
from drivers.world.mounts import Mount, rotate, rotate_back

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Corner = tuple[float, ...]

SHIFT: Final = 4
"""Binary digits after the point of the polygons' coordinates."""

_NEAR_M: Final = 0.15
_RANGE_M: Final = 160.0
_SMALLEST_PX: Final = 2.0
_DETAIL_PX: Final = 24.0  # targets of this size or larger get details
_PIECES_PX: Final = (48.0, 96.0, 192.0, 384.0)  # longer edges are halved: the lens bends them
_SUN: Final = (0.5, 0.78)  # horizontal direction towards the sun
_BRIGHT_TOP: Final = 1.12


@dataclass(frozen=True, slots=True)
class Polygon:
    """A flat part of a target.

    Attributes:
        target: its number in `World.targets`.
        points: int32 [n, 2], pixel coordinates times 2^SHIFT, of a convex outline.
        colour: blue, green, red.
    """

    target: int
    points: npt.NDArray[np.int32]
    colour: tuple[int, int, int]


class Outlines:
    """The targets of a world in the view of a camera on the vehicle.

    >>> outlines = Outlines(World(), Lens.default(1280, 720), mounts.CAMERA, readout_s=0.0)
    >>> for polygon in outlines.at(1.5):
    ...     cv2.fillConvexPoly(image, polygon.points, polygon.colour, shift=SHIFT)

    Args:
        world: the world.
        lens: the camera's projection.
        mount: the camera's place; z forward, x right, y down.
        readout_s: of a rolling shutter, between its first and its last row; row v of `height`
            shows the time ``t - readout_s * (height - 1 - v) / height``.
    """

    def __init__(self, world: World, lens: Lens, mount: Mount, readout_s: float = 0.0) -> None:
        self._world, self._lens = world, lens
        self._rotation, self._translation = mount.rotation, mount.translation
        self._readout_s = readout_s
        self._limit = _limits(lens)
        paints = [make_paint(target) for target in world.targets]
        self._paint = Paint.join(paints)
        self._first = np.cumsum([0, *(len(paint.quads) for paint in paints)])
        sizes = world.sizes_m
        self._radius = 0.5 * np.sqrt(
            sizes[:, 0] * sizes[:, 0] + sizes[:, 1] * sizes[:, 1] + sizes[:, 2] * sizes[:, 2]
        )

    def at(
        self, t_s: float, without: frozenset[int] = frozenset(), details: bool = True
    ) -> list[Polygon]:
        """Return the polygons of the picture that ends at `t_s`, in painting order.

        Args:
            t_s: world time of the last row.
            without: numbers of targets that are omitted.
            details: include windows, wheels and the like, not only the boxes' sides.
        """
        height = self._lens.height
        readout = self._readout_s * (height - 1) / height
        times = np.array([t_s - readout, t_s - 0.5 * readout, t_s] if readout else [t_s])
        middle = len(times) // 2
        position, rotation = self._world.trajectory.pose(times)
        eye = position + rotate(rotation, self._translation)
        axes = rotation @ self._rotation
        states = self._world.states(times)
        seen, size_px = self._find_seen(states.centre_m[:, middle], eye[middle], axes[middle])
        seen = np.array([k for k in seen.tolist() if k not in without], np.int64)
        if not len(seen):
            return []
        order = draw_order(self._corners(states, seen, middle), eye[middle, :2])
        seen = seen[order]
        quads = self._find_quads(seen, (size_px[seen] >= _DETAIL_PX) & details)
        ends = [
            rotate_back(axes[k], self._place(states, quads, k) - eye[k])
            for k in ((0, 2) if readout else (0,))
        ]
        camera = np.stack([ends[0], ends[-1]], axis=2)
        return self._polygons(quads, camera, states, middle)

    def _find_seen(self, centre: Floats, eye: Floats, axes: Floats) -> tuple[Integers, Floats]:
        """Return the numbers of the targets that may be in view, and all targets' sizes in px."""
        local = rotate_back(axes, centre - eye)
        radius = self._radius
        x, y, z = np.abs(local[:, 0]), np.abs(local[:, 1]), local[:, 2]
        distance = np.sqrt(x * x + y * y + z * z)
        size_px = 2.0 * radius * self._lens.focal_px / np.maximum(distance - radius, _NEAR_M)
        lx, ly = self._limit
        inside = (
            (z > _NEAR_M - radius)
            & (distance < _RANGE_M)
            & (size_px > _SMALLEST_PX)
            & (x - lx * z < radius * (1.0 + lx))
            & (y - ly * z < radius * (1.0 + ly))
        )
        return np.flatnonzero(inside), size_px

    def _corners(self, states: TargetStates, which: Integers, k: int) -> Floats:
        """Return corners as seen from above, [m, 4, 2], at the k-th time."""
        half = 0.5 * self._world.sizes_m[which]
        c, s = states.cos_yaw[which, k], states.sin_yaw[which, k]
        corners = []
        for a, b in ((1, 1), (-1, 1), (-1, -1), (1, -1)):
            x, y = a * half[:, 0], b * half[:, 1]
            corners.append(np.stack([c * x - s * y, s * x + c * y], axis=-1))
        return np.stack(corners, axis=1) + states.centre_m[which, k, None, :2]

    def _find_quads(self, seen: Integers, detailed: npt.NDArray[np.bool_]) -> Integers:
        """Return the numbers of the targets' quads, in order; details only of large targets."""
        parts = []
        for target, fine in zip(seen.tolist(), detailed.tolist(), strict=True):
            numbers = np.arange(self._first[target], self._first[target + 1])
            parts.append(numbers if fine else numbers[~self._paint.detail[numbers]])
        return np.concatenate(parts)

    def _place(self, states: TargetStates, quads: Integers, k: int) -> Floats:
        """Return corners of quads in the world at the k-th time, f8 [q, 4, 3]."""
        owner = self._paint.owner[quads]
        local = self._paint.quads[quads]
        c, s = states.cos_yaw[owner, k, None], states.sin_yaw[owner, k, None]
        x, y = local[..., 0], local[..., 1]
        turned = np.stack([c * x - s * y, s * x + c * y, local[..., 2]], axis=-1)
        return turned + states.centre_m[owner, k, None]

    def _polygons(
        self, quads: Integers, camera: Floats, states: TargetStates, k: int
    ) -> list[Polygon]:
        middle = 0.5 * (camera[:, :, 0] + camera[:, :, 1])
        first, last = _faces(camera[:, :, 0]), _faces(camera[:, :, 1])
        facing, surely = first | last, first & last
        beyond: npt.NDArray[np.bool_] = self._beyond(middle) > 0
        crossed: npt.NDArray[np.bool_] = np.logical_or.reduce(beyond, axis=2)
        facing &= ~np.logical_and.reduce(beyond, axis=2).any(axis=1)
        cut = crossed.any(axis=1)
        outlines: dict[int, npt.NDArray[np.int32]] = {}
        whole = np.flatnonzero(facing & ~cut)
        self._outline(whole, camera[whole], outlines)
        clipped = [
            (q, self._clip(camera[q], np.flatnonzero(crossed[q]).tolist()))
            for q in np.flatnonzero(facing & cut).tolist()
        ]
        kept = [(q, corners) for q, corners in clipped if corners]
        if kept:
            most = max(len(corners) for _, corners in kept)
            # The last corner is repeated: this adds edges without length.
            full = np.array([c + c[-1:] * (most - len(c)) for _, c in kept])
            numbers = np.array([q for q, _ in kept])
            self._outline(numbers, full.reshape(len(kept), most, 2, 3), outlines)
        colours = self._colours(quads, states, k)
        owner = self._paint.owner[quads].tolist()
        # Within a target, sides that only some of the rows see come before the others.
        rank = np.cumsum(np.diff(self._paint.owner[quads], prepend=-1) != 0) * 2 + surely
        order = sorted(outlines, key=lambda q: (int(rank[q]), q))
        return [Polygon(owner[q], outlines[q], colours[q]) for q in order]

    def _beyond(self, points: Floats) -> Floats:
        """Return how far points lie beyond the view's five planes, [..., planes, points]."""
        x, y, z = points[..., 0], points[..., 1], points[..., 2]
        lx, ly = self._limit
        return np.stack([_NEAR_M - z, x - lx * z, -x - lx * z, y - ly * z, -y - ly * z], axis=-2)

    def _clip(self, corners: Floats, planes: list[int]) -> list[Corner]:
        """Clip a polygon [n, 2 times, 3] to the view (Sutherland and Hodgman)."""
        kept: list[Corner] = [tuple(corner) for corner in corners.reshape(-1, 6).tolist()]
        lx, ly = self._limit
        # Factors of (X, Y, Z) and constant; doubled, because a corner's two times are summed.
        sides = ((0, 0, -1, 2 * _NEAR_M), (1, 0, -lx, 0), (-1, 0, -lx, 0), (0, 1, -ly, 0),
                 (0, -1, -ly, 0))  # fmt: skip
        for plane in planes:
            fx, fy, fz, constant = sides[plane]
            beyond = [
                fx * (c[0] + c[3]) + fy * (c[1] + c[4]) + fz * (c[2] + c[5]) + constant
                for c in kept
            ]
            before, kept = kept, []
            for k, value in enumerate(beyond):
                last = beyond[k - 1]
                if (value > 0) != (last > 0):
                    share = last / (last - value)
                    pairs = zip(before[k - 1], before[k], strict=True)
                    kept.append(tuple(a + share * (b - a) for a, b in pairs))
                if value <= 0:
                    kept.append(before[k])
        return kept

    def _outline(
        self, numbers: Integers, corners: Floats, into: dict[int, npt.NDArray[np.int32]]
    ) -> None:
        """Store fixed-point outlines of polygons [q, n, 2 times, 3] under their numbers."""
        if not len(numbers):
            return
        u, v = self._project(corners)
        du, dv = np.abs(u - np.roll(u, -1, axis=1)), np.abs(v - np.roll(v, -1, axis=1))
        longest = np.maximum(du, dv).max(axis=1)
        pieces = np.ones(len(longest), np.int64)
        for limit in _PIECES_PX:
            pieces[longest > limit] *= 2
        for count in np.unique(pieces).tolist():
            chosen = np.flatnonzero(pieces == count)
            if count == 1:
                pu, pv = u[chosen], v[chosen]
            else:
                start = corners[chosen][:, :, None]
                end = np.roll(corners[chosen], -1, axis=1)[:, :, None]
                share = (np.arange(count) / count)[:, None, None]
                pu, pv = self._project(
                    (start + share * (end - start)).reshape(len(chosen), -1, 2, 3)
                )
            points = np.rint(np.stack([pu, pv], axis=-1) * (1 << SHIFT)).astype(np.int32)
            into.update(zip(numbers[chosen].tolist(), points, strict=True))

    def _project(self, corners: Floats) -> tuple[Floats, Floats]:
        """Return pixels of corners [q, n, 2, 3], given for the first and the last row."""
        first, last = corners[:, :, 0], corners[:, :, 1]
        if not self._readout_s:
            return self._lens.project(first[..., 0] / first[..., 2], first[..., 1] / first[..., 2])
        share = np.full(first.shape[:2], 0.5)
        for _ in range(4):  # the row determines the time, and the time the row
            at = first + share[..., None] * (last - first)
            z = np.maximum(at[..., 2], 0.5 * _NEAR_M)
            u, v = self._lens.project(at[..., 0] / z, at[..., 1] / z)
            share = np.clip(v / (self._lens.height - 1), -0.5, 1.5)
        return u, v

    def _colours(self, quads: Integers, states: TargetStates, k: int) -> list[tuple[int, int, int]]:
        """Return the colours in the light of the sun."""
        owner = self._paint.owner[quads]
        normal = self._paint.normal[quads]
        c, s = states.cos_yaw[owner, k], states.sin_yaw[owner, k]
        nx, ny = normal[:, 0] * c - normal[:, 1] * s, normal[:, 0] * s + normal[:, 1] * c
        light = 0.8 + 0.22 * (nx * _SUN[0] + ny * _SUN[1])
        light = np.where(normal[:, 2] > 0.5, _BRIGHT_TOP, light)
        colour = np.minimum(np.floor(self._paint.colour[quads] * light[:, None]), 255)
        return [(int(b), int(g), int(r)) for b, g, r in colour.tolist()]


def draw_order(corners: Floats, eye: Floats) -> Integers:
    """Return the order of upright boxes in which the farther boxes come first.

    Where a side of one of two boxes separates the eye and one box from the other box, the box on
    the eye's side is drawn later.

    Args:
        corners: f8 [m, 4, 2], seen from above, in circular order.
        eye: f8 [2].
    """
    count = len(corners)
    edge = np.roll(corners, -1, axis=1) - corners
    outward = np.stack([edge[..., 1], -edge[..., 0]], axis=-1)
    middle = 0.5 * (corners[:, 0] + corners[:, 2])
    inner = _dot(outward, middle[:, None] - corners)
    outward = np.where(inner[..., None] > 0, -outward, outward)
    eye_outside = _dot(outward, eye - corners) > 0  # [m, side]
    # apart[a, side, b]: all of box b is outside of that side of box a.
    offset = corners[None, None, :, :] - corners[:, :, None, None, :]
    apart = np.asarray((_dot(outward[:, :, None, None, :], offset) >= -1e-9).all(axis=-1))
    near = (apart & eye_outside[:, :, None]).any(axis=1)  # [a, b]: b is on the eye's side of a
    far = (apart & ~eye_outside[:, :, None]).any(axis=1)  # [a, b]: a is on the eye's side of b
    before = near | far.T  # [a, b]: a is drawn before b
    before &= ~before.T
    distance = _dot(middle - eye, middle - eye)
    left = np.ones(count, bool)
    order = np.empty(count, np.int64)
    waiting = before.sum(axis=0)  # number of boxes to draw before this one
    for place in range(count):
        free = left & (waiting == 0)
        pool = free if free.any() else left  # a ring of boxes: the farthest is drawn first
        chosen = int(np.argmax(np.where(pool, distance, -1.0)))
        order[place] = chosen
        left[chosen] = False
        waiting -= np.asarray(before)[chosen]
    return order


def _dot(first: Floats, second: Floats) -> Floats:
    return first[..., 0] * second[..., 0] + first[..., 1] * second[..., 1]


def _faces(corners: Floats) -> npt.NDArray[np.bool_]:
    """Return whether quads [q, 4, 3] in the camera's axes show their outer side."""
    at = corners[:, 0]
    normal = np.cross(corners[:, 1] - at, corners[:, 2] - at)
    return np.asarray(
        normal[:, 0] * at[:, 0] + normal[:, 1] * at[:, 1] + normal[:, 2] * at[:, 2] < 0
    )


def _limits(lens: Lens) -> tuple[float, float]:
    """Return slightly more than the largest |x|, |y| of directions in the picture."""
    across = np.linspace(-0.5, lens.width - 0.5, 33)
    down = np.linspace(-0.5, lens.height - 0.5, 33)
    u = np.concatenate([across, across, np.full(33, -0.5), np.full(33, lens.width - 0.5)])
    v = np.concatenate([np.full(33, -0.5), np.full(33, lens.height - 0.5), down, down])
    x, y = lens.unproject(u, v)
    return 1.02 * float(np.abs(x).max()) + 0.01, 1.02 * float(np.abs(y).max()) + 0.01
