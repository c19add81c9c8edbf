"""A drive past points that stand still, whose lidar measures each at the point's own time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.perception.geometry import quaternion_of_rotation
from tests.archives.ncore.packer_rig import add_poses
from tests.session import clouds
from tests.session.build import Builder, Recorded, camera_spec

Floats = npt.NDArray[np.float64]
SPEED_M_S, TURN_RAD_S = 15.0, 0.4
COUNT = 5


def turn(angle_rad: npt.ArrayLike) -> Floats:
    """Rotations about z, f8 [n, 3, 3]."""
    c, s = np.cos(angle_rad), np.sin(angle_rad)
    zero, one = np.zeros_like(c), np.ones_like(c)
    rows = [[c, -s, zero], [s, c, zero], [zero, zero, one]]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


MOUNTING = np.eye(4)
MOUNTING[:3, :3] = turn(0.3)
MOUNTING[:3, 3] = 1.2, -0.4, 1.9


def rig_at(t_s: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Rotations and places of the rig in the world: an arc."""
    angle = TURN_RAD_S * np.asarray(t_s, np.float64)
    radius = SPEED_M_S / TURN_RAD_S
    x, y = radius * np.sin(angle), radius * (1 - np.cos(angle))
    return turn(angle), np.stack([x, y, np.zeros_like(x)], axis=-1)


@dataclass
class Drive:
    """A session, its sweeps, and where their points are in the world (NaN without a return)."""

    path: Path
    lidar: Recorded
    sweeps: list[clouds.Sweep]
    world: list[Floats]


def drive(path: Path, columns: Any, more: str = "") -> Drive:
    """Record a drive; `more` are further lines of the calibration."""
    builder = Builder(path)
    builder.add(camera_spec(), COUNT / 10)
    sweeps = [clouds.make_sweep(columns, seed) for seed in range(COUNT)]
    made = clouds.add_clouds(builder, sweeps, clouds.cloud_spec(columns))
    world = []
    for sweep, t_ns in zip(sweeps, made.t_ns.tolist(), strict=True):
        since = np.zeros(len(sweep))
        if "t_offset" in (sweep.dtype.names or ()):
            since = sweep["t_offset"].astype(np.float64)
        begin_ns = clouds.begin_ns(t_ns, sweep)
        rotation, place = rig_at((begin_ns - made.t_ns[0] + since) * 1e-9)
        in_rig = sweep["xyz"].astype(np.float64) @ MOUNTING[:3, :3].T + MOUNTING[:3, 3]
        in_world = np.einsum("nij,nj->ni", rotation, in_rig) + place
        in_world[~clouds.has_return(sweep)] = np.nan
        world.append(in_world)
    t_ns = made.t_ns[0] + np.arange(-200_000_000, 700_000_000, 5_000_000)
    rotation, place = rig_at((t_ns - made.t_ns[0]) * 1e-9)
    add_poses(path, t_ns, place, "_pose")
    rotation.astype("<f8").tofile(path / "_pose/rot")
    x, y, z, w = quaternion_of_rotation(MOUNTING[:3, :3]).tolist()
    (path / "calibration.yaml").write_text(
        f"sensors: {{lidar: {{T_sensor_rig: {{translation_m: {MOUNTING[:3, 3].tolist()}, "
        f"quaternion_xyzw: [{x}, {y}, {z}, {w}]}}}}{more}}}\n"
    )
    builder.close()
    return Drive(path, made, sweeps, world)
