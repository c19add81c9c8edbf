"""Interface of a store, to which a hierarchy is written, and parts that stores share.

A key (``cameras/front/.zgroup``) may be put once only. A folder store detects a second time. A tar
file does not, because it would have to remember every key.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from recorder.common.errors import FormatError, StorageError
from recorder.common.files import Buffer, buffer_size
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
