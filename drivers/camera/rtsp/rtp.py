"""RTP and RTCP (RFC 3550), with access units of H.264 (RFC 6184) and H.265 (RFC 7798).

The module restores the order of packets, follows the sender's clock, and assembles access units
without decoding them.

`drivers.camera.rtsp.rtp_jpeg` has JPEG.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from drivers.camera.rtsp.messages import START_CODE
from recorder.common.errors import ProtocolError

MAX_UNIT_BYTES = 16 << 20
_LONGEST_GAP_S = 60.0  # a larger step of the timestamps does not count pictures
_UNCOUNTED = 1 << 16  # packets that are missing where the sequence numbers begin again


@dataclass(slots=True)
class RtpPacket:
    """One packet (RFC 3550, section 5.1)."""

    payload_type: int
    marker: bool
    sequence: int
    timestamp: int
    ssrc: int
    payload: bytes


def parse_rtp(data: bytes) -> RtpPacket:
    """Parse a packet; ProtocolError if it is not RTP version 2 or ends too early."""
    if len(data) < 12 or data[0] >> 6 != 2:
        raise ProtocolError(f"no RTP packet: {data[:12].hex() or 'empty'}")
    first, second, sequence, timestamp, ssrc = struct.unpack_from(">BBHII", data)
    at, end = 12 + 4 * (first & 15), len(data)
    if first & 0x10:  # an extension
        at += 4 + 4 * int.from_bytes(data[at + 2 : at + 4], "big")
    if first & 0x20:  # padding
        end -= data[-1]
    if at > end:
        raise ProtocolError(f"an RTP packet of {len(data)} bytes that ends in its header")
    return RtpPacket(second & 127, bool(second & 128), sequence, timestamp, ssrc, data[at:end])


@dataclass(frozen=True, slots=True)
class AccessUnit:
    """The data of one picture.

    Attributes:
        t_ns: arrival of its first packet.
        timestamp: RTP's, without wrapping, from 0 at the first picture; in `Media.clock_hz`.
        data: NAL units with start codes (ISO 14496-10, annex B), or a JPEG; empty with a `fault`.
        key: the picture is decodable without earlier pictures.
        fault: the reason why the picture is damaged; empty if it is whole.
        missed: pictures that were lost entirely before this picture: from the timestamps, but at
            most one for each missing packet; at least 1 if packets between two pictures are
            missing.  Where the timestamps jump: from the number of missing packets.
        t_device_ns: the sender's time of the timestamp by its reports; 0 where it is unknown.
    """

    t_ns: int
    timestamp: int
    data: bytes
    key: bool
    fault: str = ""
    missed: int = 0
    t_device_ns: int = 0


class Assembler(Protocol):
    """Interface of the assemblers of a picture's payloads.

    Attributes:
        has_picture: the payloads since `reset` hold picture data, not only parameters.
        key: as in `AccessUnit`.
    """

    has_picture: bool
    key: bool

    def reset(self) -> None:
        """Begin a picture."""

    def begins(self, payload: bytes) -> bool:
        """Return whether a picture begins with this payload."""

    def add(self, payload: bytes) -> None:
        """Add a payload; ProtocolError if it is damaged."""

    def finish(self) -> bytes:
        """Return the picture's data; ProtocolError if it is incomplete."""


class Depacketizer:
    """Collector of one connection's packets, which are never reordered, into access units.

    A picture ends with RTP's marker, or with the next timestamp if the camera sets the marker
    within pictures or never.

    >>> depacketizer = Depacketizer(NalAssembler("h264"), payload_type=96, clock_hz=90_000)
    >>> for unit in depacketizer.feed(packet, t_ns):
    ...     ...

    Attributes:
        clock: the sender's; its reports are set from outside.
    """

    def __init__(self, assembler: Assembler, payload_type: int, clock_hz: int) -> None:
        self._assembler = assembler
        self._payload_type = payload_type
        self.clock = SenderClock(clock_hz)
        self._longest = round(_LONGEST_GAP_S * clock_hz)
        self._last: RtpPacket | None = None  # of any payload type
        self._timestamp: int | None = None  # of the present or last picture
        self._extended = 0
        self._steps: deque[int] = deque(maxlen=3)  # between pictures without a gap
        self._steady = True  # the last step was a usual one
        self._packets = 0  # of the present picture
        self._whole = [0, 0]  # pictures without a fault, and their packets
        self._open = False
        self._trusted = True  # markers are at the ends of pictures
        self._continued = False  # after a marker within the picture
        self._gap = 0  # packets that are missing before this one
        self._fault = ""
        self._missed = 0
        self._missed_sets = False  # instead, if the picture is a keyframe
        self._t_ns = 0

    def feed(self, data: bytes, t_ns: int) -> list[AccessUnit]:
        """Return the access units that a packet completes.

        Args:
            data: an RTP packet.
            t_ns: its arrival.

        Raises:
            ProtocolError: the data are not RTP.
        """
        packet, last = parse_rtp(data), self._last
        self._last = packet
        if last is not None:
            same = last.ssrc == packet.ssrc
            if same and last.sequence == packet.sequence:
                return []  # repeated
            if not same:
                self.clock.restart()
            gap = (packet.sequence - last.sequence - 1) & 0xFFFF
            self._gap += gap if same and gap < 1 << 15 else _UNCOUNTED
        if packet.payload_type != self._payload_type:
            return []
        gap, self._gap = self._gap, 0
        units = []
        # Servers send pictures twice, or give two pictures the same time.
        again = not self._open and self._assembler.begins(packet.payload)
        if packet.timestamp != self._timestamp or again:
            cut = self._open
            if cut:
                units += self._finish("its last packets are missing" if gap else "")
            self._begin(packet, t_ns, gap, cut)
        elif not self._open:
            self._begin(packet, t_ns, gap, True)
            self._continued = True
        elif gap:
            self._fault = self._fault or "packets are missing"
        self._add(packet)
        if packet.marker and self._trusted and (self._assembler.has_picture or self._fault):
            units += self._finish("")
        return units

    def _begin(self, packet: RtpPacket, t_ns: int, gap: int, cut: bool) -> None:
        step = 0
        if self._timestamp is not None:
            step = (packet.timestamp - self._timestamp + (1 << 31)) % (1 << 32) - (1 << 31)
        self._timestamp = packet.timestamp
        self._extended += step
        self._open, self._continued, self._t_ns = True, False, t_ns
        self._fault, self._missed, self._missed_sets = "", 0, False
        self._packets = 0
        self._assembler.reset()
        period = sorted(self._steps)[(len(self._steps) - 1) // 2] if self._steps else 0
        if not gap:
            self._steady = not period or abs(step - period) < period / 2
            if step > 0:
                self._steps.append(step)
            return
        is_whole = self._assembler.begins(packet.payload)
        if 0 < step < self._longest and period and self._steady:
            self._missed = min(max(0, round(step / period) - 1), gap)
        elif gap < _UNCOUNTED and self._whole[0]:
            # At the ends of a picture that is cut, some of the missing packets are its own.
            pictures = round(gap * self._whole[0] / self._whole[1])
            self._missed = max(0, pictures if is_whole and not cut else pictures - 1)
        self._steady = True
        if not is_whole:
            self._fault = "its first packets are missing"
        elif not cut and not self._missed:
            # A whole picture; but before a keyframe of the next period: its parameter sets.
            self._missed = 1
            self._missed_sets = 0 < step < 1.5 * period

    def _add(self, packet: RtpPacket) -> None:
        self._packets += 1
        if not self._fault and packet.payload:
            try:
                self._assembler.add(packet.payload)
            except ProtocolError as error:
                self._fault = str(error)
        if self._continued and self._assembler.has_picture:
            self._trusted = False
            self._fault = "the camera marked an earlier packet as the picture's last"

    def _finish(self, fault: str) -> list[AccessUnit]:
        self._open = False
        data, fault = b"", self._fault or fault
        if not fault:
            if not self._assembler.has_picture:
                return []
            try:
                data = self._assembler.finish()
            except ProtocolError as error:
                fault = str(error)
        if self._missed_sets and self._assembler.key:
            self._missed = 0
        key = self._assembler.key and not fault
        if not fault:
            self._whole = [self._whole[0] + 1, self._whole[1] + self._packets]
        at_ns = self.clock.time_ns(self._timestamp or 0)
        return [AccessUnit(self._t_ns, self._extended, data, key, fault, self._missed, at_ns)]


@dataclass(frozen=True, slots=True)
class _Nal:
    """Differences between the codecs' payloads.

    Attributes:
        header: bytes of a NAL unit's header.
        aggregate, fragment: types of payloads with several NAL units, and with part of one.
        single: the types below this are NAL units.
        type_of: of a NAL unit's or payload's header.
        picture: a type is coded picture data.
        key: a NAL unit belongs to a picture that is decodable alone.
    """

    header: int
    aggregate: int
    fragment: int
    single: int
    type_of: Callable[[bytes], int]
    picture: Callable[[int], bool]
    key: Callable[[int, bytes], bool]


# Decodable alone: an IDR picture, or a recovery point (SEI 6, for intra refresh and open groups).
_H264 = _Nal(
    1, 24, 28, 24,
    lambda nal: nal[0] & 31,
    lambda kind: 1 <= kind <= 5,
    lambda kind, nal: kind == 5 or (kind == 6 and nal[1:2] == b"\x06"),
)  # fmt: skip
# Decodable alone: the types of intra random access points.
_H265 = _Nal(
    2, 48, 49, 48,
    lambda nal: nal[0] >> 1 & 63,
    lambda kind: kind < 32,
    lambda kind, _: 16 <= kind <= 23,
)  # fmt: skip
NAL_CODECS = {"h264": _H264, "h265": _H265}


class NalAssembler:
    """Assembler of NAL units: single, aggregated (STAP-A, AP) and fragmented (FU-A, FU).

    Args:
        codec: a key of `NAL_CODECS`.
    """

    def __init__(self, codec: str) -> None:
        self._codec = NAL_CODECS[codec]
        self.reset()

    def reset(self) -> None:
        self._data = bytearray()
        self._fragmented = False
        self.has_picture = self.key = False

    def begins(self, payload: bytes) -> bool:
        codec = self._codec
        if len(payload) <= codec.header:
            return False
        kind, at = codec.type_of(payload), codec.header
        if kind == codec.aggregate:
            payload = payload[codec.header + 2 :]
            if len(payload) <= codec.header:
                return False
            kind = codec.type_of(payload)
        elif kind == codec.fragment:
            if not payload[codec.header] & 0x80:
                return False
            kind, at = self._fragment_type(payload), codec.header + 1
        # The first bit is set in the first slice: first_mb_in_slice 0, or
        # first_slice_segment_in_pic_flag.
        return not codec.picture(kind) or payload[at : at + 1] >= b"\x80"

    def add(self, payload: bytes) -> None:
        codec = self._codec
        if len(payload) <= codec.header:
            raise ProtocolError(f"a payload of {len(payload)} bytes")
        kind = codec.type_of(payload)
        if self._fragmented and kind != codec.fragment:
            raise ProtocolError("a fragmented NAL unit without its end")
        if kind == codec.fragment:
            self._add_fragment(payload)
        elif kind == codec.aggregate:
            self._add_aggregate(payload)
        elif kind < codec.single:
            self._add_nal(payload)
        else:
            raise ProtocolError(f"a payload of type {kind}")
        if len(self._data) > MAX_UNIT_BYTES:
            raise ProtocolError(f"a picture of more than {MAX_UNIT_BYTES} bytes")

    def finish(self) -> bytes:
        if self._fragmented:
            raise ProtocolError("a fragmented NAL unit without its end")
        return bytes(self._data)

    def _add_nal(self, nal: bytes) -> None:
        kind = self._codec.type_of(nal)
        self.has_picture |= self._codec.picture(kind)
        self.key |= self._codec.key(kind, nal)
        self._data += START_CODE + nal

    def _add_aggregate(self, payload: bytes) -> None:
        at = self._codec.header
        while at < len(payload):
            size = int.from_bytes(payload[at : at + 2], "big")
            nal = payload[at + 2 : at + 2 + size]
            if len(nal) < size or size <= self._codec.header:
                raise ProtocolError(f"an aggregated NAL unit of {size} bytes, {len(nal)} are there")
            self._add_nal(nal)
            at += 2 + size

    def _fragment_type(self, payload: bytes) -> int:
        return payload[self._codec.header] & (31 if self._codec.header == 1 else 63)

    def _add_fragment(self, payload: bytes) -> None:
        size = self._codec.header
        if len(payload) <= size + 1:
            raise ProtocolError(f"a fragment of {len(payload)} bytes")
        starts, ends = payload[size] & 0x80, payload[size] & 0x40
        if bool(starts) == self._fragmented:
            raise ProtocolError(f"a fragmented NAL unit without its {'end' if starts else 'start'}")
        if starts:
            kind = self._fragment_type(payload)
            if size == 1:  # section 5.8: F and NRI of the indicator, the type of the header
                header = bytes((payload[0] & 0xE0 | kind,))
            else:  # section 4.4.3
                header = bytes((payload[0] & 0x81 | kind << 1, payload[1]))
            self._add_nal(header + payload[size + 1 :])
        else:
            self._data += payload[size + 1 :]
        self._fragmented = not ends


_MOST_HELD = 64
_LONGEST_NS = 100_000_000
_RESTART = 3000  # a larger step is a new sequence: MAX_DROPOUT of RFC 3550, appendix A.1


class PacketOrder:
    """Order of one stream's packets; a packet that does not come in time is a gap.

    >>> order = PacketOrder()
    >>> for t_ns, packet in order.feed(packet, t_ns):
    ...     ...                                   # in order; a repeated or late packet never comes

    A packet that follows a gap is held for up to 64 packets, or 0.1 s of arrival.
    """

    def __init__(self) -> None:
        self._expected: int | None = None
        self._held: dict[int, tuple[int, bytes]] = {}  # by sequence number

    def feed(self, packet: bytes, t_ns: int) -> list[tuple[int, bytes]]:
        """Return the packets that are in order now, each with its arrival.

        Args:
            packet: an RTP packet; one without a sequence number passes.
            t_ns: its arrival.
        """
        if len(packet) < 4:
            return [(t_ns, packet)]
        number = int.from_bytes(packet[2:4], "big")
        if self._expected is None:
            self._expected = number
        step = _step(self._expected, number)
        made: list[tuple[int, bytes]] = []
        if abs(step) > _RESTART:
            made = self._release_all()
            self._expected, step = number, 0
        if step < 0:
            return made
        self._held.setdefault(number, (t_ns, packet))
        made += self._in_order()
        while self._held and (
            len(self._held) > _MOST_HELD or t_ns - self._oldest_ns() > _LONGEST_NS
        ):
            self._expected = self._next_held()
            made += self._in_order()
        return made

    def _in_order(self) -> list[tuple[int, bytes]]:
        assert self._expected is not None
        made = []
        while (item := self._held.pop(self._expected, None)) is not None:
            made.append(item)
            self._expected = (self._expected + 1) & 0xFFFF
        return made

    def _release_all(self) -> list[tuple[int, bytes]]:
        made = []
        while self._held:
            self._expected = self._next_held()
            made += self._in_order()
        return made

    def _next_held(self) -> int:
        expected = self._expected
        assert expected is not None
        return min(self._held, key=lambda number: _step(expected, number))

    def _oldest_ns(self) -> int:
        return min(t_ns for t_ns, _ in self._held.values())


def _step(expected: int, number: int) -> int:
    """Return the distance of a number from the expected one; negative: before it."""
    return (number - expected + 0x8000) % 0x10000 - 0x8000


_SENDER_REPORT = 200
_BYE = 203
_TO_1970_S = 2_208_988_800  # from NTP's epoch, 1900


@dataclass(frozen=True, slots=True)
class SenderReport:
    """One report.

    Attributes:
        ssrc: of the stream.
        time_ns: the sender's clock in epoch ns; of a sender without a calendar, ns of its clock.
        timestamp: RTP's timestamp of the same moment.
    """

    ssrc: int
    time_ns: int
    timestamp: int


def parse_rtcp(data: bytes) -> tuple[list[SenderReport], bool]:
    """Return the sender reports of a compound packet, and whether it ends the stream (BYE).

    Bytes that are not RTCP, or are cut short, are skipped.  Reports without a time are left out.
    """
    reports, ends, at = [], False, 0
    while at + 4 <= len(data) and data[at] >> 6 == 2:
        kind, size = data[at + 1], 4 + 4 * int.from_bytes(data[at + 2 : at + 4], "big")
        ends |= kind == _BYE
        if kind == _SENDER_REPORT and size >= 28 and at + 20 <= len(data):
            ssrc, seconds, fraction, timestamp = struct.unpack_from(">IIII", data, at + 4)
            if seconds or fraction:
                seconds -= _TO_1970_S if seconds >= _TO_1970_S else 0
                time_ns = seconds * 1_000_000_000 + (fraction * 1_000_000_000 >> 32)
                reports.append(SenderReport(ssrc, time_ns, timestamp))
        at += size
    return reports, ends


class SenderClock:
    """The sender's times of RTP's timestamps, by its latest report.

    >>> clock = SenderClock(clock_hz=90_000)
    >>> clock.time_ns(1234)               # 0: no report has come
    0
    >>> clock.report = SenderReport(1, 5_000_000_000, 0xFFFFFFFF)
    >>> clock.time_ns(89_999)             # a second later, and timestamps wrap
    6000000000

    Args:
        clock_hz: rate of the timestamps.

    Attributes:
        report: the latest one; None before the first.
    """

    def __init__(self, clock_hz: int) -> None:
        self._clock_hz = clock_hz
        self.report: SenderReport | None = None
        self._outdated: SenderReport | None = None

    def restart(self) -> None:
        """Ignore the report so far: timestamps restart."""
        self._outdated = self.report

    def time_ns(self, timestamp: int) -> int:
        """Return the sender's time of a timestamp, ns; 0 where it is unknown."""
        if self.report is None or self.report is self._outdated:
            return 0
        step = (timestamp - self.report.timestamp + (1 << 31)) % (1 << 32) - (1 << 31)
        return max(0, self.report.time_ns + step * 1_000_000_000 // self._clock_hz)
