"""Messages of transforms, labels and events in ROS 2."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

from recorder.archives.context import PackingContext
from recorder.archives.mcap.ros2_names import MAP, ODOM, RIG, Names, ros_text, ros_topic, tokens
from recorder.archives.mcap.session_records import first_ns, label_feed, packed_poses
from recorder.archives.mcap.topics import Entry, Feed
from recorder.archives.shared_options import UnplacedKeys
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import LOG as LOG_TYPE
from recorder.formats.ros2.definitions import MARKERS, TRANSFORMS
from recorder.formats.ros2.messages import (
    CUBE,
    DELETE_ALL,
    Header,
    Log,
    Marker,
    TransformStamped,
)
from recorder.perception.geometry import Floats, quaternion_of_rotation
from recorder.perception.labels import (
    BOXES,
    LabelFile,
    Lines,
    box_files,
    cuboid_files,
    number_rows,
    texts,
)
from recorder.perception.poses import EarthPoses, PoseSource
from recorder.perception.stream_contents import holds_messages
from recorder.session.events import format_event

LOG: Final = ros_topic("/rosout", LOG_TYPE, depth=1000, latched=True)
_INFO, _WARN, _ERROR = 20, 30, 40
_LEVELS: Final = {"lost": _WARN, "fault": _ERROR}
_COLORS: Final = {
    "car": (0.2, 0.6, 1.0, 0.4),
    "truck": (0.6, 0.4, 1.0, 0.4),
    "cyclist": (1.0, 0.7, 0.1, 0.4),
    "pedestrian": (1.0, 0.3, 0.3, 0.4),
}
_OTHER: Final = (0.7, 0.7, 0.7, 0.3)


def choose_world(poses: PoseSource | None) -> str:
    """Return the frame of the world: ``map`` for poses on Earth, else ``odom``, which may drift."""
    return MAP if isinstance(poses, EarthPoses) else ODOM


def static_feed(context: PackingContext, names: Names) -> Feed | None:
    """Return the feed of ``/tf_static``: places of the sensors, once; None if none is known."""
    places = {
        name: sensor.pose
        for name, sensor in context.calibration.sensors.items()
        if sensor.pose is not None
    }
    for stream in context.streams:
        if stream.name not in places and not holds_messages(stream):
            context.notes.add("not in the calibration: no transform", stream.name)
    if not places:
        return None
    topic = ros_topic("/tf_static", TRANSFORMS, depth=1, latched=True)
    t_ns = first_ns(context)

    def entries() -> Generator[Entry]:
        header = Header(t_ns, RIG)
        made = tuple(_transform(header, names.frame(name), pose) for name, pose in places.items())
        yield Entry(topic.name, t_ns, t_ns, 0, encode_message(TRANSFORMS, made))

    return Feed("", [topic], entries, "calibration")


def pose_feed(context: PackingContext, poses: PoseSource, names: Names) -> Feed:
    """Return the feed of ``/tf``: every pose of the rig in the world."""
    topic = ros_topic("/tf", TRANSFORMS, depth=100)
    about = poses.describe()
    if not about["measured"]:
        context.notes.add(str(about.get("note") or about["source"]), "poses")

    def entries() -> Generator[Entry]:
        number = 0
        for times_ns, matrices in packed_poses(context, poses):
            quaternions = quaternion_of_rotation(matrices[:, :3, :3]).tolist()
            rows = zip(times_ns.tolist(), matrices[:, :3, 3].tolist(), quaternions, strict=True)
            for t_ns, place, turn in rows:
                header = Header(t_ns, names.world)
                made = TransformStamped(header, RIG, tuple(place), tuple(turn))
                yield Entry(topic.name, t_ns, t_ns, number, encode_message(TRANSFORMS, (made,)))
                number += 1

    return Feed("", [topic], entries, "poses")


def _transform(header: Header, child: str, matrix: Floats) -> TransformStamped:
    turn = quaternion_of_rotation(matrix[:3, :3]).tolist()
    return TransformStamped(header, child, tuple(matrix[:3, 3].tolist()), tuple(turn))


def label_feeds(context: PackingContext, names: Names) -> list[Feed]:
    """Return the feeds of ``/labels/NAME``: boxes in space; note boxes in pictures, left out."""
    with context.locate_errors("labels"):
        files = cuboid_files(context.session.path)
        pictures = box_files(context.session.path)
    for file in pictures:
        context.notes.add(
            "boxes in pictures have no message of ROS 2: left out", f"{BOXES}/{file.name}"
        )
    parts = tokens(file.name for file in files)
    return [_label_feed(context, f"/labels/{parts[file.name]}", file, names) for file in files]


def _label_feed(context: PackingContext, name: str, file: LabelFile, names: Names) -> Feed:
    ids: dict[str, int] = {}
    return label_feed(
        context,
        ros_topic(name, MARKERS),
        file,
        lambda t_ns, lines: encode_message(MARKERS, markers(t_ns, lines, ids, names)),
        UnplacedKeys(),
    )


def markers(t_ns: int, lines: Lines, ids: dict[str, int], names: Names) -> tuple[Marker, ...]:
    """Return the boxes of one time as cubes, after a marker that deletes all earlier cubes.

    A cube's namespace is the class, its text the track.

    Args:
        t_ns: the time, epoch ns.
        lines: the labels.
        ids: numbers of the tracks; new ones are added.
        names: names of the frames.

    Raises:
        FormatError: a label is invalid; the message names its place.
    """
    columns = zip(
        texts(lines, "track"),
        texts(lines, "class"),
        texts(lines, "frame"),
        number_rows(lines, "center_m", 3).tolist(),
        number_rows(lines, "size_m", 3).tolist(),
        number_rows(lines, "quaternion_xyzw", 4).tolist(),
        strict=True,
    )
    cubes = [
        Marker(
            Header(t_ns, names.frame(frame)),
            ros_text(kind),
            ids.setdefault(track, len(ids)),
            CUBE,
            position=tuple(center),
            orientation=tuple(turn),
            scale=tuple(size),
            color=_COLORS.get(kind, _OTHER),
            text=ros_text(track),
        )
        for track, kind, frame, center, size, turn in columns
    ]
    return Marker(Header(t_ns, RIG), action=DELETE_ALL), *cubes


def event_entry(event: Mapping[str, Any]) -> Entry:
    """Return an event of the session as a message of ``/rosout``, named after the stream."""
    t_ns, kind = int(event["t_ns"]), str(event.get("type") or "")
    text = format_event(event)
    log = Log(
        t_ns,
        _LEVELS.get(kind, _INFO),
        ros_text(str(event.get("stream") or "recorder")),
        ros_text(text if kind in text else f"{kind}: {text}"),
    )
    return Entry(LOG.name, t_ns, t_ns, 0, encode_message(LOG_TYPE, log))
