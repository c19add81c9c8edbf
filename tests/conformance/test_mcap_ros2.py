"""Readers of ROS 2 on packed bags: mcap-ros2-support, and the newest rosbags by itself.

rosbags of this version does not go with ouster-sdk; ``make .venv-rosbags/.installed`` installs it
into an environment of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.session.reader import Session
from tests.conformance.bag_messages import plain

pytestmark = pytest.mark.conformance
decoder = pytest.importorskip("mcap_ros2.decoder", reason="mcap-ros2-support is not installed")

ROOT = Path(__file__).parents[2]
ROSBAGS = ROOT / ".venv-rosbags/bin/python"
SECOND = 1_000_000_000
TYPES = {
    "/camera/image/compressed": "sensor_msgs/msg/CompressedImage",
    "/lidar/points": "sensor_msgs/msg/PointCloud2",
    "/lidar/range_image": "sensor_msgs/msg/Image",
    "/lidar/range_far_image": "sensor_msgs/msg/Image",
    "/lidar/reflec_image": "sensor_msgs/msg/Image",
    "/lidar/nearir_image": "sensor_msgs/msg/Image",
    "/radar/detections": "sensor_msgs/msg/PointCloud2",
    "/radar/range_doppler": "sensor_msgs/msg/Image",
    "/radar/iq": "std_msgs/msg/Int16MultiArray",
    "/imu/data": "sensor_msgs/msg/Imu",
}

Received = tuple[int, Any]


@dataclass
class Packed:
    """A bag, and its messages by topic: log time, and message as the reader has it."""

    session: Path
    folder: Path
    types: Mapping[str, str]
    messages: Mapping[str, list[Received]]


def pack(session: Path, **options: Any) -> Path:
    wanted = {"profile": "ros2", "lidar": "points_and_ranges", "iq": True, "maps": True}
    (result,) = finalize(
        session, [ArchiveRequest("mcap", wanted | options)], out=session.parent.parent / "bags"
    )
    (folder,) = result.files
    assert (folder / "metadata.yaml").is_file()
    return folder


def by_mcap(folder: Path) -> dict[str, list[Received]]:
    """Every message of the file, decoded with the schemas in it."""
    found: dict[str, list[Received]] = {}
    (path,) = folder.glob("*.mcap")
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True, decoder_factories=[decoder.DecoderFactory()])
        for _, channel, message, decoded in reader.iter_decoded_messages():
            found.setdefault(channel.topic, []).append((message.log_time, decoded))
    return found


@pytest.fixture(scope="module")
def packed(session: Path) -> Packed:
    folder = pack(session)
    return Packed(session, folder, {}, by_mcap(folder))


@pytest.fixture(scope="module")
def by_rosbags(packed: Packed) -> Packed:
    if not ROSBAGS.is_file():
        pytest.skip(f"needs rosbags in {ROSBAGS.parent.parent.name}: make conformance")
    ran = subprocess.run(
        [ROSBAGS, ROOT / "tests/conformance/bag_messages.py", packed.folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    types, messages = {}, dict[str, list[Received]]()
    for line in ran.stdout.splitlines():
        topic, kind, t_ns, message = json.loads(line)
        types[topic] = kind
        messages.setdefault(topic, []).append((t_ns, message))
    return Packed(packed.session, packed.folder, types, messages)


def stamp_ns(message: Any) -> int:
    stamp = message["header"]["stamp"]
    return int(stamp["sec"] * SECOND + stamp["nanosec"])


def test_rosbags_and_mcap_ros2_read_the_same(packed: Packed, by_rosbags: Packed) -> None:
    assert by_rosbags.messages.keys() == packed.messages.keys()
    for topic, messages in packed.messages.items():
        mine = [json.dumps([t_ns, plain(message)]) for t_ns, message in messages]
        theirs = [json.dumps(received) for received in by_rosbags.messages[topic]]
        assert sorted(mine) == sorted(theirs), topic  # messages of one time have no order


def test_types_are_those_of_ros(by_rosbags: Packed) -> None:
    assert {topic: by_rosbags.types.get(topic) for topic in TYPES} == TYPES


@pytest.mark.parametrize("topic", TYPES)
def test_each_sample_is_a_message_at_its_stamp(by_rosbags: Packed, topic: str) -> None:
    with Session(by_rosbags.session) as session:
        expected = session.streams[topic.split("/")[1]].t_ns.tolist()
    found = by_rosbags.messages[topic]
    assert [t_ns for t_ns, _ in found] == expected
    if not topic.startswith("/lidar") and topic != "/radar/iq":
        assert [stamp_ns(message) for _, message in found] == expected
