"""A session with sensors and with recorded topics, and the bag that is packed from it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mcap.reader import make_reader

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.formats.recorded_topic import RecordedTopic, topic_spec
from recorder.formats.ros2.bag import qos
from recorder.formats.ros2.definitions import ENCODING, STRING, definition
from tests.session.build import Builder, camera_spec, imu_spec

CHATS = 12
LATCHED = "/map/name"
STRING_HASH = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"


def text(words: str) -> bytes:
    """A ``std_msgs/msg/String`` as it is received: RTPS sends multiples of four bytes."""
    data = b"\0\1\0\0" + struct.pack("<I", len(words) + 1) + words.encode() + b"\0"
    return data + bytes(-len(data) % 4)


def add_topic(builder: Builder, topic: RecordedTopic, messages: Sequence[bytes]) -> None:
    spec = topic_spec(
        "ros_" + topic.name.strip("/").replace("/", "_"),
        topic,
        bytes_per_sample=20,
        finite=False,
        settings={},
    )
    count = len(messages)
    data: dict[str, Any] = {
        "message": list(messages),
        "number": np.arange(1, count + 1, dtype=np.uint64),
        "publisher": np.ones(count, np.uint16),
        "t_source": np.zeros(count, np.uint64),
    }
    builder.add(replace(spec, rate_hz=20.0), count=count, data=data)


def drive(path: Path, *, clock: bool = False) -> Path:
    """Build a session of 0.6 s: a camera, an IMU and topics; with `clock`, also a recorded one."""
    builder = Builder(path)
    builder.add(camera_spec(), 0.6)
    builder.add(imu_spec(), 0.6)
    known = {"schema_encoding": ENCODING, "definition": definition(STRING)}
    chat = RecordedTopic("/chat", STRING, **known, type_hash=STRING_HASH)  # type: ignore[arg-type]
    add_topic(builder, chat, [text(f"chat {k}" * (k % 3)) for k in range(CHATS)])
    latched = replace(
        chat, name=LATCHED, metadata={"offered_qos_profiles": qos(1, latched=True)}, type_hash=""
    )
    add_topic(builder, latched, [text("yard")])
    add_topic(builder, replace(chat, name="/tf_static"), [text("without policies")])
    add_topic(builder, RecordedTopic("/status", "S", "json"), [b'{"ok": 1}'])
    if clock:
        add_topic(builder, replace(chat, name="/clock"), [text("not a clock")])
    return builder.close()


def read_bag(session: Path, out: Path) -> dict[str, list[tuple[int, bytes]]]:
    """Pack a session as a ROS 2 bag; return log times and messages by topic."""
    (result,) = finalize(session, [ArchiveRequest("mcap", {"profile": "ros2"})], out=out)
    (path,) = result.files[0].glob("*.mcap")
    found: dict[str, list[tuple[int, bytes]]] = {}
    with path.open("rb") as file:
        for _, channel, message in make_reader(file).iter_messages():
            found.setdefault(channel.topic, []).append((message.log_time, message.data))
    return found
