"""Metadata of a ROS 2 bag: ``NAME/`` with ``metadata.yaml`` and ``NAME_0.mcap`` (rosbag2).

Keys and their order are those of rosbag2 (``rosbag2_storage/yaml.hpp``, ``qos.cpp``) for version 5,
which ROS 2 Humble writes and every later distribution reads. The channels of the MCAP file have
their topic's quality of service in the metadata ``offered_qos_profiles``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

VERSION: Final = 5
_INFINITE: Final = {"sec": 9223372036, "nsec": 854775807}  # RMW_DURATION_INFINITE
_KEEP_LAST, _RELIABLE, _AUTOMATIC = 1, 1, 1
_BEST_EFFORT = 2
_TRANSIENT_LOCAL, _VOLATILE = 1, 2
_DEEPEST: Final = 100_000


def qos(depth: int, *, latched: bool = False, reliable: bool = True) -> str:
    """Make a topic's ``offered_qos_profiles``: one publisher that keeps the last messages.

    Args:
        depth: number of messages that are kept.
        latched: whether late subscribers get the kept messages (transient local), as for
            ``/tf_static``.
        reliable: whether lost messages are sent again; else best effort.
    """
    profile = {
        "history": _KEEP_LAST,
        "depth": depth,
        "reliability": _RELIABLE if reliable else _BEST_EFFORT,
        "durability": _TRANSIENT_LOCAL if latched else _VOLATILE,
        "deadline": dict(_INFINITE),
        "lifespan": dict(_INFINITE),
        "liveliness": _AUTOMATIC,
        "liveliness_lease_duration": dict(_INFINITE),
        "avoid_ros_namespace_conventions": False,
    }
    return _yaml([profile])


@dataclass(frozen=True, slots=True)
class OfferedQos:
    """Policies of a topic's publisher.

    Attributes:
        depth: number of messages that it keeps.
        is_reliable: whether lost messages are sent again.
        is_latched: whether late subscribers get the kept messages (transient local).
    """

    depth: int = 10
    is_reliable: bool = True
    is_latched: bool = False


def parse_qos(text: str) -> OfferedQos:
    """Parse ``offered_qos_profiles``, which rosbag2 writes with numbers or, since Jazzy, names.

    A topic with several publishers is latched or reliable if all of them are.  What a profile
    lacks, or a text that is none, is taken as the default of ROS 2.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    profiles = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    if not profiles:
        return OfferedQos()
    depths = [each.get("depth") for each in profiles]
    known = [depth for depth in depths if isinstance(depth, int) and 0 < depth <= _DEEPEST]
    reliable = [each.get("reliability") not in (_BEST_EFFORT, "best_effort") for each in profiles]
    latched = [each.get("durability") in (_TRANSIENT_LOCAL, "transient_local") for each in profiles]
    return OfferedQos(max(known, default=10), all(reliable), all(latched))


@dataclass(frozen=True)
class BagTopic:
    """Topic of a bag.

    Attributes:
        name: name, such as ``/camera/image/compressed``.
        type: type, such as ``sensor_msgs/msg/CompressedImage``.
        qos: profile from `qos`.
        count: number of its messages.
        type_hash: hash of its type (REP-2011); "": unknown.
    """

    name: str
    type: str
    qos: str
    count: int
    type_hash: str = ""


def bag_metadata(file: str, topics: Sequence[BagTopic], start_ns: int, end_ns: int) -> bytes:
    """Make the content of ``metadata.yaml`` for a bag with one MCAP file.

    Args:
        file: name of the MCAP file in the bag's folder.
        topics: all topics.
        start_ns, end_ns: log times of the first and the last message, epoch ns.
    """
    count = sum(topic.count for topic in topics)
    start = {"nanoseconds_since_epoch": start_ns}
    duration = {"nanoseconds": end_ns - start_ns}
    information = {
        "version": VERSION,
        "storage_identifier": "mcap",
        "duration": duration,
        "starting_time": start,
        "message_count": count,
        "topics_with_message_count": [
            {
                "topic_metadata": {
                    "name": topic.name,
                    "type": topic.type,
                    "serialization_format": "cdr",
                    "offered_qos_profiles": topic.qos,
                    **({"type_description_hash": topic.type_hash} if topic.type_hash else {}),
                },
                "message_count": topic.count,
            }
            for topic in topics
        ],
        "compression_format": "",
        "compression_mode": "",
        "relative_file_paths": [file],
        "files": [
            {
                "path": file,
                "starting_time": dict(start),
                "duration": dict(duration),
                "message_count": count,
            }
        ],
    }
    return _yaml({"rosbag2_bagfile_information": information}).encode()


def _yaml(values: Any) -> str:
    return str(yaml.safe_dump(values, sort_keys=False, default_flow_style=False, width=1 << 20))
