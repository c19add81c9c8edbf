"""What a session knows of its upload: ``_recorder/uploaded.json``, for retention and for the next
upload.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from recorder.contract.errors import StorageError
from recorder.formats.disk import PosixDisk
from recorder.session.layout import private

UPLOADED: Final = "uploaded.json"
PARTS: Final = "upload"
"""Folder in ``_recorder`` with how far large files are; gone after the upload."""


class UploadedTo(msgspec.Struct, frozen=True):
    """A complete upload.

    Attributes:
        url: of the store, without a slash at its end.
        manifest_sha256: of the manifest, in hex.
        read_back: all objects were read, and are what was sent.
    """

    url: str
    manifest_sha256: str
    read_back: bool


def read_uploaded(session: Path) -> UploadedTo | None:
    """The record of a session; None where it was not uploaded, or the record is damaged."""
    try:
        return msgspec.json.decode(private(session, UPLOADED).read_bytes(), type=UploadedTo)
    except (OSError, msgspec.MsgspecError):
        return None


def write_uploaded(session: Path, uploaded: UploadedTo) -> None:
    """Keep the record, durably; raises StorageError."""
    path = private(session, UPLOADED)
    try:
        PosixDisk().write_file(path, msgspec.json.encode(uploaded))
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from None


def is_safe_at(session: Path, url: str) -> bool:
    """Whether a session may be deleted here: it is in the store, and was read back."""
    found = read_uploaded(session)
    return found is not None and found.url == url.rstrip("/") and found.read_back
