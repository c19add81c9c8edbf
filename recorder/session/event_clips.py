"""Events whose surroundings are kept: moments with some seconds before and after.

::

    for event in read_index(root):
        print(event.id, event.state, event.parts)

A session that holds some of an event has it in ``_recorder/keep``: ``{"kept": true, "events":
[EVENT, ...]}``.  An event of which no session holds anything is a line of
``ROOT/.recorder/events.jsonl``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from recorder.common.errors import FormatError
from recorder.common.files import Disk
from recorder.common.struct_codec import prepare_type
from recorder.session.discovery import find_sessions
from recorder.session.layout import EVENTS, KEEP, ROOT_PRIVATE, private

State = Literal["open", "kept", "short"]
OPEN: State = "open"
KEPT: State = "kept"
SHORT: State = "short"
CAUSES = {
    "start": "the recording began later",
    "stop": "the recording was stopped",
    "disk": "the disk was full",
    "ring": "the part was deleted before",
    "lost": "samples were lost",
    "power": "the power was cut, or the recorder was killed",
    "damaged": "the part cannot be read",
    "sensor": "the sensor sent nothing",
}
"""Causes of a shortfall, for people."""


class Shortfall(msgspec.Struct, frozen=True):
    """An interval of a promised window that is not stored.

    Attributes:
        from_ns, until_ns: the interval, epoch ns.
        stream: the stream that lacks it; None: all streams.
        cause: a key of `CAUSES`.
    """

    from_ns: int
    until_ns: int
    stream: str | None
    cause: str


class KeptEvent(msgspec.Struct, frozen=True):
    """An event.

    Attributes:
        id: unique below a root: ``20261123T125907.250Z_hard_brake``.
        text: what happened, for people.
        trigger: name of the trigger; None where a person or a program asked.
        t_ns: the moment, epoch ns on the session's clock.
        from_ns, until_ns: the promised window, epoch ns.
        state: ``open`` (not durable yet), ``kept``, or ``short`` (durable, with shortfalls).
        parts: names of the sessions that hold it, in order of time.
        shortfalls: the missing intervals of the window.
    """

    id: str
    text: str
    trigger: str | None
    t_ns: int
    from_ns: int
    until_ns: int
    state: State
    parts: tuple[str, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()

    def __post_init__(self) -> None:
        if not self.from_ns <= self.t_ns <= self.until_ns:
            raise ValueError(f"event {self.id!r}: the moment is outside its window")


class _Claim(msgspec.Struct, frozen=True):
    kept: bool = True
    events: tuple[KeptEvent, ...] = ()


def read_events(session: Path) -> list[KeptEvent]:
    """Return a session's events by time; [] for a session that is kept without an event.

    Raises:
        FormatError: ``_recorder/keep`` cannot be read.
    """
    path = private(session, KEEP)
    data = _read(path)
    if not data.strip():
        return []
    try:
        claim = msgspec.json.decode(data, type=prepare_type(_Claim))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: is no list of events: {error}") from None
    return sorted(claim.events, key=_order)


def parse_origin_events(header: Mapping[str, Any], where: Path) -> list[KeptEvent]:
    """Return the events that a clip holds some of, by time; none of another session.

    Raises:
        FormatError: they are no events.
    """
    origin = header.get("origin")
    events = origin.get("events") if isinstance(origin, dict) else None
    try:
        return sorted(msgspec.convert(events or [], prepare_type(list[KeptEvent])), key=_order)
    except msgspec.ValidationError as error:
        raise FormatError(f"{where}: origin has no list of events: {error}") from None


def write_events(disk: Disk, session: Path, events: Iterable[KeptEvent]) -> None:
    """Replace the events of a session, durably and atomically; the session is kept.

    Raises:
        OSError: the file cannot be written.
    """
    claim = _Claim(events=tuple(sorted(events, key=_order)))
    disk.write_file(private(session, KEEP), msgspec.json.encode(claim))


def write_unstored(disk: Disk, root: Path, event: KeptEvent, *, remove: bool = False) -> None:
    """Store an event that no session holds, durably; with `remove`, delete it.

    Raises:
        FormatError: the other events of the file cannot be read.
        OSError: the file cannot be written.
    """
    path = root / ROOT_PRIVATE / EVENTS
    before = _read_lines(path)
    after = [known for known in before if known.id != event.id] + ([] if remove else [event])
    if after != before:
        disk.write_file(path, b"".join(msgspec.json.encode(known) + b"\n" for known in after))


def read_index(root: Path, failed: Callable[[str], None] | None = None) -> list[KeptEvent]:
    """Return the events of all sessions directly in a root, by time, each once.

    Args:
        root: a folder of sessions.
        failed: called with a message for each file that cannot be read; None: the first raises.

    Raises:
        SessionError: the root cannot be listed.
        FormatError: a file cannot be read, and `failed` is None.
    """
    found: dict[str, KeptEvent] = {}

    def take(read: Callable[[Path], list[KeptEvent]], path: Path) -> None:
        try:
            events = read(path)
        except FormatError as error:
            if failed is None:
                raise
            failed(str(error))
            return
        for event in events:
            known = found.get(event.id)
            found[event.id] = event if known is None else _merge(known, event)

    take(_read_lines, root / ROOT_PRIVATE / EVENTS)
    for path in find_sessions(root):
        take(read_events, path)
    return sorted(found.values(), key=_order)


def _order(event: KeptEvent) -> tuple[int, str]:
    return event.t_ns, event.id


def _merge(one: KeptEvent, other: KeptEvent) -> KeptEvent:
    """Merge an event of two sessions; after a kill, one of them may have an older state."""
    newer, older = (one, other) if one.state != OPEN else (other, one)
    shortfalls = newer.shortfalls if older.state == OPEN else newer.shortfalls + older.shortfalls
    unique = tuple(dict.fromkeys(shortfalls))
    state = SHORT if unique and newer.state != OPEN else newer.state
    parts = tuple(dict.fromkeys(newer.parts + older.parts))
    return msgspec.structs.replace(newer, state=state, parts=parts, shortfalls=unique)


def _read_lines(path: Path) -> list[KeptEvent]:
    events = []
    for number, line in enumerate(_read(path).splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break  # being written, or was when the power went
        try:
            events.append(msgspec.json.decode(line, type=prepare_type(KeptEvent)))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FormatError(f"{path}:{number}: is no event: {error}") from None
    return events


def _read(path: Path) -> bytes:
    """Return the content of a file; empty where it is missing."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
