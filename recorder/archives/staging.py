"""Staging of archives: written beside their final place, renamed into place when complete.

::

    with staging(place, "rig-1") as folder:             # place/.rig-1.part, locked
        ...                                             # write rig-1.zarr and rig-1.json into it
        publish(folder, place, PackedFiles(("rig-1.zarr", "rig-1.json")))
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from recorder.archives.base import PackedFiles
from recorder.common.errors import SessionError, StorageError
from recorder.common.files import PosixDisk, make_folders
from recorder.common.syscalls import exchange_names


@contextlib.contextmanager
def staging(place: Path, name: str) -> Iterator[Path]:
    """Make and lock an empty folder beside an archive's place; remove the folder at the end.

    Raises:
        SessionError: another process packs this archive.
        StorageError: the folder cannot be made.
    """
    folder = place / f".{name}.part"
    try:
        fd = _lock_folder(folder)
        try:
            empty(folder)  # files of an interrupted run
        except BaseException:
            os.close(fd)
            raise
    except BlockingIOError:
        raise SessionError(f"{folder}: another process packs this archive") from None
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):  # otherwise the next run empties the folder
            empty(folder)
            folder.rmdir()
        os.close(fd)


def _lock_folder(folder: Path) -> int:
    """Make a folder durably if it is missing, and lock it; return its descriptor."""
    while True:
        make_folders(folder)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), folder.stat()):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # another process finished and removed the folder after it was opened


def empty(folder: Path) -> None:
    """Remove everything in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def publish(folder: Path, place: Path, packed: PackedFiles) -> tuple[Path, ...]:
    """Rename complete files into place; move files of an older archive into the folder.

    A single file or folder is exchanged with its older version in one step.  The last of several
    files names the others: its older version is moved away first and its new version is moved into
    place last, so that a kill in between leaves no file that names files of the other archive.

    A failure or an interrupt is rolled back.

    Raises:
        OSError: a rename failed.
    """
    disk = PosixDisk()
    disk.sync_folder(folder)
    undo = contextlib.ExitStack()
    try:
        *others, last = packed.files
        if others and (place / last).exists():
            aside = folder / f"{last}.old"
            _move(place / last, aside, undo)
            disk.sync_folder(place)
        for name in (*others, last):
            if (place / name).exists():
                _exchange(folder / name, place / name, undo)
            else:
                _move(folder / name, place / name, undo)
            if others and name == others[-1]:
                disk.sync_folder(place)
        disk.sync_folder(place)
    except BaseException:
        undo.close()
        raise
    for name in packed.stale:
        old = place / name
        with contextlib.suppress(OSError):
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    disk.sync_folder(place)
    return tuple(place / name for name in packed.files)


# The undo of a step is registered before the step: an interrupt may follow immediately.


def _move(source: Path, target: Path, undo: contextlib.ExitStack) -> None:
    undo.callback(_try_move, target, source)
    source.rename(target)


def _try_move(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        source.rename(target)


def _exchange(new: Path, old: Path, undo: contextlib.ExitStack) -> None:
    undo.callback(_try_exchange_back, new, old, new.stat())
    exchange(new, old)


def _try_exchange_back(new: Path, old: Path, stat: os.stat_result) -> None:
    with contextlib.suppress(OSError):
        if os.path.samestat(old.stat(), stat):
            exchange(new, old)


def exchange(one: Path, other: Path) -> None:
    """Exchange two files or folders in one step (renameat2)."""
    if not exchange_names(one, other):
        _exchange_by_renames(one, other)


def _exchange_by_renames(one: Path, other: Path) -> None:
    """Exchange by renames, for file systems without an atomic exchange.

    A file at `other` exists at every moment; a folder is missing for a moment.
    """
    aside = one.with_name(one.name + ".old")
    try:
        try:
            aside.hardlink_to(other)
        except OSError:  # a folder, or no hard links
            other.rename(aside)
        one.replace(other)
        aside.rename(one)
    except BaseException:
        if aside.exists():
            if other.exists() and not aside.samefile(other):
                other.rename(one)
            aside.replace(other)
        raise


def measure_size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; hard-linked files count once."""
    if not path.is_dir():
        return path.stat().st_size
    stats = (p.stat() for p in path.rglob("*") if p.is_file())
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}.values())
