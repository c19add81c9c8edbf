"""Writer of a session: streams, events, journal.

One thread appends, another one commits.  `SessionWriter.lock` guards their common state.  The
second thread holds the lock only to take a snapshot::

    writer = SessionWriter.create(disk, plan, clock)
    writer.append(message)                    # the append thread
    writer.commit()                           # the sync thread, every sync interval
    writer.durable["camera"]                  # may be acknowledged
    writer.close("clean")
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common import page_cache
from recorder.common.clock import Clock
from recorder.common.errors import SessionError
from recorder.common.files import AppendFile, Disk
from recorder.integrity import signatures
from recorder.recording.writer.commit_digests import CommitDigests, check_committed
from recorder.recording.writer.disk_policy import DISK, Fuse, append_events, make_seal_events
from recorder.recording.writer.event_writer import EventWriter
from recorder.recording.writer.salvage import Salvage, keep_tails
from recorder.recording.writer.session_vrs import SessionVrs, remove_leftovers
from recorder.recording.writer.stream_files import StreamFiles, check_same
from recorder.recording.writer.stream_writer import StreamWriters
from recorder.session import layout
from recorder.session.events import ClockWatch
from recorder.session.journal.journal import JournalWriter, digest_first_record, read_journal
from recorder.session.journal.state import JournalState, describe_close
from recorder.session.lock import boot_id, lock_session


class SessionWriter:
    """Writer of one session; see the module's example.

    Attributes:
        path: the session's folder.
        key: id of the session on the bus.
        start_ns, start_mono_ns: start of the session, epoch ns and CLOCK_MONOTONIC.
        play_start_mono_ns: start of the first of the sessions that continue each other.
        source_start_ns: stamp of the played sources at the start; None: each source's own.
        previous: name of the session that this one continues; None without one.
        previous_path: folder of that session.
        sensors: names of the planned sensors.
        sync_interval_s, reserve_bytes: planned time between commits and space to leave free.
        durable: by stream, (epoch, number): all messages before that number are durable.
        appended: the same for messages that are appended or held back.
        lock: held while the session's state changes.
    """

    def __init__(
        self,
        disk: Disk,
        path: Path,
        clock: Clock,
        values: dict[str, Any],
        lock_fd: int,
        tails: Sequence[str] = layout.TAILS,
    ) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.start_ns: int = values["start_ns"]
        self.start_mono_ns: int = values["start_mono_ns"]
        self.previous: str | None = values.get("previous")
        self.previous_path = Path(values.get("previous_folder") or path.parent, self.previous or "")
        self.sensors = frozenset(values["sensors"])
        self.play_start_mono_ns: int = values.get("play_start_mono_ns") or self.start_mono_ns
        self.source_start_ns: int | None = values.get("source_start_ns")
        self.key = f"{values['boot_id']}/{self.start_mono_ns}"
        self.sync_interval_s = float(values["sync_interval_ms"]) / 1e3
        self.reserve_bytes = round(float(values.get("min_free_gb", 0.0)) * 1e9)
        self.durable: dict[str, tuple[int, int]] = {}
        self.appended: dict[str, tuple[int, int]] = {}
        self._commit_digests = CommitDigests(disk, path, clock, tails)
        self._disk = self._commit_digests.disk
        self._clock = clock
        self._values = values
        self._lock_fd = lock_fd
        self._took_us = 0  # duration of the last commit
        self._last: dict[str, Any] = {"files": {}, "streams": {}}  # content of the last commit
        self._clock_watch = ClockWatch(clock)
        self._unbroken = Fuse(path)  # after an error, channels differ in length
        self._session_log: EventWriter
        self._streams: StreamWriters

    @classmethod
    def create(
        cls,
        disk: Disk,
        plan: layout.SessionPlan,
        clock: Clock,
        reported: Callable[[str, bytes], None] = lambda *_: None,
    ) -> Self:
        """Create a session that starts now.

        Args:
            disk, plan, clock: disk, plan and clock of the session.
            reported: receives the session's name and the digest of its journal's first record once
                everything except the folder's name is durable.

        Raises:
            UsageError, StorageError: see `layout.create_session`.
        """
        values = layout.create_session_json(plan, clock, boot_id())
        begun: list[Self] = []

        def begin(folder: Path) -> None:
            lock_fd = lock_session(folder)
            try:
                writer = cls(disk, folder, clock, values, lock_fd)
                writer._session_log = EventWriter.create(writer._disk, folder, values, clock)
                writer._streams = StreamWriters(writer._session_log, values["sensors"])
            except BaseException:
                os.close(lock_fd)
                raise
            begun.append(writer)
            first = digest_first_record(layout.private(folder, layout.JOURNAL))
            signatures.register_session(Path(plan.root, values["name"]), values, first)
            reported(values["name"], first)

        try:
            path = layout.create_session(disk, plan, values, begin)
        except BaseException:
            for writer in begun:
                writer.abandon()
            raise
        (writer,) = begun
        writer.path = path
        writer._commit_digests.move(path, [*writer._files(), writer._session_log.journal.file])
        return writer

    @classmethod
    def resume(cls, disk: Disk, path: Path, clock: Clock) -> SessionWriter:
        """Resume a session whose writer died, from its journal's last commit.

        Raises:
            SessionError: the session is closed, in use, from another boot, or shorter than its
                last commit.
        """
        values = layout.read_session_json(path)
        if values["boot_id"] != boot_id():
            raise SessionError(f"{path}: was recorded before this machine's last boot")
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, lock_fd := lock_session(path))
            journal = read_journal(layout.private(path, layout.JOURNAL), page_cache.read_range)
            if journal.closed is not None or values["state"] != layout.RECORDING:
                raise SessionError(f"{path}: is closed; a writer cannot resume it")
            check_committed(path, journal)
            if layout.private(path, layout.JOURNAL).stat().st_size > journal.length:
                # A torn tail may be a damaged commit, so more bytes may have been committed.
                keep_tails(disk, path, journal)
            writer = cls.reopen(disk, path, clock, values, lock_fd, journal)
            writer._session_log.journal.append("resume")
            undo.pop_all()
        writer.event("writer", cause="restarted")
        return writer

    @classmethod
    def reopen(
        cls,
        disk: Disk,
        path: Path,
        clock: Clock,
        values: dict[str, Any],
        lock_fd: int,
        state: JournalState,
        written: JournalState | None = None,
    ) -> SessionWriter:
        """Open a session and cut every file to its length in a state.

        Args:
            disk, path, clock: as for `resume`.
            values: content of ``session.json``.
            lock_fd: descriptor from `lock_session`; the writer owns it unless this method fails.
            state: the state to continue from.
            written: the state of the journal, for recovery; None: the same as `state`.

        Raises:
            SessionError: a file is shorter than its length in the journal.
        """
        tails = layout.TAILS if written is None else (layout.NEW_TAIL,)
        writer = cls(disk, path, clock, values, lock_fd, tails)
        try:
            resumes = state.resumes + 1 if written is None else written.resumes
            writer._resume(copy.deepcopy(state), written or state, resumes)
        except ValueError as error:
            raise SessionError(f"{path}: {error}") from None
        return writer

    def declare(self, spec: StreamSpec, sensor: str = "") -> None:
        """Declare a stream; its folder is created at the second sample.

        Args:
            spec: the stream.
            sensor: the stream's sensor; a driver's death is a loss in all streams of its sensor.

        Raises:
            ProtocolError: the stream was declared before in another form.
        """
        progress = self._streams.progress.get(spec.name)
        if progress is not None:
            check_same(progress.store.spec, spec)
            progress.sensor = sensor
            progress.declared_again = True
        else:
            self._streams.add(self._store(spec), sensor)

    def append(self, message: Message) -> None:
        """Append one accepted message.

        Raises:
            OSError: the disk failed; the session must be sealed.
        """
        with self.lock, self._unbroken:
            self._streams.append(message)
            self.appended[message.stream] = (message.epoch, message.number + 1)

    def commit(self, final: bool = False) -> None:
        """Make everything appended so far durable, and update `durable`.

        Args:
            final: whether this is the last commit.

        Raises:
            OSError: the disk failed; the session must be sealed.
        """
        if (step_ns := self._clock_watch.step_ns()) is not None:
            self.event("clock", cause="step", step_ns=step_ns)
        with self.lock, self._unbroken:
            self._session_log.take_incoming()
            self._session_log.events.write_due(self._session_log.now_ns())
            if self._session_log.vrs is not None:
                self._session_log.vrs.drain()
            began_ns = self._clock.monotonic_ns()
            files, dirty = self._flush()
            # Copies, since the append thread changes the originals.
            positions = self._streams.committed_positions()
            events = [dict(event) for event in self._session_log.events.pending]
            lengths = {name: file.length for name, file in files.items()}
            committed = {"files": lengths, "streams": positions, "events": events}
            if committed == self._last and not final:
                return
            evidence = self._commit_digests.digest_commit(files, final)
            evidence["tags_at"] = self._session_log.tags_at
        # The sync takes no lock: a slow disk must not stop the append thread.
        self._disk.sync_files(dirty)
        for file in (*files.values(), self._session_log.journal.file):
            file.verify_in_place()
        with self.lock:
            t_ns, took_us = self._clock.monotonic_ns(), self._took_us
            self._session_log.journal.commit(t_ns=t_ns, took_us=took_us, **committed, **evidence)
        self._session_log.journal.sync()
        self._took_us = (self._clock.monotonic_ns() - began_ns) // 1000
        self._last = committed
        self._session_log.events.uncommitted.clear()
        self.durable = {name: (p["epoch"], p["number"]) for name, p in positions.items()}

    def event(self, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """Log a current event (`EventWriter.make_current_event`); never wait for the disk."""
        self.record_event(self._session_log.make_current_event(kind, stream, cause, **more))

    def record_event(self, event: dict[str, Any]) -> None:
        """Log an event unchanged; never wait for the disk."""
        self._session_log.incoming.append(event)

    def lose_tail(self, stream: str) -> None:
        """Log the loss of a stream's tail after its driver died or its device changed."""
        with self.lock:
            self._streams.lose_tail(stream, self._clock.monotonic_ns())

    def record_next(self, name: str, first: bytes, folder: str | None = None) -> None:
        """Record durably which session continues this one.

        Args:
            name: name of the next session.
            first: digest of the first record of its journal.
            folder: the root folder of the next session; None: that of this session.
        """
        where = {} if folder is None else {"folder": folder}
        with self.lock:
            self._session_log.journal.append("split", next=name, first=first, **where)
        self._session_log.journal.sync()

    def close(self, state: str, end_ns: int | None = None) -> None:
        """Close the session: finish the formats, make everything durable, write the state.

        Args:
            state: ``clean`` or ``recovered``.
            end_ns: epoch ns of the session's end; None: now.
        """
        with self.lock:
            self._streams.release_all()
            for name, progress in self._streams.progress.items():
                if progress.store.adjusted:
                    self.event("time", name, "moved", count=progress.store.adjusted)
            self._session_log.take_incoming()
            self._streams.lose_absent_sensors(end_ns)
            self._session_log.events.write_due()
            if self._session_log.vrs is not None:
                self._session_log.vrs.drain()
            # A resuming writer cuts the bytes that finishing appends, so a leaf begins there.
            self._commit_digests.seal(self._named_files())
            for progress in self._streams.progress.values():
                progress.store.finish()
            if self._session_log.vrs is not None:
                self._session_log.vrs.finish()
        self.commit(final=True)
        self._describe(state, self._end_ns() if end_ns is None else end_ns)
        self._session_log.journal.append(
            "close", **describe_close(self.path, state, self._session_log.journal.state)
        )
        cause = signatures.CLOSE if state == layout.CLEAN else signatures.RECOVERY
        signatures.sign_head(self._session_log.journal, self.path, cause)
        self._session_log.journal.sync()
        self.abandon()
        with contextlib.suppress(OSError):  # recovery removes them
            remove_leftovers(self._disk, self.path)

    def abandon(self) -> None:
        """Close the files and release the lock; write nothing."""
        self._close_files()
        self._commit_digests.close()
        os.close(self._lock_fd)

    def _close_files(self) -> None:
        files: list[AppendFile | JournalWriter] = [*self._files(), self._session_log.journal]
        for file in files:
            with contextlib.suppress(OSError):
                file.close()

    def seal(self, reason: str) -> None:
        """Seal the session after a disk failure, as far as the disk still allows."""
        # If this also fails, the journal still ends at the last commit, which recovery uses.
        self._close_files()
        log, now_ns = self._session_log, self._clock.monotonic_ns()
        times = log.now_ns(), now_ns, self.start_mono_ns
        sealed, *losses = make_seal_events(self._streams.progress, self._last, reason, *times)
        absent = self._streams.absent().items()
        losses += [log.absent_loss(name, p, DISK) for name, p in absent if p["ended"] is None]
        reported = [*log.events.uncommitted, *log.events.pending, *log.incoming]
        # A full disk may still take one line, the reason, in the log's last block.
        append_events(self._disk, self.path, self._last, [sealed, *reported, *losses])
        with contextlib.suppress(OSError):
            self._values["sealed"] = reason
            self._describe(layout.SEALED, log.now_ns())
        self._commit_digests.close()
        os.close(self._lock_fd)

    @property
    def until_ns(self) -> int | None:
        """Samples at or after this CLOCK_MONOTONIC time are not wanted."""
        return self._session_log.until_ns

    @property
    def vrs(self) -> SessionVrs | None:
        """``session.vrs``; None if it is not written."""
        return self._session_log.vrs

    @property
    def bytes(self) -> int:
        """Bytes of all streams and of ``session.vrs``, with the index that closing appends."""
        vrs = 0 if self._session_log.vrs is None else self._session_log.vrs.size
        return vrs + sum(progress.store.bytes for _, progress in self._streams.written())

    def positions(self) -> dict[str, dict[str, Any]]:
        """Return the appended position of each stream (with samples, losses, bytes).

        Takes no lock, so that a stalled disk does not delay the caller.
        """
        return self._streams.positions()

    def _describe(self, state: str, end_ns: int) -> None:
        """Write ``session.json`` at the session's end."""
        for sensor, streams in self._streams.group_by_sensor().items():
            entry = self._values["sensors"][sensor]
            entry["streams"] = streams
            if quiet := self._streams.find_quiet(sensor):
                entry["quiet"] = quiet
        self._values |= {
            "state": state,
            "end_ns": end_ns,
            "streams": {n: t.store.spec.to_wire() for n, t in self._streams.written()},
            "epochs": {
                n: t.describe_epochs() for n, t in self._streams.progress.items() if t.epochs
            },
        }
        layout.write_session_json(self._disk, self.path, self._values)

    def _store(self, spec: StreamSpec) -> StreamFiles:
        return StreamFiles(self._disk, self.path, spec, self.start_ns - self.start_mono_ns)

    def _files(self) -> list[AppendFile]:
        stores = [f for _, progress in self._streams.written() for f in progress.store.files]
        return [*self._session_log.files, *stores]

    def _named_files(self) -> dict[str, AppendFile]:
        return {self._commit_digests.name(file): file for file in self._files()}

    def _flush(self) -> tuple[dict[str, AppendFile], list[AppendFile]]:
        """Pass all bytes to the kernel; return all files by name, and the files to sync."""
        files, dirty = self._named_files(), []
        self._commit_digests.announce(files.values())
        for file in files.values():
            file.flush()
            if file.dirty:
                dirty.append(file)
                file.dirty = False
        return files, dirty

    def _resume(self, journal: JournalState, written: JournalState, resumes: int) -> None:
        self._commit_digests.resume(written, resumes)
        self._session_log = EventWriter.reopen(
            self._disk, self.path, self._values, self._clock, journal, written
        )
        self._streams = StreamWriters(self._session_log, self._values["sensors"], journal)
        for name, spec in journal.specs.items():
            store = self._store(spec)
            lengths = {
                key.partition("/")[2]: length
                for key, length in journal.files.items()
                if key.partition("/")[0] == name
            }
            position = journal.positions.get(name, {})
            if lengths:
                store.resume(lengths, position["last_ns"])
            else:
                for folder in (self.path / name, layout.private(self.path, f"{name}.tmp")):
                    if folder.exists():  # created after the last commit: move it away
                        Salvage(self._disk, self.path).move(folder, f"{name}.tmp")
            self._streams.add(store)
        self._last = {"files": journal.files, "streams": journal.positions}
        for name, position in journal.positions.items():
            self.durable[name] = self.appended[name] = (position["epoch"], position["number"])
        self._session_log.open_journal(
            **self._commit_digests.describe_reopening(self._named_files(), journal.files)
        )

    def _end_ns(self) -> int:
        """Return the current time or that of a later sample of a fast source, epoch ns."""
        latest = max((t.store.last_ns for t in self._streams.progress.values()), default=0)
        return max(self._session_log.now_ns(), latest + self.start_ns - self.start_mono_ns)
