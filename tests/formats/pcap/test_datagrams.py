"""Captures taken apart: link layers, fragments, damage."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.formats.pcap.datagrams import Datagram, read_datagrams

HOST = b"\x0a\x00\x00\x05"
HERE = b"\x0a\x00\x00\x01"
STAMP = 1_700_000_000_123_456_000


def udp(payload: bytes, port: int = 7502) -> bytes:
    return struct.pack(">HHHH", 40000, port, 8 + len(payload), 0) + payload


def ipv4(body: bytes, ident: int = 1, at: int = 0, more: bool = False, options: int = 0) -> bytes:
    flags = at // 8 | (0x2000 if more else 0)
    length = 20 + options + len(body)
    head = struct.pack(">BBHHHBBH", 0x45 + options // 4, 0, length, ident, flags, 64, 17, 0)
    return head + HOST + HERE + bytes(options) + body


def ipv6(body: bytes, following: int = 17) -> bytes:
    head = struct.pack(">IHBB", 0x60000000, len(body), following, 64)
    return head + bytes(12) + HOST + bytes(16) + body


def ethernet(packet: bytes, tags: int = 0) -> bytes:
    kind = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
    return bytes(12) + b"\x81\x00\x00\x07" * tags + kind + packet


def pcap(frames: list[bytes], link: int = 1, order: str = "<", nano: bool = False) -> bytes:
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    seconds, ticks = divmod(STAMP, 10**9)
    for frame in frames:
        tick = ticks if nano else ticks // 1000
        data += struct.pack(order + "IIII", seconds, tick, len(frame), len(frame)) + frame
    return data


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + size + body + size


def pcapng(frames: list[bytes], order: str = "<", tsresol: int | None = 9) -> bytes:
    option = b"" if tsresol is None else struct.pack(order + "HHB3xHH", 9, 1, tsresol, 0, 0)
    per_second = 10 ** (6 if tsresol is None else tsresol)
    data = block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += block(order, 1, struct.pack(order + "HHI", 1, 0, 0) + option)
    data += block(order, 5, bytes(12))  # interface statistics: passed over
    stamp = STAMP * per_second // 10**9
    for frame in frames:
        head = struct.pack(
            order + "IIIII", 0, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame)
        )
        data += block(order, 6, head + frame)
    return data


def read(data: bytes) -> list[Datagram]:
    return list(read_datagrams(io.BytesIO(data)))


PAYLOAD = bytes(range(200))
PLAIN = ethernet(ipv4(udp(PAYLOAD)))


@pytest.mark.parametrize(
    "data",
    [
        pcap([PLAIN]),
        pcap([PLAIN], order=">"),
        pcap([PLAIN], nano=True),
        pcap([PLAIN], order=">", nano=True),
        pcap([PLAIN + bytes(6)]),  # padding of the link layer
        pcap([ethernet(ipv4(udp(PAYLOAD), options=8))]),
        pcap([ethernet(ipv4(udp(PAYLOAD)), tags=2)]),
        pcap([bytes(12) + b"\x88\xa8\x00\x07" + PLAIN[12:]]),
        pcap([bytes(14) + b"\x08\x00" + ipv4(udp(PAYLOAD))], link=113),
        pcap([b"\x08\x00" + bytes(18) + ipv4(udp(PAYLOAD))], link=276),
        pcap([b"\x02\x00\x00\x00" + ipv4(udp(PAYLOAD))], link=0),
        pcap([ipv4(udp(PAYLOAD))], link=101),
        pcapng([PLAIN]),
        pcapng([PLAIN], order=">"),
        pcapng([PLAIN], tsresol=None),
    ],
)
def test_one_datagram_in_every_wrapping(data: bytes) -> None:
    assert read(data) == [Datagram(STAMP, HOST, 7502, PAYLOAD, 40000, HERE)]


def test_ipv6_with_and_without_extension_headers() -> None:
    hop = struct.pack(">BB6x", 17, 0)
    frames = [ethernet(ipv6(udp(PAYLOAD))), ethernet(ipv6(hop + udp(PAYLOAD), following=0))]
    whole, cut = udp(PAYLOAD), 96
    for at, more in ((0, 1), (cut, 0)):
        part = whole[at : at + cut] if more else whole[at:]
        frames.append(ethernet(ipv6(struct.pack(">BxHI", 17, at | more, 7) + part, following=44)))
    got = read(pcap(frames))
    assert [d.payload for d in got] == [PAYLOAD] * 3
    assert {d.source for d in got} == {bytes(12) + HOST}
    assert {(d.source_port, d.destination) for d in got} == {(40000, bytes(16))}


@pytest.mark.parametrize("kind", [0, 43, 60])
@pytest.mark.parametrize("words", [0, 1, 3])
def test_ipv6_extension_headers_of_any_length(kind: int, words: int) -> None:
    """Two in a row, so that the second begins where the first says that it ends."""
    inner = struct.pack(">BB6x", 17, words) + bytes(8 * words)
    outer = struct.pack(">BB6x", kind, words) + bytes(8 * words)
    frame = ethernet(ipv6(outer + inner + udp(PAYLOAD), following=kind))
    padded = frame + bytes(6)  # of the link layer
    assert [d.payload for d in read(pcap([frame, padded]))] == [PAYLOAD] * 2
    tcp = struct.pack(">BB6x", 6, words) + bytes(8 * words)
    assert read(pcap([ethernet(ipv6(tcp + udp(PAYLOAD), following=kind))])) == []


def fragment4(body: bytes, at: int, more: bool) -> bytes:
    return ethernet(ipv4(body, 9, at, more))


def fragment6(body: bytes, at: int, more: bool) -> bytes:
    """With the two reserved bits set, which mean nothing (RFC 8200, section 4.5)."""
    return ethernet(ipv6(struct.pack(">BxHI", 17, at | 6 | more, 9) + body, following=44))


@pytest.mark.parametrize("fragment", [fragment4, fragment6])
@given(size=st.integers(1, 6000), cut=st.integers(8, 1480), rng=st.randoms(use_true_random=False))
def test_fragments_in_any_order(
    fragment: Callable[[bytes, int, bool], bytes], size: int, cut: int, rng: random.Random
) -> None:
    payload = rng.randbytes(size)
    whole, cut = udp(payload), cut // 8 * 8
    frames = [
        fragment(whole[at : at + cut], at, at + cut < len(whole))
        for at in range(0, len(whole), cut)
    ]
    rng.shuffle(frames)
    frames.insert(rng.randrange(len(frames) + 1), PLAIN)  # another datagram between them
    assert sorted(d.payload for d in read(pcap(frames))) == sorted([payload, PAYLOAD])


@pytest.mark.parametrize("fragment", [fragment4, fragment6])
def test_an_identification_that_comes_again_is_another_datagram(
    fragment: Callable[[bytes, int, bool], bytes],
) -> None:
    """Second occurrences: after the whole, and of another sender beside it."""
    first, second = udp(b"first" * 40), udp(b"second" * 33)
    other = [fragment(udp(b"x" * 200)[at:][:104], at, not at).replace(HOST, bytes(4), 1)
             for at in (0, 104)]  # fmt: skip
    frames = []
    for whole in (first, second):
        frames += [fragment(whole[:96], 0, True), other.pop(0), fragment(whole[96:], 96, False)]
    got = read(pcap(frames))
    assert [d.payload for d in got] == [first[8:], b"x" * 200, second[8:]]
    assert [d.source == got[0].source for d in got] == [True, False, True]


def test_a_jumbogram_has_no_length_of_its_own() -> None:
    head = struct.pack(">HHHH", 40000, 7502, 0, 0)
    assert read(pcap([ethernet(ipv4(head + PAYLOAD))])) == [
        Datagram(STAMP, HOST, 7502, PAYLOAD, 40000, HERE)
    ]


def test_each_interface_of_a_pcapng_has_its_link_layer_and_ticks() -> None:
    """And each section its interfaces and its byte order."""
    ticks = {6: 6, 9: 9, 0x80 | 10: None}
    data = b""
    for order in ("<", ">"):
        data += block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
        for resolution in ticks:
            name = (
                struct.pack(order + "HH", 2, 5) + b"eth10" + bytes(3)
            )  # before what is looked for
            option = struct.pack(order + "HHB3xHH", 9, 1, resolution, 0, 0)
            link = 1 if resolution == 6 else 101
            data += block(order, 1, struct.pack(order + "HHI", link, 0, 0) + name + option)
        for number, power in enumerate(ticks.values()):
            frame = PLAIN if number == 0 else ipv4(udp(PAYLOAD))
            stamp = STAMP * (10**power if power else 2**10) // 10**9
            head = (number, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame))
            data += block(order, 6, struct.pack(order + "IIIII", *head) + frame)
        # A simple packet is the first interface's, and has no stamp.
        data += block(order, 3, struct.pack(order + "I", len(PLAIN)) + PLAIN)
    got = read(data)
    assert [d.payload for d in got] == [PAYLOAD] * 8
    coarse = STAMP * 2**10 // 10**9 * 10**9 // 2**10
    assert [d.t_ns for d in got] == [STAMP, STAMP, coarse, 0] * 2


def test_a_datagram_that_lost_a_fragment_is_not_made_up() -> None:
    lost = [ethernet(ipv4(bytes(1480), n, 0, True)) for n in range(200)]
    assert [d.payload for d in read(pcap([*lost, PLAIN]))] == [PAYLOAD]


def test_what_is_no_udp_is_passed_over_and_an_empty_datagram_is_not_fatal() -> None:
    arp = bytes(12) + b"\x08\x06" + bytes(40)
    tcp = bytearray(PLAIN)
    tcp[23] = 6
    frames = [arp, bytes(tcp), b"short", ethernet(ipv4(udp(b""))), PLAIN]
    assert [d.payload for d in read(pcap(frames))] == [b"", PAYLOAD]


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_cut_anywhere_gives_the_whole_packets_and_then_an_error(make: type) -> None:
    data: bytes = make([PLAIN] * 3)
    ends = {len(make([PLAIN] * n)) for n in range(4)}
    if make is pcapng:  # further block ends
        ends |= {28, 28 + 32, len(pcapng([]))}
    for size in range(len(data)):
        got = []
        try:
            for datagram in read_datagrams(io.BytesIO(data[:size])):
                got.append(datagram)
            whole = True
        except FormatError as error:
            whole = False
            assert "empty" in str(error) if not size else "is truncated at byte" in str(error)
        assert whole == (size in ends), size
        assert len(got) == sum(len(make([PLAIN] * n)) <= size for n in (1, 2, 3)), size


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"x" * 500, "not a pcap or pcapng file"),
        (pcap([PLAIN])[:24] + struct.pack("<IIII", 0, 0, 1 << 30, 1 << 30), "at byte 24 claims"),
        (pcap([PLAIN], link=147), "link type 147"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(data)


MIXED = [PLAIN, ethernet(ipv6(struct.pack(">BxHI", 17, 0, 7) + udp(PAYLOAD), 44))]
MUTATED = [pcap(MIXED), pcapng(MIXED)]


@given(st.data(), st.sampled_from(MUTATED))
def test_mutations_never_raise_anything_else(data: st.DataObject, good: bytes) -> None:
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        for datagram in read_datagrams(io.BytesIO(bytes(damaged))):
            assert len(datagram.payload) <= len(good)
    except FormatError:
        pass


def test_a_stamp_that_is_out_of_range_is_damage() -> None:
    data = bytearray(pcapng([PLAIN, PLAIN]))
    at = data.rindex(struct.pack("<I", 6)) + 12  # high half of the second block's stamp
    data[at : at + 4] = b"\xff" * 4
    found: list[Datagram] = []
    with pytest.raises(FormatError, match=r"block at byte \d+ is damaged: its stamp"):
        found.extend(read_datagrams(io.BytesIO(bytes(data))))
    assert read(pcapng([PLAIN])) == [Datagram(STAMP, HOST, 7502, PAYLOAD, 40000, HERE)]
