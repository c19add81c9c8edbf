"""Index of an MCAP file, from its summary or by scanning the file, and its messages' log times.

A chunk's message indexes hold the log time and the offset of each message, so that no message is
read. A chunk without indexes is read whole.
"""

from __future__ import annotations

import contextlib
import struct
from array import array
from collections.abc import Collection, Generator, Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
from mcap.opcode import Opcode
from mcap.records import (
    AttachmentIndex,
    Channel,
    ChunkIndex,
    DataEnd,
    Footer,
    MetadataIndex,
    Schema,
    Statistics,
)

from recorder.common.errors import FormatError
from recorder.formats.mcap.records import (
    MAGIC,
    MESSAGE,
    MOST_RECORD_BYTES,
    RECORD,
    Budget,
    Place,
    RawMessage,
    RecordFile,
    crc32,
    parse,
    records,
)

_RUN_BYTES = 4 << 20  # messages outside of chunks are read together
_FOOTER_BYTES = RECORD.size + 20


class Blocks:
    """Table of chunks, and of runs of messages outside of chunks: 49 bytes each."""

    def __init__(self) -> None:
        self.offset, self.end = array("Q"), array("Q")
        self.start_ns, self.end_ns = array("Q"), array("Q")
        self.is_chunk = array("b")
        self.index_bytes = array("Q")  # of the message indexes behind a chunk
        self.channels: list[frozenset[int] | None] = []
        self._known: dict[frozenset[int], frozenset[int]] = {}

    def add(
        self,
        place: tuple[int, int],
        interval_ns: tuple[int, int],
        channels: frozenset[int] | None,
        *,
        is_chunk: bool = True,
        index_bytes: int = 0,
    ) -> None:
        """Add a block; channels are None if unknown."""
        self.offset.append(place[0])
        self.end.append(place[1])
        self.start_ns.append(interval_ns[0])
        self.end_ns.append(interval_ns[1])
        self.is_chunk.append(is_chunk)
        self.index_bytes.append(index_bytes)
        self.channels.append(channels and self._known.setdefault(channels, channels))

    def rows(self) -> Iterator[tuple[int, int, int, int, int, frozenset[int] | None]]:
        """Yield place, times, whether it is a chunk, and channels of each block."""
        columns = self.offset, self.end, self.start_ns, self.end_ns, self.is_chunk, self.channels
        return zip(*columns, strict=True)

    def choose(
        self, channels: Collection[int], start_ns: int | None, end_ns: int | None
    ) -> list[int]:
        """Return the numbers of the blocks that may have messages, by their first log times."""
        starts = np.frombuffer(self.start_ns, np.uint64)
        ends = np.frombuffer(self.end_ns, np.uint64)
        fits = np.ones(len(starts), bool)
        if start_ns is not None:
            fits &= ends >= max(0, start_ns)
        if end_ns is not None:
            fits &= starts < max(0, end_ns)
        order = np.argsort(starts, kind="stable")
        wanted = frozenset(channels)
        return [
            block
            for block in order[fits[order]].tolist()
            if (has := self.channels[block]) is None or not has.isdisjoint(wanted)
        ]


class FileIndex:
    """Index of a file: schemas, channels, and offsets of messages, attachments and metadata.

    Attributes:
        blocks: chunks, and runs of messages outside of chunks.
        schemas, channels: schemas and channels by number.
        counts: number of messages by channel.
        attachments, metadata: offsets of the records.
        summary_start: offset of the summary that was read; 0 without one.
    """

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self.blocks = Blocks()
        self.schemas: dict[int, Schema] = {}
        self.channels: dict[int, Channel] = {}
        self.counts: dict[int, int] = {}
        self.attachments: list[int] = []
        self.metadata: list[int] = []
        self._budget = Budget()
        self.summary_start = 0
        self._may_be_empty = False
        self._lists_attached = True

    @property
    def interval_ns(self) -> tuple[int, int] | tuple[None, None]:
        """Earliest and latest log time of messages; None without a message."""
        times = np.array([self.blocks.start_ns, self.blocks.end_ns], np.uint64)
        if self._may_be_empty:
            times = times[:, times.any(axis=0)]
        return (int(times[0].min()), int(times[1].max())) if times.size else (None, None)

    def read_summary(self) -> bool:
        """Read the summary; return False if it is missing or does not list the whole file."""
        file = self._file
        end = file.size - len(MAGIC) - _FOOTER_BYTES
        if end < len(MAGIC) or file.read(file.size - len(MAGIC), len(MAGIC)) != MAGIC:
            return False
        place = file.place(end)
        if place.opcode != Opcode.FOOTER or place.end != file.size - len(MAGIC):
            raise file.error(end, "the footer is missing")
        footer = file.parse(place, Footer.read)
        self.summary_start = start = footer.summary_start
        if not start:
            return False
        stop = footer.summary_offset_start or end
        if not len(MAGIC) <= start <= stop <= end:
            raise file.error(end, "the footer names a summary outside of the file")
        crc = footer.summary_crc
        if crc and file.crc(start, place.end - 4) != crc:
            raise file.error(start, "the summary has a wrong CRC")
        statistics = None
        for record in file.places(start, stop):
            match record.opcode:
                case Opcode.SCHEMA:
                    self._add_schema(file.parse(record, Schema.read), record.start)
                case Opcode.CHANNEL:
                    self._add_channel(file.parse(record, Channel.read), record.start)
                case Opcode.STATISTICS:
                    statistics = file.parse(record, Statistics.read)
                case Opcode.CHUNK_INDEX:
                    self._add_chunk(file.parse(record, ChunkIndex.read), record.start)
                case Opcode.ATTACHMENT_INDEX:
                    self.attachments.append(file.parse(record, AttachmentIndex.read).offset)
                case Opcode.METADATA_INDEX:
                    self.metadata.append(file.parse(record, MetadataIndex.read).offset)
        if statistics is None:
            return False
        self.counts = dict(statistics.channel_message_counts)  # empty: not known
        # Zeros as times: the chunk has no messages, or messages at time 0.
        self._may_be_empty = not statistics.message_count or statistics.message_start_time > 0
        self._lists_attached = (statistics.attachment_count, statistics.metadata_count) == (
            len(self.attachments),
            len(self.metadata),
        )
        # The summary counts only if it accounts for all channels, chunks and messages.
        used = set().union(*(c for c in self.blocks.channels if c), self.counts)
        blocks = len(self.blocks.channels)
        return (
            used <= self.channels.keys()
            and all(c.schema_id in self.schemas or not c.schema_id for c in self.channels.values())
            and sum(self.counts.values()) == statistics.message_count
            and blocks == statistics.chunk_count
            and (blocks > 0 or not statistics.message_count)
            and not self._has_loose_messages(start)
        )

    def _has_loose_messages(self, end: int) -> bool:
        """Return whether there are messages between the chunks, which no index names.

        Damage between chunks hides no chunk, because the index names the chunks after it.
        """
        with contextlib.suppress(FormatError):
            return any(p.opcode == Opcode.MESSAGE for p in self._between_chunks(end))
        return False

    def _between_chunks(self, end: int) -> Iterator[Place]:
        """Yield the records of the data section other than indexed chunks and their indexes."""
        at = len(MAGIC)
        blocks = zip(self.blocks.offset, self.blocks.end, self.blocks.index_bytes, strict=True)
        for offset, behind, index_bytes in (*sorted(blocks), (end, end, 0)):
            while at < offset:
                place = self._file.place(at, end)
                if place.opcode == Opcode.DATA_END:
                    return
                yield place
                at = place.end
            at = max(at, behind + index_bytes)

    def find_attached(self) -> None:
        """Find the attachments and metadata records, if the summary does not list all of them."""
        if self._lists_attached:
            return
        self.attachments, self.metadata = [], []
        for place in self._file.places(len(MAGIC), self._file.size):
            if place.opcode in (Opcode.DATA_END, Opcode.FOOTER):
                break
            self._scan_attached(place)
        self._lists_attached = True

    def find_difference(self, found: FileIndex) -> str:
        """Describe the first difference of this summary to an index of the records; "" if equal."""
        if (self.schemas, self.channels) != (found.schemas, found.channels):
            return "the summary has other schemas or channels than the data"
        if (self.attachments, self.metadata) != (found.attachments, found.metadata):
            return "the summary has other attachments or metadata than the data"
        blocks = zip_longest(self.blocks.rows(), found.blocks.rows())
        for number, (listed, block) in enumerate(blocks):
            if listed != block:
                return f"the index of chunk {number} is wrong"
        if self.counts != found.counts or not self._lists_attached:
            return "the statistics are not those of the data"
        return ""

    def _add_chunk(self, index: ChunkIndex, at: int) -> None:
        start, end = index.chunk_start_offset, index.chunk_start_offset + index.chunk_length
        if end > self._file.size:
            raise self._file.error(at, "an index of a chunk beyond the file")
        channels = frozenset(index.message_index_offsets) or None
        interval_ns = index.message_start_time, index.message_end_time
        index_bytes = index.message_index_length if channels is not None else 0
        if end + index_bytes > self._file.size:
            index_bytes = 0
        self.blocks.add((start, end), interval_ns, channels, index_bytes=index_bytes)

    def scan(self, at: int) -> str:
        """Find all messages from an offset on; return the damage at which that ends, or ""."""
        file = self._file
        try:
            for place in self.scan_places(at):
                at = place.end
        except FormatError as error:
            lost = file.size - at
            if not lost:
                return f"{file.path}: was not finished: it ends after a record, at byte {at}"
            return f"{error}; the last {lost} bytes, from byte {at} on, are not read"
        return ""

    def scan_places(self, at: int) -> Iterator[Place]:
        """Yield each record from an offset to the end of the data, once it is indexed.

        Raises:
            FormatError: a record is damaged, or the file ends; the records before are indexed.
        """
        run: _Run | None = None
        try:
            while (place := self._file.place(at)).opcode not in (Opcode.DATA_END, Opcode.FOOTER):
                if place.opcode == Opcode.MESSAGE:
                    if run is None or place.end - run.start > _RUN_BYTES:
                        self._end_run(run)
                        run = _Run(at)
                    self._scan_message(place, run)
                else:
                    self._end_run(run)
                    run = None
                    if place.opcode == Opcode.CHUNK:
                        self._scan_chunk(place)
                    else:
                        self._scan_other(place)
                yield place
                at = place.end
        finally:
            self._end_run(run)

    def _scan_message(self, place: Place, run: _Run) -> None:
        if place.end - place.start < MESSAGE.size:
            raise self._file.error(place.start, "a message that is too short")
        _, _, channel, _, log_ns, _ = MESSAGE.unpack(self._file.read(place.start, MESSAGE.size))
        self._count(channel, place.start)
        run.add(place.end, log_ns, channel)

    def _end_run(self, run: _Run | None) -> None:
        if run is not None and run.channels:
            self.blocks.add(
                (run.start, run.end),
                (run.start_ns, run.end_ns),
                frozenset(run.channels),
                is_chunk=False,
            )

    def _scan_chunk(self, place: Place) -> None:
        file = self._file

        def error(at: int, what: str) -> FormatError:
            return file.error(place.start, f"a chunk, at byte {at} of its records: {what}")

        channels: dict[int, int] = {}
        times: list[int] = []
        for record in records(file.chunk(place, self._budget), self._budget, error):
            if isinstance(record, RawMessage):
                channels[record.channel] = channels.get(record.channel, 0) + 1
                times.append(record.log_ns)
                if record.channel not in self.channels:
                    raise error(record.start, f"a message of channel {record.channel}, unknown")
            else:
                self._define(*record, place.start)
        for channel, count in channels.items():
            self.counts[channel] += count
        if times:
            interval_ns = min(times), max(times)
            self.blocks.add((place.start, place.end), interval_ns, frozenset(channels))

    def _scan_other(self, place: Place) -> None:
        match place.opcode:
            case Opcode.SCHEMA | Opcode.CHANNEL:
                if place.end - place.body > MOST_RECORD_BYTES:
                    raise self._file.error(place.start, "a record that is too long")
                data = self._file.read(place.body, place.end - place.body)
                self._define(place.opcode, data, place.start)
            case _:
                self._scan_attached(place)

    def _scan_attached(self, place: Place) -> None:
        match place.opcode:
            case Opcode.ATTACHMENT:
                self.attachments.append(place.start)
            case Opcode.METADATA:
                self.metadata.append(place.start)

    def _define(self, opcode: int, data: bytes, at: int) -> None:
        """Register a schema or channel; ignore other records."""

        def error(what: str) -> FormatError:
            return self._file.error(at, what)

        if opcode == Opcode.SCHEMA:
            self._add_schema(parse(data, Schema.read, error), at)
        elif opcode == Opcode.CHANNEL:
            channel = parse(data, Channel.read, error)
            if channel.schema_id and channel.schema_id not in self.schemas:
                raise error(f"channel {channel.topic!r} has an unknown schema")
            self._add_channel(channel, at)

    def _add_schema(self, schema: Schema, at: int) -> None:
        if not schema.id:
            return  # the specification has readers ignore a schema of this number
        if self.schemas.setdefault(schema.id, schema) != schema:
            raise self._file.error(at, f"schema {schema.id} has another content before")

    def _add_channel(self, channel: Channel, at: int) -> None:
        if self.channels.setdefault(channel.id, channel) != channel:
            raise self._file.error(at, f"channel {channel.id} has another content before")
        self.counts.setdefault(channel.id, 0)

    def _count(self, channel: int, at: int) -> None:
        if channel not in self.channels:
            raise self._file.error(at, f"a message of channel {channel}, which is unknown")
        self.counts[channel] += 1


class _Run:
    """Run of consecutive messages outside of chunks."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.start_ns, self.end_ns = 0, 0
        self.channels: set[int] = set()

    def add(self, end: int, log_ns: int, channel: int) -> None:
        self.start_ns = min(self.start_ns, log_ns) if self.channels else log_ns
        self.end_ns = max(self.end_ns, log_ns) if self.channels else log_ns
        self.end = end
        self.channels.add(channel)


def check_file(path: Path) -> Generator[float, None, FileIndex]:
    """Check that the summary of a file lists its records, and the CRCs of chunks, data and summary.

    Yields:
        The share of the file that is checked, 0 to 1.

    Returns:
        The index of the records.

    Raises:
        FormatError: a fault was found; names path and offset of the first.
    """
    with RecordFile(path) as file:
        if file.size < len(MAGIC) or file.read(0, len(MAGIC)) != MAGIC:
            raise file.error(0, "not an MCAP file")
        if file.read(file.size - len(MAGIC), len(MAGIC)) != MAGIC or file.size < 2 * len(MAGIC):
            raise file.error(file.size, "was not finished: the end is missing")
        listed, found = FileIndex(file), FileIndex(file)
        is_whole = listed.read_summary()
        at, crc = len(MAGIC), crc32(MAGIC)
        for place in found.scan_places(at):
            crc = file.crc(place.start, place.end, crc)
            at = place.end
            yield at / file.size
        end = file.place(at)
        if end.opcode != Opcode.DATA_END or end.end != listed.summary_start:
            raise file.error(at, "the footer does not name the summary after the data")
        if (stored := file.parse(end, DataEnd.read).data_section_crc) and stored != crc:
            raise file.error(at, "the data section has a wrong CRC")
        if fault := listed.find_difference(found):
            raise file.error(listed.summary_start, fault)
        if not is_whole:
            raise file.error(listed.summary_start, "the summary does not list all of the data")
        return found


_MESSAGE_INDEX = struct.Struct("<BQHI")
"""Opcode, length of the rest, channel, and bytes of the entries: time and offset, u8 each."""

Entries = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Offsets in the block's records, and log times, int64 [n] each, by offset."""


def read_log_times(file: RecordFile, blocks: Blocks) -> Iterator[tuple[int, dict[int, Entries]]]:
    """Yield the number of each block and its log times by channel, in the order of the file.

    A block that is damaged is left out: the damage is reported where its messages are read.
    """
    budget = Budget()
    for block in np.argsort(np.frombuffer(blocks.offset, np.uint64), kind="stable").tolist():
        found = indexed_log_times(file, blocks, block)
        if found is None:
            try:
                found = _scan_log_times(file, blocks, block, budget)
            except FormatError:
                continue
        if found:
            yield block, found


def indexed_log_times(file: RecordFile, blocks: Blocks, block: int) -> dict[int, Entries] | None:
    """Return the log times in the message indexes of a chunk; None if they cannot be used."""
    size = blocks.index_bytes[block]
    if not size:
        return None
    try:
        data = file.read(blocks.end[block], size)
    except FormatError:
        return None
    found: dict[int, Entries] = {}
    at = 0
    while at < size:
        if at + _MESSAGE_INDEX.size > size:
            return None
        opcode, length, channel, stored = _MESSAGE_INDEX.unpack_from(data, at)
        body, at = at + _MESSAGE_INDEX.size, at + RECORD.size + length
        if opcode != Opcode.MESSAGE_INDEX or stored % 16 or body + stored > at or at > size:
            return None
        pairs = np.frombuffer(data, "<u8", stored // 8, body).reshape(-1, 2).astype(np.int64)
        times, offsets = pairs[:, 0], pairs[:, 1]
        if channel in found or (len(offsets) and (offsets[0] < 0 or offsets.max() >= 1 << 31)):
            return None
        if len(offsets) > 1 and not bool((np.diff(offsets) > 0).all()):
            order = np.argsort(offsets, kind="stable")
            times, offsets = times[order], offsets[order]
        if len(times):
            found[channel] = offsets, times
    return found


def _scan_log_times(
    file: RecordFile, blocks: Blocks, block: int, budget: Budget
) -> dict[int, Entries]:
    data = block_records(file, blocks, block, budget)
    found: dict[int, list[tuple[int, int]]] = {}
    for record in records(data, budget, lambda _, what: file.error(blocks.offset[block], what)):
        if isinstance(record, RawMessage):
            found.setdefault(record.channel, []).append((record.record, record.log_ns))
    return {
        channel: (pairs[:, 0], pairs[:, 1])
        for channel, entries in found.items()
        if len(pairs := np.array(entries, np.uint64).astype(np.int64))
    }


def block_records(file: RecordFile, blocks: Blocks, block: int, budget: Budget) -> bytes:
    """Return the records of a block, decompressed."""
    at, end = blocks.offset[block], blocks.end[block]
    if not blocks.is_chunk[block]:
        budget.add(end - at)
        return file.read(at, end - at)
    place = file.place(at, end)
    if place.opcode != Opcode.CHUNK or place.end != end:
        raise file.error(at, "the index names a chunk here, but the record is no chunk")
    return file.chunk(place, budget)
