"""Hesai's packets, built by the manuals' offsets, and those of real sensors."""

from __future__ import annotations

import calendar
import struct
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.hesai.models import MODELS, read_firing_us
from drivers.hesai.packets import HesaiDecoder, find_model
from recorder.common.errors import FormatError


class Manual(NamedTuple):
    """Offsets of a model's packet by its manual: of the tail, and in the tail."""

    size: int
    head: bytes
    blocks: int
    channels: int
    tail: int
    mode: int
    speed: int
    date: int
    micros: int
    sequence: int | None
    block_head: bytes = b""
    confidence: bool = False


HEAD = "eeff{0:02x}{1:02x}0000{2:02x}{3:02x}00{4:02x}0201"
MANUALS = {
    "Pandar40P": Manual(1262, b"", 10, 40, 1240, 14, 8, 16, 10, None, b"\xff\xee"),
    "Pandar64": Manual(1198, bytes.fromhex("eeff400600040000"), 6, 64, 1172, 14, 8, 16, 10, 22),
    "PandarQT64": Manual(
        *(1072, bytes.fromhex(HEAD.format(3, 1, 64, 4, 4)), 4, 64, 1044, 16, 10, 18, 12, 24),
        confidence=True,
    ),
    "PandarXT16": Manual(
        *(568, bytes.fromhex(HEAD.format(6, 1, 16, 8, 4)), 8, 16, 540, 10, 11, 13, 19, 24),
        confidence=True,
    ),
    "PandarXT32": Manual(
        *(1080, bytes.fromhex(HEAD.format(6, 1, 32, 8, 4)), 8, 32, 1052, 10, 11, 13, 19, 24),
        confidence=True,
    ),
    "PandarXT32M": Manual(
        *(820, bytes.fromhex(HEAD.format(6, 1, 32, 6, 5)), 6, 32, 792, 10, 11, 13, 19, 24),
        confidence=True,
    ),
    "QT128": Manual(
        *(1127, bytes.fromhex(HEAD.format(3, 2, 128, 2, 4)), 2, 128, 1061, 12, 13, 15, 21, 26),
        confidence=True,
    ),
    "OT128": Manual(
        861, bytes.fromhex(HEAD.format(1, 4, 128, 2, 4)), 2, 128, 805, 12, 13, 15, 21, 26
    ),
}
SINGLE, DUAL, TRIPLE = 0x37, 0x39, 0x3D


def build(
    manual: Manual, ranges: np.ndarray, azimuths: list[int], *, mode: int, number: int = 7
) -> bytes:
    """Return a packet of ranges [blocks, channels] at 2023-01-11 01:31:18.123456."""
    packet = bytearray(manual.size)
    packet[: len(manual.head)] = manual.head
    at = len(manual.head)
    for azimuth, row in zip(azimuths, ranges.tolist(), strict=True):
        packet[at : at + len(manual.block_head)] = manual.block_head
        at += len(manual.block_head)
        struct.pack_into("<H", packet, at, azimuth)
        at += 2
        for value in row:
            struct.pack_into("<HB", packet, at, value, value % 251)
            at += 4 if manual.confidence else 3
    tail = manual.tail
    packet[tail + manual.mode] = mode
    struct.pack_into("<H", packet, tail + manual.speed, 600)
    packet[tail + manual.date : tail + manual.date + 6] = bytes((23, 1, 11, 1, 31, 18))
    struct.pack_into("<I", packet, tail + manual.micros, 123_456)
    if manual.sequence is not None:
        struct.pack_into("<I", packet, tail + manual.sequence, number)
    return bytes(packet)


SENT_NS = calendar.timegm((2023, 1, 11, 1, 31, 18)) * 10**9 + 123_456_000


@pytest.mark.parametrize("name", MANUALS)
@pytest.mark.parametrize("mode", [SINGLE, DUAL])
def test_every_value_is_where_the_manual_has_it(name: str, mode: int) -> None:
    manual, returns = MANUALS[name], 1 if mode == SINGLE else 2
    count = manual.blocks // returns
    sent = np.arange(manual.blocks * manual.channels).reshape(manual.blocks, -1)
    azimuths = [100 * (block // returns) for block in range(manual.blocks)]
    packet = build(manual, sent, azimuths, mode=mode)
    model = find_model(packet, name if not manual.head else "")
    assert model is MODELS[name]
    decoder = HesaiDecoder(model, packet)
    packets = np.frombuffer(packet * 2, np.uint8).reshape(2, -1)
    assert decoder.find_sound(packets).all() and decoder.rate_hz == 10.0
    assert decoder.unit_mm == (5 if name == "PandarXT32M" else 4)
    columns = decoder.decode(packets, np.zeros(2, np.int64))
    assert columns.azimuth.tolist() == azimuths[::returns] * 2
    wanted = sent.reshape(count, returns, manual.channels).swapaxes(0, 1)
    assert (columns.ranges[:, :count] == wanted).all()
    assert (columns.ranges[:, count:] == wanted).all()
    assert (columns.reflectivity[:, :count] == wanted % 251).all()
    steps = np.diff(columns.t_ns[:count])
    assert np.abs(columns.t_ns - SENT_NS).max() < 700_000
    assert not len(steps) or (np.abs(steps - decoder.column_ns) < 2).all()
    if manual.sequence is not None:
        assert decoder.read_numbers(packets).tolist() == [7, 7]
    assert decoder.number_bits == (0 if manual.sequence is None else 32)


@pytest.mark.parametrize("name", ["PandarXT32M"])
def test_three_returns(name: str) -> None:
    manual = MANUALS[name]
    sent = np.arange(6 * 32).reshape(6, 32)
    packet = build(manual, sent, [0, 0, 0, 18, 18, 18], mode=TRIPLE)
    decoder = HesaiDecoder(find_model(packet), packet)
    assert decoder.returns == ("first", "last", "strongest")
    columns = decoder.decode(np.frombuffer(packet, np.uint8)[None], np.zeros(1, np.int64))
    assert columns.azimuth.tolist() == [0, 18]
    assert columns.ranges[:, 1, 0].tolist() == [96, 128, 160]
    assert np.diff(columns.t_ns).tolist() == [50_000]


def test_channels_fire_when_the_manual_says() -> None:
    firing = {name: read_firing_us(MODELS[name]) for name in MODELS}
    assert firing["PandarXT32"][0][31] == pytest.approx(0.368 + 1.512 * 31)
    assert firing["PandarXT32M"][0][16] == pytest.approx(0.368)
    assert firing["Pandar40P"][0][7] == -54.67 and len(firing["Pandar64"][0]) == 64
    assert firing["PandarQT64"][0][55] == 129.60
    fires = {loop: [t is not None for t in row] for loop, row in firing["QT128"].items()}
    assert fires[0] == [False] * 32 + [True] * 96
    assert fires[1] == [True] * 32 + [False] * 32 + [True] * 64
    assert set(firing["OT128"]) == {0, 1, 2, 3, 8, 9} and firing["OT128"][8][0] == 46.645


@pytest.mark.parametrize(("flag", "loop"), [(0, 1), (1, 0)])
def test_the_mode_flag_of_a_qt128_tells_its_loop(flag: int, loop: int) -> None:
    manual = MANUALS["QT128"]
    packet = bytearray(build(manual, np.zeros((2, 128), int), [5, 5], mode=DUAL))
    packet[1061 + 5] = flag
    decoder = HesaiDecoder(MODELS["QT128"], bytes(packet))
    columns = decoder.decode(np.frombuffer(packet, np.uint8)[None], np.zeros(1, np.int64))
    assert columns.state is not None and columns.state.tolist() == [loop]
    single = build(manual, np.zeros((2, 128), int), [5, 10], mode=SINGLE)
    decoder = HesaiDecoder(MODELS["QT128"], single)
    columns = decoder.decode(np.frombuffer(single, np.uint8)[None], np.zeros(1, np.int64))
    assert columns.state is not None and columns.state.tolist() == [0, 1]


def test_the_states_of_an_ot128() -> None:
    manual = MANUALS["OT128"]
    packet = bytearray(build(manual, np.zeros((2, 128), int), [5, 10], mode=SINGLE))
    struct.pack_into("<H", packet, 805 + 9, 0b01_00 << 12)
    packet[805 + 11] = 2
    decoder = HesaiDecoder(MODELS["OT128"], bytes(packet))
    columns = decoder.decode(np.frombuffer(packet, np.uint8)[None], np.zeros(1, np.int64))
    assert columns.state is not None and columns.state.tolist() == [2 * 4 + 1, 2 * 4]


@pytest.mark.parametrize(("year", "wanted"), [(17, 2017), (120, 2020), (99, 2099)])
def test_years_count_from_2000_or_from_1900(year: int, wanted: int) -> None:
    manual = MANUALS["PandarXT32"]
    packet = bytearray(build(manual, np.zeros((8, 32), int), [0] * 8, mode=DUAL))
    packet[1052 + 13] = year
    decoder = HesaiDecoder(MODELS["PandarXT32"], bytes(packet))
    columns = decoder.decode(np.frombuffer(packet, np.uint8)[None], np.zeros(1, np.int64))
    assert columns.t_ns[0] // 10**9 == calendar.timegm((wanted, 1, 11, 1, 31, 18))


@given(data=st.binary(max_size=1300), name=st.sampled_from(["", *MODELS]))
def test_other_packets_are_refused(data: bytes, name: str) -> None:
    with pytest.raises(FormatError, match="is not of a"):
        find_model(data, name)


def test_damaged_packets_are_found() -> None:
    manual = MANUALS["PandarXT32"]
    packet = build(manual, np.zeros((8, 32), int), [0] * 8, mode=DUAL)
    decoder, packets = HesaiDecoder(MODELS["PandarXT32"], packet), []
    for at, value in ((0, 0), (1052 + 10, SINGLE), (1052 + 14, 13), (1052 + 18, 61)):
        damaged = bytearray(packet)
        damaged[at] = value
        packets.append(bytes(damaged))
    found = decoder.find_sound(np.frombuffer(packet + b"".join(packets), np.uint8).reshape(5, -1))
    assert found.tolist() == [True, False, False, False, False]
    with pytest.raises(FormatError, match="unknown return mode 0x36"):
        HesaiDecoder(MODELS["PandarXT32"], packet[:1062] + b"\x36" + packet[1063:])


@pytest.mark.parametrize(
    ("name", "mode", "returns"),
    [
        ("PandarQT64", 0x33, ["first"]),
        ("PandarQT64", 0x34, ["second"]),
        ("PandarQT64", 0x37, ["strongest"]),
        ("PandarQT64", 0x38, ["last"]),
        ("PandarQT64", 0x39, ["last", "strongest"]),
        ("PandarQT64", 0x3A, ["first", "second"]),
        ("PandarQT64", 0x3B, ["first", "last"]),
        ("PandarQT64", 0x3C, ["first", "strongest"]),
        ("PandarQT64", 0x3E, ["strongest", "second"]),
        ("PandarXT32M", 0x3D, ["first", "last", "strongest"]),
        # XT and OT128 send them in the other order.
        ("PandarXT32", 0x3B, ["last", "first"]),
        ("OT128", 0x3B, ["last", "first"]),
    ],
)
def test_the_order_of_returns(name: str, mode: int, returns: list[str]) -> None:
    manual = MANUALS[name]
    blocks = np.arange(manual.blocks * manual.channels).reshape(manual.blocks, -1)
    packet = build(manual, blocks, [0] * manual.blocks, mode=mode)
    decoder = HesaiDecoder(find_model(packet), packet)
    assert list(decoder.returns) == returns
    columns = decoder.decode(np.frombuffer(packet, np.uint8)[None], np.zeros(1, np.int64))
    first = [manual.channels * k for k in range(len(returns))]
    assert columns.ranges[:, 0, 0].tolist() == first  # as the blocks follow one another


@pytest.mark.parametrize("name", ["PandarXT32", "QT128", "Pandar40P"])
def test_a_return_mode_that_blocks_cannot_have(name: str) -> None:
    manual = MANUALS[name]
    packet = build(
        manual, np.zeros((manual.blocks, manual.channels), int), [0] * manual.blocks, mode=TRIPLE
    )
    with pytest.raises(FormatError, match=rf"0x3d, whose 3 returns the \d+ blocks of a {name}"):
        HesaiDecoder(find_model(packet, name), packet)


@pytest.mark.parametrize(("name", "safety"), [("QT128", 1044), ("OT128", 788)])
def test_safety_codes_without_their_counter(name: str, safety: int) -> None:
    manual, states = MANUALS[name], []
    for counter in range(8):
        packet = bytearray(build(manual, np.zeros((2, 128), int), [5, 5], mode=DUAL))
        packet[safety + 1] = 2 << 5 | 1 << 3 | counter
        struct.pack_into("<H", packet, safety + 3, 0x4711)
        decoder = HesaiDecoder(MODELS[name], bytes(packet))
        states.append(decoder.read_state(np.frombuffer(packet, np.uint8)[None]))
    assert states == [states[0]] * 8
    assert states[0] == {
        "motor_rpm": 600,
        "safety_lidar_state": 2,
        "safety_fault_type": 1,
        "safety_fault_codes": ["0x4711"],
    }


def test_each_of_several_faults_is_in_the_state() -> None:
    """Each packet has another one: Hesai's SDK, ``GetFaultNum`` and ``GetFaultID``."""
    manual, packets = MANUALS["OT128"], []
    for number in (1, 2, 3):
        packet = bytearray(build(manual, np.zeros((2, 128), int), [5, 5], mode=DUAL))
        packet[788 + 2] = 3 << 4 | number
        struct.pack_into("<H", packet, 788 + 3, 0x100 * number + 7)
        packets.append(np.frombuffer(packet, np.uint8))
    decoder = HesaiDecoder(MODELS["OT128"], packets[0].tobytes())
    every = ["0x0107", "0x0207", "0x0307"]
    assert decoder.read_state(np.stack(packets))["safety_fault_codes"] == every
    assert decoder.read_state(packets[1][None])["safety_fault_codes"] == every  # as before
    none = packets[0].copy()
    none[790:793] = 0
    assert decoder.read_state(none[None])["safety_fault_codes"] == []


@pytest.mark.parametrize(("name", "place"), [("Pandar40P", 1240 + 5), ("Pandar64", 1172 + 5)])
def test_a_shutdown_by_temperature_is_a_state(name: str, place: int) -> None:
    manual = MANUALS[name]
    packet = bytearray(
        build(
            manual, np.zeros((manual.blocks, manual.channels), int), [0] * manual.blocks, mode=DUAL
        )
    )
    for flag in (0, 1):
        packet[place] = flag
        decoder = HesaiDecoder(MODELS[name], bytes(packet))
        state = decoder.read_state(np.frombuffer(packet, np.uint8)[None])
        assert state["shut_down_by_temperature"] is bool(flag)
