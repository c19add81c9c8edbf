"""Drafts of configs from topics: typed topics by their drivers, the others by that of any topic."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from recorder.common.errors import DeviceError, UsageError
from recorder.recording.topic_draft import list_topics, make_draft

DRIVERS = ("camera", "imu", "gnss", "can", "ouster", "topics")


def topic(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "publishers": 1, "rate_hz": 10.0, **more}


TOPICS = [
    topic("/camera/image", "sensor_msgs/msg/Image"),
    topic("/camera_image", "sensor_msgs/msg/CompressedImage"),
    topic("/imu/data", "sensor_msgs/msg/Imu", rate_hz=None),
    topic("/os/imu_packets", "ouster_sensor_msgs/msg/PacketMsg"),
    topic("/os/lidar_packets", "ouster_sensor_msgs/msg/PacketMsg"),
    topic("/os/metadata", "std_msgs/msg/String"),
    topic("/rosout", "rcl_interfaces/msg/Log"),
    topic("/tf", "tf2_msgs/msg/TFMessage", publishers=2, problem="no\n  type"),
    topic("/9", "x/msg/Y"),
]


def test_a_draft_records_all_that_is_there() -> None:
    text = make_draft("ros2:3", TOPICS, DRIVERS)
    assert yaml.safe_load(text) == {
        "version": 1,
        "record_format": {"enabled": False},
        "sensors": {
            "camera_image": {"driver": "camera", "source": "ros2:3#/camera/image"},
            "camera_image_2": {"driver": "camera", "source": "ros2:3#/camera_image"},
            "imu_data": {"driver": "imu", "source": "ros2:3#/imu/data"},
            "os_lidar_packets": {"driver": "ouster", "source": "ros2:3#/os/lidar_packets"},
            "topics": {"driver": "topics", "source": "ros2:3", "topics": ["/tf", "/9"]},
        },
    }
    assert "# tf2_msgs/msg/TFMessage, 10 Hz, 2 publishers, no type" in text
    assert "sensor_msgs/msg/Imu, silent, 1 publisher" in text


def test_what_no_driver_takes_is_named() -> None:
    text = make_draft("ros2:3", TOPICS, ("imu",))
    assert list(yaml.safe_load(text)["sensors"]) == ["imu_data"]
    assert "# not recorded: /tf: tf2_msgs/msg/TFMessage" in text


@pytest.mark.parametrize(
    ("kind", "driver"),
    [
        ("pandar_msgs/msg/PandarScan", "hesai"),
        ("velodyne_msgs/msg/VelodyneScan", "velodyne"),
        ("rslidar_msg/msg/RslidarPacket", "robosense"),
    ],
)
def test_packets_of_lidars_are_those_of_their_vendor(kind: str, driver: str) -> None:
    drafted = yaml.safe_load(make_draft("ros2:3", [topic("/p", kind)], (driver, "topics")))
    assert drafted["sensors"] == {"p": {"driver": driver, "source": "ros2:3#/p"}}


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("zenoh:3", "zenoh:3#/a"),
        ("zenoh:tcp/1.2.3.4:7447/0", "zenoh:tcp/1.2.3.4:7447/0#/a"),
        ("zenoh:tcp/1.2.3.4:7447", "zenoh:tcp/1.2.3.4:7447#rt/a"),
    ],
)
def test_addresses(source: str, address: str) -> None:
    text = make_draft(source, [topic("/a", "sensor_msgs/msg/Imu")], DRIVERS)
    assert yaml.safe_load(text)["sensors"]["a"]["source"] == address


def test_a_wrong_source_and_a_missing_middleware_are_named() -> None:
    for source in ("ros1:0", "ros2:0#/a"):
        with pytest.raises(UsageError, match="is not ros2:DOMAIN or zenoh:"):
            list_topics(source)
    with pytest.raises(DeviceError, match="--draft: ros2:x: needs the form ros2:DOMAIN"):
        list_topics("ros2:x")
