"""Folder as a store: a mounted disk, a network share, a USB stick."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from recorder.common.errors import StorageError
from recorder.common.files import PosixDisk, make_folders
from recorder.common.syscalls import rename_new
from recorder.fleet.store.base import (
    PART_BYTES,
    Pace,
    Source,
    Store,
    StoredObject,
    UploadRecord,
    check_key,
    disk_errors,
    send_parts,
)

_CHUNK: Final = 1 << 20
_UNFINISHED: Final = ".unfinished-"


class FolderStore(Store):
    """Store in a folder, whose files are the objects.

    A file gets its name when its bytes are on the disk; until then it is hidden.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url

    def _path(self, key: str) -> Path:
        return self.folder / check_key(key)

    def stat(self, key: str) -> StoredObject | None:
        path = self._path(key)
        with disk_errors(path):
            try:
                found = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return StoredObject(key, found.st_size) if path.is_file() else None

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        parent = prefix.rpartition("/")[0]
        folder = self._path(parent) if parent else self.folder
        for key, path in _files(folder, f"{parent}/" if parent else ""):
            if key.startswith(prefix):
                with disk_errors(path):
                    yield StoredObject(key, path.stat().st_size)

    def chunks(self, key: str) -> Generator[bytes, None, None]:
        path = self._path(key)
        if path.exists() and not path.is_file():  # a pipe would be read forever
            raise StorageError(f"{path}: is no file")
        with disk_errors(path), path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def put_new(self, key: str, data: bytes) -> None:
        path = self._path(key)
        hidden = self._hidden(path, secrets.token_hex(8))
        with disk_errors(path):
            make_folders(path.parent)
            try:
                with hidden.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                made = _name(hidden, path)
            finally:
                hidden.unlink(missing_ok=True)
            PosixDisk().sync_folder(path.parent)
        if not made:
            self.check_same(key, path, len(data), hashlib.sha256(data).hexdigest())

    def upload_new(
        self, key: str, source: Path, *, record: Path | None = None, pace: Pace | None = None
    ) -> str:
        path = self._path(key)
        with Source(source) as given:
            if made := not path.exists():
                made, digest = self._copy(path, given, record, pace)
            else:
                digest = given.read_all()
            if not made:
                self.check_same(key, path, given.size, digest)
        if record is not None:
            record.unlink(missing_ok=True)
        return digest

    def abandon(self, record: Path) -> None:
        found = UploadRecord.read(record)
        below = f"{self.folder.as_uri()}/"
        if found is None or not found.url.startswith(below):
            return
        path = self._path(unquote(found.url.removeprefix(below)))
        with disk_errors(path):
            self._hidden(path, found.upload_id).unlink(missing_ok=True)
            record.unlink(missing_ok=True)

    def _copy(
        self, path: Path, given: Source, kept: Path | None, pace: Pace | None
    ) -> tuple[bool, str]:
        """Copy a file, durably; return True if it was created, and the SHA-256 of the source."""
        record = UploadRecord.read(kept, path.as_uri())
        hidden = None if record is None else self._hidden(path, record.upload_id)
        with disk_errors(path):
            if record is None or hidden is None or not (record.matches(given) and hidden.is_file()):
                if hidden is not None:  # the source has changed: nobody resumes it
                    hidden.unlink(missing_ok=True)
                token = secrets.token_hex(8)
                record = UploadRecord(path.as_uri(), token, given.size, given.mtime_ns, PART_BYTES)
                hidden = self._hidden(path, token)
                make_folders(path.parent)
                if kept is not None:
                    record.write(kept)
                hidden.touch(exist_ok=False)
            with hidden.open("r+b", buffering=0) as file:

                def write(_number: int, offset: int, data: bytes) -> str:
                    file.seek(offset)
                    view = memoryview(data)
                    while view:
                        view = view[file.write(view) :]
                    os.fdatasync(file.fileno())
                    return ""

                send_parts(given, record, kept, pace, write)
                digest = given.end()
                file.truncate(given.size)
                os.fsync(file.fileno())
            made = _name(hidden, path)
            hidden.unlink(missing_ok=True)
            PosixDisk().sync_folder(path.parent)
        return made, digest

    def _hidden(self, path: Path, token: str) -> Path:
        return path.with_name(f"{_UNFINISHED}{token}")


def _name(hidden: Path, path: Path) -> bool:
    """Give a file its name, unless another file has it; return True if that was done."""
    try:
        return rename_new(hidden, path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
    try:  # a file system that has no such renaming
        path.hardlink_to(hidden)
    except FileExistsError:
        return False
    return True


def _files(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    """Yield keys and files below a folder."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StorageError(f"{folder}: cannot be listed: {error.strerror}") from None
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(folder / entry.name, f"{prefix}{entry.name}/")
        elif entry.is_file() and not entry.name.startswith(_UNFINISHED):
            yield prefix + entry.name, folder / entry.name
