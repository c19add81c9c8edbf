"""Files: disk operations of the writer in one interface that tests can replace, and permissions.

Channel files are append-only and not buffered by the C library.  `AppendFile` gathers small writes
and hands them to the kernel in one `writev`.  Header fields that change later are patched through
a second descriptor, because `pwrite` on an O_APPEND descriptor appends (Linux pwrite(2), BUGS).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Protocol, Self

from recorder.common.errors import UsageError
from recorder.common.syscalls import begin_writeback


class Closeable:
    """Object that is closed at the end of a ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Buffer = bytes | bytearray | memoryview
"""Encoded bytes, passed on without a copy."""


def buffer_size(buffer: Buffer) -> int:
    """Return the bytes in a buffer, whatever its item size."""
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


FILE_MODE = 0o640
FOLDER_MODE = 0o750
GATHER_BYTES = 256 * 1024
"""Number of pending bytes at which an `AppendFile` writes by itself."""
WRITEBACK_BYTES = 8 << 20
"""Bytes after which the kernel starts to write a file back, so that a sync has little left to do.

It is more than a rig records in a sync interval, because small writes cost more.
"""
SYNC_THREADS = 8
"""Number of files that are synced at the same time."""
GATHER_BUFFERS = 512
"""Number of pending buffers at which an `AppendFile` writes by itself; below IOV_MAX (1024)."""


class AppendFile(Protocol):
    """Append-only file.

    Attributes:
        path: path of the file.
        length: number of appended bytes, handed to the kernel or not.
        dirty: whether bytes were appended or patched since the flag was cleared for a sync.
    """

    path: Path
    length: int
    dirty: bool

    def append(self, data: Buffer) -> None:
        """Add bytes at the end; the buffer is kept, not copied, until it is written."""

    def flush(self) -> None:
        """Hand everything appended to the kernel."""

    def patchable(self, offset: int, size: int) -> None:
        """Declare bytes that `patch` may change, before they are appended."""

    def patch(self, offset: int, data: bytes) -> None:
        """Overwrite bytes below the flushed length, which `patchable` has declared."""

    def verify_in_place(self) -> None:
        """Check that the path still leads to this file; raise OSError (ESTALE) if it does not."""

    def sync(self) -> None:
        """Make all bytes durable that were flushed or patched before the call (fdatasync)."""

    def close(self) -> None:
        """Flush, unless an earlier call failed, and close; do not sync."""


class Scratch(Protocol):
    """File that is overwritten in place and never synced: its content may be lost."""

    def write(self, offset: int, data: bytes) -> None:
        """Hand bytes to the kernel."""

    def close(self) -> None:
        """Close the file; may be called twice."""


class Disk(Protocol):
    """Interface of the disk operations that recording needs.

    Attributes:
        gather_bytes: number of pending bytes at which files write by themselves.
    """

    @property
    def gather_bytes(self) -> int: ...

    def create(self, path: Path) -> AppendFile:
        """Create a file; raise FileExistsError if it exists."""

    def reopen(self, path: Path, length: int) -> AppendFile:
        """Reopen a file, cut to `length`; raise ValueError if it is shorter.

        The file is dirty: the cut, and perhaps bytes of an earlier writer, are not synced.
        """

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a small file atomically, durable on return (temporary name, rename)."""

    def make_folder(self, path: Path) -> None:
        """Make a folder, durable in its parent."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename within one file system, durable on return; never replace anything."""

    def remove(self, path: Path) -> None:
        """Remove a file that is no longer needed; the removal need not be durable."""

    def scratch(self, path: Path) -> Scratch:
        """Open a new or existing file as `Scratch`."""

    def sync_folder(self, path: Path) -> None:
        """Make the folder's entries durable."""

    def sync_files(self, files: Sequence[AppendFile]) -> None:
        """Sync several files; return, or raise the first error, when all are done."""

    def free_bytes(self, path: Path) -> int:
        """Return the bytes free for this user on the file system that holds an existing path."""


class _PosixAppendFile:
    def __init__(self, path: Path, fd: int, length: int) -> None:
        self.path = path
        self.length = length
        self.dirty = False
        self._fd = fd
        self._patch_fd = -1
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._begun = length
        self._failed = False
        status = os.fstat(fd)
        self._identity = status.st_dev, status.st_ino

    def append(self, data: Buffer) -> None:
        size = buffer_size(data)
        if not size:
            return
        self._pending.append(data)
        self._pending_bytes += size
        self.length += size
        self.dirty = True
        if self._pending_bytes >= GATHER_BYTES or len(self._pending) >= GATHER_BUFFERS:
            self.flush()

    def flush(self) -> None:
        if self._pending or self._failed:
            with self._once():
                self._write_pending()
            if self.length - self._begun >= WRITEBACK_BYTES:
                begin_writeback(self._fd, self._begun, self.length - self._begun)
                self._begun = self.length

    def _write_pending(self) -> None:
        while self._pending:
            written = os.writev(self._fd, self._pending)
            self._pending_bytes -= written
            if self._pending_bytes == 0:
                self._pending.clear()
                return
            while written:  # a partial write: drop the written bytes
                first = memoryview(self._pending[0]).cast("B")
                if written < first.nbytes:
                    self._pending[0] = first[written:]
                    break
                written -= first.nbytes
                del self._pending[0]

    def patchable(self, offset: int, size: int) -> None:
        pass

    def verify_in_place(self) -> None:
        try:
            status = self.path.lstat()
        except OSError as error:
            raise _make_gone_error(self.path, "was removed while it was recorded") from error
        if (status.st_dev, status.st_ino) != self._identity:
            raise _make_gone_error(self.path, "was replaced while it was recorded")

    def patch(self, offset: int, data: bytes) -> None:
        if offset + len(data) > self.length - self._pending_bytes:
            raise ValueError(f"{self.path}: patch at {offset} reaches beyond what is flushed")
        self.dirty = True
        with self._once():
            if self._patch_fd < 0:
                self._patch_fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            _write_at(self._patch_fd, offset, data)

    def sync(self) -> None:
        with self._once():
            os.fdatasync(self._fd)

    @contextlib.contextmanager
    def _once(self) -> Iterator[None]:
        """Refuse all operations after an error: the kernel reports a lost write once only."""
        if self._failed:
            raise OSError(errno.EIO, "has failed before", str(self.path))
        try:
            yield
        except OSError:
            self._failed = True
            raise

    def close(self) -> None:
        try:
            if not self._failed:
                self.flush()
        finally:
            for fd in (self._fd, self._patch_fd):
                if fd >= 0:
                    os.close(fd)
            self._fd = self._patch_fd = -1


def _write_at(fd: int, offset: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _make_gone_error(path: Path, what: str) -> OSError:
    return OSError(errno.ESTALE, f"{path} {what}", str(path))


class _PosixScratch:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)

    def write(self, offset: int, data: bytes) -> None:
        _write_at(self._fd, offset, data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def make_folders(path: Path) -> None:
    """Make a folder and its missing parents, each durable in its parent."""
    for folder in reversed([path, *path.parents]):
        with contextlib.suppress(FileExistsError):
            PosixDisk().make_folder(folder)


def make_empty(path: Path) -> None:
    """Create an empty file for writers that would create it readable for all."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))


def _sync_each(files: Sequence[_PosixAppendFile]) -> None:
    for file in files:
        file.sync()


class PosixDisk:
    """File system of the machine."""

    gather_bytes = GATHER_BYTES
    _pool: ThreadPoolExecutor | None = None

    def create(self, path: Path) -> AppendFile:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        return _PosixAppendFile(path, os.open(path, flags, FILE_MODE), 0)

    def reopen(self, path: Path, length: int) -> AppendFile:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        size = os.fstat(fd).st_size
        if size < length:
            os.close(fd)
            raise ValueError(f"{path}: has {size} bytes where {length} were committed")
        if size > length:
            os.ftruncate(fd, length)
        file = _PosixAppendFile(path, fd, length)
        file.dirty = True
        return file

    def write_file(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self.sync_folder(path.parent)

    def make_folder(self, path: Path) -> None:
        path.mkdir(FOLDER_MODE)
        self.sync_folder(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        if target.exists():
            raise FileExistsError(17, "already exists", str(target))
        source.rename(target)
        self.sync_folder(target.parent)
        if source.parent != target.parent:
            self.sync_folder(source.parent)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_files(self, files: Sequence[AppendFile]) -> None:
        own = [file for file in files if isinstance(file, _PosixAppendFile)]
        if len(own) < len(files) or len(own) < 2:
            for file in files:
                file.sync()
            return
        # A file system flushes once for many waiting callers: 48 files in 40 ms, not 200.
        if self._pool is None:
            self._pool = ThreadPoolExecutor(SYNC_THREADS, "fdatasync")
        parts = [own[i::SYNC_THREADS] for i in range(min(SYNC_THREADS, len(own)))]
        for done in wait([self._pool.submit(_sync_each, part) for part in parts]).done:
            done.result()

    def scratch(self, path: Path) -> Scratch:
        return _PosixScratch(path)

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize


def check_private(path: Path) -> None:
    """Check that other users cannot read a file of secrets.

    Raises:
        UsageError: the file cannot be read, belongs to another user, or has permissions for others.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if found.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{path}: belongs to another user (uid {found.st_uid})")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(f"{path}: others can read it; run `chmod 600 {path}`")


def find_numbered_files(pattern: Path) -> list[tuple[int, Path]]:
    """Return the files that match a pattern, by ascending number.

    Args:
        pattern: its name has one ``%d`` or ``%0Nd``, as printf has them, and ``%%`` for a ``%``.

    Returns:
        number and path of each file; empty if the name is not a pattern, or no file matches.
    """
    parts = re.split(r"(%%|%(?:0\d{1,2})?d)", pattern.name)
    numbers = [part for part in parts[1::2] if part != "%%"]
    if len(numbers) != 1 or any("%" in part for part in parts[::2]):
        return []
    width = int(numbers[0][1:-1] or 1)
    at = parts.index(numbers[0])
    before, behind = ("".join(some).replace("%%", "%") for some in (parts[:at], parts[at + 1 :]))
    named = re.compile(rf"{re.escape(before)}(0*[0-9]{{{width},18}}){re.escape(behind)}")
    files = []
    try:
        for path in pattern.parent.iterdir():
            match = named.fullmatch(path.name)
            if match is not None and f"{int(match[1]):0{width}d}" == match[1]:
                files.append((int(match[1]), path))
    except OSError:
        return []
    return sorted(files)
