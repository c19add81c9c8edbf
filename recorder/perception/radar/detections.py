"""Detections of a radar as points.

::

    radar = RadarDetections(geometry, lambda index: stream.sample(index, ["iq"])["iq"], stream.t_ns)
    points = radar.points(12)           # DETECTION [n], the strongest first
    radar.remarks()                     # notes for people
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.perception.radar.frames import BATCH, RadarFrames, Samples, Times, speed_facts
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.radar import Detections, RadarProcessor
from recorder.perception.radar.range_rate import REACH

DETECTION: Final = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("velocity", "<f4"), ("power", "<f4"),
     ("snr", "<f4"), ("method", "u1")]
)  # fmt: skip
"""A detection: m, in the sensor's frame; radial m/s, positive where the range grows; dB above one
step of the converter squared, per antenna; dB above the noise; `radar.SpeedMethod`."""


def detection_points(found: Detections) -> npt.NDArray[Any]:
    """Return detections as `DETECTION` [n], in the same order."""
    points = np.empty(len(found), DETECTION)
    for axis, name in enumerate("xyz"):
        points[name] = found.direction[:, axis] * found.range_m
    points["velocity"], points["power"] = found.velocity_m_s, found.power_db
    points["snr"], points["method"] = found.snr_db, found.method
    return points


class RadarDetections:
    """The detections of a recorded radar's frames.  Safe for several threads.

    A speed is resolved where the data decide it, by the array or by the frames around
    (`radar_frames`); elsewhere it may be off by a multiple of twice the unambiguous speed, and
    ``method`` is 0.

    Args:
        geometry: of the radar, with the calibration of its antennas.
        read: reads a frame's samples, int16 [chirps, tx, rx, values]; several threads call it.
        t_ns: int64 [frames], the frames' times.
        threshold_db: level above the surrounding noise that a cell must exceed.
        limit: largest number of detections of a frame, the strongest first.

    Attributes:
        processor: finds the detections of a frame.
        frames: resolves their speeds.
    """

    def __init__(
        self,
        geometry: RadarGeometry,
        read: Callable[[int], Samples],
        t_ns: Times,
        threshold_db: float = 12.0,
        limit: int = 256,
    ) -> None:
        self.processor = RadarProcessor(geometry, threshold_db, limit)
        self.frames = RadarFrames(self.processor, read, t_ns)
        self._count = len(t_ns)
        self._locks = [threading.Lock() for _ in range(-(-self._count // BATCH))]
        self._found: set[int] = set()

    def points(self, index: int) -> npt.NDArray[Any]:
        """Return the detections of a frame, `DETECTION` [n], the strongest first."""
        first, last = max(0, index - REACH), min(index + REACH, self._count - 1)
        for batch in range(first // BATCH, last // BATCH + 1):
            with self._locks[batch]:
                if batch not in self._found:
                    begin = batch * BATCH
                    self.frames.find(range(begin, min(begin + BATCH, self._count)))
                    self._found.add(batch)
        return detection_points(self.frames.resolved(index))

    def facts(self) -> dict[str, Any]:
        """Return the properties of the speeds, for metadata."""
        return speed_facts(self.processor)

    def remarks(self) -> list[str]:
        """Return notes about the frames, one sentence each."""
        return self.frames.remarks()
