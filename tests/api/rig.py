"""A simulated drive with calibration and poses, whose stamps are those of the world."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from drivers.camera.lens import Lens
from drivers.sim.truth import poses
from drivers.world import World
from drivers.world.mounts import CAMERA, IMU, LIDAR, RADAR
from tests.archives.ncore.packer_rig import add_poses
from tests.session.build import START_NS
from tests.session.simulated import Sizes, simulated_session

SIZES = Sizes(picture=(320, 180), beams=64, columns=512, chirps=16)
SECONDS = 0.6
ORIGIN_NS = START_NS + 1_000_000
"""Stamp of world time 0."""


def drive(path: Path, seconds: float = SECONDS, sizes: Sizes = SIZES) -> Path:
    """Record the drive: a sweep's stamp is the time of its last column."""
    last_column = round(1e8 * (1 - 1 / sizes.columns))
    simulated_session(path, seconds, sizes, offsets_ns={"lidar": last_column})
    world_ns = np.arange(-10, round(seconds * 100) + 20, dtype=np.int64) * 10_000_000
    truth = poses(World("drive"), world_ns)
    add_poses(path, ORIGIN_NS + world_ns, truth["pos"], "_pose")
    truth["rot"].tofile(path / "_pose" / "rot")
    lens = Lens.default(*sizes.picture)
    sensors = {
        "camera": {
            "T_sensor_rig": CAMERA.to_mapping(),
            "model": "opencv-pinhole",
            "parameters": lens.parameters(),
            "resolution": list(sizes.picture),
        },
        "lidar": {"T_sensor_rig": LIDAR.to_mapping()},
        "radar": {"T_sensor_rig": RADAR.to_mapping()},
        "imu": {"T_sensor_rig": IMU.to_mapping()},
    }
    (path / "calibration.yaml").write_text(json.dumps({"sensors": sensors}))
    return path
