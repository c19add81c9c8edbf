"""Where a hierarchy goes: the interface of a store.

A key (``cameras/front/.zgroup``) is put once.  Whoever writes gives each key once only: a folder
store notices a second time, a tar file cannot without remembering every key.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from recorder.contract.errors import StorageError
from recorder.contract.syscalls import sync_file_system
from recorder.contract.wire import Buffer

COPY_BYTES = 1 << 20


class Store(Protocol):
    """Keys with bytes, written front to back.

    Attributes:
        path: the file or folder that holds it.
        md5: hexadecimal MD5 of the closed store, where it was asked for.
    """

    path: Path
    md5: str | None

    def put(self, key: str, data: Buffer) -> None:
        """Add a key; the bytes must not be changed afterwards.  StorageError: the disk refused."""

    def put_again(self, key: str, data: bytes) -> None:
        """Add a key whose bytes stand under others, too: a store may keep them once."""

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


def sync_tree(path: Path) -> None:
    """Make everything below a folder durable.

    With as many files as there are keys, one syncfs(2) takes a second where an fsync of each would
    take an hour.
    """
    sync_file_system(path)
