"""The folder of sessions, held by one daemon at a time."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from recorder.contract.errors import StorageError, UsageError
from recorder.formats.disk import FILE_MODE, make_folders
from recorder.session.layout import ROOT_PRIVATE
from recorder.session.lock import lock_is_held

FOLDER = ROOT_PRIVATE
LOCK = "daemon.lock"
_TRIES = 20


def is_held(root: Path) -> bool:
    """Whether a daemon records into this root."""
    return lock_is_held(root / FOLDER / LOCK)


class RootLock:
    """Holds a root from `take` to `release`, or to the end of the process.

    >>> lock = RootLock(root)  # doctest: +SKIP
    >>> lock.take()  # doctest: +SKIP
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fd = -1

    @property
    def held(self) -> bool:
        return self._fd >= 0

    def take(self) -> None:
        """Take the lock; the folder is made if it is missing.

        Raises:
            UsageError: another daemon has it.
            StorageError: the folder cannot be made or written to.
        """
        folder = self._root / FOLDER
        try:
            make_folders(folder)
            fd = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise StorageError(f"{folder}: cannot be made: {error.strerror}") from None
        for _ in range(
            _TRIES
        ):  # a process that only asks for the lock's state holds it for an instant
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.01)
            else:
                self._fd = fd
                return
        os.close(fd)
        raise UsageError(f"{self._root}: another daemon records there")

    @property
    def lost(self) -> bool:
        """Whether the held lock file is not in place: the folder is gone, or on another disk."""
        if not self.held:
            return False
        try:
            there = (self._root / FOLDER / LOCK).stat()
        except OSError:
            return True
        own = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino)

    def release(self) -> None:
        """Let go of it."""
        if self.held:
            os.close(self._fd)
            self._fd = -1
