"""Headers of a file and of every record in it (VRS, FileFormat.h).

All numbers are little-endian and packed. Both headers may grow: a file states the length of its
own.
"""

from __future__ import annotations

import struct
import sys
from enum import IntEnum
from typing import NamedTuple, Self

from recorder.common.errors import FormatError

FILE_HEADER = struct.Struct("<4s4sQIIqqqQQQ4s4s")
RECORD_HEADER = struct.Struct("<IIiIdHBBI")
FILE_HEADER_BYTES, RECORD_HEADER_BYTES = FILE_HEADER.size, RECORD_HEADER.size
INDEX_OFFSET_AT = 24
"""Offset at which a file stores the offset of its index, i8; 0: no index."""
MAX_HEADER_GROWTH = 200
MAX_RECORD_BYTES = (1 << 32) - 1
INDEX_TYPE_ID, DESCRIPTION_TYPE_ID = 1, 2
INDEX_VERSION, SPLIT_INDEX_VERSION, DESCRIPTION_VERSION, TAGS_VERSION = 2, 3, 2, 1
MAX_TIMESTAMP = sys.float_info.max
"""Timestamp of index and description records; tags records have the negative of it."""
_MAGIC = (b"Visi", b"onRe", b"cord")
_VERSIONS = (b"VRS1", b"VRS2", b"VRS3")
_LOW_BITS = 0x3FFFFFFF
_LEGACY_TEST_IDS, _TEST_IDS = 100_000, 65_500


class RecordType(IntEnum):
    """Purpose of a record.

    `tag` is its name in the tags that declare formats.
    """

    STATE = 1
    CONFIGURATION = 2
    DATA = 3
    TAGS = 4

    @property
    def tag(self) -> str:
        return self.name.capitalize()


class StreamId(NamedTuple):
    """Stream id: type of recordable, and instance (from 1) among those of the type; ``214-1``."""

    type_id: int
    instance: int

    def __str__(self) -> str:
        return f"{self.type_id}-{self.instance}"

    @classmethod
    def parse(cls, text: str) -> StreamId:
        """Parse ``214-1``; raise FormatError for any other text."""
        type_id, dash, instance = text.partition("-")
        if not (dash and type_id.isdecimal() and instance.isdecimal()):
            raise FormatError(f"{text!r} is no stream: wants TYPE-INSTANCE, such as 214-1")
        return cls(int(type_id), int(instance))

    @classmethod
    def from_stored(cls, type_id: int, instance: int) -> StreamId:
        """Make an id from the numbers in a file; test devices of old files are renumbered."""
        if type_id >= _LEGACY_TEST_IDS:
            type_id += _TEST_IDS - _LEGACY_TEST_IDS
        return cls(type_id & 0xFFFF, instance)


def creation_id(t_ns: int, low: int) -> int:
    """Make the `FileHeader.creation_id` of a file that is made at a time.

    Args:
        t_ns: epoch ns; a time before 1970, from a wrong clock, counts as 1970, because the field
            has no sign.
        low: its low 30 bits are used, which distinguish files of the same second.
    """
    return max(0, t_ns) & ~_LOW_BITS | low & _LOW_BITS


class FileHeader(NamedTuple):
    """Header of a file, its first bytes.

    Attributes:
        creation_id: approximate ns since 1970, with random low bits.
        header_bytes, record_header_bytes: lengths of the headers in this file.
        index_offset: offset of the index; 0 without an index.
        description_offset: offset of the description record.
        first_record_offset: offset of the first record; 0: right after the description.
        version: b"VRS1"; b"VRS2" if the index is before the records.
    """

    creation_id: int
    index_offset: int = 0
    description_offset: int = FILE_HEADER_BYTES
    first_record_offset: int = 0
    header_bytes: int = FILE_HEADER_BYTES
    record_header_bytes: int = RECORD_HEADER_BYTES
    version: bytes = b"VRS1"

    def pack(self) -> bytes:
        return FILE_HEADER.pack(
            *_MAGIC[:2],
            self.creation_id,
            self.header_bytes,
            self.record_header_bytes,
            self.index_offset,
            self.description_offset,
            self.first_record_offset,
            *(0, 0, 0),
            _MAGIC[2],
            self.version,
        )

    @classmethod
    def unpack(cls, data: bytes, where: object) -> Self:
        """Unpack the first 80 bytes; FormatError (starting with `where`) if not a VRS file."""
        if len(data) < FILE_HEADER_BYTES:
            raise FormatError(f"{where}: {len(data)} bytes are no VRS file, whose header is 80")
        fields = FILE_HEADER.unpack(data[:FILE_HEADER_BYTES])
        magic = (*fields[:2], fields[11])
        _, _, creation_id, size, record_size, index, description, first, *_, version = fields
        if magic != _MAGIC:
            raise FormatError(f"{where}: is no VRS file")
        if version not in _VERSIONS:
            raise FormatError(f"{where}: is of the unknown version {version!r}")
        for value, least in ((size, FILE_HEADER_BYTES), (record_size, RECORD_HEADER_BYTES)):
            if not least <= value <= least + MAX_HEADER_GROWTH:
                raise FormatError(f"{where}: its headers have {size} and {record_size} bytes")
        if description < 0 or first < 0:
            raise FormatError(
                f"{where}: its records begin at {first}, the description at {description}"
            )
        return cls(creation_id, index, description, first, size, record_size, version)


class RecordHeader(NamedTuple):
    """Header of a record.

    Attributes:
        size: bytes of the record, this header included.
        previous_size: bytes of the record before it in the file.
        type_id, instance: stream of the record.
        version: version of the record's format, for its stream and type.
        timestamp_s: timestamp on the clock of the file, in s.
        record_type: a `RecordType`.
        compression: 0 none, 1 LZ4, 2 zstd.
        uncompressed_size: bytes of the data, uncompressed; 0 if they are not compressed.
    """

    size: int
    previous_size: int
    type_id: int
    version: int
    timestamp_s: float
    instance: int
    record_type: int
    compression: int
    uncompressed_size: int

    @property
    def stream(self) -> StreamId:
        return StreamId.from_stored(self.type_id, self.instance)

    def fault(self) -> str | None:
        """Return why this is not a record's header; None if it can be one."""
        if self.size < RECORD_HEADER_BYTES:
            return f"size {self.size}"
        if 0 < self.previous_size < RECORD_HEADER_BYTES:
            return f"previous size {self.previous_size}"
        if not RecordType.STATE <= self.record_type <= RecordType.TAGS:
            return f"record type {self.record_type}"
        if self.uncompressed_size:
            if self.compression not in (1, 2):
                return f"compression type {self.compression}"
            whole = self.uncompressed_size
            more = max(50, whole // 2) if whole < 200 else max(100, whole * 5 // 100)
            packed = self.size - RECORD_HEADER_BYTES
            if self.type_id != INDEX_TYPE_ID and packed >= whole + more:
                return f"{packed} bytes compressed, {whole} uncompressed"
        return None

    @classmethod
    def unpack(cls, data: bytes | memoryview, at: int = 0) -> Self:
        """Unpack (at least) 32 bytes at `at`."""
        return cls._make(RECORD_HEADER.unpack_from(data, at))
