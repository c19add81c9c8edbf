"""Interface of a store, with helpers that all stores share.

A store only grows: objects are created, complete or not at all, and never changed or deleted.
Existing objects of any origin stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from recorder.common.errors import StorageError
from recorder.common.files import FOLDER_MODE, PosixDisk, make_empty
from recorder.common.struct_codec import prepare_type

PART_BYTES: Final = 8 << 20
"""Size of the parts of a large object; larger if it would have more than `MOST_PARTS` parts."""
MOST_PARTS: Final = 10_000  # of S3
MOST_BYTES = 256 << 20
"""Largest size of a small object, such as a manifest, in bytes."""
_CHUNK: Final = 1 << 20

Pace = Callable[[int], None]
"""Function that is called with a number of bytes before they are sent; it may wait."""


class ObjectExistsError(StorageError):
    """Conflict with an object of the same name and other content, which stays unchanged."""


class StoreUnreachableError(StorageError):
    """Missing answer of a store's server; a later attempt may succeed."""


class StoreRefusedError(StorageError):
    """Refusal of all requests: the credentials, the bucket or the clock are wrong."""


class StoredObject(msgspec.Struct, frozen=True):
    """An object: its key below the store's prefix, and its size in bytes."""

    key: str
    size: int


class UploadedPart(msgspec.Struct):
    """A part that the server has: its number from 1, size in bytes, ETag, and SHA-256 in hex."""

    number: int
    size: int
    etag: str
    sha256: str


class UploadRecord(msgspec.Struct):
    """Progress of the upload of a large file, kept on disk so that a later call resumes it.

    Attributes:
        url: URL of the object.
        upload_id: id from the server; empty while the request for it is pending.
        size, mtime_ns: size and time of the file, which must not change meanwhile.
        part_bytes: size of all parts but the last.
        parts: uploaded parts, sorted by number.
    """

    url: str
    upload_id: str
    size: int
    mtime_ns: int
    part_bytes: int
    parts: list[UploadedPart] = []

    @classmethod
    def read(cls, path: Path | None, url: str | None = None) -> UploadRecord | None:
        """Read the record in a file, for the object `url` or any object; None without one."""
        if path is None:
            return None
        try:
            record = msgspec.json.decode(path.read_bytes(), type=prepare_type(cls))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return record if url in (None, record.url) else None

    def matches(self, given: Source) -> bool:
        """Check that the file has not changed."""
        return (self.size, self.mtime_ns) == (given.size, given.mtime_ns)

    def write(self, path: Path) -> None:
        """Write the record durably; raise StorageError if that fails."""
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            PosixDisk().write_file(path, msgspec.json.encode(self))


def send_parts(
    given: Source,
    record: UploadRecord,
    path: Path | None,
    pace: Pace | None,
    send: Callable[[int, int, bytes], str],
) -> None:
    """Send the parts of a file that the record lacks; the record then has all parts, in order.

    Args:
        given: the file, from its start.
        record: updated after each part, also at `path`.
        path: see `Store.upload_new`; None: nowhere.
        pace: see `Store.upload_new`.
        send: sends a part, given its number, offset and bytes, and returns its ETag when the part
            is stored.
    """
    known = {part.number: part for part in record.parts}
    number, offset = 1, 0
    while data := given.read(record.part_bytes):
        sha256 = hashlib.sha256(data).hexdigest()
        part = known.get(number)
        if part is None or (part.size, part.sha256) != (len(data), sha256):
            if pace is not None:
                pace(len(data))
            etag = send(number, offset, data)
            known[number] = UploadedPart(number, len(data), etag, sha256)
            record.parts = [known[k] for k in sorted(known)]
            if path is not None:
                record.write(path)
        number, offset = number + 1, offset + len(data)


class Store(Protocol):
    """Objects by key.  A key is a relative path with ``/``, in UTF-8.

    All methods raise `StorageError`, with a message that names the object and the error.
    """

    url: str

    def stat(self, key: str) -> StoredObject | None:
        """Return the object of that key, or None."""

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose keys begin with the prefix, in any order."""

    def read(self, key: str) -> bytes:
        """Return the bytes of an object of at most `MOST_BYTES`; a larger object is an error."""
        data = bytearray()
        with closing(self.chunks(key)) as chunks:
            for chunk in chunks:
                data += chunk
                if len(data) > MOST_BYTES:
                    raise StorageError(
                        f"{self.url}/{key}: has more than {MOST_BYTES >> 20} MiB; not read further"
                    )
        return bytes(data)

    def chunks(self, key: str) -> Generator[bytes, None, None]:
        """Yield an object's bytes in pieces; close the generator if it is not read to the end."""

    def put_new(self, key: str, data: bytes) -> None:
        """Create a small object, durably; accept an existing object with the same bytes.

        Raises:
            ObjectExistsError: there is an object with other bytes.
        """

    def upload_new(
        self, key: str, source: Path, *, record: Path | None = None, pace: Pace | None = None
    ) -> str:
        """Create an object from a file, durably; return the SHA-256 of its bytes, in hex.

        Args:
            key: key of the object.
            source: the file.  It must not change meanwhile.
            record: file with the `UploadRecord` of a large object, from which a later call resumes
                an interrupted upload; removed at the end.  None: the upload cannot be resumed.
            pace: called before bytes are sent.

        Raises:
            ObjectExistsError: there is an object with other bytes.
        """

    def abandon(self, record: Path) -> None:
        """Remove what an abandoned upload has left in the store, and its `UploadRecord`.

        Records of other stores stay.
        """

    def check_same(self, key: str, where: object, size: int, sha256: str) -> None:
        """Raise ObjectExistsError, which names `where`, unless the object has these bytes."""
        if not same_content(self, key, size, sha256):
            raise ObjectExistsError(f"{where}: is there already, with other content")


def is_store(text: str) -> bool:
    """Check that a text is the URL of a store, not a path."""
    return text.startswith(("s3://", "file://"))


def check_key(key: str) -> str:
    """Check a key and return it.

    Raises:
        StorageError: the key is not a relative path, or would lead out of its folder.
    """
    names = key.split("/")
    if "\0" in key or any(name in ("", ".", "..") for name in names):
        raise StorageError(f"{key!r}: can be no key of a store")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise StorageError(f"{key!r}: can be no key of a store; it is no UTF-8") from None
    return key


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert OSError to StorageError: ``with disk_errors(path): ...``."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror or error}") from None


class Source:
    """A file to send: it provides the bytes and their digest, and detects changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(path):
            self._file = path.open("rb")
            found = os.fstat(self._file.fileno())
        self.size, self.mtime_ns = found.st_size, found.st_mtime_ns
        self._digest = hashlib.sha256()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        with disk_errors(self.path):
            data = self._file.read(size)
        self._digest.update(data)
        return data

    def read_all(self) -> str:
        """Read the whole file and return its SHA-256; raise the same errors as `end`."""
        while self.read(_CHUNK):
            pass
        return self.end()

    def end(self) -> str:
        """Return the SHA-256 of all bytes; raise StorageError if the file changed meanwhile."""
        with disk_errors(self.path):
            found = self.path.stat()
        if (found.st_size, found.st_mtime_ns) != (self.size, self.mtime_ns) or self._file.read(1):
            raise StorageError(f"{self.path}: was changed while it was uploaded; try again")
        return self._digest.hexdigest()


def same_content(store: Store, key: str, size: int, sha256: str) -> bool:
    """Check that the store's object has these bytes; read it only if its size is right."""
    found = store.stat(key)
    if found is None or found.size != size:
        return False
    digest, read = hashlib.sha256(), 0
    with closing(store.chunks(key)) as chunks:
        for chunk in chunks:
            digest.update(chunk)
            read += len(chunk)
            if read > size:
                return False
    return digest.hexdigest() == sha256


def download(store: Store, key: str, target: Path, size: int) -> str:
    """Download an object into a new file, without sync; return the SHA-256 of its bytes, in hex.

    Args:
        store: the source.
        key: key of the object.
        target: the file.
        size: expected size of the object in bytes; a larger object is not read to its end.

    Raises:
        StorageError: there is no such object, the object is larger, or the file cannot be written.
    """
    digest, read = hashlib.sha256(), 0
    with disk_errors(target):
        make_private_folders(target.parent)
        make_empty(target)
        with target.open("wb") as file, closing(store.chunks(key)) as chunks:
            for chunk in chunks:
                read += len(chunk)
                if read > size:
                    raise StorageError(f"{store.url}/{key}: has more than its {size} bytes")
                digest.update(chunk)
                file.write(chunk)
    return digest.hexdigest()


def make_private_folders(path: Path) -> None:
    """Make a folder and its missing parents, accessible to this user only, without sync."""
    for folder in reversed([path, *path.parents]):
        with suppress(FileExistsError):
            folder.mkdir(FOLDER_MODE)


def canonical_json(values: object) -> bytes:
    """Encode canonical JSON: sorted keys, UTF-8, one newline at the end."""
    text = json.dumps(values, sort_keys=True, indent=1, ensure_ascii=False)
    return text.encode() + b"\n"
