"""Packer of a session as one VRS file: ``NAME.vrs`` with configuration, state and data.

Records are ordered by time, with an index at the end.  The packer only reads ``session.vrs``,
which may be incomplete.  docs/vrs.md describes the records.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

import recorder
from recorder.archives.base import PackedFiles, Packer
from recorder.archives.context import PackingContext, sample_ticks
from recorder.archives.vrs.labels import Extra, describe_extra, find_extras
from recorder.archives.vrs.metadata_records import (
    MetadataFile,
    MetadataRecord,
    MetadataRecords,
    ReconstructedMetadata,
    clock_offset_ns,
)
from recorder.archives.vrs.samples import Samples, packed_spec
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, RecorderError, SessionError
from recorder.common.files import Buffer, PosixDisk
from recorder.config.options import Option, OptionTable
from recorder.formats.vrs import (
    RecordType,
    StreamId,
    VrsWriter,
    default_index_path,
    find_compressor,
    split_vrs,
)
from recorder.formats.vrs.headers import creation_id
from recorder.formats.vrs.scan import chunk_paths
from recorder.formats.vrs.streams import StreamTags
from recorder.formats.vrs.writer import choose_id
from recorder.session.layout import VRS
from recorder.session.vrs.records import (
    CONFIGURATION,
    DATA,
    as_json,
    as_text,
    configuration,
    create_metadata_stream,
    map_drivers,
    mask_configuration,
    mask_tags,
)

COMPRESSIONS = ("none", "lz4", "zstd")
_BEFORE, _DATA, _AFTER = range(3)

Entry = tuple[float, StreamId, int, RecordType, int, int, Sequence[Buffer]]
"""Timestamp, stream, rank, type, version, sample, data.  Readers sort by timestamp and stream, then
by position in the file: the records are written in that order."""


class VrsPacker(Packer):
    """Packer of a session as one VRS file."""

    options: ClassVar[OptionTable] = {
        "compression": Option("str", "none", "compression of each record", choices=COMPRESSIONS),
        "chunk_mb": Option("float", None, "largest size of a file [MB]", minimum=0.001),
    }

    def ticks(self, context: PackingContext) -> float:
        return sum(len(s) * sample_ticks(s) for s in context.streams if s.has_times)

    def pack(self, context: PackingContext) -> PackedFiles:
        return _SessionPacker(context).pack()


PACKER = VrsPacker()


class _SessionPacker:
    """Packer of one session."""

    def __init__(self, context: PackingContext) -> None:
        self._context = context
        self._samples: dict[str, Samples] = {}
        self._specs: dict[str, StreamSpec] = {}
        self._first_s: dict[StreamId, float] = {}
        self._names: dict[StreamId, str] = {}
        self._streams: Mapping[StreamId, StreamTags] = {}
        self._extras: dict[StreamId, Extra] = {}
        self._compressor = find_compressor(context.options["compression"])

    def pack(self) -> PackedFiles:
        context = self._context
        self._find_streams()
        metadata = self._metadata_records()
        try:
            streams = self._streams = self._declare(metadata)
            path = context.folder / f"{context.session.name}.vrs"
            count = self._write(path, metadata, streams, self._tags(metadata))
        finally:
            metadata.close()
        for name, samples in self._samples.items():
            if samples.backward:
                context.notes.add(f"{samples.backward} samples with equal or backward times", name)
        frames = {name: len(context.session.streams[name]) for name in self._samples}
        frames |= {extra.name: extra.count for extra in self._extras.values() if extra.count}
        chunk_mb: float | None = context.options["chunk_mb"]
        chunks = [path] if chunk_mb is None else split_vrs(path, round(chunk_mb * 1e6))
        # The first chunk comes last: without it the others are no file.
        files = tuple(chunk.name for chunk in (*chunks[1:], path))
        return PackedFiles(
            files,
            _find_older_chunks(context.folder.parent / path.name, len(chunks)),
            {"frames": frames, "records": count},
        )

    def _find_streams(self) -> None:
        """Find the streams to pack; note the streams that are left out."""
        context, session = self._context, self._context.session
        context.notes.add_absent("cannot be read, its data are left out")
        self._specs.update(session.declared)
        for stream in context.streams:
            name = stream.name
            if stream.has_times:
                try:
                    self._specs[name] = packed_spec(stream)
                except FormatError as error:
                    context.notes.add(f"left out: {error}", name)
                    continue
            if context.has_samples(stream):
                with context.locate_errors(name):
                    self._samples[name] = Samples(context, stream, self._specs[name])
        if not self._specs:
            raise SessionError(f"{session.path}: has no stream to pack")
        context.notes.add_losses()
        context.notes.add_recovery()

    def _metadata_records(self) -> MetadataRecords:
        session = self._context.session
        path = session.path / VRS
        if path.is_file():
            with self._context.locate_errors(VRS):
                return MetadataFile(path)
        if session.recorded:
            self._context.notes.add(
                f"has no {VRS}: the state that drivers reported is not known", "session"
            )
        return ReconstructedMetadata(session, self._specs)

    def _declare(self, metadata: MetadataRecords) -> dict[StreamId, StreamTags]:
        """Declare all streams: keep the tags of metadata records, and add those of data records."""
        session = self._context.session
        drivers = map_drivers((session.header or {}).get("sensors") or {})
        streams = dict(metadata.streams)
        names = dict(metadata.names)
        for name in [n for n in names if n and not session.chooses(n)]:
            del streams[names.pop(name)]
        for name, samples in self._samples.items():
            if name not in names:
                spec = create_metadata_stream(
                    name, drivers.get(name, ""), self._specs[name], session.name
                )
                names[name] = choose_id(spec, streams)
                streams[names[name]] = spec.stream_tags()
            tags = streams[names[name]]
            more = samples.records.layout.tags(*DATA)
            streams[names[name]] = StreamTags(tags.vrs | more, tags.user)
            stamp = session.streams[name].times(0, 1).astype("<f8") / 1e9
            self._first_s[names[name]] = float(stamp[0])
        with self._context.locate_errors("labels and poses"):
            extras = find_extras(self._context)
        for extra in extras:
            extra_spec = extra.spec(session.name)
            names[extra.name] = number = choose_id(extra_spec, streams)
            streams[number] = extra_spec.stream_tags()
            self._extras[number] = extra
        self._names = {stream: name for name, stream in names.items()}
        return streams

    def _is_packed(self, record: MetadataRecord) -> bool:
        """Return whether a record is packed: its stream is, and it is not after the part.

        Configurations before the part are valid in it.
        """
        if self._context.session.part.is_whole:
            return True
        begin_ns, end_ns = self._context.session.interval_ns
        if record.stream not in self._streams or (end_ns and record.timestamp_s >= end_ns / 1e9):
            return False
        configuration = record.record_type is RecordType.CONFIGURATION
        return configuration or not begin_ns or record.timestamp_s >= begin_ns / 1e9

    def _tags(self, metadata: MetadataRecords) -> dict[str, str]:
        tags = mask_tags(metadata.tags) | {"packed_by": f"recorder {recorder.__version__}"}
        if not self._context.session.part.is_whole:
            tags["part"] = str(self._context.session.part)
        if self._context.redaction:
            tags["redaction"] = as_json(self._context.redaction)
        calibration = self._context.calibration
        if calibration.path is not None:
            tags["calibration"] = as_text(Path(calibration.path).read_text("utf-8", "replace"))
            tags["calibration_sha256"] = str(calibration.sha256)
        return tags

    def _write(
        self,
        path: Path,
        metadata: MetadataRecords,
        streams: Mapping[StreamId, StreamTags],
        tags: Mapping[str, str],
    ) -> int:
        """Write all records in order of time; return their number."""
        context, disk = self._context, PosixDisk()
        ids = {name: stream for stream, name in self._names.items()}
        ticks = {ids[n]: sample_ticks(context.session.streams[n]) for n in self._samples}
        feeds = [self._metadata_feed(metadata)]
        feeds += [_data_feed(samples, ids[name]) for name, samples in self._samples.items()]
        feeds += [
            self._configure(name, ids[name])
            for name in self._samples
            if ids[name] not in metadata.configured
        ]
        feeds += [self._extra_feed(extra, stream) for stream, extra in self._extras.items()]
        writer = VrsWriter.create_as(path, disk, streams, tags, creation_id=self._creation_id(tags))
        try:
            for stamp, stream, _, kind, version, sample, parts in heapq.merge(*feeds):
                try:
                    writer.put(stream, kind, version, stamp, parts, self._compressor)
                except (OSError, RecorderError):
                    with context.locate_errors(
                        self._names.get(stream, str(stream)), max(sample, 0)
                    ):
                        raise
                if kind is RecordType.DATA:
                    context.advance(ticks.get(stream, 0.0))
            writer.finish()
            disk.sync_files(writer.files)
        finally:
            for file in writer.files:
                file.close()
        default_index_path(path).unlink()
        return writer.count

    def _configure(self, name: str, stream: StreamId) -> Iterator[Entry]:
        """Yield the configuration of a stream for which no metadata record has one."""
        session, (kind, version) = self._context.session, CONFIGURATION
        offset_ns, first_ns = clock_offset_ns(session), int(session.streams[name].times(0, 1)[0])
        drivers = map_drivers((session.header or {}).get("sensors") or {})
        spec = self._specs[name]
        data = configuration(spec, drivers.get(name, ""), 0, first_ns - offset_ns, offset_ns)
        yield self._first_s[stream], stream, _BEFORE, kind, version, -1, [data.encode()]

    def _extra_feed(self, extra: Extra, stream: StreamId) -> Iterator[Entry]:
        """Yield the records of poses or labels, after their configuration."""
        kind, version = DATA
        for record in self._context.locate_items(extra.name, extra.records()):
            stamp = record[0] / 1e9
            if extra.count == 1:
                data = describe_extra(extra, self._context.session, record[0]).encode()
                yield stamp, stream, _BEFORE, *CONFIGURATION, -1, [data]
            yield stamp, stream, _DATA, kind, version, extra.count - 1, [record[1]]

    def _creation_id(self, tags: Mapping[str, str]) -> int:
        """Return the session's start time, with low bits that depend on the file's tags.

        The same session, packed again in the same way, gives the same file.
        """
        start_ns = self._context.session.start_ns or 0
        text = json.dumps(
            [tags, list(self._names.values()), dict(self._context.options)], default=str
        )
        low = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        return creation_id(start_ns, low)

    def _metadata_feed(self, metadata: MetadataRecords) -> Iterator[Entry]:
        """Yield the metadata records in the order of merging with data of the same time.

        A stream's first configuration comes before its data, later metadata after its data.
        """
        for _, group in itertools.groupby(self._metadata_entries(metadata), itemgetter(0)):
            yield from sorted(group, key=itemgetter(1, 2))

    def _metadata_entries(self, metadata: MetadataRecords) -> Iterator[Entry]:
        for record in self._context.locate_items(VRS, metadata.records()):
            if not self._is_packed(record):
                continue
            stamp, stream = record.timestamp_s, record.stream
            rank = _BEFORE if stamp <= self._first_s.get(stream, stamp) else _AFTER
            data = record.data
            if record.record_type is RecordType.CONFIGURATION and not self._names.get(stream):
                with self._context.locate_errors(VRS):
                    data = mask_configuration(data)
            yield stamp, stream, rank, record.record_type, record.version, -1, [data]


def _find_older_chunks(path: Path, count: int) -> tuple[str, ...]:
    """Return the names of an older archive's chunks, which readers would take for this one's."""
    names = (f"{path.name}_{number}" for number in range(count, len(chunk_paths(path))))
    return tuple(names)


def _data_feed(samples: Samples, stream: StreamId) -> Iterator[Entry]:
    kind, version = DATA
    for record in samples:
        yield record.timestamp_s, stream, _DATA, kind, version, record.index, record.parts
