"""Writer of a session's epochs, losses, ends, states and events, everything except samples.

The files are the journal, the event log and the log of states; ``session.vrs`` gets records.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from recorder.bus.messages import CHANGED, SampleState
from recorder.bus.wire import Message
from recorder.common.clock import Clock
from recorder.common.files import AppendFile
from recorder.common.struct_codec import decode_values
from recorder.recording.writer.rate_monitor import RateMonitor, RateShortfall, get_least_ns
from recorder.recording.writer.session_vrs import SessionVrs
from recorder.recording.writer.stream_files import StreamFiles
from recorder.recording.writer.stream_state import (
    StreamState,
    first_time,
    last_time,
    uncounted_loss,
)
from recorder.session import layout
from recorder.session.events import (
    ABSENT_STREAMS,
    INCOMPLETE,
    SILENT,
    EventLog,
    floor_hz,
    make_event,
)
from recorder.session.journal.digests import DigestingDisk, digest
from recorder.session.journal.journal import JournalWriter
from recorder.session.journal.state import JournalState
from recorder.session.missing_sensors import ABSENT

LATE = "late"
"""Cause of the loss of a played source that was stopped before the end of the duration."""
HUNG = "hung"
"""Cause of the fault and of the loss of a driver that was killed because it hung."""
_ID_BYTES = 16  # makes the first record unique
NORMAL_ENDS = ("eof", "stopped", "duration", "split")


class EventWriter:
    """Writer of everything except samples; its caller holds the session's lock.

    Attributes:
        incoming: events from any thread that are not yet logged.
        events, log, journal: the session's own files.
        vrs: ``session.vrs``; None if it is not written.
        start_mono_ns: CLOCK_MONOTONIC of the session's start.
    """

    def __init__(
        self,
        values: dict[str, Any],
        clock: Clock,
        events: EventLog,
        log: AppendFile,
        journal: JournalWriter,
        vrs: SessionVrs | None,
    ) -> None:
        """Initialize a log; call `create` or `reopen` instead."""
        self.incoming: deque[dict[str, Any]] = deque()
        self.events = events
        self.log = log
        self.journal = journal
        self.vrs = vrs
        self._values = values
        self._clock = clock
        self._slow: dict[str, RateMonitor | None] = {}
        self.absent_streams: dict[str, list[str]] = {}  # by sensor, as its driver reports
        self._hung: dict[str, int] = {}  # by sensor, the time at which its driver hung
        self.start_mono_ns: int = values["start_mono_ns"]
        self._offset_ns: int = values["start_ns"] - self.start_mono_ns
        self._of_sources = values.get("source_start_ns") is not None
        self._latest_ns = self.start_mono_ns  # latest time of a sample

    @classmethod
    def create(
        cls, disk: DigestingDisk, session: Path, values: dict[str, Any], clock: Clock
    ) -> EventWriter:
        """Create the files of a new session, durable on return."""
        folder = layout.private(session)
        with contextlib.ExitStack() as undo:
            files = []
            for name in (layout.EVENTS, layout.LOG, layout.JOURNAL):
                its_disk = disk.plain if name == layout.JOURNAL else disk
                files.append(its_disk.create(folder / name))
                undo.callback(files[-1].close)
            vrs = None
            if values.get("record_format"):
                vrs = SessionVrs.create(disk, session, values)
                undo.callback(vrs.close)
            events, log, journal = files
            made = cls(values, clock, EventLog(events), log, JournalWriter(journal), vrs)
            configuration = ("config.yaml", "calibration.yaml")
            texts = [session / name for name in configuration if (session / name).exists()]
            digests = {path.name: digest(path.read_bytes()) for path in texts}
            made.open_journal(files=digests, id=os.urandom(_ID_BYTES).hex())
            disk.sync_folder(folder)
            if vrs is not None:
                disk.sync_folder(session)
            undo.pop_all()
        return made

    @classmethod
    def reopen(
        cls,
        disk: DigestingDisk,
        session: Path,
        values: dict[str, Any],
        clock: Clock,
        state: JournalState,
        written: JournalState,
    ) -> EventWriter:
        """Reopen a session's files, cut to a state's lengths; the journal continues `written`."""

        def reopened(name: str) -> AppendFile:
            length = state.files.get(f"{layout.PRIVATE}/{name}", 0)
            return disk.reopen(layout.private(session, name), length)

        with contextlib.ExitStack() as undo:
            path = layout.private(session, layout.JOURNAL)
            file = disk.plain.reopen(path, written.length)
            undo.callback(file.close)
            journal = JournalWriter(file, written)
            events = EventLog(reopened(layout.EVENTS), state.events)
            undo.callback(events.file.close)
            log = reopened(layout.LOG)
            undo.callback(log.close)
            vrs = None
            if values.get("record_format"):
                vrs = SessionVrs.reopen(disk, session, values, state.files, written.tags_at)
            undo.pop_all()
        return cls(values, clock, events, log, journal, vrs)

    def open_journal(self, **more: Any) -> None:
        """Record that a writer begins or resumes."""
        start = {key: self._values[key] for key in ("boot_id", "start_mono_ns", "start_ns")}
        self.journal.append("open", **start, t_ns=self._clock.monotonic_ns(), **more)
        self.journal.sync()

    @property
    def files(self) -> list[AppendFile]:
        """All files except the journal."""
        vrs = self.vrs.files if self.vrs is not None else ()
        return [self.events.file, self.log, *vrs]

    @property
    def tags_at(self) -> list[int] | None:
        """Offsets of TAGS records in ``session.vrs``; None without that file."""
        return None if self.vrs is None else self.vrs.tags_at

    @property
    def until_ns(self) -> int | None:
        """Samples at or after this CLOCK_MONOTONIC time are not wanted."""
        duration = self._values["duration_s"]
        return None if duration is None else self.start_mono_ns + round(duration * 1e9)

    def now_ns(self) -> int:
        """Return the time, epoch ns on the session's clock."""
        return self.now_mono_ns() + self._offset_ns

    def now_mono_ns(self) -> int:
        """Return CLOCK_MONOTONIC; in a session with its sources' times, the latest sample's."""
        return self._latest_ns if self._of_sources else self._clock.monotonic_ns()

    def make_current_event(
        self, kind: str, stream: str, cause: str, *, age_ns: int = 0, **more: Any
    ) -> dict[str, Any]:
        """Create an event `age_ns` before the current time, but not before the session's start."""
        mono_ns = max(self.now_mono_ns() - age_ns, self.start_mono_ns)
        return make_event(kind, mono_ns + self._offset_ns, stream, cause, **more)

    def take_incoming(self) -> None:
        """Log the events of other threads."""
        while self.incoming:
            self.event(self.incoming.popleft())

    def event(self, event: dict[str, Any]) -> None:
        """Log an event."""
        if (event["type"], event["cause"]) == ("fault", HUNG):
            self._hung[event["stream"]] = self._clock.monotonic_ns()
        if self.vrs is not None:
            self.vrs.event(event)
        self.events.add(event)

    def declare(self, store: StreamFiles) -> None:
        """Record a stream's declaration, durably."""
        files = {name: digest(data) for name, data in store.metadata().items()}
        self.journal.append("stream", spec=store.spec.to_wire(), files=files)
        self.journal.sync()

    def new_epoch(self, progress: StreamState, message: Message) -> None:
        """Begin an epoch with the first `message` of a driver that has started."""
        if progress.epoch:
            progress.past.append(progress.epoch)
            if progress.ended is None:  # the driver died: its unsent samples cannot be counted
                self.lose_interval(progress, first_time(message) or self._clock.monotonic_ns())
        self.begin_epoch(progress, message.epoch)
        if self.vrs is not None:
            self.vrs.begin_epoch(progress.store.spec, message, progress.store.last_ns)

    def begin_epoch(self, progress: StreamState, epoch: int) -> None:
        """Record that an epoch begins with the stream's next sample."""
        name, samples = progress.store.spec.name, progress.store.samples
        if self._slow.get(name) is None:  # the stream had ended, and continues
            self._slow.pop(name, None)
        progress.epoch, progress.ended = epoch, None
        progress.epochs.append((epoch, samples))
        first_seq = progress.first_seqs.get(epoch)
        cut = {"first_seq": first_seq} if first_seq else {}
        self.journal.append("epoch", stream=name, epoch=epoch, sample=samples, **cut)

    def lose_interval(self, progress: StreamState, until_ns: int) -> None:
        """Log an uncounted loss from the stream's last sample to `until_ns`.

        An ended stream has such a loss only if its device has changed.  The samples of a played
        source after a change are counted instead.
        """
        if progress.ended is not None:
            header = self._header(progress)
            if progress.ended != CHANGED or header is None or not header["live"]:
                return
        self.take_incoming()
        if self.until_ns is not None:
            until_ns = min(until_ns, self.until_ns)
        since = progress.store.last_ns
        if (watch := self._watch(progress)) is not None:
            self._lose_slow(progress, watch.count_loss(until_ns, None))
        gap_ns = max(0, until_ns - (since if since >= 0 else progress.since_ns))
        if progress.epoch and progress.ended is None:
            self.record_end(progress, None, "gone")
        cause = HUNG if self._hung.get(progress.sensor, -1) > since else "driver"
        cause = cause if progress.ended is None else CHANGED
        self.event(uncounted_loss(progress, self.now_ns(), cause, gap_ns, 1))

    def absent_loss(self, stream: str, position: dict[str, Any], cause: str) -> dict[str, Any]:
        """Create the event of a whole stream's loss, and count the loss in the position.

        Args:
            stream: name of the stream.
            position: the stream's position in the journal.
            cause: cause of the loss.
        """
        position["unknown_losses"] += 1
        gap_ns = self._clock.monotonic_ns() - self.start_mono_ns
        where = {"first_seq": position["seq"], "epoch": position["epoch"] or None}
        return make_event("lost", self.now_ns(), stream, cause, duration_ns=gap_ns, **where)

    def lose_sensor(self, stream: str, end_ns: int | None) -> None:
        """Log the loss of a whole stream whose sensor was absent for the whole session.

        Args:
            stream: name of the stream, or of the sensor if no driver has declared a stream.
            end_ns: epoch ns of the session's end; None: now.
        """
        end_ns = self.now_ns() if end_ns is None else end_ns
        gap_ns = max(0, end_ns - self.start_mono_ns - self._offset_ns)
        self.event(make_event("lost", end_ns, stream, ABSENT, duration_ns=gap_ns))

    def count_samples(self, progress: StreamState, first_ns: int, last_ns: int, count: int) -> None:
        """Count samples of a stream; log slow or silent intervals as losses."""
        self._latest_ns = max(self._latest_ns, last_ns)
        if (watch := self._watch(progress)) is not None:
            self._lose_slow(progress, watch.count_samples(first_ns, last_ns, count))

    def _watch(self, progress: StreamState) -> RateMonitor | None:
        """Return the monitor of a stream's rate; None if the stream has no minimum rate."""
        name = progress.store.spec.name
        if name not in self._slow:
            header = self._header(progress)
            floor = None
            if header is not None:
                floor = floor_hz(progress.sensor or name, header, progress.store.spec)
            last_ns = progress.store.last_ns
            start_ns = last_ns if last_ns >= 0 else progress.since_ns
            self._slow[name] = None if floor is None else RateMonitor(floor, start_ns)
        return self._slow[name]

    def _header(self, progress: StreamState) -> dict[str, Any] | None:
        """Return the sensor's entry in ``session.json`` for a stream; None if it lacks ``live``."""
        header = self._values["sensors"].get(progress.sensor or progress.store.spec.name)
        return header if header is not None and "live" in header else None

    def _lose_slow(self, progress: StreamState, intervals: list[RateShortfall]) -> None:
        for slow in intervals:
            gap_ns, t_ns = slow.until_ns - slow.since_ns, slow.until_ns + self._offset_ns
            self.event(uncounted_loss(progress, t_ns, slow.cause, gap_ns, slow.given))

    def _end_watch(self, progress: StreamState, reason: str) -> None:
        """Log the losses of an ended stream: slow, silent or missing."""
        header = self._header(progress)
        if header is None:
            return
        store, end_ns = progress.store, self._clock.monotonic_ns()
        overdue = self.until_ns is not None and end_ns >= self.until_ns
        late = overdue and reason == "stopped" and not header["live"]
        if (reason == "duration" or late) and self.until_ns is not None:
            end_ns = self.until_ns
        elif not header["live"] or reason not in NORMAL_ENDS or reason == "eof":
            end_ns = store.last_ns  # the source had no more samples, or none were requested
        watch = self._watch(progress)
        self._slow[store.spec.name] = None
        found = [] if watch is None else watch.finish(end_ns)
        if late:  # a played source is never silent: it was stopped early
            found = [replace(f, cause=LATE) if f.cause == SILENT else f for f in found]
        never = store.samples == 0 and not progress.unknown_losses and not progress.lost
        never = never and not store.spec.sporadic
        if never and not found and reason in NORMAL_ENDS and reason != "eof":
            end_ns = max(end_ns, min(self._clock.monotonic_ns(), self.until_ns or end_ns))
            if end_ns - progress.since_ns >= get_least_ns(store.spec):
                found = [RateShortfall(SILENT, progress.since_ns, end_ns)]
        self._lose_slow(progress, found)

    def lose(self, progress: StreamState, message: Message) -> None:
        """Log a loss that a driver reports."""
        if (watch := self._watch(progress)) is not None:
            self._lose_slow(progress, watch.count_loss(last_time(message), message.count))
        values = dict(message.values)
        cause = str(values.pop("cause", "unknown"))
        if message.count is None:
            progress.unknown_losses += 1
            last_seq = None
        else:
            progress.lost[cause] = progress.lost.get(cause, 0) + message.count
            last_seq = message.next_seq - 1
        known = {"first_seq": message.seq, "last_seq": last_seq, "count": message.count}
        t_ns = last_time(message) + self._offset_ns
        event = make_event("lost", t_ns, message.stream, cause, **values)
        self.event(event | known | {"epoch": message.epoch})

    def end(self, progress: StreamState, message: Message) -> None:
        """Record that a driver ends its stream."""
        progress.ended = str(message.values.get("reason", "ended"))
        self._end_watch(progress, progress.ended)
        self.record_end(progress, message.seq, progress.ended)
        if progress.ended not in NORMAL_ENDS:
            detail = message.values.get("detail", "")
            self.event(
                make_event("fault", self.now_ns(), message.stream, progress.ended, detail=detail)
            )

    def record_end(self, progress: StreamState, sent: int | None, reason: str) -> None:
        """Record an epoch's end in the journal and in ``session.vrs``, without an event."""
        name, epoch = progress.store.spec.name, progress.epoch
        progress.ends[epoch] = (sent, reason)
        self.journal.append("end", stream=name, epoch=epoch, sent=sent, reason=reason)
        if self.vrs is not None:
            self.vrs.end_epoch(progress.store.spec, epoch, sent, reason, self.now_ns())

    def state(self, progress: StreamState, message: Message) -> None:
        """Log a state that a driver reports, and count its incomplete samples."""
        t_ns = last_time(message) + self._offset_ns
        if message.values.keys() & {INCOMPLETE, ABSENT_STREAMS}:
            state = decode_values(message.values, SampleState, f"{message.stream}: state")
            self._count_incomplete(progress, message, state, t_ns)
            if ABSENT_STREAMS in message.values:
                self.absent_streams[progress.sensor] = state.absent_streams
        line = {"t_ns": t_ns, "stream": message.stream, "state": message.values}
        self.log.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        if self.vrs is not None:
            self.vrs.state(progress.store.spec, message, t_ns)

    def _count_incomplete(
        self, progress: StreamState, message: Message, state: SampleState, t_ns: int
    ) -> None:
        for cause, found in state.incomplete.items():
            progress.count_incomplete(cause, found.samples, found.parts)
            counts = {"count": found.samples, "parts": found.parts, "epoch": message.epoch}
            self.event(make_event(INCOMPLETE, t_ns, message.stream, cause, **counts))
