"""Source sessions of a clip: opening, compatibility checks, proof of origin."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from recorder.common.errors import SessionError, UsageError
from recorder.integrity.signatures import last_signature
from recorder.session import layout
from recorder.session.journal.digests import digest
from recorder.session.journal.journal import read_journal
from recorder.session.layout import CLEAN, RECOVERED
from recorder.session.part import Part
from recorder.session.playback import recorded_spec
from recorder.session.reader import Session
from recorder.session.session_part import SessionPart


def open_sources(paths: Sequence[Path], part: Part) -> list[SessionPart]:
    """Open the parts of sessions that lie in a clip, by time; skip sessions without a sample.

    Args:
        paths: closed sessions of the recorder, in any order.
        part: interval and streams; its seconds count from the start of the earliest session.

    Raises:
        UsageError: a session is given twice.
        SessionError: a session cannot be read, was not closed, or lacks a chosen stream; the
            sessions come from different boots, overlap, or differ in shape; none has a sample in
            the interval.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a session is given twice")
    for path in paths:
        check_closed(path)
    starts = {path: layout.read_session_json(path)["start_ns"] for path in paths}
    ordered = sorted(paths, key=lambda path: int(starts[path]))
    first_ns = int(starts[ordered[0]])
    absolute = Part(
        _make_absolute(part.begin, first_ns), _make_absolute(part.end, first_ns), part.streams
    )
    opened: list[SessionPart] = []
    try:
        for path in ordered:
            try:
                opened.append(SessionPart(path, absolute, lead_in=True))
            except SessionError as error:
                if len(ordered) == 1 or "has no sample" not in str(error):
                    raise
        if not opened:
            raise SessionError(
                f"{ordered[0]}: has no sample: {part}; the other sessions have none either"
            )
        for before, after in pairwise(opened):
            _check_pair(before, after)
    except BaseException:
        for session in opened:
            session.close()
        raise
    return opened


def check_closed(path: Path) -> None:
    """Raise SessionError, with advice, unless a folder is a closed session of the recorder."""
    with Session(path) as session:
        if not session.recorded or session.header is None:
            raise SessionError(f"{path}: was not written by the recorder: it has no journal to cut")
        if session.state not in (CLEAN, RECOVERED):
            why = "is being recorded" if session.live else "was not closed"
            raise SessionError(f"{path}: {why}; stop it, or run `recorder recover {path}` first")


def describe_origin(session: Session) -> dict[str, Any]:
    """Return the record that names and identifies a source session (docs/clips.md)."""
    header = session.header or {}
    data = layout.private(session.path, layout.SESSION_JSON).read_bytes()
    journal = read_journal(layout.private(session.path, layout.JOURNAL))
    keys = ("name", "start_ns", "end_ns", "state", "hostname", "recorder_version", "boot_id")
    known = {key: header.get(key) for key in keys}
    proof: dict[str, Any] = {"session_digest": digest(data).hex(), "root": journal.tree.root.hex()}
    signed = last_signature(layout.private(session.path, layout.JOURNAL))
    proof |= {"head": journal.link.hex(), "signed": signed and signed.to_record()}
    return {**known, **proof, "origin": header.get("origin")}


def describe_origins(
    sources: Sequence[SessionPart], paths: Sequence[Path]
) -> dict[Path, dict[str, Any]]:
    """Return the origin records of a clip's sessions, by time.

    Sessions between them that have no sample in the clip are included.

    Args:
        sources: the sessions with samples in the clip, by time.
        paths: all sessions that the user named.
    """
    starts = {path: int(layout.read_session_json(path)["start_ns"]) for path in paths}
    first_ns, last_ns = starts[sources[0].path], starts[sources[-1].path]
    known = {source.path: source.whole for source in sources}
    origins = {}
    for path in sorted(paths, key=starts.__getitem__):
        if path in known:
            origins[path] = describe_origin(known[path])
        elif first_ns < starts[path] < last_ns:
            with Session(path) as session:
                origins[path] = describe_origin(session)
    return origins


def find_overlapping_events(sessions: Sequence[SessionPart]) -> list[dict[str, Any]]:
    """Return the events whose windows overlap a clip, each once, by time (docs/events.md)."""
    found = {}
    begin_ns, end_ns = sessions[0].interval_ns
    for session in sessions:
        for event in session.whole.kept_events():
            if (begin_ns is None or event.until_ns >= begin_ns) and (
                end_ns is None or event.from_ns < end_ns
            ):
                found[event.id] = to_builtins(event)
    return sorted(found.values(), key=lambda event: event["t_ns"])


def find_boot_id(session: Session) -> str:
    """Return the id of the boot from which a session's ``t_mono`` counts."""
    header = session.header or {}
    while isinstance(origin := header.get("origin"), dict) and origin.get("sessions"):
        header = origin["sessions"][0]
    return str(header.get("boot_id"))


def offset_ns(session: Session) -> int:
    """Return the offset from a session's ``t_mono`` to epoch time, ns."""
    header = session.header or {}
    return int(header["start_ns"]) - int(header["start_mono_ns"])


def read_calibration(session: Session) -> str | None:
    """Return the text of a session's calibration; None without one."""
    path = session.path / "calibration.yaml"
    return path.read_text("utf-8") if path.exists() else None


def _make_absolute(moment: Any, first_ns: int) -> Any:
    """Convert a moment to one since the epoch that keeps the user's text."""
    if moment is None or moment.since_epoch:
        return moment
    return type(moment)(f"{moment.text} s", first_ns + moment.ns, since_epoch=True)


def _check_pair(before: SessionPart, after: SessionPart) -> None:
    if find_boot_id(before) != find_boot_id(after):
        raise SessionError(
            f"{after.path}: was recorded after another start of the machine than {before.path}: "
            "t_mono of both cannot be in one session"
        )
    texts = {text for session in (before, after) if (text := read_calibration(session)) is not None}
    if len(texts) > 1:
        raise SessionError(f"{after.path}/calibration.yaml: is not that of {before.path}")
    for stream in sorted(before.streams.keys() & after.streams.keys()):
        if stream.startswith("_"):
            continue
        first, second = before.streams[stream], after.streams[stream]
        shapes = [
            [(c.name, c.format, c.dtype, c.shape) for c in recorded_spec(s).channels]
            for s in (first, second)
        ]
        if shapes[0] != shapes[1]:
            raise SessionError(
                f"{after.path}: {stream}: has other channels or shapes than in {before.path}"
            )
        ends = [s.channels["t_mono"] for s in (first, second)]
        last, begin = int(ends[0].read(len(first) - 1, len(first))[0]), int(ends[1].read(0, 1)[0])
        if begin <= last:
            raise SessionError(
                f"{after.path}: {stream}: begins {(last - begin) / 1e9:.3f} s before it ends in "
                f"{before.path}: the sessions overlap"
            )
