"""Tools that read one stream, each made when it is first needed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.common.errors import SessionError
from recorder.perception.calibration import Calibration
from recorder.perception.camera.camera_pictures import Pictures
from recorder.perception.frames import Kind, cloud_channel, kind_of, mean_period_ns
from recorder.perception.lidar.clouds import make_point_source, make_range_source
from recorder.perception.lidar.points import (
    PointSource,
    RangeSource,
    convert_points,
    point_times,
    stack_xyz,
)
from recorder.perception.radar.detections import RadarDetections
from recorder.perception.sensor_files import radar_geometry
from recorder.session.playback import recorded_spec
from recorder.session.stream import Stream


class StreamTools:
    """Readers of a stream's pictures and points.

    Args:
        stream: the stream.
        calibration: of its session.
    """

    def __init__(self, stream: Stream, calibration: Calibration) -> None:
        self.stream, self._calibration = stream, calibration

    @cached_property
    def kind(self) -> Kind:
        """The kind of the sensor."""
        return kind_of(self.stream)

    @cached_property
    def pictures(self) -> Pictures:
        """A camera's pictures."""
        self._require("camera", "pictures")
        return Pictures(self.stream)

    def rgb(self, index: int) -> npt.NDArray[np.uint8]:
        """Decode a picture, uint8 [height, width, 3], RGB."""
        return np.asarray(cv2.cvtColor(self.pictures.picture(index), cv2.COLOR_BGR2RGB), np.uint8)

    def ranges_m(self, index: int) -> npt.NDArray[np.float32]:
        """Read a sweep's ranges, float32 [beams, columns], m; 0: no return.

        An Ouster's are destaggered; others are in the order of their firing.
        """
        self._require("lidar", "ranges")
        if cloud_channel(self.stream) is not None:
            raise SessionError(f"{self.stream.path}: has no ranges: its lidar records points")
        sample = self._upright.read_sample(self.stream, index)
        return np.ascontiguousarray(self._upright.image(self._upright.ranges_m(sample)))

    def points(self, index: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], int]:
        """Read the points of a sweep or of a radar's frame.

        Returns:
            float32 [n, 3], m, in the sensor's frame; int64 [n], epoch ns, the points' times; and
            the sample's stamp.
        """
        t_ns = int(self.stream.times(index, index + 1)[0])
        if self.kind == "radar":
            found = self._detections.points(index)
            times = np.full(len(found), t_ns, np.int64)
        else:
            self._require("lidar", "points")
            start_ns, found = self._sweeps.read(self.stream, index)
            times = point_times(start_ns, found)
        return stack_xyz(found), times, t_ns

    def cloud(self, index: int) -> npt.NDArray[Any]:
        """Read the points of a sweep with all their fields, and with ``t_ns`` for ``t``."""
        self._require("lidar", "points")
        start_ns, found = self._sweeps.read(self.stream, index)
        fields = [(name, found.dtype[name].str) for name in found.dtype.names or () if name != "t"]
        if not self._sweeps.timed:
            return convert_points(found, np.dtype(fields))
        made = np.empty(len(found), [*fields, ("t_ns", "<i8")])
        for name, _ in fields:
            made[name] = found[name]
        made["t_ns"] = point_times(start_ns, found)
        return made

    @cached_property
    def period_ns(self) -> int:
        """Time from sweep to sweep."""
        hz = self._sweeps.frequency_hz if self.kind == "lidar" else None
        return mean_period_ns(self.stream, hz)

    @cached_property
    def _sweeps(self) -> PointSource:
        return make_point_source(recorded_spec(self.stream))

    @cached_property
    def _upright(self) -> RangeSource:
        return make_range_source(recorded_spec(self.stream), destaggered=True)

    @cached_property
    def _detections(self) -> RadarDetections:
        def read(index: int) -> npt.NDArray[Any]:
            return self.stream.sample(index, ["iq"])["iq"]

        geometry = radar_geometry(self.stream, self._calibration)
        return RadarDetections(geometry, read, self.stream.t_ns)

    def _require(self, kind: Kind, what: str) -> None:
        if self.kind != kind:
            raise SessionError(f"{self.stream.path}: has no {what}: it is no {kind}'s stream")
