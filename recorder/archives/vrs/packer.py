"""A session as one VRS file: ``NAME.vrs`` with every stream's configuration, state and data.

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
from recorder.archives.base import Packed, Packer
from recorder.archives.context import Job
from recorder.archives.vrs.labels import Extra, find_extras
from recorder.archives.vrs.metadata_records import (
    MetadataFile,
    MetadataRecord,
    MetadataRecords,
    ReconstructedMetadata,
)
from recorder.archives.vrs.samples import Samples, packed_spec
from recorder.contract.config.options import Option, OptionTable
from recorder.contract.errors import FormatError, RecorderError, SessionError
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Buffer
from recorder.formats.disk import PosixDisk
from recorder.formats.vrs import (
    Compression,
    Compressor,
    RecordType,
    StreamId,
    VrsWriter,
    default_index_path,
)
from recorder.formats.vrs.headers import creation_id
from recorder.formats.vrs.tags import StreamTags
from recorder.formats.vrs.writer import choose_id
from recorder.session.layout import VRS
from recorder.session.playback import is_small
from recorder.session.stream import Stream
from recorder.session.vrs.data_records import DATA, metadata_only
from recorder.session.vrs.metadata_records import (
    as_json,
    as_text,
    drivers_of,
    shared_configuration,
    shared_tags,
)

_SMALL_TICKS = 1 / 256
_KINDS = {"none": Compression.NONE, "lz4": Compression.LZ4, "zstd": Compression.ZSTD}
_BEFORE, _DATA, _AFTER = range(3)

Entry = tuple[float, StreamId, int, RecordType, int, int, Sequence[Buffer]]
"""Timestamp, stream, rank, type, version, sample, data.  Readers sort by timestamp and stream, then
by the place in the file: the records are written in that order."""


class VrsPacker(Packer):
    """Packs a session as one VRS file."""

    options: ClassVar[OptionTable] = {
        "compression": Option("str", "none", "compression of each record", choices=tuple(_KINDS)),
    }

    def ticks(self, job: Job) -> float:
        return sum(len(s) * _ticks(s) for s in job.streams if s.has_times)

    def pack(self, job: Job) -> Packed:
        return _SessionPacker(job).pack()


PACKER = VrsPacker()


def _ticks(stream: Stream) -> float:
    return _SMALL_TICKS if is_small(stream) else 1.0


class _SessionPacker:
    """Packs one session."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._samples: dict[str, Samples] = {}
        self._specs: dict[str, StreamSpec] = {}
        self._first_s: dict[StreamId, float] = {}
        self._names: dict[StreamId, str] = {}
        self._streams: Mapping[StreamId, StreamTags] = {}
        self._extras: dict[StreamId, Extra] = {}
        kind = _KINDS[job.options["compression"]]
        self._compressor = Compressor(kind) if kind is not Compression.NONE else None

    def pack(self) -> Packed:
        job = self._job
        self._find_streams()
        metadata = self._metadata_records()
        try:
            streams = self._streams = self._declare(metadata)
            path = job.folder / f"{job.session.name}.vrs"
            count = self._write(path, metadata, streams, self._tags(metadata))
        finally:
            metadata.close()
        for name, samples in self._samples.items():
            if samples.backward:
                job.notes.add(f"{samples.backward} samples with equal or backward times", name)
        frames = {name: len(job.session.streams[name]) for name in self._samples}
        frames |= {extra.name: extra.count for extra in self._extras.values() if extra.count}
        return Packed((path.name,), (), {"frames": frames, "records": count})

    def _find_streams(self) -> None:
        """Find the streams to pack; note the streams that are left out."""
        job, session = self._job, self._job.session
        job.notes.add_absent("cannot be read, its data are left out")
        self._specs.update(session.declared)
        for stream in job.streams:
            name = stream.name
            if stream.has_times:
                try:
                    self._specs[name] = packed_spec(stream)
                except FormatError as error:
                    job.notes.add(f"left out: {error}", name)
                    continue
            if job.has_samples(stream):
                with job.at(name):
                    self._samples[name] = Samples(job, stream, self._specs[name])
        if not self._specs:
            raise SessionError(f"{session.path}: has no stream to pack")
        job.notes.add_losses()
        job.notes.add_recovery()

    def _metadata_records(self) -> MetadataRecords:
        session = self._job.session
        path = session.path / VRS
        if path.is_file():
            with self._job.at(VRS):
                return MetadataFile(path)
        if session.recorded:
            self._job.notes.add(
                f"has no {VRS}: the state that drivers reported is not known", "session"
            )
        return ReconstructedMetadata(session, self._specs)

    def _declare(self, metadata: MetadataRecords) -> dict[StreamId, StreamTags]:
        """Declare all streams: keep the tags of metadata records, and add those of data records."""
        session = self._job.session
        drivers = drivers_of((session.header or {}).get("sensors") or {})
        streams = dict(metadata.streams)
        names = dict(metadata.names)
        for name in [n for n in names if n and not session.chooses(n)]:
            del streams[names.pop(name)]
        for name, samples in self._samples.items():
            if name not in names:
                spec = metadata_only(name, drivers.get(name, ""), self._specs[name], session.name)
                names[name] = choose_id(spec, streams)
                streams[names[name]] = spec.stream_tags()
            tags = streams[names[name]]
            more = samples.records.layout.tags(*DATA)
            streams[names[name]] = StreamTags(tags.vrs | more, tags.user)
            stamp = session.streams[name].times(0, 1).astype("<f8") / 1e9
            self._first_s[names[name]] = float(stamp[0])
        with self._job.at("labels and poses"):
            extras = find_extras(self._job)
        for extra in extras:
            extra_spec = extra.spec(session.name)
            names[extra.name] = number = choose_id(extra_spec, streams)
            streams[number] = extra_spec.stream_tags()
            self._extras[number] = extra
        self._names = {stream: name for name, stream in names.items()}
        return streams

    def _inside(self, record: MetadataRecord) -> bool:
        """Whether a record is packed: not one of a stream that is left out, or after the part.

        Configurations before the part are valid in it.
        """
        if self._job.session.part.is_whole:
            return True
        begin_ns, end_ns = self._job.session.interval_ns
        if record.stream not in self._streams or (end_ns and record.timestamp_s >= end_ns / 1e9):
            return False
        configuration = record.record_type is RecordType.CONFIGURATION
        return configuration or not begin_ns or record.timestamp_s >= begin_ns / 1e9

    def _tags(self, metadata: MetadataRecords) -> dict[str, str]:
        tags = shared_tags(metadata.tags) | {"packed_by": f"recorder {recorder.__version__}"}
        if not self._job.session.part.is_whole:
            tags["part"] = str(self._job.session.part)
        if self._job.redaction:
            tags["redaction"] = as_json(self._job.redaction)
        calibration = self._job.calibration
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
        """Write all records in order of time; returns their number."""
        job, disk = self._job, PosixDisk()
        ids = {name: stream for stream, name in self._names.items()}
        ticks = {ids[n]: _ticks(job.session.streams[n]) for n in self._samples}
        feeds = [self._metadata_feed(metadata)]
        feeds += [_data_feed(samples, ids[name]) for name, samples in self._samples.items()]
        feeds += [self._extra_feed(extra, stream) for stream, extra in self._extras.items()]
        writer = VrsWriter.create_as(path, disk, streams, tags, creation_id=self._creation_id(tags))
        try:
            for stamp, stream, _, kind, version, sample, parts in heapq.merge(*feeds):
                try:
                    writer.put(stream, kind, version, stamp, parts, self._compressor)
                except (OSError, RecorderError):
                    with job.at(self._names.get(stream, str(stream)), max(sample, 0)):
                        raise
                if kind is RecordType.DATA:
                    job.advance(ticks.get(stream, 0.0))
            writer.finish()
            disk.sync_files(writer.files)
        finally:
            for file in writer.files:
                file.close()
        default_index_path(path).unlink()
        return writer.count

    def _extra_feed(self, extra: Extra, stream: StreamId) -> Iterator[Entry]:
        kind, version = DATA
        records = extra.records()
        while True:
            with self._job.at(extra.name):
                record = next(records, None)
            if record is None:
                return
            yield record[0] / 1e9, stream, _DATA, kind, version, extra.count - 1, [record[1]]

    def _creation_id(self, tags: Mapping[str, str]) -> int:
        """When the session began, with low bits of what the file says of itself.

        The same session, packed again in the same way, is the same file.
        """
        start_ns = self._job.session.start_ns or 0
        text = json.dumps([tags, list(self._names.values()), dict(self._job.options)], default=str)
        low = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        return creation_id(start_ns, low)

    def _metadata_feed(self, metadata: MetadataRecords) -> Iterator[Entry]:
        """The metadata records in the order in which they are merged with data of the same time.

        A stream's first configuration comes before its data, later metadata after its data.
        """
        for _, group in itertools.groupby(self._metadata_entries(metadata), itemgetter(0)):
            yield from sorted(group, key=itemgetter(1, 2))

    def _metadata_entries(self, metadata: MetadataRecords) -> Iterator[Entry]:
        records = metadata.records()
        while True:
            with self._job.at(VRS):
                record = next(records, None)
            if record is None:
                return
            if not self._inside(record):
                continue
            stamp, stream = record.timestamp_s, record.stream
            rank = _BEFORE if stamp <= self._first_s.get(stream, stamp) else _AFTER
            data = record.data
            if record.record_type is RecordType.CONFIGURATION and not self._names.get(stream):
                with self._job.at(VRS):
                    data = shared_configuration(data)
            yield stamp, stream, rank, record.record_type, record.version, -1, [data]


def _data_feed(samples: Samples, stream: StreamId) -> Iterator[Entry]:
    kind, version = DATA
    for record in samples:
        yield record.timestamp_s, stream, _DATA, kind, version, record.index, record.parts
