"""Deletion of old sessions as configured, and protection of kept sessions.

A session is deleted only if it is closed, not in use, not kept (``_recorder/keep``), and has all
archives of its config.  A session disappears in one step (a rename into a private folder of the
root); then its files are deleted.  Links, and sessions with another file system mounted in them,
are never deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder.common.errors import RecorderError, SessionError, StorageError
from recorder.common.files import FOLDER_MODE, PosixDisk
from recorder.config.settings import RetentionSettings
from recorder.integrity.signatures import register_deletion
from recorder.recording.host.disk import mounted_below
from recorder.recording.logs import ERROR, WARNING, LogLine
from recorder.recording.root_lock import FOLDER
from recorder.recording.supervisor import process_table
from recorder.session import layout
from recorder.session.discovery import find_sessions
from recorder.session.summary import folder_bytes

_DELETED = "deleted"
_INDEX_S = 1800.0
_DAY_NS = 86_400_000_000_000
_DAMAGE = (
    RecorderError,
    OSError,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    RecursionError,
)
_KNOWN_NS = 1_577_836_800_000_000_000
"""Start of 2020, epoch ns: an earlier session end shows that the clock was not set."""


def keep(session: Path, *, release: bool = False) -> bool:
    """Protect a session from deletion, durably; with `release`, remove the protection.

    Returns:
        Whether the protection changed.

    Raises:
        SessionError: the folder is no session of the recorder.
        StorageError: the folder cannot be written to.
    """
    if not layout.private(session).is_dir():
        raise SessionError(f"{session}: no session of the recorder")
    path = layout.private(session, layout.KEEP)
    if path.exists() is not release:
        return False
    disk = PosixDisk()
    try:
        if release:
            path.unlink()
            disk.sync_folder(path.parent)
        else:
            disk.write_file(path, json.dumps({"kept": True}).encode())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error
    return True


def is_kept(session: Path) -> bool:
    """Return whether the session is kept; assume so if its disk cannot be read."""
    try:
        layout.private(session, layout.KEEP).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def is_unclaimed(session: Path, values: Mapping[str, Any]) -> bool:
    """Return whether a session was recorded into a ring and is not kept.

    Args:
        session: the session's folder.
        values: the content of ``session.json``.
    """
    return values.get("ring") is True and not is_kept(session)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session with its folder, end (epoch ns), size in bytes, and whether it may be deleted.

    The files' age replaces the end of a session that was recorded before the clock was set.
    """

    path: Path
    end_ns: int
    bytes: int
    deletable: bool


def choose(
    sessions: Iterable[Candidate], settings: RetentionSettings, now_ns: int | None
) -> list[Candidate]:
    """Return the sessions to delete, oldest first.

    Args:
        sessions: all candidates; those that may not be deleted count in size.
        settings: retention settings of the config.
        now_ns: the time, epoch ns; None if unknown: no session is deleted for its age.
    """
    ordered = sorted(sessions, key=lambda s: (s.end_ns, s.path.name))
    chosen = []
    dated_ns = None
    if settings.days is not None and now_ns is not None:
        dated_ns = now_ns - settings.days * _DAY_NS
    total = sum(session.bytes for session in ordered)
    for session in ordered:
        old = dated_ns is not None and _KNOWN_NS < session.end_ns < dated_ns
        much = settings.gb is not None and total > settings.gb * 1e9
        if session.deletable and (old or much):
            chosen.append(session)
            total -= session.bytes
    return chosen


def candidates(
    root: Path, live: str | None, unfinished: Callable[[Path], bool], *, ring: bool = False
) -> list[Candidate]:
    """Return the sessions below a root, except the open one.

    Args:
        root: folder of sessions.
        live: folder of the session being recorded; None without one.
        unfinished: returns whether a session has steps left that must precede its deletion.
        ring: whether there is a ring, which deletes its own parts.
    """
    found = []
    for path in find_sessions(root):
        if str(path) == live or not _is_own(path):
            continue
        try:
            values = layout.read_session_json(path)
            if ring and is_unclaimed(path, values):
                continue
            closed = values["state"] in (layout.CLEAN, layout.RECOVERED)
            end_ns = int(values["end_ns"] or values["start_ns"])
            if end_ns <= _KNOWN_NS:
                end_ns = layout.private(path, layout.SESSION_JSON).stat().st_mtime_ns
        except _DAMAGE:
            continue  # damaged: left for a user to inspect
        size, whole = _measure(path)
        deletable = whole and closed and not is_kept(path) and not unfinished(path)
        found.append(Candidate(path, end_ns, size, deletable))
    return found


def _is_own(session: Path) -> bool:
    """Return whether the session and its private folder are real folders, not links."""
    try:
        return all(
            stat.S_ISDIR(path.lstat().st_mode) for path in (session, layout.private(session))
        )
    except OSError:
        return False


def _measure(session: Path) -> tuple[int, bool]:
    """Return a session's size in bytes, and whether it lies on one file system.

    Files that disappear meanwhile are ignored; links are not followed.
    """
    devices = set()
    try:
        for folder, _, _ in os.walk(session):
            with contextlib.suppress(OSError):
                devices.add(os.lstat(folder).st_dev)
        whole = len(devices) == 1 and not mounted_below(session)
    except (OSError, RecursionError):  # folders that lie too deep cannot be deleted either
        whole = False
    return folder_bytes(session), whole


def delete(session: Path, *, copied: bool = False) -> bool:
    """Delete a session unless it is kept or a process uses it; return whether it was deleted.

    Args:
        session: the session's folder.
        copied: whether a copy exists, so that its signatures do not count as deleted.

    Raises:
        StorageError: the session cannot be deleted.
    """
    if not _is_own(session):
        return False
    try:
        fd = os.open(layout.private(session, layout.LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if is_kept(session):
            return False
        if not copied:
            register_deletion(session)
        hidden = _bin(session.parent) / session.name
        try:
            hidden.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            session.rename(hidden)
            if is_kept(hidden):  # kept since the check above
                hidden.rename(session)
                return False
            PosixDisk().sync_folder(session.parent)
            shutil.rmtree(hidden)
        except OSError as error:
            raise StorageError(f"{session}: cannot be deleted: {error.strerror}") from None
        return True
    finally:
        os.close(fd)


def _bin(root: Path) -> Path:
    """Return the private folder of the sessions that are being deleted."""
    return root / FOLDER / _DELETED


def _empty(folder: Path) -> None:
    """Delete the rest of interrupted deletions."""
    try:
        if folder.is_symlink() or folder.parent.is_symlink():
            return
        left = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in left:
        if not is_kept(Path(path)):
            shutil.rmtree(path, ignore_errors=True)


def sweep(
    root: Path,
    settings: RetentionSettings,
    now_ns: int | None,
    live: str | None,
    unfinished: Callable[[Path], bool],
    say: LogLine,
    *,
    ring: bool = False,
) -> list[str]:
    """Delete the sessions that `choose` returns; return the names of the deleted ones.

    The rest of interrupted deletions is deleted, too.  The index of the reports, if the root has
    one, is rewritten.
    """
    _empty(_bin(root))
    if settings.gb is None and settings.days is None:
        return []
    gone: list[str] = []
    try:
        known = candidates(root, live, unfinished, ring=ring)
    except (RecorderError, OSError) as error:  # the disk is missing at the moment
        say(f"retention: {error}", ERROR)
        return gone
    for session in choose(known, settings, now_ns):
        try:
            if delete(session.path):
                gone.append(session.path.name)
                say(f"retention: deleted {session.path} ({session.bytes / 1e9:.2f} GB)")
        except RecorderError as error:
            say(f"retention: {error}", ERROR)
    if gone and (root / layout.INDEX).exists():
        _renew_index(root, say)
    return gone


def _renew_index(root: Path, say: LogLine) -> None:
    """Rewrite the index of the reports in a process at idle priority."""
    try:
        subprocess.run(
            process_table.INDEX.command(str(root)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_INDEX_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        say(f"retention: {root / layout.INDEX}: not written again: {error}", WARNING)
