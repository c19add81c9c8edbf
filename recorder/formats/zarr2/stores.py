"""The interface of a store, which a hierarchy is written to.

A key (``cameras/front/.zgroup``) may be put once only.  A folder store detects a second time; a tar
file does not, since it would have to remember every key.
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
        md5: hexadecimal MD5 of the closed store, if requested.
    """

    path: Path
    md5: str | None

    def put(self, key: str, data: Buffer) -> None:
        """Add a key; the bytes must not be changed afterwards.  StorageError on a disk error."""

    def put_again(self, key: str, data: bytes) -> None:
        """Add a key whose bytes other keys have too: a store may hold them once."""

    def put_parts(self, key: str, size: int, parts: Iterable[Buffer]) -> None:
        """Add a key with parts of `size` bytes in total."""

    def close(self) -> None:
        """Finish the store; it is durable on return."""

    def discard(self) -> None:
        """Stop writing and remove the store."""


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the store."""
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

    With a file per key, one syncfs(2) takes a second; an fsync of each file would take an hour.
    """
    sync_file_system(path)
