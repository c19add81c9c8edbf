"""Synthetic Ousters for tests: packets by ouster-sdk's writer, captures by our own few lines."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ouster.sdk import core, open_source

from drivers.kit.driver import EndOfSource, Item, Sample
from drivers.ouster.driver import OusterDriver
from recorder.codecs.streams import StreamSpec
from tests.formats.bags.kit import Sent, cdr
from tests.formats.pcap.test_datagrams import HOST, ethernet, ipv4, udp
from tests.support.devices import check_sample, make_driver

BEAMS, COLUMNS, PER_PACKET = 16, 128, 16
PACKETS = COLUMNS // PER_PACKET
T0_NS, DEVICE0_NS, SWEEP_NS = 1_700_000_000_000_000_000, 5_000_000_000, 100_000_000
SERIAL, INIT_ID = 1234, 77
LIDAR_FIELDS = {"RANGE": "rng", "RANGE2": "rng2", "REFLECTIVITY": "rfl", "REFLECTIVITY2": "rfl2"}

Packets = list[tuple[int, int, bytes]]  # host stamp in ns, port, payload


driver_for = functools.partial(make_driver, OusterDriver, "lidar")


def play(driver: OusterDriver, limit: int = 10**6) -> tuple[Sequence[StreamSpec], list[Item]]:
    items: list[Item] = []
    try:
        specs = driver.open()
        for _ in range(limit):
            item = driver.read()
            assert item is not None
            items.append(item)
    except EndOfSource:
        pass
    finally:
        driver.close()
    check_items(specs, items)
    return specs, items


def check_items(specs: Sequence[StreamSpec], items: list[Item]) -> None:
    """Every sample is as declared, and all is in order of time."""
    by_name = {spec.name: spec for spec in specs}
    last_ns = 0
    for item in items:
        stamp = int(np.max(item.t_ns))
        assert stamp >= last_ns
        last_ns = stamp
        if isinstance(item, Sample):
            check_sample(by_name[item.stream], item)


def samples(items: Iterable[Item], stream: str = "lidar") -> list[Any]:
    return [i for i in items if isinstance(i, Sample) and i.stream == stream]


def assert_equals_frame(sample: Any, frame: Any) -> None:
    data = sample.data
    for name, channel in LIDAR_FIELDS.items():
        if not frame.has_field(name):
            assert channel not in data
            continue
        values = data[channel][0]
        if name.startswith("RANGE"):
            assert values.max() == min(frame.field(name).max(), 65535)
            values = values + data[channel + "_far"][0]
        np.testing.assert_array_equal(values, frame.field(name), name)
    nir = frame.field("NEAR_IR") if frame.has_field("NEAR_IR") else 0 * frame.field("RANGE")
    np.testing.assert_array_equal(data["nir"][0], nir)
    np.testing.assert_array_equal(data["t_col"][0], frame.timestamp)
    assert sample.t_dev_ns[0] == frame.timestamp[frame.get_last_valid_column()]
    assert sample.t_ns[0] == frame.get_max_valid_packet_timestamp()


def sdk_frames(pcap: Path, metadata: Path) -> list[Any]:
    source = open_source(str(pcap), collate=False, meta=[str(metadata)])
    return [frame for frames in source for frame in frames if frame is not None]


def assert_same_items(got: Sequence[Item], expected: Sequence[Item]) -> None:
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        if not isinstance(a, Sample) or not isinstance(b, Sample):
            assert a == b
            continue
        assert a.stream == b.stream and set(a.data) == set(b.data)
        np.testing.assert_array_equal(a.t_ns, b.t_ns)
        np.testing.assert_array_equal(a.t_dev_ns, b.t_dev_ns)
        for name in a.data:
            np.testing.assert_array_equal(a.data[name], b.data[name], name)


def make_info(profile: str = "RNG15_RFL8_NIR8", imu: str = "LEGACY", window: int = COLUMNS) -> Any:
    info = core.SensorInfo.from_default(core.LidarMode("1024x10"))
    layout, config = info.format, info.config
    layout.udp_profile_lidar = config.udp_profile_lidar = core.UDPProfileLidar.from_string(profile)
    layout.udp_profile_imu = config.udp_profile_imu = core.UDPProfileIMU.from_string(imu)
    layout.pixels_per_column, layout.columns_per_frame = BEAMS, COLUMNS
    layout.pixel_shift_by_row, layout.column_window = [0] * BEAMS, (0, window - 1)
    if imu != "LEGACY":
        layout.imu_measurements_per_packet, layout.imu_packets_per_frame = 4, 2
    if profile.startswith("FUSA"):
        layout.header_type = core.HeaderType.FUSA
    info.format = layout
    config.udp_port_lidar, config.udp_port_imu = 7502, 7503
    info.config = config
    info.beam_altitude_angles = np.linspace(20, -20, BEAMS).tolist()
    info.beam_azimuth_angles = [0.0] * BEAMS
    info.sn, info.init_id, info.prod_line, info.fw_rev = SERIAL, INIT_ID, "OS-1-16", "v3.1.0"
    return core.SensorInfo(info.to_json_string())


def make_frame(info: Any, frame_id: int, k: int = 0) -> Any:
    """The k-th sweep, its fields random over all their bits."""
    layout, rng = core.PacketFormat(info), np.random.default_rng(frame_id)
    frame = core.LidarFrame(info)
    for field in frame.field_types:
        values = frame.field(field.name)
        if field.field_class == core.FieldClass.PIXEL_FIELD and values.dtype.kind == "u":
            bits = rng.integers(0, 1 << 32, values.shape, "u8")
            values[:] = bits & layout.field_value_mask(field.name)
    columns = np.arange(COLUMNS)
    frame.status[:], frame.measurement_id[:], frame.frame_id = 1, columns, frame_id
    device = DEVICE0_NS + k * SWEEP_NS
    frame.timestamp[:] = device + (columns + 1) * (SWEEP_NS // COLUMNS)
    packets = np.arange(1, PACKETS + 1) * (SWEEP_NS // PACKETS)
    frame.packet_timestamp[:] = T0_NS + k * SWEEP_NS + packets
    if frame.has_field("IMU_ACC"):
        frame.field("IMU_ACC")[:] = rng.normal(size=(8, 3))
        frame.field("IMU_GYRO")[:] = rng.normal(size=(8, 3))
        frame.field("IMU_TIMESTAMP")[:] = device + np.arange(1, 9) * (SWEEP_NS // 8)
        frame.field("IMU_MEASUREMENT_ID")[:] = np.arange(8) * (COLUMNS // 8)
        frame.field("IMU_STATUS")[:] = 1
        stamps = T0_NS + k * SWEEP_NS + np.array([1, 2]) * (SWEEP_NS // 2) + 1000
        frame.field("IMU_PACKET_TIMESTAMP")[:] = stamps
    return frame


def lidar_packets(info: Any, frame: Any, init_id: int = INIT_ID, sn: int = SERIAL) -> Packets:
    made = core.frame_to_packets(frame, core.PacketFormat(info), init_id, sn)
    port = {core.LidarPacket: 7502, core.ImuPacket: 7503}
    return [(int(p.host_timestamp), port[type(p)], p.buf.tobytes()) for p in made]


def imu_packet(t_ns: int, device_ns: int) -> tuple[int, int, bytes]:
    return t_ns, 7503, struct.pack("<QQQ6f", 1, 2, device_ns, 0, 0, 1, 90, 0, 0)


def write(
    folder: Path, info: Any, packets: Packets, stamps: bool = True, source: bytes = HOST
) -> Path:
    path = folder / "a.pcap"
    parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1)]
    for t_ns, port, payload in packets:
        frame = ethernet(ipv4(udp(payload, port))).replace(HOST, source, 1)
        seconds = divmod(t_ns, 10**9) if stamps else (0, 0)
        parts += [struct.pack("<IIII", *seconds, len(frame), len(frame)), frame]
    path.write_bytes(b"".join(parts))
    path.with_suffix(".json").write_text(info.to_json_string())
    return path


def capture(info: Any, frame_ids: Sequence[int]) -> list[Packets]:
    return [lidar_packets(info, make_frame(info, n, k)) for k, n in enumerate(frame_ids)]


def flat(sweeps: Iterable[Packets]) -> Packets:
    return sorted((p for sweep in sweeps for p in sweep), key=lambda p: p[0])


def ouster_messages(
    info: Any,
    packets: Packets,
    kind: str = "ouster_sensor_msgs/msg/PacketMsg",
    space: str = "/ouster",
    extra: bytes = b"",
) -> list[Sent]:
    """The messages of the ROS driver: the metadata, which is latched, and the packets."""
    text = info.to_json_string()
    made = [cdr(f"{space}/metadata", "std_msgs/msg/String", packets[0][0] - 5, data=text)]
    for t_ns, port, payload in packets:
        topic = "lidar_packets" if port == 7502 else "imu_packets"
        data = np.frombuffer(payload + extra, np.uint8)
        made.append(cdr(f"{space}/{topic}", kind, t_ns, buf=data))
    return made
