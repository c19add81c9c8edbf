"""Messages of frames, labels and events.

The frame of a sensor has the sensor's name, and the parent ``rig``; where poses of the rig are
known, the parent of ``rig`` is ``world``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from foxglove.messages import (
    Color,
    CubePrimitive,
    FrameTransform,
    FrameTransforms,
    ImageAnnotations,
    KeyValuePair,
    Log,
    LogLevel,
    Point2,
    PointsAnnotation,
    PointsAnnotationType,
    Pose,
    Quaternion,
    SceneEntity,
    SceneEntityDeletion,
    SceneEntityDeletionType,
    SceneUpdate,
    TextAnnotation,
    Vector3,
)

from recorder.perception.calibration import Calibration
from recorder.perception.foxglove.channels import schema_of, stamp
from recorder.perception.geometry import Floats, quaternion_of_rotation
from recorder.perception.labels import QUALITIES, Lines, number_rows, texts

RIG: Final = "rig"
WORLD: Final = "world"
TRANSFORMS: Final = schema_of(FrameTransforms)
LABELS: Final = schema_of(SceneUpdate)
BOXES: Final = schema_of(ImageAnnotations)
LOG: Final = schema_of(Log)

_COLORS: Final = {
    "car": Color(r=0.2, g=0.6, b=1.0, a=0.4),
    "truck": Color(r=0.6, g=0.4, b=1.0, a=0.4),
    "cyclist": Color(r=1.0, g=0.7, b=0.1, a=0.4),
    "pedestrian": Color(r=1.0, g=0.3, b=0.3, a=0.4),
}
_OTHER: Final = Color(r=0.7, g=0.7, b=0.7, a=0.3)
_LINE_PX: Final = 2.0
_TEXT_PX: Final = 16.0
_LEVELS: Final = {"lost": LogLevel.Warning, "fault": LogLevel.Error}

Times = npt.NDArray[np.int64]
Place = tuple[str, str, Floats]
"""Parent frame, child frame, and f8 [4, 4] from the child to the parent."""


def sensor_places(calibration: Calibration) -> list[Place]:
    """Return the places of the sensors in the rig, as far as they are known."""
    return [
        (RIG, name, sensor.pose)
        for name, sensor in calibration.sensors.items()
        if sensor.pose is not None
    ]


def transforms(t_ns: int, places: Iterable[Place]) -> bytes:
    """Encode FrameTransforms of places at a time, epoch ns."""
    made = [
        _create_transform(
            t_ns, parent, child, matrix[:3, 3], quaternion_of_rotation(matrix[:3, :3])
        )
        for parent, child, matrix in places
    ]
    return FrameTransforms(transforms=made).encode()


def rig_transforms(t_ns: Times, poses: Floats) -> Iterator[tuple[int, bytes]]:
    """Yield times and encoded FrameTransforms of poses of the rig in the world.

    Args:
        t_ns: int64 [n], epoch ns.
        poses: f8 [n, 4, 4], rig to world.
    """
    turns = quaternion_of_rotation(poses[:, :3, :3])
    for time_ns, place, turn in zip(t_ns.tolist(), poses[:, :3, 3], turns, strict=True):
        transform = _create_transform(time_ns, WORLD, RIG, place, turn)
        yield time_ns, FrameTransforms(transforms=[transform]).encode()


def label_update(t_ns: int, lines: Lines) -> bytes:
    """Encode a SceneUpdate of the boxes of one time (`labels.LabelFile.by_time`).

    The update replaces all earlier boxes of its topic.

    Raises:
        FormatError: a label is wrong; the message names its place.
    """
    columns = zip(
        texts(lines, "track"),
        texts(lines, "frame"),
        number_rows(lines, "center_m", 3),
        number_rows(lines, "size_m", 3),
        number_rows(lines, "quaternion_xyzw", 4),
        texts(lines, "class"),
        map(_describe_qualities, lines),
        strict=True,
    )
    entities = [_create_entity(t_ns, *values) for values in columns]
    gone = SceneEntityDeletion(timestamp=stamp(t_ns), type=SceneEntityDeletionType.All)
    return SceneUpdate(deletions=[gone], entities=entities).encode()


def box_annotations(t_ns: int, lines: Lines) -> bytes:
    """Encode ImageAnnotations of the boxes in a picture (``_labels/CAMERA.jsonl``).

    A box is a closed line around its pixels, with its class and track as text.  In both, the
    picture's upper left pixel has its middle at (0, 0) in the file, and at (0.5, 0.5) here.

    Raises:
        FormatError: a label is wrong; the message names its place.
    """
    time = stamp(t_ns)
    outlines, names = [], []
    columns = zip(
        texts(lines, "track"),
        texts(lines, "class"),
        number_rows(lines, "box_px", 4).tolist(),
        map(_describe_qualities, lines),
        strict=True,
    )
    for track, kind, (left, top, width, height), qualities in columns:
        left, top = left + 0.5, top + 0.5
        corners = (
            (left, top),
            (left + width, top),
            (left + width, top + height),
            (left, top + height),
        )
        color = _COLORS.get(kind, _OTHER)
        outlines.append(
            PointsAnnotation(
                timestamp=time,
                type=PointsAnnotationType.LineLoop,
                points=[Point2(x=x, y=y) for x, y in corners],
                outline_color=color,
                thickness=_LINE_PX,
                metadata=[
                    KeyValuePair(key="class", value=kind),
                    KeyValuePair(key="track", value=track),
                    *qualities,
                ],
            )
        )
        names.append(
            TextAnnotation(
                timestamp=time,
                position=Point2(x=left, y=top),
                text=f"{kind} {track}",
                font_size=_TEXT_PX,
                text_color=color,
            )
        )
    return ImageAnnotations(timestamp=time, points=outlines, texts=names).encode()


def log_message(t_ns: int, kind: str, stream: str | None, text: str) -> bytes:
    """Encode a Log of an event.

    Args:
        t_ns: its time, epoch ns.
        kind: its type, such as ``lost`` or ``mark``.
        stream: the stream that it is about; None: the recorder.
        text: what happened, for people.
    """
    log = Log(
        timestamp=stamp(t_ns),
        level=_LEVELS.get(kind, LogLevel.Info),
        message=f"{kind}: {text}" if kind and kind not in text else text,
        name=stream or "recorder",
    )
    return log.encode()


def _create_transform(
    t_ns: int, parent: str, child: str, place: npt.ArrayLike, turn: npt.ArrayLike
) -> FrameTransform:
    return FrameTransform(
        timestamp=stamp(t_ns),
        parent_frame_id=parent,
        child_frame_id=child,
        translation=_create_vector(place),
        rotation=_create_quaternion(turn),
    )


def _create_entity(
    t_ns: int,
    track: str,
    frame: str,
    center: Floats,
    size: Floats,
    turn: Floats,
    kind: str,
    qualities: list[KeyValuePair],
) -> SceneEntity:
    cube = CubePrimitive(
        pose=Pose(position=_create_vector(center), orientation=_create_quaternion(turn)),
        size=_create_vector(size),
        color=_COLORS.get(kind, _OTHER),
    )
    return SceneEntity(
        timestamp=stamp(t_ns),
        frame_id=frame,
        id=track,
        frame_locked=True,
        metadata=[KeyValuePair(key="class", value=kind), *qualities],
        cubes=[cube],
    )


def _describe_qualities(line: tuple[str, Mapping[str, Any]]) -> list[KeyValuePair]:
    """Return a label's optional keys as metadata: texts as they are, other values as JSON."""
    _, label = line
    if QUALITIES.isdisjoint(label):
        return []
    return [
        KeyValuePair(key=key, value=value if isinstance(value, str) else json.dumps(value))
        for key, value in label.items()
        if key in QUALITIES
    ]


def _create_vector(values: npt.ArrayLike) -> Vector3:
    x, y, z = np.asarray(values, np.float64).tolist()
    return Vector3(x=x, y=y, z=z)


def _create_quaternion(xyzw: npt.ArrayLike) -> Quaternion:
    x, y, z, w = np.asarray(xyzw, np.float64).tolist()
    return Quaternion(x=x, y=y, z=z, w=w)
