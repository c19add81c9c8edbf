"""Where a hierarchy goes: the interface of a store, and the folder store.

A key (``cameras/front/.zgroup``) is put once.  Whoever writes gives each key once only: a folder
store notices a second time, a tar file cannot without remembering every key.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from recorder.contract.errors import FormatError, StorageError
from recorder.contract.wire import Buffer
from recorder.formats.disk import FILE_MODE, FOLDER_MODE

COPY_BYTES = 1 << 20


class Store(Protocol):
    """Keys with bytes, written front to back.

    Attributes:
        path: the file or folder that holds it.
        md5: hexadecimal MD5 of the closed store's file, where it was asked for and is one file.
    """

    path: Path
    md5: str | None

    def put(self, key: str, data: Buffer) -> None:
        """Add a key; the bytes must not be changed afterwards.  StorageError: the disk refused."""

    def put_parts(self, key: str, size: int, parts: Iterable[Buffer]) -> None:
        """Add a key with parts that are `size` bytes together."""

    def close(self) -> None:
        """Finish the store; it is durable on return."""

    def discard(self) -> None:
        """Stop writing and remove what is there."""


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """An OSError as a StorageError that names the store."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class FolderStore:
    """One file per key."""

    def __init__(self, path: Path) -> None:
        """Make the folder; StorageError where something is there already."""
        self.path = path
        self.md5: str | None = None
        with storage_errors(path):
            path.mkdir(mode=FOLDER_MODE)
        self._last_folder = str(path)

    def put(self, key: str, data: Buffer) -> None:
        with self._create(key) as fd:
            _write(fd, data)

    def put_parts(self, key: str, size: int, parts: Iterable[Buffer]) -> None:
        written = 0
        with self._create(key) as fd:
            for part in parts:
                written += _write(fd, part)
        if written != size:
            raise FormatError(f"{self.path}: {key} has {written} bytes, not {size}")

    @contextlib.contextmanager
    def _create(self, key: str) -> Iterator[int]:
        with storage_errors(self.path):
            name = f"{self.path}/{key}"
            folder = name.rpartition("/")[0]
            if folder != self._last_folder:
                _make_folder(folder)
                self._last_folder = folder
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            try:
                yield fd
            finally:
                os.close(fd)

    def close(self) -> None:
        with storage_errors(self.path):
            sync_tree(self.path)

    def discard(self) -> None:
        with storage_errors(self.path):
            remove(self.path)


def _make_folder(folder: str) -> None:
    """Like os.makedirs, but it does not look before it tries: most lack nothing above."""
    try:
        os.mkdir(folder, FOLDER_MODE)  # noqa: PTH102
    except FileNotFoundError:
        os.makedirs(folder, FOLDER_MODE, exist_ok=True)  # noqa: PTH103
    except FileExistsError:
        pass


def sync_tree(path: Path) -> None:
    """Make everything below a folder durable.

    With as many files as there are keys, one syncfs(2) takes a second where an fsync of each would
    take an hour.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:  # a C library without it
            os.sync()
        elif syncfs(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(fd)


def _write(fd: int, data: Buffer) -> int:
    view = memoryview(data).cast("B")
    size = len(view)
    while view:  # the kernel may take a part only
        view = view[os.write(fd, view) :]
    return size
