"""Reader of a ZIP's central directory, member by member (PKWARE, "APPNOTE.TXT", 6.3.10)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from recorder.common.errors import ArchiveError

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")
_WIDE = 0xFFFFFFFF
_LONGEST_COMMENT = 0xFFFF
UTF8 = 1 << 11
"""Flag of a member whose name is UTF-8."""


@dataclass(frozen=True)
class Member:
    """Member of a ZIP.

    Attributes:
        name: name as stored.
        method: method of compression; 0: not compressed.
        crc: CRC-32 of the content.
        stored, size: bytes in the ZIP, and bytes of the content.
        offset: offset of the local header.
        changed: DOS time and date.
        flags: only the flag for UTF-8 names.
    """

    name: bytes
    method: int
    crc: int
    stored: int
    size: int
    offset: int
    changed: tuple[int, int]
    flags: int = 0

    def data_offset(self, file: IO[bytes], where: str) -> int:
        """Return the offset of the member's data.

        Raises:
            ArchiveError: the local header is missing.
        """
        head = os.pread(file.fileno(), LOCAL.size, self.offset)
        if len(head) < LOCAL.size or not head.startswith(b"PK\3\4"):
            raise ArchiveError(f"{where}: is damaged: no member at byte {self.offset}")
        name, extra = LOCAL.unpack(head)[-2:]
        return int(self.offset + LOCAL.size + name + extra)


def read_members(file: IO[bytes], where: str) -> Iterator[Member]:
    """Yield all members in the order of the central directory, with constant memory.

    Raises:
        ArchiveError: the file is not a ZIP, or is damaged; the message begins with `where`.
    """
    offset, count = _directory(file, where)
    file.seek(offset)
    for number in range(count):
        head = file.read(CENTRAL.size)
        if len(head) < CENTRAL.size or not head.startswith(b"PK\1\2"):
            raise ArchiveError(f"{where}: is damaged: entry {number} of its directory")
        _, _, _, flags, method, clock, date, crc, stored, size, *more = CENTRAL.unpack(head)
        name_size, extra_size, comment_size, _, _, _, place = more
        name, extra = file.read(name_size), file.read(extra_size)
        file.seek(comment_size, os.SEEK_CUR)
        if flags & 1:
            raise ArchiveError(f"{where}: {name!r} is encrypted")
        wide = _wide_values(extra)
        try:
            size, stored, place = (
                next(wide) if value == _WIDE else value for value in (size, stored, place)
            )
        except (StopIteration, RuntimeError):
            raise ArchiveError(f"{where}: is damaged: {name!r} lacks its sizes") from None
        at = file.tell()
        yield Member(name, method, crc, stored, size, place, (clock, date), flags & UTF8)
        file.seek(at)


def _wide_values(extra: bytes) -> Iterator[int]:
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            for place in range(at + 4, at + 4 + size - 7, 8):
                if place + 8 <= len(extra):
                    yield struct.unpack_from("<Q", extra, place)[0]
        at += 4 + size


def _directory(file: IO[bytes], where: str) -> tuple[int, int]:
    """Return the offset of the central directory and its number of entries."""
    end = file.seek(0, os.SEEK_END)
    start = max(0, end - END.size - _LONGEST_COMMENT - LOCATOR64.size)
    file.seek(start)
    tail = file.read()
    at = len(tail)
    while (at := tail.rfind(b"PK\5\6", 0, at)) >= 0:
        # A comment may contain the same bytes; the length in the true record matches the file.
        if at + END.size + int.from_bytes(tail[at + END.size - 2 : at + END.size], "little") == len(
            tail
        ):
            break
    if at < 0:
        raise ArchiveError(f"{where}: is not a ZIP, or has no end record")
    _, _, _, _, count, _, offset, _ = END.unpack_from(tail, at)
    if at >= LOCATOR64.size and tail[at - LOCATOR64.size :].startswith(b"PK\6\7"):
        place = LOCATOR64.unpack_from(tail, at - LOCATOR64.size)[2]
        record = os.pread(file.fileno(), END64.size, place)
        if len(record) < END64.size or not record.startswith(b"PK\6\6"):
            raise ArchiveError(f"{where}: is damaged: no ZIP64 end at byte {place}")
        *_, count, _, offset = END64.unpack(record)
    return offset, count
