"""The register of a vehicle's key: the sessions that it began, signed and deleted, by number.

A file ``vehicle.register`` beside the key, an SQLite database to which entries are only appended::

    with register.lock_entries() as entries:
        entries.append(OPEN, first, {"folder": "/data/sessions/drive-1"})
        entries.of(first)

An entry names its session by the BLAKE3 of the first record of the session's journal.  Each has a
link, the BLAKE3 of the link before it and of its own content, so that a damaged entry is found;
signatures state the link of the last entry.

=========  =====================================================================================
entry      content
=========  =====================================================================================
open       ``folder``: a writer with the key began the session there
sign       a `recorder.integrity.vehicle_key.Signed`: the session is closed, and stays as it is
delete     ``numbers`` of its signatures and their ``digests``: the recorder deletes the session
=========  =====================================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.common.errors import StorageError, UsageError
from recorder.common.files import FILE_MODE, PosixDisk
from recorder.session.journal.digests import digest

OPEN, SIGN, DELETE = "open", "sign", "delete"
_WAIT_S: Final = 5.0  # an entry takes milliseconds
_MAKE: Final = """
CREATE TABLE entries (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, first TEXT NOT NULL, content TEXT NOT NULL,
  link TEXT NOT NULL
);
CREATE INDEX of_session ON entries (first);
CREATE TRIGGER kept BEFORE DELETE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are only appended'); END;
CREATE TRIGGER unchanged BEFORE UPDATE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are only appended'); END;
"""
_ROWS: Final = """
SELECT one.kind, one.first, one.content, one.link, coalesce(before.link, '')
FROM entries AS one LEFT JOIN entries AS before ON before.number = one.number - 1
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; see the module.

    Attributes:
        kind: `OPEN`, `SIGN` or `DELETE`.
        first: the session: BLAKE3 of the first record of its journal, in hex.
        content: what happened to it.
    """

    kind: str
    first: str
    content: dict[str, Any]


class Register:
    """The register in a file.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make an empty register, durably; OSError, StorageError."""
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
        with self._connect() as connection:
            connection.executescript(_MAKE)
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        PosixDisk().sync_folder(self.path.parent)

    @contextlib.contextmanager
    def lock_entries(self) -> Iterator[Entries]:
        """Lock the register for appending; entries are durable at the end, or discarded.

        Raises:
            UsageError: the register is missing or damaged.
            StorageError: it cannot be written, or another process holds it too long.
        """
        with self._connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Entries(connection, self.path)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def open_entries(self) -> Iterator[Entries]:
        """Read the entries without a lock; errors as `lock_entries`."""
        with self._connect() as connection:
            yield Entries(connection, self.path)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        if not self.path.exists():
            raise UsageError(f"{self.path}: is missing; make a new key: docs/security.md")
        try:
            uri = f"{self.path.absolute().as_uri()}?mode=rw"
            connection = sqlite3.connect(uri, _WAIT_S, isolation_level=None, uri=True)
            with contextlib.closing(connection):
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except sqlite3.OperationalError as error:
            raise StorageError(f"{self.path}: cannot be used: {error}") from None
        except sqlite3.Error:
            raise _create_damage_error(self.path) from None


class Entries:
    """The entries of a register that is open."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    @property
    def link(self) -> str:
        """The link of the last entry; empty without one."""
        found = self._connection.execute("SELECT link FROM entries ORDER BY number DESC LIMIT 1")
        row = found.fetchone()
        return "" if row is None else str(row[0])

    def of(self, first: str) -> list[Entry]:
        """Return the entries of a session, in order; UsageError if one is damaged."""
        rows = self._connection.execute(f"{_ROWS} WHERE one.first = ? ORDER BY one.number", [first])
        return [self._check_row(row) for row in rows]

    def since_signature(self) -> list[Entry]:
        """Return the last `SIGN` entry and the later ones; all entries, if there is none."""
        found: list[Entry] = []
        for row in self._connection.execute(f"{_ROWS} ORDER BY one.number DESC"):
            found.append(self._check_row(row))
            if found[-1].kind == SIGN:
                break
        return found[::-1]

    def append(self, kind: str, first: str, content: dict[str, Any]) -> None:
        """Append an entry; within `Register.lock_entries`."""
        text = json.dumps(content, sort_keys=True)
        link = _compute_link(self.link, kind, first, text)
        self._connection.execute(
            "INSERT INTO entries (number, kind, first, content, link)"
            " SELECT coalesce(max(number), 0) + 1, ?, ?, ?, ? FROM entries",
            [kind, first, text, link],
        )

    def _check_row(self, row: Any) -> Entry:
        kind, first, text, link, before = row
        is_text = all(isinstance(value, str) for value in row)
        if not is_text or _compute_link(before, kind, first, text) != link:
            raise _create_damage_error(self._path)
        return Entry(kind, first, json.loads(text))


def _compute_link(before: str, kind: str, first: str, text: str) -> str:
    return digest("\0".join((before, kind, first, text)).encode()).hex()


def _create_damage_error(path: Path) -> UsageError:
    return UsageError(f"{path}: is damaged; make a new key: docs/security.md")
