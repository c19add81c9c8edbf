"""Linux calls that the standard library of Python lacks."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

IO_CLASSES = {"realtime": 1, "best-effort": 2, "idle": 3}
"""Names of the classes of ioprio_set(2)."""
_IO_CLASS_SHIFT = 13
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # numbers of ioprio_set(2)
_IOPRIO_WHO_PROCESS = 1
_SYNC_FILE_RANGE_WRITE = 2
_AT_FDCWD = -100
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2


def set_io_priority(pid: int, io_class: str, level: int) -> None:
    """Set the I/O priority of a process (ioprio_set(2)).

    Args:
        pid: the process; 0 is the calling thread.
        io_class: one of `IO_CLASSES`.
        level: 0 (first) to 7; ignored in the class idle.

    Raises:
        OSError: the kernel refuses, or the call's number is not known for this machine.
    """
    number = _IOPRIO_SET.get(platform.machine())
    if number is None:
        raise OSError(0, f"not known for {platform.machine()}")
    value = IO_CLASSES[io_class] << _IO_CLASS_SHIFT | (0 if io_class == "idle" else level)
    if _libc().syscall(number, _IOPRIO_WHO_PROCESS, pid, value):
        raise _error()


def be_idle() -> None:
    """Lower this process to the lowest CPU priority and, where the kernel can, I/O priority."""
    os.nice(19)
    with contextlib.suppress(OSError):  # the niceness alone remains
        set_io_priority(0, "idle", 0)


def sync_file_system(folder: Path) -> None:
    """Make everything on a folder's file system durable (syncfs(2), else sync(2)).

    Raises:
        OSError: the folder cannot be opened or synced; names the folder.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs = getattr(_libc(), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(fd):
            raise _error(str(folder))
    finally:
        os.close(fd)


def exchange_names(one: Path, other: Path) -> bool:
    """Exchange the names of two files or folders in one step (renameat2(2)).

    Returns:
        False if nothing was done, because the file system or the C library cannot.
    """
    try:
        _renameat2(one, other, _RENAME_EXCHANGE)
    except OSError:
        return False
    return True


def rename_new(one: Path, other: Path) -> bool:
    """Rename a file, unless the new name exists (renameat2(2)).

    Returns:
        False if the new name exists.

    Raises:
        OSError: the file cannot be renamed; EINVAL, ENOSYS: the file system or the C library
            cannot.
    """
    try:
        _renameat2(one, other, _RENAME_NOREPLACE)
    except FileExistsError:
        return False
    return True


def _renameat2(one: Path, other: Path, flags: int) -> None:
    function = getattr(_libc(), "renameat2", None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one))
    if function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), flags):
        raise _error(str(other))


def begin_writeback(fd: int, offset: int, size: int) -> None:
    """Ask the kernel to begin to write a range now; an error is reported by the next sync."""
    if _sync_file_range is not None:
        _sync_file_range(fd, offset, size, _SYNC_FILE_RANGE_WRITE)


def is_resident(address: int, size: int) -> bool:
    """Return whether the page cache holds any page of a mapping (mincore(2)); True if unknown."""
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    if _libc().mincore(ctypes.c_size_t(address), ctypes.c_size_t(size), pages):
        return True
    return any(page & 1 for page in pages)


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _error(path: str | None = None) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), path)


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    function = getattr(_libc(), "sync_file_range", None)
    if function is not None:  # glibc
        function.argtypes = ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
    return cast("Callable[[int, int, int, int], int] | None", function)


_sync_file_range = _find_sync_file_range()
