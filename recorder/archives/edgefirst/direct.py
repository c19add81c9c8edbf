"""A file that only grows, written past the system's cache.

A dataset is several times as large as what it is made of and read by nobody soon: in the cache
it would displace what is, and copying it there takes a processor ten times as long as having the
disk fetch it.  Where a file system cannot do that, the file is written as any other.

::

    file = DirectFile(path)
    file.append(header, data)
    file.finish()                      # written and synced
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from recorder.contract.closing import Closing
from recorder.formats.disk import FILE_MODE

BLOCK = 4096
"""What offsets, sizes and addresses are multiples of."""
GATHER_BYTES = 4 << 20


class DirectFile(Closing):
    """Gathers what is appended, and writes it by a thread while more is gathered.

    Args:
        path: the new file.
        direct: past the cache, where that can be done.

    Attributes:
        length: bytes appended so far.
    """

    def __init__(self, path: Path, *, direct: bool = True) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(path, flags, FILE_MODE)
        self._direct_fd = -1
        if direct:
            with contextlib.suppress(OSError):  # this file system has no such thing
                self._direct_fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
        # Memory of its own begins at a page.
        self._buffers = [mmap.mmap(-1, GATHER_BYTES) for _ in range(2)]
        self._filled = 0
        self._written = 0
        self._pool = ThreadPoolExecutor(1, "direct")
        self._writing: Future[None] | None = None

    @property
    def length(self) -> int:
        return self._written + self._filled

    def append(self, *parts: bytes) -> None:
        """Add bytes; OSError where the disk refuses, perhaps of what was added before."""
        for part in parts:
            left = memoryview(part)
            while left:
                # The first gathering after a copy ends at a block, and all after it do.
                room = GATHER_BYTES - self._written % BLOCK - self._filled
                taken = left[:room]
                self._buffers[0][self._filled : self._filled + len(taken)] = taken
                self._filled += len(taken)
                left = left[len(taken) :]
                if len(taken) == room:
                    self._begin()

    def _begin(self) -> None:
        """Have what is gathered written, once what was before it is."""
        self._wait()
        self._buffers.reverse()
        buffer, size, offset = self._buffers[1], self._filled, self._written
        self._writing = self._pool.submit(self._write, buffer, size, offset)
        self._written += size
        self._filled = 0

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, buffer: mmap.mmap, size: int, offset: int) -> None:
        with memoryview(buffer) as view:
            done = 0
            if self._direct_fd >= 0 and offset % BLOCK == 0:
                done = self._write_direct(view[: size - size % BLOCK], offset)
            while done < size:
                done += os.pwrite(self._fd, view[done:size], offset + done)

    def _write_direct(self, view: memoryview, offset: int) -> int:
        """How much could be written so: all of it, or whole blocks."""
        done = 0
        while done < len(view):
            try:
                wrote = os.pwrite(self._direct_fd, view[done:], offset + done)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return done  # blocks are larger here
            done += wrote - wrote % BLOCK
            if wrote % BLOCK:
                return done
        return done

    def begin_copy(self) -> int:
        """A descriptor at the end of all that was appended, for others to append by.

        What was appended is written by then, perhaps into the cache; `end_copy` goes on.
        """
        self._flush()
        os.lseek(self._fd, self._written, os.SEEK_SET)
        return self._fd

    def end_copy(self) -> None:
        """Others have appended what they wanted to."""
        self._written = os.lseek(self._fd, 0, os.SEEK_CUR)

    def _flush(self) -> None:
        if self._filled:
            self._begin()
        self._wait()

    def finish(self) -> None:
        """Write and sync all of it."""
        self._flush()
        os.fsync(self._fd)

    def close(self) -> None:
        self._pool.shutdown()
        self._writing = None
        self._buffers.clear()
        for fd in (self._fd, self._direct_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._direct_fd = -1
