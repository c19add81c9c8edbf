"""Creation and update of a root's catalog; unchanged sessions are not read again."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from recorder.common.errors import FormatError, UsageError
from recorder.fleet.catalog.rows import Row, compute_stamp, read_row
from recorder.fleet.catalog.table import CATALOG, read_table, write_table
from recorder.session.discovery import find_sessions_below
from recorder.session.summary import Filter


def is_wanted(row: Row, wanted: Filter) -> bool:
    """Check that a row matches a filter."""
    text = (wanted.marked or "").casefold()
    return row.problem is not None or not (
        wanted.is_early(row.start_ns)
        or (wanted.lost and not (row.lost or row.lost_intervals or row.incomplete))
        or (text and not any(text in mark.text.casefold() for mark in row.marks))
    )


@dataclass(frozen=True)
class Update:
    """Result of `update_catalog`.

    Attributes:
        path: the catalog file.
        rows: rows, sorted by location.
        read, unchanged, gone: number of sessions that were read, that were unchanged, and that no
            longer exist.
        unlisted: a message for each folder that cannot be listed.
    """

    path: Path
    rows: tuple[Row, ...]
    read: int
    unchanged: int
    gone: int
    unlisted: tuple[str, ...] = ()


class KnownRows:
    """Rows of an earlier catalog, for unchanged sessions.

    >>> known = KnownRows.read(root)
    >>> row = known.get(root / "drive")          # None: not known, or changed since
    """

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self.rows = rows

    @classmethod
    def read(cls, path: Path) -> KnownRows:
        """Read a catalog file; empty without pyarrow, or without a file of this version."""
        rows: list[Row] = []
        if path.is_file():
            with contextlib.suppress(FormatError, UsageError):
                rows = read_table(path)
        return cls({row.location: row for row in rows})

    def get(self, session: Path) -> Row | None:
        """Return the row of a session that has not changed since, else None."""
        row = self.rows.get(str(session.absolute()))
        return (
            row if row is not None and row.stamp and row.stamp == compute_stamp(session) else None
        )


def update_catalog(root: Path, out: Path | None = None) -> Update:
    """Write the catalog of all sessions below a folder.

    Args:
        root: the folder.
        out: the file; None: `CATALOG` in the root.

    Raises:
        SessionError: the root cannot be listed.
        UsageError: pyarrow is not installed.
        StorageError: the file cannot be written.
    """
    path = root / CATALOG if out is None else out
    known, unlisted = KnownRows.read(path), list[str]()
    rows, read = [], 0
    for session in find_sessions_below(root.absolute(), unlisted.append):
        if (row := known.get(session)) is None:
            row, read = read_row(session), read + 1
        rows.append(row)
    rows.sort(key=lambda row: row.location)
    write_table(path, rows)
    here = {row.location for row in rows}
    gone = len(known.rows.keys() - here)
    return Update(path, tuple(rows), read, len(rows) - read, gone, tuple(unlisted))
