"""Recordings of others as sensors of a session: topics, drivers and names.

found = sensors_of(bag)
found.sensors          # [ImportedSensor(name="front", driver="camera", topic="/front/image")]
found.left_out         # {"/scan": "no driver plays 'sensor_msgs/msg/LaserScan' ('cdr')"}
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from recorder.common.errors import UsageError
from recorder.formats.bags.bag import Bag
from recorder.formats.bags.contents import UnknownTopicError, find_content, is_copy
from recorder.formats.bags.messages import Kind

DRIVERS: Final[Mapping[Kind, str]] = {
    Kind.PICTURES: "camera",
    Kind.IMU: "xsens",
    Kind.PACKETS: "ouster",
    Kind.CLOUDS: "lidar",
    Kind.POSITIONS: "gnss",
    Kind.CAN_FRAMES: "can",
}
"""The driver that plays each kind of topic."""

CALIBRATION: Final = frozenset({Kind.TRANSFORMS, Kind.CAMERA_MODEL})
"""Kinds that contribute to a calibration."""

_DEFAULT_NAMES: Final = {
    Kind.PICTURES: "camera",
    Kind.IMU: "imu",
    Kind.PACKETS: "lidar",
    Kind.CLOUDS: "lidar",
    Kind.POSITIONS: "gnss",
    Kind.CAN_FRAMES: "bus",
}
_ENDINGS: Final[Mapping[Kind, frozenset[str]]] = {
    Kind.PICTURES: frozenset(
        {"image", "image_raw", "image_color", "image_rect", "image_rect_color", "compressed"}
        | {"image_compressed", "raw"}
    ),
    Kind.IMU: frozenset({"data", "data_raw", "raw"}),
    Kind.PACKETS: frozenset({"lidar_packets"}),
    Kind.CLOUDS: frozenset({"points", "points_raw", "point_cloud", "pointcloud", "cloud"}),
    Kind.POSITIONS: frozenset({"fix", "navsatfix"}),
    Kind.CAN_FRAMES: frozenset({"frames", "from_can_bus", "received_messages"}),
}
_SUFFIXES: Final = {Kind.PACKETS: "_imu", Kind.IMU: "_gnss"}  # of a driver's further stream
_BESIDE: Final = ("imu_packets", "zone_packets", "telemetry_packets")
_SENSOR: Final = re.compile(r"[a-z][a-z0-9_]{0,55}")
_LONGEST_NAME: Final = 50
_NO_SOURCE: Final = "a source cannot name the topic, because the name has '#' or control characters"


@dataclass(frozen=True, slots=True)
class ImportedSensor:
    """A sensor of the session that a recording is imported into.

    Attributes:
        name: the sensor's.
        driver: the driver that plays it.
        topic: the topic that is played.
        messages: number of messages of that topic.
    """

    name: str
    driver: str
    topic: str
    messages: int


@dataclass(slots=True)
class Findings:
    """The sensors and other topics found in a recording.

    Attributes:
        sensors: in the order of the topics.
        left_out: by topic, why it is not imported.
        for_calibration: topics that contribute to a calibration.
        counts_losses: the recording has a topic with its losses, which become the session's.
    """

    sensors: list[ImportedSensor] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    for_calibration: list[str] = field(default_factory=list)
    counts_losses: bool = False


def sensors_of(
    bag: Bag,
    wanted: Mapping[str, str | None] | None = None,
    unread: Mapping[str, str] | None = None,
) -> Findings:
    """Find the sensors of a recording.

    Args:
        bag: the recording.
        wanted: the topics to play, with the names of their sensors; None as a name: made of the
            topic.  None: all topics, without those whose samples another topic has.
        unread: topics that cannot be read, with the reason: they are left out.

    Raises:
        UsageError: a wanted topic is not there or cannot be played, or a name cannot be a sensor's.
    """
    kinds: dict[str, Kind] = {}
    found = Findings()
    for topic in sorted(bag.topics):
        if "#" in topic or not topic.isprintable():
            found.left_out[topic] = _NO_SOURCE
            continue
        try:
            kinds[topic] = find_content(bag.topics[topic]).kind
        except UnknownTopicError as error:
            found.left_out[topic] = str(error)
    unread = unread or {}
    played: dict[str, str | None] = {}
    for topic, kind in kinds.items():
        if topic in unread:
            found.left_out[topic] = unread[topic]
        elif kind in CALIBRATION:
            found.for_calibration.append(topic)
        elif kind is Kind.LOSSES:
            found.counts_losses = True
        elif kind not in DRIVERS:
            if not _is_metadata(topic, kinds):
                found.left_out[topic] = f"no driver plays {kind}"
        elif topic.endswith(_BESIDE):
            if not topic.endswith("imu_packets"):
                found.left_out[topic] = "its packets are not read"
            elif not _has_lidar(topic, kinds):
                found.left_out[topic] = "packets of an IMU without those of its lidar"
        elif not bag.topics[topic].count:
            found.left_out[topic] = "has no message"
        else:
            played[topic] = None
    if wanted is None:
        copies = _find_copies(bag, played, kinds)
        found.left_out |= copies
        played = {topic: name for topic, name in played.items() if topic not in copies}
    else:
        _check_wanted(wanted, bag, played, found.left_out)
        for topic in played.keys() - wanted.keys():
            found.left_out[topic] = "was not selected"
        played = {topic: wanted[topic] for topic in played if topic in wanted}
    names = _assign_names(played, kinds)
    found.sensors = [
        ImportedSensor(names[topic], DRIVERS[kinds[topic]], topic, bag.topics[topic].count)
        for topic in played
    ]
    return found


def _find_copies(bag: Bag, played: Collection[str], kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Return the topics whose samples another played topic has, with the reason to skip them.

    Of raw and compressed pictures, the topic with more messages is played; with equal counts, the
    compressed one.
    """
    copies: dict[str, str] = {}
    for topic in played:
        compressed = f"{topic}/compressed"
        if kinds[topic] is kinds.get(compressed) is Kind.PICTURES and compressed in played:
            raw_count, count = bag.topics[topic].count, bag.topics[compressed].count
            copy, other = (compressed, topic) if raw_count > count else (topic, compressed)
            more = "" if raw_count == count else ", which has more of them"
            copies[copy] = f"its pictures are those of {other}{more}"
        elif kinds[topic] is Kind.POSITIONS:
            positions = [name for name in played if kinds[name] is Kind.POSITIONS]
            if is_copy(bag, topic, positions):
                copies[topic] = f"its positions are those of {topic.removesuffix('/fix')}"
    return copies


def played_topics(bag: Bag, found: Findings) -> set[str]:
    """Return the topics that a recording's sensors play: their own, and those of lidars' IMUs."""
    topics = {sensor.topic for sensor in found.sensors}
    lidars = {s.topic.rpartition("/")[0] for s in found.sensors if s.driver == "ouster"}
    return topics | {
        topic
        for topic in bag.topics
        if topic.endswith("imu_packets") and topic.rpartition("/")[0] in lidars
    }


def _check_wanted(
    wanted: Mapping[str, str | None],
    bag: Bag,
    played: Collection[str],
    left_out: Mapping[str, str],
) -> None:
    for topic, name in wanted.items():
        if topic not in bag.topics:
            known = ", ".join(sorted(played)) or "none"
            raise UsageError(f"{bag.path}: has no topic {topic!r:.200}; those to import: {known}")
        if topic not in played:
            reason = left_out.get(topic, "is used with the others, and is not played by itself")
            raise UsageError(f"{bag.path}: topic {topic!r:.200} cannot be imported: {reason}")
        if name is not None and not _SENSOR.fullmatch(name):
            raise UsageError(
                f"{name!r:.100} cannot be a sensor's name: use a lower-case letter, then up to 55 "
                "lower-case letters, digits and '_'"
            )
    names = [name for name in wanted.values() if name is not None]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"two topics would be the sensor {min(twice)!r}")


def _has_lidar(topic: str, kinds: Mapping[str, Kind]) -> bool:
    """Return whether packets of a lidar are beside a topic."""
    namespace = topic.rpartition("/")[0]
    return any(
        kind is Kind.PACKETS
        and other.rpartition("/")[0] == namespace
        and not other.endswith(_BESIDE)
        for other, kind in kinds.items()
    )


def _is_metadata(topic: str, kinds: Mapping[str, Kind]) -> bool:
    """Return whether a topic is the metadata of a lidar, which its driver reads."""
    return kinds[topic] is Kind.TEXT and "metadata" in topic and _has_lidar(topic, kinds)


def _assign_names(played: Mapping[str, str | None], kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Return a unique name for each topic: the given one, or one derived from the topic."""
    names = {topic: name for topic, name in played.items() if name is not None}
    taken = set(names.values())
    taken |= {name + suffix for name in taken for suffix in _SUFFIXES.values()}
    for topic in played:  # of lidars first: their IMUs are streams with names of their own
        if topic not in names and kinds[topic] is Kind.PACKETS:
            names[topic] = _reserve_name(_derive_name(topic, kinds[topic]), taken)
    for topic in played:
        if topic not in names:
            names[topic] = _reserve_name(_derive_name(topic, kinds[topic]), taken)
    return names


def _derive_name(topic: str, kind: Kind) -> str:
    """Return a sensor's name, such as ``front`` for ``/front/image_raw/compressed``.

    ``/imu/data`` becomes ``imu``.
    """
    parts = [part for part in topic.lower().split("/") if part]
    while parts and parts[-1] in _ENDINGS[kind]:
        parts.pop()
    name = re.sub(r"[^a-z0-9]+", "_", "_".join(parts)).strip("_")[:_LONGEST_NAME].strip("_")
    if not name:
        return _DEFAULT_NAMES[kind]
    return name if name[0].isalpha() else f"{_DEFAULT_NAMES[kind]}_{name}"


def _reserve_name(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is in use; reserve it and its further streams' names."""
    free, number = name, 1
    while {free, *(free + suffix for suffix in _SUFFIXES.values())} & taken:
        number += 1
        free = f"{name}_{number}"
    taken |= {free, *(free + suffix for suffix in _SUFFIXES.values())}
    return free
