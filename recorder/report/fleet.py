"""The index of the reports below a root: one row a session, sorted and filtered in the browser.

::

    write_index(Path("/data/sessions"))          # /data/sessions/index.html

A session with a report of its present state is read from the head of the report; of the others the
index shows what ``recorder list`` reads, or the catalog has.  No stream is read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from recorder.catalog.catalog import KnownRows
from recorder.catalog.rows import archives_of
from recorder.catalog.table import CATALOG
from recorder.contract.errors import StorageError
from recorder.contract.redaction import mask_secrets
from recorder.contract.session_names import recording_of
from recorder.formats.disk import PosixDisk
from recorder.report.embedded import SessionSummary, read_summary
from recorder.report.findings import ODD, odd_text
from recorder.report.verdict import FAIL, PASS
from recorder.session.layout import CLEAN, INDEX, RECOVERED, REPORT
from recorder.session.reader import find_sessions, read_header
from recorder.session.summary import brief, folder_bytes

NONE = "not known"
"""The verdict of a session that could not be judged."""
Progress = Callable[[str, float], None]
"""Called with the session that is read and the share of the work that is done."""


@dataclass(frozen=True, slots=True)
class Row:
    """A session in the index.

    Attributes:
        name, state, live, start_ns, duration_s, bytes, streams, lost, lost_intervals, incomplete,
            verdict, reasons, problem: as `brief` gives them.
        metadata: the session's free-form metadata, as texts.
        archives: names of the packed archives.
        report: URL of the report, relative to the index; None without a report.
        summary: from the head of the report; None without a report of this version.
    """

    name: str
    state: str | None
    live: bool
    start_ns: int | None
    duration_s: float | None
    bytes: int
    streams: Sequence[str]
    lost: int | None
    lost_intervals: int | None
    incomplete: int | None
    verdict: str | None
    reasons: Sequence[str]
    problem: str | None
    metadata: dict[str, str]
    archives: Sequence[str]
    report: str | None
    summary: SessionSummary | None

    @property
    def outdated(self) -> bool:
        """Whether the report was made before the session was closed, or repaired."""
        return self.summary is not None and self.summary.state != self.state

    @property
    def word(self) -> str:
        """The verdict, of the report if it is not outdated; `NONE` if there is none."""
        words = [self.verdict] if self._judged is None else [self._judged.verdict, self.verdict]
        return next((word for word in words if word in (PASS, FAIL)), NONE)

    @property
    def why(self) -> Sequence[str]:
        """The reasons of the verdict, the worst first."""
        return self.reasons if self._judged is None else self._judged.reasons

    @property
    def _judged(self) -> SessionSummary | None:
        return None if self.outdated else self.summary

    @property
    def recording(self) -> tuple[str, int]:
        """Name of the recording, and the number of the part that the session is (0: the whole)."""
        return recording_of(self.name)


@dataclass(frozen=True, slots=True)
class Recording:
    """The sessions of one recording: its parts in their order, or the only session."""

    name: str
    parts: Sequence[Row]

    @property
    def start_ns(self) -> int:
        """Start of the first part that has one; 0 if none has."""
        return min((row.start_ns for row in self.parts if row.start_ns is not None), default=0)


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
    from recorder.report.fleet_page import fleet_page

    target = root / INDEX if out is None else out
    rows = list(read_rows(root, target.parent, progress))
    text = fleet_page(root.resolve().name, group(rows))
    try:
        PosixDisk().write_file(target, text.encode())
    except OSError as error:
        raise StorageError(f"{target}: cannot be written: {error.strerror or error}") from error
    return target, rows


def read_rows(root: Path, place: Path, progress: Progress = lambda *_: None) -> Iterator[Row]:
    """A row for each session below a root, by name.

    Args:
        root: the folder of sessions.
        place: folder of the index, from which the links lead to the reports.
        progress: see `Progress`.

    Raises:
        SessionError: the root cannot be listed.
    """
    sessions, known = find_sessions(root), KnownRows.of(root / CATALOG)
    for number, path in enumerate(sessions):
        progress(path.name, number / len(sessions))
        row = _row(path, place, known)
        if path.is_dir():  # else it was deleted meanwhile
            yield row


def group(rows: Sequence[Row]) -> list[Recording]:
    """The recordings, the newest first; parts of a recording in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.recording[0], []).append(row)
    recordings = [
        Recording(name, sorted(parts, key=lambda row: (row.recording[1], row.start_ns or 0)))
        for name, parts in found.items()
    ]
    return sorted(recordings, key=lambda recording: recording.start_ns, reverse=True)


def _row(path: Path, place: Path, known: KnownRows) -> Row:
    report = path / REPORT
    summary = read_summary(report)
    header: Mapping[str, Any] = {}
    with contextlib.suppress(*ODD):  # `brief` has the error
        header = read_header(path) or {}
    if summary is not None and _is_of(summary, header):
        line: dict[str, Any] = {key: getattr(summary, key) for key in _SUMMARIZED}
        line |= {"name": header["name"], "live": False, "bytes": folder_bytes(path)}
        line["problem"] = None
    else:
        line = _look(path, known)
    return Row(
        **line,
        metadata=_metadata(header),
        archives=archives_of(path),
        report=_url(report, place) if report.is_file() else None,
        summary=summary,
    )


_SUMMARIZED = (
    *("state", "start_ns", "duration_s", "streams", "lost", "lost_intervals", "incomplete"),
    *("verdict", "reasons"),
)


def _is_of(summary: SessionSummary, header: Mapping[str, Any]) -> bool:
    """Whether a report is of the closed session as it is: then nothing else needs to be read."""
    if header.get("state") not in (CLEAN, RECOVERED):
        return False
    return all(getattr(summary, key) == header.get(key) for key in ("state", "start_ns", "end_ns"))


def _look(path: Path, known: KnownRows) -> dict[str, Any]:
    try:
        row = known.get(path)
        line = brief(path) if row is None else row.line()
    except ODD as error:  # one strange session must not cost the index of the others
        line = dict.fromkeys(_SUMMARIZED) | {"reasons": []}
        line |= {"name": path.name, "live": False, "bytes": folder_bytes(path), "streams": []}
        line["problem"] = f"{path}: {odd_text(error)}"
    line.pop("path", None)
    return line


def _metadata(header: Mapping[str, Any]) -> dict[str, str]:
    values = mask_secrets(header.get("metadata"))
    if not isinstance(values, dict):
        return {}
    return {str(key): str(value) for key, value in values.items() if value not in (None, "")}


def _url(path: Path, place: Path) -> str:
    """The URL of a file relative to a folder; names of any bytes."""
    return quote(os.path.relpath(os.fsencode(path.absolute()), os.fsencode(place.absolute())))
