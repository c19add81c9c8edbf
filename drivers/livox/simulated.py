"""The simulated world as a Livox sees it; its packets are decoded as real ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, SensorConfig
from drivers.kit.lidar.decoder import Packets
from drivers.kit.lidar.family import Family
from drivers.kit.lidar.simulated import START_NS, Rays, SceneView
from drivers.livox.packets import CARTESIAN, POINT, POINTS, LivoxDecoder, make_packet
from recorder.codecs.streams import StreamSpec

INTERVAL_NS: Final = {"Mid-360": 480_000, "HAP": 212_400}
"""Interval of packets: 200,000 and 452,000 points in a second."""
_VIEW_DEG: Final = {"Mid-360": (-180.0, 180.0, -7.0, 52.0), "HAP": (-60.0, 60.0, -12.5, 12.5)}
_GOLDEN: Final = (5**0.5 - 1) / 2


def make_rays(model: str, packets: int) -> Rays:
    """Return rays [points of a packet, packets] that fill the model's field of view evenly."""
    left, right, low, high = np.radians(_VIEW_DEG[model])
    packet, point = np.arange(packets), np.arange(POINTS)[:, None]
    azimuth = left + (right - left) * (packet * _GOLDEN % 1)
    step = (high - low) / POINTS
    elevation = low + step * (point + packet * _GOLDEN * 7 % 1)
    level = np.cos(elevation)
    direction = [level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)]
    return Rays(
        np.stack(direction).astype(np.float32),
        np.zeros((3, 1, packets), np.float32),
        azimuth,
        1e-6,
        np.tan(elevation.mean(axis=1)),
        float(INTERVAL_NS[model]),
    )


class LivoxScene:
    """The packets of one lidar's sweeps; numbers begin again with each sweep.

    Args:
        sensor: the sensor's entry.

    Attributes:
        period_ns: from sweep to sweep.

    Raises:
        SourceError: an invalid mount.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        model, rate_hz = sensor.options["model"], sensor.options["rate"]
        interval_ns = INTERVAL_NS[model]
        self._count = max(1, round(1e9 / rate_hz / interval_ns))
        self.period_ns = self._count * interval_ns
        self._decoder = LivoxDecoder(model, make_packet(CARTESIAN, interval_ns), rate_hz)
        self._rays = make_rays(model, self._count)
        self._view = SceneView(sensor, self._rays)
        self._times = np.arange(self._count) * interval_ns

    def sweep(self, index: int) -> tuple[Packets, npt.NDArray[np.int64]]:
        """Return a sweep's packets, and the times at which they are complete, ns."""
        since_ns = index * self.period_ns
        distance, percent = self._view.look(index, since_ns * 1e-9)
        points = np.zeros((self._count, POINTS), POINT[CARTESIAN])
        mm = np.rint(self._rays.direction.astype(np.float64) * (distance * 1000))
        points["xyz"] = mm.transpose(2, 1, 0).astype("<i4")
        points["reflectivity"] = percent.T
        times = START_NS + since_ns + self._times
        packets = self._decoder.encode(points, times, np.arange(self._count))
        return packets, times + round(self._decoder.interval_ns)


class SimulatedSource:
    """Source of a Livox in the simulated world, endless.

    Args:
        family: Livox's.
    """

    def __init__(self, family: Family) -> None:
        self._family = family

    def open(self) -> Sequence[StreamSpec]:
        """Make the world and declare the stream; SourceError for an invalid mount."""
        sensor = self._family.sensor
        self._scene = LivoxScene(sensor)
        packet = make_packet(CARTESIAN, INTERVAL_NS[sensor.options["model"]])
        self._stream = self._family.start(packet, live=False)
        return self._stream.specs(finite=False)

    def items(self) -> Iterator[Item]:
        """Yield sweeps without end; a stamp is the time at which its last packet is complete."""
        for index in itertools.count():
            packets, t_ns = self._scene.sweep(index)
            yield from self._stream.take(packets, t_ns, t_ns)

    def close(self) -> None:
        """Do nothing: the source holds no resources."""
