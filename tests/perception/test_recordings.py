"""Which driver plays which topic of a recording, under which name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mcap.writer import Writer

from recorder.common.errors import UsageError
from recorder.formats.bags.bag import Bag
from recorder.formats.ros2.definitions import (
    NEBULA_PACKETS,
    PANDAR_SCAN,
    ROBOSENSE_SCAN,
    RSLIDAR_OLD_PACKET,
    RSLIDAR_OLD_SCAN,
    RSLIDAR_PACKET,
    VELODYNE_SCAN,
)
from recorder.perception.recordings import Findings, sensors_of
from tests.drivers.kit.lidar.packet_messages import scan_message
from tests.drivers.kit.test_mcap_positions import ros_fix
from tests.formats.bags.kit import (
    START_NS,
    Sent,
    cdr,
    compressed,
    fox_compressed,
    imu,
    jpeg,
    json_imu,
    raw_image,
    write_mcap,
)

T = START_NS
VALUES = {"acc": [0, 0, 0], "avel": [0, 0, 0]}


def packets(topic: str) -> Sent:
    return cdr(topic, "ouster_sensor_msgs/msg/PacketMsg", T, buf=np.zeros(3, np.uint8))


def scan(topic: str, kind: str) -> Sent:
    size = 1206 if kind == VELODYNE_SCAN else 1248
    return scan_message(topic, kind, [(T, bytes(size))])


def text(topic: str) -> Sent:
    return cdr(topic, "std_msgs/msg/String", T, data="x")


def found(tmp_path: Path, *sent: Sent, wanted: dict[str, str | None] | None = None) -> Findings:
    with Bag(write_mcap(tmp_path / "a.mcap", sent)) as bag:
        return sensors_of(bag, wanted)


def names(findings: Findings) -> dict[str, str]:
    return {sensor.topic: sensor.name for sensor in findings.sensors}


@pytest.mark.parametrize(
    ("sent", "name", "driver"),
    [
        (fox_compressed("/camera/image", b"", T), "camera", "camera"),
        (compressed("/image_raw/compressed", b"", T), "camera", "camera"),
        (compressed("/Cam-2/left//image_rect_color", b"", T), "cam_2_left", "camera"),
        (compressed("/9/image", b"", T), "camera_9", "camera"),
        (compressed("/äö/image", b"", T), "camera", "camera"),
        (compressed("/" + "x" * 200, b"", T), "x" * 50, "camera"),
        (imu("/imu/data", T, (0, 0, 0), (0, 0, 0)), "imu", "imu"),
        (imu("/data", T, (0, 0, 0), (0, 0, 0)), "imu", "imu"),
        (json_imu("/lidar_imu", T, VALUES), "lidar_imu", "imu"),
        (packets("/ouster/lidar_packets"), "ouster", "ouster"),
        (packets("/lidar_packets"), "lidar", "ouster"),
        (scan("/roof/pandar_packets", PANDAR_SCAN), "roof", "hesai"),
        (scan("/velodyne_packets", VELODYNE_SCAN), "lidar", "velodyne"),
        (scan("/rslidar_packets", RSLIDAR_PACKET), "lidar", "robosense"),
        (scan("/left/robosense_packets", ROBOSENSE_SCAN), "left", "robosense"),
    ],
)
def test_names_come_from_topics(tmp_path: Path, sent: Sent, name: str, driver: str) -> None:
    (sensor,) = found(tmp_path, sent).sensors
    assert (sensor.name, sensor.driver, sensor.topic) == (name, driver, sent.topic)
    assert sensor.messages == 1


def test_no_name_is_there_twice(tmp_path: Path) -> None:
    findings = found(
        tmp_path,
        compressed("/a/image", b"", T),
        compressed("/a/image_raw", b"", T),
        imu("/a", T, (0, 0, 0), (0, 0, 0)),
        packets("/ouster/lidar_packets"),
        imu("/ouster/imu", T, (0, 0, 0), (0, 0, 0)),
    )
    assert names(findings) == {
        "/a": "a",
        "/a/image": "a_2",
        "/a/image_raw": "a_3",
        "/ouster/imu": "ouster_imu_2",  # ouster_imu is the stream of the lidar's own packets
        "/ouster/lidar_packets": "ouster",
    }


def pictures(topic: str, count: int) -> list[Sent]:
    return [compressed(topic, jpeg(0), T + at) for at in range(count)]


def raws(topic: str, count: int) -> list[Sent]:
    pixels = np.zeros((4, 4, 3), np.uint8)
    return [raw_image(topic, "bgr8", pixels, T + at) for at in range(count)]


@pytest.mark.parametrize(
    ("raw_count", "count", "unread", "played", "reasons"),
    [
        (3, 3, (), "/c/compressed", {"/c": "its pictures are those of /c/compressed"}),
        (
            3,
            4,
            (),
            "/c/compressed",
            {"/c": "its pictures are those of /c/compressed, which has more of them"},
        ),
        (
            4,
            3,
            (),
            "/c",
            {"/c/compressed": "its pictures are those of /c, which has more of them"},
        ),
        (3, 3, ("/c/compressed",), "/c", {"/c/compressed": "is JPEG XL"}),
        (3, 3, ("/c",), "/c/compressed", {"/c": "is JPEG XL"}),
    ],
)
def test_of_raw_and_compressed_pictures_those_that_can_be_read_are_played(
    tmp_path: Path,
    raw_count: int,
    count: int,
    unread: tuple[str, ...],
    played: str,
    reasons: dict[str, str],
) -> None:
    sent = [*raws("/c", raw_count), *pictures("/c/compressed", count)]
    with Bag(write_mcap(tmp_path / "a.mcap", sent)) as bag:
        findings = sensors_of(bag, unread=dict.fromkeys(unread, "is JPEG XL"))
    assert names(findings) == {played: "c"}
    assert findings.left_out == reasons


def test_compressed_pictures_without_a_message_leave_the_raw_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start("ros2")
        for sent, count in ((raws("/c", 2)[0], 2), (pictures("/c/compressed", 1)[0], 0)):
            schema = writer.register_schema(sent.schema, "ros2msg", sent.schema_data)
            channel = writer.register_channel(sent.topic, "cdr", schema)
            for at in range(count):
                writer.add_message(channel, T + at, sent.data, T + at)
        writer.finish()  # type: ignore[no-untyped-call]
    with Bag(path) as bag:
        findings = sensors_of(bag)
    assert names(findings) == {"/c": "c"}
    assert findings.left_out == {"/c/compressed": "has no message"}


def test_what_is_beside_compressed_data_of_another_kind_is_played(tmp_path: Path) -> None:
    sent = [imu("/c/compressed", T, (0, 0, 0), (0, 0, 0)), *raws("/c", 1)]
    assert set(names(found(tmp_path, *sent))) == {"/c", "/c/compressed"}


def test_positions_are_copies_only_beside_the_recorders_own(tmp_path: Path) -> None:
    """The archives have ``/gnss/fix`` beside ``/gnss``, in JSON; others have two receivers."""
    fix = ros_fix("/gnss/fix", T)
    schema = b'{"properties": {"timestamp": {}, "pos": {}, "fix": {}}}'
    own = Sent("/gnss", "recorder.gnss", "json", b"{}", T, schema)
    findings = found(tmp_path, own, fix)
    assert set(names(findings)) == {"/gnss"}
    assert findings.left_out == {"/gnss/fix": "its positions are those of /gnss"}
    assert set(names(found(tmp_path, ros_fix("/gnss", T), fix))) == {"/gnss", "/gnss/fix"}
    moved = imu("/gnss", T, (0, 0, 0), (0, 0, 0))
    assert set(names(found(tmp_path, moved, fix))) == {"/gnss", "/gnss/fix"}


def test_what_a_lidars_driver_reads_is_not_left_out(tmp_path: Path) -> None:
    findings = found(
        tmp_path,
        packets("/o/lidar_packets"),
        packets("/o/imu_packets"),
        text("/o/metadata"),
        text("/metadata"),
        packets("/p/imu_packets"),
        packets("/o/zone_packets"),
    )
    assert names(findings) == {"/o/lidar_packets": "o"}
    assert findings.left_out == {
        "/metadata": "no driver plays text",
        "/p/imu_packets": "packets of an IMU without those of its lidar",
        "/o/zone_packets": "its packets are not read",
    }


def test_what_a_lidar_tells_of_itself_belongs_to_its_packets(tmp_path: Path) -> None:
    findings = found(
        tmp_path,
        scan("/a/rslidar_packets", RSLIDAR_OLD_SCAN),
        scan("/a/rslidar_packets_difop", RSLIDAR_OLD_PACKET),
        scan("/b/packets", NEBULA_PACKETS),
    )
    assert names(findings) == {"/a/rslidar_packets": "a"}
    assert findings.uses == {"/a/rslidar_packets_difop": "metadata of the lidar beside it"}
    assert findings.left_out == {"/b/packets": "no driver plays packets of a lidar"}


def test_the_same_pictures_are_imported_once(tmp_path: Path) -> None:
    sent = (
        raw_image("/c/image", "mono8", np.zeros((2, 2), np.uint8), T),
        compressed("/c/image/compressed", b"", T),
    )
    findings = found(tmp_path, *sent)
    assert names(findings) == {"/c/image/compressed": "c"}
    assert findings.left_out == {"/c/image": "its pictures are those of /c/image/compressed"}
    assert names(found(tmp_path, *sent, wanted={"/c/image": None})) == {"/c/image": "c"}


def test_topics_may_be_selected_and_named(tmp_path: Path) -> None:
    sent = (compressed("/c/image", jpeg(0), T), imu("/imu/data", T, (0, 0, 0), (0, 0, 0)))
    findings = found(tmp_path, *sent, wanted={"/imu/data": "c"})
    assert names(findings) == {"/imu/data": "c"}
    assert findings.left_out == {"/c/image": "was not selected"}
    both = found(tmp_path, *sent, wanted={"/imu/data": "c", "/c/image": None})
    assert names(both) == {"/imu/data": "c", "/c/image": "c_2"}


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"/none": None}, r"has no topic '/none'; those to import: /c/image, /d/image"),
        ({"/points": None}, r"'/points' cannot be imported: no driver plays 'a/msg/Cloud'"),
        ({"/tf_static": None}, r"'/tf_static' cannot be imported: is used with the others"),
        ({"/c/image": "Camera"}, r"'Camera' cannot be a sensor's name"),
        ({"/c/image": "x", "/d/image": "x"}, r"two topics would be the sensor 'x'"),
    ],
)
def test_a_wrong_selection_is_an_error(
    tmp_path: Path, wanted: dict[str, str | None], problem: str
) -> None:
    sent = [
        compressed("/c/image", b"", T),
        compressed("/d/image", b"", T),
        Sent("/points", "a/msg/Cloud", "cdr", b"", T),
        Sent("/tf_static", "tf2_msgs/msg/TFMessage", "cdr", b"", T),
    ]
    with pytest.raises(UsageError, match=problem):
        found(tmp_path, *sent, wanted=wanted)


def test_topics_that_no_source_can_name_are_left_out(tmp_path: Path) -> None:
    """The others are imported all the same."""
    wrong = ("/a\n/image", "/\x1b[31m", "/\u202ecam", "/a#b")
    sent = [fox_compressed(topic, jpeg(0), T) for topic in (*wrong, "/<b>'\" ;/image", "/front")]
    findings = found(tmp_path, *sent)
    assert names(findings) == {"/front": "front", "/<b>'\" ;/image": "b"}
    assert set(findings.left_out) == set(wrong)
    assert set(findings.left_out.values()) == {
        "a source cannot name the topic, because the name has '#' or control characters"
    }


def test_a_lidar_of_points_has_no_imu_of_its_own(tmp_path: Path) -> None:
    cloud = Sent("/lidar/points", "sensor_msgs/msg/PointCloud2", "cdr", b"\0\1\0\0", T)
    path = write_mcap(tmp_path / "a.mcap", [cloud, json_imu("/lidar_imu", T, VALUES)])
    with Bag(path) as bag:
        names = {sensor.topic: sensor.name for sensor in sensors_of(bag).sensors}
    assert names == {"/lidar/points": "lidar", "/lidar_imu": "lidar_imu"}
