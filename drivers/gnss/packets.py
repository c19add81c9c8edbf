"""Frames of satellite receivers in a stream of bytes: UBX, NMEA 0183, and Septentrio's SBF.

Receivers mix them on one line, with RTCM and binary data of other kinds between them.  A frame
counts where its checksum is right; all other bytes are skipped.  No I/O and no clock.

Layouts: u-blox F9 interface description (UBX frame, 8-bit Fletcher checksum), NMEA 0183 4.11
(``$``...``*hh``), Septentrio SBF reference guide (CRC-16-CCITT, polynomial 0x1021, of all after
the CRC).
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from itertools import accumulate
from typing import Final, NamedTuple

UBX, NMEA, SBF = "ubx", "nmea", "sbf"
PROTOCOLS: Final = (UBX, NMEA, SBF)
_UBX_SYNC, _SBF_SYNC = b"\xb5\x62", b"$@"
_UBX_EXTRA, _SBF_HEADER = 8, 8
_MOST_UBX, _MOST_SBF, _MOST_NMEA = 8192, 16384, 1024
_BEGIN: Final = re.compile(rb"\xb5(?=\x62|\Z)|\$(?=[@A-Z]|\Z)")
_LINE: Final = re.compile(rb"\$[ -#%-~]*\r*\n?")
"""A sentence, or the beginning of one: it has no further ``$``."""


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

    @property
    def talker(self) -> str:
        """Talker of a sentence of NMEA (``GP``, ``GN``); "" of other frames."""
        return self.data[1:3].decode("ascii") if self.protocol == NMEA else ""


class FrameParser:
    """Parser of frames in bytes that come in pieces.

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

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that the bytes complete."""
        self._rest += data
        return self._frames(final=False)

    def finish(self) -> list[Frame]:
        """End the stream; return the frames inside an apparently unfinished frame."""
        return self._frames(final=True)

    def _frames(self, *, final: bool) -> list[Frame]:
        data, at = self._rest, 0
        found = []
        while at < len(data):
            begin = _BEGIN.search(data, at)
            start = begin.start() if begin else len(data)
            self.skipped += start - at
            at = start
            if begin is None:
                break
            size = _size(data, at)
            if size is None and not final:
                break
            frame = data[at : at + (size or 0)]
            if not frame or (named := _check_frame(frame)) is None:
                self.bad_checksums += bool(frame)
                self.skipped += 1
                at += 1
                continue
            found.append(Frame(*named, frame, self._offset + at, self.skipped))
            at += len(frame)
        self._rest = data[at:]
        self._offset += at
        return found


def _size(data: bytes, at: int) -> int | None:
    """Return the length of the frame at a place; 0: no frame; None: more bytes are needed."""
    left = len(data) - at
    if left == 1:
        return None
    if data.startswith(_UBX_SYNC, at):
        if left < 6:
            return None
        size = int.from_bytes(data[at + 4 : at + 6], "little") + _UBX_EXTRA
        return (size if size <= left else None) if size <= _MOST_UBX else 0
    if data.startswith(_SBF_SYNC, at):
        if left < _SBF_HEADER:
            return None
        size = int.from_bytes(data[at + 6 : at + 8], "little")
        fits = _SBF_HEADER <= size <= _MOST_SBF and size % 4 == 0
        return (size if size <= left else None) if fits else 0
    line = _LINE.match(data, at, at + _MOST_NMEA)
    if line is None:
        return 0
    end = line.end()
    if line.group().endswith(b"\n"):
        return end - at
    return None if end == len(data) and end - at < _MOST_NMEA else 0


def _check_frame(data: bytes) -> tuple[str, str] | None:
    """Return protocol and name of a frame; None if its checksum is wrong."""
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
    """Return the 8-bit Fletcher checksum of class, id, length and payload."""
    return bytes((sum(data) & 0xFF, sum(accumulate(data)) & 0xFF))
