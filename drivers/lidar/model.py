"""The measurements of a simulated lidar of no maker: sweeps of the points that were hit.

Beams are spread evenly from 15 degrees above to 25 below the horizon; the sensor turns clockwise,
seen from above, from straight ahead.  Each column is cast at its own time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.world import World
from drivers.world.faults import LIDAR_FAULTS, read_faults
from drivers.world.mounts import LIDAR, make_mount
from drivers.world.noise import noise_seed, normal
from drivers.world.raycast import Image
from drivers.world.view import HORIZON_M, View
from recorder.codecs.points import Column, points_dtype

START_NS: Final = 1_000_000_000
"""The lidar's clock at world time 0."""
COLUMNS: Final = (
    Column("xyz", "f4", (3,), "m", "position in the lidar's frame"),
    Column("intensity", "f4", desc="reflectivity in percent"),
    Column("ring", "u2", desc="beam, from the top"),
    Column("t_offset", "u4", unit="ns", desc="time after the sweep's begin"),
)
POINT: Final = points_dtype(COLUMNS)

_TOP_DEG, _BOTTOM_DEG = 15.0, -25.0
_REACH_M: Final = 60.0  # of a diffuse surface of 10 %
_NOISE_M: Final = 0.02


class TurningBeams:
    """The rays of the lidar in its own frame; see `drivers.world.view.SensorRays`."""

    def __init__(self, beams: int, columns: int, period_ns: int) -> None:
        altitude = np.radians(np.linspace(_TOP_DEG, _BOTTOM_DEG, beams) if beams > 1 else [0.0])
        azimuth = -math.tau * np.arange(columns) / columns
        level = np.cos(altitude)[:, None]
        up = np.broadcast_to(np.sin(altitude)[:, None], (beams, columns))
        rays = np.stack([level * np.cos(azimuth), level * np.sin(azimuth), up])
        self.direction: Image = rays.astype(np.float32)
        self.origin: Image = np.zeros((3, 1, columns), np.float32)
        self.azimuth_rad = np.arctan2(np.sin(azimuth), np.cos(azimuth))
        self.spread_rad = 1e-6
        self.slope = np.tan(altitude)
        self.step_ns = period_ns / columns


class LidarScene:
    """Sweeps of one lidar in the world.

    Args:
        name: the sensor's name, for messages and its noise.
        options: the driver's options, checked.

    Attributes:
        period_ns: from sweep to sweep.

    Raises:
        ConfigError: an invalid fault.
        SourceError: an invalid mount; the message names sensor and option.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        world = World.of(options)
        self.period_ns = round(1e9 / options["rate"])
        self.beams = TurningBeams(options["beams"], options["columns"], self.period_ns)
        materials = np.array([target.reflectivity for target in world.targets])
        mount = make_mount(name, options["mount"], LIDAR)
        self._seed, self._noise_m = noise_seed(options["seed"], name, "lidar"), options["noise"]
        reach_m, faults = (
            _REACH_M * np.sqrt(10 * materials),
            read_faults(name, options, LIDAR_FAULTS),
        )
        self._view = View(world, mount, self.beams, None, reach_m, faults, self._seed)

    def sweep(self, index: int) -> npt.NDArray[Any]:
        """Return the points of a sweep, an array [points] of `POINT`, column by column."""
        seen, _ = self._view.look(index * self.period_ns * 1e-9)
        distance = seen.distance
        light = 10 * seen.reflectivity * seen.cosine * np.float32(_REACH_M * _REACH_M)
        hit = (distance < HORIZON_M) & (distance * distance <= light)
        column, ring = np.nonzero(hit.T)
        points = np.zeros(len(ring), POINT)
        along = distance[ring, column]
        if self._noise_m:
            noise = normal(self._seed, "cloud", index, distance.size).reshape(distance.shape)
            along = along + (noise[ring, column] * (_NOISE_M * self._noise_m)).astype(np.float32)
        points["xyz"] = (self.beams.direction[:, ring, column] * along).T
        points["intensity"] = np.rint(seen.reflectivity[ring, column] * 100)
        points["ring"] = ring
        points["t_offset"] = np.rint(column * self.beams.step_ns)
        return points
