"""What a capture holds only in part: cut by its snap length, without fragments, unreadable.

The limits of fragments are those of Linux (``ipfrag_time`` 30 s, ``ipfrag_max_dist`` 64).  Blocks
of pcapng are as in draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.formats.pcap.datagrams import (
    Datagram,
    Fragment,
    Fragments,
    LostDatagram,
    SkippedPacket,
    read_capture,
)
from recorder.formats.pcap.records import DroppedPackets
from tests.formats.pcap.test_datagrams import (
    HERE,
    HOST,
    PAYLOAD,
    PLAIN,
    STAMP,
    block,
    ethernet,
    ipv4,
    ipv6,
    udp,
)

SECOND = 1_000_000_000
SECTION = block("<", 0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
Captured = tuple[int, bytes, int]  # stamp in ns, captured bytes, bytes on the network


def pcap(frames: Sequence[Captured], link: int = 1) -> bytes:
    data = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, link)
    for t_ns, frame, sent in frames:
        data += struct.pack("<IIII", *divmod(t_ns, SECOND), len(frame), sent) + frame
    return data


def interface(link: int = 1, snaplen: int = 0, options: bytes = b"") -> bytes:
    return block("<", 1, struct.pack("<HHI", link, 0, snaplen) + options)


def enhanced(frame: bytes, sent: int | None = None, number: int = 0, ticks: int = 0) -> bytes:
    ticks = ticks or STAMP // 1000
    sent = len(frame) if sent is None else sent
    head = struct.pack("<IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), sent)
    return block("<", 6, head + frame)


def obsolete(frame: bytes, sent: int | None = None, number: int = 0, drops: int = 0) -> bytes:
    ticks = STAMP // 1000
    sent = len(frame) if sent is None else sent
    head = (number, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), sent)
    return block("<", 2, struct.pack("<HHIIII", *head) + frame)


def simple(frame: bytes, sent: int | None = None) -> bytes:
    return block("<", 3, struct.pack("<I", len(frame) if sent is None else sent) + frame)


def read(data: bytes) -> list[Datagram | LostDatagram | SkippedPacket]:
    items = read_capture(io.BytesIO(data))
    return [item for item in items if not isinstance(item, DroppedPackets)]


def told(data: bytes) -> list[bytes | str]:
    """Payloads, and causes of losses."""
    return [
        item.payload
        if isinstance(item, Datagram)
        else item.cause
        if isinstance(item, LostDatagram)
        else item.what
        for item in read(data)
    ]


# Snap length


@pytest.mark.parametrize("frame", [PLAIN, ethernet(ipv4(udp(PAYLOAD), options=8), tags=1)])
@pytest.mark.parametrize("wrap", ["pcap", "enhanced", "obsolete", "simple"])
def test_a_frame_cut_anywhere_is_never_a_datagram(frame: bytes, wrap: str) -> None:
    for size in range(len(frame)):
        part, sent = frame[:size], len(frame)
        data = {
            "pcap": pcap([(STAMP, part, sent)]),
            "enhanced": SECTION + interface() + enhanced(part, sent),
            "obsolete": SECTION + interface() + obsolete(part, sent),
            "simple": SECTION + interface(snaplen=size or 1) + simple(part, sent),
        }[wrap]
        (item,) = read(data)
        header = len(frame) - len(udp(PAYLOAD))
        if size < header:
            assert isinstance(item, SkippedPacket) and "snap length" in item.what
            continue
        assert isinstance(item, LostDatagram)
        assert (item.cause, item.source, item.destination) == ("snaplen", HOST, HERE)
        assert item.port == (7502 if size >= header + 4 else None)


def test_only_padding_that_is_cut_is_no_loss() -> None:
    assert told(pcap([(STAMP, PLAIN + bytes(3), len(PLAIN) + 22)])) == [PAYLOAD]


def test_lengths_that_go_beyond_the_packet_are_damage() -> None:
    beyond = struct.pack(">HHHH", 40000, 7502, 9 + len(PAYLOAD), 0) + PAYLOAD
    short = struct.pack(">HHHH", 40000, 7502, 7, 0) + PAYLOAD
    frames = [ethernet(ipv4(beyond)), ethernet(ipv6(beyond)), PLAIN[:-1], ethernet(ipv4(short))]
    assert told(pcap([(STAMP, frame, len(frame)) for frame in frames])) == ["corrupt"] * 4


def test_a_length_of_zero_ends_where_the_packet_ends() -> None:
    """Set by the network card, after the capture (TSO); its missing bytes still count."""
    packet = bytearray(ipv4(udp(PAYLOAD)))
    packet[2:4] = bytes(2)
    frame = ethernet(bytes(packet))
    assert told(pcap([(STAMP, frame, len(frame))])) == [PAYLOAD]
    assert told(pcap([(STAMP, frame[:-1], len(frame))])) == ["snaplen"]


def test_datagrams_come_in_the_order_of_the_file_whatever_their_stamps() -> None:
    a, b = split(A, 7), split(B, 8)
    frames = [(0.002, a[0]), (0.001, PLAIN), (0.0, b[0]), (0.005, a[1]), (0.003, a[2])]
    items = read(timed(*frames, (0.004, b[1]), (0.001, PLAIN), (0.0, b[2])))
    assert [item.payload for item in items if isinstance(item, Datagram)] == [
        PAYLOAD, A, PAYLOAD, B,
    ]  # fmt: skip
    stamps = [item.t_ns - STAMP for item in items if isinstance(item, Datagram)]
    assert stamps == [1_000_000, 3_000_000, 1_000_000, 0]  # of their last fragments


# Blocks of pcapng


def test_all_three_kinds_of_packet_blocks_are_read() -> None:
    data = SECTION + interface() + enhanced(PLAIN) + obsolete(PLAIN, drops=3) + simple(PLAIN)
    stamped = Datagram(STAMP, HOST, 7502, PAYLOAD, 40000, HERE)
    unstamped = Datagram(0, HOST, 7502, PAYLOAD, 40000, HERE, stamped=False)
    assert read(data) == [stamped, stamped, unstamped]


def test_an_interface_has_an_offset_of_its_stamps() -> None:
    """Option if_tsoffset: seconds, signed, beside if_tsresol."""
    for offset in (1_600_000_000, -100):
        options = struct.pack("<HHqHHB3xHH", 14, 8, offset, 9, 1, 9, 0, 0)
        ticks = STAMP - offset * SECOND
        data = SECTION + interface(options=options) + enhanced(PLAIN, ticks=ticks)
        (item,) = read(data)
        assert isinstance(item, Datagram) and item.t_ns == STAMP


def test_packets_that_the_capture_declares_as_dropped() -> None:
    """Obsolete blocks and options have increments, statistics the total of an interface."""
    dropcount = struct.pack("<HHQHH", 4, 8, 5, 0, 0)
    ticks = STAMP // 1000
    head = struct.pack("<IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(PLAIN), len(PLAIN))
    padding = bytes(-len(PLAIN) % 4)
    data = SECTION + interface() + interface()
    data += obsolete(PLAIN, drops=3) + obsolete(PLAIN, drops=0xFFFF)
    data += block("<", 6, head + PLAIN + padding + dropcount)
    for number, (by_interface, by_system) in ((0, (1, 2)), (0, (6, 4)), (0, (6, 5)), (1, (0, 0))):
        counts = struct.pack("<HHQHHQHH", 5, 8, by_interface, 7, 8, by_system, 0, 0)
        data += block("<", 5, struct.pack("<III", number, 0, 0) + counts)
    dropped = [item.count for item in read_capture(io.BytesIO(data))
               if isinstance(item, DroppedPackets)]  # fmt: skip
    assert dropped == [3, 5, 2, 1]
    assert told(data) == [PAYLOAD] * 3


@pytest.mark.parametrize("kind", [4, 5, 9, 10, 0xBAD, 0x40000BAD])
def test_blocks_without_packets_are_passed_over(kind: int) -> None:
    assert told(SECTION + interface() + block("<", kind, bytes(24)) + enhanced(PLAIN)) == [PAYLOAD]


def test_blocks_and_links_that_are_not_known_are_named() -> None:
    data = SECTION + interface() + interface(link=127) + block("<", 0x101, bytes(24))
    data += enhanced(bytes(60), number=1) + enhanced(PLAIN)
    assert told(data) == ["blocks of type 0x101", "packets of link type 127", PAYLOAD]


def test_ieee_802_3_frames_with_snap() -> None:
    packet = ipv4(udp(PAYLOAD))
    frame = bytes(12) + struct.pack(">H", 8 + len(packet)) + b"\xaa\xaa\3\0\0\0\x08\0" + packet
    assert told(timed((0, frame))) == [PAYLOAD]


@pytest.mark.parametrize(
    ("kind", "name"), [(b"\x88\x47", "MPLS"), (b"\x88\x64", "PPPoE"), (b"\x88\xe5", "MACsec")]
)
def test_what_carries_ip_in_a_way_that_is_not_read_is_named(kind: bytes, name: str) -> None:
    frame = bytes(12) + kind + bytes(8) + ipv4(udp(PAYLOAD))
    tagged = bytes(12) + b"\x81\0\0\7" + kind + bytes(8) + ipv4(udp(PAYLOAD))
    assert told(timed((0, frame), (0, tagged))) == [f"packets in {name}"] * 2


def test_authentication_headers_before_udp() -> None:
    """RFC 4302: its length counts words of 4 bytes, less 2."""
    header = struct.pack(">BBHIIII", 17, 4, 0, 1, 2, 3, 4) + bytes(4)
    assert told(timed((0, ethernet(ipv6(header + udp(PAYLOAD), following=51))))) == [PAYLOAD]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (enhanced(PLAIN)[:20] + struct.pack("<I", 400) + enhanced(PLAIN)[24:], ": it claims 400"),
        (enhanced(PLAIN, number=1, ticks=99_000_000), ": its stamp is before 1970"),
        (enhanced(PLAIN, number=2), "$"),
    ],
)
def test_damaged_blocks_are_named(damaged: bytes, message: str) -> None:
    early = interface(options=struct.pack("<HHqHH", 14, 8, -100, 0, 0))
    with pytest.raises(FormatError, match=rf"the block at byte \d+ is damaged{message}"):
        read(SECTION + interface() + early + damaged)


@pytest.mark.parametrize("tag", [b"\x81\x00", b"\x88\xa8", b"\x91\x00"])
@pytest.mark.parametrize(("link", "at"), [(1, 12), (113, 14)])
def test_vlan_tags_on_every_link_that_has_types(link: int, at: int, tag: bytes) -> None:
    frame = bytes(at) + tag + b"\x00\x07" + b"\x08\x00" + ipv4(udp(PAYLOAD))
    assert told(pcap([(STAMP, frame, len(frame))], link)) == [PAYLOAD]
    arp = bytes(at) + tag + b"\x00\x07" + b"\x08\x06" + ipv4(udp(PAYLOAD))
    assert told(pcap([(STAMP, arp, len(arp))], link)) == []


# Fragments


def split(
    payload: bytes, ident: int, size: int = 104, source: bytes = HOST, checked: bool = False
) -> list[bytes]:
    """The frames of a datagram's fragments."""
    whole = bytearray(udp(payload))
    if checked:
        pseudo = source + HERE + struct.pack(">II", len(whole), 17) + whole + bytes(len(whole) % 2)
        total = sum(struct.unpack(f">{len(pseudo) // 2}H", pseudo))
        while total > 0xFFFF:
            total = (total & 0xFFFF) + (total >> 16)
        whole[6:8] = struct.pack(">H", ~total & 0xFFFF)
    return [
        ethernet(ipv4(bytes(whole[at : at + size]), ident, at, at + size < len(whole))).replace(
            HOST, source, 1
        )
        for at in range(0, len(whole), size)
    ]


def timed(*frames: tuple[float, bytes]) -> bytes:
    return pcap([(STAMP + round(s * SECOND), frame, len(frame)) for s, frame in frames])


A, B, C = (bytes([value]) * 250 for value in (1, 2, 3))


def test_an_old_fragment_is_not_joined_with_another_datagrams() -> None:
    a, b = split(A, 7), split(B, 7)
    data = timed((0, a[0]), (0, a[2]), (31, b[0]), (31, b[1]), (31, b[2]))
    assert told(data) == ["fragments", B]
    assert told(timed((0, a[0]), (0, a[2]), (31, b[1]))) == ["fragments", "fragments"]
    assert told(timed((0, a[0]), (0, a[2]), (29, a[1]))) == [A]
    assert told(timed((31, a[0]), (31, a[2]), (0, a[1]))) == ["fragments", "fragments"]


def test_an_identification_that_comes_again_within_seconds_is_another_datagram() -> None:
    """At a lidar's rate the 16 bits wrap in seconds; so do those of a sender that uses few."""
    a, b = split(A, 7), split(B, 7)
    other = [frame for ident in range(100, 122) for frame in split(C, ident)]
    between = [(0.1, frame) for frame in other]
    data = timed((0, a[0]), (0, a[2]), *between, (1, b[1]))
    assert told(data) == [*[C] * 21, "fragments", C, "fragments"]
    assert told(timed((0, a[0]), (0, a[2]), *between[:63], (1, a[1]))) == [*[C] * 21, A]
    foreign = [(0.1, frame) for n in range(40) for frame in split(C, n, source=bytes(4))]
    assert told(timed((0, a[0]), (0, a[2]), *foreign, (1, a[1]))) == [*[C] * 40, A]


def test_fragments_that_overlap_begin_another_datagram() -> None:
    a, b = split(A, 7), split(B, 7)
    assert told(timed((0, a[0]), (0, b[0]), (0, b[1]), (0, b[2]))) == ["fragments", B]
    assert told(timed((0, a[2]), (0, split(A[:160], 7)[1]))) == ["fragments"] * 2  # two ends
    empty = ethernet(ipv4(b"", 7, 0, True))
    assert told(timed((0, a[0]), (0, empty), (0, a[1]), (0, a[2]))) == [A]
    small = split(B, 7, size=80)
    frames = [(0.0, frame) for frame in [a[0], *small]]
    assert told(timed(*frames)) == ["fragments", B]
    longer = split(bytes(600), 7)
    assert told(timed((0, a[2]), (0, longer[4]), (0, a[0]))) == ["fragments"] * 2


def test_joined_bytes_of_two_datagrams_are_found_by_the_checksum() -> None:
    """A loss of both in one moment, and an identification that never changes."""
    a, b = split(A, 0, checked=True), split(B, 0, checked=True)
    assert told(timed((0, a[0]), (0, a[1]), (0, b[2]))) == ["corrupt"]
    assert told(timed((0, a[0]), (0, a[1]), (0, a[2]), (0, b[2]), (0, b[1]), (0, b[0]))) == [A, B]


def test_the_checksum_of_a_whole_packet_may_not_be_set_yet() -> None:
    """Where the sender itself captures, its network card computes the checksum afterwards."""
    (frame,) = split(A, 1, size=1400, checked=True)
    wrong = frame.replace(A[:2], b"\7\7", 1)
    assert told(timed((0, wrong))) == [b"\7\7" + A[2:]]


def test_fragments_without_a_stamp_are_as_old_as_the_packet_before() -> None:
    a = split(A, 7)
    data = SECTION + interface() + enhanced(a[0]) + simple(a[1]) + enhanced(a[2])
    assert told(data) == [A]


def test_what_is_kept_of_fragments_is_bounded() -> None:
    fragments, body = Fragments(), memoryview(bytes(8))
    for n in range(5000):
        fragments.add(Fragment(struct.pack(">I", n), HERE, b"", 0, True, body), STAMP)
        assert len(fragments._open) <= 64 and len(fragments._counts) <= 1100
        assert len(fragments.given_up) == max(0, n - 63)


def test_fragments_that_came_twice_are_no_loss() -> None:
    """A capture of two links has every packet twice."""
    a, b = split(A, 7), split(B, 8)
    frames = [(0.0, frame) for one in (a, b) for frame in one for _ in range(2)]
    assert told(timed(*frames)) == [A, B]


def test_a_datagram_of_which_a_fragment_is_cut_is_one_loss() -> None:
    a, b = split(A, 7), split(B, 8)
    captured = [(STAMP, frame[:90], len(frame)) for frame in a]
    captured += [(STAMP, frame, len(frame)) for frame in b]
    assert told(pcap(captured)) == ["snaplen", B]
    assert told(pcap([*captured[:1], *captured[3:]])) == [B, "snaplen"]


def test_what_waits_at_a_truncated_end_is_counted() -> None:
    data = timed((0, split(A, 7)[0]), (0, PLAIN))
    items = []
    with pytest.raises(FormatError, match="is truncated at byte"):
        for item in read_capture(io.BytesIO(data[:-1])):
            items.append(item)
    assert [getattr(item, "cause", None) for item in items] == ["fragments"]


def test_a_lost_datagram_has_its_port_where_its_first_fragment_came() -> None:
    a, b = split(A, 7), split(B, 8)
    lost = read(timed((0, a[0]), (0, b[1]), (0, b[2])))
    assert [item.port for item in lost if isinstance(item, LostDatagram)] == [7502, None]


def test_extension_headers_inside_ipv6_fragments_are_named() -> None:
    inner = struct.pack(">BxHI", 60, 1, 9) + struct.pack(">BB6x", 17, 0) + udp(PAYLOAD)
    frame = ethernet(ipv6(inner, following=44))
    assert told(timed((0, frame))) == ["IPv6 fragments with extension headers inside"]


@given(st.data())
def test_every_datagram_comes_whole_or_is_counted(data: st.DataObject) -> None:
    """Whatever fragments are lost, repeated or reordered, and whatever identifications return."""
    frames: list[tuple[float, bytes]] = []
    sent, seen = [], 0
    for number in range(data.draw(st.integers(1, 12))):
        payload = struct.pack(">I", number) * data.draw(st.integers(30, 120))
        sent.append(payload)
        parts = split(payload, data.draw(st.integers(0, 2)))
        kept = data.draw(st.lists(st.sampled_from(parts), max_size=2 * len(parts)))
        seen += bool(kept)
        frames += [(40.0 * number, part) for part in kept]
    items = read(timed(*frames))
    whole = [item.payload for item in items if isinstance(item, Datagram)]
    assert all(payload in sent for payload in whole)
    assert whole == sorted(whole)
    assert len(set(whole)) + sum(isinstance(item, LostDatagram) for item in items) == seen
