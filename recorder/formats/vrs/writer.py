"""Writer of VRS files: append-only, record by record, resumable after a crash.

The bytes equal those of the format's own writer for a file with one chunk and its index at the end.
A second file, ``NAME.index``, holds 19 bytes for every record. It keeps memory use constant, and a
resuming writer finds the records by it. It can be deleted after `finish`. If it is missing or
wrong, it is rebuilt from the file.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError, StorageError
from recorder.common.files import AppendFile, Buffer, Disk, buffer_size
from recorder.formats.vrs.compression import Compression, Compressor
from recorder.formats.vrs.headers import (
    DESCRIPTION_TYPE_ID,
    DESCRIPTION_VERSION,
    FILE_HEADER_BYTES,
    INDEX_OFFSET_AT,
    INDEX_TYPE_ID,
    INDEX_VERSION,
    MAX_RECORD_BYTES,
    MAX_TIMESTAMP,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    TAGS_VERSION,
    FileHeader,
    RecordHeader,
    RecordType,
    StreamId,
)
from recorder.formats.vrs.headers import creation_id as new_creation_id
from recorder.formats.vrs.index import ENTRY, ENTRY_BYTES, ENTRY_DTYPE, index_prelude
from recorder.formats.vrs.layout import DataLayout
from recorder.formats.vrs.reader import VrsReader
from recorder.formats.vrs.scan import ChunkedFile, RecordWalk
from recorder.formats.vrs.streams import (
    RecordLayout,
    Records,
    StreamSpec,
    StreamTags,
    TagsRecord,
    pack_description,
    parse_records,
    unpack_description,
)

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


INDEX_SUFFIX = ".index"
_HEADER_TYPES = ("<u4", "<u4", "<i4", "<u4", "<f8", "<u2", "u1", "u1", "<u4")
_SPILL_BYTES = 1 << 20
_SMALL_BYTES = 2048


class StreamWriter:
    """Writer of one stream of a file.

    Attributes:
        id: type and instance.
        tags: the format's tags and the free ones, as stored in the file.
    """

    def __init__(self, writer: VrsWriter, stream: StreamId, tags: StreamTags) -> None:
        """Initialize the writer; use `VrsWriter.add_stream` or `VrsWriter.streams` instead."""
        self.id = stream
        self.tags = tags
        self._writer = writer
        self._records: Records = parse_records(tags.vrs)
        self._fits: dict[tuple[int, int, type], bool] = {}

    def write(
        self,
        record_type: RecordType,
        timestamp_s: float,
        *blocks: DataLayout | Buffer,
        version: int = 1,
        compressor: Compressor | None = None,
    ) -> None:
        """Append a record.

        Args:
            record_type: configuration, state or data. A configuration record should precede the
                first data record in time, where readers look for it.
            timestamp_s: timestamp on the clock of the file, the same for all streams.
            blocks: blocks as declared for this type and version: layouts as instances of their
                classes, others as bytes. Buffers are kept, not copied, until they are written.
            version: version of the record's format.
            compressor: compresses the record, if that makes it smaller; this needs all of it in
                memory once more.

        Raises:
            FormatError: the blocks are not as declared, a value does not fit, or the timestamp is
                not finite.
            StorageError: the format cannot hold a record of that size.
        """
        layout = self._records.get((record_type, version))
        if layout is None:
            raise FormatError(
                f"stream {self.id}: no {record_type.tag} records of version {version} are declared"
            )
        if len(blocks) != len(layout.layouts):
            raise FormatError(
                f"stream {self.id}: {len(blocks)} blocks where '{layout.format}' is declared"
            )
        parts: list[Buffer] = []
        for at, block in enumerate(blocks):
            if isinstance(block, DataLayout):
                self._check_layout(layout, record_type, at, block)
                parts.append(block.encode())
            else:
                self._check_bytes(layout, at, block)
                parts.append(block)
        self._writer.put(self.id, record_type, version, timestamp_s, parts, compressor)

    def _check_layout(
        self, layout: RecordLayout, record_type: int, at: int, block: DataLayout
    ) -> None:
        kind = type(block)
        # The layouts that a file declares do not change: comparing once for a class is enough.
        key = (id(layout), at, kind)
        if key not in self._fits:
            self._fits[key] = layout.layouts[at] == kind.spec
        if not self._fits[key]:
            raise FormatError(
                f"stream {self.id}: block {at} of its {RecordType(record_type).tag} records is "
                f"{layout.layouts[at] or layout.format.blocks[at]}, not {kind.spec}"
            )

    def _check_bytes(self, layout: RecordLayout, at: int, block: Any) -> None:
        if layout.layouts[at] is not None:
            raise FormatError(f"stream {self.id}: block {at} is a layout, not bytes")
        size = layout.format.blocks[at].block_size
        if size is not None and size != buffer_size(block):
            raise FormatError(
                f"stream {self.id}: {buffer_size(block)} bytes for '{layout.format.blocks[at]}'"
            )


class VrsWriter:
    """Append-only writer of a VRS file.

    >>> writer = VrsWriter.create(path, disk, [imu], {"vehicle": "rig-1"})  # doctest: +SKIP
    >>> stream = writer.streams[StreamId(241, 1)]  # doctest: +SKIP
    >>> stream.write(RecordType.CONFIGURATION, 0.0, ImuConfiguration(rate_hz=100))  # doctest: +SKIP
    >>> stream.write(RecordType.DATA, 0.01, ImuData(acceleration=a))  # doctest: +SKIP
    >>> writer.finish()  # doctest: +SKIP
    >>> for file in writer.files:  # doctest: +SKIP
    ...     file.sync()
    ...     file.close()

    Errors of the disk (OSError) pass through; after one, the writer cannot be used any more.

    Attributes:
        files: the file, and the index file beside it. Between two calls both hold whole records
            only, so that their lengths may be committed and resumed at.
        streams: writers of all declared streams.
        count: number of written records, TAGS records included.
        last_size: bytes of the last record.
        tags_at: offsets of TAGS records that this writer knows.
    """

    def __init__(
        self, file: AppendFile, index: AppendFile, streams: Mapping[StreamId, StreamTags]
    ) -> None:
        """Initialize the writer; use `create` or `resume` instead."""
        self.files = [file, index]
        self._file = file
        self._index = index
        self.streams = {s: StreamWriter(self, s, tags) for s, tags in streams.items()}
        self.count = 0
        self.last_size = 0
        self.tags_at: list[int] = []
        self._finished = False

    @classmethod
    def create(
        cls,
        path: Path,
        disk: Disk,
        streams: Sequence[StreamSpec] = (),
        tags: Mapping[str, str] | None = None,
        *,
        index_path: Path | None = None,
        creation_id: int | None = None,
    ) -> VrsWriter:
        """Create a file with its header and description; raise FileExistsError if it exists.

        Args:
            path: path of the file.
            disk: disk that writes the file.
            streams: streams that are known already; `streams` of the writer has them in this order.
            tags: tags of the file.
            index_path: path of the index file; None: ``NAME.index`` in the same folder.
            creation_id: creation id; None: the time, with random low bits, as the format demands.
        """
        ids: dict[StreamId, StreamTags] = {}
        for spec in streams:
            ids[choose_id(spec, ids)] = spec.stream_tags()
        return cls.create_as(
            path, disk, ids, tags or {}, index_path=index_path, creation_id=creation_id
        )

    @classmethod
    def create_as(
        cls,
        path: Path,
        disk: Disk,
        streams: Mapping[StreamId, StreamTags],
        tags: Mapping[str, str],
        *,
        index_path: Path | None = None,
        creation_id: int | None = None,
    ) -> VrsWriter:
        """Create a file as `create` does, with the stream ids and tags of another file."""
        if creation_id is None:
            creation_id = new_creation_id(time.time_ns(), random.getrandbits(30))
        data = pack_description(streams, tags)
        if len(data) > MAX_RECORD_BYTES - RECORD_HEADER_BYTES:
            raise StorageError(f"{path}: {len(data)} bytes of tags are too many")
        file = disk.create(path)
        file.patchable(INDEX_OFFSET_AT, 8)
        try:
            index = _open_index(index_path or default_index_path(path), disk, 0)
        except BaseException:
            file.close()
            raise
        writer = cls(file, index, streams)
        file.append(FileHeader(creation_id).pack())
        writer.last_size = RECORD_HEADER_BYTES + len(data)
        # fmt: off
        header = RECORD_HEADER.pack(
            writer.last_size, 0, DESCRIPTION_TYPE_ID, DESCRIPTION_VERSION, MAX_TIMESTAMP,
            0, RecordType.DATA, 0, 0,
        )
        # fmt: on
        file.append(header + data)
        return writer

    @classmethod
    def resume(
        cls,
        path: Path,
        disk: Disk,
        length: int,
        *,
        index_length: int | None = None,
        index_path: Path | None = None,
        tags_at: Sequence[int] | None = None,
    ) -> VrsWriter:
        """Resume at a committed length, which may be that of a finished file.

        Streams and their layouts come from the file. A finished file becomes shorter than
        committed, by its index. The next commit corrects that; resuming again before it works, too.

        Args:
            path: path of the file.
            disk: disk that writes the file.
            length: length of the file at which to resume.
            index_length: committed length of the index file. With it, only records that the index
                does not name are read. Without it, or if it does not fit, the header of every
                record is read.
            index_path: as for `create`.
            tags_at: offsets of all TAGS records, if the index names all records; the index is then
                not read either.

        Raises:
            StorageError: the file is shorter, or the length does not end at a whole record.
            FormatError: the file is not a VRS file of this writer.
        """
        index_path = index_path or default_index_path(path)
        point = find_resume_point(path, index_path, length, index_length, tags_at)
        writer = cls._at(path, index_path, disk, point)
        writer.tags_at = point.tags_at
        return writer

    @classmethod
    def _at(cls, path: Path, index_path: Path, disk: Disk, point: ResumePoint) -> VrsWriter:
        file = disk.reopen(path, point.end)
        try:
            file.patchable(INDEX_OFFSET_AT, 8)
            if point.index_offset:
                file.patch(INDEX_OFFSET_AT, bytes(8))
            index = _open_index(index_path, disk, point.kept * ENTRY_BYTES)
            for block in point.more:
                index.append(block)
        except BaseException:
            file.close()
            raise
        writer = cls(file, index, point.streams)
        writer.count, writer.last_size = point.count, point.last_size
        return writer

    def add_stream(self, spec: StreamSpec) -> StreamWriter:
        """Add a stream that the description does not have: its tags go into a TAGS record."""
        stream = choose_id(spec, self.streams)
        tags = spec.stream_tags()
        data = TagsRecord(vrs_tags=tags.vrs, user_tags=tags.user).encode()
        self.tags_at.append(self._file.length)
        self.put(stream, RecordType.TAGS, TAGS_VERSION, -MAX_TIMESTAMP, [data])
        self.streams[stream] = StreamWriter(self, stream, tags)
        return self.streams[stream]

    def put(
        self,
        stream: StreamId,
        record_type: RecordType,
        version: int,
        timestamp_s: float,
        parts: Sequence[Buffer],
        compressor: Compressor | None = None,
    ) -> None:
        """Append a record of bytes as they are, without checks of stream and blocks.

        Use it for data of another VRS file; otherwise use `StreamWriter.write`.
        """
        if not math.isfinite(timestamp_s):
            raise FormatError(f"stream {stream}: {timestamp_s} is no timestamp")
        if self._finished:
            raise ValueError(f"{self._file.path}: finished already")
        size = RECORD_HEADER_BYTES + sum(map(buffer_size, parts))
        kind, whole = Compression.NONE, 0
        if compressor is not None:
            data = b"".join(parts)
            packed = compressor.compress(data)
            if packed is not None:
                kind, whole, parts = compressor.kind, len(data), [packed]
                size = RECORD_HEADER_BYTES + len(packed)
        if size > MAX_RECORD_BYTES or whole > MAX_RECORD_BYTES:
            raise StorageError(f"{self._file.path}: a record of {size} bytes; VRS ends at 4 GiB")
        type_id, instance = stream
        # fmt: off
        header = RECORD_HEADER.pack(
            size, self.last_size, type_id, version, timestamp_s, instance, record_type, kind, whole
        )
        # fmt: on
        if size <= _SMALL_BYTES:
            self._file.append(b"".join((header, *parts)))
        else:
            self._file.append(header)
            for part in parts:
                self._file.append(part)
        self._index.append(ENTRY.pack(timestamp_s, size, record_type, type_id, instance))
        self.last_size = size
        self.count += 1

    def put_many(
        self,
        stream: StreamId,
        record_type: RecordType,
        version: int,
        timestamps_s: npt.NDArray[np.float64],
        rows: npt.NDArray[np.uint8],
    ) -> None:
        """Append records of one size together; the bytes equal those of one `put` for each.

        Args:
            stream, record_type, version: stream, type and version of all records.
            timestamps_s: f8 [n].
            rows: u1 [n, bytes of a record's data].
        """
        count, size = rows.shape
        if count == 1:
            parts = [rows.tobytes()]
            self.put(stream, record_type, version, float(timestamps_s[0]), parts)
            return
        if not np.isfinite(timestamps_s).all():
            raise FormatError(f"stream {stream}: a timestamp is no number")
        if self._finished:
            raise ValueError(f"{self._file.path}: finished already")
        if not count:
            return
        records = np.zeros(count, _record_dtype(size))
        records["size"] = records["previous_size"] = RECORD_HEADER_BYTES + size
        records["previous_size"][0] = self.last_size
        records["type_id"], records["instance"] = stream
        records["version"], records["record_type"] = version, record_type
        records["timestamp_s"] = timestamps_s
        records["data"] = np.ascontiguousarray(rows).view(f"V{size}")[:, 0]
        entries = np.empty(count, ENTRY_DTYPE)
        for name in ENTRY_DTYPE.names or ():
            entries[name] = records[name]
        self._file.append(records.tobytes())
        self._index.append(entries.tobytes())
        self.last_size = RECORD_HEADER_BYTES + size
        self.count += count

    def finish(self) -> None:
        """Append the index and write its offset to the header; a second call does nothing.

        The files are neither synced nor closed. An index that the format cannot hold, beyond 226
        million records, is left out: readers then walk from record to record.
        """
        if self._finished:
            return
        self._finished = True
        self._index.flush()
        prelude = index_prelude(self.streams, self.count)
        size = RECORD_HEADER_BYTES + len(prelude) + self.count * ENTRY_BYTES
        if size > MAX_RECORD_BYTES:
            self._file.flush()
            return
        offset = self._file.length
        # fmt: off
        header = RECORD_HEADER.pack(
            size, self.last_size, INDEX_TYPE_ID, INDEX_VERSION, MAX_TIMESTAMP,
            0, RecordType.DATA, 0, 0,
        )
        # fmt: on
        self._file.append(header + prelude)
        left = self.count * ENTRY_BYTES
        with self._index.path.open("rb") as spilled:
            while left:
                block = spilled.read(min(left, _SPILL_BYTES))
                if not block:
                    raise StorageError(f"{self._index.path}: lacks {left} bytes that were written")
                self._file.append(block)
                left -= len(block)
        self._file.flush()
        self._file.patch(INDEX_OFFSET_AT, offset.to_bytes(8, "little"))


@functools.lru_cache(64)
def _record_dtype(size: int) -> np.dtype[Any]:
    """Return the dtype of a record with `size` bytes of data."""
    header = zip(RecordHeader._fields, _HEADER_TYPES, strict=True)
    return np.dtype([*header, ("data", f"V{size}")])


def _open_index(path: Path, disk: Disk, length: int) -> AppendFile:
    """Open the index file; cut bytes of an earlier writer after the length."""
    return disk.reopen(path, length) if path.exists() else disk.create(path)


def default_index_path(path: Path) -> Path:
    """Return the default path of the file that collects the index's entries.

    It is not ``NAME_1``, which readers would take for the file's next chunk.
    """
    return path.with_name(path.name + INDEX_SUFFIX)


def choose_id(spec: StreamSpec, taken: Mapping[StreamId, Any]) -> StreamId:
    """Choose the id of a new stream; raise FormatError if it is taken or out of range."""
    instances = [s.instance for s in taken if s.type_id == spec.type_id]
    stream = StreamId(int(spec.type_id), spec.instance or max(instances, default=0) + 1)
    if stream in taken:
        raise FormatError(f"two streams {stream}")
    if not (0 < stream.type_id < 0xFFFF and 0 < stream.instance <= 0xFFFF):
        raise FormatError(f"a stream cannot be {stream}")
    return stream


def rewrite_vrs(
    source: Path, target: Path, disk: Disk, *, compressor: Compressor | None = None
) -> int:
    """Copy a file's whole records into a new file with the same streams, tags and data.

    Records are in time order, chunks become one file, and the file is indexed and synced. The file
    with the collected index stays beside it.

    Args:
        source: any VRS file; bytes after its last whole record are left out.
        target: path of the new file.
        disk: disk that writes the file.
        compressor: compressor of the new file's records; None stores them uncompressed.

    Returns:
        Number of records.

    Raises:
        FormatError: the file is no VRS file, or a record does not decompress.
        FileExistsError: a file of the target's name exists.
    """
    with VrsReader(source) as reader:
        tags = {s.id: StreamTags(s.vrs_tags, s.tags) for s in reader.streams.values()}
        creation_id = reader.header.creation_id
        writer = VrsWriter.create_as(target, disk, tags, reader.tags, creation_id=creation_id)
        try:
            for record in reader:
                header, data = reader.read(record)
                kind, time_s = record.record_type, record.timestamp_s
                writer.put(record.stream, kind, header.version, time_s, [data], compressor)
            writer.finish()
            disk.sync_files(writer.files)
        finally:
            for file in writer.files:
                file.close()
        return writer.count
