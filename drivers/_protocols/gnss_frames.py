"""Frames of satellite receivers in a stream of bytes: UBX, NMEA 0183, and Septentrio's SBF.

Receivers mix them on one line, with RTCM and binary data of other kinds between them.  A frame
counts where its checksum is right; all other bytes are skipped.  No I/O and no clock.

Layouts: u-blox F9 interface description (UBX frame, 8-bit Fletcher checksum), NMEA 0183 4.11
(``$``...``*hh``), Septentrio SBF reference guide (CRC-16-CCITT, polynomial 0x1021, of all after
the CRC).
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterator
from typing import Final, NamedTuple

UBX, NMEA, SBF = "ubx", "nmea", "sbf"
PROTOCOLS: Final = (UBX, NMEA, SBF)
_UBX_SYNC, _SBF_SYNC = b"\xb5\x62", b"$@"
_UBX_EXTRA, _SBF_HEADER = 8, 8
_MOST_UBX, _MOST_SBF, _MOST_NMEA = 8192, 16384, 1024
_CALM: Final = frozenset(range(0x20, 0x7F))


class Frame(NamedTuple):
    """A frame with a right checksum.

    Attributes:
        protocol: ``ubx``, ``nmea`` or ``sbf``.
        name: class and id of UBX (``01 07``), talker-free type of NMEA (``GGA``), number of SBF.
        data: all bytes of the frame.
        offset: of its first byte in the stream.
        skipped: bytes before it that belong to no frame.
    """

    protocol: str
    name: str
    data: bytes
    offset: int
    skipped: int

    @property
    def size(self) -> int:
        return len(self.data)


class FrameParser:
    """Finds frames in bytes that come in pieces.

    Usage::

        parser = FrameParser()
        for frame in parser.feed(data):
            ...

    Attributes:
        skipped: bytes that belong to no frame.
        bad_checksums: beginnings of frames whose checksum is wrong.
    """

    def __init__(self) -> None:
        self.skipped = self.bad_checksums = 0
        self._rest = b""
        self._offset = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes; yields the frames that they complete."""
        self._rest += data
        yield from self._frames(final=False)

    def finish(self) -> Iterator[Frame]:
        """At the end of the stream: what was held back as the beginning of a frame is none."""
        yield from self._frames(final=True)
        self._skip(len(self._rest))

    def _frames(self, *, final: bool) -> Iterator[Frame]:
        while self._rest:
            at = _begin(self._rest)
            self._skip(at)
            if not self._rest:
                return
            size = self._size()
            if size is None:
                if not final:
                    return
                self._skip(1)
            elif size == 0:
                self._skip(1)
            else:
                data = self._rest[:size]
                if (found := _checked(data)) is None:
                    self.bad_checksums += 1
                    self._skip(1)
                    continue
                frame = Frame(*found, data, self._offset, self.skipped)
                self._rest = self._rest[size:]
                self._offset += size
                yield frame

    def _skip(self, count: int) -> None:
        self._rest = self._rest[count:]
        self._offset += count
        self.skipped += count

    def _size(self) -> int | None:
        """Length of the frame that begins here; 0: none does; None: more bytes are needed."""
        rest = self._rest
        if rest[0] == _UBX_SYNC[0]:
            if len(rest) < 6:
                return None if rest[:2] in (_UBX_SYNC, _UBX_SYNC[:1]) else 0
            size = int.from_bytes(rest[4:6], "little") + _UBX_EXTRA
            return _whole(rest, size) if rest[1] == _UBX_SYNC[1] and size <= _MOST_UBX else 0
        if rest[:2] == _SBF_SYNC:
            if len(rest) < _SBF_HEADER:
                return None
            size = int.from_bytes(rest[6:8], "little")
            fits = _SBF_HEADER <= size <= _MOST_SBF and size % 4 == 0
            return _whole(rest, size) if fits else 0
        if len(rest) == 1:
            return None
        end = rest.find(b"\n", 0, _MOST_NMEA)
        line = rest[: end + 1] if end >= 0 else rest[:_MOST_NMEA]
        if not _CALM.issuperset(line.rstrip(b"\r\n")):
            return 0
        if end >= 0:
            return end + 1
        return 0 if len(rest) >= _MOST_NMEA else None


def _begin(data: bytes) -> int:
    """Where a frame may begin."""
    places = [at for first in (_UBX_SYNC[:1], b"$") if (at := data.find(first)) >= 0]
    return min(places, default=len(data))


def _whole(data: bytes, size: int) -> int | None:
    return size if len(data) >= size else None


def _checked(data: bytes) -> tuple[str, str] | None:
    """Protocol and name of a frame; None if its checksum is wrong."""
    if data[:2] == _UBX_SYNC:
        if ubx_checksum(data[2:-2]) != data[-2:]:
            return None
        return UBX, f"{data[2]:02x} {data[3]:02x}"
    if data[:2] == _SBF_SYNC:
        if crc_hqx(data[4:], 0) != int.from_bytes(data[2:4], "little"):
            return None
        return SBF, str(int.from_bytes(data[4:6], "little") & 0x1FFF)
    text, star, given = data.rstrip(b"\r\n").partition(b"*")
    sum_ = 0
    for byte in text[1:]:
        sum_ ^= byte
    if not star or given.upper() != b"%02X" % sum_:
        return None
    address = text[1:].partition(b",")[0].decode("ascii")
    return NMEA, address if address.startswith("P") else address[2:]


def ubx_checksum(data: bytes) -> bytes:
    """The 8-bit Fletcher checksum of class, id, length and payload."""
    a = b = 0
    for byte in data:
        a = (a + byte) & 0xFF
        b = (b + a) & 0xFF
    return bytes((a, b))
