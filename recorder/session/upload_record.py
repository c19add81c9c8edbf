"""What a session knows of its upload: ``_recorder/uploaded.json``, for retention and for the next
upload.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from recorder.contract.errors import StorageError
from recorder.contract.wire_struct import prepare_type
from recorder.formats.disk import PosixDisk
from recorder.session.layout import ARCHIVES, PRIVATE, REPORT, private

UPLOADED: Final = "uploaded.json"
PARTS: Final = "upload"
"""Folder in ``_recorder`` with how far large files are; gone after the upload."""


class UploadedTo(msgspec.Struct, frozen=True):
    """A complete upload.

    Attributes:
        url: of the store, without a slash at its end.
        manifest_sha256: of the manifest, in hex.
        read_back: all objects were read, and are what was sent.
        stamp: `stamp_of` the session, when it was as in the store; empty: it was not.
    """

    url: str
    manifest_sha256: str
    read_back: bool
    stamp: str = ""


def read_uploaded(session: Path) -> UploadedTo | None:
    """The record of a session; None where it was not uploaded, or the record is damaged."""
    try:
        return msgspec.json.decode(
            private(session, UPLOADED).read_bytes(), type=prepare_type(UploadedTo)
        )
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_uploaded(session: Path, uploaded: UploadedTo) -> None:
    """Keep the record, durably; raises StorageError."""
    path = private(session, UPLOADED)
    try:
        PosixDisk().write_file(path, msgspec.json.encode(uploaded))
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from None


def is_safe_at(session: Path, url: str) -> bool:
    """Whether a session may be deleted here: the store has it as it is now, and was read back."""
    found = read_uploaded(session)
    if found is None or found.url != url.rstrip("/") or not found.read_back:
        return False
    try:
        return found.stamp == stamp_of(session)
    except OSError:
        return False


def stamp_of(session: Path) -> str:
    """Paths, sizes and times of the files that nobody can make again, as a SHA-256 in hex.

    The data and labels are such files; archives, the report and `_recorder` are not: what is added
    there after an upload does not keep a session from being deleted.  Raises OSError.
    """
    lines = sorted(_lines(session, ""))
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def is_irreplaceable(path: str) -> bool:
    """Whether a path of a session is of a file that nobody can make again."""
    return path.partition("/")[0] not in (ARCHIVES, PRIVATE, REPORT)


def _lines(folder: Path, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if not is_irreplaceable(path):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _lines(folder / entry.name, f"{path}/")
            else:
                found = entry.stat(follow_symlinks=False)
                yield f"{found.st_size} {found.st_mtime_ns} {path}"
