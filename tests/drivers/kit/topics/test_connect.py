"""Addresses of live topics, and what Zenoh samples say of themselves."""

from __future__ import annotations

import struct

import pytest

from drivers.kit.driver import SensorConfig
from drivers.kit.topics.connect import TopicAddress, parse_address
from drivers.kit.topics.zenoh import parse_attachment, parse_encoding
from recorder.common.errors import SourceError


@pytest.mark.parametrize(
    ("scheme", "address", "parsed"),
    [
        ("ros2", "0#/camera/image", (0, "", "/camera/image")),
        ("ros2", "42", (42, "", "")),
        ("ros2", "7#points", (7, "", "/points")),
        ("zenoh", "3#/tf", (3, "", "/tf")),
        ("zenoh", "tcp/10.0.0.2:7447/3#/tf", (3, "tcp/10.0.0.2:7447", "/tf")),
        ("zenoh", "tcp/[::1]:7447/0#/tf", (0, "tcp/[::1]:7447", "/tf")),
        ("zenoh", "tcp/10.0.0.2:7447#rt/camera/h264", (None, "tcp/10.0.0.2:7447", "/camera/h264")),
        ("zenoh", "tcp/10.0.0.2:7447", (None, "tcp/10.0.0.2:7447", "")),
    ],
)
def test_addresses(scheme: str, address: str, parsed: tuple[int | None, str, str]) -> None:
    sensor = SensorConfig("a", scheme, address, {})
    assert parse_address(sensor) == TopicAddress(scheme, *parsed)


@pytest.mark.parametrize(
    ("scheme", "address"),
    [
        ("ros2", ""),
        ("ros2", "x#/a"),
        ("ros2", "233#/a"),
        ("ros2", "tcp/1.2.3.4:1/0#/a"),
        ("zenoh", "#/a"),
        ("zenoh", "tcp/1.2.3.4:7447#/a"),
    ],
)
def test_a_wrong_address_is_named_with_its_form(scheme: str, address: str) -> None:
    with pytest.raises(SourceError, match=f"a: {scheme}:.*(needs the form|is a key)"):
        parse_address(SensorConfig("a", scheme, address, {}))


def test_attachments_of_both_versions() -> None:
    gid = bytes(range(16))
    plain = struct.pack("<qqB", 7, 123, 16) + gid
    assert parse_attachment(plain) == (7, 123, gid)
    named = b"".join(
        struct.pack("<B", len(name)) + name + value
        for name, value in [
            (b"sequence_number", struct.pack("<q", 7)),
            (b"source_timestamp", struct.pack("<q", 123)),
            (b"source_gid", bytes([16]) + gid),
        ]
    )
    # A length stands before each text, so the value behind it ends where that length begins.
    assert parse_attachment(named) == (7, 123, gid)
    for broken in (b"", plain[:-1], plain[:16], struct.pack("<qqB", 7, 123, 3) + gid):
        assert parse_attachment(broken) is None


def test_encodings_of_edgefirst_devices() -> None:
    assert parse_encoding("application/cdr;sensor_msgs/msg/Image") == "sensor_msgs/msg/Image"
    assert parse_encoding("application/cdr") is None
