"""Folder store with a file per key, written by a background thread.

The kernel takes longer to create a file than to fill it, and does not need the GIL: a thread
creates the file while the caller compresses the next chunk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recorder.common.errors import FormatError
from recorder.common.files import FILE_MODE, FOLDER_MODE, Buffer, buffer_size
from recorder.formats.zarr2.stores import (
    BackgroundWriter,
    compute_md5,
    remove,
    storage_errors,
    sync_tree,
)

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
