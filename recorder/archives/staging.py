"""Archives are made beside their place and come into it when they are complete.

::

    with staging(place, "rig-1") as folder:             # place/.rig-1.part, ours alone
        ...                                             # make rig-1.zarr and rig-1.json in it
        publish(folder, place, Packed(("rig-1.zarr", "rig-1.json")))
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from recorder.archives.base import Packed
from recorder.contract.errors import SessionError, StorageError
from recorder.formats.disk import PosixDisk, make_folders

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@contextlib.contextmanager
def staging(place: Path, name: str) -> Iterator[Path]:
    """An empty folder beside an archive's place, ours alone; removed in the end.

    Raises:
        SessionError: another process packs this archive.
        StorageError: the folder cannot be made.
    """
    folder = place / f".{name}.part"
    try:
        fd = _locked(folder)
        try:
            empty(folder)  # what an interrupted run has left
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
        with contextlib.suppress(OSError):  # else the next run does it
            empty(folder)
            folder.rmdir()
        os.close(fd)


def _locked(folder: Path) -> int:
    """A descriptor of a folder, made durably where there was none, with its lock."""
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
        os.close(fd)  # another process was done with it, and removed it, since it was opened


def empty(folder: Path) -> None:
    """Remove all that a folder holds."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def publish(folder: Path, place: Path, packed: Packed) -> tuple[Path, ...]:
    """Rename what is complete into place; an older archive's files end up in the folder.

    One file or folder changes places with its older one in one step.  Of several, the last names
    the others: the older one goes first and the new one comes last, so that a kill in between
    leaves nothing that names what it does not belong to.

    What fails, or is interrupted, is taken back.

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


# What undoes a step is known before the step is taken: an interrupt may come right behind it.


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
    """Let two files or folders change places in one step (renameat2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    function = getattr(libc, "renameat2", None)
    if function is not None:
        names = os.fsencode(one), os.fsencode(other)
        if function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
    _exchange_by_renames(one, other)


def _exchange_by_renames(one: Path, other: Path) -> None:
    """For file systems that cannot exchange: at `other` there is no moment without a file, but
    one without a folder."""
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


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; what is linked counts once."""
    if not path.is_dir():
        return path.stat().st_size
    stats = (p.stat() for p in path.rglob("*") if p.is_file())
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}.values())
