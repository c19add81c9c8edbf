"""Records of a session's archives, beside them: ``_archives/NAME.json``.

The finalizer writes the record when the archive is in its place; reports show it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recorder.common.files import PosixDisk
from recorder.session.layout import ARCHIVES

PARTS = "parts"
"""Folder in `ARCHIVES` with a folder for each packed part of a session."""
_SUFFIX = ".json"


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
    path = root / f"{archive}{_SUFFIX}"
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
    found = {name: _read(path) for name, path in _list_records(root)}
    try:
        parts = sorted(path for path in (root / PARTS).iterdir() if path.is_dir())
    except OSError:
        parts = []
    for part in parts:
        found |= {f"{name}, {part.name}": _read(path) for name, path in _list_records(part)}
    return found


def _list_records(folder: Path) -> list[tuple[str, Path]]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    return [
        (path.name.removesuffix(_SUFFIX), path)
        for path in paths
        if path.name.endswith(_SUFFIX) and not path.name.startswith(".") and path.is_file()
    ]


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _convert_value(value: Any) -> Any:
    """Convert values of a packer's summary for JSON: numpy's numbers and arrays, paths."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
