"""The lock of a session, and the id of the machine's boot."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from recorder.common.errors import RecorderError, SessionError
from recorder.common.files import PosixDisk
from recorder.session import layout

_TRIES = 50  # of 10 ms each


def boot_id() -> str:
    """Return the id of this boot of the machine (random(4), proc)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def lock_session(path: Path) -> int:
    """Take a session's lock; return the descriptor that holds it.

    Raises:
        SessionError: another process writes this session.
    """
    fd = os.open(layout.private(path, layout.LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o640)
    for _ in range(_TRIES):  # `lock_is_held` holds it for an instant
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            time.sleep(0.01)
    os.close(fd)
    raise SessionError(f"{path}: another writer has this session open")


@contextlib.contextmanager
def hold_session(path: Path) -> Iterator[bool]:
    """Block recovery and retention of a session while it is read.

    Yields:
        Whether they are blocked; False if a process records, recovers or deletes the session.
        A plain roverd trace has no lock, and no writer.

    Raises:
        SessionError: the lock cannot be taken.
    """
    try:
        fd = os.open(layout.private(path, layout.LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    except OSError as error:
        raise SessionError(f"{path}: cannot be locked: {error.strerror}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            held = False
        yield held
    finally:
        os.close(fd)


def lock_is_held(path: Path) -> bool:
    """Return whether a process holds the flock of a lock file; False if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(fd)
    return False


def record_seal(path: Path, reason: str) -> None:
    """Record why a session's disk failed, if the writer could not, and the disk works again.

    Nothing happens where the session has an end already, or the disk still fails.
    """
    with contextlib.suppress(OSError, RecorderError):
        lock_fd = lock_session(path)
        try:
            values = layout.read_session_json(path)
            if values.get("state") == layout.RECORDING:
                values |= {"state": layout.SEALED, "sealed": reason}
                layout.write_session_json(PosixDisk(), path, values)
        finally:
            os.close(lock_fd)
