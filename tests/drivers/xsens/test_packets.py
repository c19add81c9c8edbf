"""The message layer: cutting streams into messages."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.xsens.packets import MAX_MESSAGE, MID_MTDATA2, XbusMessage, XbusParser, encode_message
from recorder.common.errors import ProtocolError
from tests.drivers.xsens.xsens_logs import log

CAPTURE = "imu/xsens_mti_g700_47s.bin"


def parse(stream: bytes, size: int = 1 << 30) -> tuple[list[XbusMessage], XbusParser]:
    parser = XbusParser()
    found = []
    for start in range(0, len(stream), size):
        found += parser.feed(stream[start : start + size])
        assert parser.buffered < MAX_MESSAGE
    return found + parser.finish(), parser


def test_messages_as_in_the_specification() -> None:
    assert encode_message(0x10, b"") == bytes.fromhex("faff1000f1")  # GotoMeasurement
    assert encode_message(0x3E, b"") == bytes.fromhex("faff3e00c3")  # WakeUp
    found, parser = parse(bytes.fromhex("faff3e00c3faff1000f1"))
    assert [(m.mid, m.data, m.offset) for m in found] == [(0x3E, b"", 0), (0x10, b"", 5)]
    assert (parser.messages, parser.stray_bytes, parser.bad_checksums) == (2, 0, 0)


@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 2048])
def test_lengths(size: int) -> None:
    data = bytes(k * 7 % 256 for k in range(size))
    stream = encode_message(0x01, data)
    assert len(stream) == XbusMessage(0x01, data).size == size + (5 if size < 255 else 7)
    assert sum(stream[1:]) % 256 == 0
    for chunk in (1, 3, 5000):
        found, parser = parse(stream * 2, chunk)
        assert [m.data for m in found] == [data, data]
        assert parser.stray_bytes == 0


def test_too_much_data_is_refused() -> None:
    with pytest.raises(ProtocolError, match="2049 bytes"):
        encode_message(0x01, bytes(2049))


@pytest.mark.parametrize("size", [1, 44, 500, 200_000])
def test_real_capture_in_chunks(shared_data: Path, size: int) -> None:
    stream = (shared_data / CAPTURE).read_bytes()
    found, parser = parse(stream, size)
    assert (parser.messages, parser.stray_bytes, parser.bad_checksums) == (4936, 22, 0)
    assert {m.mid for m in found} == {MID_MTDATA2}
    assert found[0].skipped == found[0].offset == 22
    assert stream[22:] == b"".join(encode_message(m.mid, m.data) for m in found)


@pytest.mark.parametrize("size", [1, 44, 500, 200_000])
def test_made_up_log_in_chunks(size: int) -> None:
    others = [encode_message(0x42, b"\x03"), encode_message(0x7F, bytes(300))]
    whole = [*log(60), *others, *log(60)]
    stream = whole[0][30:] + b"".join(whole)  # starts in the middle of a message
    found, parser = parse(stream, size)
    assert [encode_message(m.mid, m.data) for m in found] == whole
    assert parser.stray_bytes == len(whole[0]) - 30
    assert found[0].skipped == len(whole[0]) - 30
    assert not any(m.skipped for m in found[1:])


def test_broken_checksum_loses_one_message() -> None:
    messages = log(5)
    broken = bytearray(messages[2])
    broken[20] ^= 0x40
    found, parser = parse(b"".join([*messages[:2], bytes(broken), *messages[3:]]))
    assert [encode_message(m.mid, m.data) for m in found] == messages[:2] + messages[3:]
    assert parser.bad_checksums == 1
    assert parser.stray_bytes == len(broken)
    assert found[2].skipped == len(broken)


@pytest.mark.parametrize("head", ["faff36ff0800", "faff36fe", "faff36ff0100", "fafffa", "fa"])
def test_false_header_hides_nothing(head: str) -> None:
    messages = log(3)
    found, parser = parse(bytes.fromhex(head) + b"".join(messages), 7)
    assert [encode_message(m.mid, m.data) for m in found] == messages
    assert parser.stray_bytes == len(head) // 2


@pytest.mark.parametrize("size", [0, 254, 2049, 65535])
def test_impossible_extended_length_does_not_wait(size: int) -> None:
    parser = XbusParser()
    good = encode_message(0x01, b"abc")
    found = parser.feed(b"\xfa\xff\x36\xff" + struct.pack(">H", size) + good)
    assert [m.data for m in found] == [b"abc"]
    assert parser.buffered == 0


def test_packets_that_do_not_fit_are_no_message() -> None:
    good = log(1)[0]
    bad = encode_message(MID_MTDATA2, b"\x10\x20\x05\x00\x01")  # five bytes said, two there
    found, parser = parse(bad + good)
    assert [encode_message(m.mid, m.data) for m in found] == [good]
    assert parser.bad_checksums == 1


def test_every_cut_keeps_the_whole_messages() -> None:
    messages = log(4)
    stream = b"".join(messages)
    ends = [sum(map(len, messages[: k + 1])) for k in range(4)]
    for cut in range(len(stream) + 1):
        found, parser = parse(stream[:cut])
        assert len(found) == sum(end <= cut for end in ends)
        assert parser.skipped == cut - ([0, *ends][len(found)])


def test_buffer_is_bounded_on_headers_alone() -> None:
    parser = XbusParser()
    for _ in range(20):
        assert parser.feed(b"\xfa\xff" * 1000) == []
        assert parser.buffered < MAX_MESSAGE


@given(st.binary(max_size=300), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_any_bytes_are_accounted_for(noise: bytes, sizes: list[int]) -> None:
    stream = noise.replace(b"\x00", b"\xfa\xff")
    whole, whole_parser = parse(stream)
    parser = XbusParser()
    found = []
    pos = turn = 0
    while pos < len(stream):
        size = sizes[turn % len(sizes)]
        found += parser.feed(stream[pos : pos + size])
        pos, turn = pos + size, turn + 1
    found += parser.finish()
    assert found == whole
    assert parser.stray_bytes == whole_parser.stray_bytes
    assert parser.bad_checksums == whole_parser.bad_checksums
    assert parser.stray_bytes + sum(m.size for m in found) == len(stream)
    assert parser.skipped + sum(m.size + m.skipped for m in found) == len(stream)


_LOG = [*log(12), encode_message(0x7F, bytes(range(256)) * 2), *log(12, first=12)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["flip", "cut", "insert"]),
            st.integers(0, sum(map(len, _LOG)) - 1),
            st.binary(min_size=1, max_size=90),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 400),
)
def test_intact_messages_survive_mutations(
    mutations: list[tuple[str, int, bytes]], size: int
) -> None:
    stream: list[tuple[int, int]] = []  # (byte, number of its message, -1: none any more)
    starts = []
    for number, message in enumerate(_LOG):
        starts.append(len(stream))
        stream += [(byte, number) for byte in message]
    broken = set()
    for kind, at, noise in mutations:
        at = min(at, len(stream) - 1)
        span = len(noise)
        touched = {number for _, number in stream[at : at + span]}
        foreign = [(byte, -1) for byte in noise]
        if kind == "flip":
            stream[at : at + span] = foreign
        elif kind == "cut":
            del stream[at : at + span]
        else:
            touched = {stream[at][1]} if at and stream[at - 1][1] == stream[at][1] else set()
            stream[at:at] = foreign
        broken |= touched
    found, _ = parse(bytes(byte for byte, _ in stream), size)
    got = {m.offset: encode_message(m.mid, m.data) for m in found}
    # What the checksum lets pass by chance (1 in 256) may lie over a good message: that is the
    # protocol's limit, and the only excuse.
    position: dict[int, int] = {}
    for offset, (_, number) in enumerate(stream):
        position.setdefault(number, offset)
    for number, message in enumerate(_LOG):
        if number in broken:
            continue
        start = position[number]
        overlaid = any(
            o < start + len(message) and start < o + len(m) and o != start for o, m in got.items()
        )
        assert got.get(start) == message or overlaid
