"""A sensor's contribution to a sample: files, which the session's workers make once each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recorder.archives.context import Job
from recorder.archives.edgefirst.container import Payload
from recorder.processing.sample_workers import LIDAR_GROUP, EncoderFactory
from recorder.session.stream import Stream


@dataclass
class SampleFiles:
    """Files of one sample of a sensor.

    Attributes:
        files: contents by file ending.
        points: f4 [n, 3] in the rig's frame at the time of each point, for a lidar whose points are
            projected.
        t_ns: int64 [n], times of the points.
        oddities: what `SensorFiles.count` counts of the sample.
    """

    files: dict[str, Payload]
    points: npt.NDArray[Any] | None = None
    t_ns: npt.NDArray[np.int64] | None = None
    oddities: Any = None


class SensorFiles:
    """Files of a sensor's samples.

    Args:
        job: the session's job.
        stream: the sensor's stream.

    Attributes:
        name: name of the sensor.
        stream: the sensor's stream.
        pose: ``T_sensor_rig``, f8 [4, 4]; None where the calibration has none.
        encoder: makes the files in a worker, as `SampleFiles`.
    """

    GROUP: ClassVar[int] = LIDAR_GROUP
    """Number of samples that one worker encodes together."""
    encoder: EncoderFactory

    def __init__(self, job: Job, stream: Stream) -> None:
        self.name, self.stream = stream.name, stream
        self._job = job
        self.pose = job.calibration.of(stream.name).pose

    def count(self, made: SampleFiles) -> None:
        """Count the irregularities of a sample."""

    def submit(self, indices: Sequence[int]) -> Callable[[], list[SampleFiles]]:
        """Let a worker begin to make the files of samples of one group."""
        return self._job.submit(self.name, self.encoder, indices, group=self.GROUP)


def xyz(points: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Positions of points with fields x, y and z, f4 [n, 3]."""
    return np.stack([points["x"], points["y"], points["z"]], axis=1)
