"""Network captures, pcap and pcapng: parsed into UDP datagrams.

ouster-sdk 1.0.1 has its own reader, but it ends silently where a file is truncated, crashes on a
UDP datagram without payload, and does not report a packet's source address.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from recorder.contract.errors import FormatError


@dataclass(frozen=True, slots=True)
class Datagram:
    """One UDP datagram of a capture, reassembled from its IP fragments.

    Attributes:
        t_ns: capture stamp of its last fragment, int64 ns since 1970 UTC; 0 without a stamp.
        source: sender's IP address, 4 or 16 bytes.
        port: destination port.
        payload: the datagram's data; may be empty.
        source_port: sender's port.
        destination: destination's IP address, 4 or 16 bytes.
    """

    t_ns: int
    source: bytes
    port: int
    payload: bytes
    source_port: int = 0
    destination: bytes = b""


_RECORD_LIMIT = 1 << 22  # libpcap's own limit is 256 KiB; a larger length is damage
_LATEST_NS = 1 << 63  # stamps are int64
_FRAGMENT_LIMIT = 64  # stored incomplete datagrams; a fragment of older ones is lost


class _Reader:
    """Reads exact sizes, and reports where a file is truncated."""

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


def read_datagrams(file: BinaryIO) -> Iterator[Datagram]:
    """Yield all UDP datagrams of a capture, in the file's order, with constant memory.

    Supported are pcap (micro- and nanoseconds, both byte orders; libpcap's savefile format) and
    pcapng (sections, interfaces, enhanced and simple packet blocks), over Ethernet with or without
    VLAN tags, Linux cooked (both versions), loopback or raw IP, IPv4 and IPv6 with fragments.
    Packets that are not UDP are skipped.

    Raises:
        FormatError: the file is not a capture, or is damaged or truncated; the complete datagrams
            before the damage have been yielded.  The message lacks the file's name.
    """
    reader = _Reader(file)
    magic = reader.exactly(4, may_end=True)
    fragments = _Fragments()
    if magic == b"\n\r\r\n":
        records = _pcapng_records(reader)
    elif magic in _PCAP_MAGICS:
        records = _pcap_records(reader, *_PCAP_MAGICS[magic])
    else:
        raise FormatError("is not a pcap or pcapng file" if magic else "is empty")
    for t_ns, link, data in records:
        if (packet := _ip_packet(link, data)) is None:
            continue
        parsed = _parse_ipv4(packet) if packet[0] >> 4 == 4 else _parse_ipv6(packet)
        if parsed is None:
            continue
        source, destination, key, position, more, body = parsed
        if more or position:
            if (whole := fragments.add(key, position, more, body)) is None:
                continue
            body = whole
        if len(body) >= 8:
            source_port, port, length = _UDP_HEAD.unpack_from(body)
            end = length if length >= 8 else len(body)  # 0: a jumbogram, or checksum offload
            yield Datagram(t_ns, source, port, bytes(body[8:end]), source_port, destination)


_PCAP_MAGICS: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_UDP_HEAD: Final = struct.Struct(">HHH")

_Record = tuple[int, int, bytes]  # stamp in ns, link type, frame


def _pcap_records(reader: _Reader, order: str, tick_ns: int) -> Iterator[_Record]:
    link = struct.unpack(order + "I", reader.exactly(20)[16:])[0] & 0xFFFF
    head = struct.Struct(order + "IIII")
    while data := reader.exactly(16, may_end=True):
        seconds, ticks, size, _ = head.unpack(data)
        yield seconds * 1_000_000_000 + ticks * tick_ns, link, reader.sized(size)


def _pcapng_records(reader: _Reader) -> Iterator[_Record]:
    order = "<"
    interfaces: list[tuple[int, int]] = []  # link type, ticks per second
    kind_bytes = b"\n\r\r\n"
    while kind_bytes:
        size_bytes = reader.exactly(4)
        if kind_bytes == b"\n\r\r\n":  # a section header contains its own byte order
            magic = reader.exactly(4)
            order = "<" if magic == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces.clear()
            skip = 12
        else:
            skip = 8
        size = struct.unpack(order + "I", size_bytes)[0]
        if size < skip + 4 or size % 4:
            raise FormatError(f"the block at byte {reader.record_offset} is damaged")
        body = reader.sized(size - skip)[:-4]
        kind = struct.unpack(order + "I", kind_bytes)[0]
        try:
            if kind == 1:
                link = struct.unpack_from(order + "H", body)[0]
                interfaces.append((link, _ticks_per_second(body[8:], order)))
            elif kind == 6:
                number, high, low, length = struct.unpack_from(order + "IIII", body)
                link, ticks = interfaces[number]
                stamp = ((high << 32) | low) * 1_000_000_000 // ticks
                if stamp >= _LATEST_NS:
                    raise FormatError(
                        f"the block at byte {reader.record_offset} is damaged: its stamp is after "
                        "the year 2262"
                    )
                yield stamp, link, body[20 : 20 + length]
            elif kind == 3:
                yield 0, interfaces[0][0], body[4:]
        except (struct.error, IndexError):
            raise FormatError(f"the block at byte {reader.record_offset} is damaged") from None
        kind_bytes = reader.exactly(4, may_end=True)


def _ticks_per_second(options: bytes, order: str) -> int:
    """Return the resolution of an interface's stamps (option 9, if_tsresol; default: us)."""
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(order + "HH", options, at)
        if code == 9 and length == 1:
            value = options[at + 4]
            return int(2 ** (value & 0x7F) if value & 0x80 else 10**value)
        at += 4 + (length + 3) // 4 * 4
    return 1_000_000


def _ip_packet(link: int, data: bytes) -> memoryview | None:
    """Return the IP packet in a frame of the link layer; None if it holds none."""
    view = memoryview(data)
    match link:
        case 1:
            at = 12
            while data[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
                at += 4
            at += 2
        case 113:
            at = 16
        case 276:
            at = 20
        case 0 | 108:
            at = 4
        case 12 | 14 | 101 | 228 | 229:
            at = 0
        case _:
            raise FormatError(f"has packets of link type {link}, which is not supported")
    if len(data) < at + 20 or data[at] >> 4 not in (4, 6):
        return None
    if link in (1, 113) and data[at - 2 : at] not in (b"\x08\x00", b"\x86\xdd"):
        return None
    return view[at:]


_Parsed = tuple[bytes, bytes, bytes, int, bool, memoryview]
"""Source, destination, key of its fragments, position, whether more follow, body."""


def _parse_ipv4(packet: memoryview) -> _Parsed | None:
    if packet[9] != 17:
        return None
    total = (packet[2] << 8 | packet[3]) or len(packet)
    flags = packet[6] << 8 | packet[7]
    body = packet[(packet[0] & 15) * 4 : total]
    key = bytes(packet[12:20]) + bytes(packet[4:6])
    return key[:4], key[4:8], key, (flags & 0x1FFF) * 8, bool(flags & 0x2000), body


def _parse_ipv6(packet: memoryview) -> _Parsed | None:
    if len(packet) < 40:
        return None
    source, destination = bytes(packet[8:24]), bytes(packet[24:40])
    key, position, more = b"", 0, False
    following, at = packet[6], 40
    end = 40 + (packet[4] << 8 | packet[5])
    while following != 17:
        if following not in (0, 43, 44, 60) or len(packet) < at + 8:
            return None
        if following == 44:
            offset = packet[at + 2] << 8 | packet[at + 3]
            position, more = offset & 0xFFF8, bool(offset & 1)
            key = source + destination + bytes(packet[at + 4 : at + 8])
            size = 8
        else:
            size = 8 + packet[at + 1] * 8
        following, at = packet[at], at + size
    return source, destination, key, position, more, packet[at:end]


class _Fragments:
    """Datagrams with some of their IP fragments (RFC 791, RFC 8200)."""

    def __init__(self) -> None:
        self._parts: dict[bytes, dict[int, bytes]] = {}
        self._sizes: dict[bytes, int] = {}

    def add(self, key: bytes, position: int, more: bool, body: memoryview) -> memoryview | None:
        """Add a fragment; return the complete datagram if this was its last missing fragment."""
        parts = self._parts.setdefault(key, {})
        parts[position] = bytes(body)
        if not more:
            self._sizes[key] = position + len(body)
        if (size := self._sizes.get(key)) is not None and size <= sum(map(len, parts.values())):
            whole = b"".join(parts[at] for at in sorted(parts))
            self._forget(key)
            return memoryview(whole) if len(whole) == size else None
        if len(self._parts) > _FRAGMENT_LIMIT:
            self._forget(next(iter(self._parts)))
        return None

    def _forget(self, key: bytes) -> None:
        del self._parts[key]
        self._sizes.pop(key, None)
