"""Writer of MCAP files with index, CRCs, statistics, attachments and metadata (mcap.dev/spec).

::

    with McapWriter(path, PosixDisk(), profile="", library="recorder 0.1") as mcap:
        schema = mcap.schema("foxglove.CompressedImage", "protobuf", data)
        camera = mcap.channel("/camera/image", schema, "protobuf", compress=False)
        mcap.write(camera, 0, log_ns, publish_ns, [header, jpeg])
        mcap.attach("config.yaml", "application/yaml", config, log_ns, create_ns)
        mcap.metadata("recorder", {"session": "rig-1"})
        mcap.finish()

Two chunks are open at a time: one is compressed (zstd, level 1), the other is not, for JPEG and
other data that do not compress. A thread computes the CRC of a full chunk and compresses it, while
the next one is filled. Memory holds the open chunks, at most `_PENDING` full ones, and about 100
bytes of index a chunk.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import zstandard
from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode
from mcap.records import (
    Attachment,
    AttachmentIndex,
    Channel,
    ChunkIndex,
    DataEnd,
    Footer,
    Header,
    McapRecord,
    MessageIndex,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
    SummaryOffset,
)

from recorder.common.files import AppendFile, Buffer, Closeable, buffer_size
from recorder.formats.mcap.records import CHUNK, MAGIC, MESSAGE, RECORD, crc32

CHUNK_BYTES = 2 << 20
"""Bytes of messages at which a chunk is full."""
LEVEL = 1
"""Compression level of zstd; level 3 costs five times as much on point clouds."""
_SUMMARY_CRC = struct.Struct("<BQQQ")  # of the footer, what its CRC covers
_PENDING = 3
_LARGEST = 2  # times the bytes of a full chunk: a larger message has a chunk of its own
_MOST_CHANNELS = 0xFFFF


class Files(Protocol):
    """Operations of a `recorder.common.files.Disk` that the writer needs."""

    def create(self, path: Path) -> AppendFile:
        """Create a file; raise FileExistsError if it exists."""


@dataclass
class _Chunk:
    """Chunk that is being filled."""

    parts: list[Buffer] = field(default_factory=list)
    size: int = 0
    start_ns: int = 0
    end_ns: int = 0
    indexes: dict[int, array[int]] = field(default_factory=dict)  # log time, offset, ...


@dataclass(frozen=True)
class _Sealed:
    """Full chunk, with its CRC and stored data."""

    chunk: _Chunk
    compression: str
    crc: int
    data: Sequence[Buffer]
    data_bytes: int


class McapWriter(Closeable):
    """Writer of one MCAP file.

    Messages may come in any order; readers find those of a time fast if log times roughly increase.

    Args:
        path: path of the new file.
        disk: disk that creates the file.
        profile: profile in the header: "" or ``ros2``.
        library: name of the writing software in the header.
        chunk_bytes: bytes of messages at which a chunk is full.

    Attributes:
        path: path of the file.
        counts: number of messages by channel.
        chunk_count: number of chunks.
        file: the file, to be synced after `finish`.

    Raises:
        OSError: an error of the disk.
    """

    def __init__(
        self,
        path: Path,
        disk: Files,
        *,
        profile: str,
        library: str,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.path = path
        self.counts: dict[int, int] = {}
        self.file = disk.create(path)
        self._chunk_bytes = chunk_bytes
        self._crc = 0
        self._chunks: dict[bool, _Chunk] = {True: _Chunk(), False: _Chunk()}
        self._pending: deque[Future[_Sealed]] = deque()
        self._thread = ThreadPoolExecutor(1, "mcap")
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)  # used by the thread only
        self._schemas: dict[tuple[str, str, bytes], Schema] = {}
        self._channels: dict[int, Channel] = {}
        self._compressed: dict[int, bool] = {}  # by channel
        self._chunk_indexes = RecordBuilder()
        self._attachment_indexes = RecordBuilder()
        self._metadata_indexes = RecordBuilder()
        self._attachments = self._metadata = self.chunk_count = 0
        self._start_ns: int | None = None
        self._end_ns = 0
        self._append(MAGIC)
        self._record(Header(profile, library))

    def schema(self, name: str, encoding: str, data: bytes) -> int:
        """Return the number of a schema; equal schemas have one number.

        Raises:
            ValueError: there are too many schemas.
        """
        key = name, encoding, data
        if key not in self._schemas:
            if len(self._schemas) >= _MOST_CHANNELS:
                raise ValueError(f"{self.path}: more than {_MOST_CHANNELS} schemas")
            schema = Schema(id=len(self._schemas) + 1, name=name, encoding=encoding, data=data)
            self._record(schema)
            self._schemas[key] = schema
        return self._schemas[key].id

    def channel(
        self,
        topic: str,
        schema: int,
        message_encoding: str,
        metadata: Mapping[str, str] | None = None,
        *,
        compress: bool = True,
    ) -> int:
        """Add a channel; return its number.

        Args:
            topic: name of the topic.
            schema: a number that `schema` returned; 0: without a schema.
            message_encoding: ``protobuf``, ``json``, ``cdr`` ...
            metadata: such as ``offered_qos_profiles`` of ROS 2.
            compress: whether its messages go into compressed chunks.

        Raises:
            ValueError: there is no such schema, or there are too many channels.
        """
        if not 0 <= schema <= len(self._schemas):
            raise ValueError(f"{self.path}: {topic}: there is no schema {schema}")
        number = len(self._channels) + 1
        if number > _MOST_CHANNELS:
            raise ValueError(f"{self.path}: more than {_MOST_CHANNELS} channels")
        added = Channel(
            id=number,
            topic=topic,
            message_encoding=message_encoding,
            metadata=dict(metadata or {}),
            schema_id=schema,
        )
        self._record(added)
        self._channels[number] = added
        self._compressed[number] = compress
        self.counts[number] = 0
        return number

    def write(
        self,
        channel: int,
        sequence: int,
        log_ns: int,
        publish_ns: int,
        parts: Sequence[Buffer],
    ) -> None:
        """Write a message; its parts must not change until the file is finished.

        Args:
            channel: number that `channel` returned.
            sequence: number of the message; its lowest 32 bits are stored.
            log_ns, publish_ns: epoch ns, 0 or more.
            parts: consecutive parts of the message, each contiguous; they are not copied here.
        """
        compress = self._compressed[channel]
        chunk = self._chunks[compress]
        size = sum([buffer_size(part) for part in parts])
        if chunk.size and chunk.size + size > _LARGEST * self._chunk_bytes:
            chunk = self._seal(compress)
        head = MESSAGE.pack(
            Opcode.MESSAGE,
            size + MESSAGE.size - RECORD.size,
            channel,
            sequence & 0xFFFFFFFF,
            log_ns,
            publish_ns,
        )
        if not chunk.size:
            chunk.start_ns = chunk.end_ns = log_ns
        elif log_ns < chunk.start_ns:
            chunk.start_ns = log_ns
        elif log_ns > chunk.end_ns:
            chunk.end_ns = log_ns
        index = chunk.indexes.get(channel)
        if index is None:
            index = chunk.indexes[channel] = array("Q")
        index.append(log_ns)
        index.append(chunk.size)
        chunk.parts.append(head)
        chunk.parts += parts
        chunk.size += len(head) + size
        self.counts[channel] += 1
        if chunk.size >= self._chunk_bytes:
            self._seal(compress)

    def attach(self, name: str, media_type: str, data: bytes, log_ns: int, create_ns: int) -> None:
        """Attach a file.

        Args:
            name, media_type: name and media type of the file.
            data: content of the file.
            log_ns: time at which it was recorded, epoch ns.
            create_ns: time at which it was made, epoch ns; 0: unknown.
        """
        start = self.file.length
        self._record(
            Attachment(
                create_time=create_ns, log_time=log_ns, name=name, media_type=media_type, data=data
            )
        )
        AttachmentIndex(
            offset=start,
            length=self.file.length - start,
            log_time=log_ns,
            create_time=create_ns,
            data_size=len(data),
            name=name,
            media_type=media_type,
        ).write(self._attachment_indexes)
        self._attachments += 1

    def metadata(self, name: str, values: Mapping[str, str]) -> None:
        """Write a metadata record."""
        start = self.file.length
        self._record(Metadata(name=name, metadata=dict(values)))
        MetadataIndex(offset=start, length=self.file.length - start, name=name).write(
            self._metadata_indexes
        )
        self._metadata += 1

    @property
    def interval_ns(self) -> tuple[int, int]:
        """Lowest and highest log time of a finished file; 0, 0 without a message."""
        return self._start_ns or 0, self._end_ns

    def finish(self) -> None:
        """Write all pending messages, then the summary; the file is complete, but not synced."""
        for compress in self._chunks:
            self._seal(compress)
        self._write_sealed(0)
        self._record(DataEnd(self._crc))
        summary, offsets = self._summary()
        start = self.file.length
        offset_start = start + len(summary)
        crc = crc32(offsets, crc32(summary))
        footer = _SUMMARY_CRC.pack(
            Opcode.FOOTER, _record_size(Footer(0, 0, 0)) - RECORD.size, start, offset_start
        )
        self.file.append(summary + offsets)
        self.file.append(_encode(Footer(start, offset_start, crc32(footer, crc))) + MAGIC)
        self.file.flush()

    def close(self) -> None:
        """Close the file; without `finish` it has no summary."""
        self._thread.shutdown(cancel_futures=True)
        self.file.close()

    def _summary(self) -> tuple[bytes, bytes]:
        """Return the summary section, and the offsets of its groups."""
        groups: list[tuple[Opcode, bytes]] = [
            (Opcode.SCHEMA, _encode(*self._schemas.values())),
            (Opcode.CHANNEL, _encode(*self._channels.values())),
            (Opcode.STATISTICS, _encode(self._statistics())),
            (Opcode.CHUNK_INDEX, _end_records(self._chunk_indexes)),
            (Opcode.ATTACHMENT_INDEX, _end_records(self._attachment_indexes)),
            (Opcode.METADATA_INDEX, _end_records(self._metadata_indexes)),
        ]
        at, offsets = self.file.length, []
        for opcode, data in groups:
            if data:
                offsets.append(SummaryOffset(opcode, at, len(data)))
            at += len(data)
        return b"".join(data for _, data in groups), _encode(*offsets)

    def _statistics(self) -> Statistics:
        start_ns, end_ns = self.interval_ns
        return Statistics(
            attachment_count=self._attachments,
            channel_count=len(self._channels),
            channel_message_counts=self.counts,
            chunk_count=self.chunk_count,
            message_count=sum(self.counts.values()),
            message_end_time=end_ns,
            message_start_time=start_ns,
            metadata_count=self._metadata,
            schema_count=len(self._schemas),
        )

    def _seal(self, compress: bool) -> _Chunk:
        """Pass a chunk to the thread; return the empty chunk in its place."""
        chunk = self._chunks[compress]
        if chunk.size:
            self._write_sealed(_PENDING - 1)
            self._pending.append(self._thread.submit(self._compress, chunk, compress))
            self._chunks[compress] = chunk = _Chunk()
        return chunk

    def _compress(self, chunk: _Chunk, compress: bool) -> _Sealed:
        """Compress a chunk and compute its CRC; this runs in the thread."""
        if not compress:
            crc = 0
            for part in chunk.parts:
                crc = crc32(part, crc)
            return _Sealed(chunk, "", crc, chunk.parts, chunk.size)
        joined = b"".join(chunk.parts)
        chunk.parts.clear()  # it waits to be written, and its messages are large
        data = self._compressor.compress(joined)
        return _Sealed(chunk, "zstd", crc32(joined), [data], len(data))

    def _write_sealed(self, left: int) -> None:
        """Write finished chunks, until at most `left` are pending."""
        while len(self._pending) > left or (self._pending and self._pending[0].done()):
            self._write_chunk(self._pending.popleft().result())

    def _write_chunk(self, sealed: _Sealed) -> None:
        chunk, start = sealed.chunk, self.file.length
        name = sealed.compression.encode()
        head = CHUNK.pack(
            Opcode.CHUNK,
            CHUNK.size - RECORD.size + len(name) + 8 + sealed.data_bytes,
            chunk.start_ns,
            chunk.end_ns,
            chunk.size,
            sealed.crc,
            len(name),
        )
        self._append(head + name + struct.pack("<Q", sealed.data_bytes))
        for part in sealed.data:
            self._append(part)
        end = self.file.length
        offsets = {}
        indexes = RecordBuilder()
        for channel, pairs in chunk.indexes.items():
            offsets[channel] = end + indexes.count
            values = pairs.tolist()
            MessageIndex(channel, list(zip(values[::2], values[1::2], strict=True))).write(indexes)
        self._append(_end_records(indexes))
        ChunkIndex(
            chunk_length=end - start,
            chunk_start_offset=start,
            compression=sealed.compression,
            compressed_size=sealed.data_bytes,
            message_end_time=chunk.end_ns,
            message_index_length=self.file.length - end,
            message_index_offsets=offsets,
            message_start_time=chunk.start_ns,
            uncompressed_size=chunk.size,
        ).write(self._chunk_indexes)
        self.chunk_count += 1
        first = self._start_ns
        self._start_ns = chunk.start_ns if first is None else min(first, chunk.start_ns)
        self._end_ns = max(self._end_ns, chunk.end_ns)

    def _record(self, record: McapRecord) -> None:
        self._append(_encode(record))

    def _append(self, data: Buffer) -> None:
        """Append to the data section."""
        self._crc = crc32(data, self._crc)
        self.file.append(data)


def _encode(*records: McapRecord) -> bytes:
    builder = RecordBuilder()
    for record in records:
        record.write(builder)
    return _end_records(builder)


def _end_records(builder: RecordBuilder) -> bytes:
    """Return the bytes of the records that were built."""
    data: bytes = builder.end()  # type: ignore[no-untyped-call]
    return data


def _record_size(record: McapRecord) -> int:
    return len(_encode(record))
