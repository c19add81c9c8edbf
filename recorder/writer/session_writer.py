"""A session while it is written: streams, events, journal.

One thread appends; another makes durable.  What they share is guarded by `SessionWriter.lock`,
which the second holds only to take a snapshot::

    writer = SessionWriter.create(disk, plan, clock)
    writer.append(message)                    # the append thread
    writer.commit()                           # the sync thread, every sync interval
    writer.durable["camera"]                  # what may be acknowledged
    writer.close("clean")
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recorder.contract.clock import Clock
from recorder.contract.errors import SessionError
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Kind, Message
from recorder.formats.disk import AppendFile, Disk
from recorder.session import layout
from recorder.session.events import ClockWatch, make_event
from recorder.session.journal import JournalState, JournalWriter, read_journal
from recorder.session.lock import boot_id, lock_session
from recorder.writer.chronicle import Chronicle
from recorder.writer.disk_policy import DISK, Fuse, append_events, events_of_seal
from recorder.writer.session_vrs import SessionVrs, remove_leftovers
from recorder.writer.stream_store import StreamStore, check_same
from recorder.writer.track import Track, may_begin


class SessionWriter:
    """Writes one session; see the module's example.

    Attributes:
        path: the session's folder.
        key: names the session on the bus.
        start_ns, start_mono_ns: its start on the calendar and on CLOCK_MONOTONIC.
        play_start_mono_ns: start of the first session of those that continue each other.
        previous: name of the session that it continues; None: of none.
        sensors: names of those that it was planned with.
        sync_interval_s, reserve_bytes: as planned: time between commits, space to leave free.
        durable: by stream, (epoch, number): every message before that number is durable.
        appended: the same for what was handed to the kernel, or is held back for now.
        lock: held while the session's state changes.
    """

    def __init__(
        self, disk: Disk, path: Path, clock: Clock, values: dict[str, Any], lock_fd: int
    ) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.start_ns: int = values["start_ns"]
        self.start_mono_ns: int = values["start_mono_ns"]
        self.previous: str | None = values.get("previous")
        self.sensors = frozenset(values["sensors"])
        self.play_start_mono_ns: int = values.get("play_start_mono_ns") or self.start_mono_ns
        self.key = f"{values['boot_id']}/{self.start_mono_ns}"
        self.sync_interval_s = float(values["sync_interval_ms"]) / 1e3
        self.reserve_bytes = round(float(values.get("min_free_gb", 0.0)) * 1e9)
        self.durable: dict[str, tuple[int, int]] = {}
        self.appended: dict[str, tuple[int, int]] = {}
        self._disk = disk
        self._clock = clock
        self._values = values
        self._lock_fd = lock_fd
        self._tracks: dict[str, Track] = {}
        self._restored = JournalState()
        self._names: dict[Path, str] = {}  # of files, relative to the session
        self._committed = ""
        self._last: dict[str, Any] = {"files": {}, "streams": {}}  # what the last commit holds
        self._clock_watch = ClockWatch(clock)
        self._unbroken = Fuse(path)  # an error leaves channels that differ in length
        self._told: Chronicle

    @classmethod
    def create(
        cls,
        disk: Disk,
        plan: layout.SessionPlan,
        clock: Clock,
        told: Callable[[str], None] = lambda _: None,
    ) -> SessionWriter:
        """Begin a new session; its start is now.

        Args:
            disk, plan, clock: of what, where and when.
            told: called with the session's name, when all is durable but that name.

        Raises:
            UsageError, StorageError: as `layout.create_session` does.
        """
        values = layout.new_session_json(plan, clock, boot_id())
        begun: list[SessionWriter] = []

        def begin(folder: Path) -> None:
            writer = cls(disk, folder, clock, values, lock_session(folder))
            try:
                writer._told = Chronicle.create(disk, folder, values, clock)
            except BaseException:
                os.close(writer._lock_fd)
                raise
            begun.append(writer)
            told(values["name"])

        try:
            path = layout.create_session(disk, plan, values, begin)
        except BaseException:
            for writer in begun:
                writer.abandon()
            raise
        (writer,) = begun
        folder, writer.path = writer.path, path
        for file in writer._files():  # descriptors stay valid across the rename, names do not
            file.path = path / file.path.relative_to(folder)
        return writer

    @classmethod
    def resume(cls, disk: Disk, path: Path, clock: Clock) -> SessionWriter:
        """Go on with a session whose writer died, from its journal's last commit.

        Raises:
            SessionError: it is closed, in use, of another boot, or shorter than committed.
        """
        values = layout.read_session_json(path)
        if values["boot_id"] != boot_id():
            raise SessionError(f"{path}: was recorded before this machine's last boot")
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, lock_fd := lock_session(path))
            journal = read_journal(layout.private(path, layout.JOURNAL))
            if journal.closed is not None or values["state"] != layout.RECORDING:
                raise SessionError(f"{path}: is closed; a writer cannot go on with it")
            writer = cls.reopen(disk, path, clock, values, lock_fd, journal)
            writer._told.journal.append("resume")
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
        journal: JournalState,
    ) -> SessionWriter:
        """Open a session as a journal has it: every file is cut to its length there.

        Args:
            disk, path, clock: as for `resume`.
            values: of ``session.json``.
            lock_fd: from `lock_session`; the writer takes it over, unless this fails.
            journal: the state to go on from.

        Raises:
            SessionError: a file is shorter than the journal says.
        """
        writer = cls(disk, path, clock, values, lock_fd)
        try:
            writer._resume(journal)
        except ValueError as error:
            raise SessionError(f"{path}: {error}") from None
        return writer

    def declare(self, spec: StreamSpec, sensor: str = "") -> None:
        """Take a stream's declaration; nothing is on disk before its second sample.

        Args:
            spec: the stream.
            sensor: whose it is; what a driver of several streams lost when it died shows in all.

        Raises:
            ProtocolError: the stream was declared before, in another form.
        """
        track = self._tracks.get(spec.name)
        if track is not None:
            check_same(track.store.spec, spec)
            track.sensor = sensor
            return
        store = StreamStore(self._disk, self.path, spec, self.start_ns - self.start_mono_ns)
        track = Track(store, sensor)
        track.restore(self._restored, spec.name)
        # The lock may be waiting for the disk: whoever iterates makes itself a list instead.
        self._tracks[spec.name] = track

    def append(self, message: Message) -> None:
        """Append one accepted message.

        Raises:
            OSError: the disk refused; the session must be sealed.
        """
        with self.lock, self._unbroken:
            track = self._tracks[message.stream]
            if track.held:
                track.held.append(message)
            else:
                self._append(track, message)
            if track.held and may_begin(track.held):
                self._release(track)
            self.appended[message.stream] = (message.epoch, message.number + 1)

    def commit(self) -> None:
        """Make everything appended so far durable; then `durable` says so.

        Raises:
            OSError: the disk refused; the session must be sealed.
        """
        if (step_ns := self._clock_watch.step_ns()) is not None:
            self.event("clock", cause="step", step_ns=step_ns)
        with self.lock, self._unbroken:
            self._told.take_incoming()
            self._told.events.write_due(self._told.now_ns())
            if self._told.vrs is not None:
                self._told.vrs.drain()
            lengths, dirty = self._flush()
            positions = dict(self._restored.positions)  # of what is not declared again yet
            positions |= {name: t.position() for name, t in list(self._tracks.items())}
            content = {"files": lengths, "streams": positions, "events": self._told.events.pending}
            body = json.dumps(content)  # a copy too: the append thread goes on changing its parts
            if body == self._committed:
                return
        self._disk.sync_files(dirty)
        committed = json.loads(body)
        with self.lock:
            self._told.journal.commit(t_ns=self._clock.monotonic_ns(), **committed)
        self._told.journal.sync()
        self._committed, self._last = body, committed
        self._told.events.uncommitted.clear()
        self.durable = {name: (p["epoch"], p["number"]) for name, p in positions.items()}

    def event(self, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """Log an event of now; never waits for the disk."""
        self.record_event(make_event(kind, self._told.now_ns(), stream, cause, **more))

    def record_event(self, event: dict[str, Any]) -> None:
        """Log an event as it stands; never waits for the disk."""
        self._told.incoming.append(event)

    def lose_tail(self, stream: str) -> None:
        """A driver was gone before it could say how its stream ended: an interval of loss."""
        with self.lock:
            if (track := self._tracks.get(stream)) is not None:
                self._release(track)
                self._told.lose_interval(track, self._clock.monotonic_ns())
            else:
                self._told.lose_absent(stream, self._restored.positions[stream])

    def tell_next(self, name: str) -> None:
        """Say durably which session continues this one."""
        with self.lock:
            self._told.journal.append("split", next=name)
        self._told.journal.sync()

    def close(self, state: str, end_ns: int | None = None) -> None:
        """End the session: formats finished, everything durable, state written.

        Args:
            state: ``clean``, or ``recovered``.
            end_ns: epoch ns of its end; now unless given.
        """
        with self.lock:
            for track in self._tracks.values():
                self._release(track)
                track.store.finish()
            self._told.take_incoming()
            self._told.events.write_due()
            if self._told.vrs is not None:
                self._told.vrs.finish()
        self.commit()
        self._describe(state, self._end_ns() if end_ns is None else end_ns)
        self._told.journal.append("close", state=state)
        self._told.journal.sync()
        self.abandon()
        with contextlib.suppress(OSError):  # whoever recovers the session will do it
            remove_leftovers(self._disk, self.path)

    def abandon(self) -> None:
        """Close descriptors and let go of the lock; writes nothing of its own."""
        self._close_files()
        os.close(self._lock_fd)

    def _close_files(self) -> None:
        files: list[AppendFile | JournalWriter] = [*self._files(), self._told.journal]
        for file in files:
            with contextlib.suppress(OSError):
                file.close()

    def seal(self, reason: str) -> None:
        """Mark a session whose disk failed, as far as that disk still allows."""
        # Where even this fails the journal still ends at the last commit: recovery goes by that.
        self._close_files()
        now_ns = self._clock.monotonic_ns()
        losses = events_of_seal(
            self._tracks, self._last, reason, self._told.now_ns(), now_ns, self.start_mono_ns
        )
        for name, position in self._absent().items():
            if position["ended"] is None:
                losses.append(self._told.absent_loss(name, position, DISK))
        told = [*self._told.events.uncommitted, *self._told.events.pending, *self._told.incoming]
        append_events(self._disk, self.path, self._last, [*told, *losses])
        with contextlib.suppress(OSError):
            self._values["sealed"] = reason
            self._describe(layout.SEALED, self._told.now_ns())
        os.close(self._lock_fd)

    @property
    def until_ns(self) -> int | None:
        """Samples at or after this CLOCK_MONOTONIC time are not wanted."""
        return self._told.until_ns

    @property
    def vrs(self) -> SessionVrs | None:
        """``session.vrs``; None where none is written."""
        return self._told.vrs

    @property
    def bytes(self) -> int:
        """Bytes of all streams and of ``session.vrs``, with what closing that will take."""
        vrs = 0 if self._told.vrs is None else self._told.vrs.size
        return vrs + sum(track.store.bytes for _, track in self._written())

    def positions(self) -> dict[str, dict[str, Any]]:
        """By stream, how far appending has come (with samples, losses, bytes).

        Takes no lock, so that a stalled disk does not hold up whoever asks.
        """
        positions = {n: p | {"bytes": 0, "adjusted": 0} for n, p in self._absent().items()}
        for name, track in list(self._tracks.items()):
            more = {"bytes": track.store.bytes, "adjusted": track.store.adjusted}
            positions[name] = track.position() | more
        return positions

    def _absent(self) -> dict[str, dict[str, Any]]:
        """Positions of streams without a sample that no driver has declared to this writer."""
        known = list(self._restored.positions.items())
        return {name: position for name, position in known if name not in self._tracks}

    def _append(self, track: Track, message: Message) -> None:
        store = track.store
        if message.kind is Kind.DATA and not store.exists:
            track.held.append(message)
            return
        if message.epoch != track.epoch:
            if not track.epoch:
                self._take_earlier_life(track, message.epoch)
            self._told.new_epoch(track, message)
        match message.kind:
            case Kind.DATA:
                t_mono, ts = store.append(message)
                if (vrs := self._told.vrs) is not None:
                    vrs.data(store.spec, message, t_mono, ts)
            case Kind.LOST:
                self._told.lose(track, message)
            case Kind.STATE:
                self._told.state(track, message)
            case Kind.END:
                self._told.end(track, message)
        track.number = message.number + 1
        track.seq = message.next_seq if message.kind in (Kind.DATA, Kind.LOST) else message.seq

    def _take_earlier_life(self, track: Track, epoch: int) -> None:
        """Where a driver died before this stream gave anything, it lost that time, too."""
        cut_short = {
            life
            for other in list(self._tracks.values())
            if track.sensor and other.sensor == track.sensor
            for life in (other.epoch, *other.past)
            if 0 < life < epoch and other.ends.get(life, (None, ""))[0] is None
        }
        if cut_short:
            self._told.begin_epoch(track, max(cut_short))

    def _release(self, track: Track) -> None:
        """Write what was held back until a second sample came, or the end."""
        if not track.held:
            return
        if not track.store.exists:
            track.store.create(lambda: self._declare_durably(track.store.spec))
        held, track.held = track.held, []
        for message in held:
            self._append(track, message)

    def _declare_durably(self, spec: StreamSpec) -> None:
        self._told.journal.append("stream", spec=spec.to_wire())
        self._told.journal.sync()

    def _describe(self, state: str, end_ns: int) -> None:
        """Write ``session.json`` with all that is known at a session's end."""
        self._values |= {
            "state": state,
            "end_ns": end_ns,
            "streams": {n: t.store.spec.to_wire() for n, t in self._written()},
            "epochs": {n: t.describe_epochs() for n, t in self._tracks.items() if t.epochs},
        }
        layout.write_session_json(self._disk, self.path, self._values)

    def _written(self) -> list[tuple[str, Track]]:
        return [(name, track) for name, track in list(self._tracks.items()) if track.store.exists]

    def _files(self) -> list[AppendFile]:
        stores = [f for _, track in self._written() for f in track.store.files]
        return [*self._told.files, *stores]

    def _flush(self) -> tuple[dict[str, int], list[AppendFile]]:
        lengths, dirty = {}, []
        for file in self._files():
            file.flush()
            name = self._names.get(file.path)
            if name is None:
                name = self._names[file.path] = str(file.path.relative_to(self.path))
            lengths[name] = file.length
            if file.dirty:
                dirty.append(file)
                file.dirty = False
        return lengths, dirty

    def _resume(self, journal: JournalState) -> None:
        self._told = Chronicle.reopen(self._disk, self.path, self._values, self._clock, journal)
        for name, spec in journal.specs.items():
            store = StreamStore(self._disk, self.path, spec, self.start_ns - self.start_mono_ns)
            lengths = {
                key.partition("/")[2]: length
                for key, length in journal.files.items()
                if key.partition("/")[0] == name
            }
            position = journal.positions.get(name, {})
            if lengths:
                store.resume(lengths, position["last_ns"])
            else:
                self._set_aside(name)
            track = self._tracks[name] = Track(store)
            track.restore(journal, name)
        self._restored = journal
        self._last = {"files": journal.files, "streams": journal.positions}
        for name, position in journal.positions.items():
            self.durable[name] = (position["epoch"], position["number"])
            self.appended[name] = self.durable[name]
        self._told.open_journal()

    def _set_aside(self, name: str) -> None:
        """Move a folder that was made after the last commit out of the way of its successor."""
        for folder in (self.path / name, layout.private(self.path, f"{name}.tmp")):
            if folder.exists():
                salvage = layout.private(self.path, layout.SALVAGE)
                number = sum(1 for _ in salvage.iterdir())
                self._disk.rename(folder, salvage / f"{name}.{number}")

    def _end_ns(self) -> int:
        """Now; later where a source that plays faster than time has come further."""
        latest = max((t.store.last_ns for t in self._tracks.values()), default=0)
        return max(self._told.now_ns(), latest + self.start_ns - self.start_mono_ns)
