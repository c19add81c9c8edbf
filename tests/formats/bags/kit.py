"""Recordings that other software writes: MCAP by the package ``mcap``, CDR by ``rosbags``, protobuf
by ``foxglove``, SQLite by the tables of rosbag2.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import yaml
from foxglove import messages as foxglove
from mcap.writer import CompressionType, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from recorder.formats.bags.messages import LIDAR_PACKETS
from recorder.formats.ros2.definitions import definition

START_NS = 1_700_000_000_123_456_789
"""Log time of a recording's first message."""
SECOND = 1_000_000_000
HEIGHT, WIDTH = 24, 32

OLD_DRIVERS = frozenset({"camera", "can", "gnss", "ouster", "xsens"})
"""Drivers without those that play further topics, or play IMUs before the driver of Xsens."""

STORE: Any = get_typestore(Stores.ROS2_HUMBLE)
for _name in ("ouster_sensor_msgs/msg/PacketMsg", "ouster_ros/msg/PacketMsg"):
    STORE.register(get_types_from_msg("uint8[] buf", _name))
for _name in LIDAR_PACKETS:
    STORE.register(get_types_from_msg(definition(_name).decode(), _name))


@dataclass(frozen=True)
class Sent:
    """A message as a test writes it."""

    topic: str
    schema: str
    encoding: str  # of the message: cdr, protobuf, json
    data: bytes
    log_ns: int
    schema_data: bytes = b""


def write_mcap(
    path: Path,
    messages: Sequence[Sent],
    *,
    compression: CompressionType = CompressionType.ZSTD,
    chunk_size: int = 1 << 20,
    profile: str = "ros2",
    finish: bool = True,
) -> Path:
    """Write a file; without `finish` it is what a killed recorder leaves: no summary, no footer."""
    kinds = {"cdr": "ros2msg", "protobuf": "protobuf", "json": "jsonschema", "ros1": "ros1msg"}
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=chunk_size, compression=compression)
        writer.start(profile=profile, library="test")
        channels: dict[str, int] = {}
        for number, sent in enumerate(messages):
            if sent.topic not in channels:
                kind = kinds[sent.encoding]
                schema = writer.register_schema(sent.schema, kind, sent.schema_data)
                channels[sent.topic] = writer.register_channel(sent.topic, sent.encoding, schema)
            writer.add_message(
                channels[sent.topic], sent.log_ns, sent.data, sent.log_ns + 7, sequence=number
            )
        if finish:
            writer.finish()  # type: ignore[no-untyped-call]
        # Else the open chunk is lost with the recorder.
    return path


def write_bag(
    folder: Path, parts: Sequence[Sequence[Sent]], *, chunk_size: int = 1 << 20, **information: Any
) -> Path:
    """Write a folder as rosbag2 does, one file a part, with ``metadata.yaml``."""
    folder.mkdir()
    names = [f"{folder.name}_{number}.mcap" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        write_mcap(folder / name, part, chunk_size=chunk_size)
    content: dict[str, Any] = {
        "version": 5,
        "storage_identifier": "mcap",
        "relative_file_paths": names,
        "compression_format": "",
        "compression_mode": "",
    }
    text = yaml.safe_dump({"rosbag2_bagfile_information": content | information})
    (folder / "metadata.yaml").write_text(text)
    return folder


SQLITE_TABLES = """
CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
    serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL);
CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,
    data BLOB NOT NULL);
CREATE INDEX timestamp_idx ON messages (timestamp ASC);
"""  # rosbag2_storage_sqlite3, Humble


def write_sqlite(path: Path, messages: Sequence[Sent]) -> Path:
    """Write a file as rosbag2 does up to Humble."""
    with sqlite3.connect(path) as database:
        database.executescript(SQLITE_TABLES)
        topics: dict[str, int] = {}
        for sent in messages:
            if sent.topic not in topics:
                number = topics[sent.topic] = len(topics) + 1
                row = (number, sent.topic, sent.schema, sent.encoding, "")
                database.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?)", row)
            message = (topics[sent.topic], sent.log_ns, sent.data)
            database.execute("INSERT INTO messages VALUES (NULL, ?, ?, ?)", message)
    database.close()
    return path


def ros_time(t_ns: int) -> Any:
    return STORE.types["builtin_interfaces/msg/Time"](t_ns // SECOND, t_ns % SECOND)


def header(t_ns: int, frame: str) -> Any:
    return STORE.types["std_msgs/msg/Header"](ros_time(t_ns), frame)


def cdr(topic: str, kind: str, log_ns: int, **fields: Any) -> Sent:
    """A message of ROS 2, serialized by rosbags."""
    data = bytes(STORE.serialize_cdr(STORE.types[kind](**fields), kind))
    return Sent(topic, kind, "cdr", data, log_ns, b"(the definition)")


def proto(topic: str, message: Any, log_ns: int) -> Sent:
    """A message of Foxglove, serialized by foxglove-sdk."""
    schema = message.get_schema()
    return Sent(topic, schema.name, "protobuf", message.encode(), log_ns, schema.data)


def fox_time(t_ns: int) -> Any:
    return foxglove.Timestamp(t_ns // SECOND, t_ns % SECOND)


def picture(at: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A picture [HEIGHT, WIDTH, 3], BGR."""
    rows = np.arange(HEIGHT * WIDTH * 3, dtype=np.uint16).reshape(HEIGHT, WIDTH, 3)
    return np.asarray(rows // 12 + at + np.array([0, 40, 90]), np.uint8)


def jpeg(at: int) -> bytes:
    return bytes(cv2.imencode(".jpg", picture(at))[1])


def png(at: int) -> bytes:
    return bytes(cv2.imencode(".png", picture(at))[1])


def compressed(
    topic: str,
    data: bytes,
    log_ns: int,
    stamp_ns: int | None = None,
    form: str = "jpeg",
    frame: str = "camera_optical",
) -> Sent:
    """A ``sensor_msgs/msg/CompressedImage``; its stamp is 3 ms before its log time unless given."""
    stamp_ns = log_ns - 3_000_000 if stamp_ns is None else stamp_ns
    array = np.frombuffer(data, np.uint8)
    kind = "sensor_msgs/msg/CompressedImage"
    return cdr(topic, kind, log_ns, header=header(stamp_ns, frame), format=form, data=array)


def fox_compressed(topic: str, data: bytes, log_ns: int, form: str = "jpeg") -> Sent:
    """A ``foxglove.CompressedImage`` whose stamp is its log time."""
    image = foxglove.CompressedImage(
        timestamp=fox_time(log_ns), frame_id="camera", data=data, format=form
    )
    return proto(topic, image, log_ns)


def raw_image(topic: str, encoding: str, pixels: Any, log_ns: int, *, pad: int = 0) -> Sent:
    """A ``sensor_msgs/msg/Image`` of an array [height, width(, channels)], rows padded."""
    rows = np.ascontiguousarray(pixels).reshape(pixels.shape[0], -1).view(np.uint8)
    step = rows.shape[1] + pad
    data = np.pad(rows, ((0, 0), (0, pad)), constant_values=99).reshape(-1)
    fields = {"height": pixels.shape[0], "width": pixels.shape[1], "encoding": encoding}
    return cdr(
        topic, "sensor_msgs/msg/Image", log_ns, header=header(log_ns, "c"), is_bigendian=0,
        step=step, data=data, **fields,
    )  # fmt: skip


def imu(
    topic: str,
    log_ns: int,
    acc: Sequence[float],
    avel: Sequence[float],
    quat_wxyz: Sequence[float] | None = None,
    stamp_ns: int | None = None,
    absent: Collection[str] = (),
) -> Sent:
    """A ``sensor_msgs/msg/Imu``; its stamp is 1 ms before its log time unless given.

    Of `absent`, ``acc`` and ``avel``, the message says that they were not measured.
    """
    vector, quaternion = (
        STORE.types["geometry_msgs/msg/Vector3"],
        STORE.types["geometry_msgs/msg/Quaternion"],
    )
    w, x, y, z = quat_wxyz or (1.0, 0.0, 0.0, 0.0)
    of_orientation, of_acc, of_avel = np.zeros((3, 9))
    of_orientation[0] = -1 if quat_wxyz is None else 0
    of_acc[0] = -1 if "acc" in absent else 0
    of_avel[0] = -1 if "avel" in absent else 0
    return cdr(
        topic,
        "sensor_msgs/msg/Imu",
        log_ns,
        header=header(log_ns - 1_000_000 if stamp_ns is None else stamp_ns, "imu_link"),
        orientation=quaternion(x, y, z, w),
        orientation_covariance=of_orientation,
        angular_velocity=vector(*avel),
        angular_velocity_covariance=of_avel,
        linear_acceleration=vector(*acc),
        linear_acceleration_covariance=of_acc,
    )


IMU_SCHEMA = (
    b'{"type": "object", "title": "recorder.imu", "properties": {"timestamp": {"type": "object"}, '
    b'"seq": {}, "t_dev": {}, "acc": {"type": "array"}, "avel": {}, "rot": {}}}'
)


def json_imu(topic: str, log_ns: int, values: Mapping[str, Any]) -> Sent:
    """A sample of an IMU's stream in JSON, as the recorder's live views write it."""
    import json

    stamp = {"sec": log_ns // SECOND, "nsec": log_ns % SECOND}
    data = json.dumps({"timestamp": stamp, "seq": 0, **values}).encode()
    return Sent(topic, "recorder.imu", "json", data, log_ns, IMU_SCHEMA)


def turn(angle: float) -> tuple[float, float, float, float]:
    """A quaternion, real part first, of a turn about z."""
    return math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)
