"""Commands: output configurations as real devices sent them, identities, errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.xsens.commands import (
    BAUDRATES,
    EVERY_MESSAGE,
    USUAL_BAUDRATES,
    Identity,
    Mid,
    Output,
    are_same_outputs,
    baudrate_code,
    bytes_per_second,
    decode_outputs,
    device_id,
    encode_outputs,
    error_text,
    firmware_revision,
    has_receiver,
    make_gnss_outputs,
    make_outputs,
    product_code,
    sample_rate,
)
from drivers.xsens.mtdata2 import Coordinates, MtData2, Precision, encode_mtdata2
from drivers.xsens.packets import MID_MTDATA2, XbusParser, encode_message
from drivers.xsens.positions import find_output_rate
from drivers.xsens.samples import Facts
from recorder.common.errors import ProtocolError
from tests.drivers.xsens.xsens_logs import sample


@pytest.mark.parametrize(
    ("name", "rotation", "first"),
    [
        ("mti_g710_1", "euler_angles(0x2030)@100", "0xe020"),
        ("mti_g710_2", "euler_angles(0x2031)@100", "0xe010"),
    ],
)
def test_output_configurations_of_real_devices(
    shared_data: Path, name: str, rotation: str, first: str
) -> None:
    data = (shared_data / "imu" / name / "outputconfig.bin").read_bytes()
    outputs = decode_outputs(data)
    assert encode_outputs(outputs) == data
    golden = (shared_data / "imu" / name / "outputconfig.golden").read_text()
    rates = [line.strip() for line in golden.splitlines()[1::2]]
    assert rates == ["Max" if o.rate_hz == EVERY_MESSAGE else f"{o.rate_hz} Hz" for o in outputs]
    assert [o.comes_always for o in outputs] == [rate == "Max" for rate in rates]
    assert rotation in map(str, outputs) and f"0x{outputs[3].data_id:04x}" == first
    assert sample_rate(outputs) == 100
    facts = Facts.from_outputs(outputs, {})
    assert facts is not None
    assert (facts.rotation, facts.frame, facts.names) == ("all", "ENU", ("acc", "avel", "rot"))
    assert facts.period_ns == 1e7


def test_commands_as_in_the_specification() -> None:
    assert encode_message(Mid.GOTO_CONFIG, b"").hex() == "faff3000d1"
    assert encode_message(Mid.GOTO_MEASUREMENT, b"").hex() == "faff1000f1"
    assert encode_message(Mid.REQ_DID, b"").hex() == "faff000001"
    assert encode_message(Mid.RESET, b"").hex() == "faff4000c1"
    wanted = encode_outputs([Output(0x2010, 100), Output(0x4020, 100)])
    assert wanted.hex() == "2010006440200064"


def test_wanted_outputs() -> None:
    outputs = make_outputs(400, ["quaternion", "magnetic_field"], Coordinates.NWU)
    assert outputs == (
        Output(0x1020),
        Output(0x1060),
        Output(0x2018, 400),
        Output(0x4020, 400),
        Output(0x8020, 400),
        Output(0xC020, 400),
    )
    assert make_outputs(1, ["euler_angles", "euler_angles"]) == make_outputs(1, ["euler_angles"])
    with pytest.raises(ProtocolError, match="'heading' is not one of euler_angles, quaternion"):
        make_outputs(100, ["heading"])


def test_what_is_the_same() -> None:
    wanted = make_outputs(100, ["euler_angles"])
    device = (Output(0x1060, 2000), *wanted[2:], Output(0x1020, 100))
    assert are_same_outputs(wanted, device)
    assert not are_same_outputs(wanted, wanted[1:])
    assert not are_same_outputs(wanted, make_outputs(200, ["euler_angles"]))
    assert not are_same_outputs(wanted, make_outputs(100, ["euler_angles"], Coordinates.NED))
    assert not are_same_outputs(wanted, (*wanted, Output(0x1010)))


@pytest.mark.parametrize("kind", ["quaternion", "euler_angles", "rotation_matrix"])
def test_sizes_are_those_of_messages(kind: str) -> None:
    outputs = make_outputs(100, [kind])
    usual = sample(0, counter=0, ticks=0, kind=kind)
    assert bytes_per_second(outputs) == 100 * len(usual)
    doubled = tuple(o if o.comes_always else Output(o.data_id | 3, o.rate_hz) for o in outputs)
    precise = sample(0, counter=0, ticks=0, kind=kind, precision=Precision.FLOAT64)
    assert bytes_per_second(doubled) == 100 * len(precise)


def test_sizes_of_what_comes_seldom() -> None:
    outputs = (Output(0x1020), Output(0x4020, 100), Output(0xC020, 50))
    small = len(encode_message(MID_MTDATA2, encode_mtdata2(MtData2(packet_counter=1))))
    assert bytes_per_second(outputs) == 100 * (small + 15) + 50 * 15


def test_limits_of_a_configuration() -> None:
    assert len(decode_outputs(encode_outputs([Output(0x1020)] * 32))) == 32
    with pytest.raises(ProtocolError, match="33 outputs"):
        encode_outputs([Output(0x1020)] * 33)
    with pytest.raises(ProtocolError, match="output configuration"):
        encode_outputs([Output(0x1020, 70_000)])
    with pytest.raises(ProtocolError, match="5 bytes are not a whole number of entries"):
        decode_outputs(bytes(5))
    assert decode_outputs(bytes(8)) == ()  # what a device without outputs answers
    assert sample_rate(()) == sample_rate((Output(0x1020),)) == 0


@given(st.binary(max_size=200))
def test_any_answer_is_read_or_refused(data: bytes) -> None:
    for read in (decode_outputs, device_id, firmware_revision):
        try:
            read(data)
        except ProtocolError:
            continue
    assert isinstance(product_code(data) + error_text(data), str)


@given(st.lists(st.tuples(st.integers(1, 0xFFFF), st.integers(0, 0xFFFF)), max_size=32))
def test_configurations_round_trip(entries: list[tuple[int, int]]) -> None:
    outputs = tuple(Output(*entry) for entry in entries)
    assert decode_outputs(encode_outputs(outputs)) == outputs
    assert are_same_outputs(outputs, outputs[::-1])
    assert Facts.from_outputs(outputs, {}) is None or sample_rate(outputs) > 0


@pytest.mark.parametrize(
    ("rates", "rotation"),
    [((100, 100, 100), "all"), ((100, 100, 400), "all"), ((400, 400, 100), "some")],
)
def test_facts_of_mixed_rates(rates: tuple[int, int, int], rotation: str) -> None:
    acc, avel, quaternion = rates
    outputs = (Output(0x4020, acc), Output(0x8020, avel), Output(0x2014, quaternion))
    facts = Facts.from_outputs(outputs, {"device": "x"})
    assert facts is not None
    assert (facts.rotation, facts.frame, facts.quaternion) == (rotation, "NED", True)
    assert facts.settings["device"] == "x"


@pytest.mark.parametrize("rates", [(100, 50), (0, 0)])
def test_facts_of_what_makes_no_samples(rates: tuple[int, int]) -> None:
    assert Facts.from_outputs((Output(0x4020, rates[0]), Output(0x8020, rates[1])), {}) is None


def test_identity() -> None:
    assert device_id(bytes.fromhex("0770a1b2")) == "0770A1B2"
    assert device_id(bytes(8)) == "0" * 16
    assert firmware_revision(bytes([1, 8, 0])) == "1.8.0"
    assert firmware_revision(bytes([1, 8, 0, 0, 0, 1, 2, 0, 0, 0, 9])) == "1.8.0 build 258"
    assert product_code(b"MTi-G-710-2A8G4     ") == "MTi-G-710-2A8G4"
    assert str(Identity("07", "MTi-3", "1.0.0")) == "MTi-3 07, firmware 1.0.0"
    for size in (0, 3, 5, 9):
        with pytest.raises(ProtocolError, match="DeviceID"):
            device_id(bytes(size))
    with pytest.raises(ProtocolError, match="FirmwareRev: 2 bytes"):
        firmware_revision(bytes(2))


def test_errors_and_baud_rates() -> None:
    assert error_text(b"\x21") == "a parameter is invalid (code 0x21)"
    assert error_text(b"\x99").endswith("(code 0x99)")
    assert error_text(b"") == "error without a code"
    assert all(BAUDRATES[baudrate_code(rate)] == rate for rate in USUAL_BAUDRATES)
    assert set(USUAL_BAUDRATES) == set(BAUDRATES.values())
    with pytest.raises(ProtocolError, match="12345"):
        baudrate_code(12345)


# --- positions --------------------------------------------------------------------------------

# The maker's example of a configuration of an MTi-G-710 ("MT low level communication protocol
# example"), whole messages with their checksums.
EXAMPLE = bytes.fromhex(
    "FAFFC028 1020FFFF 1060FFFF 20100064 40200190 80200190 C0200064 E020FFFF"
    "50420064 50220064 D0120064 73"
)
EXAMPLE_ANSWER = EXAMPLE[:2] + b"\xc1" + EXAMPLE[3:-1] + b"\x72"


def test_the_makers_example_of_positions() -> None:
    request, answer = (XbusParser().feed(data)[0] for data in (EXAMPLE, EXAMPLE_ANSWER))
    outputs = decode_outputs(request.data)
    assert (request.mid, answer.mid) == (Mid.SET_OUTPUT_CONFIGURATION, 0xC1)
    assert encode_message(request.mid, encode_outputs(outputs)) == EXAMPLE
    assert answer.data == request.data
    assert set(make_gnss_outputs(400, 100)) >= {o for o in outputs if o.data_type >> 12 in (5, 0xD)}
    assert find_output_rate(outputs) == (100, True) and sample_rate(outputs) == 400
    assert has_receiver("", outputs)


@pytest.mark.parametrize(
    ("rate_hz", "most_hz", "taken"),
    [(100, 10, 10), (100, 400, 100), (400, 30, 25), (7, 5, 1), (1, 10, 1)],
)
def test_positions_come_with_samples(rate_hz: int, most_hz: int, taken: int) -> None:
    outputs = make_gnss_outputs(rate_hz, most_hz)
    rates = {o.data_id: o.rate_hz for o in outputs if not o.comes_always}
    assert rates == {0x5042: taken, 0x5022: taken, 0xD012: taken, 0x7010: 4}
    assert {o.data_id for o in outputs if o.comes_always} == {0x1010, 0xE020}
    assert find_output_rate(outputs) == (taken, True)


@pytest.mark.parametrize(
    ("product", "has"),
    [
        ("MTi-G-710-2A8G4", True), ("MTi-G-700", True), ("MTi-7-0I-T", True), ("MTI-8-5A", True),
        ("MTi-670G-8A1G6", True), ("MTi-680-DK", True), ("MTi-680G", True), ("MTi-670", True),
        ("MTi-300-2A8G4", False), ("MTi-30", False), ("MTi-3-8A7G6", False), ("MTi-630", False),
        ("MTi-1", False), ("", False),
    ],
)  # fmt: skip
def test_devices_with_a_receiver(product: str, has: bool) -> None:
    """Product codes of the maker's library and shop."""
    assert has_receiver(product, make_outputs(100, ["euler_angles"])) is has


def test_the_receivers_rate_is_no_difference() -> None:
    """It is acknowledged as 4 Hz, or as the rate of what comes with every message."""
    one, other = (*make_outputs(100, []), Output(0x7010, 4)), Output(0x7010, EVERY_MESSAGE)
    assert are_same_outputs(one, (*make_outputs(100, []), other))
    assert not are_same_outputs(one, make_outputs(100, []))
    for outputs in (one, (*one[:-1], other)):
        assert sample_rate(outputs) == 100
        pvt = encode_mtdata2(MtData2(gnss_pvt=(0,) * 35, packet_counter=0, sample_time_fine=0))
        alone = len(encode_message(MID_MTDATA2, pvt))
        assert bytes_per_second(outputs) == bytes_per_second(one[:-1]) + 4 * alone
    assert find_output_rate(one) == (4, False) and find_output_rate(one[:-1]) is None
