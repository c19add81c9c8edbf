"""A sensor's contribution to a sample: files, which the session's workers make once each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recorder.archives.base import Job
from recorder.archives.edgefirst.container import Payload
from recorder.processing.calibration import Calibration
from recorder.processing.sample_workers import LIDAR_GROUP, Shelf
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
    """Makes the files of a sensor's samples.

    Args:
        job: the session's job.
        stream: the sensor's stream.

    Attributes:
        name: name of the sensor.
        stream: the sensor's stream.
        pose: ``T_sensor_rig``, f8 [4, 4]; None where the calibration has none.
    """

    GROUP: ClassVar[int] = LIDAR_GROUP
    """Number of samples that one worker makes."""

    def __init__(self, job: Job, stream: Stream) -> None:
        self.name, self.stream = stream.name, stream
        self._job = job
        self.pose = job.calibration.of(stream.name).pose

    def make(self, indices: Sequence[int]) -> list[SampleFiles]:
        """The files of each sample; called in a worker."""
        raise NotImplementedError

    def count(self, made: SampleFiles) -> None:
        """Count what is odd of a sample."""

    def submit(self, indices: Sequence[int]) -> Callable[[], list[SampleFiles]]:
        """Let a worker begin to make the files of samples of one group."""
        job = self._job
        factory = partial(
            _maker, type(self), self.name, dict(job.options), job.calibration, self._settings()
        )
        return job.submit(self.name, factory, indices, group=self.GROUP)

    def _settings(self) -> dict[str, Any]:
        """Further arguments, for the worker's object."""
        return {}


def _maker(
    kind: type[SensorFiles],
    name: str,
    options: Mapping[str, Any],
    calibration: Calibration,
    settings: Mapping[str, Any],
    shelf: Shelf,
) -> SensorFiles:
    job = Job(shelf.session, Path(), options, calibration, shelf=shelf)
    return kind(job, shelf.session.streams[name], **settings)


def xyz(points: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Positions of points with fields x, y and z, f4 [n, 3]."""
    return np.stack([points["x"], points["y"], points["z"]], axis=1)
