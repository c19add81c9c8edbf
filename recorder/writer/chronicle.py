"""What a session is told besides samples: epochs, losses, ends, states, incidents.

Each goes where it belongs: into the journal, the event log, the log of states, and, as records,
into ``session.vrs`` where there is one.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from pathlib import Path
from typing import Any

from recorder.contract.clock import Clock
from recorder.contract.wire import Message
from recorder.formats.disk import AppendFile, Disk
from recorder.session import layout
from recorder.session.events import EventLog, make_event
from recorder.session.journal import JournalState, JournalWriter
from recorder.writer.session_vrs import SessionVrs
from recorder.writer.track import Track, first_time, last_time

NORMAL_ENDS = ("eof", "stopped", "duration", "split")


class Chronicle:
    """Writes all that is no sample; its caller holds the session's lock.

    Attributes:
        incoming: events from any thread, on their way into the log.
        events, log, journal: the session's own files.
        vrs: ``session.vrs``; None where none is written.
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
        """Use `create` or `reopen`."""
        self.incoming: deque[dict[str, Any]] = deque()
        self.events = events
        self.log = log
        self.journal = journal
        self.vrs = vrs
        self._values = values
        self._clock = clock
        self._start_mono_ns: int = values["start_mono_ns"]
        self._offset_ns: int = values["start_ns"] - self._start_mono_ns

    @classmethod
    def create(cls, disk: Disk, session: Path, values: dict[str, Any], clock: Clock) -> Chronicle:
        """The files of a new session, durable on return."""
        folder = layout.private(session)
        with contextlib.ExitStack() as undo:
            files = []
            for name in (layout.EVENTS, layout.LOG, layout.JOURNAL):
                files.append(disk.create(folder / name))
                undo.callback(files[-1].close)
            vrs = None
            if values.get("record_format"):
                vrs = SessionVrs.create(disk, session, values)
                undo.callback(vrs.close)
            events, log, journal = files
            made = cls(values, clock, EventLog(events), log, JournalWriter(journal), vrs)
            made.open_journal()
            disk.sync_folder(folder)
            if vrs is not None:
                disk.sync_folder(session)
            undo.pop_all()
        return made

    @classmethod
    def reopen(
        cls,
        disk: Disk,
        session: Path,
        values: dict[str, Any],
        clock: Clock,
        state: JournalState,
    ) -> Chronicle:
        """The files of a session, cut to what its journal says."""

        def reopened(name: str) -> AppendFile:
            length = state.files.get(f"{layout.PRIVATE}/{name}", 0)
            return disk.reopen(layout.private(session, name), length)

        with contextlib.ExitStack() as undo:
            file = disk.reopen(layout.private(session, layout.JOURNAL), state.length)
            undo.callback(file.close)
            journal = JournalWriter(file, state.commits)
            events = EventLog(reopened(layout.EVENTS), state.events)
            undo.callback(events.file.close)
            log = reopened(layout.LOG)
            undo.callback(log.close)
            vrs = None
            if values.get("record_format"):
                vrs = SessionVrs.reopen(disk, session, values, state.files)
            undo.pop_all()
        return cls(values, clock, events, log, journal, vrs)

    def open_journal(self) -> None:
        """Say that a writer begins, or goes on, here."""
        self.journal.append(
            "open",
            boot_id=self._values["boot_id"],
            start_mono_ns=self._start_mono_ns,
            start_ns=self._values["start_ns"],
            t_ns=self._clock.monotonic_ns(),
        )
        self.journal.sync()

    @property
    def files(self) -> list[AppendFile]:
        """All but the journal's."""
        return [self.events.file, self.log, *(self.vrs.files if self.vrs is not None else ())]

    @property
    def until_ns(self) -> int | None:
        """Samples at or after this CLOCK_MONOTONIC time are not wanted."""
        duration = self._values["duration_s"]
        return None if duration is None else self._start_mono_ns + round(duration * 1e9)

    def now_ns(self) -> int:
        """Epoch ns of now, on the session's clock."""
        return self._clock.monotonic_ns() + self._offset_ns

    def take_incoming(self) -> None:
        """Log what other threads have told of."""
        while self.incoming:
            self.event(self.incoming.popleft())

    def event(self, event: dict[str, Any]) -> None:
        """Log an event."""
        if self.vrs is not None:
            self.vrs.event(event)
        self.events.add(event)

    def new_epoch(self, track: Track, message: Message) -> None:
        """A driver has started (again): `message` is its first."""
        if track.epoch:
            track.past.append(track.epoch)
            if track.ended is None:  # the driver died: what it had not sent, nobody can count
                self.lose_interval(track, first_time(message) or self._clock.monotonic_ns())
        self.begin_epoch(track, message.epoch)
        if self.vrs is not None:
            self.vrs.begin_epoch(track.store.spec, message, track.store.last_ns)

    def begin_epoch(self, track: Track, epoch: int) -> None:
        """Put down that an epoch begins with the stream's next sample."""
        name, samples = track.store.spec.name, track.store.samples
        track.epoch, track.ended = epoch, None
        track.epochs.append((epoch, samples))
        self.journal.append("epoch", stream=name, epoch=epoch, sample=samples)

    def lose_interval(self, track: Track, until_ns: int) -> None:
        """Log a loss that nobody can count, from the stream's last sample to `until_ns`."""
        if self.until_ns is not None:
            until_ns = min(until_ns, self.until_ns)
        since, rate = track.store.last_ns, track.store.spec.rate_hz
        gap = max(0, until_ns - (since if since >= 0 else self._start_mono_ns))
        estimate = max(0, round(gap * rate / 1e9) - 1) if rate else None
        if track.epoch:
            self._tell_end(track, None, "gone")
        track.unknown_losses += 1
        self.event(
            make_event(
                "lost",
                self.now_ns(),
                track.store.spec.name,
                "driver",
                duration_ns=gap,
                first_seq=track.seq,
                epoch=track.epoch,
                estimate=estimate,
            )
        )

    def lose_absent(self, stream: str, position: dict[str, Any]) -> None:
        """Log that a stream without a sample, whose driver has not come back, is all lost."""
        self.event(self.absent_loss(stream, position, "driver"))

    def absent_loss(self, stream: str, position: dict[str, Any], cause: str) -> dict[str, Any]:
        """The event for that; it is added to the position.

        Args:
            stream: its name.
            position: as the journal has it.
            cause: what to call it.
        """
        position["unknown_losses"] += 1
        return make_event(
            "lost",
            self.now_ns(),
            stream,
            cause,
            duration_ns=self._clock.monotonic_ns() - self._start_mono_ns,
            first_seq=position["seq"],
            epoch=position["epoch"] or None,
        )

    def lose(self, track: Track, message: Message) -> None:
        """A driver tells of a loss."""
        values = dict(message.values)
        cause = str(values.pop("cause", "unknown"))
        if message.count is None:
            track.unknown_losses += 1
            last_seq = None
        else:
            track.lost[cause] = track.lost.get(cause, 0) + message.count
            last_seq = message.next_seq - 1
        known = {
            "first_seq": message.seq,
            "last_seq": last_seq,
            "count": message.count,
            "epoch": message.epoch,
        }
        t_ns = last_time(message) + self._offset_ns
        event = make_event("lost", t_ns, message.stream, cause, **values)
        self.event(event | known)

    def end(self, track: Track, message: Message) -> None:
        """A driver ends its stream."""
        track.ended = str(message.values.get("reason", "ended"))
        self._tell_end(track, message.seq, track.ended)
        if track.ended not in NORMAL_ENDS:
            detail = message.values.get("detail", "")
            self.event(
                make_event("fault", self.now_ns(), message.stream, track.ended, detail=detail)
            )

    def _tell_end(self, track: Track, sent: int | None, reason: str) -> None:
        name, epoch = track.store.spec.name, track.epoch
        track.ends[epoch] = (sent, reason)
        self.journal.append("end", stream=name, epoch=epoch, sent=sent, reason=reason)
        if self.vrs is not None:
            self.vrs.end_epoch(track.store.spec, epoch, sent, reason, self.now_ns())

    def state(self, track: Track, message: Message) -> None:
        """A driver tells of its state."""
        t_ns = last_time(message) + self._offset_ns
        line = {"t_ns": t_ns, "stream": message.stream, "state": message.values}
        self.log.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        if self.vrs is not None:
            self.vrs.state(track.store.spec, message, t_ns)
