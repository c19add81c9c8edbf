"""Access units from RTP: against FFmpeg's packets, and packets written by hand from the RFCs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import av
import cv2
import numpy as np
import pytest

from drivers.camera.rtsp.rtp import (
    MAX_UNIT_BYTES,
    AccessUnit,
    Depacketizer,
    NalAssembler,
    parse_rtp,
)
from drivers.camera.rtsp.rtp_jpeg import JpegAssembler
from recorder.common.errors import ProtocolError
from tests.drivers.camera.rtp_packets import FPS, Data, encode, packets, rtp

S = b"\0\0\0\1"
IDR, P, SPS, PPS = b"\x65\x88one", b"\x41\x9atwo", b"\x67\x42sps", b"\x68\xcepps"


def depacketizer(codec: str = "h264") -> Depacketizer:
    assembler = JpegAssembler() if codec == "jpeg" else NalAssembler(codec)
    return Depacketizer(assembler, 96, 90_000)


def feed(tested: Depacketizer, *datas: bytes, start: int = 0) -> list[AccessUnit]:
    """Feed packets that arrive at 10, 20, 30, ... ns."""
    return [u for k, d in enumerate(datas) for u in tested.feed(d, start + 10 * (k + 1))]


def decoded(codec: str, units: Sequence[AccessUnit | Data]) -> list[Any]:
    context = av.CodecContext.create(codec, "r")
    frames = [f for unit in units for f in context.decode(av.Packet(unit.data))]
    return [f.to_ndarray(format="bgr24") for f in frames + context.decode(None)]


def image_of(data: bytes) -> Any:
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))


FIRST, LATER = b"\x41\x9atwo", b"\x41\x2atwo"
"""Slices of a picture; first_mb_in_slice 0 sets the first bit behind the header."""


@pytest.mark.parametrize(
    ("payload", "begins"),
    [
        (FIRST, True),
        (LATER, False),
        (SPS, True),
        (b"\x41", False),
        (b"\x78\0\5" + FIRST, True),  # STAP-A
        (b"\x78\0\5" + LATER, False),
        (b"\x78\0\5" + SPS, True),
        (b"\x78\0\1\x41", False),
        (b"\x5c\x81" + FIRST[1:], True),  # FU-A
        (b"\x5c\x81" + LATER[1:], False),
        (b"\x5c\x01" + FIRST[1:], False),
        (b"\x5c\x87" + SPS[1:], True),
    ],
)
def test_a_payload_begins_a_picture(payload: bytes, begins: bool) -> None:
    assert NalAssembler("h264").begins(payload) is begins


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_ffmpegs_packets_become_what_ffmpeg_packed(codec: str) -> None:
    units, encoded = [], encode(codec, 25)
    tested = depacketizer(codec)
    for k, data in enumerate(packets(encoded)):
        units += tested.feed(data, k)
    assert [unit.fault for unit in units] == [""] * 25
    assert [unit.key for unit in units] == [k % 10 == 0 for k in range(25)]
    steps = {b.timestamp - a.timestamp for a, b in pairwise(units)}
    assert steps == {90_000 // FPS}
    name = "hevc" if codec == "h265" else codec
    seen, meant = decoded(name, units), decoded(name, encoded.units)
    assert len(seen) == 25
    assert all(np.array_equal(a, b) for a, b in zip(seen, meant, strict=True))


def test_ffmpegs_jpegs() -> None:
    encoded = encode("jpeg", 5)
    tested = depacketizer("jpeg")
    tested._payload_type = 26
    units = [unit for k, data in enumerate(packets(encoded)) for unit in tested.feed(data, k)]
    assert [(unit.fault, unit.key) for unit in units] == [("", True)] * 5
    for unit, meant in zip(units, encoded.units, strict=True):
        assert np.array_equal(image_of(unit.data), image_of(meant.data))


def test_the_tables_that_a_quality_stands_for() -> None:
    """libjpeg scales the same tables of T.81 by the same rule."""
    image = np.zeros((32, 48, 3), np.uint8)
    image[8:20, 10:30] = (200, 50, 90)
    for quality in (1, 30, 49, 50, 75, 99):
        data = bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].data)
        scan = data[data.index(b"\xff\xda") + 14 :]
        head = bytes((0, 0, 0, 0, 1, quality, 48 // 8, 32 // 8))
        (unit,) = feed(depacketizer("jpeg"), rtp(1, 0, head + scan, marker=True))
        assert np.array_equal(image_of(unit.data), image_of(data))


def test_single_nal_units_and_stap_a() -> None:
    """RFC 6184, figures 2 and 7."""
    stap = b"\x78" + b"".join(struct.pack(">H", len(n)) + n for n in (SPS, PPS))
    units = feed(
        depacketizer(),
        rtp(1, 900, stap), rtp(2, 900, IDR, marker=True), rtp(3, 4500, P, marker=True),
    )  # fmt: skip
    assert [unit.data for unit in units] == [S + SPS + S + PPS + S + IDR, S + P]
    assert [unit.key for unit in units] == [True, False]
    assert [unit.timestamp for unit in units] == [0, 3600]
    assert [unit.t_ns for unit in units] == [10, 30]  # of each picture's first packet


def test_fu_a() -> None:
    """RFC 6184, 5.8: F and NRI from the indicator, the type from the FU header."""
    units = feed(
        depacketizer(),
        rtp(1, 0, b"\x7c\x85ab"), rtp(2, 0, b"\x7c\x05cd"), rtp(3, 0, b"\x7c\x45ef", marker=True),
    )  # fmt: skip
    assert [(u.data, u.key, u.t_ns) for u in units] == [(S + b"\x65abcdef", True, 10)]


def test_h265_fragments_and_aggregates() -> None:
    """RFC 7798, 4.4.2 and 4.4.3: layer and temporal id are the payload header's."""
    vps, sps = b"\x40\x01v", b"\x42\x01s"
    ap = b"\x60\x01" + b"".join(struct.pack(">H", len(n)) + n for n in (vps, sps))
    fu = [b"\x62\x01\x93\x80ab", b"\x62\x01\x13cd", b"\x62\x01\x53ef"]
    units = feed(
        depacketizer("h265"), rtp(1, 0, ap),
        *(rtp(2 + k, 0, data, marker=k == 2) for k, data in enumerate(fu)),
        rtp(5, 3600, b"\x02\x01\xd0trail", marker=True),
    )  # fmt: skip
    assert units[0].data == S + vps + S + sps + S + b"\x26\x01\x80abcdef"
    assert [unit.key for unit in units] == [True, False]


def test_a_gap_in_the_numbers_damages_the_picture() -> None:
    tested = depacketizer()
    feed(tested, rtp(1, 0, IDR, marker=True), rtp(2, 3600, P, marker=True))
    units = feed(
        tested,
        rtp(3, 7200, b"\x7c\x81\x9aab"), rtp(5, 7200, b"\x7c\x41cd", marker=True),  # within
        rtp(6, 10800, P), rtp(8, 14400, P, marker=True),  # at the end, without a marker
        rtp(10, 18000, b"\x7c\x01ab"), rtp(11, 18000, b"\x7c\x41cd", marker=True),  # at its start
    )  # fmt: skip
    assert [unit.fault for unit in units] == [
        "packets are missing", "its last packets are missing", "", "its first packets are missing",
    ]  # fmt: skip
    assert [unit.missed for unit in units] == [0, 0, 0, 0]
    assert not any(unit.data or unit.key for unit in units if unit.fault)


def test_pictures_that_are_missing_entirely_are_counted_by_their_times() -> None:
    tested = depacketizer()
    units = feed(
        tested,
        rtp(65534, 2**32 - 3600, IDR, marker=True), rtp(65535, 0, P, marker=True),
        rtp(9, 5 * 3600, P, marker=True),
        rtp(10, 6 * 3600, P, marker=True),
        rtp(12, 7 * 3600, P, marker=True),  # without room for a picture: one all the same
        rtp(14, 7 * 3600 + 2**31 - 1, P, marker=True),  # a clock that was set
    )  # fmt: skip
    assert [unit.missed for unit in units] == [0, 0, 4, 0, 1, 1]
    assert [unit.fault for unit in units] == [""] * 6
    assert [unit.timestamp for unit in units[:4]] == [0, 3600, 6 * 3600, 7 * 3600]


SECOND = 90_000


@pytest.mark.parametrize("jump", [37_600 * SECOND, 10 * SECOND, -10 * SECOND, -3600])
@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("per_picture", [1, 4])
def test_missing_pictures_are_counted_where_the_timestamps_jump(
    jump: int, stays: bool, per_picture: int
) -> None:
    """25 pictures a second; the stamp of picture 20 jumps, and pictures 21 and 22 are lost."""
    tested, units, sequence = depacketizer(), [], 0
    for picture in range(40):
        jumped = picture == 20 or (stays and picture > 20)
        stamp = (picture * 3600 + jump * jumped) % 2**32
        for part in range(per_picture):
            payload = b"\x41\x9atwo" if part == 0 else b"\x41\x2atwo"
            packet = rtp(sequence, stamp, payload, marker=part == per_picture - 1)
            sequence += 1
            if picture not in (21, 22):
                units += tested.feed(packet, sequence)
    assert len(units) == 38 and not any(unit.fault for unit in units)
    assert [unit.missed for unit in units] == [0] * 21 + [2] + [0] * 16


def test_the_timestamps_count_again_after_a_jump() -> None:
    """Packets would say 1: the keyframe had 20 of them."""
    tested, units, sequence = depacketizer(), [], 0
    for picture in range(30):
        stamp = picture * 3600 + 10 * SECOND * (picture >= 10)
        parts = 20 if picture == 0 else 1
        for part in range(parts):
            payload = (b"\x65" if picture == 0 else b"\x41") + (b"\x9a" if part == 0 else b"\x2a")
            packet = rtp(sequence, stamp, payload + b"two", marker=part == parts - 1)
            sequence += 1
            if picture not in (12, 13):
                units += tested.feed(packet, sequence)
    assert [unit.missed for unit in units] == [0] * 12 + [2] + [0] * 15


def test_packets_of_cut_pictures_are_no_picture_between_them() -> None:
    """The timestamps jump back between two pictures that lack two of four packets each."""
    tested, units = depacketizer(), []
    for number in range(48):
        picture, part = divmod(number, 4)
        stamp = 100 * SECOND + picture * 3600 - 50 * SECOND * (picture >= 8)
        payload = FIRST if part == 0 else LATER
        if number not in range(30, 34):
            units += tested.feed(rtp(number, stamp, payload, marker=part == 3), number)
    assert [unit.missed for unit in units] == [0] * 12
    assert [bool(unit.fault) for unit in units] == [k in (7, 8) for k in range(12)]


def test_there_is_a_packet_for_each_missing_picture() -> None:
    """The timestamps jump ahead in the gap."""
    tested = depacketizer()
    feed(tested, *(rtp(k, k * 3600, P, marker=True) for k in range(5)))
    (unit,) = feed(tested, rtp(8, 8 * 3600 + 20 * SECOND, P, marker=True))
    assert unit.missed == 3


def test_parameter_sets_that_are_missing_are_no_picture() -> None:
    tested = depacketizer()
    feed(tested, rtp(1, 0, IDR, marker=True), rtp(2, 3600, P, marker=True))
    (key,) = feed(tested, rtp(4, 7200, IDR, marker=True))
    assert (key.missed, key.key, key.fault) == (0, True, "")
    (later,) = feed(tested, rtp(6, 14400, IDR, marker=True))
    assert (later.missed, later.key) == (1, True), "there is room for a picture"


def test_a_new_source_is_a_gap_and_a_repetition_is_none() -> None:
    tested = depacketizer()
    assert [u.missed for u in feed(tested, rtp(1, 0, IDR, marker=True))] == [0]
    assert feed(tested, rtp(1, 0, IDR, marker=True)) == []
    assert [u.missed for u in feed(tested, rtp(2, 3600, P, marker=True, ssrc=7))] == [1]


def test_other_payload_types_are_left_out_and_count_as_numbers() -> None:
    tested = depacketizer()
    units = feed(
        tested, rtp(1, 0, IDR, marker=True), rtp(2, 50, b"sound", kind=97),
        rtp(3, 3600, P, marker=True), rtp(5, 90, b"sound", kind=97), rtp(6, 7200, P, marker=True),
    )  # fmt: skip
    assert [unit.missed for unit in units] == [0, 0, 1]


def test_a_camera_that_never_marks() -> None:
    units = feed(depacketizer(), rtp(1, 0, IDR), rtp(2, 3600, P), rtp(3, 7200, P))
    assert [(unit.data, unit.t_ns) for unit in units] == [(S + IDR, 10), (S + P, 20)]


def test_a_camera_that_marks_parameters_and_slices() -> None:
    second = b"\x41\x1brest"
    tested = depacketizer()
    units = feed(
        tested, rtp(1, 0, SPS, marker=True), rtp(2, 0, PPS, marker=True),
        rtp(3, 0, IDR, marker=True), rtp(4, 0, second, marker=True),
        rtp(5, 3600, IDR, marker=True), rtp(6, 3600, second, marker=True),
        rtp(7, 7200, IDR, marker=True),
    )  # fmt: skip
    assert [unit.data for unit in units] == [S + SPS + S + PPS + S + IDR, b"", S + IDR + S + second]
    assert "marked an earlier packet" in units[1].fault


def test_two_pictures_of_the_same_time() -> None:
    units = feed(depacketizer(), *(rtp(k, 0, nal, marker=True) for k, nal in enumerate((IDR, P))))
    assert [(unit.data, unit.fault) for unit in units] == [(S + IDR, ""), (S + P, "")]


def test_a_recovery_point_is_decodable_alone() -> None:
    sei = b"\x06\x06\x01\xc0\x80"
    units = feed(depacketizer(), rtp(1, 0, sei), rtp(2, 0, P, marker=True))
    assert [unit.key for unit in units] == [True]


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (b"\x67", "payload of 1 bytes"),
        (b"\x7c\x85", "fragment of 2 bytes"),
        (b"\x7c\x05ab", "without its start"),
        (b"\x78\x00\x09ab", "aggregated NAL unit of 9 bytes, 2 are there"),
        (b"\x78\x00\x00", "aggregated NAL unit of 0 bytes"),
        (b"\x79\x00\x00\x00", "payload of type 25"),
    ],
)
def test_damaged_payloads_cost_their_picture(payload: bytes, fault: str) -> None:
    units = feed(
        depacketizer(), rtp(1, 0, payload), rtp(2, 0, IDR, marker=True),
        rtp(3, 3600, IDR, marker=True),
    )  # fmt: skip
    assert fault in units[0].fault
    assert (units[1].fault, units[1].data) == ("", S + IDR)


def test_a_fragment_without_its_end() -> None:
    tested = depacketizer()
    start = b"\x7c\x85ab"
    (unit,) = feed(tested, rtp(1, 0, start, marker=True))
    assert unit.fault == "a fragmented NAL unit without its end"
    (unit,) = feed(tested, rtp(2, 3600, start), rtp(3, 3600, P, marker=True))
    assert unit.fault == "a fragmented NAL unit without its end"
    (unit,) = feed(tested, rtp(4, 7200, start), rtp(5, 7200, start, marker=True))
    assert unit.fault == "a fragmented NAL unit without its end"


def test_a_picture_has_a_largest_size() -> None:
    tested = depacketizer()
    feed(tested, rtp(0, 0, b"\x7c\x85ab"))
    for k in range(MAX_UNIT_BYTES // 60_000 + 9):
        feed(tested, rtp(1 + k, 0, b"\x7c\x05" + bytes(60_000)))
    assert "more than 16777216 bytes" in tested._fault
    assert len(tested._assembler._data) <= MAX_UNIT_BYTES + 60_000  # type: ignore[attr-defined]


JPEG_HEAD = bytes((0, 0, 0, 0, 1, 60, 4, 4))


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (b"\0\0\0\0\1\x3c\4", "payload of 7 bytes"),
        (b"\0\0\0\5\1\x3c\4\4abc", "byte 5 after 0"),
        (b"\0\0\0\0\1\x3c\0\4abc", "more than 2040 pixels"),
        (b"\0\0\0\0\2\x3c\4\4abc", "type 2 with quality 60"),
        (b"\0\0\0\0\1\0\4\4abc", "quality 0"),
        (b"\0\0\0\0\1\x80\4\4\0\0\0\0abc", "quality 128, without tables"),
        (b"\0\0\0\0\1\xff\4\4\0\0\0\0abc", "255 without tables"),
        (b"\0\0\0\0\1\x80\4\4\0\1\0\x40" + bytes(64), "tables of 64 bytes"),
        (b"\0\0\0\0\1\x80\4\4\0\0\0\x40abc", "tables of 64 bytes"),
        (b"\0\0\0\0\1\x80\4\4\0", "tables of 0 bytes"),
        (b"\0\0\0\0\x41\x3c\4\4\0\0", "ends in its header"),
    ],
)
def test_damaged_jpegs(payload: bytes, fault: str) -> None:
    units = feed(
        depacketizer("jpeg"), rtp(1, 0, payload, marker=True),
        rtp(2, 3600, JPEG_HEAD + b"data", marker=True),
    )  # fmt: skip
    assert fault in units[0].fault
    assert units[1].fault == "" and units[1].data.endswith(b"data\xff\xd9")


def test_jpeg_tables_are_kept_and_restarts_declared() -> None:
    tables = bytes(range(1, 129))
    first = b"\0\0\0\0\x41\x80\4\4" + b"\0\7\xff\xff" + b"\0\0\0\x80" + tables + b"a"
    more = b"\0\0\0\1\x41\x80\4\4" + b"\0\7\xff\xff" + b"b"
    second = b"\0\0\0\0\x41\x80\4\4" + b"\0\7\xff\xff" + b"\0\0\0\0" + b"c"
    units = feed(
        depacketizer("jpeg"), rtp(1, 0, first), rtp(2, 0, more, marker=True),
        rtp(3, 3600, second, marker=True),
    )  # fmt: skip
    for unit, data in zip(units, (b"ab", b"c"), strict=True):
        assert unit.fault == ""
        assert b"\xff\xdb\0\x43\0" + tables[:64] + b"\xff\xdb\0\x43\1" + tables[64:] in unit.data
        assert b"\xff\xdd\0\4\0\7" in unit.data
        assert unit.data.endswith(data + b"\xff\xd9")


def test_headers_of_rtp() -> None:
    """RFC 3550, 5.1 and 5.3.1: contributing sources, an extension, padding."""
    body = b"\xb2\xe0" + struct.pack(">HIIII", 7, 8, 9, 1, 2)
    packet = parse_rtp(body + b"\xbe\xde\0\1ext!" + b"payload" + b"\0\0\3")
    assert (packet.payload_type, packet.marker, packet.sequence) == (96, True, 7)
    assert (packet.timestamp, packet.ssrc, packet.payload) == (8, 9, b"payload")
    for bad in (b"", bytes(12), rtp(1, 0, b"")[:11], b"\x8f" + bytes(20), b"\xa0" + bytes(12)[:-1]):
        if bad[:1] == b"\xa0":
            bad += b"\xff"
        with pytest.raises(ProtocolError, match="RTP"):
            parse_rtp(bad)
