"""File of an import's choices: what a recording does not say, or says wrongly.

::

    rig: base_link                     # frame of the rig
    world: map                         # frame of the world; default: the one without a parent
    poses: /odometry/filtered          # topic of the rig's poses; none: no poses
    topics:
      /front/image: {sensor: front, frame: front_optical}
      /debug/image: {skip: true}
      /imu/raw: {driver: topics}
      /ouster/lidar_packets: {options: {metadata: os1.json}}
    mounts:
      front_optical: {parent: base_link, translation_m: [1, 0, 2], quaternion_xyzw: [0, 0, 0, 1]}

All keys are optional.  A mount replaces the transforms of its frame in the recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from recorder.config.options import Option, OptionTable, check_options
from recorder.config.yaml_lines import read_yaml
from recorder.perception.calibration import parse_pose
from recorder.perception.geometry import Floats

NO_POSES: Final = "none"
_MAP: Final[OptionTable] = {
    "rig": Option("str", "", "frame of the rig"),
    "world": Option("str", "", "frame of the world"),
    "poses": Option("str", "", "topic of the rig's poses; none: no poses"),
    "topics": Option("map", {}, "by topic: sensor, driver, frame, options, skip"),
    "mounts": Option("map", {}, "by frame: parent, translation_m, quaternion_xyzw"),
}
_TOPIC: Final[OptionTable] = {
    "sensor": Option("str", None, "name of the sensor; default: made of the topic"),
    "driver": Option("str", None, "driver that plays the topic"),
    "frame": Option("str", None, "frame of the topic's messages"),
    "options": Option("map", {}, "options of the driver"),
    "skip": Option("bool", False, "leave the topic out"),
}
_MOUNT: Final[OptionTable] = {
    "parent": Option("str", "", "frame that the mount is in; default: the rig"),
    "translation_m": Option("list", None, "x, y, z in the parent", items="float"),
    "quaternion_xyzw": Option("list", None, "frame to parent", items="float"),
}


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Choice for one topic.

    Attributes:
        sensor: name of its sensor; None: made of the topic.
        driver: driver that plays it; None: by its type.
        frame: frame of its messages; None: the one that they name.
        options: options of the driver.
        skip: the topic is left out.
    """

    sensor: str | None = None
    driver: str | None = None
    frame: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    skip: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    """Fixed pose of a frame, f8 [4, 4]; `parent` "" is the rig."""

    frame: str
    parent: str
    pose: Floats


@dataclass(frozen=True, slots=True)
class ImportMap:
    """Choices for an import; see the module.

    Attributes:
        rig, world: frames; "": by the recording.
        poses: topic of the rig's poses; "": by the recording; `NO_POSES`: none.
        topics: choices by topic.
        mounts: fixed poses of frames.
    """

    rig: str = ""
    world: str = ""
    poses: str = ""
    topics: Mapping[str, TopicChoice] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()

    def of(self, topic: str) -> TopicChoice:
        """Return the choice for a topic; an empty one where there is none."""
        return self.topics.get(topic) or TopicChoice()


def read_import_map(path: Path) -> ImportMap:
    """Read a file of choices.

    Raises:
        ConfigError: a value is invalid; names file, line and key.
    """
    document = read_yaml(path)
    values = check_options(_MAP, document.values, "", document.fail)
    topics = {}
    for topic, entry in values["topics"].items():
        found = check_options(_TOPIC, entry, f"topics.{topic}", document.fail)
        topics[topic] = TopicChoice(**found)
    mounts: list[Mount] = []
    for frame, entry in values["mounts"].items():
        key = f"mounts.{frame}"
        found = check_options(_MOUNT, entry, key, document.fail)
        pose = parse_pose(document, key, found)
        if not np.isfinite(pose).all():
            raise document.fail(f"{key}.translation_m", "needs finite numbers")
        mounts.append(Mount(frame, found["parent"], pose))
    return ImportMap(values["rig"], values["world"], values["poses"], topics, tuple(mounts))
