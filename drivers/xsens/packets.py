"""Xbus messages of Xsens MTi devices: parsing a byte stream into messages, and encoding.

No I/O and no clock.  The message structure is that of Xsens' "MT Low Level Communication Protocol
Documentation" (MT0101P):

====== ============ ======= ======================== ================== ============
0xFA   0xFF (bus)   MID     length, or 0xFF + u2      data               checksum
====== ============ ======= ======================== ================== ============

All bytes after the preamble sum to 0 modulo 256; numbers are big-endian.  The data of an MTData2
message (MID 0x36) is decoded in `drivers.xsens.mtdata2`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from recorder.common.errors import ProtocolError

HEADER: Final = b"\xfa\xff"
MID_MTDATA2: Final = 0x36
MAX_DATA: Final = 2048
"""Largest data field in bytes; a message with a larger length is invalid."""

MAX_MESSAGE: Final = 6 + MAX_DATA + 1

_EXTENDED: Final = 0xFF
_PACKET_HEAD: Final = 3


@dataclass(frozen=True, slots=True)
class XbusMessage:
    """One message with a correct checksum.

    Attributes:
        mid: message identifier.
        data: the data field, 0 to 2048 bytes.
        offset: position of the preamble in the byte stream.
        skipped: bytes directly before the message that belong to no good message.
    """

    mid: int
    data: bytes
    offset: int = 0
    skipped: int = 0

    @property
    def size(self) -> int:
        """Size of the whole message in bytes, preamble to checksum."""
        return len(self.data) + (5 if len(self.data) < _EXTENDED else 7)


class XbusParser:
    """Parser of a byte stream, in chunks of any size, into messages.

    Bytes outside of messages are skipped one by one, so a broken message never takes the next good
    message with it.  The protocol's 8-bit checksum accepts one in 256 broken messages; for MTData2,
    the packets' sizes are therefore checked too.  Usage::

        parser = XbusParser()
        for chunk in source:
            for message in parser.feed(chunk):
                ...
        for message in parser.finish():     # messages inside an unfinished message at the end
            ...

    Attributes:
        messages: number of good messages.
        stray_bytes: number of bytes outside of good messages, including broken messages.
        bad_checksums: number of complete messages that were broken.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.stray_bytes = 0
        self.bad_checksums = 0
        self._buffer = bytearray()
        self._offset = 0
        self._skipped = 0

    @property
    def buffered(self) -> int:
        """Number of bytes of the unfinished message; below `MAX_MESSAGE`."""
        return len(self._buffer)

    @property
    def skipped(self) -> int:
        """Number of bytes since the last good message that belong to no message."""
        return self._skipped

    def feed(self, chunk: bytes | bytearray | memoryview) -> list[XbusMessage]:
        """Return the messages that `chunk` completes."""
        self._buffer += chunk
        return self._scan(final=False)

    def finish(self) -> list[XbusMessage]:
        """End the stream; return the good messages inside an apparently unfinished message."""
        return self._scan(final=True)

    def _scan(self, final: bool) -> list[XbusMessage]:
        found: list[XbusMessage] = []
        buffer, end = self._buffer, len(self._buffer)
        pos = 0
        while True:
            start = buffer.find(HEADER, pos)
            if start < 0:
                # A preamble at the chunk's end may be the first half of a header.
                start = end - 1 if not final and end > pos and buffer[-1] == HEADER[0] else end
                self._skip(start - pos)
                pos = start
                break
            self._skip(start - pos)
            pos = start
            stop, head = _extent(buffer, pos)
            if stop > end:
                if not final:
                    break
                self._skip(1)
                pos += 1
                continue
            if stop:
                data = bytes(buffer[pos + head : stop - 1])
                mid = buffer[pos + 2]
                if not sum(buffer[pos + 1 : stop]) & 0xFF and (
                    mid != MID_MTDATA2 or _packets_fit(data)
                ):
                    found.append(XbusMessage(mid, data, self._offset + pos, self._skipped))
                    self._skipped = 0
                    pos = stop
                    continue
                self.bad_checksums += 1
            self._skip(1)
            pos += 1
        del buffer[:pos]
        self._offset += pos
        self.messages += len(found)
        return found

    def _skip(self, count: int) -> None:
        self.stray_bytes += count
        self._skipped += count


def _extent(buffer: bytearray, pos: int) -> tuple[int, int]:
    """Return (end of the message at `pos`, length of its head); end 0 for an impossible length.

    If the head itself is incomplete, the end is beyond the buffer's end.
    """
    if len(buffer) < pos + 4:
        return len(buffer) + 1, 4
    size = buffer[pos + 3]
    if size != _EXTENDED:
        return pos + 4 + size + 1, 4
    if len(buffer) < pos + 6:
        return len(buffer) + 1, 6
    size = buffer[pos + 4] << 8 | buffer[pos + 5]
    return (pos + 6 + size + 1 if _EXTENDED <= size <= MAX_DATA else 0), 6


def _packets_fit(data: bytes) -> bool:
    pos, end = 0, len(data)
    while pos + _PACKET_HEAD <= end:
        pos += _PACKET_HEAD + data[pos + 2]
    return pos == end


def encode_message(mid: int, data: bytes) -> bytes:
    """Encode a whole message around `data`; the inverse of `XbusParser`.

    Raises:
        ProtocolError: more than 2048 bytes of data.
    """
    if len(data) > MAX_DATA:
        raise ProtocolError(f"Xbus message 0x{mid:02x}: {len(data)} bytes of data, at most 2048")
    if len(data) < _EXTENDED:
        body = struct.pack(">BBB", HEADER[1], mid, len(data)) + data
    else:
        body = struct.pack(">BBBH", HEADER[1], mid, _EXTENDED, len(data)) + data
    return HEADER[:1] + body + bytes([-sum(body) & 0xFF])
