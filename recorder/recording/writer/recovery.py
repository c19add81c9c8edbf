"""Recovery of a session whose writer died: complete samples are kept, the rest is cut and salvaged.

A recovered session equals one that a resumed writer closed at once: the journal's last commit
has the length of every file.  Later samples are kept if all channels of their stream contain them
and digests prove that they are intact (`recorder.recording.writer.verified_lengths`).  After a
power cut or a failed write, a tail may be zeros of the right length.

Before any file is changed, the bytes to cut are copied to ``_recorder/salvage/STREAM/FILE@OFFSET``.
Recovery can be repeated, even after it was killed, with the same result.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recorder.codecs.storage import Extent, PlainExtent, measure
from recorder.codecs.streams import TIME_CHANNELS, StreamSpec
from recorder.common import page_cache
from recorder.common.clock import Clock
from recorder.common.errors import FormatError, SessionError
from recorder.common.files import Disk
from recorder.integrity.signatures import RECOVERY as RECOVERY_CAUSE
from recorder.integrity.signatures import check_not_closed, sign_head
from recorder.recording.writer.disk_policy import DISK
from recorder.recording.writer.salvage import Salvage
from recorder.recording.writer.session_vrs import SessionVrs, remove_leftovers
from recorder.recording.writer.session_writer import SessionWriter
from recorder.recording.writer.tail_accounting import damaged_losses, take_tail
from recorder.recording.writer.verified_lengths import VerifiedLengths
from recorder.recording.writer.vrs_recovery import (
    INDEX,
    VrsReport,
    fit,
    measure_vrs,
    read_times,
    refill,
)
from recorder.session import layout
from recorder.session.events import INCOMPLETE, make_event
from recorder.session.journal.journal import (
    JournalWriter,
    ReadRange,
    digest_first_record,
    read_journal,
    read_range,
)
from recorder.session.journal.state import describe_close
from recorder.session.lock import boot_id, lock_is_held, lock_session

RECOVERY = "recovery"
"""Type of the event that reports a recovery."""


@dataclass(slots=True)
class StreamReport:
    """The recovery of one stream.

    Attributes:
        kept: number of samples that remain.
        committed: number of samples in the journal's last commit.
        cut_bytes: bytes moved to ``salvage``, by file.
        interval_lost: whether an uncounted loss follows the last sample: the stream had not ended.
        damaged: why the files contain less than was committed; None if they do not.
    """

    kept: int = 0
    committed: int = 0
    cut_bytes: dict[str, int] = field(default_factory=dict)
    interval_lost: bool = False
    damaged: str | None = None


@dataclass(slots=True)
class RecoveryReport:
    """Result of a recovery, or of its dry run.

    Attributes:
        session: the session's folder.
        action: ``none`` (it was closed), ``recovered``, ``would recover``.
        cause: ``killed`` (same boot), ``power`` (an earlier boot), or ``disk`` (sealed).
        streams: by name, the recovery of each stream.
        vrs: the recovery of ``session.vrs``; None without that file.
    """

    session: Path
    action: str
    cause: str = ""
    streams: dict[str, StreamReport] = field(default_factory=dict)
    vrs: VrsReport | None = None

    @property
    def lost(self) -> bool:
        """Whether a loss is known."""
        return any(s.interval_lost or s.damaged for s in self.streams.values())


def recover(
    path: Path, disk: Disk, clock: Clock, *, dry_run: bool = False, boot: str | None = None
) -> RecoveryReport:
    """Recover one session.

    Args:
        path: the session's folder.
        disk, clock: injectable.
        dry_run: change nothing; works on read-only media.
        boot: id of this boot, see `boot_id`; injectable.

    Raises:
        SessionError: the folder is no session, the session is being recorded, its journal has no
            record, or the session was already closed and signed.
        OSError: a disk error; recovery can be run again.
    """
    values = layout.read_session_json(path)
    if dry_run:
        if lock_is_held(layout.private(path, layout.LOCK)):
            raise SessionError(f"{path}: is being recorded")
        return _Recovery(path, disk, clock, values, boot, read_range).report("would recover")
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, lock_fd := lock_session(path))
        values = layout.read_session_json(path)  # read again under the lock
        recovery = _Recovery(path, disk, clock, values, boot)
        if recovery.closed:
            recovery.seal_journal()
            remove_leftovers(disk, path)
            return recovery.report("none")
        report = recovery.report("recovered")
        disk.sync_folder(path.parent)  # the writer may have died before this
        recovery.salvage()
        writer = recovery.reopen(lock_fd)
        undo.pop_all()
        undo.callback(writer.abandon)
        recovery.close(writer, report)
        undo.pop_all()
    return report


class _Recovery:
    """Recovery of one session, which measures all files before it changes any."""

    def __init__(
        self,
        path: Path,
        disk: Disk,
        clock: Clock,
        values: dict[str, Any],
        boot: str | None,
        read: ReadRange = page_cache.read_range,
    ) -> None:
        self._path = path
        self._disk = disk
        self._salvage = Salvage(disk, path)
        self._clock = clock
        self._values = values
        self._written = read_journal(layout.private(path, layout.JOURNAL), read)
        self._journal = copy.deepcopy(self._written)
        self._same_boot = self._journal.boot_id == (boot or boot_id())
        self.closed = values["state"] in (layout.CLEAN, layout.RECOVERED)
        self._reports: dict[str, StreamReport] = {}
        self._vrs: VrsReport | None = None
        self._dropped: list[Path] = []
        self._events_missing = 0
        self._unreported: dict[str, list[dict[str, Any]]] = {}  # losses without an event
        self._incomplete: list[dict[str, Any]] = []  # events about samples after the last commit
        self._events: list[dict[str, Any]] = []  # written after the last commit, and kept
        if not self.closed:
            check_not_closed(
                path, values, digest_first_record(layout.private(path, layout.JOURNAL))
            )
            self._proof = VerifiedLengths(path, self._written, read)
            self._proven = self._proof.lengths
            self._before = self._read_events()
            self._measure()

    def report(self, action: str) -> RecoveryReport:
        if self.closed:
            return RecoveryReport(self._path, "none")
        cause = "killed" if self._same_boot else "power"
        if self._values["state"] == layout.SEALED:
            cause = DISK
        return RecoveryReport(self._path, action, cause, self._reports, self._vrs)

    def seal_journal(self) -> None:
        """Append the missing final records to the journal of a closed session."""
        path, closed = layout.private(self._path, layout.JOURNAL), self._written.closed is not None
        if closed and (self._written.signed or not self._values.get("signing_key")):
            return
        self._salvage.tail(path, self._written.length)
        file = self._disk.reopen(path, self._written.length)
        journal = JournalWriter(file, self._written)
        if not closed:
            journal.append(
                "close", **describe_close(self._path, self._values["state"], self._written)
            )
        sign_head(journal, self._path, RECOVERY_CAUSE)
        journal.sync()
        journal.close()

    def _measure(self) -> None:
        for name, spec in self._journal.specs.items():
            folder = self._folder(name)
            if folder is None:
                continue
            samples, lengths = self._extent(folder, spec)
            report = self._reports[name]
            self._journal.files = {
                file: length
                for file, length in self._journal.files.items()
                if file.partition("/")[0] != name
            }
            for file in sorted(lengths):
                if cut := self._cut_bytes(folder / file, lengths[file]):
                    report.cut_bytes[file] = cut
            if not samples:  # a stream without samples makes roverd's readers fail
                if folder.parent == self._path:
                    self._dropped.append(folder)
                continue
            for file, length in lengths.items():
                self._journal.files[f"{name}/{file}"] = length
            self._set_position(name, folder, samples)
        self._keep_events()
        if self._values.get("record_format"):
            self._measure_vrs()
        for name, report in self._reports.items():
            self._account(name, report)
        for name, position in self._journal.positions.items():
            if name not in self._reports and position.get("ended") is None:  # without a sample
                self._reports[name] = StreamReport(interval_lost=True)

    def _measure_vrs(self) -> None:
        files = self._journal.files
        proven, tags_at = self._proven.get(layout.VRS, 0), self._written.tags_at
        self._vrs = measure_vrs(self._path, files, proven, tags_at)
        if self._vrs.lengths and (
            self._vrs.damaged or any(report.damaged for report in self._reports.values())
        ):
            fit(self._vrs, self._path, {name: r.kept for name, r in self._reports.items()})
        self._journal.files = {n: v for n, v in files.items() if n not in (layout.VRS, INDEX)}
        self._journal.files |= self._vrs.lengths
        if not self._vrs.lengths:
            self._values["record_format"] = None  # the session continues without it

    def _folder(self, name: str) -> Path | None:
        """Return a stream's folder, even if an earlier, killed recovery has moved it; or None."""
        for folder in (self._path / name, layout.private(self._path, layout.SALVAGE) / name):
            if any((folder / file).exists() for file in ("meta.json", "ts")):
                return folder
        return None

    def _cut_bytes(self, path: Path, length: int) -> int:
        """Return how many bytes follow a length, even if an earlier, killed recovery cut them."""
        salvage = layout.private(self._path, layout.SALVAGE)
        parts = (salvage / path.parent.name).glob(f"{path.name}@*")
        salvaged = sum(p.stat().st_size for p in parts if _offset(p) >= length)
        return max(path.stat().st_size - length, salvaged)

    def _account(self, name: str, report: StreamReport) -> None:
        """Record samples after the last commit, or the loss of committed samples."""
        if report.kept < report.committed:
            position = self._journal.positions.get(name, {})
            known = {position.get("epoch"), *position.get("past", ())}
            journalled = dict(self._journal.epochs.get(name, ())).items()
            epochs = [(epoch, index) for epoch, index in journalled if epoch in known]
            gone = damaged_losses(epochs, report.committed, report.kept)
            self._unreported[name] = [
                {"cause": "damaged", "detail": report.damaged, **g} for g in gone
            ]
            self._journal.epochs[name] = [(e, min(i, report.kept)) for e, i in epochs]
        elif report.kept > report.committed:
            path, count = self._path / name / "seq", report.kept - report.committed
            seq = np.fromfile(path, "<u8", count, offset=8 * report.committed).tolist()
            events = [e for e in self._events if (e.get("type"), e.get("stream")) == ("lost", name)]
            self._unreported[name] = take_tail(self._journal, name, seq, report.committed, events)
            report.interval_lost = not self._journal.positions[name].get("ended")

    def _extent(self, folder: Path, spec: StreamSpec) -> tuple[int, dict[str, int]]:
        """Return the samples that all channels of a stream contain, and the files' new lengths."""
        name = spec.name
        committed = self._journal.files.get(f"{name}/ts", 0) // 8
        extents = [*_times(folder, spec), *(measure(folder, c, committed) for c in spec.channels)]
        whole = min(extent.samples for extent in extents)
        position = self._journal.positions.get(name, {})
        report = StreamReport(committed=committed)
        report.interval_lost = not position.get("ended")
        if whole < committed:
            report.damaged = f"the files hold {whole} whole samples, {committed} were committed"
        samples = self._count_intact(name, extents, whole)
        if samples < committed <= whole:
            report.damaged = f"{committed} samples were committed, {samples} are intact"
        # A cut may leave fewer whole samples in a channel of blocks: repeat until all agree.
        while True:
            cuts = [extent.cut(samples) for extent in extents]
            fewer = min(cut[0] for cut in cuts)
            if fewer == samples:
                break
            samples = fewer
        report.kept = samples
        self._reports[name] = report
        lengths = {file: length for _, files in cuts for file, length in files.items()}
        for extent in extents:  # unverified padding is rewritten
            for file, needed in extent.needed(samples).items():
                if self._proven.get(f"{name}/{file}", 0) < lengths[file]:
                    lengths[file] = needed
        return samples, lengths

    def _count_intact(self, name: str, extents: Sequence[Extent], whole: int) -> int:
        """Return the number of samples whose bytes are intact."""

        def proven(samples: int) -> bool:
            try:
                lengths = {f: n for extent in extents for f, n in extent.needed(samples).items()}
            except FormatError:  # intact bytes can be parsed
                return False
            return all(n <= self._proven.get(f"{name}/{f}", 0) for f, n in lengths.items())

        return bisect_left(range(1, whole + 1), True, key=lambda samples: not proven(samples))

    def _set_position(self, name: str, folder: Path, samples: int) -> None:
        position = self._journal.positions.setdefault(name, {"epoch": 0, "number": 0})
        position["samples"] = samples
        position["last_ns"] = int(read_times(folder, "t_mono", samples - 1, samples)[0])

    def _read_events(self) -> bytes:
        path = layout.private(self._path, layout.EVENTS)
        return path.read_bytes() if path.exists() else b""

    def _keep_events(self) -> None:
        """Keep complete lines after the commit if they are intact, like samples."""
        key = f"{layout.PRIVATE}/{layout.EVENTS}"
        self._before = self._before[: self._proven.get(key, 0)]
        promised = self._journal.files.get(key, 0)
        committed = self._before.rfind(b"\n", 0, promised) + 1  # a commit ends with a line
        self._events_missing = promised - committed
        whole = b""
        for line in self._before[committed:].splitlines(keepends=True):
            # Only the samples of an epoch without a commit are certain.
            if not line.endswith(b"\n") or not all(map(self._is_committed, _lines(line))):
                break
            whole += line
        self._journal.files[key] = committed + len(whole)
        self._events = list(_lines(whole))
        self._before = self._before[: committed + len(whole)]
        known = {_identity(event) for event in self._events}
        self._journal.events = [e for e in self._journal.events if _identity(e) not in known]
        log = layout.private(self._path, layout.LOG)
        log_key = f"{layout.PRIVATE}/{layout.LOG}"
        size = min(self._proven.get(log_key, 0), log.stat().st_size if log.exists() else 0)
        length = self._journal.files[log_key] = min(self._journal.files.get(log_key, 0), size)
        if size > length:
            self._recount_incomplete(log, length, size)

    def _recount_incomplete(self, log: Path, start: int, stop: int) -> None:
        """Create the events of incomplete kept samples, which only the writer's memory held."""
        with log.open("rb") as file:
            file.seek(start)
            text = file.read(stop - start)
        written = {e.get("stream") for e in self._events if e.get("type") == INCOMPLETE}
        offset_ns = int(self._values["start_ns"]) - int(self._values["start_mono_ns"])
        for state in _lines(text[: text.rfind(b"\n") + 1]):
            name, values = str(state.get("stream")), state.get("state")
            last_ns = self._journal.positions.get(name, {}).get("last_ns", -1) + offset_ns
            if not isinstance(values, dict) or name in written or state.get("t_ns", 0) > last_ns:
                continue
            for cause, found in values.get(INCOMPLETE, {}).items():
                counts = {"count": found["samples"], "parts": found["parts"]}
                self._incomplete.append(
                    make_event(INCOMPLETE, state["t_ns"], name, cause, **counts)
                )

    def _is_committed(self, event: dict[str, Any]) -> bool:
        """Return whether the journal's last commit has the epoch of an event."""
        position = self._journal.positions.get(event.get("stream") or "", {})
        known = (None, position.get("epoch"), *position.get("past", ()))
        return event.get("epoch") in known

    def salvage(self) -> None:
        """Copy all bytes to cut, durably, before the first cut."""
        kept = self._proof.keep(self._journal.files)
        self._disk.write_file(layout.private(self._path, layout.KEPT_TAIL), kept)
        for file, length in self._journal.files.items():
            if file == layout.VRS:
                self._set_aside_vrs(length)
            elif file != INDEX:  # it can be rebuilt from session.vrs
                self._salvage.tail(self._path / file, length)
        self._salvage.tail(layout.private(self._path, layout.JOURNAL), self._journal.length)
        for folder in self._dropped:
            self._salvage.move(folder, folder.name)
        if self._vrs is not None and not self._vrs.lengths and (self._path / layout.VRS).exists():
            self._salvage.move(self._path / layout.VRS, layout.VRS)
        for folder in layout.private(self._path).glob("*.tmp"):
            if folder.is_dir():  # a file is an unfinished write, which is repeated
                self._salvage.move(folder, folder.name)

    def _set_aside_vrs(self, length: int) -> None:
        """Salvage the tail, without records that an earlier, killed recovery added."""
        if not self._is_reported():  # otherwise an earlier recovery reached its commit
            self._salvage.marked_tail(self._path / layout.VRS, length)

    def reopen(self, lock_fd: int) -> SessionWriter:
        """Open the session with its recovered state."""
        self._written.adopt(self._journal)
        how = self._disk, self._path, self._clock, self._values, lock_fd
        return SessionWriter.reopen(*how, self._journal, self._written)

    def close(self, writer: SessionWriter, report: RecoveryReport) -> None:
        """Log the losses and finish every format."""
        if writer.vrs is not None:
            self._refill(writer.vrs)
        reported = self._is_reported()
        end_ns = self._end_ns()
        if not reported:  # otherwise an earlier recovery logged them
            for event in self._losses(end_ns, report):
                writer.record_event(event)
        writer.close(layout.RECOVERED, end_ns)

    def _refill(self, vrs: SessionVrs) -> None:
        """Add the samples kept after the last commit to ``session.vrs``."""
        offset_ns = int(self._values["start_ns"]) - int(self._values["start_mono_ns"])
        records = self._vrs.records if self._vrs is not None else None
        for name, report in self._reports.items():
            first = report.committed if records is None else records.get(name, 0)
            if vrs.wants(name) and report.kept > first:
                spec, runs = self._journal.specs[name], self._journal.epochs.get(name, ())
                samples = range(first, report.kept)
                refill(vrs, self._path / name, spec, samples, runs, offset_ns)
        for event in self._events:
            vrs.event(event)

    def _is_reported(self) -> bool:
        """Return whether an earlier, interrupted recovery has logged its events."""
        return any(event["type"] == RECOVERY for event in self._all_events())

    def _all_events(self) -> Iterator[dict[str, Any]]:
        return itertools.chain(_lines(self._before), self._journal.events)

    def _end_ns(self) -> int:
        offset = int(self._values["start_ns"]) - int(self._values["start_mono_ns"])
        last = [int(p.get("last_ns", -1)) for p in self._journal.positions.values()]
        return max([*last, int(self._values["start_mono_ns"])]) + offset

    def _losses(self, end_ns: int, report: RecoveryReport) -> Iterator[dict[str, Any]]:
        interval_s = float(self._values["sync_interval_ms"]) / 1e3
        offset_ns = int(self._values["start_ns"]) - int(self._values["start_mono_ns"])
        reported = {e.get("stream") for e in self._all_events() if _is_seal_loss(e)}
        yield from self._incomplete
        for name, stream in report.streams.items():
            spec = self._journal.specs.get(name)
            position = self._journal.positions.get(name, {})
            for loss in self._unreported.get(name, ()):
                yield make_event("lost", end_ns, name, **loss)
            if stream.interval_lost and name not in reported:
                # A stream may also have been silent long before the others ended.
                last_ns = int(position.get("last_ns", -1))
                silent_ns = max(0, end_ns - offset_ns - last_ns) if last_ns >= 0 else 0
                lost_s = interval_s + silent_ns / 1e9
                estimate = round((spec.rate_hz or 0) * lost_s) if spec is not None else None
                where = {"epoch": position.get("epoch"), "first_seq": position.get("seq")}
                where["duration_ns"] = silent_ns or None
                yield make_event("lost", end_ns, name, report.cause, **where, estimate=estimate)
        cut = {f"{n}/{f}": b for n, s in report.streams.items() for f, b in s.cut_bytes.items()}
        event = make_event(RECOVERY, end_ns, cause=report.cause, cut_bytes=cut)
        # The event log may hold less than was committed.
        yield event | ({"events_missing_bytes": n} if (n := self._events_missing) else {})


def _offset(part: Path) -> int:
    """Return the offset of a salvaged part, ``FILE@OFFSET`` or ``FILE@OFFSET.NUMBER``."""
    return int(part.name.rpartition("@")[2].partition(".")[0])


def _is_seal_loss(event: dict[str, Any]) -> bool:
    """Return whether the writer itself logged the loss when the disk failed."""
    return (event.get("type"), event.get("cause")) == ("lost", DISK)


def _times(folder: Path, spec: StreamSpec) -> Iterator[Extent]:
    for name, dtype in TIME_CHANNELS.items():
        if name == "t_dev" and not spec.device_clock:
            continue
        try:
            yield PlainExtent(folder / name, np.dtype(dtype).itemsize)
        except OSError as error:
            raise SessionError(f"{folder / name}: {error.strerror}") from None


def _lines(text: bytes) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _identity(event: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(event.get(key) for key in ("t_ns", "type", "stream", "cause", "first_seq"))
