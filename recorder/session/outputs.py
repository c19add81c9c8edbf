"""Records of what was made of a session: its uploads, archives and report.

- ``_recorder/uploaded.json``: the upload; retention and the next upload read it.
- ``_archives/NAME.json``: the record of an archive, which the finalizer writes when the archive is
  in its place; reports show it.
- An element in the head of ``report.html``: the summary, for the index of reports and the daemon::

      html = f"<head>{summary_element(summary)}</head>"
      read_summary(session / REPORT).verdict             # PASS
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from recorder.common.errors import StorageError
from recorder.common.files import PosixDisk
from recorder.common.struct_codec import prepare_type
from recorder.session.layout import ARCHIVES, PRIVATE, REPORT, private

UPLOADED: Final = "uploaded.json"
UPLOAD_PARTS: Final = "upload"
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


PACKED_PARTS = "parts"
"""Folder in `ARCHIVES` with a folder for each packed part of a session."""
_RECORD_SUFFIX = ".json"


def write_record(root: Path, archive: str, values: Mapping[str, Any]) -> Path:
    """Replace the record of an archive, durably and atomically.

    Args:
        root: the folder in which the archive's own folder is.
        archive: its name.
        values: ``{packed_ns, options, files: [NAME], bytes, seconds, summary, notes: [TEXT],
            custody}``; see `recorder.integrity.archives`.

    Raises:
        OSError: it cannot be written.
    """
    path = root / f"{archive}{_RECORD_SUFFIX}"
    PosixDisk().write_file(path, encode_record(values))
    return path


def encode_record(values: Mapping[str, Any]) -> bytes:
    """Return the bytes of a record."""
    return json.dumps(values, indent=1, default=_convert_value).encode()


def read_records(session: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a session's archives by name; those of a part as ``NAME, PART``.

    A record that cannot be read is empty.
    """
    root = session / ARCHIVES
    found = {name: _read_record(path) for name, path in _list_records(root)}
    try:
        parts = sorted(path for path in (root / PACKED_PARTS).iterdir() if path.is_dir())
    except OSError:
        parts = []
    for part in parts:
        found |= {f"{name}, {part.name}": _read_record(path) for name, path in _list_records(part)}
    return found


def _list_records(folder: Path) -> list[tuple[str, Path]]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    return [
        (path.name.removesuffix(_RECORD_SUFFIX), path)
        for path in paths
        if path.name.endswith(_RECORD_SUFFIX) and not path.name.startswith(".") and path.is_file()
    ]


def _read_record(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _convert_value(value: Any) -> Any:
    """Convert values of a packer's summary for JSON: numpy's numbers and arrays, paths."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


HEAD_BYTES = 262_144
"""Number of bytes at the start of a report that are read and hold the element."""
_VERSION = 1
_BEGIN = '<meta name="session-summary" content="'
_ELEMENT = re.compile(re.escape(_BEGIN).encode() + rb'([^"]*)">')


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """Result of a report.

    Attributes:
        state: the session's state when the report was made: ``recording``, ``clean``, ``sealed``,
            ``recovered``; None if it could not be read.
        verdict: `recorder.session.verdict.Verdict.word`.
        reasons: what broke, where, and how much, one line each, the worst first.
        samples: stored samples of all streams.
        marks, faults: number in the session.
        start_ns, end_ns: as in ``session.json``; None if unknown, or if the session is open.
        duration_s: seconds until the end, or the last sample of an open session.
        streams: names of the streams.
        lost: samples counted as lost; None for a plain roverd trace.
        lost_intervals: number of uncounted losses; None for a plain roverd trace.
        incomplete: samples that lack parts; None for a plain roverd trace.
    """

    state: str | None
    verdict: str
    reasons: tuple[str, ...]
    samples: int
    marks: int
    faults: int
    start_ns: int | None = None
    end_ns: int | None = None
    duration_s: float | None = None
    streams: tuple[str, ...] = ()
    lost: int | None = None
    lost_intervals: int | None = None
    incomplete: int | None = None


@dataclass(frozen=True, slots=True)
class _Element:
    version: int
    summary: SessionSummary


def summary_element(summary: SessionSummary) -> str:
    """Encode the summary as an element of a page's head: escaped JSON in ASCII."""
    text = json.dumps(msgspec.to_builtins(_Element(_VERSION, summary)), separators=(",", ":"))
    return f'{_BEGIN}{html.escape(text)}">'


def read_summary(report: Path) -> SessionSummary | None:
    """Read the summary of a report; None if the file is missing or no report of this version."""
    try:
        with report.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None
    element = _ELEMENT.search(head)
    if element is None:
        return None
    try:
        found = msgspec.json.decode(html.unescape(element[1].decode()), type=prepare_type(_Element))
    except (msgspec.DecodeError, ValueError):
        return None
    return found.summary if found.version == _VERSION else None
