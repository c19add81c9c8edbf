"""Live writer of ``session.vrs``: configuration, state and data records.

The file has configuration and state records of every stream, and data records of the streams
that ``record_format.streams`` of the config names.  Timestamps are those of ``ts``: epoch seconds
on the session's host clock.  Records are sorted by time within a small window
(`recorder.recording.writer.reorder`).  Every commit empties the window, so acknowledged samples
are durable in this file, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.files import AppendFile, Disk
from recorder.formats.vrs import (
    RecordType,
    StreamId,
    VrsWriter,
    description_end,
    find_compressor,
)
from recorder.formats.vrs.headers import creation_id
from recorder.recording.writer.reorder import Batch, ReorderWindow, Single
from recorder.recording.writer.stream_state import first_time
from recorder.session import layout
from recorder.session.vrs.files import map_vrs_streams
from recorder.session.vrs.records import (
    DataRecords,
    Stamps,
    Times,
    add_data_records,
    configuration,
    create_metadata_stream,
    create_session_stream,
    event_state,
    file_tags,
    map_drivers,
    session_configuration,
    state,
)


class SessionVrs:
    """VRS file of one session; its caller holds the session's lock.

    Methods raise OSError for the disk, FormatError and StorageError for the format.  After an error
    the session is sealed, as for any of its files.
    """

    def __init__(self, session: Path, values: Mapping[str, Any], writer: VrsWriter) -> None:
        """Initialize a file; call `create` or `reopen` instead."""
        self._writer = writer
        compression = values["record_format"].get("compression", "none")
        self._window = ReorderWindow(writer, find_compressor(compression))
        self._finished = False
        self._name = str(values["name"])
        self._start_mono_ns = int(values["start_mono_ns"])
        self._offset_ns = int(values["start_ns"]) - self._start_mono_ns
        self._with_data = frozenset(values["record_format"]["streams"])
        self._drivers = map_drivers(values.get("sensors") or {})
        self._records: dict[str, DataRecords] = {}
        self._known = map_vrs_streams({s: w.tags.user for s, w in writer.streams.items()})
        if not writer.count:
            self._configure_session(session, values)

    @classmethod
    def create(cls, disk: Disk, session: Path, values: Mapping[str, Any]) -> SessionVrs:
        """Create the file of a new session, durable on return except the names of its two files.

        Args:
            disk: disk that writes the files.
            session: the session's folder.
            values: content of ``session.json``.
        """
        clock_id = f"{values['boot_id']}/{values['start_mono_ns']}".encode()
        writer = VrsWriter.create(
            session / layout.VRS,
            disk,
            [create_session_stream(str(values["name"]))],
            file_tags(values),
            index_path=layout.private(session, layout.VRS_INDEX),
            # The approximate time; the low bits identify the session.
            creation_id=creation_id(int(values["start_ns"]), zlib.crc32(clock_id)),
        )
        made = cls(session, values, writer)
        made.drain()
        for file in writer.files:
            file.flush()
            file.sync()
        return made

    @classmethod
    def reopen(
        cls,
        disk: Disk,
        session: Path,
        values: Mapping[str, Any],
        lengths: Mapping[str, int],
        tags_at: Sequence[int] | None = None,
    ) -> SessionVrs:
        """Resume the file, cut to its committed length.

        Args:
            disk, session, values: as for `create`.
            lengths: committed lengths by path, from the journal.
            tags_at: offsets of all TAGS records; None if unknown.
        """
        path = session / layout.VRS
        length = lengths.get(layout.VRS)
        writer = VrsWriter.resume(
            path,
            disk,
            description_end(path)[0] if length is None else length,
            index_length=lengths.get(f"{layout.PRIVATE}/{layout.VRS_INDEX}"),
            index_path=layout.private(session, layout.VRS_INDEX),
            tags_at=tags_at,
        )
        return cls(session, values, writer)

    @property
    def tags_at(self) -> list[int]:
        """Offsets of TAGS records in the file."""
        return list(self._writer.tags_at)

    @property
    def files(self) -> list[AppendFile]:
        """The file and, until it is finished, the file of its index entries."""
        return self._writer.files[:1] if self._finished else self._writer.files

    @property
    def size(self) -> int:
        """Bytes of both files and of the index that is appended at the end."""
        file, index = self._writer.files
        return file.length + (0 if self._finished else 2 * index.length)

    def wants(self, stream: str) -> bool:
        """Return whether a stream has data records."""
        return stream in self._with_data

    def data(self, spec: StreamSpec, message: Message, t_mono: Times, ts: Stamps) -> None:
        """Write a data message's samples, if the stream has data records.

        Args:
            spec: the message's stream.
            message: the received message.
            t_mono: int64 [n], stored times, ns.
            ts: f8 [n], the same times as epoch seconds.
        """
        if spec.name not in self._with_data:
            return
        stream, records = self._stream(spec, message), self._get_records(spec)
        if records.row_bytes is not None:
            rows = records.rows(message, t_mono)
            self._window.add(Batch(stream, RecordType.DATA, ts, rows))
            return
        made = records.records(message, t_mono, stamps := ts.tolist())
        for timestamp_s, parts in zip(stamps, made, strict=True):
            self._window.add(Single(stream, RecordType.DATA, timestamp_s, parts))

    def begin_epoch(self, spec: StreamSpec, message: Message, last_ns: int) -> None:
        """Write the start of an epoch, when a driver has started.

        Args:
            spec: the stream.
            message: the first message of the epoch.
            last_ns: ``t_mono`` of the stream's previous sample; -1 without one.
        """
        known = spec.name in self._known
        stream = self._stream(spec, message, last_ns)
        if known:
            self._configure(stream, spec, message, last_ns)
        t_ns = first_time(message) + self._offset_ns
        values = {"first_seq": message.seq}
        self._add_state(stream, t_ns, "epoch_begin", message.epoch, message.seq, None, values)

    def end_epoch(
        self, spec: StreamSpec, epoch: int, sent: int | None, reason: str, t_ns: int
    ) -> None:
        """Write the end of an epoch.

        Args:
            spec: the stream.
            epoch: the epoch.
            sent: number of samples that the driver reports as sent; None without a report.
            reason: end reason of the epoch.
            t_ns: time of the end, epoch ns.
        """
        if (stream := self._known.get(spec.name)) is not None:
            values = {"sent": sent, "reason": reason}
            self._add_state(stream, t_ns, "epoch_end", epoch, sent or 0, reason, values)

    def state(self, spec: StreamSpec, message: Message, t_ns: int) -> None:
        """Write a driver's state, at an epoch time in ns."""
        stream = self._stream(spec, message)
        self._add_state(stream, t_ns, "state", message.epoch, message.seq, None, message.values)

    def event(self, event: Mapping[str, Any]) -> None:
        """Write an event to the records of its stream, if known, else to those of the session."""
        stream = self._known.get(event.get("stream") or "")
        if stream is None:
            stream = self._known[""]
        record = event_state(event, self._offset_ns)
        self._add(stream, RecordType.STATE, event["t_ns"] - self._offset_ns, record.encode())

    def drain(self) -> None:
        """Pass all held records to the files."""
        if not self._finished:
            self._window.drain()

    def finish(self) -> None:
        """Write the index and its offset, which complete the VRS file."""
        self._window.drain()
        self._writer.finish()
        self._finished = True
        self._writer.files[1].close()

    def close(self) -> None:
        """Close both files."""
        for file in self.files:
            file.close()

    def _stream(self, spec: StreamSpec, message: Message, last_ns: int = -1) -> StreamId:
        stream = self._known.get(spec.name)
        if stream is None:
            driver = self._drivers.get(spec.name, "")
            declared = create_metadata_stream(spec.name, driver, spec, self._name)
            if self.wants(spec.name):
                declared = add_data_records(declared, self._get_records(spec).layout)
            stream = self._known[spec.name] = self._writer.add_stream(declared).id
            self._configure(stream, spec, message, last_ns)
        return stream

    def _get_records(self, spec: StreamSpec) -> DataRecords:
        records = self._records.get(spec.name)
        if records is None:
            records = self._records[spec.name] = DataRecords(spec)
        return records

    def _configure(
        self, stream: StreamId, spec: StreamSpec, message: Message, last_ns: int
    ) -> None:
        """Write a configuration between the previous epoch and the epoch's first sample."""
        t_mono_ns = last_ns if last_ns >= 0 else min(self._start_mono_ns, first_time(message))
        driver = self._drivers.get(spec.name, "")
        record = configuration(spec, driver, message.epoch, t_mono_ns, self._offset_ns)
        self._add(stream, RecordType.CONFIGURATION, t_mono_ns, record.encode())

    def _configure_session(self, session: Path, values: Mapping[str, Any]) -> None:
        record = session_configuration(session, values, self._start_mono_ns, self._offset_ns)
        stream, kind = self._known[""], RecordType.CONFIGURATION
        self._add(stream, kind, self._start_mono_ns, record.encode())
        self._window.drain()

    def _add_state(
        self,
        stream: StreamId,
        t_ns: int,
        kind: str,
        epoch: int,
        seq: int,
        cause: str | None,
        values: Mapping[str, Any],
    ) -> None:
        t_mono_ns = t_ns - self._offset_ns
        record = state(t_mono_ns, kind, epoch, seq, cause, values)
        self._add(stream, RecordType.STATE, t_mono_ns, record.encode())

    def _add(self, stream: StreamId, kind: RecordType, t_mono_ns: int, data: bytes) -> None:
        timestamp_s = (t_mono_ns + self._offset_ns) / 1e9
        self._window.add(Single(stream, kind, timestamp_s, [data]))


def remove_leftovers(disk: Disk, session: Path) -> None:
    """Remove files that a closed session does not need: index entries, tail digests."""
    for name in (layout.VRS_INDEX, *layout.TAILS, *layout.RECOVERY_TAILS):
        path = layout.private(session, name)
        if path.exists():
            disk.remove(path)
