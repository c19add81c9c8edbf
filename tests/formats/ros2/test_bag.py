"""``metadata.yaml`` of a bag, read by rosbags and against rosbag2's own layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from mcap.writer import Writer
from rosbags.rosbag2 import Reader

from recorder.formats.ros2.bag import BagTopic, bag_metadata, qos
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import ENCODING, definition

TYPE = "std_msgs/msg/String"


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """A bag with an MCAP file by the package mcap."""
    folder = tmp_path / "drive"
    folder.mkdir()
    with (folder / "drive_0.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start("ros2", "test")
        schema = writer.register_schema(TYPE, ENCODING, definition(TYPE))
        channel = writer.register_channel("/marks", "cdr", schema, {"offered_qos_profiles": qos(5)})
        for number in range(3):
            data = b"".join(encode_message("std_msgs/msg/String", f"mark {number}"))
            writer.add_message(channel, 1_000 + number, data, 1_000 + number)
        writer.finish()  # type: ignore[no-untyped-call]
    topics = [BagTopic("/marks", TYPE, qos(5), 3), BagTopic("/tf_static", TYPE, "", 0)]
    (folder / "metadata.yaml").write_bytes(bag_metadata("drive_0.mcap", topics, 1_000, 1_002))
    return folder


def test_rosbags_opens_the_bag(bag: Path) -> None:
    with Reader(bag) as reader:
        assert reader.message_count == 3
        assert (reader.start_time, reader.end_time) == (1_000, 1_003)  # rosbags adds one
        (connection,) = [c for c in reader.connections if c.topic == "/marks"]
        assert (connection.msgtype, connection.msgcount) == (TYPE, 3)
        found = [(t_ns, bytes(data)) for _, t_ns, data in reader.messages([connection])]
    assert found == [
        (1_000 + n, b"".join(encode_message("std_msgs/msg/String", f"mark {n}"))) for n in range(3)
    ]


def test_keys_are_those_of_rosbag2() -> None:
    """The layout of a bag that rosbag2 itself brings for its tests (version 5)."""
    text = bag_metadata("a_0.mcap", [BagTopic("/a", TYPE, qos(1, latched=True), 2)], 10, 25)
    found = yaml.safe_load(text)["rosbag2_bagfile_information"]
    assert found.keys() == {
        "compression_format", "compression_mode", "duration", "files", "message_count",
        "relative_file_paths", "starting_time", "storage_identifier",
        "topics_with_message_count", "version",
    }  # fmt: skip
    assert found["duration"] == {"nanoseconds": 15}
    assert found["starting_time"] == {"nanoseconds_since_epoch": 10}
    assert found["files"] == [
        {
            "path": "a_0.mcap",
            "starting_time": {"nanoseconds_since_epoch": 10},
            "duration": {"nanoseconds": 15},
            "message_count": 2,
        }
    ]
    (topic,) = found["topics_with_message_count"]
    assert topic["topic_metadata"].keys() == {
        "name", "offered_qos_profiles", "serialization_format", "type",
    }  # fmt: skip
    assert isinstance(topic["topic_metadata"]["offered_qos_profiles"], str)
    (profile,) = yaml.safe_load(topic["topic_metadata"]["offered_qos_profiles"])
    assert profile == {
        "history": 1, "depth": 1, "reliability": 1, "durability": 1,
        "deadline": {"sec": 9223372036, "nsec": 854775807},
        "lifespan": {"sec": 9223372036, "nsec": 854775807}, "liveliness": 1,
        "liveliness_lease_duration": {"sec": 9223372036, "nsec": 854775807},
        "avoid_ros_namespace_conventions": False,
    }  # fmt: skip
