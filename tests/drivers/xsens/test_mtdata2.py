"""The packets of measurement messages: every encoding, golden values, round trips."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.xsens.mtdata2 import (
    Coordinates,
    MtData2,
    Precision,
    data_name,
    decode_mtdata2,
    encode_mtdata2,
    euler_from_matrix,
    euler_from_quaternion,
)
from drivers.xsens.packets import XbusParser
from drivers.xsens.positions import Pvt
from recorder.common.errors import ProtocolError
from tests.drivers.xsens.xsens_logs import (
    UtcTime,
    acceleration_of,
    angles_of,
    matrix,
    orientation,
    quaternion,
    rate_of_turn_of,
    read_golden,
)

KINDS = ("quaternion", "euler_angles", "rotation_matrix")
TOLERANCE = {  # of an angle in rad, from the resolution of its encoding
    Precision.FLOAT32: 2e-6,
    Precision.FP12_20: 5e-6,
    Precision.FP16_32: 1e-8,
    Precision.FLOAT64: 1e-12,
}


@pytest.mark.parametrize("name", ["mti_g710_1", "mti_g710_2"])
def test_golden_values(shared_data: Path, name: str) -> None:
    folder = shared_data / "imu" / name
    messages = XbusParser().feed((folder / "output.bin").read_bytes())
    golden = list(read_golden(folder / "output.golden"))
    assert len(messages) == len(golden) == 100
    compared = 0
    for message, expected in zip(messages, golden, strict=True):
        values = decode_mtdata2(message.data)
        assert not values.unknown
        assert len(values.data_ids) == len(expected)
        for field, value in expected.items():
            got = getattr(values, field)
            if field == "utc_time":
                got = (*got[:-1], 0)
            assert got == value, field
            compared += 1
        assert encode_mtdata2(values) == message.data
    assert compared > 900


def test_real_capture_encodes_to_the_same_bytes(shared_data: Path) -> None:
    stream = (shared_data / "imu/xsens_mti_g700_47s.bin").read_bytes()
    messages = XbusParser().feed(stream)
    kinds = {True: 0, False: 0}
    for message in messages:
        values = decode_mtdata2(message.data)
        assert encode_mtdata2(values) == message.data
        inertial = None not in (values.acceleration, values.rate_of_turn, values.quaternion)
        kinds[inertial] += 1
        assert inertial or values.gnss_pvt is not None
    assert kinds == {True: 4746, False: 190}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coordinates", Coordinates)
@pytest.mark.parametrize("precision", Precision)
def test_encodings_and_orientations(
    precision: Precision, coordinates: Coordinates, kind: str
) -> None:
    for k in range(0, 200, 9):
        data = encode_mtdata2(
            MtData2(
                acceleration=acceleration_of(k),
                rate_of_turn=rate_of_turn_of(k),
                temperature=-3.5,
                **orientation(kind, angles_of(k)),
            ),
            precision,
            coordinates,
        )
        values = decode_mtdata2(data)
        assert values.acceleration == acceleration_of(k)
        assert values.rate_of_turn == rate_of_turn_of(k)
        assert values.temperature == -3.5
        assert values.coordinates is coordinates
        assert values.has_orientation
        assert values.rotation == pytest.approx(angles_of(k), abs=TOLERANCE[precision])
        assert encode_mtdata2(values) == data


@pytest.mark.parametrize(
    ("precision", "value", "body"),
    [
        (Precision.FLOAT32, 1.5, "3fc00000"),
        (Precision.FP12_20, 1.0, "00100000"),
        (Precision.FP12_20, -2048.0, "80000000"),
        (Precision.FP16_32, 1.5, "800000000001"),  # fraction first, then the integer part
        (Precision.FP16_32, -1.25, "c0000000fffe"),
        (Precision.FLOAT64, -2.0, "c000000000000000"),
    ],
)
def test_number_encodings(precision: Precision, value: float, body: str) -> None:
    packet = struct.pack(">HB", 0x0810 | precision, len(body) // 2) + bytes.fromhex(body)
    assert decode_mtdata2(packet).temperature == value
    assert encode_mtdata2(MtData2(temperature=value), precision) == packet


def test_integers_and_records() -> None:
    utc = UtcTime(123_456_789, 2024, 2, 29, 23, 59, 58, 7)
    numbers = {name: k + 1 for k, name in enumerate(Pvt._fields)}
    numbers |= {"nanosecond": -250, "longitude_e7": -1_800_000_000, "velocity_down_mm_s": -5}
    pvt = Pvt(**numbers)
    full = MtData2(
        packet_counter=65535,
        sample_time_fine=2**32 - 1,
        sample_time_coarse=77,
        gnss_itow_ms=604_799_000,
        utc_time=utc,
        status_byte=5,
        status_word=0x01800007,
        pressure=101_325,
        gnss_pvt=pvt,
    )
    data = encode_mtdata2(full)
    values = decode_mtdata2(data)
    assert replace(values, data_ids=()) == full
    assert [data_name(i) for i in values.data_ids][:2] == ["packet_counter", "sample_time_fine"]
    assert values.rotation is None
    assert values.coordinates is None


def test_unknown_packets_are_kept() -> None:
    odd = bytes.fromhex("7020") + b"\x03abc" + bytes.fromhex("4020") + b"\x02\x01\x02"
    known = encode_mtdata2(MtData2(packet_counter=3))
    values = decode_mtdata2(odd + known)
    assert values.unknown == {0x7020: b"abc", 0x4020: b"\x01\x02"}  # 0x4020 is of no right size
    assert values.acceleration is None
    assert values.packet_counter == 3
    assert encode_mtdata2(values) == odd + known
    assert data_name(0x7020) == "0x7020"


@pytest.mark.parametrize("data", ["10", "1020", "102002", "10200200", "10200200011060"])
def test_packets_beyond_the_end(data: str) -> None:
    with pytest.raises(ProtocolError, match="packet at byte"):
        decode_mtdata2(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("values", "precision"),
    [
        (MtData2(temperature=2048.0), Precision.FP12_20),
        (MtData2(temperature=1e9), Precision.FP16_32),
        (MtData2(temperature=math.inf), Precision.FP12_20),
        (MtData2(temperature=math.nan), Precision.FP16_32),
        (MtData2(temperature=1e300), Precision.FLOAT32),
        (MtData2(packet_counter=65536), Precision.FLOAT32),
        (MtData2(acceleration=(1.0, 2.0)), Precision.FLOAT32),
        (MtData2(data_ids=(0x1020,)), Precision.FLOAT32),
        (MtData2(data_ids=(0x0FF0,)), Precision.FLOAT32),
        (MtData2(unknown={0x0FF0: bytes(256)}), Precision.FLOAT32),
    ],
)
def test_what_does_not_fit_is_refused(values: MtData2, precision: Precision) -> None:
    with pytest.raises(ProtocolError, match="packet 0x"):
        encode_mtdata2(values, precision)


@given(st.binary(max_size=120))
def test_any_data_decodes_or_is_refused(data: bytes) -> None:
    try:
        values = decode_mtdata2(data)
    except ProtocolError:
        return
    assert 3 * len(values.data_ids) <= len(data)
    assert values.rotation is None or len(values.rotation) == 3


@given(st.floats(-3.1, 3.1), st.floats(-1.55, 1.55), st.floats(-3.1, 3.1))
def test_euler_angles_of_both_kinds(roll: float, pitch: float, yaw: float) -> None:
    angles = (roll, pitch, yaw)
    assert euler_from_quaternion(quaternion(*angles)) == pytest.approx(angles, abs=1e-11)
    assert euler_from_matrix(matrix(*angles)) == pytest.approx(angles, abs=1e-11)
    scaled = tuple(1.001 * value for value in quaternion(*angles))
    assert euler_from_quaternion(scaled) == pytest.approx(angles, abs=1e-11)


def test_euler_angles_at_the_edges() -> None:
    half = math.sqrt(0.5)
    roll, pitch, yaw = euler_from_quaternion((half, 0.0, half, 0.0))  # nose straight down
    assert pitch == pytest.approx(math.pi / 2)
    assert math.isfinite(roll) and math.isfinite(yaw)
    assert euler_from_matrix((0.0, 0.0, -1.0000001, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0))[1] == math.pi / 2
    # 90 degrees to the left, in each way
    assert euler_from_quaternion((half, 0.0, 0.0, half))[2] == pytest.approx(math.pi / 2)
    assert euler_from_matrix((0, 1, 0, -1, 0, 0, 0, 0, 1))[2] == pytest.approx(math.pi / 2)
    assert math.isnan(euler_from_quaternion((0.0, 0.0, 0.0, 0.0))[1])
