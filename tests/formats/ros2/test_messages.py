"""Messages of ROS 2: our bytes and values against those of rosbags, and garbage."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.formats.ros2 import messages
from recorder.formats.ros2.codec import CdrReader, CdrWriter, decode_message, encode_message
from recorder.formats.ros2.messages import Header
from tests.formats.ros2.kit import NAMES, STORE, encoded, ours, rosbags_messages


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_bytes_and_values_equal_those_of_rosbags(name: str, data: st.DataObject) -> None:
    message = data.draw(rosbags_messages(name))
    expected = bytes(STORE.serialize_cdr(message, name))
    mine = ours(message)
    assert encoded(name, mine) == expected
    assert decode_message(name, expected) == mine
    # Some middleware fills up to a multiple of four.
    assert decode_message(name, memoryview(expected + b"\0\0\0")) == mine


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_garbage_is_one_clear_error(name: str, data: st.DataObject) -> None:
    content = bytearray(STORE.serialize_cdr(data.draw(rosbags_messages(name)), name))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    _decode(name, bytes(content))


@pytest.mark.parametrize("name", NAMES)
@given(body=st.binary(max_size=300))
def test_random_bytes_are_one_clear_error(name: str, body: bytes) -> None:
    _decode(name, b"\0\1\0\0" + body)


def _decode(name: str, content: bytes) -> None:
    """Decodes, or raises an error that names the message."""
    try:
        decode_message(name, content)
    except FormatError as error:
        assert str(error).startswith(name + ": ")


def test_an_array_of_bytes_has_its_length() -> None:
    scan = messages.PacketScan(HEADER, (messages.StampedPacket(5, b"short"),))
    with pytest.raises(FormatError, match="5 bytes are no array of 1206 bytes"):
        encode_message("velodyne_msgs/msg/VelodyneScan", scan)


@pytest.mark.parametrize("name", NAMES)
def test_every_truncation_is_an_error(name: str) -> None:
    message = SAMPLES[name]
    content = encoded(name, message)
    assert decode_message(name, content) == message
    for size in range(len(content)):
        with pytest.raises(FormatError, match=name.split("/")[-1]):
            decode_message(name, content[:size])
    with pytest.raises(FormatError, match="4 bytes follow the message"):
        decode_message(name, content + b"\0\0\0\1")
    for padding in (
        b"\1\2\3",
        bytes(4),
        bytes(7),
        bytes(100),
    ):  # some middleware fills up with zeros
        assert decode_message(name, content + padding) == message


LOG = "rcl_interfaces/msg/Log"
HEADER = Header(1_700_000_000_123_456_789, "lidar")
NINE = tuple(float(n) for n in range(9))
SAMPLES: dict[str, Any] = {
    "sensor_msgs/msg/CompressedImage": messages.CompressedImage(HEADER, "jpeg", b"\xff\xd8"),
    "sensor_msgs/msg/Image": messages.Image(HEADER, 1, 2, "16UC1", 0, 4, b"abcd"),
    "sensor_msgs/msg/CameraInfo": messages.CameraInfo(
        HEADER, 2, 3, "plumb_bob", (0.1,), NINE, NINE, (*NINE, 1.0, 2.0, 3.0)
    ),
    "sensor_msgs/msg/PointCloud2": messages.PointCloud2(
        HEADER, 1, 2, (messages.PointField("x", 0, 7),), False, 4, 8, b"12345678", True
    ),
    "sensor_msgs/msg/Imu": messages.Imu(HEADER, NINE[:4], NINE, NINE[:3], NINE, NINE[3:6], NINE),
    "sensor_msgs/msg/NavSatFix": messages.NavSatFix(HEADER, -1, 1, 48.5, 9.25, 400.0, NINE, 3),
    "geometry_msgs/msg/PoseStamped": messages.PoseStamped(HEADER, NINE[:3], NINE[:4]),
    "geometry_msgs/msg/PoseWithCovarianceStamped": messages.PoseWithCovarianceStamped(
        HEADER, NINE[:3], NINE[:4], NINE * 4
    ),
    "nav_msgs/msg/Odometry": messages.Odometry(
        HEADER, "base_link", NINE[:3], NINE[:4], NINE * 4, NINE[3:6], NINE[6:], NINE[::-1] * 4
    ),
    "tf2_msgs/msg/TFMessage": (
        messages.TransformStamped(HEADER, "camera", NINE[:3], NINE[:4]),
        messages.TransformStamped(HEADER, "imu", NINE[3:6], NINE[3:7]),
    ),
    "rcl_interfaces/msg/Log": messages.Log(5, 30, "lidar", "lost 3 sweeps", line=7),
    "std_msgs/msg/String": "Gruß",
    "std_msgs/msg/Int16MultiArray": messages.Int16MultiArray(
        (messages.Dimension("chirp", 2, 2),), 4, b"\1\0\2\0"
    ),
    "visualization_msgs/msg/MarkerArray": (
        messages.Marker(HEADER, "cars", 1, messages.CUBE, points=(NINE[:3],), colors=(NINE[:4],)),
    ),
    "can_msgs/msg/Frame": messages.CanFrame(HEADER, 5, True, False, True, 3, b"12345678"),
    "pandar_msgs/msg/PandarScan": messages.PacketScan(
        HEADER, (messages.PandarPacket(5, bytes(1500), 1262),)
    ),
    "velodyne_msgs/msg/VelodyneScan": messages.PacketScan(
        HEADER, (messages.StampedPacket(5, b"v" * 1206),)
    ),
    "nebula_msgs/msg/NebulaPackets": messages.PacketScan(
        HEADER, (messages.StampedPacket(5, b"one"), messages.StampedPacket(6, b"second"))
    ),
    "robosense_msgs/msg/RobosenseScan": messages.PacketScan(
        HEADER, (messages.StampedPacket(5, b"r" * 1248),)
    ),
    "robosense_msgs/msg/RobosenseInfoPacket": messages.RobosenseInfo(
        "Helios", messages.StampedPacket(5, b"r" * 1248)
    ),
    "rslidar_msgs/msg/RslidarScan": messages.PacketScan(
        HEADER, (messages.StampedPacket(5, b"r" * 1248),)
    ),
    "rslidar_msg/msg/RslidarPacket": messages.RslidarPacket(HEADER, 1, 0, b"packet"),
    "udp_msgs/msg/UdpPacket": messages.UdpPacket(HEADER, "10.0.0.1", 7502, b"packet"),
    "ouster_sensor_msgs/msg/PacketMsg": b"packet",
    "ouster_ros/msg/PacketMsg": b"packet",
}


def test_large_payloads_are_not_copied() -> None:
    points = np.arange(8, dtype="<f4").reshape(2, 4)
    cloud = messages.PointCloud2(HEADER, 1, 2, (), False, 16, 32, points.data, True)
    parts = encode_message("sensor_msgs/msg/PointCloud2", cloud)
    assert any(np.shares_memory(np.frombuffer(part, "u1"), points) for part in parts)
    content = b"".join(parts)
    decoded = decode_message("sensor_msgs/msg/PointCloud2", content)
    assert np.shares_memory(np.frombuffer(decoded.data, "u1"), np.frombuffer(content, "u1"))


def test_nan_is_kept() -> None:
    fix = messages.NavSatFix(HEADER, 0, 0, 1.0, 2.0, math.nan, NINE, 0)
    again = decode_message("sensor_msgs/msg/NavSatFix", encoded("sensor_msgs/msg/NavSatFix", fix))
    assert math.isnan(again.altitude)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (messages.Log(1 << 62, 20, "", ""), "int32 seconds"),
        (messages.Log(-(1 << 62), 20, "", ""), "int32 seconds"),
        (messages.Log(0, 256, "", ""), "cannot encode"),
        (messages.Log(0, 20, "a\0b", ""), "zero character"),
        (messages.Log(0, 20, "\ud800", ""), "UTF-8"),
    ],
)
def test_values_that_do_not_fit_are_an_error(message: messages.Log, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        encode_message(LOG, message)


@pytest.mark.parametrize("begin", [b"", b"\0\1\0", b"\0\0\0\0", b"\0\3\0\0", b"\1\1\0\0"])
def test_other_encapsulations_are_an_error(begin: bytes) -> None:
    with pytest.raises(FormatError, match="little-endian CDR"):
        decode_message("std_msgs/msg/String", begin)


def test_a_long_sequence_is_an_error_before_memory_is_taken() -> None:
    writer = CdrWriter()
    writer.put("I", 0xFFFFFFFF)
    content = b"".join(writer.finish())
    with pytest.raises(FormatError, match="4294967295 elements"):
        decode_message("tf2_msgs/msg/TFMessage", content)
    with pytest.raises(FormatError, match="4294967295 elements"):
        CdrReader(content, "x").string()


def test_a_string_without_its_zero_is_an_error() -> None:
    with pytest.raises(FormatError, match="no zero at its end"):
        decode_message("std_msgs/msg/String", b"\0\1\0\0\2\0\0\0ab")
    assert decode_message("std_msgs/msg/String", b"\0\1\0\0\0\0\0\0") == ""


def test_a_second_has_less_than_a_milliard_nanoseconds() -> None:
    content = encoded(LOG, messages.Log(0, 20, "", ""))
    wrong = content[:8] + (10**9).to_bytes(4, "little") + content[12:]
    with pytest.raises(FormatError, match="1000000000 ns"):
        decode_message(LOG, wrong)
