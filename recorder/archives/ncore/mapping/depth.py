"""Depth labels of a camera's pictures from a lidar's points, moved to the time of the picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.ncore.format.labels import LabelDescriptor, LabelType, Quantization, Raw
from recorder.archives.ncore.format.sequence import SequenceWriter
from recorder.archives.ncore.mapping.camera_labels import LabelItem, pack_items
from recorder.archives.ncore.mapping.labels import stays
from recorder.archives.ncore.mapping.sensors import Camera
from recorder.archives.shared_options import choose_poses
from recorder.common.errors import SessionError
from recorder.config.options import Option
from recorder.perception.ego_motion import EgoMotion
from recorder.perception.frames import Times, kind_of, mean_period_ns
from recorder.perception.geometry import Floats, apply, invert
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.points import find_returns, point_times, stack_xyz
from recorder.perception.projection import Projection, draw_depth
from recorder.session.playback import recorded_spec
from recorder.session.stream import Stream

DEPTH = Option("str", None, "lidar whose points become labels depth.z of the pictures")
"""The option ``depth``."""
_STEP_M = 1 / 256
_FARTHEST_M = 65_535 * _STEP_M


def pack_depth(
    context: PackingContext, sequence: SequenceWriter, cameras: Mapping[str, Camera]
) -> int:
    """Pack depth labels of the calibrated cameras, by the option ``depth``; return their number.

    Raises:
        SessionError: the session has no such lidar.
    """
    name = context.options["depth"]
    if name is None:
        return 0
    lidar = context.session.streams.get(name)
    if lidar is None or kind_of(lidar) != "lidar":
        lidars = (stream.name for stream in context.streams if kind_of(stream) == "lidar")
        there = ", ".join(lidars) or "none"
        raise SessionError(f"depth: {context.session.path} has no lidar {name!r}; has: {there}")
    count = 0
    for camera in cameras.values():
        known = context.calibration.of(camera.name)
        if known.model is None or known.pose is None or known.resolution != camera.size:
            context.notes.add("not calibrated for its pictures: no depth labels", camera.name)
            continue
        label_type = LabelType("DEPTH", "z", "METERS")
        encoding = Raw("float32", (), Quantization("u2", _STEP_M))
        descriptor = LabelDescriptor(camera.name, label_type, encoding, "AUTOLABEL")
        instance, subject = f"{descriptor.instance}@{name}", f"depth of {camera.name}"
        if stays(context, sequence, "camera_labels", instance, subject):
            continue
        metadata = {"lidar": name, "no_point": 0.0, "farthest_m": _FARTHEST_M}
        make = partial(sequence.camera_labels, descriptor, instance, metadata=metadata)
        projector = _Projector(context, camera, lidar)
        count += pack_items(context, subject, camera, projector.items(), make)
        if projector.missing:
            text = f"{projector.missing} pictures without a sweep near them: no depth labels"
            context.notes.add(text, camera.name)
    return count


class _Projector:
    """Projection of a lidar's points into a camera's pictures.

    Attributes:
        missing: number of pictures without a sweep within a period.
    """

    def __init__(self, context: PackingContext, camera: Camera, lidar: Stream) -> None:
        self._camera, self._lidar = camera, lidar
        self._context, self.missing = context, 0
        self._source = make_point_source(recorded_spec(lidar))
        self._projection = Projection(context.calibration, camera.name)
        pose = context.calibration.of(camera.name).pose
        assert pose is not None
        self._from_rig = invert(pose)
        self._to_rig = context.find_pose(lidar)
        self._period_ns = mean_period_ns(lidar, self._source.frequency_hz)
        self._motion = EgoMotion(choose_poses(context, [lidar]))
        self._sweep: tuple[int, Floats, Times] | None = None

    def items(self) -> Iterator[LabelItem]:
        """Yield a label for each packed picture that has a sweep near it."""
        stream = self._camera.stream
        for index in range(len(stream)):
            if self._camera.ends.find(index) is None:
                continue
            t_ns = int(stream.times(index, index + 1)[0])
            sweep = self._lidar.nearest(t_ns, self._period_ns)
            if sweep is None:
                self.missing += 1
                continue
            metadata = {"sample": index + stream.first, "sweep": sweep + self._lidar.first}
            place = (self._lidar.name, sweep)
            yield LabelItem(index, place, partial(self._project, t_ns, sweep), metadata)

    def _project(self, t_ns: int, sweep: int) -> npt.NDArray[Any]:
        """Return the depth of the nearest point of each pixel, f4 [height, width], m."""
        points, times = self._read(sweep)
        stamp_ns = int(self._lidar.times(sweep, sweep + 1)[0])
        motion = self._motion.around(t_ns, stamp_ns, self._period_ns)
        if motion is not None:
            points = motion.move(points, times)
        in_camera = apply(self._from_rig, points)
        near = in_camera[in_camera[:, 2] < _FARTHEST_M]
        places, inside = self._projection.pixels(near)
        depth_m = draw_depth(places[inside], near[inside, 2], self._camera.size)
        return depth_m.astype(np.float32)

    def _read(self, sweep: int) -> tuple[Floats, Times]:
        """Return points in the rig, each at its own time, and these times; keeps the last sweep."""
        if self._sweep is None or self._sweep[0] != sweep:
            start_ns, points = self._source.read(self._lidar, sweep)
            points = points[find_returns(points)]
            in_rig = apply(self._to_rig, stack_xyz(points).astype(np.float64))
            self._sweep = sweep, in_rig, point_times(start_ns, points)
        return self._sweep[1:]
