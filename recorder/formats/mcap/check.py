"""Checks an MCAP file as the recorder writes it: every record against indexes and statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from mcap.opcode import Opcode
from mcap.records import (
    AttachmentIndex,
    Channel,
    ChunkIndex,
    DataEnd,
    Footer,
    MessageIndex,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
    SummaryOffset,
)

from recorder.contract.errors import FormatError
from recorder.formats.mcap.crc import crc32
from recorder.formats.mcap.records import (
    MAGIC,
    RECORD,
    Budget,
    Place,
    RawMessage,
    RecordFile,
    records,
)

_FOOTER_BYTES = RECORD.size + 20


@dataclass(frozen=True)
class Found:
    """What a sound file has."""

    messages: int
    topics: int
    chunks: int
    attachments: int
    metadata: int
    counts: dict[str, int]


def check_file(path: Path) -> Generator[float, None, Found]:
    """Check a file; yields the finished share, returns what the file has.

    Raises:
        FormatError: the first fault; names path and offset.
    """
    with RecordFile(path) as file:
        check = _Check(file)
        yield from check.run()
        return check.found()


@dataclass
class _Chunk:
    """A chunk as it lies in the file, and the message indexes after it."""

    place: Place
    interval_ns: tuple[int, int]
    messages: dict[int, list[tuple[int, int]]]
    indexes: dict[int, int] = field(default_factory=dict)
    end: int = 0

    def index_key(self) -> tuple[int, int, tuple[int, int], tuple[tuple[int, int], ...], int]:
        """What its chunk index repeats."""
        place = self.place
        indexes = tuple(sorted(self.indexes.items()))
        return (place.start, place.end - place.start, self.interval_ns, indexes, self.end)


class _Check:
    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._schemas: dict[int, Schema] = {}
        self._channels: dict[int, Channel] = {}
        self._counts: Counter[int] = Counter()
        self._start_ns: int | None = None
        self._end_ns = 0
        self._chunk: _Chunk | None = None
        self._chunk_keys: list[int] = []  # hashes: a file has many chunks
        self._attachments: list[int] = []
        self._metadata: list[int] = []
        self._budget = Budget()
        self._crc = crc32(MAGIC)

    def run(self) -> Generator[float, None, None]:
        file = self._file
        if file.size < len(MAGIC) or file.read(0, len(MAGIC)) != MAGIC:
            raise file.error(0, "not an MCAP file")
        end = file.size - len(MAGIC) - _FOOTER_BYTES
        if end < len(MAGIC) or file.read(file.size - len(MAGIC), len(MAGIC)) != MAGIC:
            raise file.error(file.size, "was not finished: the end is missing")
        at = len(MAGIC)
        while True:
            place = file.place(at, end)
            if place.opcode == Opcode.DATA_END:
                break
            self._take(place)
            self._crc = file.crc(place.start, place.end, self._crc)
            at = place.end
            yield at / file.size
        self._end_chunk()
        crc = file.parse(place, DataEnd.read).data_section_crc
        if crc and crc != self._crc:
            raise file.error(place.start, "the data section has a wrong CRC")
        self._check_summary(place.end, end)

    def found(self) -> Found:
        """After `run`."""
        counts = {c.topic: self._counts[number] for number, c in self._channels.items()}
        return Found(
            self._counts.total(),
            len(counts),
            len(self._chunk_keys),
            len(self._attachments),
            len(self._metadata),
            counts,
        )

    # Data section

    def _take(self, place: Place) -> None:
        file = self._file
        if place.opcode != Opcode.MESSAGE_INDEX:
            self._end_chunk()
        match place.opcode:
            case Opcode.HEADER:
                if place.start != len(MAGIC):
                    raise file.error(place.start, "a second header")
            case Opcode.SCHEMA:
                schema = file.parse(place, Schema.read)
                self._schemas[schema.id] = schema
            case Opcode.CHANNEL:
                channel = file.parse(place, Channel.read)
                if channel.schema_id and channel.schema_id not in self._schemas:
                    raise file.error(place.start, f"{channel.topic}: its schema comes later")
                self._channels[channel.id] = channel
            case Opcode.CHUNK:
                self._take_chunk(place)
            case Opcode.MESSAGE_INDEX:
                self._take_index(place)
            case Opcode.ATTACHMENT:
                file.attachment(place)
                self._attachments.append(place.start)
            case Opcode.METADATA:
                file.parse(place, Metadata.read)
                self._metadata.append(place.start)
            case _:
                raise file.error(place.start, f"a record of kind {place.opcode} among the data")

    def _take_chunk(self, place: Place) -> None:
        file = self._file
        found: dict[int, list[tuple[int, int]]] = {}

        def error(at: int, what: str) -> FormatError:
            return file.error(place.start, f"a chunk, at byte {at} of its records: {what}")

        data = file.chunk(place, self._budget)
        for record in records(data, self._budget, error):
            if not isinstance(record, RawMessage):
                raise error(0, f"a record of kind {record[0]}, not a message")
            if record.channel not in self._channels:
                raise error(record.start, f"a message of channel {record.channel}, unknown so far")
            found.setdefault(record.channel, []).append((record.log_ns, record.record))
        times = [log_ns for messages in found.values() for log_ns, _ in messages]
        interval_ns = (min(times, default=0), max(times, default=0))
        if file.interval_ns(place) != interval_ns:
            raise file.error(place.start, "a chunk whose header has other times than its messages")
        for channel, messages in found.items():
            self._counts[channel] += len(messages)
        first, last = interval_ns
        self._start_ns = first if self._start_ns is None else min(self._start_ns, first)
        self._end_ns = max(self._end_ns, last)
        self._chunk = _Chunk(place, interval_ns, found)

    def _take_index(self, place: Place) -> None:
        file = self._file
        index = file.parse(place, MessageIndex.read)
        if self._chunk is None:
            raise file.error(place.start, "an index of messages without a chunk")
        if sorted(index.records) != sorted(self._chunk.messages.get(index.channel_id, [])):
            raise file.error(place.start, f"the index of channel {index.channel_id} is wrong")
        self._chunk.indexes[index.channel_id] = place.start
        self._chunk.end = place.end

    def _end_chunk(self) -> None:
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            return
        if missing := chunk.messages.keys() - chunk.indexes.keys():
            text = f"channels {sorted(missing)} have no index"
            raise self._file.error(chunk.place.start, text)
        chunk.end -= chunk.place.end
        self._chunk_keys.append(hash(chunk.index_key()))

    # Summary

    def _check_summary(self, start: int, end: int) -> None:
        file = self._file
        footer_place = file.place(end)
        footer = file.parse(footer_place, Footer.read)
        if footer_place.opcode != Opcode.FOOTER or footer.summary_start != start:
            raise file.error(end, "the footer does not name the summary after the data")
        crc = footer.summary_crc
        if crc and file.crc(start, footer_place.end - 4) != crc:
            raise file.error(start, "the summary has a wrong CRC")
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        attachments, metadata, chunks = [], [], 0
        statistics: Statistics | None = None
        groups: dict[int, tuple[int, int]] = {}
        for place in file.places(start, footer.summary_offset_start):
            first, _ = groups.get(place.opcode, (place.start, 0))
            groups[place.opcode] = first, place.end - first
            match place.opcode:
                case Opcode.SCHEMA:
                    schema = file.parse(place, Schema.read)
                    schemas[schema.id] = schema
                case Opcode.CHANNEL:
                    channel = file.parse(place, Channel.read)
                    channels[channel.id] = channel
                case Opcode.STATISTICS:
                    statistics = file.parse(place, Statistics.read)
                case Opcode.CHUNK_INDEX:
                    self._check_chunk_index(place, chunks)
                    chunks += 1
                case Opcode.ATTACHMENT_INDEX:
                    attachments.append(file.parse(place, AttachmentIndex.read).offset)
                case Opcode.METADATA_INDEX:
                    metadata.append(file.parse(place, MetadataIndex.read).offset)
        if schemas != self._schemas or channels != self._channels:
            raise file.error(start, "the summary has other schemas or channels than the data")
        if attachments != self._attachments or metadata != self._metadata:
            raise file.error(start, "the summary has other attachments or metadata than the data")
        if chunks != len(self._chunk_keys):
            raise file.error(start, f"{chunks} indexes of {len(self._chunk_keys)} chunks")
        if statistics != self._statistics():
            raise file.error(start, "the statistics are not those of the data")
        offsets = {}
        for place in file.places(footer.summary_offset_start, end):
            offset = file.parse(place, SummaryOffset.read)
            offsets[offset.group_opcode] = offset.group_start, offset.group_length
        if offsets != groups:
            raise file.error(
                footer.summary_offset_start, "the offsets are not those of the summary"
            )

    def _check_chunk_index(self, place: Place, number: int) -> None:
        index = self._file.parse(place, ChunkIndex.read)
        key = (
            index.chunk_start_offset,
            index.chunk_length,
            (index.message_start_time, index.message_end_time),
            tuple(sorted(index.message_index_offsets.items())),
            index.message_index_length,
        )
        if number >= len(self._chunk_keys) or self._chunk_keys[number] != hash(key):
            raise self._file.error(place.start, f"the index of chunk {number} is wrong")

    def _statistics(self) -> Statistics:
        return Statistics(
            attachment_count=len(self._attachments),
            channel_count=len(self._channels),
            channel_message_counts={n: self._counts[n] for n in self._channels},
            chunk_count=len(self._chunk_keys),
            message_count=self._counts.total(),
            message_end_time=self._end_ns,
            message_start_time=self._start_ns or 0,
            metadata_count=len(self._metadata),
            schema_count=len(self._schemas),
        )
