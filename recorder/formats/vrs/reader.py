"""Reader of VRS files: all that the format's own software reads, finished or cut.

>>> with VrsReader(path) as vrs:  # doctest: +SKIP
...     for record in vrs.records(stream="1202-1", types=RecordType.DATA):
...         layout = record.blocks()[0]
...         print(record.timestamp_s, layout["accelerometer"])
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.common.files import Closeable
from recorder.formats.vrs.compression import decompress
from recorder.formats.vrs.content import Block, LayoutBlock, read_blocks
from recorder.formats.vrs.headers import (
    DESCRIPTION_TYPE_ID,
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    TAGS_VERSION,
    FileHeader,
    RecordHeader,
    RecordType,
    StreamId,
)
from recorder.formats.vrs.index import Entries, collect_entries, read_index
from recorder.formats.vrs.layout import DataLayout
from recorder.formats.vrs.scan import ChunkedFile, RecordWalk
from recorder.formats.vrs.streams import (
    StreamTags,
    TagsRecord,
    VrsStream,
    unpack_description,
    upgrade,
)

L = TypeVar("L", bound=DataLayout)
T = TypeVar("T")
_CONFIGURATIONS_KEPT = 64


@dataclass(frozen=True, slots=True)
class VrsRecord:
    """Record of a file; its data are read on demand.

    Attributes:
        stream: stream of the record.
        record_type: configuration, state or data.
        timestamp_s: timestamp on the clock of the file, in s.
        number: place in time order, `VrsReader[number]`.
        offset, size: offset and size in the file, with the header.
    """

    stream: StreamId
    record_type: RecordType
    timestamp_s: float
    number: int
    offset: int
    size: int
    reader: VrsReader

    def header(self) -> RecordHeader:
        """Read the header; raise FormatError if it does not match the index."""
        return self.reader.read(self)[0]

    def payload(self) -> bytes:
        """Read the data, uncompressed."""
        return self.reader.read(self)[1]

    def blocks(self) -> list[Block]:
        """Read the blocks; return none if the stream does not declare its records.

        Raises:
            FormatError: the data do not fit the declaration; names file, stream and offset.
        """
        return self.reader.blocks(self)

    def layout(self, layout: type[L], block: int = 0) -> L:
        """Read a layout block as an instance of a layout class; see `DataLayout.map`.

        Args:
            layout: the layout class.
            block: number of the layout block.

        Raises:
            FormatError: the record has no such block, or the block lacks a required piece.
        """
        layouts = [b for b in self.blocks() if isinstance(b, LayoutBlock)]
        if block >= len(layouts):
            raise FormatError(f"{self.reader.where(self)}: has {len(layouts)} layouts")
        return layouts[block].read(layout)


class VrsReader(Closeable):
    """Reader of a VRS file, and the chunks beside it.

    It is a sequence of its records in time order: by timestamp, then stream, then place. Arrays and
    texts are the caller's own. Only one thread at a time may use a reader. A reader holds 31 bytes
    per record and the tags in memory.

    Attributes:
        path: path of the (first) file.
        header: header of the file.
        tags: tags of the file.
        streams: streams that the tags or the records name.
        indexed: whether the file had a complete index; otherwise the reader has walked from record
            to record.
        tail: None for a file without faults; else a description of the bytes after the last whole
            record.
        end: end of the last whole record.
    """

    def __init__(self, path: Path, most_bytes: int | None = None) -> None:
        """Open a file.

        Args:
            path: the file.
            most_bytes: largest data of a record that are read; larger ones are a FormatError.

        Raises:
            FormatError: the file is not a VRS file, or its description is not whole.
        """
        self.path = path
        self._most_bytes = most_bytes
        self._file = ChunkedFile(path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.header = FileHeader.unpack(self._file.peek(0, FILE_HEADER_BYTES), self.path)
        tags, self.tags, first = self._read_description()
        self.indexed, self.tail = True, None
        try:
            records, complete = read_index(self._file, self.header, first)
        except FormatError:
            records, complete = np.empty(0, collect_entries(iter(())).dtype), False
        if complete:
            self.end = int((records["offset"] + records["size"]).max(initial=first))
        else:
            records = self._rebuild(records)
        if self.header.index_offset >= self._file.size:
            self.tail = self.tail or "an index is said to lie beyond the end"
        self._configurations: OrderedDict[int, list[Block]] = OrderedDict()
        self._sort(records)
        self._read_tags(tags)

    def _read_description(self) -> tuple[dict[StreamId, StreamTags], dict[str, str], int]:
        """Read the tags of streams and file, and the offset of the first record."""
        header = self.header
        first = header.first_record_offset or header.header_bytes
        at = header.description_offset
        if at <= 0:
            return {}, {}, first
        where = f"{self.path}: description at byte {at}"
        size = header.record_header_bytes
        record = RecordHeader.unpack(self._file.read(at, size))
        if record.type_id != DESCRIPTION_TYPE_ID or record.size < size:
            raise FormatError(f"{where} is no description record")
        data = self._file.read(at + size, record.size - size)
        streams, tags = unpack_description(data, record.version, where)
        return streams, tags, first + record.size if first == at else first

    def _rebuild(self, known: Entries) -> Entries:
        """Find records by walking, after those of an incomplete index."""
        self.indexed = False
        header = self.header
        start, previous = header.header_bytes, 0
        split = len(self._file.paths) > 1 and self._is_split()
        if split:
            start, previous = self._file.first_size, header.record_header_bytes
        if len(known):
            last = known[-1]
            start, previous = int(last["offset"]) + int(last["size"]), int(last["size"])
        walk = RecordWalk(self._file, start, previous, header_bytes=header.record_header_bytes)
        records = collect_entries(iter(walk))
        self.end, self.tail = walk.end, walk.fault
        return np.concatenate([known, records]) if len(known) else records

    def _is_split(self) -> bool:
        """Return whether the first chunk has the description and the index, but no records."""
        at = self.header.index_offset
        data = self._file.peek(at, RECORD_HEADER_BYTES) if at > 0 else b""
        return len(data) == RECORD_HEADER_BYTES and RecordHeader.unpack(data).version == 3

    def _sort(self, records: Entries) -> None:
        is_tags = records["record_type"] == RecordType.TAGS
        self._tag_records = records[is_tags]
        records = records[~is_tags]
        order = np.lexsort(
            (records["offset"], records["instance"], records["type_id"], records["timestamp_s"])
        )
        self._records = records[order]
        # A separate array: searching a column of a packed array copies it every time.
        self._times = np.ascontiguousarray(self._records["timestamp_s"])
        self._numbers: dict[tuple[StreamId, int], npt.NDArray[np.int64]] = {}

    def _read_tags(self, tags: dict[StreamId, StreamTags]) -> None:
        for entry in self._tag_records:
            record = self._record(entry, -1)
            header, data = self.read(record)
            if header.version == TAGS_VERSION:
                late = self._locate_errors(record, partial(TagsRecord.decode, data))
                tags[record.stream] = StreamTags(late.vrs_tags, late.user_tags)
                upgrade(tags[record.stream])
        for stream, _ in self.counts():
            tags.setdefault(stream, StreamTags())
        self.streams: dict[StreamId, VrsStream] = {
            stream: VrsStream(stream, own.user, own.vrs) for stream, own in sorted(tags.items())
        }

    # --- records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> VrsRecord:
        """Return a record by its place in time order; negative numbers count from the end."""
        at = number + len(self) if number < 0 else number
        if not 0 <= at < len(self):
            raise IndexError(f"{self.path}: record {number} of {len(self)}")
        return self._record(self._records[at], at)

    def __iter__(self) -> Iterator[VrsRecord]:
        return self.records()

    def _record(self, entry: np.void, number: int) -> VrsRecord:
        time_s, size, kind, type_id, instance, offset = entry.item()
        stream = StreamId.from_stored(type_id, instance)
        return VrsRecord(stream, RecordType(kind), time_s, number, offset, size, self)

    def records(
        self,
        stream: StreamId | str | None = None,
        types: RecordType | Collection[RecordType] | None = None,
        start_s: float | None = None,
        stop_s: float | None = None,
        *,
        file_order: bool = False,
    ) -> Iterator[VrsRecord]:
        """Yield records in time order, or in file order.

        Args:
            stream: only records of this stream, such as ``214-1``.
            types: only records of these types.
            start_s: only records from this timestamp on.
            stop_s: only records before this timestamp.
            file_order: whether to use the order of the file.
        """
        numbers = self.numbers(stream, types)
        times = self._times[numbers]
        first = 0 if start_s is None else int(np.searchsorted(times, start_s))
        last = len(times) if stop_s is None else int(np.searchsorted(times, stop_s))
        numbers = numbers[first:last]
        if file_order:
            numbers = numbers[np.argsort(self._records["offset"][numbers])]
        for number in numbers.tolist():
            yield self._record(self._records[number], number)

    def numbers(
        self,
        stream: StreamId | str | None = None,
        types: RecordType | Collection[RecordType] | None = None,
    ) -> npt.NDArray[np.int64]:
        """Return the places in time order of a stream's records of these types, ascending."""
        kinds = [types] if isinstance(types, RecordType) else types
        chosen = np.ones(len(self), bool)
        if stream is not None:
            wanted = self.stream(stream).id
            chosen &= self._records["type_id"] & 0xFFFF == wanted.type_id
            chosen &= self._records["instance"] == wanted.instance
        if kinds is not None:
            chosen &= np.isin(self._records["record_type"], [int(kind) for kind in kinds])
        return np.flatnonzero(chosen)

    def timestamps_s(
        self,
        stream: StreamId | str | None = None,
        types: RecordType | Collection[RecordType] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Return the timestamps of a stream's records of these types, f8 [k], ascending."""
        return self._times[self.numbers(stream, types)]

    def counts(self) -> Mapping[tuple[StreamId, RecordType], int]:
        """Count the records by stream and type."""
        # One number per record: numpy is slow at sorting structured values.
        keys = self._records["type_id"].astype(np.int64) << 24
        keys |= self._records["instance"].astype(np.int64) << 8
        keys |= self._records["record_type"]
        kinds, counts = np.unique(keys, return_counts=True)
        return {
            (StreamId.from_stored(key >> 24, key >> 8 & 0xFFFF), RecordType(key & 0xFF)): count
            for key, count in zip(kinds.tolist(), counts.tolist(), strict=True)
        }

    def stream(self, stream: StreamId | str) -> VrsStream:
        """Return a stream by its id; raise FormatError if the file has no such stream."""
        wanted = StreamId.parse(stream) if isinstance(stream, str) else stream
        if wanted not in self.streams:
            there = ", ".join(str(s) for s in self.streams)
            raise FormatError(f"{self.path}: has no stream {wanted}, only {there or 'none'}")
        return self.streams[wanted]

    def find(
        self, stream: StreamId | str, time_s: float, record_type: RecordType = RecordType.DATA
    ) -> VrsRecord | None:
        """Return a stream's first record of a type at or after a time; None after the last."""
        numbers = self._find_numbers(self.stream(stream).id, record_type)
        at = int(np.searchsorted(self._times[numbers], time_s))
        return self[int(numbers[at])] if at < len(numbers) else None

    def _find_numbers(self, stream: StreamId, record_type: RecordType) -> npt.NDArray[np.int64]:
        key = (stream, int(record_type))
        if key not in self._numbers:
            self._numbers[key] = self.numbers(stream, record_type)
        return self._numbers[key]

    # --- data

    def where(self, record: VrsRecord) -> str:
        """Return file, stream and offset of a record, for messages."""
        kind = record.record_type.tag.lower()
        return f"{self.path}: {kind} record of stream {record.stream} at byte {record.offset}"

    def read(self, record: VrsRecord) -> tuple[RecordHeader, bytes]:
        """Read a record's header and its data, uncompressed.

        Raises:
            FormatError: the record is not at the place in the index, is too large, or its data do
                not decompress.
        """
        size = self.header.record_header_bytes
        self._check_size(record, record.size - size)
        raw = self._file.read(record.offset, record.size)
        header = RecordHeader.unpack(raw) if len(raw) >= size else None
        if header is None or header.size != record.size or header.stream != record.stream:
            raise FormatError(f"{self.where(record)}: is not there")
        data = raw[size:]
        if header.uncompressed_size:
            kind, whole = header.compression, header.uncompressed_size
            self._check_size(record, whole)
            data = self._locate_errors(record, lambda: decompress(kind, data, whole))
        return header, data

    def _check_size(self, record: VrsRecord, size: int) -> None:
        if self._most_bytes is not None and size > self._most_bytes:
            raise FormatError(
                f"{self.where(record)}: has {size} bytes; at most {self._most_bytes} are read"
            )

    def blocks(self, record: VrsRecord) -> list[Block]:
        """Read the blocks of a record; see `VrsRecord.blocks`."""
        header, data = self.read(record)
        records = self.streams[record.stream].records
        layout = records.get((record.record_type, header.version))
        if layout is None:
            return []
        configuration = partial(self._read_configuration, record)
        return self._locate_errors(record, partial(read_blocks, layout, data, configuration))

    def _read_configuration(self, record: VrsRecord) -> Sequence[Block]:
        """Return the blocks of the stream's last configuration record before this record."""
        if record.record_type == RecordType.CONFIGURATION:
            return []
        numbers = self._find_numbers(record.stream, RecordType.CONFIGURATION)
        at = int(np.searchsorted(numbers, record.number)) - 1
        if at < 0:
            return []
        number = int(numbers[at])
        if number not in self._configurations:
            self._configurations[number] = self.blocks(self[number])
            if len(self._configurations) > _CONFIGURATIONS_KEPT:
                self._configurations.popitem(last=False)
        return self._configurations[number]

    def _locate_errors(self, record: VrsRecord, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except FormatError as error:
            if str(error).startswith(str(self.path)):
                raise
            raise FormatError(f"{self.where(record)}: {error}") from None

    # --- the file

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()

    def __repr__(self) -> str:
        return f"<VRS file {self.path}: {len(self)} records of {len(self.streams)} streams>"
