"""Access of the ring manager to the folder of sessions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from recorder.common.errors import RecorderError, SessionError
from recorder.common.files import Disk, PosixDisk
from recorder.recording.postprocessing.retention import delete, is_kept
from recorder.recording.ring.event_window import PartFacts, read_facts
from recorder.recording.ring.retention_policy import Part
from recorder.session import layout
from recorder.session.discovery import find_sessions
from recorder.session.event_clips import (
    KeptEvent,
    read_events,
    read_index,
    write_events,
    write_unstored,
)
from recorder.session.journal.journal import read_journal
from recorder.session.lock import lock_is_held
from recorder.session.summary import folder_bytes


class Storage:
    """Sessions and events below a root.

    Args:
        root: folder of sessions.
        ram: folder of the parts in RAM; None without a ring in RAM.
        disk: injectable.
    """

    def __init__(self, root: Path, ram: Path | None = None, disk: Disk | None = None) -> None:
        self.root = root
        self._ram = ram
        self._disk = disk or PosixDisk()

    def find(self) -> set[Path]:
        """Return the folders of all sessions.

        Raises:
            SessionError: the root cannot be listed.
        """
        found = set(find_sessions(self.root))
        if self._ram is not None:
            with suppress(SessionError):  # the first part creates the folder
                found.update(find_sessions(self._ram))
        return found

    def look(self, path: Path, known: Part | None, *, live: bool) -> Part | None:
        """Read a session as a part; None if it is missing or damaged.

        Args:
            path: the session's folder.
            known: the result of the previous call; None before.
            live: whether the session is open.
        """
        if known is not None and known.closed:
            return replace(known, kept=is_kept(path)) if path.exists() else None
        try:
            values = layout.read_session_json(path)
            start_ns = int(values["start_ns"])
            closed = not live and values["state"] in (layout.CLEAN, layout.RECOVERED)
            end_ns = int(values["end_ns"] or start_ns) if closed else None
            volatile = self._ram is not None and path.parent == self._ram
            reach_ns = None
            if not live and not closed:
                reach_ns = None if known is None else known.reach_ns  # a process recovers it
                if reach_ns is None and not lock_is_held(layout.private(path, layout.LOCK)):
                    reach_ns = _reach_ns(path, values)
                if volatile and reach_ns is not None:
                    end_ns = reach_ns
        except (RecorderError, LookupError, TypeError, ValueError, OSError):
            return None
        of_ring = values.get("ring") is True
        size = folder_bytes(path) if of_ring else 0
        previous = values.get("previous")
        kept = is_kept(path)
        return Part(path, start_ns, end_ns, size, of_ring, kept, previous, volatile, reach_ns)

    def facts(self, path: Path) -> PartFacts:
        """Read the content of a closed session.

        Raises:
            RecorderError, OSError: the session cannot be read.
        """
        return read_facts(path)

    def events(self, failed: Callable[[str], None]) -> list[KeptEvent]:
        """Read all events, by time.

        Args:
            failed: called with a message for each file that cannot be read.

        Raises:
            SessionError: the root cannot be listed.
        """
        return read_index(self.root, failed)

    def store(self, path: Path, event: KeptEvent) -> None:
        """Store an event in a session, durably.

        Raises:
            OSError: the event cannot be written.
            FormatError: the session's existing events cannot be read.
        """
        others = [known for known in read_events(path) if known.id != event.id]
        write_events(self._disk, path, [*others, event])

    def store_apart(self, event: KeptEvent, *, remove: bool = False) -> None:
        """Store an event that no session holds, durably; with `remove`, delete it.

        Raises:
            OSError, FormatError: see `store`.
        """
        write_unstored(self._disk, self.root, event, remove=remove)

    def rescue(self, path: Path) -> Path:
        """Move a part from RAM to the root, durably; return its new folder.

        Raises:
            OSError: the part cannot be copied; the next call replaces an incomplete copy.
        """
        target, staging = self.root / path.name, self.root / f".{path.name}.rescue"
        if not target.exists():
            shutil.rmtree(staging, ignore_errors=True)
            shutil.copytree(path, staging)
            for folder, _, files in os.walk(staging, topdown=False):
                for name in files:
                    _sync(Path(folder, name))
                self._disk.sync_folder(Path(folder))
            self._disk.rename(staging, target)
        layout.private(path, layout.KEEP).unlink(missing_ok=True)
        with suppress(RecorderError):  # a part that cannot be deleted is deleted with the ring
            delete(path, copied=True)
        return target

    def delete(self, path: Path) -> bool:
        """Delete a session unless a process uses it; return whether it was deleted.

        Raises:
            StorageError: the session cannot be deleted.
        """
        return delete(path)

    def free_bytes(self) -> int:
        """Return the free space on the ring's file system, in bytes.

        Raises:
            OSError: the folder cannot be read.
        """
        return layout.free_bytes(self._ram or self.root)


def _reach_ns(path: Path, values: Mapping[str, Any]) -> int | None:
    """Return the latest stamp that a session left open by a crash may have, epoch ns, or None.

    The journal has the stamps of the committed samples.  Later samples are at most as late as the
    newest file, unless the clock was set back.  None means that the stamps cannot be read.
    """
    try:
        offset_ns = int(values["start_ns"]) - int(values["start_mono_ns"])
        positions = read_journal(layout.private(path, layout.JOURNAL)).positions.values()
        stamps = [int(position.get("last_ns", -1)) + offset_ns for position in positions]
        written = [file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()]
    except (RecorderError, LookupError, TypeError, ValueError, OSError):
        return None
    return max(stamps + written) + int(values.get("sync_interval_ms", 0)) * 1_000_000


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
