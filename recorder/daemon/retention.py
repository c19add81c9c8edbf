"""Old sessions, deleted where the config asks for it; and those that are kept.

Deleted is only what is closed, is nobody's at the moment, has all the archives that its config
asks for, and is not kept: ``_recorder/keep`` keeps it.  A session disappears in one step (a
rename), then its bytes go.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from recorder.contract.errors import RecorderError, SessionError, StorageError
from recorder.contract.settings import RetentionSettings
from recorder.formats.disk import PosixDisk
from recorder.session.layout import CLEAN, LOCK, RECOVERED, private, read_session_json
from recorder.session.reader import find_sessions

KEEP = "keep"
_DELETED = ".deleted"
_DAY_NS = 86_400_000_000_000


def keep(session: Path, *, release: bool = False) -> bool:
    """Keep a session from being deleted, durably; or no longer.

    Returns:
        Whether anything was changed.

    Raises:
        SessionError: there is no session of the recorder.
        StorageError: its folder cannot be written to.
    """
    if not private(session).is_dir():
        raise SessionError(f"{session}: no session of the recorder")
    path = private(session, KEEP)
    if path.exists() is not release:
        return False
    disk = PosixDisk()
    try:
        if release:
            path.unlink()
            disk.sync_folder(path.parent)
        else:
            disk.write_file(path, json.dumps({"kept": True}).encode())
    except PermissionError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from None
    return True


def is_kept(session: Path) -> bool:
    """Whether the session is kept."""
    return private(session, KEEP).exists()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A closed session: its folder, when it ended (epoch ns), and its size in bytes."""

    path: Path
    end_ns: int
    bytes: int
    deletable: bool


def choose(
    sessions: Iterable[Candidate], settings: RetentionSettings, now_ns: int
) -> list[Candidate]:
    """Which sessions are to be deleted, oldest first.

    Args:
        sessions: all closed ones; those that may not be deleted count in size.
        settings: the config's.
        now_ns: epoch ns of now.
    """
    ordered = sorted(sessions, key=lambda s: (s.end_ns, s.path.name))
    chosen = []
    total = sum(session.bytes for session in ordered)
    for session in ordered:
        old = settings.days is not None and now_ns - session.end_ns > settings.days * _DAY_NS
        much = settings.gb is not None and total > settings.gb * 1e9
        if session.deletable and (old or much):
            chosen.append(session)
            total -= session.bytes
    return chosen


def candidates(root: Path, live: str | None, unfinished: Callable[[Path], bool]) -> list[Candidate]:
    """The closed sessions below a root.

    Args:
        root: folder of sessions.
        live: folder of the session that is being recorded.
        unfinished: whether archives are still due of a session.
    """
    found = []
    for path in find_sessions(root):
        if str(path) == live or not private(path).is_dir():
            continue
        try:
            values = read_session_json(path)
            closed = values["state"] in (CLEAN, RECOVERED)
            end_ns = int(values["end_ns"] or values["start_ns"])
        except (RecorderError, KeyError, TypeError, ValueError):
            continue  # damaged: somebody has to look at it
        deletable = closed and not is_kept(path) and not unfinished(path)
        found.append(Candidate(path, end_ns, folder_size(path), deletable))
    return found


def folder_size(path: Path) -> int:
    """Bytes of all files below a folder; what vanishes meanwhile does not count."""
    size = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(OSError):
                size += (Path(folder) / name).lstat().st_size
    return size


def delete(session: Path) -> bool:
    """Delete a session, unless somebody writes, reads or packs it at the moment.

    Raises:
        StorageError: it cannot be deleted.
    """
    try:
        fd = os.open(private(session, LOCK), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if is_kept(session):
            return False
        hidden = session.with_name(f".{session.name}{_DELETED}")
        try:
            session.rename(hidden)
            PosixDisk().sync_folder(session.parent)
            shutil.rmtree(hidden)
        except OSError as error:
            raise StorageError(f"{session}: cannot be deleted: {error.strerror}") from None
        return True
    finally:
        os.close(fd)


def sweep(
    root: Path,
    settings: RetentionSettings,
    now_ns: int,
    live: str | None,
    unfinished: Callable[[Path], bool],
    say: Callable[[str], None],
) -> list[str]:
    """Delete what `choose` chooses; returns the names of what is gone.

    What an interrupted deletion has left is removed too.
    """
    for left in root.glob(f".*{_DELETED}"):
        shutil.rmtree(left, ignore_errors=True)
    if settings.gb is None and settings.days is None:
        return []
    gone = []
    for session in choose(candidates(root, live, unfinished), settings, now_ns):
        try:
            if delete(session.path):
                gone.append(session.path.name)
                say(f"retention: deleted {session.path} ({session.bytes / 1e9:.2f} GB)")
        except RecorderError as error:
            say(f"retention: {error}")
    return gone
