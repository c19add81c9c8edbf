"""Reads of the bytes that the device holds, past the page cache.

After a failed write the kernel marks its pages clean: reading shows bytes that the device does not
hold, the next fsync succeeds, and bytes written to these pages are lost (Linux, mm/filemap.c,
`errseq_t`; seen on ext4).  The kernel reads pages from the device, and writes them to it, only
after they were dropped from the cache.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recorder.common.syscalls import is_resident

PAGE = mmap.PAGESIZE
_BLOCK = 2 << 20
"""Largest aligned group of bytes whose pages are dropped together, or not at all."""
_TRIES = 3
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})  # they have no device behind the cache


def read_blocks(path: Path, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a range that the device holds, by blocks; fewer if the file ends before.

    Bytes that only the cache holds are written again.  If the device still does not store them,
    the range ends there, and the cache shows them as before.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("r+b", buffering=0) as file:
        fd = file.fileno()
        status = os.fstat(fd)
        stop = min(stop, status.st_size)
        while start < stop:
            begin = start // _BLOCK * _BLOCK
            cached = os.pread(fd, _BLOCK, begin)
            held = len(cached) if _in_memory(status.st_dev) else _count_held(fd, begin, cached)
            end = min(begin + held, stop)
            if end > start:
                yield cached[start - begin : end - begin]
            if held < len(cached):
                return
            start = begin + _BLOCK


def read_range(path: Path, start: int, stop: int) -> bytes:
    """Return the bytes of `read_blocks` in one piece."""
    return b"".join(read_blocks(path, start, stop))


def _count_held(fd: int, start: int, cached: bytes) -> int:
    """Return how many of the cached bytes the device holds."""
    held = _count_equal(_read_past_cache(fd, start, len(cached)), cached)
    if held < len(cached):
        with contextlib.suppress(OSError):
            os.pwrite(fd, cached, start)
        held = _count_equal(_read_past_cache(fd, start, len(cached)), cached)
    if held < len(cached):  # salvage reads these bytes from the cache
        with contextlib.suppress(OSError):
            os.pwrite(fd, cached, start)
    return held


def _read_past_cache(fd: int, start: int, size: int) -> bytes:
    """Read a range from the device; return no bytes if it cannot be read."""
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):  # after a failed write, the bytes on the device count
            os.fsync(fd)
        os.posix_fadvise(fd, start, _BLOCK, os.POSIX_FADV_DONTNEED)
        if not _is_resident(fd, start, start + size):
            with contextlib.suppress(OSError):
                return os.pread(fd, size, start)
    return _read_direct(fd, start, size)  # another process has the file mapped: these pages stay


def _read_direct(fd: int, start: int, size: int) -> bytes:
    """Read a range around the cache (O_DIRECT), without dropping its pages."""
    with contextlib.suppress(OSError):  # a file system that cannot
        direct = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            with mmap.mmap(-1, -(-size // PAGE) * PAGE) as aligned:
                return aligned[: min(os.preadv(direct, [aligned], start), size)]
        finally:
            os.close(direct)
    return b""


def _count_equal(one: bytes, other: bytes) -> int:
    """Return the number of equal bytes from the start."""
    if one == other:
        return len(one)
    size = min(len(one), len(other))
    differ = np.frombuffer(one, np.uint8, size) != np.frombuffer(other, np.uint8, size)
    return int(differ.argmax()) if differ.any() else size


def _is_resident(fd: int, begin: int, end: int) -> bool:
    """Return whether any page of a range is in the cache (mincore(2))."""
    with mmap.mmap(fd, end - begin, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin) as mapped:
        return is_resident(_find_address(mapped), end - begin)


def _find_address(mapped: mmap.mmap) -> int:
    """Return the address of a mapping, through numpy, since the buffer is read-only."""
    return int(np.frombuffer(mapped, np.uint8).__array_interface__["data"][0])


@functools.cache
def _in_memory(device: int) -> bool:
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == number:
            return fields[fields.index("-") + 1] in _IN_MEMORY
    return False
