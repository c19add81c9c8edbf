"""Files of a radar that is recorded as detections and cubes, such as one of another dataset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from recorder.archives.context import PackingContext
from recorder.archives.edgefirst.sensors import SampleFiles, SensorFiles, encode_pcd
from recorder.archives.sample_workers import WorkerContext
from recorder.codecs.rays import POINT_FIELDS
from recorder.formats.edgefirst.streams import CUBE, CUBE_TEXT
from recorder.formats.png import compress_png, cube_picture
from recorder.formats.zip.writer import Payload
from recorder.perception.frames import mean_period_ns
from recorder.perception.geometry import Floats
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.points import Values
from recorder.session.playback import recorded_spec
from recorder.session.stream import Stream

_LEFT_OUT: Final = frozenset({"t", "return"})


def is_cube(stream: Stream) -> bool:
    """Return whether a stream has a radar's cubes: i2 [sequence, rx, range, Doppler, 2]."""
    entry = stream.meta.get(CUBE, {})
    return entry.get("type") == "i2" and len(entry.get("shape", ())) == 5


class DetectionFiles(SensorFiles):
    """Files of a radar's detections: ``.radar.pcd``."""

    def __init__(self, context: PackingContext, stream: Stream) -> None:
        super().__init__(context, stream)
        self.period_ns = mean_period_ns(stream)
        self.encoder = partial(DetectionEncoder, stream.name, self.pose)

    def describe(self) -> dict[str, Any]:
        """Return the radar's entry in the dataset's metadata."""
        return {"name": self.name, "points": "as recorded"}

    def remarks(self) -> list[str]:
        """Return no remark: the detections are packed as they are."""
        return []


class DetectionEncoder:
    """Encoder of detections, in a worker: all their fields, under EdgeFirst's names.

    Args:
        name: name of the stream.
        pose: ``T_sensor_rig``, f8 [4, 4], or None.
        worker: the worker's context.
    """

    def __init__(self, name: str, pose: Floats | None, worker: WorkerContext) -> None:
        self._stream, self._pose = worker.session.streams[name], pose
        self._source = make_point_source(recorded_spec(self._stream))

    def __call__(self, indices: Sequence[int]) -> list[SampleFiles]:
        return [self._encode(index) for index in indices]

    def _encode(self, index: int) -> SampleFiles:
        _, points = self._source.read(self._stream, index)
        return SampleFiles({"radar.pcd": Payload(encode_pcd(_rename(points), self._pose))})


def _rename(points: Values) -> Values:
    """Return points with EdgeFirst's names of what NCore and this recorder name otherwise."""
    names = [name for name in points.dtype.names or () if name not in _LEFT_OUT]
    renamed = {name: POINT_FIELDS.get(name, name) for name in names}
    fields = [(renamed[name], points.dtype[name].str) for name in names]
    made = np.empty(len(points), np.dtype(fields))
    for name in names:
        made[renamed[name]] = points[name]
    if "snr_db" in names and "power_db" in names:
        made["noise"] = points["power_db"] - points["snr_db"]
    return made


class CubeFiles(SensorFiles):
    """Files of a radar's recorded cubes: ``.radar.png``."""

    GROUP = 1

    def __init__(self, context: PackingContext, stream: Stream) -> None:
        super().__init__(context, stream)
        level: int = context.options["png_level"]
        self.encoder = partial(CubeEncoder, stream.name, level)


class CubeEncoder:
    """Encoder of cubes, in a worker.

    Args:
        name: name of the stream.
        level: of the compression.
        worker: the worker's context.
    """

    def __init__(self, name: str, level: int, worker: WorkerContext) -> None:
        self._stream, self._level = worker.session.streams[name], level
        text = recorded_spec(self._stream).settings.get("cube")
        self._text = {CUBE_TEXT: str(text)} if text else {}

    def __call__(self, indices: Sequence[int]) -> list[SampleFiles]:
        return [self._encode(index) for index in indices]

    def _encode(self, index: int) -> SampleFiles:
        cube = self._stream.sample(index, [CUBE])[CUBE]
        return SampleFiles(
            {"radar.png": compress_png(cube_picture(cube), self._level, text=self._text)}
        )
