"""The simulated world as an M1 sees it."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import SensorConfig
from drivers.kit.lidar.decoder import Packets
from drivers.kit.lidar.simulated import START_NS, SceneView, fill_view
from drivers.robosense.m1 import COLUMNS, PACKETS, PERIOD_NS, POINTS, M1Decoder, make_packet
from recorder.codecs.points import points_dtype

_VIEW_DEG: Final = (-60.0, 60.0, -12.5, 12.5)
_ZERO: Final = 32768
_UNIT_MM: Final = 5


class M1Scene:
    """The packets of an M1's sweeps.

    Args:
        sensor: the sensor's entry.

    Attributes:
        first: a packet without returns.

    Raises:
        SourceError: an invalid mount.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        self.first = make_packet()
        self._decoder = M1Decoder(self.first)
        rays = fill_view(_VIEW_DEG, POINTS, PACKETS, PERIOD_NS // PACKETS)
        # The angles that packets can have: those of the rays.
        x, y, z = rays.direction.astype(np.float64)
        self._pitch = np.rint(np.degrees(np.arcsin(z)) * 100)
        self._yaw = np.rint(np.degrees(np.arctan2(y, x)) * 100)
        pitch, yaw = np.radians(self._pitch / 100), np.radians(self._yaw / 100)
        level = np.cos(pitch)
        turned = np.stack([level * np.cos(yaw), level * np.sin(yaw), np.sin(pitch)])
        rays.direction = turned.astype(np.float32)
        self._view = SceneView(sensor, rays)

    def sweep(self, index: int) -> tuple[Packets, npt.NDArray[np.int64]]:
        """Return a sweep's packets, and the times at which they are complete, ns."""
        since_ns = index * PERIOD_NS
        distance, percent = self._view.look(index, since_ns * 1e-9)
        points = np.zeros((PACKETS, POINTS), points_dtype(COLUMNS))
        ranges = np.rint(distance.T * (1000 / _UNIT_MM))
        points["range"] = np.where(ranges <= 0xFFFF, ranges, 0)
        points["pitch"], points["yaw"] = _ZERO + self._pitch.T, _ZERO + self._yaw.T
        points["reflectivity"] = percent.T
        times = START_NS + since_ns + np.arange(PACKETS) * PERIOD_NS // PACKETS
        since = np.zeros(points.shape, np.int64)
        packets = self._decoder.encode(points, since, times, 1 + np.arange(PACKETS))
        return packets, times + round(self._decoder.interval_ns)
