"""The truth about a world in the formats of stored labels (docs/labels.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.camera.model import SimulatedCamera
from drivers.camera.outlines import SHIFT, Polygon
from drivers.world import World, mounts
from drivers.world.mounts import rotate_back
from drivers.xsens.model import quaternions

Floats = npt.NDArray[np.float64]

RANGE_M: Final = 80.0
"""Horizontal distance from the rig up to which targets are labelled."""

_DIGITS: Final = 6  # micrometres
_QUATERNION_DIGITS: Final = 9
_COARSE: Final = 2  # occlusion is counted in pictures of half the size
_BATCH: Final = 64
_VISIBLE_PX: Final = 3  # pixels of the coarse picture that make a target visible


def cuboids(world: World, t_ns: npt.NDArray[np.int64], stamps: list[int]) -> Iterator[str]:
    """Yield JSON lines of the targets around the vehicle at each time, in the rig's frame.

    Args:
        world: the world.
        t_ns: int64 [n], world times.
        stamps: the stamps of these times in the lines, epoch ns.
    """
    for first in range(0, len(t_ns), _BATCH):
        t_s = t_ns[first : first + _BATCH] / 1e9
        states = world.states(t_s)
        position, rotation = world.trajectory.pose(t_s)
        centre = rotate_back(rotation, states.centre_m - position)
        velocity = rotate_back(rotation, states.velocity_m_s)
        ego_cos, ego_sin = rotation[:, 0, 0], rotation[:, 1, 0]
        cosine = states.cos_yaw * ego_cos + states.sin_yaw * ego_sin
        sine = states.sin_yaw * ego_cos - states.cos_yaw * ego_sin
        turn = np.zeros((*cosine.shape, 4))
        turn[..., 2:] = half_angle(cosine, sine)
        if world.trajectory.ride is not None:
            upright = mounts.about_z(states.cos_yaw, states.sin_yaw)
            tilted = np.swapaxes(rotation, 1, 2) @ upright
            turn = np.roll(quaternions(tilted.reshape(-1, 3, 3)), -1, axis=1).reshape(turn.shape)
        near = centre[..., 0] ** 2 + centre[..., 1] ** 2 < RANGE_M * RANGE_M
        for k in range(len(t_s)):
            for number in np.flatnonzero(near[:, k]).tolist():
                target = world.targets[number]
                quaternion = _round(turn[number, k], _QUATERNION_DIGITS)
                yield json.dumps(
                    {
                        "t_ns": stamps[first + k],
                        "track": target.track,
                        "class": target.kind,
                        "frame": "rig",
                        "center_m": _round(centre[number, k]),
                        "size_m": list(target.size_m),
                        "quaternion_xyzw": quaternion,
                        "velocity_m_s": _round(velocity[number, k]),
                    }
                )


@dataclass(frozen=True, slots=True)
class Box:
    """A target in a picture.

    Attributes:
        target: its number in `World.targets`.
        left, top, width, height: in pixels, of the part inside the picture, hidden or not; (0, 0)
            is the middle of the first pixel, as in OpenCV.
        occluded: share of it that other targets or the own vehicle hide, 0 to 1.
    """

    target: int
    left: float
    top: float
    width: float
    height: float
    occluded: float


def boxes(camera: SimulatedCamera, t_s: float) -> list[Box]:
    """Return boxes of the visible targets in the picture that ends at world time `t_s`."""
    import cv2

    lens = camera.lens
    owned: dict[int, list[Polygon]] = {}
    for polygon in camera.outlines.at(t_s, details=False):
        owned.setdefault(polygon.target, []).append(polygon)
    size = -(-lens.height // _COARSE), -(-lens.width // _COARSE)
    who = np.zeros(size, np.uint8)
    found: list[tuple[int, int, tuple[float, float, float, float]]] = []
    # Targets are drawn in order, the farther ones first: later targets cover earlier ones.
    for place, (target, polygons) in enumerate(owned.items(), start=1):
        points = np.concatenate([polygon.points for polygon in polygons]) / (1 << SHIFT)
        low = np.maximum(points.min(axis=0), -0.5)
        high = np.minimum(points.max(axis=0), (lens.width - 0.5, lens.height - 0.5))
        if (high <= low).any():
            continue
        left, top = (int(v) // _COARSE for v in np.maximum(low, 0))
        right, bottom = (int(v) // _COARSE + 2 for v in high)
        alone = np.zeros((min(bottom, size[0]) - top, min(right, size[1]) - left), np.uint8)
        for polygon in polygons:
            coarse = _coarse(polygon.points)
            cv2.fillConvexPoly(who, coarse, place, cv2.LINE_8, SHIFT)
            own = coarse - np.array([left, top], np.int32) * (1 << SHIFT)
            cv2.fillConvexPoly(alone, own, 1, cv2.LINE_8, SHIFT)
        extent = tuple(map(float, (*low, *(high - low))))
        found.append((target, int(np.count_nonzero(alone)), extent))  # type: ignore[arg-type]
    if len(camera.bonnet):
        cv2.fillPoly(who, [_coarse(camera.bonnet)], 255, cv2.LINE_8, SHIFT)
    seen = np.bincount(who.reshape(-1), minlength=256).tolist()
    places = {target: place for place, target in enumerate(owned, start=1)}
    return [
        Box(target, *extent, occluded=max(0.0, 1.0 - seen[places[target]] / max(area, 1)))
        for target, area, extent in found
        if seen[places[target]] >= _VISIBLE_PX
    ]


def box_line(world: World, box: Box, frame: int, stamp: int) -> str:
    """Return the JSON line of a box in picture `frame` with the stamp `stamp`, epoch ns."""
    target = world.targets[box.target]
    extent = (box.left, box.top, box.width, box.height)
    return json.dumps(
        {
            "t_ns": stamp,
            "frame": frame,
            "track": target.track,
            "class": target.kind,
            "box_px": [round(value, 3) for value in extent],
            "occluded": round(box.occluded, 3),
        }
    )


def ego_mask(camera: SimulatedCamera) -> npt.NDArray[np.uint8]:
    """Return the mask of the own vehicle: u1 [height, width], 255 on the vehicle, 0 elsewhere."""
    import cv2

    mask = np.zeros((camera.lens.height, camera.lens.width), np.uint8)
    if len(camera.bonnet):
        cv2.fillPoly(mask, [camera.bonnet], 255, cv2.LINE_8, SHIFT)
    return mask


def poses(world: World, t_ns: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    """Return the rig's ``pos``, ``rot``, ``vel``, ``acc`` in the world at times [n], float64."""
    motion = world.trajectory.motion(t_ns / 1e9)
    return {
        "pos": motion.position_m.astype("<f8"),
        "rot": motion.rotation.astype("<f8"),
        "vel": motion.velocity_m_s.astype("<f8"),
        "acc": motion.acceleration_m_s2.astype("<f8"),
    }


def half_angle(cosine: Floats, sine: Floats) -> Floats:
    """Return quaternion parts (z, w), [..., 2], of rotations about z; w is not negative."""
    ahead = cosine >= 0
    larger = np.sqrt(0.5 * (1.0 + np.where(ahead, cosine, -cosine)))
    smaller = np.abs(sine) / (2.0 * larger)
    w = np.where(ahead, larger, smaller)
    z = np.where(ahead, smaller, larger)
    return np.stack([np.where(sine < 0, -z, z), w], axis=-1)


def _coarse(points: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    half = 1 << (SHIFT - 1)
    # In pictures of two sizes, pixel edges coincide, not pixel middles.
    return (points + half) // _COARSE - half


def _round(values: Floats, digits: int = _DIGITS) -> list[float]:
    return [round(value, digits) + 0.0 for value in values.tolist()]
