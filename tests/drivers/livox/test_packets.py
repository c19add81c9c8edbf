"""Livox's packets: places of all values as Livox-SDK2 has them, round trips, garbage."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.livox import commands
from drivers.livox.packets import (
    CARTESIAN,
    CARTESIAN_CM,
    POINT,
    SPHERICAL,
    LivoxDecoder,
    decode_imu,
    is_packet,
    make_packet,
    read_header,
)
from recorder.common.errors import FormatError
from recorder.perception.lidar.device_clouds import DeviceCloud
from tests.drivers.livox.rig import INTERVAL_NS, START_NS, Lidar, imu_packet, push_packet

TYPES = (CARTESIAN, CARTESIAN_CM, SPHERICAL)


@pytest.mark.parametrize("data_type", TYPES)
def test_points_are_the_same_after_a_round_trip(data_type: int) -> None:
    lidar = Lidar(data_type)
    packets = lidar.packets(30)
    decoder = lidar.decoder
    assert decoder.find_sound(packets).all()
    values, since_ns = decoder.decode(packets)
    assert values.tobytes() == lidar.values(30).tobytes()
    assert since_ns[3].tolist() == [k * INTERVAL_NS // 96 for k in range(96)]
    times, numbers = decoder.read_times(packets), decoder.read_numbers(packets)
    assert times.tolist() == [START_NS + k * INTERVAL_NS for k in range(30)]
    assert np.array_equal(decoder.encode(values, times, numbers), packets)


@pytest.mark.parametrize(
    ("data_type", "fields", "xyz"),
    [
        (CARTESIAN, ("<iiiBB", 1000, -2000, 3000, 7, 1), (1.0, -2.0, 3.0)),
        (CARTESIAN_CM, ("<hhhBB", 100, -200, 300, 7, 1), (1.0, -2.0, 3.0)),
        (SPHERICAL, ("<IHHBB", 2000, 9000, 9000, 7, 1), (0.0, 2.0, 0.0)),
        (SPHERICAL, ("<IHHBB", 2000, 3000, 0, 7, 1), (1.0, 0.0, 1.7320508)),
    ],
)
def test_every_value_is_where_livox_has_it(
    data_type: int, fields: tuple[str, *tuple[int, ...]], xyz: tuple[float, float, float]
) -> None:
    """By the structs of livox_lidar_def.h, written by hand."""
    code, *values = fields
    body = struct.pack(code, *values) * 96
    head = struct.pack(
        "<BHHHHBBB12xIQ", 0, 36 + len(body), 4800, 96, 77, 5, data_type, 2, 0, START_NS
    )
    decoder = LivoxDecoder("HAP", head + body, 10.0)
    packet = np.frombuffer(head + body, np.uint8)[None]
    assert decoder.interval_ns == 480_000 and decoder.read_state(packet) == {"clock": "GPS"}
    assert decoder.read_numbers(packet).tolist() == [77]
    assert decoder.read_times(packet).tolist() == [START_NS]
    points = DeviceCloud(decoder.columns, "lidar").convert(decoder.decode(packet)[0][0])
    assert np.allclose([points["x"][5], points["y"][5], points["z"][5]], xyz, atol=1e-6)
    assert points["reflectivity"][95] == 7 and points["tag"][95] == 1


def test_the_imu_has_the_units_of_other_imus() -> None:
    sample = decode_imu(imu_packet(3, (0.5, 0.0, -1.0)))
    assert (sample.number, sample.t_ns) == (3, START_NS + 15_000_000)
    assert np.allclose(sample.acc, [4.903325, 0, -9.80665])
    assert np.allclose(sample.avel, [0.1, 0.2, 0.3])
    with pytest.raises(FormatError, match="a packet of points"):
        decode_imu(make_packet())
    with pytest.raises(FormatError, match="of a Livox's IMU"):
        LivoxDecoder("HAP", imu_packet(1), 10.0)


@given(data=st.binary(max_size=80))
def test_garbage_is_refused(data: bytes) -> None:
    assert not is_packet(data)
    with pytest.raises(FormatError):
        read_header(data)
    with pytest.raises(FormatError):
        commands.decode_command(data)


def test_damaged_packets_are_found() -> None:
    packets = Lidar().packets(4)
    packets[0, 10] = SPHERICAL
    packets[1, 5] ^= 1  # the number of points
    packets[2, 1] ^= 1  # the length
    assert Lidar().decoder.find_sound(packets).tolist() == [False, False, False, True]
    assert POINT[CARTESIAN].itemsize == 14


def test_commands_are_those_of_livox() -> None:
    """The header by livox_lidar_def.h; the checksums are those of the published algorithms."""
    data = commands.encode_values({commands.WORK_MODE: b"\1"})
    assert data == bytes.fromhex("0100 0000 1a00 0100 01")
    command = commands.Command(commands.SET, 0x1234, False, False, data)
    sent = command.encode()
    assert sent[:12] == bytes.fromhex("aa00 2100 34120000 0001 0000".replace(" ", ""))
    assert len(sent) == 24 + 9 and commands.decode_command(sent) == command
    assert commands.decode_values(data) == {commands.WORK_MODE: b"\1"}
    # CRC-16/CCITT-FALSE and CRC-32 of "123456789", as all catalogues have them.
    import binascii
    import zlib

    assert binascii.crc_hqx(b"123456789", 0xFFFF) == 0x29B1
    assert zlib.crc32(b"123456789") == 0xCBF43926
    for at in range(len(sent)):
        damaged = bytearray(sent)
        damaged[at] ^= 0x10
        with pytest.raises(FormatError):
            commands.decode_command(bytes(damaged))


def test_what_a_device_tells_of_itself() -> None:
    payload = push_packet(
        k8000=b"47MDL1D0020001\0\0", k8002=bytes((13, 18, 2, 37)), k8006=b"\1",
        k8007=struct.pack("<i", 5123), k800C=b"\1", k800B=struct.pack("<q", -1_500),
        k8011=struct.pack("<8I", 0x01020304, *[0] * 7), k8001=b"Mid-360\0",
    )  # fmt: skip
    values = commands.decode_values(commands.decode_command(payload).data)
    assert commands.read_state(values) == {
        "serial": "47MDL1D0020001", "product": "Mid-360", "firmware": "13.18.2.37",
        "work_state": "normal", "time_sync": "PTP", "core_c": 51, "time_offset_us": -2,
        "hms_codes": [0x01020304],
    }  # fmt: skip
    with pytest.raises(FormatError, match="too few are there"):
        commands.decode_values(commands.decode_command(payload).data[:-1])
