"""A file that only grows, written past the system's cache.

A dataset is several times as large as what it is made of and read by nobody soon: in the cache
it would displace what is, and copying it there takes a processor ten times as long as having the
disk fetch it.  Where a file system cannot do that, the file is written as any other.

::

    file = DirectFile(path)
    file.append(header, data)
    file.finish()                      # written and synced

Large data that begin at a page, in a file at a multiple of `BLOCK`, are written from where they
are; all else is copied into what is written at once.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from recorder.contract.closing import Closing
from recorder.formats.disk import FILE_MODE

BLOCK = 4096
"""What offsets, sizes and addresses are multiples of."""
GATHER_BYTES = 16 << 20
QUEUED = 2
"""Gatherings that wait or are written: the disk has work while nothing is appended."""
LARGE = 64 << 10
"""From here on it is cheaper not to copy."""

Bytes = bytes | memoryview


def aligned_buffer(size: int) -> memoryview:
    """Memory for that many bytes, not cleared, that begins at a page.

    It is malloc's: freed memory is used again, which mapped pages would not be.
    """
    memory = np.empty(size + BLOCK - 1, np.uint8)
    first = -memory.ctypes.data % BLOCK
    return memory.data[first : first + size]


def joined(*parts: Bytes) -> memoryview:
    """Bytes one behind the other, in an `aligned_buffer`."""
    whole = aligned_buffer(sum(map(len, parts)))
    at = 0
    for part in parts:
        whole[at : at + len(part)] = part
        at += len(part)
    return whole


class DirectFile(Closing):
    """Gathers what is appended, and writes it by a thread while more is gathered.

    It holds on to about `QUEUED` + 1 times `GATHER_BYTES`, copied or not, until it is written.

    Args:
        path: the new file.
        direct: past the cache, where that can be done.
    """

    def __init__(self, path: Path, *, direct: bool = True) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(path, flags, FILE_MODE)
        self._direct_fd = -1
        if direct:
            with contextlib.suppress(OSError):  # this file system has no such thing
                self._direct_fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
        # Memory of its own begins at a page, and copies have the same place in it as in the file.
        self._buffers = deque(mmap.mmap(-1, GATHER_BYTES) for _ in range(QUEUED + 1))
        self._parts: list[memoryview] = []
        self._start = self._size = 0  # of what is gathered, in the file
        self._copied, self._filled = 0, 0  # in the buffer: not yet among the parts
        self._pool = ThreadPoolExecutor(1, "direct")
        self._writing: deque[Future[None]] = deque()

    @property
    def length(self) -> int:
        """Bytes appended so far."""
        return self._start + self._size

    def append(self, *parts: Bytes) -> None:
        """Add bytes; OSError where the disk refuses, perhaps of what was added before.

        Args:
            parts: the bytes; nobody changes them any more.
        """
        for part in parts:
            left = memoryview(part)
            if len(left) >= LARGE and self.length % BLOCK == 0 and _is_aligned(left):
                whole = len(left) - len(left) % BLOCK
                self._end_copies(self._filled)
                self._parts.append(left[:whole])
                self._size += whole
                left = left[whole:]
            while left:
                taken = left[: GATHER_BYTES - self._filled]
                self._buffers[0][self._filled : self._filled + len(taken)] = taken
                self._filled += len(taken)
                self._size += len(taken)
                left = left[len(taken) :]
                if self._filled == GATHER_BYTES:
                    self._begin()
            if self._size >= GATHER_BYTES:
                self._begin()

    def _end_copies(self, end: int) -> None:
        """What was copied last, up to there, is a part."""
        if end > self._copied:
            self._parts.append(memoryview(self._buffers[0])[self._copied : end])
        self._copied = end

    def _begin(self) -> None:
        """Have what is gathered written up to a block's end; waits while `QUEUED` are."""
        rest = min(self.length % BLOCK, self._size)
        self._end_copies(self._filled - rest)
        self._wait(QUEUED - 1)
        if self._parts:
            self._writing.append(self._pool.submit(self._write, self._parts, self._start))
        self._start += self._size - rest
        over = self._buffers[0][self._filled - rest : self._filled]
        self._buffers.rotate(-1)  # the next one is free: no more than `QUEUED` others are not
        self._gather_anew()
        self._buffers[0][self._copied : self._copied + rest] = over
        self._filled += rest
        self._size = rest

    def _gather_anew(self) -> None:
        self._parts, self._size = [], 0
        self._copied = self._filled = self._start % BLOCK

    def _wait(self, most: int) -> None:
        """Until no more than that are being written."""
        while len(self._writing) > most:
            self._writing.popleft().result()

    def _write(self, parts: Sequence[memoryview], offset: int) -> None:
        """Past the cache where all of it can be, and as far as the disk takes it so."""
        whole = (offset | sum(map(len, parts))) % BLOCK == 0
        fd = self._direct_fd if whole and self._direct_fd >= 0 else self._fd
        while parts:
            try:
                wrote = os.pwritev(fd, parts, offset)
            except OSError as error:
                if error.errno != errno.EINVAL or fd == self._fd:
                    raise
                wrote = 0  # blocks are larger here
            if wrote % BLOCK or not wrote:
                fd = self._fd
            offset += wrote
            parts = _behind(parts, wrote)

    def begin_copy(self) -> int:
        """A descriptor at the end of all that was appended, for others to append by.

        What was appended is written by then, perhaps into the cache; `end_copy` goes on.
        """
        self._flush()
        os.lseek(self._fd, self._start, os.SEEK_SET)
        return self._fd

    def end_copy(self) -> None:
        """Others have appended what they wanted to."""
        self._start = os.lseek(self._fd, 0, os.SEEK_CUR)
        self._gather_anew()

    def _flush(self) -> None:
        self._begin()
        self._wait(0)
        self._end_copies(self._filled)
        self._write(self._parts, self._start)
        self._start += self._size
        self._gather_anew()

    def finish(self) -> None:
        """Write and sync all of it."""
        self._flush()
        os.fsync(self._fd)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._writing.clear()
        self._parts = []
        self._buffers.clear()
        for fd in (self._fd, self._direct_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._direct_fd = -1


def _is_aligned(data: memoryview) -> bool:
    return int(np.frombuffer(data, np.uint8).ctypes.data) % BLOCK == 0


def _behind(parts: Sequence[memoryview], size: int) -> Sequence[memoryview]:
    """What is left of them behind so many bytes."""
    for number, part in enumerate(parts):
        if size < len(part):
            return [part[size:], *parts[number + 1 :]]
        size -= len(part)
    return []
