"""Interface of a store, to which a hierarchy is written, parts that stores share, and a folder.

A key (``cameras/front/.zgroup``) may be put once only. A folder store detects a second time. A tar
file does not, because it would have to remember every key.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from recorder.common.errors import FormatError, StorageError
from recorder.common.files import FILE_MODE, FOLDER_MODE, Buffer, buffer_size
from recorder.common.syscalls import sync_file_system

COPY_BYTES = 1 << 20
MEMORY_BYTES = 1 << 20
"""Number of bytes that a `SpillFile` holds in memory."""
_GATHER_BYTES = 1 << 16
_MOST_BYTES = 8 << 20  # that wait for a thread


class Store(Protocol):
    """Interface of a store of keys with bytes, written front to back.

    Attributes:
        path: file or folder of the store.
        md5: hexadecimal MD5 of the closed store, if requested.
    """

    path: Path
    md5: str | None

    def put(self, key: str, data: Buffer) -> None:
        """Add a key; the bytes must not be changed afterwards.

        A disk error raises StorageError.
        """

    def put_again(self, key: str, data: bytes) -> None:
        """Add a key whose bytes other keys have, too: a store may hold them once."""

    def put_parts(self, key: str, size: int, parts: Iterable[Buffer]) -> None:
        """Add a key with parts of `size` bytes in total."""

    def close(self) -> None:
        """Finish the store; it is durable on return."""

    def discard(self) -> None:
        """Stop writing and remove the store."""


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Convert an OSError to a StorageError that names the store."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_tree(path: Path) -> None:
    """Make everything below a folder durable.

    With a file per key, one syncfs(2) takes a second; an fsync of each file would take an hour.
    """
    sync_file_system(path)


class SpillFile:
    """Bytes that are collected for the end of a store: in memory, or in a file if they are many.

    All bytes are written before they are read. The file has no name and vanishes with the process.

    Args:
        folder: folder of the file. A disk error is a StorageError that names this folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES, dir=str(folder))  # noqa: SIM115
        self._pending = bytearray()  # most writes are a few bytes
        self.size = 0

    def write(self, data: Buffer) -> None:
        """Add bytes."""
        self._pending += data
        self.size += buffer_size(data)
        if len(self._pending) >= _GATHER_BYTES:
            self._flush()

    def _flush(self) -> None:
        with storage_errors(self._folder):
            self._file.seek(0, os.SEEK_END)
            self._file.write(self._pending)
        self._pending.clear()

    def parts(self) -> Iterator[bytes]:
        """Yield all bytes, in parts of a megabyte."""
        self._flush()
        left, at = self.size, 0
        while left:
            with storage_errors(self._folder):
                self._file.seek(at)  # another reader may be at work
                part = self._file.read(min(left, COPY_BYTES))
            if not part:
                raise FormatError(f"{self._folder}: {left} bytes of a spooled value are missing")
            left -= len(part)
            at += len(part)
            yield part

    def lines(self) -> Iterator[bytes]:
        """Yield all lines, without their ends."""
        rest = b""
        for part in self.parts():
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def close(self) -> None:
        """Discard the bytes."""
        self._file.close()


class BackgroundWriter:
    """Background thread that runs calls in order, with a bounded queue.

    Args:
        name: name of the thread.
        most_calls: most calls that may wait; by default any number.
    """

    def __init__(self, name: str, most_calls: float = inf) -> None:
        self._most_calls = most_calls
        self._changed = threading.Condition()
        self._todo: deque[tuple[int, Callable[..., object], tuple[object, ...]]] = deque()
        self._bytes = 0
        self._busy = self._ended = False
        self._error: OSError | None = None
        # A daemon: an unfinished store must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, size: int, call: Callable[..., object], *arguments: object) -> None:
        """Queue a call for `size` bytes; raise an earlier error."""
        with self._changed:
            if self._is_full():
                self._changed.wait_for(lambda: not self._is_full())
            self._raise()
            self._todo.append((size, call, arguments))
            self._bytes += size
            if len(self._todo) == 1:
                self._changed.notify_all()

    def _is_full(self) -> bool:
        return self._bytes > _MOST_BYTES or len(self._todo) > self._most_calls

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Wait for all calls; raise an earlier error."""
        with self._changed:
            self._changed.wait_for(lambda: not self._todo and not self._busy)
            self._raise()

    def end(self) -> None:
        """Finish all calls and stop; raise an earlier error."""
        self._stop()
        self._raise()

    def abandon(self) -> None:
        """Stop and drop the remaining calls."""
        with self._changed:
            self._todo.clear()
        self._stop()

    def _stop(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._todo or self._ended)
                if not self._todo:
                    return
                size, call, arguments = self._todo.popleft()
                self._busy = True
            error = None
            try:
                call(*arguments)
            except OSError as caught:
                error = caught
            with self._changed:
                self._bytes -= size
                self._busy = False
                if error is not None:  # the calls after it are dropped
                    self._error = self._error or error
                    self._bytes = 0
                    self._todo.clear()
                self._changed.notify_all()


class OutputGuard:
    """Output that is finished at the end of a ``with`` block, or discarded on an error."""

    @abstractmethod
    def finish(self) -> object:
        """Complete the output."""

    @abstractmethod
    def discard(self) -> None:
        """Remove the output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.finish()
        except BaseException:
            self.discard()
            raise
        if error is not None:
            self.discard()


def compute_md5(path: Path) -> str:
    """Compute the hexadecimal MD5 as NCore does.

    It is that of a file, or of a folder's names and contents.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.md5(usedforsecurity=False)
    (_add_folder if path.is_dir() else _add_file)(str(path), digest)
    return digest.hexdigest()


def _add_folder(folder: str, digest: Any) -> None:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: (entry.name.lower(), entry.name))
    for entry in ordered:
        digest.update(entry.name.encode())
        (_add_folder if entry.is_dir() else _add_file)(entry.path, digest)


def _add_file(path: str, digest: Any) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while part := os.read(fd, COPY_BYTES):
            digest.update(part)
    finally:
        os.close(fd)


_KEPT_NAMES = 512  # of different bytes that may be put again
_BEHIND_KEYS = 256
_NO_LINK = {errno.EMLINK, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}


class FolderStore:
    """Store with one file per key.

    Equal bytes of `put_again` become one file with several names (hard links), if the file system
    supports them: a name costs a tenth of a file, and no block of the disk.

    A thread writes the files in order, at most 8 MB behind. The next call, or `close`, raises the
    thread's errors.
    """

    def __init__(self, path: Path, *, digest: bool = False) -> None:
        """Make the folder; raise StorageError if the path exists.

        Args:
            path: path of the new folder.
            digest: whether to compute its MD5 while it is synced.
        """
        self.path = path
        self.md5: str | None = None
        self._digest = digest
        with storage_errors(path):
            path.mkdir(mode=FOLDER_MODE)
        self._files = _Files(str(path))
        self._behind = BackgroundWriter("folder store", _BEHIND_KEYS)

    def put(self, key: str, data: Buffer) -> None:
        with storage_errors(self.path):
            self._behind.do(buffer_size(data), self._files.write, key, data)

    def put_again(self, key: str, data: bytes) -> None:
        with storage_errors(self.path):
            self._behind.do(len(data), self._files.write_again, key, data)

    def put_parts(self, key: str, size: int, parts: Iterable[Buffer]) -> None:
        with storage_errors(self.path):
            self._behind.wait()
            written = self._files.write_parts(key, parts)
        if written != size:
            raise FormatError(f"{self.path}: {key} has {written} bytes, not {size}")

    def close(self) -> None:
        with storage_errors(self.path):
            self._behind.end()
            if not self._digest:
                sync_tree(self.path)
                return
            with ThreadPoolExecutor(1, "sync") as pool:  # one waits for the disk, one computes
                synced = pool.submit(sync_tree, self.path)
                self.md5 = compute_md5(self.path)
                synced.result()

    def discard(self) -> None:
        self._behind.abandon()
        with storage_errors(self.path):
            remove(self.path)


class _Files:
    """Keys as files below a folder, for one thread at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._last_folder = root
        self.names: dict[bytes, str] = {}
        self._links = True

    def write(self, key: str, data: Buffer) -> None:
        self._write(self._name(key), (data,))

    def write_parts(self, key: str, parts: Iterable[Buffer]) -> int:
        """Write a file in parts; return the number of bytes."""
        return self._write(self._name(key), parts)

    def write_again(self, key: str, data: bytes) -> None:
        """Write a file, or give an existing one with the same bytes another name."""
        name = self._name(key)
        if not self._links:
            self._write(name, (data,))
            return
        known = self.names.get(data)
        if known is not None and self._link(known, name):
            return
        self._write(name, (data,))
        if len(self.names) >= _KEPT_NAMES:
            self.names.clear()
        self.names[data] = name

    def _name(self, key: str) -> str:
        """Return the file of a key; make its folder."""
        name = f"{self._root}/{key}"
        folder = name.rpartition("/")[0]
        if folder != self._last_folder:
            _make_folder(folder)
            self._last_folder = folder
        return name

    def _write(self, name: str, parts: Iterable[Buffer]) -> int:
        written = 0
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            for part in parts:
                view = memoryview(part).cast("B")
                written += len(view)
                while view:  # the kernel may take a part only
                    view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
        return written

    def _link(self, known: str, name: str) -> bool:
        """Give a file another name; return False if it cannot have another one."""
        try:
            os.link(known, name)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            self._links = error.errno == errno.EMLINK  # this file has the most names possible
            return False
        return True


def _make_folder(folder: str) -> None:
    """Make a folder like `os.makedirs`, but try first: the parents mostly exist."""
    try:
        os.mkdir(folder, FOLDER_MODE)  # noqa: PTH102
    except FileNotFoundError:
        os.makedirs(folder, FOLDER_MODE, exist_ok=True)  # noqa: PTH103
    except FileExistsError:
        pass
