"""A sensor's contribution to a sample: files, which several threads make once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.base import Job
from recorder.archives.edgefirst.container import Payload
from recorder.session.stream import Stream

SENSOR, RIG = "sensor", "rig"


@dataclass
class SampleFiles:
    """Files of one sample of a sensor.

    Attributes:
        files: contents by file ending.
        points: f4 [n, 3] in the rig's frame at the time of each point, for a lidar whose points are
            projected.
        t_ns: int64 [n], times of the points.
    """

    files: dict[str, Payload]
    points: npt.NDArray[Any] | None = None
    t_ns: npt.NDArray[np.int64] | None = None


class SensorFiles:
    """Makes the files of a sensor's samples.

    Args:
        job: the session's job, with the option ``points_frame``.
        stream: the sensor's stream.

    Attributes:
        name: name of the sensor.
        stream: the sensor's stream.
        pose: ``T_sensor_rig``, f8 [4, 4]; None where the calibration has none.
    """

    BATCH = 1
    """Number of samples that are best made together."""

    def __init__(self, job: Job, stream: Stream) -> None:
        self.name, self.stream = stream.name, stream
        self._job = job
        self.pose = job.calibration.of(stream.name).pose
        self._in_rig = job.options["points_frame"] == RIG
        if self._in_rig and self.pose is None:
            job.notes.add("not in the calibration: its points stay in its own frame", stream.name)

    def make(self, indices: Sequence[int]) -> list[SampleFiles]:
        """The files of each sample."""
        raise NotImplementedError


def xyz(points: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Positions of points with fields x, y and z, f4 [n, 3]."""
    return np.stack([points["x"], points["y"], points["z"]], axis=1)
