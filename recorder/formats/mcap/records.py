"""Reader of MCAP records, which checks every length (mcap.dev/spec, "Records")."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import lz4.frame  # type: ignore[import-untyped]
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode
from mcap.records import Attachment

from recorder.common.errors import FormatError
from recorder.common.files import Buffer, Closeable

zlib_ng: Any
try:
    from zlib_ng import zlib_ng
except ImportError:  # of the extra `archives`: a tenth of the time
    zlib_ng = None

MAGIC = b"\x89MCAP0\r\n"
RECORD = struct.Struct("<BQ")
"""Opcode, and length of the rest."""
MESSAGE = struct.Struct("<BQHIQQ")
"""Opcode, length of the rest, channel, sequence, log time and publish time; the data follow."""
CHUNK = struct.Struct("<BQQQQII")
"""Header of a chunk.

Opcode, length of the rest, first and last log time, bytes and CRC of the records, and the length of
the compression's name. The name, the length of the data and the data follow.
"""
MOST_CHUNK_BYTES = 1 << 30
"""Most bytes that a chunk may hold."""
ANY_CHUNK_BYTES = 128 << 20
"""Bytes that a chunk may always hold, however few of them are stored."""
ANY_BYTES = 4 << 30
"""Bytes that the chunks of a file may always hold, however few of them are stored."""
MOST_RATIO = 1000
"""Most bytes per stored byte, of a larger chunk and of a file that holds more.

33 kB can hold 1 GB of zeros, which each process that reads the file would have in memory.
"""
ANY_RECORDS = 10_000
"""Records that the chunks of a file may hold, and one more per stored byte.

Two messages differ in their times at least. A file with more records was made to keep its readers
busy.
"""
MOST_RECORD_BYTES = 256 << 20
"""Most bytes of a record that is neither a chunk nor a message nor an attachment."""
_HEADER_BYTES = MESSAGE.size - RECORD.size
_ATTACHMENT_BYTES = 2 * 8 + 2 * 4 + 8  # two times, and the lengths of two texts and of the data

Read = TypeVar("Read")


def crc32(data: Buffer, crc: int = 0) -> int:
    """Compute the CRC-32 (ISO 3309) of bytes, continued from the CRC of the bytes before."""
    return zlib.crc32(data, crc) if zlib_ng is None else zlib_ng.crc32(data, crc)


class _Exact(ReadDataStream):
    """Stream that raises if a read ends before its length; the library returns fewer bytes."""

    def read(self, length: int) -> bytes:
        data = super().read(length)
        if len(data) < length:
            raise EndOfFile
        return data


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a record.

    Attributes:
        opcode: kind of the record.
        start: offset of the record.
        body: offset of the byte after its length.
        end: offset of the byte after it.
    """

    opcode: int
    start: int
    body: int
    end: int


@dataclass(frozen=True, slots=True)
class RawMessage:
    """Position of a message in a block of records, and its header.

    Attributes:
        log_ns, publish_ns, channel, sequence: fields of its header.
        record: offset of the record.
        start, end: offsets of its data.
    """

    log_ns: int
    record: int
    start: int
    channel: int
    sequence: int
    publish_ns: int
    end: int


class Budget:
    """Remaining bytes and records of a file's blocks; see `ANY_BYTES` and `ANY_RECORDS`.

    A budget serves one pass over a file that reads each block once.
    """

    def __init__(self) -> None:
        self.bytes = ANY_BYTES
        self.records = ANY_RECORDS

    def add(self, stored: int) -> None:
        """Add a block of `stored` bytes."""
        self.bytes += MOST_RATIO * stored
        self.records += stored


class RecordFile(Closeable):
    """MCAP file as a sequence of records.

    Errors are `FormatError` with the path and the offset.

    Attributes:
        path: path of the file.
        size: size of the file in bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
        self.size = os.fstat(self._fd).st_size

    def error(self, offset: int, what: str) -> FormatError:
        """Make an error at an offset."""
        return FormatError(f"{self.path}: byte {offset}: {what}")

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly `size` bytes."""
        pieces, at, end = [], offset, offset + size
        while at < end:
            try:
                piece = os.pread(self._fd, end - at, at)
            except OSError as error:
                raise self.error(at, f"cannot be read: {error.strerror}") from None
            if not piece:
                raise self.error(at, f"the file ends; {end - at} more bytes belong to the record")
            pieces.append(piece)
            at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def place(self, offset: int, end: int | None = None) -> Place:
        """Return the record at an offset; it must end before `end`, or the end of the file."""
        end = self.size if end is None else end
        if offset + RECORD.size > end:
            raise self.error(offset, f"{end - offset} bytes are no record")
        opcode, length = RECORD.unpack(self.read(offset, RECORD.size))
        body = offset + RECORD.size
        if opcode == 0:
            raise self.error(offset, "a record of kind 0")
        if body + length > end:
            raise self.error(
                offset, f"a record of {length} bytes, of which {end - body} are in the file"
            )
        return Place(opcode, offset, body, body + length)

    def places(self, offset: int, end: int) -> Iterator[Place]:
        """Yield the records between two offsets."""
        while offset < end:
            place = self.place(offset, end)
            yield place
            offset = place.end

    def parse(self, place: Place, read: Callable[[ReadDataStream], Read]) -> Read:
        """Parse a record to an object of `mcap.records`."""
        length = place.end - place.body
        if length > MOST_RECORD_BYTES:
            raise self.error(place.start, f"a record of {length} bytes is too long")
        return parse(self.read(place.body, length), read, lambda e: self.error(place.start, e))

    def crc(self, start: int, stop: int, crc: int = 0) -> int:
        """Compute the CRC-32 of a range, continued from the CRC of the bytes before."""
        for at in range(start, stop, 1 << 20):
            crc = crc32(self.read(at, min(1 << 20, stop - at)), crc)
        return crc

    def attachment(self, place: Place) -> Attachment:
        """Read an attachment and check its CRC; later versions of MCAP may append fields."""
        found: Attachment = self.parse(place, Attachment.read)
        texts = len(found.name.encode()) + len(found.media_type.encode())
        crc_at = place.body + _ATTACHMENT_BYTES + texts + len(found.data)
        crc = int.from_bytes(self.read(crc_at, 4), "little")
        if crc and self.crc(place.body, crc_at) != crc:
            raise self.error(place.start, f"attachment {found.name!r} has a wrong CRC")
        return found

    def chunk(self, place: Place, budget: Budget) -> bytes:
        """Return the records in a chunk, decompressed, and check their CRC."""
        if place.end - place.start < CHUNK.size + 8:
            raise self.error(place.start, "a chunk that is too short")
        _, _, _, _, size, crc, name_bytes = CHUNK.unpack(self.read(place.start, CHUNK.size))
        data_at = place.start + CHUNK.size + name_bytes + 8
        if data_at > place.end:
            raise self.error(place.start, "a chunk that ends within its header")
        rest = self.read(data_at - name_bytes - 8, name_bytes + 8)
        name, stored = rest[:name_bytes], int.from_bytes(rest[name_bytes:], "little")
        if data_at + stored > place.end:
            raise self.error(place.start, "a chunk whose data end beyond it")
        budget.add(place.end - place.start)
        most = min(MOST_CHUNK_BYTES, max(ANY_CHUNK_BYTES, MOST_RATIO * stored), budget.bytes)
        if size > most:
            raise self.error(
                place.start, f"a chunk of {size} bytes, stored in {stored} bytes, is too large"
            )
        budget.bytes -= size
        try:
            data = _decompress(name, self.read(data_at, stored), size)
        except (zstandard.ZstdError, RuntimeError, ValueError) as error:
            raise self.error(place.start, f"a chunk that cannot be decompressed: {error}") from None
        if len(data) != size:
            raise self.error(place.start, f"a chunk of {len(data)} bytes instead of {size}")
        if crc and crc32(data) != crc:
            raise self.error(place.start, "a chunk with a wrong CRC")
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def parse(
    data: bytes, read: Callable[[ReadDataStream], Read], error: Callable[[str], FormatError]
) -> Read:
    """Parse the body of a record to an object of `mcap.records`."""
    try:
        return read(_Exact(BytesIO(data)))
    except (EndOfFile, struct.error):
        raise error("a record that ends within a value") from None
    except UnicodeDecodeError:
        raise error("a record with a text that is not UTF-8") from None


def records(
    data: bytes, budget: Budget, error: Callable[[int, str], FormatError]
) -> Iterator[RawMessage | tuple[int, bytes]]:
    """Yield the messages in a block of records, and other records as opcode and body.

    Args:
        data: whole records.
        budget: budget of the file, reduced by one for each record.
        error: makes an error at an offset of `data`.
    """
    at, size = 0, len(data)
    while at < size:
        if budget.records <= 0:
            raise error(at, "the file has more records than stored bytes so far")
        budget.records -= 1
        if at + RECORD.size > size:
            raise error(at, f"{size - at} bytes are no record")
        opcode, length = RECORD.unpack_from(data, at)
        end = at + RECORD.size + length
        if opcode == 0:
            raise error(at, "a record of kind 0")
        if end > size:
            raise error(at, f"a record of {length} bytes, of which {size - at - RECORD.size} are")
        if opcode == Opcode.MESSAGE:
            if length < _HEADER_BYTES:
                raise error(at, f"a message of {length} bytes")
            _, _, channel, sequence, log_ns, publish_ns = MESSAGE.unpack_from(data, at)
            yield RawMessage(log_ns, at, at + MESSAGE.size, channel, sequence, publish_ns, end)
        else:
            yield opcode, data[at + RECORD.size : end]
        at = end


def _decompress(name: bytes, data: bytes, size: int) -> bytes:
    """Decompress data to at most `size` bytes.

    Raises:
        zstandard.ZstdError, RuntimeError, ValueError: the data are damaged.
    """
    if name == b"":
        return data
    if name == b"zstd":
        found = zstandard.frame_content_size(data)
        if found > size:
            raise ValueError(f"{found} bytes instead of {size}")
        if not size:
            return b""
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    if name == b"lz4":
        unpacked: bytes = lz4.frame.LZ4FrameDecompressor().decompress(data, size + 1)
        return unpacked
    raise ValueError(f"compression {name.decode(errors='replace')!r} is not known")
