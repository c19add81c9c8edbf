"""Draft of a config that records the topics of a middleware.

A process of its own lists the topics (`drivers.kit.topics`): the recorder imports neither drivers
nor a middleware.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from recorder.common.errors import DeviceError, UsageError

SCHEMES: Final = ("ros2", "zenoh")
_TYPES: Final[Mapping[str, str]] = {
    "sensor_msgs/msg/CompressedImage": "camera",
    "sensor_msgs/msg/Image": "camera",
    "foxglove_msgs/msg/CompressedVideo": "camera",
    "sensor_msgs/msg/Imu": "imu",
    "sensor_msgs/msg/NavSatFix": "gnss",
    "can_msgs/msg/Frame": "can",
    "ros2_socketcan_msgs/msg/FdFrame": "can",
    "sensor_msgs/msg/PointCloud2": "lidar",
    "ouster_sensor_msgs/msg/PacketMsg": "ouster",
    "ouster_ros/msg/PacketMsg": "ouster",
    "pandar_msgs/msg/PandarScan": "hesai",
    "velodyne_msgs/msg/VelodyneScan": "velodyne",
    "rslidar_msg/msg/RslidarPacket": "robosense",
    "rslidar_msgs/msg/RslidarScan": "robosense",
    "robosense_msgs/msg/RobosenseScan": "robosense",
}
_LIDAR_PACKETS: Final = "/lidar_packets"
_BESIDE: Final = ("imu_packets", "metadata")  # topics that `ouster` takes with its packets
_OF_ROS: Final = frozenset({"/parameter_events", "/rosout"})
_TIMEOUT_S: Final = 60.0


def list_topics(source: str) -> list[dict[str, Any]]:
    """Return the topics of ``ros2:DOMAIN`` or ``zenoh:...``, as `drivers.kit.topics` lists them.

    Raises:
        UsageError: the source has a wrong form.
        DeviceError: the middleware is missing or not reached; the text says why.
    """
    if source.partition(":")[0] not in SCHEMES or "#" in source:
        raise UsageError(f"--draft: {source!r:.100} is not ros2:DOMAIN or zenoh:[LOCATOR/]DOMAIN")
    command = [sys.executable, "-m", "drivers.kit.topics", source]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    lines = ran.stdout.splitlines()
    if ran.returncode or not lines:
        reasons = ran.stderr.strip().splitlines() or ["the list of topics ended without a word"]
        raise DeviceError(f"--draft: {reasons[-1]}")
    found: list[dict[str, Any]] = json.loads(lines[-1])
    return found


def make_draft(source: str, topics: Sequence[Mapping[str, Any]], drivers: Collection[str]) -> str:
    """Return a config (YAML) that records all topics.

    Args:
        source: as in `list_topics`.
        topics: as `list_topics` returns them.
        drivers: names of the drivers that are there.
    """
    return "\n".join(_make_lines(source, topics, drivers)) + "\n"


def _make_lines(
    source: str, topics: Sequence[Mapping[str, Any]], drivers: Collection[str]
) -> Iterator[str]:
    names = {topic["name"] for topic in topics}
    taken: set[str] = set()
    rest: list[Mapping[str, Any]] = []
    sensors: list[str] = []
    for topic in topics:
        driver, name = _choose_driver(topic, names, drivers), topic["name"]
        if driver == "":
            continue
        if driver is None:
            rest.append(topic)
            continue
        sensor = _name_sensor(name, taken)
        place = json.dumps(f"{source}#{_write_topic(source, name)}")
        sensors.append(f"  {sensor}: {{driver: {driver}, source: {place}}}  # {_describe(topic)}")
    yield f"# Topics of {source}, as they were found; see docs/ros2.md."
    yield "version: 1"
    yield "record_format: {enabled: false}"
    yield "sensors:"
    yield from sensors
    if rest and "topics" in drivers:
        yield f"  {_name_sensor('/topics', taken)}:"
        yield "    driver: topics"
        yield f"    source: {json.dumps(source)}"
        yield "    topics:"
        for topic in rest:
            yield f"      - {json.dumps(topic['name'])}  # {_describe(topic)}"
    else:
        for topic in rest:
            yield f"  # not recorded: {topic['name']}: {_describe(topic)}"


def _choose_driver(
    topic: Mapping[str, Any], names: Collection[str], drivers: Collection[str]
) -> str | None:
    """Return a topic's driver; None: the driver of any topic; "": another topic's takes it."""
    name = topic["name"]
    space, _, last = name.rpartition("/")
    if name in _OF_ROS or (last in _BESIDE and space + _LIDAR_PACKETS in names):
        return ""
    driver = _TYPES.get(topic["type"])
    if driver == "ouster" and not name.endswith(_LIDAR_PACKETS):
        return None
    return driver if driver in drivers else None


def _name_sensor(topic: str, taken: set[str]) -> str:
    """Return a sensor's name that is not taken, and take it."""
    text = re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")[:48]
    base = text if re.match("[a-z]", text) else f"topic_{text}"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name


def _write_topic(source: str, name: str) -> str:
    """Return a topic as an address has it: without a domain, a key of EdgeFirst's devices."""
    scheme, _, place = source.partition(":")
    has_domain = scheme == "ros2" or place.rpartition("/")[2].isdigit()
    return name if has_domain else f"rt{name}"


def _describe(topic: Mapping[str, Any]) -> str:
    rate_hz = topic.get("rate_hz")
    count = topic["publishers"]
    parts = [
        topic["type"],
        "silent" if rate_hz is None else f"{rate_hz:.3g} Hz",
        f"{count} publisher{'s' if count != 1 else ''}",
    ]
    if problem := topic.get("problem"):
        parts.append(" ".join(str(problem).split()))
    return ", ".join(parts)
