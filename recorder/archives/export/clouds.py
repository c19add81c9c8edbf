"""Exports of samples as points: returns of a lidar's sweep, detections of a radar's frame."""

from __future__ import annotations

from recorder.archives.export.made import Made, SampleFiles
from recorder.formats.pcd import encode_pcd
from recorder.perception.lidar.points import SweepPoints
from recorder.perception.radar.detections import RadarDetections
from recorder.perception.radar.geometry import RadarGeometry
from recorder.session.playback import recorded_spec
from recorder.session.stream import Stream


class SweepClouds(SampleFiles):
    """The points of a lidar, as `recorder.perception.lidar.points.POINT`.

    Args:
        stream: a stream whose kind is ``lidar``.

    Raises:
        FormatError: ``lidar.json`` cannot be used.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._sweeps = SweepPoints(recorded_spec(stream))

    def make(self, index: int) -> list[Made]:
        t_ns = int(self._stream.times(index, index + 1)[0])
        start_ns, points = self._sweeps.points(
            self._stream.sample(index, self._sweeps.channels), t_ns
        )
        return [Made("", encode_pcd(points, f"t: ns after {start_ns} ns since 1970-01-01 UTC"))]


class DetectionClouds(SampleFiles):
    """The detections of a radar, as `recorder.perception.radar.detections.DETECTION`.

    Args:
        stream: a stream whose kind is ``radar``.
        geometry: of the radar.
    """

    def __init__(self, stream: Stream, geometry: RadarGeometry) -> None:
        self._radar = RadarDetections(
            geometry, lambda index: stream.sample(index, ["iq"])["iq"], stream.t_ns
        )

    def make(self, index: int) -> list[Made]:
        return [Made("", encode_pcd(self._radar.points(index)))]

    def remarks(self) -> list[str]:
        return self._radar.remarks()
