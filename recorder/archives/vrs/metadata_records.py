"""Metadata records of a session: configuration and state reported by the drivers and the writer.

The records of a ``session.vrs`` are copied byte for byte.  The file is read from record to record,
so that no index is needed.  Memory holds only the places of these records: a state per second takes
40 bytes per second, whatever the data rate.  Without ``session.vrs`` the records are made from
``session.json`` and the events.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.common.files import Closeable
from recorder.formats.vrs import RecordType, StreamId
from recorder.formats.vrs.compression import decompress
from recorder.formats.vrs.headers import (
    DESCRIPTION_TYPE_ID,
    FILE_HEADER_BYTES,
    INDEX_TYPE_ID,
    RECORD_HEADER_BYTES,
    FileHeader,
    RecordHeader,
)
from recorder.formats.vrs.scan import ChunkedFile, RecordWalk
from recorder.formats.vrs.streams import StreamTags, TagsRecord, unpack_description
from recorder.formats.vrs.writer import choose_id
from recorder.session.reader import Session
from recorder.session.vrs.files import map_vrs_streams
from recorder.session.vrs.records import (
    configuration,
    create_metadata_stream,
    create_session_stream,
    event_state,
    file_tags,
    map_drivers,
    session_configuration,
    state,
)


@dataclass(slots=True)
class MetadataRecord:
    """Record of configuration or state.

    Attributes:
        timestamp_s: epoch seconds.
        stream: stream of the record.
        record_type: configuration or state.
        version: version of the record's format.
        data: the record's data, uncompressed.
    """

    timestamp_s: float
    stream: StreamId
    record_type: RecordType
    version: int
    data: bytes


class MetadataFile(Closeable):
    """Reader of all metadata records of a ``session.vrs``; an index is not needed.

    Attributes:
        streams: the streams with the tags that declare these records.
        names: the streams by their names in the session; "" is the session's own stream.
        tags: tags of the file.
        configured: the streams that have a configuration record.
    """

    def __init__(self, path: Path) -> None:
        """Scan the file; raise a FormatError if it is not a VRS file of one chunk."""
        self._file = ChunkedFile(path, [path])
        self._times, self._offsets = array("d"), array("q")
        self.configured = set[StreamId]()
        try:
            self._walk(path)
        except BaseException:
            self.close()
            raise
        self.names = map_vrs_streams({s: tags.user for s, tags in self.streams.items()})

    def _walk(self, path: Path) -> None:
        header = FileHeader.unpack(self._file.peek(0, FILE_HEADER_BYTES), path)
        if header.description_offset != FILE_HEADER_BYTES or header.first_record_offset:
            raise FormatError(f"{path}: its records are not where the recorder writes them")
        walk = RecordWalk(self._file, FILE_HEADER_BYTES, 0)
        self.streams: dict[StreamId, StreamTags] = {}
        self.tags: dict[str, str] = {}
        for offset, record in walk:
            if record.type_id == INDEX_TYPE_ID:
                break
            if record.type_id == DESCRIPTION_TYPE_ID:
                data = self._data(offset, record)
                self.streams, self.tags = unpack_description(data, record.version, path)
            elif record.record_type == RecordType.TAGS:
                late = TagsRecord.decode(self._data(offset, record))
                self.streams[record.stream] = StreamTags(late.vrs_tags, late.user_tags)
            elif record.record_type != RecordType.DATA:
                self._times.append(record.timestamp_s)
                self._offsets.append(offset)
                if record.record_type == RecordType.CONFIGURATION:
                    self.configured.add(record.stream)

    def _data(self, offset: int, record: RecordHeader) -> bytes:
        size = record.size - RECORD_HEADER_BYTES
        data = self._file.read(offset + RECORD_HEADER_BYTES, size)
        if record.uncompressed_size:
            return decompress(record.compression, data, record.uncompressed_size)
        return data

    def records(self) -> Iterator[MetadataRecord]:
        """Yield the records in order of time; records of one time in the order of recording."""
        order = np.argsort(np.frombuffer(self._times, np.float64), kind="stable")
        for number in order.tolist():
            offset = self._offsets[number]
            head = RecordHeader.unpack(self._file.read(offset, RECORD_HEADER_BYTES))
            yield MetadataRecord(
                head.timestamp_s,
                head.stream,
                RecordType(head.record_type),
                head.version,
                self._data(offset, head),
            )

    def close(self) -> None:
        self._file.close()


@dataclass
class ReconstructedMetadata:
    """Metadata records of a session without ``session.vrs``, made from its other files.

    The other files contain events, losses and epochs, but not the drivers' states.
    """

    session: Session
    specs: dict[str, StreamSpec]
    streams: dict[StreamId, StreamTags] = field(default_factory=dict)
    names: dict[str, StreamId] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        header = self.session.header or {}
        self._drivers = map_drivers(header.get("sensors") or {})
        name = self.session.name
        specs = [create_session_stream(name)]
        specs += [
            create_metadata_stream(n, self._drivers.get(n, ""), s, name)
            for n, s in self.specs.items()
        ]
        for stream_name, spec in zip(["", *self.specs], specs, strict=True):
            stream = choose_id(spec, self.streams)
            self.streams[stream] = spec.stream_tags()
            self.names[stream_name] = stream
        if header.get("start_mono_ns") is not None:
            self.tags = file_tags(header)
        else:
            self.tags = {"session_id": name}

    @property
    def configured(self) -> set[StreamId]:
        """The streams that have a configuration record: all."""
        return set(self.streams)

    def records(self) -> Iterator[MetadataRecord]:
        # The session limits the events of a stream and cause to one per second.
        made = [*self._session(), *self._epochs(), *self._events()]
        yield from sorted(made, key=lambda record: record.timestamp_s)

    def _session(self) -> Iterator[MetadataRecord]:
        start_ns = self.session.start_ns or 0
        offset_ns = clock_offset_ns(self.session)
        data = session_configuration(
            self.session.path, self.session.header or {}, start_ns - offset_ns, offset_ns
        )
        yield self._record("", RecordType.CONFIGURATION, start_ns, data.encode())

    def _epochs(self) -> Iterator[MetadataRecord]:
        offset_ns, start_ns = clock_offset_ns(self.session), self.session.start_ns or 0
        for name, spec in self.specs.items():
            stream = self.session.streams.get(name)
            length = 0 if stream is None or not stream.has_times else len(stream)
            epochs = [] if stream is None else list(stream.epochs or ())
            driver = self._drivers.get(name, "")
            for number, entry in enumerate(epochs or [{"epoch": 0, "first_sample": 0}]):
                first, epoch = int(entry["first_sample"]), int(entry["epoch"])
                t_ns = begin_ns = start_ns
                if stream is not None and length:
                    at = min(first, length - 1)
                    begin_ns = int(stream.times(at, at + 1)[0])
                    t_ns = min(start_ns, begin_ns)
                    if number and at:
                        t_ns = int(stream.times(at - 1, at)[0])
                data = configuration(spec, driver, epoch, t_ns - offset_ns, offset_ns)
                yield self._record(name, RecordType.CONFIGURATION, t_ns, data.encode())
                if epochs:
                    metadata = state(begin_ns - offset_ns, "epoch_begin", epoch, 0, None, entry)
                    yield self._record(name, RecordType.STATE, begin_ns, metadata.encode())

    def _events(self) -> Iterator[MetadataRecord]:
        offset_ns = clock_offset_ns(self.session)
        for event in self.session.events():
            name = event.get("stream") or ""
            data = event_state(event, offset_ns).encode()
            known = name if name in self.names else ""
            yield self._record(known, RecordType.STATE, event["t_ns"], data)

    def _record(self, name: str, kind: RecordType, t_ns: int, data: bytes) -> MetadataRecord:
        return MetadataRecord(t_ns / 1e9, self.names[name], kind, 1, data)

    def close(self) -> None:
        """Do nothing: no file is open."""


MetadataRecords = MetadataFile | ReconstructedMetadata


def clock_offset_ns(session: Session) -> int:
    """Return epoch ns minus ``t_mono``; 0 for a plain trace, which has no monotonic clock."""
    header = session.header or {}
    if header.get("start_mono_ns") is None:
        return 0
    return int(header["start_ns"]) - int(header["start_mono_ns"])
