"""Messages of recordings: the recorder's own JSON, IMUs of ROS, what a topic holds."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.formats.bags.contents import UnknownTopicError, find_content
from recorder.formats.bags.messages import Kind, decode_json_imu, decode_ros2_imu
from recorder.formats.bags.timing import APART_NS, Stamping
from recorder.formats.mcap import McapTopic
from tests.formats.bags.kit import IMU_SCHEMA, START_NS, imu, json_imu, turn


def topic(encoding: str, name: str, schema_encoding: str = "", schema: bytes = b"") -> McapTopic:
    return McapTopic("/t", name, schema_encoding, schema, encoding, 1, {})


def test_an_imu_of_ros() -> None:
    got = decode_ros2_imu(imu("/i", START_NS, (1, 2, 3), (4, 5, 6), turn(1.0)).data)
    assert (got.acc, got.avel, got.quat) == ((1, 2, 3), (4, 5, 6), turn(1.0))
    assert (got.stamp_ns, got.frame_id) == (START_NS - 1_000_000, "imu_link")


@pytest.mark.parametrize("quat", [None, (0.0, 0.0, 0.0, 0.0)])
def test_an_orientation_that_is_absent(quat: Any) -> None:
    got = decode_ros2_imu(imu("/i", START_NS, (1, 2, 3), (4, 5, 6), quat).data)
    assert got.quat is not None and np.isnan(got.quat).all()


@pytest.mark.parametrize("absent", ["acc", "avel"])
def test_values_that_were_not_measured_are_no_zeros(absent: str) -> None:
    """sensor_msgs/Imu: -1 as the first element of a covariance marks a value that is not there."""
    zeros = (0.0, 0.0, 0.0)
    sent = imu("/i", START_NS, zeros, zeros, turn(1.0), absent=(absent,))
    got = decode_ros2_imu(sent.data)
    for name in ("acc", "avel"):
        values = getattr(got, name)
        assert np.isnan(values).all() if name == absent else values == zeros
    assert got.quat == turn(1.0)


def test_an_imu_in_json() -> None:
    values = {
        "acc": [1, 2.5, None],
        "avel": [0, 0, 1e-9],
        "quat": [1, 0, 0, 0],
        "mag": [1, 2, 3],
        "t_dev": 1 << 62,
    }
    got = decode_json_imu(json_imu("/i", START_NS, values).data)
    x, y, z = got.acc
    assert (x, y) == (1.0, 2.5)
    assert math.isnan(z)
    assert got.stamp_ns == START_NS and got.t_dev_ns == 1 << 62 and got.rot is None
    assert got.quat == (1.0, 0.0, 0.0, 0.0)
    assert got.mag == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    "change",
    [
        {"acc": [1, 2]},
        {"acc": "abc"},
        {"acc": [1, 2, "x"]},
        {"acc": [1, 2, 10**400]},
        {"timestamp": 5},
        {"timestamp": {"sec": 1.5, "nsec": 0}},
        {"timestamp": {"sec": True, "nsec": 0}},
        {"t_dev": 1 << 70},
        {"quat": [1, 2, 3]},
        {"avel": None},
    ],
)
def test_json_that_is_no_imu_is_an_error(change: dict[str, Any]) -> None:
    good = {"timestamp": {"sec": 1, "nsec": 2}, "acc": [1, 2, 3], "avel": [1, 2, 3]}
    decode_json_imu(json.dumps(good).encode())
    with pytest.raises(FormatError, match="JSON of an IMU"):
        decode_json_imu(json.dumps(good | change).encode())
    with pytest.raises(FormatError, match="JSON of an IMU"):
        decode_json_imu(json.dumps({k: v for k, v in good.items() if k not in change}).encode()[1:])


@given(st.binary(max_size=100) | st.recursive(st.none() | st.integers(), st.lists).map(
    lambda value: json.dumps(value).encode()
))  # fmt: skip
def test_any_json_is_an_imu_or_an_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_json_imu(data)


def test_deep_json_is_an_error() -> None:
    with pytest.raises(FormatError):
        decode_json_imu(b"[" * 100_000)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (topic("cdr", "sensor_msgs/msg/CompressedImage"), Kind.PICTURES),
        (topic("protobuf", "foxglove.RawImage"), Kind.PICTURES),
        (topic("cdr", "ouster_ros/msg/PacketMsg"), Kind.PACKETS),
        (topic("json", "recorder.imu", "jsonschema", IMU_SCHEMA), Kind.IMU),
    ],
)
def test_what_topics_hold(wanted: McapTopic, kind: Kind) -> None:
    assert find_content(wanted).kind is kind


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (topic("json", "a", "jsonschema", b'{"properties": {"acc": {}}}'), "no driver plays 'a'"),
        (topic("json", "a", "jsonschema", b"[1]"), "no driver plays 'a' \\('json'\\)"),
        (topic("json", "a", "jsonschema", b"\xff"), "no driver plays 'a'"),
        (topic("json", "foxglove.RawImage", "jsonschema", b"{}"), "read in protobuf only, not in"),
        (topic("ros1", "sensor_msgs/Imu"), "messages of ROS 1 are not read"),
        (topic("cdr", ""), "messages without a schema"),
    ],
)
def test_topics_that_are_not_understood_have_a_reason(wanted: McapTopic, text: str) -> None:
    with pytest.raises(UnknownTopicError, match=text):
        find_content(wanted)


@pytest.mark.parametrize(
    ("stamp", "used"),
    [(START_NS - APART_NS, True), (START_NS - APART_NS - 1, False), (0, False), (-5, False)],
)
def test_the_first_messages_decide_on_the_stamps(stamp: int, used: bool) -> None:
    stamping = Stamping.of([(stamp, START_NS)])
    assert stamping.t_ns(stamp, START_NS) == (stamp if used else START_NS)
    later = START_NS + 20 * APART_NS
    assert stamping.t_ns(later - 7, later) == (later - 7 if used else later)
    assert stamping.t_ns(0, later) == later


def test_one_wrong_stamp_at_the_beginning_does_not_decide() -> None:
    good = [(START_NS + n - 5, START_NS + n) for n in range(3)]
    assert Stamping.of([(START_NS + 3600 * 10**9, START_NS), *good]).of_header
    assert Stamping.of([(0, START_NS), *good]).of_header
    assert not Stamping.of([(n, START_NS + n) for n in range(1, 4)] + good[:2]).of_header
    assert not Stamping.of([]).of_header
