"""An append-only file, written past the system's cache.

A dataset is several times as large as its session, and is not read again soon.  In the cache it
would displace data that are read soon, and copying it into the cache takes ten times the processor
time of direct I/O.  On a file system without direct I/O the file is written through the cache.

::

    file = DirectFile(path)
    file.append(header, data)
    file.finish()                      # written and synced

Large data that begin at a page in memory and at a multiple of `BLOCK` in the file are written
without a copy.  All other data are copied into a buffer.
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
from recorder.formats.buffers import BLOCK, aligned_buffer
from recorder.formats.disk import FILE_MODE

GATHER_BYTES = 16 << 20
QUEUED = 2
"""Largest number of buffers that wait or are being written, to keep the disk busy."""
LARGE = 64 << 10
"""Smallest size for which avoiding the copy pays off."""

Bytes = bytes | memoryview


def joined(*parts: Bytes) -> memoryview:
    """Concatenate bytes in an `aligned_buffer`."""
    whole = aligned_buffer(sum(map(len, parts)))
    at = 0
    for part in parts:
        whole[at : at + len(part)] = part
        at += len(part)
    return whole


class DirectFile(Closing):
    """Gathers appended bytes, and writes them by a thread while more are gathered.

    It holds about `QUEUED` + 1 times `GATHER_BYTES`, copied or not, until they are written.

    Args:
        path: path of the new file.
        direct: write past the cache, where the file system supports it.
    """

    def __init__(self, path: Path, *, direct: bool = True) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(path, flags, FILE_MODE)
        self._direct_fd = -1
        if direct:
            with contextlib.suppress(OSError):  # this file system has no direct I/O
                self._direct_fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
        # Mapped memory begins at a page; copies keep their offset within a block of the file.
        self._buffers = deque(mmap.mmap(-1, GATHER_BYTES) for _ in range(QUEUED + 1))
        self._parts: list[memoryview] = []
        self._start = self._size = 0  # offset in the file and size of the gathered bytes
        self._copied, self._filled = 0, 0  # in the buffer: end of the parts, end of the copies
        self._pool = ThreadPoolExecutor(1, "direct")
        self._writing: deque[Future[None]] = deque()

    @property
    def length(self) -> int:
        """Bytes appended so far."""
        return self._start + self._size

    def append(self, *parts: Bytes) -> None:
        """Append bytes; an OSError may concern bytes of an earlier call.

        Args:
            parts: the bytes, which must not change any more.
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
        """Add the copied bytes before `end` to the parts."""
        if end > self._copied:
            self._parts.append(memoryview(self._buffers[0])[self._copied : end])
        self._copied = end

    def _begin(self) -> None:
        """Start writing the gathered bytes up to a block's end; wait while `QUEUED` are written."""
        rest = min(self.length % BLOCK, self._size)
        self._end_copies(self._filled - rest)
        self._wait(QUEUED - 1)
        if self._parts:
            self._writing.append(self._pool.submit(self._write, self._parts, self._start))
        self._start += self._size - rest
        over = self._buffers[0][self._filled - rest : self._filled]
        self._buffers.rotate(-1)  # the next buffer is free: at most `QUEUED` others are in use
        self._gather_anew()
        self._buffers[0][self._copied : self._copied + rest] = over
        self._filled += rest
        self._size = rest

    def _gather_anew(self) -> None:
        self._parts, self._size = [], 0
        self._copied = self._filled = self._start % BLOCK

    def _wait(self, most: int) -> None:
        """Wait until at most that many buffers are being written."""
        while len(self._writing) > most:
            self._writing.popleft().result()

    def _write(self, parts: Sequence[memoryview], offset: int) -> None:
        """Write directly if all of it is aligned, and for as long as the disk accepts it."""
        whole = (offset | sum(map(len, parts))) % BLOCK == 0
        fd = self._direct_fd if whole and self._direct_fd >= 0 else self._fd
        while parts:
            try:
                wrote = os.pwritev(fd, parts, offset)
            except OSError as error:
                if error.errno != errno.EINVAL or fd == self._fd:
                    raise
                wrote = 0  # this disk needs larger blocks
            if wrote % BLOCK or not wrote:
                fd = self._fd
            offset += wrote
            parts = _behind(parts, wrote)

    def begin_copy(self) -> int:
        """A descriptor at the end of the file, to which the caller appends bytes.

        The bytes appended before are written, perhaps into the cache.  Call `end_copy` after it.
        """
        self._flush()
        os.lseek(self._fd, self._start, os.SEEK_SET)
        return self._fd

    def end_copy(self) -> None:
        """Continue after the bytes that the caller of `begin_copy` appended."""
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
        """Write and sync all appended bytes."""
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
    """The rest of the parts after the first `size` bytes."""
    for number, part in enumerate(parts):
        if size < len(part):
            return [part[size:], *parts[number + 1 :]]
        size -= len(part)
    return []
