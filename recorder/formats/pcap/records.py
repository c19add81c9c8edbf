"""The files of network captures, pcap and pcapng: parsed into frames of the link layer.

The formats are libpcap's savefile format (draft-ietf-opsawg-pcap) and pcapng
(draft-ietf-opsawg-pcapng).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple

from recorder.common.errors import FormatError


class Frame(NamedTuple):
    """A captured frame.

    Attributes:
        t_ns: its stamp, int64 ns since 1970 UTC; None: the capture holds none.
        link: the link type of its interface (LINKTYPE_...).
        data: the captured bytes.
        sent_bytes: its length on the network, which may exceed the captured bytes.
    """

    t_ns: int | None
    link: int
    data: bytes
    sent_bytes: int


class UnknownBlock(NamedTuple):
    """A block of pcapng that this module does not know: it may hold packets."""

    kind: int


@dataclass(frozen=True, slots=True)
class DroppedPackets:
    """Packets that the capturing program dropped, as the capture declares."""

    count: int


_RECORD_LIMIT: Final = 1 << 22  # libpcap's own limit is 256 KiB; a larger length is damage
_LATEST_NS: Final = 1 << 63  # stamps are int64
_PCAP_MAGICS: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}

_SECTION: Final = b"\n\r\r\n"
_INTERFACE, _PACKET, _SIMPLE, _STATISTICS, _ENHANCED = 1, 2, 3, 5, 6
_WITHOUT_PACKETS: Final = frozenset({4, 9, 0x0A, 0x0B, 0x0C, 0x0BAD, 0x40000BAD})
"""Blocks without packets: names, journal entries, secrets, Hone's processes, custom blocks."""
_IF_TSRESOL, _IF_TSOFFSET = 9, 14
_EPB_DROPCOUNT: Final = 4
_ISB_DROPS: Final = (5, 7)  # by the interface, by the operating system
_UNKNOWN_DROPS: Final = 0xFFFF


def read_frames(file: BinaryIO) -> Iterator[Frame | UnknownBlock | DroppedPackets]:
    """Yield all frames of a capture in the file's order, with constant memory.

    Raises:
        FormatError: the file is not a capture, or is damaged or truncated; the complete frames
            before the damage have been yielded.  The message lacks the file's name.
    """
    reader = _Reader(file)
    magic = reader.exactly(4, may_end=True)
    if magic == _SECTION:
        return _pcapng_frames(reader)
    if magic in _PCAP_MAGICS:
        return _pcap_frames(reader, *_PCAP_MAGICS[magic])
    raise FormatError("is not a pcap or pcapng file" if magic else "is empty")


class _Reader:
    """Reader of exact sizes that reports where a file is truncated."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.offset = 0
        self.record_offset = 0

    def exactly(self, size: int, may_end: bool = False) -> bytes:
        if may_end:
            self.record_offset = self.offset
        data = self._file.read(size)
        self.offset += len(data)
        if len(data) < size and (data or not may_end):
            raise FormatError(
                f"is truncated at byte {self.offset}, inside the record that starts at byte "
                f"{self.record_offset}"
            )
        return data

    def sized(self, size: int) -> bytes:
        if size > _RECORD_LIMIT:
            raise FormatError(
                f"the record at byte {self.record_offset} claims {size} bytes: damaged"
            )
        return self.exactly(size)

    def damaged(self, why: str = "") -> FormatError:
        return FormatError(f"the block at byte {self.record_offset} is damaged{why}")


def _pcap_frames(reader: _Reader, order: str, tick_ns: int) -> Iterator[Frame]:
    link = struct.unpack(order + "I", reader.exactly(20)[16:])[0] & 0xFFFF
    head = struct.Struct(order + "IIII")
    while data := reader.exactly(16, may_end=True):
        seconds, ticks, size, sent_bytes = head.unpack(data)
        t_ns = seconds * 1_000_000_000 + ticks * tick_ns
        yield Frame(t_ns, link, reader.sized(size), sent_bytes)


@dataclass(slots=True)
class _Interface:
    link: int
    snap_bytes: int  # 0: no limit
    ticks_per_s: int = 1_000_000
    offset_s: int = 0
    dropped: int = 0

    def drop(self, total: int) -> Iterator[DroppedPackets]:
        """Yield the packets dropped since the last total."""
        if total > self.dropped:
            yield DroppedPackets(total - self.dropped)
            self.dropped = total


def _pcapng_frames(reader: _Reader) -> Iterator[Frame | UnknownBlock | DroppedPackets]:
    order = "<"
    interfaces: list[_Interface] = []
    kind_bytes = _SECTION
    while kind_bytes:
        size_bytes = reader.exactly(4)
        if kind_bytes == _SECTION:  # a section header contains its own byte order
            magic = reader.exactly(4)
            order = "<" if magic == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces.clear()
            skip = 12
        else:
            skip = 8
        size = struct.unpack(order + "I", size_bytes)[0]
        if size < skip + 4 or size % 4:
            raise reader.damaged()
        body = reader.sized(size - skip)[:-4]
        kind = struct.unpack(order + "I", kind_bytes)[0]
        try:
            if kind == _INTERFACE:
                interfaces.append(_interface(body, order))
            elif kind == _ENHANCED:
                number, *rest = struct.unpack_from(order + "IIIII", body)
                interface = interfaces[number]
                if drops := _count_drops(body, order, rest[2]):
                    yield from interface.drop(interface.dropped + drops)
                yield _stamped_frame(reader, interface, body, rest)
            elif kind == _PACKET:  # obsolete
                number, drops, *rest = struct.unpack_from(order + "HHIIII", body)
                interface = interfaces[number]
                if drops != _UNKNOWN_DROPS:
                    yield from interface.drop(interface.dropped + drops)
                yield _stamped_frame(reader, interface, body, rest)
            elif kind == _SIMPLE:
                (sent_bytes,) = struct.unpack_from(order + "I", body)
                interface = interfaces[0]
                there = min(sent_bytes, interface.snap_bytes or sent_bytes)
                yield Frame(None, interface.link, body[4 : 4 + there], sent_bytes)
            elif kind == _STATISTICS:
                (number,) = struct.unpack_from(order + "I", body)
                found = dict(_options(body, 12, order))
                totals = [found[code] for code in _ISB_DROPS if code in found]
                total = sum(_number(value, order) for value in totals)
                yield from interfaces[number].drop(total)
            elif kind_bytes != _SECTION and kind not in _WITHOUT_PACKETS:
                yield UnknownBlock(kind)
        except (struct.error, IndexError):
            raise reader.damaged() from None
        kind_bytes = reader.exactly(4, may_end=True)


def _count_drops(body: bytes, order: str, captured: int) -> int:
    """Return the packets dropped before the packet of an Enhanced Packet Block."""
    at = 20 + (captured + 3) // 4 * 4
    for code, value in _options(body, at, order):
        if code == _EPB_DROPCOUNT:
            return _number(value, order)
    return 0


def _options(body: bytes, at: int, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield code and value of a block's options, from an offset on."""
    while at + 4 <= len(body):
        code, length = struct.unpack_from(order + "HH", body, at)
        if code == 0:  # opt_endofopt
            return
        yield code, body[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4


def _number(value: bytes, order: str) -> int:
    """Return an option's u8; 0 where the option is damaged."""
    return int(struct.unpack(order + "Q", value)[0]) if len(value) == 8 else 0


def _stamped_frame(reader: _Reader, interface: _Interface, body: bytes, fields: list[int]) -> Frame:
    """Return the frame of an Enhanced Packet Block or of an obsolete Packet Block.

    Args:
        reader: at the block.
        interface: of the frame.
        body: of the block.
        fields: halves of the stamp, captured bytes, bytes on the network.
    """
    high, low, size, sent_bytes = fields
    ticks = high << 32 | low
    t_ns = ticks * 1_000_000_000 // interface.ticks_per_s + interface.offset_s * 1_000_000_000
    if t_ns >= _LATEST_NS:
        raise reader.damaged(": its stamp is after the year 2262")
    if t_ns < 0:
        raise reader.damaged(": its stamp is before 1970")
    if size > len(body) - 20:
        raise reader.damaged(f": it claims {size} captured bytes")
    return Frame(t_ns, interface.link, body[20 : 20 + size], sent_bytes)


def _interface(body: bytes, order: str) -> _Interface:
    """Parse an Interface Description Block; its stamps count microseconds by default."""
    described = _Interface(*struct.unpack_from(order + "HxxI", body))
    for code, value in _options(body, 8, order):
        if code == _IF_TSRESOL and len(value) == 1:
            power = value[0] & 0x7F
            described.ticks_per_s = 2**power if value[0] & 0x80 else 10**power
        elif code == _IF_TSOFFSET and len(value) == 8:
            (described.offset_s,) = struct.unpack(order + "q", value)
    return described
