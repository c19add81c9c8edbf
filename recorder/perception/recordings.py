"""Recordings of others as sensors of a session: topics, drivers and names.

found = sensors_of(bag)
found.sensors          # [ImportedSensor(name="front", driver="camera", topic="/front/image")]
found.left_out         # {"/scan": "no driver plays 'sensor_msgs/msg/LaserScan' ('cdr')"}
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recorder.common.errors import UsageError
from recorder.formats.bags.bag import Bag
from recorder.formats.bags.contents import UnknownTopicError, find_content, is_copy
from recorder.formats.bags.messages import ABOUT_DEVICE, Kind
from recorder.formats.ros2.definitions import (
    PANDAR_SCAN,
    ROBOSENSE_INFO,
    ROBOSENSE_SCAN,
    RSLIDAR_OLD_PACKET,
    RSLIDAR_OLD_SCAN,
    RSLIDAR_PACKET,
    VELODYNE_SCAN,
)
from recorder.perception.import_map import ImportMap

ANY: Final = "topics"
"""The driver that plays messages of any type, as they are."""

DRIVERS: Final[Mapping[str, tuple[str, ...]]] = {
    Kind.PICTURES: ("camera",),
    Kind.IMU: ("imu", "xsens"),
    Kind.PACKETS: ("ouster",),
    Kind.CLOUDS: ("lidar",),
    Kind.POSITIONS: ("gnss",),
    Kind.CAN_FRAMES: ("can",),
}
"""Drivers that play a kind of topic; the first one that is installed plays it."""

LIDAR_DRIVERS: Final[Mapping[str, str]] = {
    PANDAR_SCAN: "hesai",
    VELODYNE_SCAN: "velodyne",
    **dict.fromkeys((ROBOSENSE_SCAN, ROBOSENSE_INFO, RSLIDAR_PACKET), "robosense"),
    **dict.fromkeys((RSLIDAR_OLD_SCAN, RSLIDAR_OLD_PACKET), "robosense"),
}
"""Drivers that play packets of a lidar, by the type of the messages; other types name no vendor."""

PLAYERS: Final = frozenset(
    [name for names in DRIVERS.values() for name in names] + [*LIDAR_DRIVERS.values(), "livox"]
)
"""All drivers that decode messages."""

USES: Final = {
    Kind.TRANSFORMS: "mounts and poses",
    Kind.CAMERA_MODEL: "camera models",
    Kind.POSES: "poses",
    Kind.LOSSES: "losses",
}
"""What the import makes of topics that no sensor plays."""

CALIBRATION: Final = frozenset({Kind.TRANSFORMS, Kind.CAMERA_MODEL, Kind.POSES})
"""Kinds that contribute to a calibration or to poses."""

_DEFAULT_NAMES: Final[Mapping[str, str]] = {
    Kind.PICTURES: "camera",
    Kind.IMU: "imu",
    Kind.PACKETS: "lidar",
    Kind.CLOUDS: "lidar",
    Kind.POSITIONS: "gnss",
    Kind.CAN_FRAMES: "bus",
    Kind.LIDAR_PACKETS: "lidar",
}
_ENDINGS: Final[Mapping[str, frozenset[str]]] = {
    Kind.PICTURES: frozenset(
        {"image", "image_raw", "image_color", "image_rect", "image_rect_color", "compressed"}
        | {"image_compressed", "raw", "compressed_video", "h264", "h265", "video"}
    ),
    Kind.IMU: frozenset({"data", "data_raw", "raw"}),
    Kind.PACKETS: frozenset({"lidar_packets"}),
    Kind.CLOUDS: frozenset({"points", "points_raw", "point_cloud", "pointcloud", "cloud"}),
    Kind.POSITIONS: frozenset({"fix", "navsatfix"}),
    Kind.CAN_FRAMES: frozenset({"frames", "from_can_bus", "received_messages"}),
    Kind.LIDAR_PACKETS: frozenset(
        {"packets", "pandar_packets", "velodyne_packets", "rslidar_packets", "robosense_packets"}
    ),
}
# Of a driver's further stream.
_SUFFIXES: Final[Mapping[str, str]] = {Kind.PACKETS: "_imu", Kind.IMU: "_gnss"}
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
        topic: the topic that is played; "": the driver `ANY` plays several.
        messages: number of messages of its topics.
        topics: all its topics.
    """

    name: str
    driver: str
    topic: str
    messages: int
    topics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", self.topics or (self.topic,))


@dataclass(slots=True)
class Findings:
    """The sensors and other topics found in a recording.

    Attributes:
        sensors: in the order of the topics.
        left_out: by topic, why it is not imported.
        uses: by topic that no sensor plays, what is made of it.
        for_calibration: topics that contribute to a calibration or to poses.
        counts_losses: the recording has a topic with its losses, which become the session's.
    """

    sensors: list[ImportedSensor] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    uses: dict[str, str] = field(default_factory=dict)
    for_calibration: list[str] = field(default_factory=list)
    counts_losses: bool = False


def sensors_of(
    bag: Bag,
    wanted: Mapping[str, str | None] | None = None,
    unread: Mapping[str, str] | None = None,
    drivers: Collection[str] = PLAYERS,
    choices: ImportMap | None = None,
) -> Findings:
    """Find the sensors of a recording.

    Args:
        bag: the recording.
        wanted: the topics to play, with the names of their sensors; None as a name: made of the
            topic.  None: all topics, without those whose samples another topic has.
        unread: topics that the driver of their type cannot read, with the reason.
        drivers: the drivers that are installed.
        choices: the import's choices.

    Raises:
        UsageError: a wanted topic is not there or cannot be played, a name cannot be a sensor's, or
            a driver is not installed.
    """
    found, choices = Findings(), choices or ImportMap()
    keys = _find_keys(bag, found)
    played: dict[str, str] = {}  # topics with their drivers
    for topic, key in keys.items():
        entry = choices.of(topic)
        if entry.skip:
            found.left_out[topic] = "is skipped by the file of choices"
            continue
        if key in USES:
            found.uses[topic] = USES[Kind(key)]
        if key in CALIBRATION:
            found.for_calibration.append(topic)
        found.counts_losses |= key is Kind.LOSSES
        if entry.driver is not None:
            played[topic] = _check_driver(topic, entry.driver, drivers)
        elif key in USES:
            continue
        elif topic in (unread or {}):
            found.left_out[topic] = (unread or {})[topic]
        elif not bag.topics[topic].count:
            found.left_out[topic] = "has no message"
        elif _is_metadata(topic, keys):
            found.uses[topic] = "metadata of the lidar beside it"
        elif key is Kind.PACKETS and topic.endswith(_BESIDE):
            _sort_beside(topic, keys, found)
        elif key is Kind.LIDAR_PACKETS and topic.endswith(ABOUT_DEVICE):
            found.uses[topic] = "metadata of the lidar beside it"
        elif driver := next((d for d in _list_drivers(bag, topic, key) if d in drivers), ""):
            played[topic] = driver
        elif topic not in found.left_out:
            found.left_out[topic] = _explain(bag, topic)
    copies = {} if wanted is not None else _find_copies(bag, played, keys)
    raw = _find_raw(bag, found, copies, choices) if ANY in drivers else []
    found.left_out |= copies
    played = {topic: driver for topic, driver in played.items() if topic not in copies}
    played |= dict.fromkeys(raw, ANY)
    if wanted is not None:
        _check_wanted(wanted, bag, played, found.left_out)
        for topic in played.keys() - wanted.keys():
            found.left_out[topic] = "was not selected"
        played = {topic: driver for topic, driver in played.items() if topic in wanted}
    given = {topic: (wanted or {}).get(topic) or choices.of(topic).sensor for topic in played}
    _check_names([name for name in given.values() if name is not None])
    together = [t for t, driver in played.items() if driver == ANY and given[t] is None]
    names = _assign_names({t: n for t, n in given.items() if t not in together}, keys)
    for topic, name in names.items():
        count = bag.topics[topic].count
        found.sensors.append(ImportedSensor(name, played[topic], topic, count))
    if together:
        name = _reserve_name(ANY, "", set(names.values()))
        count = sum(bag.topics[topic].count for topic in together)
        found.sensors.append(ImportedSensor(name, ANY, "", count, tuple(together)))
    for topic in played:
        found.left_out.pop(topic, None)
    return found


def _list_drivers(bag: Bag, topic: str, key: str) -> tuple[str, ...]:
    """Return the drivers that play a topic."""
    if key is Kind.LIDAR_PACKETS:
        driver = LIDAR_DRIVERS.get(bag.topics[topic].schema_name)
        return () if driver is None else (driver,)
    return DRIVERS.get(key, ())


def _find_keys(bag: Bag, found: Findings) -> dict[str, str]:
    """Return the kind of each topic, "" if unknown; topics that no source can name are left out."""
    keys: dict[str, str] = {}
    for topic in sorted(bag.topics):
        if "#" in topic or not topic.isprintable():
            found.left_out[topic] = _NO_SOURCE
            continue
        try:
            keys[topic] = find_content(bag.topics[topic]).kind
        except UnknownTopicError:
            keys[topic] = ""
    return keys


def _check_driver(topic: str, driver: str, drivers: Collection[str]) -> str:
    if driver not in drivers:
        known = ", ".join(sorted(drivers))
        raise UsageError(f"topics.{topic}: no driver {driver!r:.80}; those installed: {known}")
    return driver


def _sort_beside(topic: str, keys: Mapping[str, str], found: Findings) -> None:
    """Sort a topic with packets of an Ouster that are not its sweeps."""
    if not topic.endswith("imu_packets"):
        found.left_out[topic] = "its packets are not read"
    elif not _has_lidar(topic, keys):
        found.left_out[topic] = "packets of an IMU without those of its lidar"
    else:
        found.uses[topic] = "the IMU of the lidar beside it"


def _explain(bag: Bag, topic: str) -> str:
    """Explain why no installed driver plays a topic."""
    try:
        kind = find_content(bag.topics[topic]).kind
    except UnknownTopicError as error:
        return str(error)
    wanted = f": needs the driver {DRIVERS[kind][0]!r}" if kind in DRIVERS else ""
    return f"no driver plays {kind}{wanted}"


def _find_raw(bag: Bag, found: Findings, copies: Collection[str], choices: ImportMap) -> list[str]:
    """Return the topics that are played as they are: all that would be left out, or only used.

    What is used is whole in the session as well: a calibration holds a part of the transforms.
    """
    topics = {*found.left_out, *found.for_calibration} - set(copies)
    return sorted(
        topic
        for topic in topics
        if topic.isprintable() and bag.topics[topic].count and not choices.of(topic).skip
    )


def _find_copies(bag: Bag, played: Collection[str], keys: Mapping[str, str]) -> dict[str, str]:
    """Return the topics whose samples another played topic has, with the reason to skip them.

    Of raw and compressed pictures, the topic with more messages is played; with equal counts, the
    compressed one.
    """
    copies: dict[str, str] = {}
    for topic in played:
        compressed = f"{topic}/compressed"
        if keys[topic] is keys.get(compressed) is Kind.PICTURES and compressed in played:
            raw_count, count = bag.topics[topic].count, bag.topics[compressed].count
            copy, other = (compressed, topic) if raw_count > count else (topic, compressed)
            more = "" if raw_count == count else ", which has more of them"
            copies[copy] = f"its pictures are those of {other}{more}"
        elif keys[topic] is Kind.POSITIONS:
            positions = [name for name in played if keys[name] is Kind.POSITIONS]
            if is_copy(bag, topic, positions):
                copies[topic] = f"its positions are those of {topic.removesuffix('/fix')}"
    return copies


def played_topics(bag: Bag, found: Findings) -> set[str]:
    """Return the topics that a recording's sensors play: their own, and those of lidars' IMUs."""
    topics = {topic for sensor in found.sensors for topic in sensor.topics}
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
    for topic in wanted:
        if topic not in bag.topics:
            known = ", ".join(sorted(played)) or "none"
            raise UsageError(f"{bag.path}: has no topic {topic!r:.200}; those to import: {known}")
        if topic not in played:
            reason = left_out.get(topic, "is used with the others, and is not played by itself")
            raise UsageError(f"{bag.path}: topic {topic!r:.200} cannot be imported: {reason}")
    _check_names([name for name in wanted.values() if name is not None])


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not _SENSOR.fullmatch(name):
            raise UsageError(
                f"{name!r:.100} cannot be a sensor's name: use a lower-case letter, then up to 55 "
                "lower-case letters, digits and '_'"
            )
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"two topics would be the sensor {min(twice)!r}")


def _has_lidar(topic: str, keys: Mapping[str, str]) -> bool:
    """Return whether packets of a lidar are beside a topic."""
    namespace = topic.rpartition("/")[0]
    return any(
        key is Kind.PACKETS
        and other.rpartition("/")[0] == namespace
        and not other.endswith(_BESIDE)
        for other, key in keys.items()
    )


def _is_metadata(topic: str, keys: Mapping[str, str]) -> bool:
    """Return whether a topic is the metadata of a lidar, which its driver reads."""
    return keys[topic] is Kind.TEXT and "metadata" in topic and _has_lidar(topic, keys)


def _assign_names(played: Mapping[str, str | None], keys: Mapping[str, str]) -> dict[str, str]:
    """Return a unique name for each topic: the given one, or one derived from the topic."""
    names = {topic: name for topic, name in played.items() if name is not None}
    taken = {each for topic, name in names.items() for each in _list_streams(name, keys[topic])}
    for topic in played:  # of lidars first: their IMUs are streams with names of their own
        if topic not in names and keys[topic] is Kind.PACKETS:
            names[topic] = _reserve_name(_derive_name(topic, keys[topic]), keys[topic], taken)
    for topic in played:
        if topic not in names:
            names[topic] = _reserve_name(_derive_name(topic, keys[topic]), keys[topic], taken)
    return names


def _derive_name(topic: str, key: str) -> str:
    """Return a sensor's name, such as ``front`` for ``/front/image_raw/compressed``.

    ``/imu/data`` becomes ``imu``.
    """
    default = _DEFAULT_NAMES.get(key, "topic")
    parts = [part for part in topic.lower().split("/") if part]
    while parts and parts[-1] in _ENDINGS.get(key, ()):
        parts.pop()
    name = re.sub(r"[^a-z0-9]+", "_", "_".join(parts)).strip("_")[:_LONGEST_NAME].strip("_")
    if not name:
        return default
    return name if name[0].isalpha() else f"{default}_{name}"


def _reserve_name(name: str, key: str, taken: set[str]) -> str:
    """Return the name, with a number if it is in use; reserve it and its further streams' names."""
    free, number = name, 1
    while _list_streams(free, key) & taken:
        number += 1
        free = f"{name}_{number}"
    taken |= _list_streams(free, key)
    return free


def _list_streams(name: str, key: str) -> set[str]:
    """Return the names of a sensor's streams."""
    return {name} | ({name + _SUFFIXES[key]} if key in _SUFFIXES else set())
