"""Index of a file: its records in file order (VRS, IndexRecord.h and .cpp).

An index record's data are the streams (u32 count; i32 type and u16 instance of each), the number of
records (u32), and 19 bytes for every record, either uncompressed or as one zstd frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from recorder.common.errors import FormatError
from recorder.formats.vrs.compression import decompress
from recorder.formats.vrs.headers import (
    DESCRIPTION_TYPE_ID,
    INDEX_TYPE_ID,
    INDEX_VERSION,
    RECORD_HEADER_BYTES,
    SPLIT_INDEX_VERSION,
    FileHeader,
    RecordHeader,
    RecordType,
    StreamId,
)
from recorder.formats.vrs.scan import ChunkedFile

_FIELDS = ("timestamp_s", "size", "record_type", "type_id", "instance", "offset")
_TYPES = ("<f8", "<u4", "u1", "<i4", "<u2", "<i8")
RECORD_DTYPE = np.dtype(list(zip(_FIELDS, _TYPES, strict=True)))
"""Dtype of an entry with the offset of its record."""
ENTRY_DTYPE = np.dtype(list(zip(_FIELDS[:-1], _TYPES, strict=False)))
"""Dtype of a stored entry."""
ENTRY_BYTES = ENTRY_DTYPE.itemsize
ENTRY = struct.Struct("<dIBiH")
MAX_RECORDS = 500_000_000
_STREAM = struct.Struct("<iH")
_U32 = struct.Struct("<I")
_OFFSET = struct.Struct("<q")
_ZSTD = 2

Entries = npt.NDArray[np.void]


def index_prelude(streams: Iterable[StreamId], count: int) -> bytes:
    """Return the bytes before the entries."""
    ids = sorted(streams)
    stored = b"".join(_STREAM.pack(*stream) for stream in ids)
    return _U32.pack(len(ids)) + stored + _U32.pack(count)


def read_index(file: ChunkedFile, header: FileHeader, first_record: int) -> tuple[Entries, bool]:
    """Read the records that a file's index names, in file order.

    Args:
        file: the file.
        header: its header.
        first_record: offset of the first record, for an index that is not split.

    Returns:
        Entries [k] of `RECORD_DTYPE`, and whether the index is complete; a split index of an
        unclosed file is not.

    Raises:
        FormatError: there is no index, or it is not valid.
    """
    if header.index_offset <= 0:
        raise FormatError(f"{file.path}: has no index")
    start = header.index_offset + header.record_header_bytes
    record = RecordHeader.unpack(file.read(header.index_offset, RECORD_HEADER_BYTES))
    fault = record.fault()
    if fault or record.type_id != INDEX_TYPE_ID or record.size < header.record_header_bytes:
        raise FormatError(f"{file.path}: its index is no index record ({fault or record.size})")
    size = record.size - header.record_header_bytes
    if record.version == INDEX_VERSION:
        return _read_classic(file, start, size, record, first_record), True
    if record.version == SPLIT_INDEX_VERSION:
        return _read_split(file, start, size, record, header)
    raise FormatError(f"{file.path}: index of unknown version {record.version}")


def _read_classic(
    file: ChunkedFile, start: int, size: int, record: RecordHeader, first_record: int
) -> Entries:
    data = file.read(start, size)
    if len(data) < 8:
        raise FormatError(f"{file.path}: its index ends at byte {len(data)}")
    streams = _U32.unpack_from(data)[0]
    prelude = 8 + streams * _STREAM.size
    if prelude > len(data):
        raise FormatError(f"{file.path}: its index ends inside of its {streams} streams")
    count = _U32.unpack_from(data, prelude - 4)[0]
    data = data[prelude:]
    if count > MAX_RECORDS or (not record.uncompressed_size and count * ENTRY_BYTES > len(data)):
        raise FormatError(f"{file.path}: an index of {count} records in {len(data)} bytes")
    if record.uncompressed_size and count:
        try:
            data = decompress(_ZSTD, data, count * ENTRY_BYTES)
        except FormatError as error:
            raise FormatError(f"{file.path}: its index {error}") from None
    return _place_entries(file, np.frombuffer(data, ENTRY_DTYPE, count), first_record)


def _read_split(
    file: ChunkedFile, start: int, size: int, record: RecordHeader, header: FileHeader
) -> tuple[Entries, bool]:
    """Read an index that fills the rest of the first chunk with consecutive zstd frames."""
    complete = size > 0 and header.first_record_offset > 0
    first_record = header.first_record_offset or file.first_size
    if not size:
        if len(file.paths) == 1:
            raise FormatError(f"{file.path}: its index has no end, and its records no beginning")
        size = file.first_size - start
    data = file.peek(start, min(size, file.first_size - start))
    complete = complete and len(data) == size
    if record.compression == _ZSTD:
        data, whole = _decompress_frames(data)
        complete = complete and whole
    stored = np.frombuffer(data, ENTRY_DTYPE, len(data) // ENTRY_BYTES)
    return _place_entries(file, stored, first_record), complete


def _decompress_frames(data: bytes) -> tuple[bytes, bool]:
    """Return the content of the frames before an incomplete one, and whether all are whole."""
    parts: list[bytes] = []
    while data:
        one = zstandard.ZstdDecompressor().decompressobj()
        try:
            part = one.decompress(data)
        except zstandard.ZstdError:
            break
        if not one.eof:
            break
        parts.append(part)
        data = one.unused_data
    return b"".join(parts), not data


def _place_entries(file: ChunkedFile, stored: npt.NDArray[Any], first_record: int) -> Entries:
    """Return entries with offsets, without records beyond the file's end."""
    if first_record > file.size:
        raise FormatError(f"{file.path}: its records begin at {first_record} of {file.size}")
    sizes = stored["size"].astype(np.int64)
    types = stored["record_type"]
    wrong = (types < RecordType.STATE) | (types > RecordType.TAGS) | (sizes < RECORD_HEADER_BYTES)
    if wrong.any():
        number = int(np.argmax(wrong))
        raise FormatError(f"{file.path}: its index has no record at entry {number}")
    ends = first_record + np.cumsum(sizes)
    placed = np.empty(len(stored), RECORD_DTYPE)
    placed[list(_FIELDS[:-1])] = stored
    placed["offset"] = ends - sizes
    return placed[: int(np.searchsorted(ends, file.size, side="right"))]


def collect_entries(records: Iterator[tuple[int, RecordHeader]]) -> Entries:
    """Return entries of the records of a walk, without index and description records."""
    rows = bytearray()
    for offset, h in records:
        if h.type_id not in (INDEX_TYPE_ID, DESCRIPTION_TYPE_ID):
            rows += ENTRY.pack(h.timestamp_s, h.size, h.record_type, h.type_id, h.instance)
            rows += _OFFSET.pack(offset)
    return np.frombuffer(bytes(rows), RECORD_DTYPE)
