"""The upload record of a session, ``_recorder/uploaded.json``.

Retention and the next upload read it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from recorder.common.errors import StorageError
from recorder.common.files import PosixDisk
from recorder.common.struct_codec import prepare_type
from recorder.session.layout import ARCHIVES, PRIVATE, REPORT, private

UPLOADED: Final = "uploaded.json"
PARTS: Final = "upload"
"""Folder in ``_recorder`` with the progress of large files; removed after the upload."""


class UploadedTo(msgspec.Struct, frozen=True):
    """A complete upload.

    Attributes:
        url: of the store, without a slash at its end.
        manifest_sha256: of the manifest, in hex.
        read_back: all objects were read back, and equal the sent ones.
        stamp: `compute_stamp` the session, when it was as in the store; empty: it was not.
    """

    url: str
    manifest_sha256: str
    read_back: bool
    stamp: str = ""


def read_uploaded(session: Path) -> UploadedTo | None:
    """Return the record of a session; None if it was not uploaded, or the record is damaged."""
    try:
        return msgspec.json.decode(
            private(session, UPLOADED).read_bytes(), type=prepare_type(UploadedTo)
        )
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_uploaded(session: Path, uploaded: UploadedTo) -> None:
    """Write the record, durably; StorageError."""
    path = private(session, UPLOADED)
    try:
        PosixDisk().write_file(path, msgspec.json.encode(uploaded))
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from None


def is_safe_at(session: Path, url: str) -> bool:
    """Return whether a session may be deleted here: the store has this state, and was read back."""
    found = read_uploaded(session)
    if found is None or found.url != url.rstrip("/") or not found.read_back:
        return False
    try:
        return found.stamp == compute_stamp(session)
    except OSError:
        return False


def compute_stamp(session: Path) -> str:
    """Return a digest of the session's irreplaceable files: SHA-256 in hex of paths, sizes, times.

    The data and labels are such files; archives, the report and `_recorder` are not: files that are
    added there after an upload do not keep a session from being deleted.  Raises OSError.
    """
    lines = sorted(_describe_files(session, ""))
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def is_irreplaceable(path: str) -> bool:
    """Return whether a path of a session is of an irreplaceable file: data or labels."""
    return path.partition("/")[0] not in (ARCHIVES, PRIVATE, REPORT)


def _describe_files(folder: Path, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if not is_irreplaceable(path):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _describe_files(folder / entry.name, f"{path}/")
            else:
                found = entry.stat(follow_symlinks=False)
                yield f"{found.st_size} {found.st_mtime_ns} {path}"
