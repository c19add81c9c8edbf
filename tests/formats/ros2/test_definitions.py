"""Definitions of ROS 2's messages against those that rosbags brings."""

from __future__ import annotations

import pytest
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from recorder.formats.ros2.definitions import TYPES, definition
from tests.formats.ros2.kit import NAMES

OF_DRIVERS = {  # which rosbags does not bring: fields of the drivers' own definitions
    "foxglove_msgs/msg/CompressedVideo": ["timestamp", "frame_id", "data", "format"],
    "ouster_ros/msg/PacketMsg": ["buf"],
    "ouster_sensor_msgs/msg/PacketMsg": ["buf"],
    "can_msgs/msg/Frame": [
        "header", "id", "is_rtr", "is_extended", "is_error", "dlc", "data",
    ],
    "ros2_socketcan_msgs/msg/FdFrame": [
        "header", "id", "is_extended", "is_error", "len", "data",
    ],
    "udp_msgs/msg/UdpPacket": ["header", "address", "src_port", "data"],
    "pandar_msgs/msg/PandarPacket": ["stamp", "data", "size"],
    "pandar_msgs/msg/PandarScan": ["header", "packets"],
    "velodyne_msgs/msg/VelodynePacket": ["stamp", "data"],
    "velodyne_msgs/msg/VelodyneScan": ["header", "packets"],
    "nebula_msgs/msg/NebulaPacket": ["stamp", "data"],
    "nebula_msgs/msg/NebulaPackets": ["header", "packets"],
    "robosense_msgs/msg/RobosensePacket": ["stamp", "data"],
    "robosense_msgs/msg/RobosenseScan": ["header", "packets"],
    "robosense_msgs/msg/RobosenseInfoPacket": ["lidar_model", "packet"],
    "rslidar_msgs/msg/RslidarPacket": ["stamp", "data"],
    "rslidar_msgs/msg/RslidarScan": ["header", "packets"],
    "rslidar_msg/msg/RslidarPacket": ["header", "is_difop", "is_frame_begin", "data"],
}  # fmt: skip
HUMBLE = get_typestore(Stores.ROS2_HUMBLE)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_fields_and_constants_equal_those_of_rosbags(name: str) -> None:
    if name in OF_DRIVERS:
        found = get_types_from_msg(definition(name).decode(), name)
        assert [field for field, _ in found[name][1]] == OF_DRIVERS[name]
        return
    for each, (constants, fields) in get_types_from_msg(definition(name).decode(), name).items():
        expected_constants, expected_fields = HUMBLE.FIELDDEFS[each]
        assert fields == expected_fields
        known = {constant: value for constant, _, value in constants}
        for constant, _, value in expected_constants:
            assert known.pop(constant) == value
        assert known.keys() <= {"STATUS_UNKNOWN", "SERVICE_UNKNOWN"}  # of ROS 2 Jazzy


@pytest.mark.parametrize("name", NAMES)
def test_every_message_has_its_definition_once(name: str) -> None:
    text = definition(name).decode()
    parts = text.split("=" * 80 + "\nMSG: ")
    names = [part.split("\n")[0] for part in parts[1:]]
    assert len(names) == len(set(names))
    found = get_types_from_msg(text, name)
    assert len(found) == len(parts)


def test_the_layout_is_that_of_rosbag2() -> None:
    assert definition("tf2_msgs/msg/TFMessage").decode().split("\n")[:5] == [
        "geometry_msgs/TransformStamped[] transforms",
        "",
        "=" * 80,
        "MSG: geometry_msgs/TransformStamped",
        "std_msgs/Header header",
    ]
