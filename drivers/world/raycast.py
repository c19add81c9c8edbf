"""Intersection of rays with the world: ground, boxes, vertical poles, in float32 arrays.

All functions take rays ``origin + t * direction`` with unit directions and return the distance t in
m, inf without an intersection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.float32]

FACES = 7
"""Kinds of a target's face: back, front, right, left, bottom, top (box), and a pole's side."""
SIDE = 6
NEAREST_M = 0.3  # nearer surfaces blind the sensor
_DEEP_M = 1000.0
_TINY = np.float32(1e-12)  # replaces a direction of 0, where infinities would cancel to NaN


@dataclass(slots=True)
class Hits:
    """Points where rays enter a target.

    Attributes:
        distance: f4 [h, w] m, inf where the ray misses the target.
        face: u1 [h, w], see `FACES`; undefined for a miss.
        cosine: f4 [h, w], of the angle between ray and surface normal.
        grazed: bool [h, w], a part of the beam's cross section passes the target; None if not
            requested.
    """

    distance: Image
    face: npt.NDArray[np.uint8]
    cosine: Image
    grazed: npt.NDArray[np.bool_] | None


def turn(matrix: npt.NDArray[Any], vector: Image) -> Image:
    """Multiply vectors [3, h, w] by a matrix per column, [w, n, 3]: f4 [n, h, w]."""
    m = matrix.astype(np.float32)
    out = np.empty((m.shape[1], *vector.shape[1:]), np.float32)
    part = np.empty(out.shape[1:], np.float32)
    for row in range(m.shape[1]):
        np.multiply(vector[0], m[:, row, 0], out=out[row])
        for axis in (1, 2):
            factor = m[:, row, axis]
            if factor.any():  # a level vehicle does not change z
                np.multiply(vector[axis], factor, out=part)
                out[row] += part
    return out


def about_z(vector: Image, cosine: Image, sine: Image) -> Image:
    """Convert vectors [3, h, w] to axes turned about z, by one angle or one per column."""
    x, y, z = vector
    out = np.empty(vector.shape, np.float32)
    np.multiply(x, cosine, out=out[0])
    np.multiply(y, cosine, out=out[1])
    out[2] = z
    if sine.any():
        out[0] += y * sine
        out[1] -= x * sine
    return out


def plane(height: Image, slope: Image) -> Image:
    """Return the distance to a plane `height` below; `slope` is the direction along its normal."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        distance = height / -slope
    distance[~((slope < 0) & (distance > NEAREST_M))] = np.inf
    return np.asarray(distance)


def box(origin: Image, direction: Image, half_m: npt.NDArray[Any], beam: float | None) -> Hits:
    """Intersect rays with a box around the frame's origin, by the slab method.

    Args:
        origin: f4 [3, h or 1, w], of the rays in the box's frame.
        direction: f4 [3, h, w].
        half_m: its half sizes, [3].
        beam: half of the beam's divergence in rad, for `Hits.grazed`; None: not requested.
    """
    half = half_m.astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = np.divide(np.float32(1), direction + _TINY)
        middle = origin * inverse
        np.negative(middle, out=middle)
        reach = np.abs(inverse)
        wide = reach * half[:, None, None]
        enter = middle - wide
        near = np.fmax(np.fmax(enter[0], enter[1]), enter[2])
        leave = np.add(middle, wide, out=wide)
        far = np.fmin(np.fmin(leave[0], leave[1]), leave[2])
        hit = (near <= far) & (near > NEAREST_M)
        grazed = None
        if beam is not None:
            # A ray that misses the box reduced by the beam's radius is near its outline.  The box
            # stands on the ground, so its lower edge does not count.
            spot = np.float32(beam) * np.where(hit, near, 0)
            inside = (half[:, None, None] - spot) * reach
            late, early = middle - inside, middle + inside
            endless = np.float32(_DEEP_M) * reach[2]
            down = direction[2] < 0
            late[2] -= np.where(down, 0, endless)
            early[2] += np.where(down, endless, 0)
            grazed = np.fmax(np.fmax(late[0], late[1]), late[2]) > np.fmin(
                np.fmin(early[0], early[1]), early[2]
            )
    axis = np.where(near == enter[0], 0, np.where(near == enter[1], 1, 2)).astype(np.uint8)
    along = np.where(axis == 0, direction[0], np.where(axis == 1, direction[1], direction[2]))
    # A ray that goes forward enters through the back.
    distance = np.where(hit, near, np.float32(np.inf))
    return Hits(distance, 2 * axis + (along < 0), np.abs(along), grazed)


def pole(
    origin: Image, direction: Image, radius_m: float, half_m: float, beam: float | None
) -> Hits:
    """Intersect rays with a vertical cylinder around the frame's origin; arguments as for `box`."""
    radius, half = np.float32(radius_m), np.float32(half_m)
    dx, dy, dz = direction
    ox, oy, oz = origin
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        level = dx * dx + dy * dy
        beside = ox * dy - oy * dx  # distance from the axis, times sqrt(level)
        room = level * (radius * radius) - beside * beside
        half_chord = np.sqrt(np.maximum(room, 0)) / level
        middle = -(ox * dx + oy * dy) / level
        through = np.abs(half / dz)
        across = -oz / dz
        sides, ends = middle - half_chord, across - through
        near = np.fmax(sides, ends)
        far = np.fmin(middle + half_chord, across + through)
        hit = (room > 0) & (near <= far) & (near > NEAREST_M)
        grazed = None
        if beam is not None:
            spot = np.float32(beam) * np.where(hit, near, 0)
            inner = np.maximum(radius - spot, 0)
            top = oz + near * dz > half - spot
            grazed = top | (beside * beside >= level * (inner * inner))
        on_side = sides >= ends
        cosine = np.where(on_side, half_chord * level / radius, np.abs(dz))
    face = np.where(on_side, SIDE, np.where(dz > 0, 4, 5)).astype(np.uint8)
    return Hits(np.where(hit, near, np.float32(np.inf)), face, cosine, grazed)
