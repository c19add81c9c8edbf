"""Reading what the device holds, past the page cache.

After a failed write the kernel marks its pages clean: reading shows bytes that the device does not
hold, the next fsync succeeds, and what is written to these pages goes nowhere (Linux,
mm/filemap.c, `errseq_t`; seen on ext4).  Only pages that were dropped are read from the device, and
only into those can be written again.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recorder.contract.syscalls import is_resident

PAGE = mmap.PAGESIZE
_BLOCK = 2 << 20
"""Pages are dropped in aligned groups, of this size at most, or not at all."""
_TRIES = 3
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})  # they have no device behind the cache


def read_blocks(path: Path, start: int, stop: int) -> Iterator[bytes]:
    """What the device holds of a range, block by block; less where the file ends before.

    What only the cache holds is written again.  Where the device still does not take it, the range
    ends there, and the cache shows it as before.

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
            held = len(cached) if _in_memory(status.st_dev) else _held(fd, begin, cached)
            end = min(begin + held, stop)
            if end > start:
                yield cached[start - begin : end - begin]
            if held < len(cached):
                return
            start = begin + _BLOCK


def read_range(path: Path, start: int, stop: int) -> bytes:
    """The same in one piece."""
    return b"".join(read_blocks(path, start, stop))


def _held(fd: int, start: int, cached: bytes) -> int:
    """How many of the bytes that the cache shows the device holds."""
    held = _equal(_past_cache(fd, start, len(cached)), cached)
    if held < len(cached):
        with contextlib.suppress(OSError):
            os.pwrite(fd, cached, start)
        held = _equal(_past_cache(fd, start, len(cached)), cached)
    if held < len(cached):  # who salvages it reads it from the cache
        with contextlib.suppress(OSError):
            os.pwrite(fd, cached, start)
    return held


def _past_cache(fd: int, start: int, size: int) -> bytes:
    """A range as the device has it; nothing where neither it nor the kernel gives it."""
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):  # of a write that has failed: what is there, counts
            os.fsync(fd)
        os.posix_fadvise(fd, start, _BLOCK, os.POSIX_FADV_DONTNEED)
        if not _resident(fd, start, start + size):
            with contextlib.suppress(OSError):
                return os.pread(fd, size, start)
    return _direct(fd, start, size)  # somebody has the file mapped: these pages stay


def _direct(fd: int, start: int, size: int) -> bytes:
    """A range read around the cache (O_DIRECT), which the pages in it need not leave."""
    with contextlib.suppress(OSError):  # a file system that cannot
        direct = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            with mmap.mmap(-1, -(-size // PAGE) * PAGE) as aligned:
                return aligned[: min(os.preadv(direct, [aligned], start), size)]
        finally:
            os.close(direct)
    return b""


def _equal(one: bytes, other: bytes) -> int:
    """Bytes from the start that are the same."""
    if one == other:
        return len(one)
    size = min(len(one), len(other))
    differ = np.frombuffer(one, np.uint8, size) != np.frombuffer(other, np.uint8, size)
    return int(differ.argmax()) if differ.any() else size


def _resident(fd: int, begin: int, end: int) -> bool:
    """Whether any page of a range is in the cache (mincore(2))."""
    with mmap.mmap(fd, end - begin, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin) as mapped:
        return is_resident(_address(mapped), end - begin)


def _address(mapped: mmap.mmap) -> int:
    """Where a mapping begins; numpy gives the address of a buffer that may only be read."""
    return int(np.frombuffer(mapped, np.uint8).__array_interface__["data"][0])


@functools.cache
def _in_memory(device: int) -> bool:
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == number:
            return fields[fields.index("-") + 1] in _IN_MEMORY
    return False
