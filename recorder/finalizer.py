"""Finished sessions become archives.

::

    for result in finalize(Path("sessions/rig-1"), [Step("ncore", {})]):
        result.files, result.notes

A session is verified first: only what is closed or recovered is packed, and it is only read.  Each
archive is made in a hidden folder beside its place, ``.NAME.part``; complete and synced, its files
are renamed into place, over older ones.  What an interrupted run left in that folder is removed by
the next one, which starts that archive again.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.archives.base import Job, Notes, Packed, Packer, load_packer
from recorder.contract.errors import RecorderError, SessionError, StorageError, UsageError
from recorder.contract.streams import TIME_CHANNELS
from recorder.formats.disk import FOLDER_MODE, PosixDisk
from recorder.processing.calibration import Calibration, read_calibration
from recorder.session.layout import LOCK, RECORDING, SEALED, private
from recorder.session.reader import Session
from recorder.session.report import ERROR
from recorder.session.validation import validate

ARCHIVES = "_archives"
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # linux syscall numbers of ioprio_set(2)
_IOPRIO_IDLE = 3 << 13

Progress = Callable[[str, float, float], None]
"""Is told the archive, the work done and all the work, from time to time."""


@dataclass(frozen=True)
class Step:
    """One archive to pack: its name and options, as they were given."""

    archive: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finalized:
    """An archive that is in place.

    Attributes:
        session: the session's folder.
        archive: its kind.
        files: what was put into place.
        bytes: of all that.
        seconds: that it took.
        summary: what is in it.
        notes: what was odd about the session, each once.
    """

    session: Path
    archive: str
    files: tuple[Path, ...]
    bytes: int
    seconds: float
    summary: Mapping[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """A step whose packer is there and whose options are right."""

    packer: Packer
    options: Mapping[str, Any]


def prepare(steps: Iterable[Step]) -> list[Prepared]:
    """Look at the steps before any work is done.

    Raises:
        UsageError: there is no such archive, something is not installed, an option is wrong.
    """
    prepared = []
    for step in steps:
        packer = load_packer(step.archive)
        prepared.append(Prepared(packer, packer.check(step.options)))
    return prepared


def finalize(
    path: Path,
    steps: Sequence[Step],
    *,
    out: Path | None = None,
    calibration: Path | None = None,
    progress: Progress = lambda *_: None,
) -> Iterator[Finalized]:
    """Pack a session's archives, one after the other.

    Args:
        path: the session's folder.
        steps: which archives.
        out: folder for them instead of the session's ``_archives``.
        calibration: a calibration file instead of the session's own.
        progress: see `Progress`.

    Yields:
        each archive when it is in place.

    Raises:
        UsageError: see `prepare`; ConfigError: the calibration is wrong.
        SessionError: the session is being recorded, was not closed, or is damaged.
        ArchiveError, FormatError, StorageError: names archive, stream and sample; nothing of that
            archive is left, and an older one is as it was.
    """
    prepared = prepare(steps)
    with _hold(path):
        notes = verify(path)
        known = _calibration(path, calibration)
        root = path / ARCHIVES if out is None else out
        for step in prepared:
            with Session(path, virtual=True) as session:
                yield _pack(session, step, root, known, notes, progress)


@contextlib.contextmanager
def _hold(path: Path) -> Iterator[None]:
    """Keep recovery and other writers from the session while it is read."""
    if not path.is_dir():
        raise SessionError(f"{path}: no such session folder")
    try:
        fd = os.open(private(path, LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # a plain roverd trace
        return
    except OSError as error:
        raise SessionError(f"{path}: cannot be locked: {error.strerror}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SessionError(f"{path}: is being recorded or recovered; not packed") from None
        yield
    finally:
        os.close(fd)


def verify(path: Path) -> list[str]:
    """Whether a session can be packed; returns what is odd but no hindrance.

    Raises:
        SessionError: it was not closed, or something in it is damaged; says what to do.
    """
    with Session(path) as session:
        state = session.state
    if state in (RECORDING, SEALED):
        why = "was sealed when its disk failed" if state == SEALED else "was not closed"
        raise SessionError(f"{path}: {why}; run `recorder recover {path}` first")
    report = validate(path)
    odd: list[str] = []
    for problem in report.problems:
        if problem.severity != ERROR:
            continue
        virtual = problem.stream is not None and problem.stream.startswith("_")
        if problem.channel not in TIME_CHANNELS and not virtual:
            more = sum(p.severity == ERROR for p in report.problems) - 1
            rest = f" (and {more} more; see `recorder validate`)" if more else ""
            raise SessionError(f"{path}: is damaged, not packed: {problem.message}{rest}")
        odd.append(f"{problem.stream}: {problem.message}")
    return odd


def _calibration(path: Path, given: Path | None) -> Calibration:
    if given is not None:
        return read_calibration(given)
    own = path / "calibration.yaml"
    return read_calibration(own) if own.is_file() else Calibration()


def _pack(
    session: Session,
    step: Prepared,
    root: Path,
    calibration: Calibration,
    odd: Iterable[str],
    progress: Progress,
) -> Finalized:
    name = step.packer.name
    started = time.monotonic()
    place = root / name
    with _staging(place, session.name) as folder:
        done = 0.0
        job = Job(session, folder, step.options, calibration, Notes(list(odd)))
        total = step.packer.ticks(job)

        def advance(amount: float) -> None:
            nonlocal done
            done += amount
            progress(name, done, total)

        job.advance = advance
        progress(name, 0.0, total)
        try:
            packed = step.packer.pack(job)
            files = _publish(folder, place, packed)
        except UsageError:
            raise
        except RecorderError as error:
            raise type(error)(f"{session.path}: {name}: {error}") from error
        except OSError as error:
            reason = f"{error.filename or folder}: {error.strerror or error}"
            raise StorageError(f"{session.path}: {name}: {reason}") from error
    size = sum(_size(path) for path in files)
    seconds = time.monotonic() - started
    lines = tuple(job.notes.lines)
    return Finalized(session.path, name, files, size, seconds, packed.summary, lines)


@contextlib.contextmanager
def _staging(place: Path, session: str) -> Iterator[Path]:
    """An empty folder beside the archive's place, ours alone; removed in the end."""
    folder = place / f".{session}.part"
    try:
        for parent in reversed([folder, *folder.parents]):
            with contextlib.suppress(FileExistsError):
                parent.mkdir(FOLDER_MODE)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SessionError(f"{folder}: another process packs this archive") from None
        _empty(folder)  # what an interrupted run has left
        try:
            yield folder
        finally:
            _empty(folder)
            with contextlib.suppress(OSError):
                folder.rmdir()
    finally:
        os.close(fd)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _publish(folder: Path, place: Path, packed: Packed) -> tuple[Path, ...]:
    """Rename what is complete into place; an older archive's files end up in the folder."""
    disk = PosixDisk()
    disk.sync_folder(folder)
    changed: list[tuple[Path, Path, bool]] = []
    try:
        for name in packed.files:
            source, target = folder / name, place / name
            exchanged = target.exists()
            if exchanged:
                _exchange(source, target)
            else:
                source.rename(target)
            changed.append((source, target, exchanged))
        disk.sync_folder(place)
    except OSError:
        for source, target, exchanged in reversed(changed):
            with contextlib.suppress(OSError):
                _exchange(source, target) if exchanged else target.rename(source)
        raise
    for name in packed.stale:
        old = place / name
        with contextlib.suppress(OSError):
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    disk.sync_folder(place)
    return tuple(place / name for name in packed.files)


def _exchange(one: Path, other: Path) -> None:
    """Let two files or folders change places in one step (renameat2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    function = getattr(libc, "renameat2", None)
    if function is not None:
        names = os.fsencode(one), os.fsencode(other)
        if function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
    if one.is_dir() or other.is_dir():  # a file system that cannot: not in one step
        aside = one.with_name(one.name + ".old")
        other.rename(aside)
        one.rename(other)
        aside.rename(one)
    else:
        one.replace(other)


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def be_idle() -> None:
    """Give way to everything else on the machine, in CPU and in disk."""
    os.nice(19)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:  # elsewhere the niceness has to do
        ctypes.CDLL(None).syscall(number, 1, 0, _IOPRIO_IDLE)
