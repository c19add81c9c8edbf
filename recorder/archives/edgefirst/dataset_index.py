"""Index of a dataset's sessions: names of their sequences, and facts about each session.

The index is stored as JSON under ``recorder`` in the table's file metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recorder.archives.edgefirst.table_files import ExistingTable
from recorder.common.errors import ArchiveError
from recorder.perception.frames import kind_of
from recorder.session.reader import Session

KEY = "recorder"
VERSION = 1
_BAD = re.compile(r"[^A-Za-z0-9._-]")


@dataclass
class Entry:
    """Index entry of one session.

    Attributes:
        name, start_ns: identity of the session.
        base: name of the session's sequence, without a camera's name.
        sequences: names of sequences by camera.
        facts: further entries about the session.
    """

    name: str
    start_ns: int
    base: str
    sequences: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, int]:
        """Name and start (ns) of the session, which identify it."""
        return self.name, self.start_ns

    def to_json(self) -> dict[str, Any]:
        """Return the entry in its stored form."""
        known = {"name": self.name, "start_ns": self.start_ns, "base": self.base}
        return {**known, "sequences": self.sequences, **self.facts}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Entry:
        """Return an entry from the form that `to_json` returns."""
        keys = ("name", "start_ns", "base", "sequences")
        facts = {key: value for key, value in values.items() if key not in keys}
        base, sequences = values["base"], dict(values["sequences"])
        if not all(isinstance(text, str) for text in (base, *sequences, *sequences.values())):
            raise TypeError("names of sequences are not text")
        return cls(values["name"], values["start_ns"], base, sequences, facts)


@dataclass
class DatasetIndex:
    """Index of all sessions of a dataset.

    Attributes:
        kept: sessions of an older dataset that stay.
        dropped: names of sequences of sessions that are replaced.
        new: sessions that are packed now.
    """

    kept: list[Entry] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    new: list[Entry] = field(default_factory=list)

    @classmethod
    def build(cls, sessions: Sequence[Session], old: ExistingTable | None) -> DatasetIndex:
        """Choose names for the sequences of sessions.

        A session that is in the older dataset keeps its name.

        Args:
            sessions: sessions that are packed now.
            old: the older table.

        Raises:
            ArchiveError: the older table's metadata are invalid, or two sessions have the same
                name and start.
        """
        catalog = cls()
        before: dict[tuple[str, int], Entry] = {}
        if old is not None:
            try:
                for values in old.entry(KEY, dict).get("sessions", ()):
                    entry = Entry.from_json(values)
                    before[entry.identity] = entry
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ArchiveError(f"{old.path}: metadata {KEY}: {error!r}") from None
        places: dict[tuple[str, int], Path] = {}
        for session in sessions:
            if (first := places.setdefault(identify(session), session.path)) != session.path:
                raise ArchiveError(f"{session.path}: has the name and the start of {first}")
        replaced = places.keys()
        catalog.kept = [entry for key, entry in before.items() if key not in replaced]
        for key in replaced & before.keys():
            catalog.dropped |= set(before[key].sequences.values())
        names = {entry.base for entry in catalog.kept}
        names |= (old.sequences if old is not None else frozenset()) - catalog.dropped
        taken = {name.casefold() for name in names}
        # Sessions that have a name already come first, in any order.
        for session in sorted(sessions, key=lambda one: identify(one) not in before):
            name, start_ns = identify(session)
            known = before.get((name, start_ns))
            base = known.base if known is not None else sequence_name(session)
            free, number = base, 1
            while taken & (wanted := _names(free, session)):
                number += 1
                free = f"{base}_{number}"
            taken |= wanted
            catalog.new.append(Entry(name, start_ns, free))
        catalog.new.sort(key=lambda entry: list(places).index(entry.identity))
        return catalog

    def metadata(self, options: dict[str, Any]) -> dict[str, str]:
        """Return the index as an entry of the table's file metadata."""
        entries = [entry.to_json() for entry in (*self.kept, *self.new)]
        document = {"version": VERSION, "options": options, "sessions": entries}
        return {KEY: json.dumps(document, separators=(",", ":"), default=str)}


def identify(session: Session) -> tuple[str, int]:
    """Return the name and start (ns) of a session."""
    return session.name, session.start_ns or 0


def _names(base: str, session: Session) -> set[str]:
    """Return the possible names of a session's sequences, casefolded.

    The plain name is possible even with several cameras, because a camera may have no picture.
    """
    cameras = [
        stream.name
        for stream in session.streams.values()
        if not stream.name.startswith("_") and kind_of(stream) == "camera"
    ]
    several = [f"{base}_{camera}".casefold() for camera in cameras if len(cameras) > 1]
    return {base.casefold(), *several}


def sequence_name(session: Session) -> str:
    """Return ``HOSTNAME_DATE_TIME`` in UTC; without a hostname, the session's name."""
    host = (session.header or {}).get("hostname")
    if not host or session.start_ns is None:
        return _BAD.sub("-", session.name) or "session"
    moment = datetime.fromtimestamp(session.start_ns // 1_000_000_000, UTC)
    host = _BAD.sub("-", str(host).partition(".")[0]) or "host"
    return f"{host}_{moment:%Y_%m_%d_%H_%M_%S}"
