"""Bags of ROS 2 written and read by rosbags: a program for an environment of its own.

    .venv-rosbags/bin/python tests/conformance/topic_bags.py write mcap|sqlite3 FOLDER
    .venv-rosbags/bin/python tests/conformance/topic_bags.py read FOLDER

Both print a JSON object a message: topic, type, hash of the type, log time, SHA-256 of its bytes.
It needs rosbags and numpy, and nothing of the recorder.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import rosbags.highlevel
import rosbags.rosbag2
import rosbags.typesys

ROSBAGS: Any = rosbags  # another version than the one of the tests
STORE = ROSBAGS.typesys.get_typestore(ROSBAGS.typesys.Stores.ROS2_KILTED)
START_NS = 1_780_000_000_000_000_000
KINDS = {
    "/chat": "std_msgs/msg/String",
    "/odometry/filtered": "nav_msgs/msg/Odometry",
    "/plan": "nav_msgs/msg/Path",
    "/map": "nav_msgs/msg/OccupancyGrid",
}


def message(kind: str, number: int) -> Any:
    types, rng = STORE.types, random.Random(number)
    stamp = types["builtin_interfaces/msg/Time"](number, number % 1_000_000_000)
    header = types["std_msgs/msg/Header"](stamp, "map")
    point = types["geometry_msgs/msg/Point"](*(rng.random() for _ in range(3)))
    pose = types["geometry_msgs/msg/Pose"](point, types["geometry_msgs/msg/Quaternion"](0, 0, 0, 1))
    if kind == "std_msgs/msg/String":
        return types[kind](f"{number} \u00e9" * rng.randrange(9))
    if kind == "nav_msgs/msg/Path":
        stamped = types["geometry_msgs/msg/PoseStamped"](header, pose)
        return types[kind](header, [stamped] * rng.randrange(5))
    if kind == "nav_msgs/msg/OccupancyGrid":
        about = types["nav_msgs/msg/MapMetaData"](stamp, 0.1, 100, 40, pose)
        cells = np.frombuffer(rng.randbytes(4000), np.int8)
        return types[kind](header, about, cells)
    unknown = np.array([rng.random() for _ in range(36)])
    moved = types["geometry_msgs/msg/Vector3"](1.0, 0.0, 0.0)
    twist = types["geometry_msgs/msg/Twist"](moved, moved)
    return types[kind](
        header,
        "base_link",
        types["geometry_msgs/msg/PoseWithCovariance"](pose, unknown),
        types["geometry_msgs/msg/TwistWithCovariance"](twist, unknown),
    )


def write(storage: str, folder: Path) -> None:
    plugin = ROSBAGS.rosbag2.StoragePlugin[storage.upper()]
    with ROSBAGS.rosbag2.Writer(folder, version=9, storage_plugin=plugin) as writer:
        connections = {
            topic: writer.add_connection(topic, kind, typestore=STORE)
            for topic, kind in KINDS.items()
        }
        for number in range(400):
            topic = list(KINDS)[number % len(KINDS)]
            data = STORE.serialize_cdr(message(KINDS[topic], number), KINDS[topic])
            writer.write(connections[topic], START_NS + number * 2_500_000, data)


def read(folder: Path) -> None:
    with ROSBAGS.highlevel.AnyReader([folder]) as reader:
        for connection, t_ns, data in reader.messages():
            reader.deserialize(data, connection.msgtype)
            digest = hashlib.sha256(data).hexdigest()
            about = connection.topic, connection.msgtype, connection.digest
            print(json.dumps([*about, t_ns, digest]))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], Path(sys.argv[3]))
    read(Path(sys.argv[-1]))
