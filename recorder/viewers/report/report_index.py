"""Index of the reports below a root: one row for each session, sorted and filtered in the browser.

::

    write_index(Path("/data/sessions"))          # /data/sessions/index.html

The row of a session with a current report comes from the head of the report; the row of any other
session shows the values of ``recorder list`` or of the catalog.  No stream is read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from recorder.common.errors import StorageError
from recorder.common.files import PosixDisk
from recorder.common.secret_masking import mask_secrets
from recorder.fleet.catalog.catalog import KnownRows
from recorder.fleet.catalog.rows import list_archives
from recorder.fleet.catalog.table import CATALOG
from recorder.session.discovery import find_sessions
from recorder.session.layout import CLEAN, INDEX, RECOVERED, REPORT
from recorder.session.outputs import SessionSummary, read_summary
from recorder.session.reader import read_header
from recorder.session.summary import brief, folder_bytes
from recorder.viewers.report.index_rows import Row, group
from recorder.viewers.report.report_index_page import fleet_page
from recorder.viewers.report.session_scan import READ_ERRORS, format_error

Progress = Callable[[str, float], None]
"""Callback that receives the current session and the completed share of the work."""


def write_index(
    root: Path, out: Path | None = None, progress: Progress = lambda *_: None
) -> tuple[Path, list[Row]]:
    """Write the index of a root.

    Args:
        root: a folder of sessions.
        out: the file; None: ``index.html`` in the root.
        progress: see `Progress`.

    Returns:
        The file, which replaces an older one when it is complete, and its rows.

    Raises:
        SessionError: the root cannot be listed.
        StorageError: the file cannot be written.
    """
    target = root / INDEX if out is None else out
    rows = list(read_rows(root, target.parent, progress))
    text = fleet_page(root.resolve().name, group(rows))
    try:
        PosixDisk().write_file(target, text.encode())
    except OSError as error:
        raise StorageError(f"{target}: cannot be written: {error.strerror or error}") from error
    return target, rows


def read_rows(root: Path, place: Path, progress: Progress = lambda *_: None) -> Iterator[Row]:
    """Yield a row for each session below a root, by name.

    Args:
        root: the folder of sessions.
        place: folder of the index, from which the links lead to the reports.
        progress: see `Progress`.

    Raises:
        SessionError: the root cannot be listed.
    """
    sessions, known = find_sessions(root), KnownRows.read(root / CATALOG)
    for number, path in enumerate(sessions):
        progress(path.name, number / len(sessions))
        row = _read_row(path, place, known)
        if path.is_dir():  # else it was deleted meanwhile
            yield row


def _read_row(path: Path, place: Path, known: KnownRows) -> Row:
    report = path / REPORT
    summary = read_summary(report)
    header: Mapping[str, Any] = {}
    with contextlib.suppress(*READ_ERRORS):  # `brief` has the error
        header = read_header(path) or {}
    if summary is not None and _matches(summary, header):
        line: dict[str, Any] = {key: getattr(summary, key) for key in _SUMMARIZED}
        line |= {"name": header["name"], "live": False, "bytes": folder_bytes(path)}
        line["problem"] = None
    else:
        line = _read_line(path, known)
    return Row(
        **line,
        metadata=_read_metadata(header),
        archives=list_archives(path),
        report=_format_url(report, place) if report.is_file() else None,
        summary=summary,
    )


_SUMMARIZED = (
    *("state", "start_ns", "duration_s", "streams", "lost", "lost_intervals", "incomplete"),
    *("verdict", "reasons"),
)


def _matches(summary: SessionSummary, header: Mapping[str, Any]) -> bool:
    """Check that a report matches the present state of a closed session."""
    if header.get("state") not in (CLEAN, RECOVERED):
        return False
    return all(getattr(summary, key) == header.get(key) for key in ("state", "start_ns", "end_ns"))


def _read_line(path: Path, known: KnownRows) -> dict[str, Any]:
    try:
        row = known.get(path)
        line = brief(path) if row is None else row.line()
    except READ_ERRORS as error:  # one strange session must not cost the index of the others
        line = dict.fromkeys(_SUMMARIZED) | {"reasons": []}
        line |= {"name": path.name, "live": False, "bytes": folder_bytes(path), "streams": []}
        line["problem"] = f"{path}: {format_error(error)}"
    line.pop("path", None)
    return line


def _read_metadata(header: Mapping[str, Any]) -> dict[str, str]:
    values = mask_secrets(header.get("metadata"))
    if not isinstance(values, dict):
        return {}
    return {str(key): str(value) for key, value in values.items() if value not in (None, "")}


def _format_url(path: Path, place: Path) -> str:
    """Return the URL of a file relative to a folder; names may hold any bytes."""
    return quote(os.path.relpath(os.fsencode(path.absolute()), os.fsencode(place.absolute())))
