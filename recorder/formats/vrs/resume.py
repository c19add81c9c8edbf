"""Search for the point at which a writer resumes the file of an earlier writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recorder.common.errors import FormatError, StorageError
from recorder.formats.vrs.chunks import ChunkedFile
from recorder.formats.vrs.headers import (
    DESCRIPTION_TYPE_ID,
    FILE_HEADER_BYTES,
    INDEX_TYPE_ID,
    RECORD_HEADER_BYTES,
    FileHeader,
    RecordHeader,
    RecordType,
    StreamId,
)
from recorder.formats.vrs.index import ENTRY, ENTRY_BYTES, ENTRY_DTYPE
from recorder.formats.vrs.scan import RecordWalk
from recorder.formats.vrs.tags import StreamTags, TagsRecord, unpack_description

_BLOCK_ENTRIES = 1 << 16


@dataclass
class ResumePoint:
    """State that a writer needs to resume.

    Attributes:
        end: length of the whole records in the file, without an index.
        count: number of these records.
        last_size: bytes of the last record, or of the description.
        streams: streams with their tags.
        index_offset: offset of the index in the header.
        kept: number of valid entries in the index on disk.
        more: entries after these, in blocks.
        tags_at: offsets of TAGS records.
    """

    end: int
    count: int
    last_size: int
    streams: dict[StreamId, StreamTags]
    index_offset: int
    kept: int = 0
    more: list[bytes] = field(default_factory=list, repr=False)
    tags_at: list[int] = field(default_factory=list)


def find_resume_point(
    path: Path,
    index_path: Path,
    length: int,
    index_length: int | None,
    tags_at: Sequence[int] | None = None,
) -> ResumePoint:
    """Find where `VrsWriter.resume` resumes; raise its errors."""
    with ChunkedFile(path, [path]) as file:
        if file.size < length:
            raise StorageError(
                f"{path}: cannot resume: has {file.size} bytes where {length} were committed"
            )
        header, streams, first, last_size = _read_beginning(file, length)
        end = _find_end(file, header, length)
        point = ResumePoint(end, 0, last_size, streams, header.index_offset)
        kept = index_length or 0
        whole = kept and not kept % ENTRY_BYTES and index_path.is_file()
        usable = whole and index_path.stat().st_size >= kept
        start = first
        if usable and tags_at is not None:
            start = _take_last_entry(file, index_path, kept, tags_at, point) or first
        if usable and start == first:
            start = _take_entries(file, index_path, kept, first, point)
        _walk(file, start, length, point)
        return point


def _read_beginning(
    file: ChunkedFile, length: int
) -> tuple[FileHeader, dict[StreamId, StreamTags], int, int]:
    """Read the header, and the description's streams, end and size."""
    header = FileHeader.unpack(file.peek(0, min(FILE_HEADER_BYTES, length)), file.path)
    ours = FileHeader(header.creation_id, header.index_offset)
    if header != ours:
        raise FormatError(f"{file.path}: cannot resume, another writer made it: {header}")
    data = file.peek(FILE_HEADER_BYTES, min(RECORD_HEADER_BYTES, length - FILE_HEADER_BYTES))
    record = RecordHeader.unpack(data) if len(data) == RECORD_HEADER_BYTES else None
    if record is None or FILE_HEADER_BYTES + record.size > length:
        raise StorageError(f"{file.path}: cannot resume at {length}, inside of its description")
    if record.type_id != DESCRIPTION_TYPE_ID or record.fault():
        raise FormatError(f"{file.path}: has no description record at byte {FILE_HEADER_BYTES}")
    tags = file.read(FILE_HEADER_BYTES + RECORD_HEADER_BYTES, record.size - RECORD_HEADER_BYTES)
    streams, _ = unpack_description(tags, record.version, file.path)
    return header, streams, FILE_HEADER_BYTES + record.size, record.size


def _find_end(file: ChunkedFile, header: FileHeader, length: int) -> int:
    """Return the length of the records without an index that ends at `length`."""
    at = header.index_offset
    if not 0 < at <= length - RECORD_HEADER_BYTES:
        return length
    record = RecordHeader.unpack(file.read(at, RECORD_HEADER_BYTES))
    return at if record.type_id == INDEX_TYPE_ID and at + record.size == length else length


def _take_last_entry(
    file: ChunkedFile,
    index_path: Path,
    index_length: int,
    tags_at: Sequence[int],
    point: ResumePoint,
) -> int | None:
    """Use an index of all records by its last entry; return None if that does not fit.

    Therefore the cost does not depend on the length of the recording.
    """
    with index_path.open("rb") as entries:
        entries.seek(index_length - ENTRY_BYTES)
        last = np.frombuffer(entries.read(ENTRY_BYTES), ENTRY_DTYPE)[0]
    count = index_length // ENTRY_BYTES
    return point.end if _take_index(file, last, count, (0, point.end), tags_at, point) else None


def _take_entries(
    file: ChunkedFile, index_path: Path, index_length: int, first: int, point: ResumePoint
) -> int:
    """Use the committed entries of the index; return the end of their records.

    If they do not fit the file, use none and return `first`.
    """
    offset, tags_at = first, list[int]()
    last = np.zeros(1, ENTRY_DTYPE)[0]
    with index_path.open("rb") as entries:
        left = index_length
        while left:
            data = entries.read(min(left, _BLOCK_ENTRIES * ENTRY_BYTES))
            left -= len(data)
            block = np.frombuffer(data, ENTRY_DTYPE)
            ends = offset + np.cumsum(block["size"], dtype=np.int64)
            is_tags = block["record_type"] == RecordType.TAGS
            tags_at += (ends - block["size"])[is_tags].tolist()
            offset, last = int(ends[-1]), block[-1]
    count = index_length // ENTRY_BYTES
    fits = offset <= point.end and _take_index(file, last, count, (first, offset), tags_at, point)
    return offset if fits else first


def _take_index(
    file: ChunkedFile,
    last: np.void,
    count: int,
    records: tuple[int, int],
    tags_at: Sequence[int],
    point: ResumePoint,
) -> bool:
    """Use `count` entries; return False if the last one is not that of the last record.

    Args:
        file: the VRS file of the entries.
        last: the last entry.
        count: number of entries.
        records: start and end of the records; the last one must lie within.
        tags_at: offsets of TAGS records.
        point: resume point that is updated.
    """
    size, (start, end) = int(last["size"]), records
    if not RECORD_HEADER_BYTES <= size <= end - start:
        return False
    record = RecordHeader.unpack(file.read(end - size, RECORD_HEADER_BYTES))
    if record.size != size or record.timestamp_s != float(last["timestamp_s"]):
        return False
    for at in tags_at:
        _take_tags(file, at, RecordHeader.unpack(file.read(at, RECORD_HEADER_BYTES)), point)
    point.kept, point.count, point.last_size = count, count, size
    return True


def _walk(file: ChunkedFile, start: int, length: int, point: ResumePoint) -> None:
    """Read the header of every record from an offset on, and make index entries of them."""
    walk = RecordWalk(file, start, point.last_size, stop=point.end)
    rows = bytearray()
    end = start
    for at, record in _iterate_records(walk):
        rows += ENTRY.pack(
            record.timestamp_s, record.size, record.record_type, record.type_id, record.instance
        )
        if len(rows) >= _BLOCK_ENTRIES * ENTRY_BYTES:
            point.more.append(bytes(rows))
            rows.clear()
        if record.record_type == RecordType.TAGS:
            _take_tags(file, at, record, point)
        point.count += 1
        point.last_size = record.size
        end = at + record.size
    if end != point.end:
        raise StorageError(
            f"{file.path}: cannot resume at {length}, its whole records end at {end}"
            + (f", before {walk.fault}" if walk.fault else "")
        )
    point.more.append(bytes(rows))


def _iterate_records(walk: RecordWalk) -> Iterator[tuple[int, RecordHeader]]:
    for at, record in walk:
        if record.type_id in (INDEX_TYPE_ID, DESCRIPTION_TYPE_ID):
            return
        yield at, record


def _take_tags(file: ChunkedFile, at: int, record: RecordHeader, point: ResumePoint) -> None:
    data = file.read(at + RECORD_HEADER_BYTES, record.size - RECORD_HEADER_BYTES)
    try:
        tags = TagsRecord.decode(data)
    except FormatError as error:
        raise FormatError(f"{file.path}: tags at byte {at}: {error}") from None
    point.tags_at.append(at)
    point.streams[record.stream] = StreamTags(tags.vrs_tags, tags.user_tags)


def description_end(path: Path) -> tuple[int, int]:
    """Return where a file's records begin, and the size of the description record before.

    Raises:
        FormatError, StorageError: the file is not a VRS file of this writer, or is cut before that
            offset.
    """
    with ChunkedFile(path, [path]) as file:
        _, _, first, size = _read_beginning(file, file.size)
        return first, size


def data_records(
    path: Path, stop: int
) -> tuple[dict[StreamId, Mapping[str, str]], list[tuple[int, StreamId]]]:
    """Find all data records of a file that end before an offset.

    Returns:
        Free tags of each stream, and offset and stream of each record, in the file's order.
    """
    with ChunkedFile(path, [path]) as file:
        _, streams, first, last_size = _read_beginning(file, stop)
        point = ResumePoint(stop, 0, last_size, streams, 0)
        found: list[tuple[int, StreamId]] = []
        for at, record in _iterate_records(RecordWalk(file, first, last_size, stop=stop)):
            if record.record_type == RecordType.TAGS:
                _take_tags(file, at, record, point)
            elif record.record_type == RecordType.DATA:
                found.append((at, record.stream))
        return {stream: tags.user for stream, tags in point.streams.items()}, found


def whole_records_end(
    path: Path, start: int, previous_size: int, stop: int | None = None
) -> tuple[int, int, str | None]:
    """Find the end of a file's whole records from an offset on, at the cost of the tail only.

    Args:
        path: the file.
        start: end of a record that is known to be whole, such as a committed length.
        previous_size: bytes of that record.
        stop: records that end beyond this offset do not count; None: all count.

    Returns:
        End of the last whole record, bytes of that record, and a description of what follows, if
        anything.
    """
    with ChunkedFile(path, [path]) as file:
        walk = RecordWalk(file, start, previous_size)
        end, size = start, previous_size
        for at, record in _iterate_records(walk):
            if stop is not None and at + record.size > stop:
                break
            end, size = at + record.size, record.size
        return end, size, walk.fault
