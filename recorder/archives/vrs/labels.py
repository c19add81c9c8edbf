"""Streams of a session's poses and labels in a VRS file (docs/vrs.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recorder.archives.context import PackingContext
from recorder.archives.vrs.metadata_records import clock_offset_ns
from recorder.formats.vrs import (
    Array,
    DataLayout,
    RecordableType,
    RecordLayout,
    StreamSpec,
    String,
    Value,
)
from recorder.formats.vrs.layout import float64, int64
from recorder.perception.geometry import quaternion_of_rotation
from recorder.perception.labels import BOXES, CUBOIDS, LabelFile, cuboid_files
from recorder.perception.poses import PoseSource, find_poses
from recorder.session.reader import Session
from recorder.session.vrs.files import STREAM_TAG
from recorder.session.vrs.records import CONFIGURATION, DATA, ConfigurationData

Record = tuple[int, bytes]
"""Stamp in epoch ns, and data."""


class PoseData(DataLayout):
    """Pose of the rig in the world."""

    t_mono_ns = Value(int64, "t_mono_ns", unit="ns")
    position = Array(float64, "position_m", 3, unit="m")
    quaternion = Array(float64, "quaternion_xyzw", 4, description="rig to world")


class LabelData(DataLayout):
    """Labels of one time, as the lines of their file."""

    t_mono_ns = Value(int64, "t_mono_ns", unit="ns")
    labels = String("labels", description="a list of labels, JSON")


@dataclass
class Poses:
    """Poses of a processed sensor; recorded pose sensors are streams of their own."""

    context: PackingContext
    source: PoseSource
    count: int = 0

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def about(self) -> str:
        """The source of the poses, JSON."""
        return json.dumps(self.source.describe())

    def spec(self, session: str) -> StreamSpec:
        return _spec(RecordableType.POSE_DATA, "pose", self.name, session, PoseData, self.about)

    def records(self) -> Iterator[Record]:
        offset_ns = clock_offset_ns(self.context.session)
        for t_ns, poses in self.source.blocks():
            quaternions = quaternion_of_rotation(poses[:, :3, :3])
            rows = zip(t_ns.tolist(), poses[:, :3, 3], quaternions, strict=True)
            for stamp, position, quaternion in rows:
                if self.context.contains(stamp):
                    self.count += 1
                    data = PoseData(
                        t_mono_ns=stamp - offset_ns, position=position, quaternion=quaternion
                    )
                    yield stamp, data.encode()


@dataclass
class Labels:
    """Labels of a file, one record for each time."""

    context: PackingContext
    folder: str
    file: LabelFile
    count: int = 0

    @property
    def name(self) -> str:
        return f"{self.folder}/{self.file.name}"

    @property
    def about(self) -> str:
        """The file's header, JSON."""
        return json.dumps(dict(self.file.header))

    def spec(self, session: str) -> StreamSpec:
        kind = RecordableType.ANNOTATION_DATA
        return _spec(kind, "labels", self.name, session, LabelData, self.about)

    def records(self) -> Iterator[Record]:
        offset_ns = clock_offset_ns(self.context.session)
        for t_ns, lines in self.file.by_time():
            if self.context.contains(t_ns):
                self.count += 1
                labels = json.dumps([label for _, label in lines])
                yield t_ns, LabelData(t_mono_ns=t_ns - offset_ns, labels=labels).encode()


Extra = Poses | Labels
"""A stream besides the sensors', with the number of its records so far."""


def describe_extra(extra: Extra, session: Session, t_ns: int) -> ConfigurationData:
    """Return the configuration of a stream of poses or labels, without which readers complain."""
    offset_ns = clock_offset_ns(session)
    return ConfigurationData(
        stream=extra.name,
        t_mono_ns=t_ns - offset_ns,
        clock_offset_ns=offset_ns,
        settings=extra.about,
    )


def find_extras(context: PackingContext) -> list[Extra]:
    """Return the streams of a session's poses and of its label files."""
    extras: list[Extra] = []
    source = find_poses(context.session.whole, context.calibration)
    if source.name.startswith("_"):
        extras.append(Poses(context, source))
    path = context.session.path
    extras += [Labels(context, CUBOIDS, file) for file in cuboid_files(path)]
    boxes = context.find_boxes(context.session.streams)
    return extras + [Labels(context, BOXES, file) for file in boxes]


def _spec(
    kind: RecordableType, flavor: str, name: str, session: str, layout: Any, header: str
) -> StreamSpec:
    return StreamSpec(
        kind,
        f"recorder/{flavor}",
        {CONFIGURATION: RecordLayout(ConfigurationData), DATA: RecordLayout(layout)},
        {STREAM_TAG: name, "header": header},
        serial=f"{session}/{name}",
    )
