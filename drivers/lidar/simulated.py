"""The simulated lidar, endless; sweeps are made on access."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.clouds import cloud_channels
from drivers.kit.driver import Item, Sample, SensorConfig
from drivers.lidar.model import COLUMNS, POINT, START_NS, LidarScene
from recorder.codecs.points import pack_points
from recorder.codecs.streams import StreamSpec

_HIT: Final = 0.6  # share of the rays, for the expected size


class SimulatedSource:
    """Source of a lidar in the simulated world."""

    def __init__(self, sensor: SensorConfig) -> None:
        self._sensor = sensor

    def open(self) -> Sequence[StreamSpec]:
        """Make the world and declare the stream; SourceError for an invalid mount."""
        options = self._sensor.options
        self._scene = LidarScene(self._sensor.name, options)
        self._channels = cloud_channels(COLUMNS)
        rays = options["beams"] * options["columns"]
        spec = StreamSpec(
            self._sensor.name,
            self._channels,
            rate_hz=options["rate"],
            description="simulated lidar",
            bytes_per_sample=int(rays * _HIT * POINT.itemsize),
        )
        return [spec]

    def items(self) -> Iterator[Item]:
        """Yield sweeps without end; a stamp is the time of a sweep's last point."""
        for index in itertools.count():
            points = self._scene.sweep(index)
            end_ns = index * self._scene.period_ns + int(points["t_offset"].max(initial=0))
            stamp = np.array([START_NS + end_ns], np.int64)
            yield Sample(self._sensor.name, stamp, self._pack(points))

    def _pack(self, points: npt.NDArray[Any]) -> dict[str, Any]:
        cloud, grid = self._channels
        return {
            cloud.name: [pack_points(points)],
            grid.name: np.array([[1, len(points)]], "<u4"),
        }

    def close(self) -> None:
        """Do nothing: the source holds no resources."""
