"""An oracle for the simulated lidar: plain float64 geometry, every ray against every target.

Shares nothing with `drivers.world.raycast`: rays come from ouster-sdk, poses from the world.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ouster.sdk import core

from drivers.world import World
from drivers.world.mounts import Mount

Floats = npt.NDArray[np.float64]
GROUND = -1


@dataclass
class Rays:
    """Rays in the world: start and direction [n, 3], times [n], and what a range counts before."""

    start: Floats
    direction: Floats
    t_s: Floats
    offset_m: float


def rays_of(
    info: Any, world: World, mount: Mount, t_col_s: Floats, rows: Any, columns: Any
) -> Rays:
    """The rays of some pixels (numbers of rows and columns, each [n])."""
    lut = core.XYZLut(info, False)
    shape = (info.h, info.w)
    near, far = (np.asarray(lut(np.full(shape, mm, np.uint32))) for mm in (1000, 101_000))
    direction = ((far - near) / 100.0)[rows, columns]
    beam = np.asarray(info.beam_to_lidar_transform)
    offset_m = float(np.hypot(beam[0, 3], beam[2, 3])) / 1000.0
    start = near[rows, columns] - (1.0 - offset_m) * direction
    t_s = t_col_s[columns]
    position, rotation = world.trajectory.pose(t_s)

    def turned(vector: Floats) -> Floats:
        in_rig = vector @ mount.rotation.T
        return np.asarray(np.einsum("nij,nj->ni", rotation, in_rig))

    origin = position + turned(start) + np.einsum("nij,j->ni", rotation, mount.translation)
    return Rays(origin, turned(direction), t_s, offset_m)


def in_target(world: World, number: int, t_s: Floats) -> tuple[Floats, Floats]:
    """Centre [n, 3] and rotation [n, 3, 3], target to world."""
    centre, yaw = world.targets[number].pose(t_s)
    c, s, o, i = np.cos(yaw), np.sin(yaw), np.zeros_like(yaw), np.ones_like(yaw)
    return centre, np.stack([c, -s, o, s, c, o, o, o, i], axis=1).reshape(-1, 3, 3)


def cast(rays: Rays, world: World) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Range [n] in m as the sensor counts it (inf: nothing), and what is met first."""
    with np.errstate(all="ignore"):
        best = np.where(rays.direction[:, 2] < 0, -rays.start[:, 2] / rays.direction[:, 2], np.inf)
        who = np.full(len(best), GROUND)
        for number, target in enumerate(world.targets):
            centre, rotation = in_target(world, number, rays.t_s)
            p = np.einsum("nji,nj->ni", rotation, rays.start - centre)
            d = np.einsum("nji,nj->ni", rotation, rays.direction)
            half = np.array(target.size_m) / 2
            a, b = (-half - p) / d, (half - p) / d
            near, far = np.minimum(a, b), np.maximum(a, b)
            if target.kind == "pole":
                quadratic = (d[:, :2] ** 2).sum(axis=1)
                linear = (p[:, :2] * d[:, :2]).sum(axis=1)
                rest = (p[:, :2] ** 2).sum(axis=1) - half[0] ** 2
                root = np.sqrt(linear**2 - quadratic * rest)
                near[:, 0], far[:, 0] = (-linear - root) / quadratic, (-linear + root) / quadratic
                near[:, 1], far[:, 1] = near[:, 0], far[:, 0]
            enter, leave = near.max(axis=1), far.min(axis=1)
            met = (enter <= leave) & (enter > 0.3) & (enter < best)
            best[met], who[met] = enter[met], number
    return best + rays.offset_m, who


def off_surface(points: Floats, t_s: Floats, world: World) -> tuple[Floats, npt.NDArray[np.int64]]:
    """How far points of the world [n, 3] are from the nearest surface, and whose that is."""
    best, who = np.abs(points[:, 2]), np.full(len(points), GROUND)
    for number, target in enumerate(world.targets):
        centre, rotation = in_target(world, number, t_s)
        p = np.einsum("nji,nj->ni", rotation, points - centre)
        half = np.array(target.size_m) / 2
        if target.kind == "pole":
            outside = np.stack([np.hypot(p[:, 0], p[:, 1]) - half[0], np.abs(p[:, 2]) - half[2]])
        else:
            outside = (np.abs(p) - half).T
        # To the surface: from outside the way to the body, from inside that to the nearest face.
        away = np.linalg.norm(np.maximum(outside, 0), axis=0)
        off = np.where(away > 0, away, -outside.max(axis=0))
        closer = off < best
        best[closer], who[closer] = off[closer], number
    return best, who
