"""Network captures, pcap and pcapng: parsed into UDP datagrams.

ouster-sdk 1.0.1 has its own reader, but it ends silently where a file is truncated, crashes on a
UDP datagram without payload, and does not report a packet's source address.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from recorder.common.errors import FormatError
from recorder.formats.pcap.records import DroppedPackets, Frame, UnknownBlock, read_frames

AGE_NS: Final = 30_000_000_000
DISTANCE: Final = 64
_MOST_BYTES: Final = 65_535
_OPEN_LIMIT: Final = 64  # incomplete datagrams that are stored
_SENDER_LIMIT: Final = 1024
_WHOLE_LIMIT: Final = 16  # whole datagrams whose fragments may be repeated


class Fragment(NamedTuple):
    """A fragment of a UDP datagram.

    Attributes:
        source, destination: IP addresses, 4 or 16 bytes.
        ident: the identification, which all fragments of the datagram have.
        position: of `body` in the datagram, bytes.
        more: it is not the last one.
        body: UDP header and data, or a part of them.
    """

    source: bytes
    destination: bytes
    ident: bytes
    position: int
    more: bool
    body: memoryview


_Key = tuple[bytes, bytes, bytes]


@dataclass(slots=True)
class PartialDatagram:
    """The received fragments of a datagram.

    Attributes:
        source, destination: IP addresses.
        parts: bodies by position.
        size: bytes of the whole datagram; None: the last fragment has not come.
        begin_ns: stamp of the first fragment.
        repeats: the parts of the whole datagram before it with the same identification.
        last: number of its last fragment among those of its sender.
        cause: why a fragment is not usable, if one is not.
    """

    source: bytes
    destination: bytes
    begin_ns: int
    repeats: dict[int, bytes]
    parts: dict[int, bytes] = field(default_factory=dict)
    size: int | None = None
    last: int = 0
    cause: str | None = None

    def join(self) -> memoryview:
        """Return the bodies one after the other."""
        return memoryview(b"".join(self.parts[at] for at in sorted(self.parts)))

    @property
    def is_repetition(self) -> bool:
        """True if all fragments came before, in a whole datagram: a capture of two links."""
        return all(self.repeats.get(at) == part for at, part in self.parts.items())


class Fragments:
    """Reassembly of incomplete datagrams.

    >>> fragments = Fragments()
    >>> whole = fragments.add(fragment, t_ns)   # None while fragments are missing
    >>> whole.join()
    >>> fragments.given_up                      # datagrams that never became whole; clear it
    >>> fragments.finish()                      # at the end: also the datagrams that are open
    """

    def __init__(self) -> None:
        self._open: dict[_Key, PartialDatagram] = {}
        self._whole: dict[_Key, dict[int, bytes]] = {}
        self._counts: dict[bytes, int] = {}
        self.given_up: list[PartialDatagram] = []

    def add(
        self, fragment: Fragment, t_ns: int, cause: str | None = None
    ) -> PartialDatagram | None:
        """Add a fragment; return the complete datagram if this was its last missing fragment.

        Args:
            fragment: its body has the bytes that were sent.
            t_ns: its stamp.
            cause: why the body is not usable; None: it is.
        """
        key, body = fragment[:3], bytes(fragment.body)
        if not body:
            return None
        # Senders without open datagrams are forgotten, so that memory is bounded.
        if len(self._counts) > _SENDER_LIMIT:
            senders = {each.source for each in self._open.values()} | {fragment.source}
            self._counts = {each: self._counts.get(each, 0) for each in senders}
        number = self._counts[fragment.source] = self._counts.get(fragment.source, 0) + 1
        self._expire(t_ns)
        datagram = self._open.get(key)
        if datagram is not None:
            if datagram.parts.get(fragment.position) == body:
                return None
            if not _fits(datagram, fragment):
                self._give_up(key)
                datagram = None
        if datagram is None:
            if len(self._open) >= _OPEN_LIMIT:
                self._give_up(next(iter(self._open)))
            repeats = self._whole.pop(key, {})
            datagram = PartialDatagram(fragment.source, fragment.destination, t_ns, repeats)
            self._open[key] = datagram
        datagram.parts[fragment.position] = body
        datagram.last = number
        datagram.cause = datagram.cause or cause
        if not fragment.more:
            datagram.size = fragment.position + len(body)
        if datagram.size is None or sum(map(len, datagram.parts.values())) < datagram.size:
            return None
        del self._open[key]
        # A second link may repeat the fragments: `is_repetition` compares them with these.
        self._whole[key] = datagram.parts
        if len(self._whole) > _WHOLE_LIMIT:
            del self._whole[next(iter(self._whole))]
        return datagram

    def finish(self) -> None:
        """Give up the datagrams that are still open at the end of a capture."""
        for key in list(self._open):
            self._give_up(key)

    def _expire(self, t_ns: int) -> None:
        for key, datagram in list(self._open.items()):
            distance = self._counts[datagram.source] - datagram.last
            # A capture's clock may step back, too: then nothing is known about the age.
            if distance > DISTANCE or abs(t_ns - datagram.begin_ns) > AGE_NS:
                self._give_up(key)

    def _give_up(self, key: _Key) -> None:
        datagram = self._open.pop(key)
        if not datagram.is_repetition:
            self.given_up.append(datagram)


def _fits(datagram: PartialDatagram, fragment: Fragment) -> bool:
    """Return whether a fragment lies where no other fragment lies, inside the datagram."""
    begin, end = fragment.position, fragment.position + len(fragment.body)
    if end > (_MOST_BYTES if datagram.size is None else datagram.size):
        return False
    for first, part in datagram.parts.items():
        is_before, is_behind = first + len(part) <= begin, end <= first
        if not is_before and (not is_behind or not fragment.more):
            return False
    return True


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
        stamped: the capture holds a stamp; pcapng's Simple Packet Blocks hold none.
    """

    t_ns: int
    source: bytes
    port: int
    payload: bytes
    source_port: int = 0
    destination: bytes = b""
    stamped: bool = True


SNAPLEN: Final = "snaplen"
"""Cause of a loss: the capture's snap length has cut the datagram."""
FRAGMENTS: Final = "fragments"
"""Cause of a loss: IP fragments of the datagram are missing."""
CORRUPT: Final = "corrupt"
"""Cause of a loss: the lengths in the headers, or the checksum of joined fragments, are wrong."""


@dataclass(frozen=True, slots=True)
class LostDatagram:
    """A datagram of which the capture holds only a part.

    Attributes:
        t_ns: stamp at which the loss was found; 0 without a stamp.
        cause: `SNAPLEN`, `FRAGMENTS` or `CORRUPT`.
        source, destination: IP addresses, 4 or 16 bytes.
        port: destination port; None: the captured part does not show it.
    """

    t_ns: int
    cause: str
    source: bytes
    destination: bytes
    port: int | None


@dataclass(frozen=True, slots=True)
class SkippedPacket:
    """A packet that `read_capture` cannot read; `what` names its kind."""

    what: str


@dataclass(slots=True)
class CaptureNotes:
    """Notes to report at a capture's end, because they have no place in time, or no count.

    Attributes:
        skipped: packets that cannot be read, by their kind.
        dropped: packets that the capturing program dropped, as the capture declares.
        unstamped: datagrams without a stamp, which got the stamp before them.
        device_clock: the capture has no stamps, and the device's clock gives the times.
    """

    skipped: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    unstamped: int = 0
    device_clock: bool = False

    def take(self, item: SkippedPacket | DroppedPackets) -> None:
        """Record an item of `read_capture`."""
        if isinstance(item, DroppedPackets):
            self.dropped += item.count
        else:
            self.skipped[item.what] += 1

    def values(self) -> dict[str, Any]:
        """Return the values of a state; empty: there is nothing to report."""
        found: dict[str, Any] = {"not_read": dict(self.skipped)} if self.skipped else {}
        if self.dropped:
            found["packets_dropped_by_capture"] = self.dropped
        if self.unstamped:
            found["datagrams_without_stamp"] = self.unstamped
        if self.device_clock:
            found["timed_by_device_clock"] = True
        return found

    def warnings(self) -> list[str]:
        """Return a warning about each kind of note."""
        texts = [f"{count} {what} are not read" for what, count in self.skipped.items()]
        if self.dropped:
            texts.append(
                f"the capturing program dropped {self.dropped} packets; this sensor's may be "
                "among them"
            )
        if self.unstamped:
            texts.append(f"{self.unstamped} datagrams have no stamp; they got the stamp before")
        if self.device_clock:
            texts.append("the capture has no stamps; the device's clock gives the times")
        return texts


_LINKS: Final = {1: 14, 113: 16, 276: 20, 0: 4, 108: 4, 12: 0, 14: 0, 101: 0, 228: 0, 229: 0}
"""Bytes of the header by link type: Ethernet, Linux cooked (both versions), loopback, raw IP."""
_TYPE_AT: Final = {1: 12, 113: 14, 276: 0}  # offset of the EtherType
_VLAN_TAGS: Final = (b"\x81\x00", b"\x88\xa8", b"\x91\x00")  # 802.1Q, 802.1ad, and its forerunner
_IP_TYPES: Final = (b"\x08\x00", b"\x86\xdd")
_SNAP: Final = b"\xaa\xaa\x03\0\0\0"
_TUNNELS: Final = {
    b"\x88\x47": "MPLS",
    b"\x88\x48": "MPLS",
    b"\x88\x64": "PPPoE",
    b"\x88\xe5": "MACsec",
}
_UDP: Final = 17
_FRAGMENT, _AUTHENTICATION = 44, 51
_EXTENSIONS: Final = frozenset({0, 43, _FRAGMENT, _AUTHENTICATION, 60, 135, 139, 140})
"""IPv6 extension headers that may precede UDP (IANA's registry)."""
_UDP_HEAD: Final = struct.Struct(">HHHH")


def read_capture(
    file: BinaryIO,
) -> Iterator[Datagram | LostDatagram | SkippedPacket | DroppedPackets]:
    """Yield a capture's UDP datagrams and losses in the file's order, with constant memory.

    Supported are pcap (micro- and nanoseconds, both byte orders) and pcapng (sections, interfaces,
    all three kinds of packet blocks), over Ethernet with or without VLAN tags, Linux cooked (both
    versions), loopback or raw IP, IPv4 and IPv6 with fragments.  Packets that are not UDP are
    skipped; a packet that may be UDP and cannot be read is a `SkippedPacket`.

    Raises:
        FormatError: the file is not a capture, or is damaged or truncated; items before the
            damage have been yielded.  The message lacks the file's name.
    """
    fragments, now_ns = Fragments(), 0
    fault: FormatError | None = None
    try:
        for frame in read_frames(file):
            if isinstance(frame, DroppedPackets):
                yield frame
            elif isinstance(frame, UnknownBlock):
                yield SkippedPacket(f"blocks of type {frame.kind:#x}")
            elif frame.link not in _LINKS:
                yield SkippedPacket(f"packets of link type {frame.link}")
            else:
                now_ns = now_ns if frame.t_ns is None else frame.t_ns
                if (found := _read_frame(frame, now_ns, fragments)) is not None:
                    yield found
                if fragments.given_up:
                    yield from _lost_fragments(fragments, now_ns)
    except FormatError as error:
        fault = error
    fragments.finish()
    yield from _lost_fragments(fragments, now_ns)
    if fault is not None:
        raise fault


def read_datagrams(file: BinaryIO) -> Iterator[Datagram]:
    """Yield the whole datagrams of a capture only; see `read_capture`.

    Raises:
        FormatError: also where the capture has nothing but packets that cannot be read.
    """
    skipped, any_found = "", False
    for item in read_capture(file):
        if isinstance(item, Datagram):
            any_found = True
            yield item
        elif isinstance(item, LostDatagram):
            any_found = True
        elif isinstance(item, SkippedPacket):
            skipped = skipped or item.what
    if skipped and not any_found:
        raise FormatError(f"has {skipped}, which are not supported")


def _lost_fragments(fragments: Fragments, now_ns: int) -> Iterator[LostDatagram]:
    given_up, fragments.given_up = fragments.given_up, []
    for one in given_up:
        port = _port_in(one.parts.get(0, b""))
        yield LostDatagram(now_ns, one.cause or FRAGMENTS, one.source, one.destination, port)


def _port_in(body: bytes | memoryview) -> int | None:
    """Return the port in a UDP header; None where it is cut and filled with zeros."""
    return (body[2] << 8 | body[3] if len(body) >= 4 else 0) or None


def _read_frame(
    frame: Frame, now_ns: int, fragments: Fragments
) -> Datagram | LostDatagram | SkippedPacket | None:
    """Return the datagram that a frame holds or completes; None while there is no whole one."""
    data, t_ns = frame.data, frame.t_ns or 0
    cut_bytes = max(0, frame.sent_bytes - len(data))
    at = _ip_offset(frame.link, data)
    if at is None or isinstance(at, SkippedPacket):
        return at
    if at >= len(data):
        return _HEADERS_CUT if cut_bytes else None
    packet = memoryview(data)[at:]
    match packet[0] >> 4:
        case 4:
            parsed = _parse_ipv4(packet)
        case 6:
            parsed = _parse_ipv6(packet)
        case _:
            return None
    if not isinstance(parsed, tuple):
        return parsed if cut_bytes or parsed is _NESTED else None
    fragment, sent_bytes = parsed
    body, cause, joined = fragment.body, None, fragment.more or fragment.position > 0
    if sent_bytes is None:  # 0 in the header: the sender's interface sets it
        sent_bytes = len(body) + cut_bytes
    if (lacking := sent_bytes - len(body)) > 0:
        cause = SNAPLEN if cut_bytes else CORRUPT
    if joined:
        if cause is not None:
            fragment = fragment._replace(body=memoryview(bytes(body) + bytes(lacking)))
        if (whole := fragments.add(fragment, now_ns, cause)) is None:
            return None
        body, cause = whole.join(), whole.cause
    source, destination = fragment.source, fragment.destination
    if cause is None and len(body) < 8:
        cause = CORRUPT
    if cause is not None:
        return LostDatagram(t_ns, cause, source, destination, _port_in(body))
    source_port, port, length, checksum = _UDP_HEAD.unpack_from(body)
    if length == 0:  # a jumbogram, or set by the sender's interface
        length = len(body)
    if not 8 <= length <= len(body) or (
        # The checksum of an unfragmented datagram is not set yet where the sender itself captures.
        joined and checksum and not _is_intact(source, destination, body[:length])
    ):
        return LostDatagram(t_ns, CORRUPT, source, destination, port)
    stamped = frame.t_ns is not None
    return Datagram(t_ns, source, port, bytes(body[8:length]), source_port, destination, stamped)


def _ip_offset(link: int, data: bytes) -> int | SkippedPacket | None:
    """Return the offset of the network layer in a frame; None if it is not IP."""
    at = _LINKS[link]
    if link not in _TYPE_AT:
        return at
    kind = data[_TYPE_AT[link] : _TYPE_AT[link] + 2]
    while kind in _VLAN_TAGS:
        kind = data[at + 2 : at + 4]
        at += 4
    if data[at : at + 6] == _SNAP and kind < b"\x06\x00":  # IEEE 802.3: a length, not a type
        kind = data[at + 6 : at + 8]
        at += 8
    if kind in _TUNNELS:
        return SkippedPacket(f"packets in {_TUNNELS[kind]}")
    # Without a type, the frame is cut: it may have been IP.
    return at if kind in _IP_TYPES or len(kind) < 2 else None


_HEADERS_CUT: Final = SkippedPacket("packets that the snap length cuts before the UDP header")
_NESTED: Final = SkippedPacket("IPv6 fragments with extension headers inside")
_Parsed = tuple[Fragment, int | None] | SkippedPacket | None
"""A fragment (of the whole datagram, if it is not fragmented) and the bytes of its body that were
sent (None: unknown); or why they cannot be read; None: the packet is not UDP."""


def _parse_ipv4(packet: memoryview) -> _Parsed:
    if len(packet) < 10:
        return _HEADERS_CUT
    if packet[9] != _UDP:
        return None
    header = (packet[0] & 15) * 4
    if not 20 <= header <= len(packet):
        return _HEADERS_CUT
    total = packet[2] << 8 | packet[3]
    flags = packet[6] << 8 | packet[7]
    source, destination = bytes(packet[12:16]), bytes(packet[16:20])
    position, more = (flags & 0x1FFF) * 8, bool(flags & 0x2000)
    body = packet[header : total or len(packet)]
    fragment = Fragment(source, destination, bytes(packet[4:6]), position, more, body)
    return fragment, max(0, total - header) if total else None


def _parse_ipv6(packet: memoryview) -> _Parsed:
    if len(packet) < 40:
        return _HEADERS_CUT
    ident, position, more = b"", 0, False
    following, at = packet[6], 40
    size = packet[4] << 8 | packet[5]
    end = 40 + size if size else len(packet)
    while following != _UDP:
        if following not in _EXTENSIONS:
            return None
        if position or more:
            return _NESTED
        if len(packet) < at + 8:
            return _HEADERS_CUT
        if following == _FRAGMENT:
            offset = packet[at + 2] << 8 | packet[at + 3]
            position, more = offset & 0xFFF8, bool(offset & 1)
            ident = bytes(packet[at + 4 : at + 8])
            length = 8
        elif following == _AUTHENTICATION:
            length = (packet[at + 1] + 2) * 4
        else:
            length = 8 + packet[at + 1] * 8
        following, at = packet[at], at + length
    source, destination = bytes(packet[8:24]), bytes(packet[24:40])
    fragment = Fragment(source, destination, ident, position, more, packet[at:end])
    return fragment, max(0, end - at) if size else None


def _is_intact(source: bytes, destination: bytes, body: memoryview) -> bool:
    """Check the checksum of a UDP datagram (RFC 768, RFC 8200)."""
    pseudo = source + destination + struct.pack(">II", len(body), _UDP)
    data = pseudo + bytes(body) + bytes(len(body) % 2)
    total = int(np.frombuffer(data, ">u2").sum(dtype=np.uint64))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF
