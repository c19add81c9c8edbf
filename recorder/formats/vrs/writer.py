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
from collections.abc import Mapping, Sequence
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
from recorder.formats.vrs.resume import ResumePoint, find_resume_point
from recorder.formats.vrs.streams import RecordLayout, Records, StreamSpec, parse_records
from recorder.formats.vrs.tags import StreamTags, TagsRecord, pack_description

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
