"""A lidar's files of samples: ``.lidar.pcd``, and pictures if requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.archives.context import Job
from recorder.archives.edgefirst.container import Payload
from recorder.archives.edgefirst.fast_zlib import zlib
from recorder.archives.edgefirst.pcd import LIDAR, encode_pcd
from recorder.archives.edgefirst.png import encode_png
from recorder.archives.edgefirst.projection import in_steps
from recorder.archives.edgefirst.sensors import SampleFiles, SensorFiles, xyz
from recorder.archives.sensor_files import lidar_optics, lidar_returns
from recorder.processing.frames import mean_period_ns, sweep_times
from recorder.processing.geometry import Floats, apply
from recorder.processing.lidar import pixel_shifts
from recorder.processing.sample_workers import WorkerContext
from recorder.session.reader import lidar_range_mm
from recorder.session.stream import Stream

LIDAR_PICTURES = ("depth", "reflectivity", "projected")
_JPEG_QUALITY = 90


class LidarFiles(SensorFiles):
    """``.lidar.pcd`` and the requested pictures of a lidar's sweeps.

    Args:
        job: the session's job, with the options ``returns`` and ``lidar_images``.
        stream: the lidar's stream.
        project: whether a camera's depth pictures need points.

    Attributes:
        projects: whether `SampleFiles.points` are set for depth pictures.
        period_ns: time from sweep to sweep.
    """

    def __init__(self, job: Job, stream: Stream, *, project: bool) -> None:
        super().__init__(job, stream)
        optics, text, where = lidar_optics(stream)
        self.projects = project and self.pose is not None
        self.period_ns = mean_period_ns(stream, optics.frequency_hz)
        returns: int = job.options["returns"]
        if "rng2" in stream.meta and returns == 1:
            job.notes.add("second returns left out; edgefirst.returns=2 packs them", stream.name)
        settings = LidarSettings(
            returns, tuple(job.options["lidar_images"]), self.projects, self.period_ns
        )
        shifts = pixel_shifts(text, optics, where)
        self.encoder = partial(LidarEncoder, stream.name, self.pose, shifts, settings)


@dataclass(frozen=True)
class LidarSettings:
    """Settings of the files of a lidar's sweeps.

    Attributes:
        returns: number of returns whose points are packed.
        pictures: some of `LIDAR_PICTURES`.
        projects: whether depth pictures need points in the rig's frame.
        period_ns: time from sweep to sweep.
    """

    returns: int
    pictures: tuple[str, ...]
    projects: bool
    period_ns: int


class LidarEncoder:
    """Makes the files of sweeps in a worker.

    Args:
        name: name of the lidar.
        pose: ``T_sensor_rig``, f8 [4, 4], or None.
        shifts: int [beams], see `pixel_shifts`.
        settings: what to make.
        worker: the worker's context.
    """

    def __init__(
        self,
        name: str,
        pose: Floats | None,
        shifts: npt.NDArray[Any],
        settings: LidarSettings,
        worker: WorkerContext,
    ) -> None:
        self._stream = worker.session.streams[name]
        self._pose, self._shifts, self._settings = pose, shifts, settings
        self._optics, _, _ = lidar_optics(self._stream)
        self._beam, self._start = self._optics.lines
        self._returns = lidar_returns(self._stream)[: settings.returns]

    def __call__(self, indices: Sequence[int]) -> list[SampleFiles]:
        return [self._encode(index) for index in indices]

    def _encode(self, index: int) -> SampleFiles:
        sweep = [self._read(index, number, rfl) for number, rfl in self._returns]
        clouds = [self._points(*one) for one in sweep]
        points = clouds[0] if len(clouds) == 1 else np.concatenate(clouds)
        pcd = encode_pcd(points, self._pose)
        files = {"lidar.pcd": Payload(pcd, zlib.crc32(pcd))}
        ranges, reflectivity = sweep[0]
        if "depth" in self._settings.pictures:
            depth = in_steps(self._destaggered(ranges) * 1e-3)
            files["lidar.png"] = Payload(encode_png(depth, level=1))
        if "reflectivity" in self._settings.pictures:
            picture = self._destaggered(reflectivity)
            done, jpeg = cv2.imencode(".jpeg", picture, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
            assert done
            files["lidar.jpeg"] = Payload(jpeg.tobytes())
        if not self._settings.projects or self._pose is None:
            return SampleFiles(files)
        in_rig = apply(self._pose, xyz(points))
        return SampleFiles(files, in_rig, self._point_times(index, [r for r, _ in sweep]))

    def _point_times(
        self, index: int, ranges: Sequence[npt.NDArray[np.uint32]]
    ) -> npt.NDArray[np.int64]:
        """Times of the points of a sweep's returns, int64 [n]: those of their columns."""
        t_col = None
        if "t_col" in self._stream.meta:
            t_col = self._stream.sample(index, ["t_col"])["t_col"]
        end_ns = int(self._stream.times(index, index + 1)[0])
        times = sweep_times(
            t_col, self._optics.columns, end_ns, self._settings.period_ns
        ).columns_ns
        return np.concatenate([times[np.nonzero(one)[1]] for one in ranges])

    def _read(
        self, index: int, number: int, rfl: str
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
        ranges = lidar_range_mm(self._stream, index, number)
        if rfl in self._stream.meta:
            return ranges, self._stream.sample(index, [rfl])[rfl]
        return ranges, np.zeros(ranges.shape, np.uint8)

    def _points(
        self, ranges: npt.NDArray[np.uint32], reflectivity: npt.NDArray[np.uint8]
    ) -> npt.NDArray[Any]:
        """The points of a sweep's returns, row by row."""
        planes = np.empty((4, ranges.size), np.float32)
        metres = ranges.reshape(-1).astype(np.float32)
        metres *= np.float32(1e-3)
        np.multiply(self._beam, metres, out=planes[:3])
        planes[:3] += self._start
        planes[3] = reflectivity.reshape(-1)
        # A point's 16 bytes are moved as one number, much faster than as a structure.
        points = cv2.merge(list(planes)).reshape(-1).view(np.complex128)
        valid: npt.NDArray[np.bool_] = ranges.reshape(-1) > 0
        found: npt.NDArray[Any] = points[valid].view(LIDAR)
        return found

    def _destaggered(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values with each row shifted, so that a column has the same azimuth in all rows."""
        columns = np.arange(values.shape[1])
        places = (columns[None, :] - self._shifts[:, None]) % values.shape[1]
        return np.take_along_axis(values, places, axis=1)
