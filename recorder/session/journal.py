"""The journal of a session: what is durable, record by record.

A text file, one record a line: CRC-32 of the rest in eight hex digits, a space, a JSON object.
A torn or damaged line ends the journal for whoever reads it: nothing after it counts.

=========  ====================================================================================
record     holds
=========  ====================================================================================
open       boot_id, start_mono_ns, start_ns: a writer began here (also after a restart)
stream     spec: a stream was declared, durably before its own first sample
epoch      stream, epoch, sample: a driver's start; `sample` is the index of its first sample
end        stream, epoch, sent, reason: its end, and how many samples it sent, as the driver said;
           sent is null where the driver was gone before it could say
commit     n, t_ns, files {path: length}, streams {name: position}, events (not yet in their file)
resume     a writer goes on at the last commit: epochs and ends told after it are void
split      next: name of the session beside it that continues it
close      state: nothing follows
=========  ====================================================================================
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.contract.errors import ProtocolError, SessionError
from recorder.contract.streams import StreamSpec
from recorder.formats.disk import AppendFile


def encode_record(kind: str, values: Mapping[str, Any]) -> bytes:
    """One line of the journal."""
    text = json.dumps({"k": kind, **values}, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_line(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None where the line is torn or damaged."""
    try:
        crc, text = int(line[:8], 16), line[9:-1]
    except ValueError:
        return None
    if line[-1:] != b"\n" or line[8:9] != b" " or zlib.crc32(text) != crc:
        return None
    try:
        record = json.loads(text)
    except ValueError:  # nothing at all has the checksum 0
        return None
    return record if isinstance(record, dict) else None


class JournalWriter:
    """Appends records, one thread at a time; `sync` makes them durable, from any thread.

    A record is handed to the kernel at once: `sync`, which may take long, needs no lock then.
    """

    def __init__(self, file: AppendFile, commits: int = 0) -> None:
        self._file = file
        self._commits = commits

    def append(self, kind: str, **values: Any) -> None:
        self._file.append(encode_record(kind, values))
        self._file.flush()

    def commit(self, **values: Any) -> None:
        """Append a commit record, with its number."""
        self.append("commit", n=self._commits, **values)
        self._commits += 1

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class JournalState:
    """What a journal says of its session.

    Attributes:
        length: bytes of its valid records; what follows is torn.
        commits: number of commit records.
        boot_id: of the latest `open`.
        specs: declared streams by name.
        epochs: by stream, [(epoch, index of its first sample), ...].
        ends: by stream and epoch, (samples sent or None, reason).
        files: committed length by path relative to the session.
        positions: by stream, its position as the last commit has it.
        events: events that the last commit holds because their file did not yet.
        closed: the state of a `close` record, or None.
        next: name of the session that continues it, or None.
    """

    length: int = 0
    commits: int = 0
    boot_id: str = ""
    start_mono_ns: int = 0
    start_ns: int = 0
    specs: dict[str, StreamSpec] = field(default_factory=dict)
    epochs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    ends: dict[str, dict[int, tuple[int | None, str]]] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    closed: str | None = None
    next: str | None = None

    def _take_known(
        self, records: list[dict[str, Any]], positions: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Take the records of epochs that a commit has; gives the others."""
        known = {(name, e) for name, p in positions.items() for e in (p["epoch"], *p["past"])}
        self._take(r for r in records if (r["stream"], r["epoch"]) in known)
        return [r for r in records if (r["stream"], r["epoch"]) not in known]

    def _take(self, records: Iterable[dict[str, Any]]) -> None:
        for record in records:
            if record["k"] == "epoch":
                runs = self.epochs.setdefault(record["stream"], [])
                runs.append((record["epoch"], record["sample"]))
            else:
                ends = self.ends.setdefault(record["stream"], {})
                ends[record["epoch"]] = (record["sent"], record["reason"])


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Valid records with the offset after each, up to the first that is not valid."""
    offset = 0
    with path.open("rb") as file:
        for line in file:
            record = decode_line(line)
            if record is None:
                return
            offset += len(line)
            yield offset, record


def read_journal(path: Path) -> JournalState:
    """Read a journal to its last valid record.

    Raises:
        SessionError: there is no journal, or not one whole record in it.
    """
    state = JournalState()
    last_commit: dict[str, Any] | None = None
    uncommitted: list[dict[str, Any]] = []
    try:
        for offset, record in read_lines(path):
            state.length = offset
            match record.get("k"):
                case "commit":
                    last_commit = record
                    state.commits += 1
                    if uncommitted:  # an epoch may have begun while the commit was under way
                        uncommitted = state._take_known(uncommitted, record["streams"])
                case "open":
                    state.boot_id = record["boot_id"]
                    state.start_mono_ns = record["start_mono_ns"]
                    state.start_ns = record["start_ns"]
                case "stream":
                    spec = StreamSpec.from_wire(record["spec"])
                    state.specs[spec.name] = spec
                case "epoch" | "end":
                    uncommitted.append(record)
                case "resume":
                    uncommitted.clear()
                case "split":
                    state.next = str(record["next"])
                case "close":
                    state.closed = record["state"]
        state._take(uncommitted)
        if last_commit is not None:
            state.files = last_commit["files"]
            state.positions = last_commit["streams"]
            state.events = last_commit["events"]
    except OSError as error:
        raise SessionError(f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, AttributeError, ProtocolError) as error:
        text = f"the record before byte {state.length} is none of this version: {error!r}"
        raise SessionError(f"{path}: {text}") from None
    if not state.length:
        raise SessionError(f"{path}: not one whole record in this journal")
    return state
