"""``mcap:``: packets that Ouster's ROS driver sent, as the same packets in a capture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Lost
from recorder.common.errors import SourceError
from tests.drivers.ouster.rig import (
    SERIAL,
    SWEEP_NS,
    T0_NS,
    Packets,
    assert_same_items,
    capture,
    driver_for,
    flat,
    imu_packet,
    make_info,
    ouster_messages,
    play,
    samples,
    write,
)
from tests.formats.bags.kit import Sent, cdr, compressed, jpeg, write_bag, write_mcap

KINDS = ("ouster_sensor_msgs/msg/PacketMsg", "ouster_ros/msg/PacketMsg")


def drive(info: Any) -> Packets:
    packets = capture(info, range(3))
    if info.format.udp_profile_imu.name == "LEGACY":
        imu = [imu_packet(T0_NS + n * 10_000_000, n * 10_000_000) for n in range(1, 30)]
        packets.append(imu)
    return flat(packets)


@pytest.mark.parametrize("imu", ["LEGACY", "ACCEL32_GYRO32_NMEA"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_gives_what_a_capture_of_the_packets_gives(
    tmp_path: Path, kind: str, imu: str
) -> None:
    info = make_info(imu=imu)
    packets = drive(info)
    messages = ouster_messages(info, packets, kind)
    path = write_mcap(tmp_path / "a.mcap", messages)
    specs, items = play(driver := driver_for("mcap", path))
    wanted_specs, wanted = play(driver_for("pcap", write(tmp_path, info, packets)))
    assert specs == wanted_specs
    assert len(samples(items)) == 3 and len(samples(items, "lidar_imu")) > 5
    assert_same_items(items, wanted)
    # The metadata comes before the packets, and another driver may play it.
    assert driver.origin_ns == min(each.log_ns for each in messages) < packets[0][0]


def test_old_messages_have_one_byte_more(tmp_path: Path) -> None:
    info = make_info()
    packets = drive(info)
    plain = write_mcap(tmp_path / "a.mcap", ouster_messages(info, packets))
    padded = write_mcap(tmp_path / "b.mcap", ouster_messages(info, packets, extra=b"\0"))
    assert_same_items(play(driver_for("mcap", padded))[1], play(driver_for("mcap", plain))[1])


def test_two_sensors_in_a_bag_are_chosen_by_topic(tmp_path: Path) -> None:
    info = make_info()
    packets = drive(info)
    left, right = (
        ouster_messages(info, packets, space="/left"),
        ouster_messages(info, packets[:-40], space="/right"),
    )
    picture = compressed("/c", jpeg(0), T0_NS - SWEEP_NS)
    messages = sorted([picture, *left, *right], key=lambda each: each.log_ns)
    path = write_bag(tmp_path / "bag", [messages[:30], messages[30:]])
    with pytest.raises(SourceError, match="select a topic, as in #/left/lidar_packets"):
        driver_for("mcap", path).open()
    _, items = play(driver := driver_for("mcap", f"{path}#/left/lidar_packets"))
    assert_same_items(items, play(driver_for("pcap", write(tmp_path, info, packets)))[1])
    assert driver.origin_ns == T0_NS - SWEEP_NS - 3_000_000  # the picture's stamp


def test_metadata_may_come_from_a_file(tmp_path: Path) -> None:
    info = make_info()
    packets = drive(info)
    messages = ouster_messages(info, packets)[1:]
    path = write_mcap(tmp_path / "b.mcap", messages)
    with pytest.raises(SourceError) as caught:
        driver_for("mcap", path).open()
    assert "has no topic /ouster/metadata" in str(caught.value)
    assert "option `metadata`" in str(caught.value)
    file = tmp_path / "sensor.json"
    file.write_text(info.to_json_string())
    _, items = play(driver_for("mcap", path, metadata=str(file)))
    assert_same_items(items, play(driver_for("pcap", write(tmp_path, info, packets)))[1])


def test_metadata_of_another_sensor_is_an_error(tmp_path: Path) -> None:
    info = make_info()
    messages = ouster_messages(info, drive(info))
    other = make_info("RNG19_RFL8_SIG16_NIR16")
    metadata = cdr("/ouster/metadata", KINDS[0], 0, buf=np.zeros(1, np.uint8))
    for wrong, text in (
        (other.to_json_string(), "the metadata (lidar: "),
        ("{}", "is not Ouster sensor metadata"),
        (info.to_json_string().replace(str(SERIAL), "99887"), f"packets of the sensor {SERIAL}"),
    ):
        metadata = cdr("/ouster/metadata", "std_msgs/msg/String", T0_NS, data=wrong)
        path = write_mcap(tmp_path / "a.mcap", [metadata, *messages[1:]])
        with pytest.raises(SourceError) as caught:
            driver_for("mcap", path).open()
        assert text in str(caught.value) and str(path) in str(caught.value)


def test_a_bag_without_packets_is_an_error(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "a.mcap", [compressed("/c", jpeg(0), T0_NS)])
    with pytest.raises(SourceError, match="has no topic with packets"):
        driver_for("mcap", path).open()


def test_messages_that_are_no_packets_are_one_loss(tmp_path: Path) -> None:
    info = make_info()
    messages = ouster_messages(info, drive(info))
    lidar = [n for n, each in enumerate(messages) if each.topic.endswith("lidar_packets")]
    for n in lidar[3:5]:
        each = messages[n]
        messages[n] = Sent(each.topic, each.schema, "cdr", each.data[:-7], each.log_ns)
    _, items = play(driver_for("mcap", write_mcap(tmp_path / "a.mcap", messages)))
    lost = [item for item in items if isinstance(item, Lost)]
    assert [(each.cause, each.count) for each in lost] == [("corrupt", None)]
    assert len(samples(items)) == 3


def test_only_the_imus_topic_missing_leaves_the_imu_out(tmp_path: Path) -> None:
    info = make_info()
    messages = [
        m for m in ouster_messages(info, drive(info)) if not m.topic.endswith("imu_packets")
    ]
    specs, items = play(driver_for("mcap", write_mcap(tmp_path / "a.mcap", messages)))
    assert [spec.name for spec in specs] == ["lidar"] and len(samples(items)) == 3


def test_a_killed_recorders_file_ends_with_an_interval_of_loss(tmp_path: Path) -> None:
    info = make_info()
    messages = ouster_messages(info, drive(info))
    path = write_mcap(tmp_path / "a.mcap", messages, chunk_size=20_000, finish=False)
    _, items = play(driver_for("mcap", path))
    assert 1 <= len(samples(items)) <= 3
    end = items[-1]
    assert isinstance(end, Lost) and (end.cause, end.count) == ("truncated", None)
