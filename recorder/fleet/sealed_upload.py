"""Encrypted upload of a session's files, in segments of at most `SEGMENT_BYTES`.

Encrypting twice gives two different age files.  Each segment is therefore encrypted into a file on
this disk, then its digest and its new key are written into a record, and only then is it sent.
After a kill the same bytes are sent again under the same key, like those of a plain file.  If these
bytes are lost, the segment is encrypted again under another random key: foreign objects in the
store are neither overwritten nor mistaken for segments of this upload.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from recorder.common.errors import StorageError
from recorder.common.files import PosixDisk
from recorder.common.struct_codec import prepare_type
from recorder.fleet.encryption import Recipients
from recorder.fleet.store.base import (
    ObjectExistsError,
    Pace,
    Source,
    Store,
    disk_errors,
    same_content,
)
from recorder.fleet.store.manifest import Entry, Segment
from recorder.session.layout import private
from recorder.session.outputs import UPLOAD_PARTS

SEGMENT_BYTES: Final = 64 << 20
"""Largest number of plain bytes in one age file."""
_CHUNK: Final = 1 << 20


class _Header(msgspec.Struct, frozen=True):
    """Store and recipients of a record's segments."""

    url: str
    recipients: tuple[str, ...]


class _Sealed(msgspec.Struct, frozen=True):
    """A segment: its file, its number in the file, its plain SHA-256, and the stored object.

    `done`: the store has acknowledged the segment.
    """

    path: str
    number: int
    plain: str
    segment: Segment
    done: bool


class SealedUpload:
    """Encrypted upload of one session; to be used in a ``with`` block.

    Args:
        session: the session's folder.
        store: the target.
        recipients: public keys for the encryption.
        pace: see `Store.upload_new`.

    Raises:
        StorageError: another process uploads this session, or the disk failed.
    """

    def __init__(
        self, session: Path, store: Store, recipients: Recipients, pace: Pace | None
    ) -> None:
        self._store, self._recipients, self._pace = store, recipients, pace
        self._record, self._cipher, self._part = _local_files(session, store.url)
        self._known: dict[tuple[str, int], _Sealed] = {}
        with disk_errors(self._record):
            self._record.parent.mkdir(exist_ok=True)
            self._log = self._record.open("ab+", buffering=0)
            try:
                fcntl.flock(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._read()
            except BlockingIOError:
                self._log.close()
                raise StorageError(f"{session}: is being uploaded by another process") from None
            except BaseException:
                self._log.close()
                raise

    def __enter__(self) -> SealedUpload:
        return self

    def __exit__(self, *error: object) -> None:
        self._log.close()

    def _read(self) -> None:
        """Read the record up to its last whole line; restart a record with another header."""
        header = _Header(self._store.url, self._recipients.names)
        self._log.seek(0)
        first, *lines = self._log.read().splitlines(keepends=True) or [b""]
        good = len(first)
        if first != msgspec.json.encode(header) + b"\n":
            self._log.truncate(0)
            self._append(header)
            PosixDisk().sync_folder(self._record.parent)
            return
        for line in lines:
            try:
                sealed = msgspec.json.decode(line, type=prepare_type(_Sealed))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                break
            if not line.endswith(b"\n"):
                break
            self._known[sealed.path, sealed.number] = sealed
            good += len(line)
        self._log.truncate(good)

    def _append(self, value: Any) -> None:
        data = memoryview(msgspec.json.encode(value) + b"\n")
        while data:
            data = data[self._log.write(data) :]
        os.fdatasync(self._log.fileno())

    def upload(self, name: str, path: str, source: Path) -> Entry:
        """Upload one file into the store.

        Args:
            name: name of the session, with which all keys begin.
            path: path of the file, relative to the session.
            source: the file.

        Raises:
            StorageError: the file changed meanwhile, or the disk or the store failed.
        """
        whole, segments, offset = hashlib.sha256(), list[Segment](), 0
        with disk_errors(source), source.open("rb", buffering=0) as file:
            found = os.fstat(file.fileno())
            while not segments or offset < found.st_size:
                length = min(SEGMENT_BYTES, found.st_size - offset)
                known = self._known.get((path, len(segments)))
                if known is not None:
                    window = _Window(file, offset, length, whole.copy())
                    while window.read(_CHUNK):
                        pass
                    if window.sha256 == known.plain and self._is_stored(name, known):
                        whole = window.whole
                        segments.append(known.segment)
                        offset += length
                        continue
                window = _Window(file, offset, length, whole)
                segments.append(self._seal(name, path, len(segments), window))
                offset += length
            after = source.stat()
            if (after.st_size, after.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
                raise StorageError(f"{source}: was changed while it was uploaded; try again")
        return Entry(path, found.st_size, whole.hexdigest(), tuple(segments))

    def _seal(self, name: str, path: str, number: int, window: _Window) -> Segment:
        """Encrypt a segment under a new key, and send it."""
        self._store.abandon(self._part)  # of a segment whose bytes are overwritten now
        with self._cipher.open("wb") as file:
            size, sha256 = self._recipients.encrypt(window, file)
            file.flush()
            os.fsync(file.fileno())
        PosixDisk().sync_folder(self._cipher.parent)
        key = f"{path}.{number:05}-{secrets.token_hex(16)}.age"
        sealed = _Sealed(path, number, window.sha256, Segment(key, size, sha256), done=False)
        self._append(sealed)
        self._send(name, sealed)
        return sealed.segment

    def _is_stored(self, name: str, known: _Sealed) -> bool:
        """Check that the store has a segment; send it again if its bytes are still here."""
        if known.done:
            return True
        if self._cipher.is_file():
            with Source(self._cipher) as given:
                is_whole = given.read_all() == known.segment.sha256
            if is_whole:
                try:
                    self._send(name, known)
                except ObjectExistsError:  # a foreign object: its writer guessed or saw the key
                    return False
                return True
        key, segment = f"{name}/{known.segment.path}", known.segment
        if not same_content(self._store, key, segment.size, segment.sha256):
            return False
        self._append(msgspec.structs.replace(known, done=True))
        return True

    def _send(self, name: str, sealed: _Sealed) -> None:
        key = f"{name}/{sealed.segment.path}"
        sha256 = self._store.upload_new(key, self._cipher, record=self._part, pace=self._pace)
        if sha256 != sealed.segment.sha256:
            raise StorageError(f"{self._cipher}: was changed while it was uploaded; try again")
        sealed = msgspec.structs.replace(sealed, done=True)
        self._append(sealed)
        self._known[sealed.path, sealed.number] = sealed


def forget(session: Path, store: Store) -> None:
    """Remove the local files of a session's encrypted upload, which is complete or abandoned."""
    record, cipher, part = _local_files(session, store.url)
    store.abandon(part)
    with disk_errors(record):
        for path in (record, cipher, part):
            path.unlink(missing_ok=True)


def _local_files(session: Path, url: str) -> tuple[Path, Path, Path]:
    """Return the paths of the record, of the age file being sent, and of its upload record."""
    stem = hashlib.sha256(f"{url} encrypted".encode()).hexdigest()[:24]
    folder = private(session, UPLOAD_PARTS)
    return folder / f"{stem}.jsonl", folder / f"{stem}.age", folder / f"{stem}.json"


class _Window:
    """Reader of a part of a file.

    Attributes:
        whole: digest of the file up to the read position.
    """

    def __init__(self, file: Any, offset: int, length: int, whole: Any) -> None:
        self._file: BinaryIO = file
        self._left, self._digest, self.whole = length, hashlib.sha256(), whole
        file.seek(offset)

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes; raise StorageError if the file ends before its size."""
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        if not data and self._left and size:
            raise StorageError(f"{self._file.name}: was changed while it was uploaded; try again")
        self._left -= len(data)
        self._digest.update(data)
        self.whole.update(data)
        return data

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes read so far, in hex."""
        return self._digest.hexdigest()
