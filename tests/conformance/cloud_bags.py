"""Bags of point clouds, by rosbags alone: a program for an environment of its own.

    .venv-rosbags/bin/python tests/conformance/cloud_bags.py write CLOUDS.json FOLDER sqlite|mcap
    .venv-rosbags/bin/python tests/conformance/cloud_bags.py read FOLDER

It writes the clouds that the file describes, serialized by rosbags, and prints a JSON object for
each message that rosbags reads.  It needs rosbags and numpy, and nothing of the recorder.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

TOPIC = "/lidar/points"
LIVOX = "livox_ros_driver2/msg/CustomMsg"
POINT = "livox_ros_driver2/msg/CustomPoint"
TEXTS = {
    POINT: "uint32 offset_time\nfloat32 x\nfloat32 y\nfloat32 z\nuint8 reflectivity\nuint8 tag\n"
    "uint8 line\n",
    LIVOX: "std_msgs/Header header\nuint64 timebase\nuint32 point_num\nuint8 lidar_id\n"
    "uint8[3] rsvd\nCustomPoint[] points\n",
}
_KINDS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


def make_store() -> Any:
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    for name, text in TEXTS.items():
        store.register(get_types_from_msg(text, name))
    return store


def make_message(store: Any, cloud: dict[str, Any]) -> Any:
    types = store.types
    stamp = types["builtin_interfaces/msg/Time"](*divmod(cloud["stamp_ns"], 1_000_000_000))
    header = types["std_msgs/msg/Header"](stamp, "lidar_link")
    if cloud["type"] == LIVOX:
        points = [types[POINT](*point) for point in cloud["points"]]
        zeros = np.zeros(3, np.uint8)
        return types[LIVOX](header, cloud["timebase"], len(points), 1, zeros, points)
    fields = [types["sensor_msgs/msg/PointField"](*each) for each in cloud["fields"]]
    data = np.frombuffer(base64.b64decode(cloud["data"]), np.uint8)
    return types["sensor_msgs/msg/PointCloud2"](
        header, cloud["height"], cloud["width"], fields, False, cloud["step"],
        cloud["step"] * cloud["width"], data, False,
    )  # fmt: skip


def write(source: Path, folder: Path, storage: str) -> None:
    rosbag2: Any = importlib.import_module(
        "rosbags.rosbag2"
    )  # a newer one than beside the recorder
    plugins = rosbag2.StoragePlugin
    plugin = plugins.MCAP if storage == "mcap" else plugins.SQLITE3
    store = make_store()
    with rosbag2.Writer(folder, version=9, storage_plugin=plugin) as writer:
        connection = None
        for cloud in json.loads(source.read_text()):
            kind = cloud["type"]
            if connection is None:
                connection = writer.add_connection(TOPIC, kind, typestore=store)
            data = store.serialize_cdr(make_message(store, cloud), kind)
            writer.write(connection, cloud["log_ns"], data)


def points_of(message: Any) -> dict[str, list[float]]:
    """Values of each field of a decoded message, by its name."""
    if hasattr(message, "points"):
        names = ("offset_time", "x", "y", "z", "reflectivity", "tag", "line")
        return {name: [float(getattr(p, name)) for p in message.points] for name in names}
    raw = np.frombuffer(bytes(message.data), np.uint8)
    found = {}
    for each in message.fields:
        kind = np.dtype("<" + _KINDS[each.datatype])
        begins = np.arange(message.height * message.width) * message.point_step + each.offset
        rows = raw[begins[:, None] + np.arange(kind.itemsize)]
        found[each.name] = np.ascontiguousarray(rows).view(kind)[:, 0].astype(float).tolist()
    return found


def describe(message: Any) -> dict[str, Any]:
    """Stamp, time base and points of a message that rosbags or mcap-ros2-support decoded."""
    stamp = message.header.stamp
    return {
        "stamp_ns": stamp.sec * 1_000_000_000 + stamp.nanosec,
        "timebase": getattr(message, "timebase", None),
        "points": points_of(message),
    }


def read(folder: Path) -> None:
    from rosbags.rosbag2 import Reader

    store = make_store()
    with Reader(folder) as reader:
        for connection, _, data in reader.messages():
            print(json.dumps(describe(store.deserialize_cdr(data, connection.msgtype))))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
    else:
        read(Path(sys.argv[2]))
