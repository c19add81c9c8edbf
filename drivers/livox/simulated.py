"""The simulated world as a Livox sees it; its packets are decoded as real ones."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import SensorConfig
from drivers.kit.lidar.decoder import Packets
from drivers.kit.lidar.simulated import START_NS, SceneView, fill_view
from drivers.livox.packets import CARTESIAN, POINT, POINTS, LivoxDecoder, make_packet

INTERVAL_NS: Final = {"Mid-360": 480_000, "HAP": 212_400}
"""Interval of packets: 200,000 and 452,000 points in a second."""
_VIEW_DEG: Final = {"Mid-360": (-180.0, 180.0, -7.0, 52.0), "HAP": (-60.0, 60.0, -12.5, 12.5)}


class LivoxScene:
    """The packets of one lidar's sweeps; numbers begin again with each sweep.

    Args:
        sensor: the sensor's entry.

    Attributes:
        first: a packet without returns.

    Raises:
        SourceError: an invalid mount.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        model, rate_hz = sensor.options["model"], sensor.options["rate"]
        interval_ns = INTERVAL_NS[model]
        self._count = max(1, round(1e9 / rate_hz / interval_ns))
        self._period_ns, self.first = self._count * interval_ns, make_packet(CARTESIAN, interval_ns)
        self._decoder = LivoxDecoder(model, self.first, rate_hz)
        self._rays = fill_view(_VIEW_DEG[model], POINTS, self._count, interval_ns)
        self._view = SceneView(sensor, self._rays)
        self._times = np.arange(self._count) * interval_ns

    def sweep(self, index: int) -> tuple[Packets, npt.NDArray[np.int64]]:
        """Return a sweep's packets, and the times at which they are complete, ns."""
        since_ns = index * self._period_ns
        distance, percent = self._view.look(index, since_ns * 1e-9)
        points = np.zeros((self._count, POINTS), POINT[CARTESIAN])
        mm = np.rint(self._rays.direction.astype(np.float64) * (distance * 1000))
        points["xyz"] = mm.transpose(2, 1, 0).astype("<i4")
        points["reflectivity"] = percent.T
        times = START_NS + since_ns + self._times
        packets = self._decoder.encode(points, times, np.arange(self._count))
        return packets, times + round(self._decoder.interval_ns)
