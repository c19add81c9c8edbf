"""Lock that allows one daemon at a time to record into a folder of sessions."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from recorder.common.errors import StorageError, UsageError
from recorder.common.files import FILE_MODE, make_folders
from recorder.session.layout import ROOT_PRIVATE
from recorder.session.lock import lock_is_held

FOLDER = ROOT_PRIVATE
LOCK = "daemon.lock"
_TRIES = 20


def is_held(root: Path) -> bool:
    """Return whether a daemon records into this root."""
    return lock_is_held(root / FOLDER / LOCK)


class RootLock:
    """Lock of a root, held from `take` to `release` or the end of the process.

    >>> lock = RootLock(root)  # doctest: +SKIP
    >>> lock.take()  # doctest: +SKIP

    Args:
        root: folder of sessions.
        others: further folders to lock, such as a ring's folder in RAM.
    """

    def __init__(self, root: Path, *others: Path) -> None:
        self._folders = (root, *others)
        self._fds: dict[Path, int] = {}

    @property
    def held(self) -> bool:
        return len(self._fds) == len(self._folders)

    def take(self) -> None:
        """Take all locks or none; create missing folders.

        Raises:
            UsageError: another daemon holds a lock.
            StorageError: a folder cannot be created or written to.
        """
        try:
            for folder in self._folders:
                self._fds[folder] = _lock(folder)
        except BaseException:
            self.release()
            raise

    @property
    def lost(self) -> bool:
        """Whether a held lock file was removed: its folder is gone, or on another disk."""
        return any(_is_lost(folder, fd) for folder, fd in self._fds.items())

    def release(self) -> None:
        """Release the locks."""
        while self._fds:
            os.close(self._fds.popitem()[1])


def _lock(root: Path) -> int:
    """Lock a root, and return the lock's descriptor."""
    folder = root / FOLDER
    try:
        make_folders(folder)
        fd = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made: {error.strerror}") from None
    for _ in range(_TRIES):  # a process that tests the lock holds it briefly
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.01)
        else:
            return fd
    os.close(fd)
    raise UsageError(f"{root}: another daemon records there")


def _is_lost(root: Path, fd: int) -> bool:
    try:
        there = (root / FOLDER / LOCK).stat()
    except OSError:
        return True
    own = os.fstat(fd)
    return (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino)
