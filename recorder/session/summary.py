"""The content of a session as a mapping for JSON: the output of ``recorder info``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, SessionError
from recorder.formats.recorded_topic import find_topic
from recorder.session.accounts import Accounts, read_accounts, sum_incomplete
from recorder.session.discovery import walk
from recorder.session.event_clips import KeptEvent
from recorder.session.incidents import classify_events
from recorder.session.journal.journal import read_journal
from recorder.session.layout import ARCHIVES, JOURNAL, private
from recorder.session.loss_accounts import loss_intervals
from recorder.session.outputs import PACKED_PARTS
from recorder.session.reader import Session, read_header
from recorder.session.stream import Stream
from recorder.session.verdict import Reason, judge_unreadable_session, verdict
from recorder.session.vrs.files import describe_vrs

MISSING = ("lost", "lost_intervals", "incomplete")
"""Keys of what a session lacks, in its line of ``recorder list``."""
MOST_GAPS = 10_000
"""Largest number of losses of a stream that are listed one by one."""


@dataclass(frozen=True)
class Filter:
    """A filter of sessions; a session that cannot be read always passes.

    Attributes:
        since_ns: sessions that started at this time or later, epoch ns.
        lost: sessions with losses, counted or not.
        marked: sessions with a mark that contains this text, in any case.
    """

    since_ns: int | None = None
    lost: bool = False
    marked: str | None = None

    def is_early(self, start_ns: int | None) -> bool:
        """Return whether a session started too early; one without a start did not."""
        return self.since_ns is not None and start_ns is not None and start_ns < self.since_ns

    def has_mark(self, session: Session) -> bool:
        """Return whether the session has such a mark; read the event log only if one is required.

        Raises:
            FormatError: the event log cannot be read.
        """
        if self.marked is None:
            return True
        wanted = self.marked.casefold()
        return any(
            wanted in mark["text"].casefold()
            for event in session.events()
            for mark in classify_events([event], {})["marks"]
        )


EVERY = Filter()


def _describe_topic(spec: StreamSpec, problems: list[str]) -> dict[str, str]:
    """Return name and type of the topic whose messages a stream holds; empty for other streams."""
    try:
        topic = find_topic(spec)
    except FormatError as error:
        problems.append(f"{spec.name}: {error}")
        return {}
    return {} if topic is None else {"topic": topic.name, "type": topic.type_name}


def summarize(
    session: Session, *, gaps: bool = False, accounts: Accounts | None = None
) -> dict[str, Any]:
    """Return the content of a session.

    A declared stream without samples is included, with 0 samples.

    Args:
        session: the session.
        gaps: whether the losses are listed one by one.
        accounts: of the session, if they have been read; None: they are read.

    Returns:
        ``{state, name, start_ns, end_ns, streams: {NAME: {samples, first_ns, last_ns, rate_hz,
        lost: {CAUSE: N}}}}``, and beside them:

        - ``path``, ``recorded`` (False for a plain roverd trace), ``live`` (a writer holds it),
          ``duration_s``, ``bytes`` (of the folder without archives), ``metadata``;
        - ``archives``: the bytes of each packed archive by name, as ``NAME, PART`` for a part;
        - per stream ``bytes``, ``channels`` and ``lost_intervals``: the uncounted losses, each
          ``{cause, t_ns, duration_ns, estimate}``.  N in ``lost`` is the sum of the counted losses;
          an interval adds nothing to it;
        - per stream ``incomplete``: stored samples that lack parts (columns of a sweep, packets of
          a radar frame), by cause: ``{CAUSE: {samples, parts}}``.  They are not counted in
          ``lost``; empty if nothing is missing;
        - per stream, if asked for, ``gaps``: the losses in order of time, each ``{start_ns, end_ns,
          duration_ns, cause, count, estimate, first_seq, last_seq}``
          (`recorder.session.loss_accounts`), the first `MOST_GAPS`, and ``gaps_left_out``, the
          number of the others;
        - per stream of a topic's messages ``topic`` and ``type``;
        - ``virtual``: the virtual sensors, processed output of others in folders ``_NAME``:
          ``{NAME: {samples, bytes, channels, problem}}``;
        - ``record_format``: content of ``session.vrs``, ``{bytes, records, indexed, streams}``
          (see `describe_vrs`); null if the session has none;
        - ``commits``: durations of the commits, ``{count, half_ms, most_ms, longest_ms}``: half of
          the commits, and 99%, took less than the first two; null if unknown;
        - ``events``: the `KeptEvent` that touch the session, by time;
        - ``ended``, ``marks``, ``faults``: see `recorder.session.incidents.incidents`;
        - ``verdict`` (``PASS`` or ``FAIL``; of an open session, so far), ``reasons``, ``remarks``:
          each ``[{what, where, how_much}]``, see `recorder.session.verdict`;
        - ``problems``: a message for everything that could not be read.  The numbers of a damaged
          stream are null.
    """
    found = read_accounts(session) if accounts is None else accounts
    problems = list(found.problems)
    events: list[KeptEvent] = []
    try:
        events = session.kept_events()
    except FormatError as error:
        problems.append(str(error))
    streams: dict[str, dict[str, Any]] = {}
    for name, account in found.streams.items():
        stream = session.streams.get(name)
        entry = streams[name] = dict(account)
        entry |= {"bytes": 0, "channels": [] if stream is None else list(stream.meta)}
        if stream is not None or name in session.broken:
            entry["bytes"] = folder_bytes(session.path / name)
        if (spec := session.declared.get(name)) is not None:
            entry |= _describe_topic(spec, problems)
        if gaps:
            entry |= _list_gaps(stream, found.lost.get(name, ()), problems)
    start_ns, end_ns = found.start_ns, found.end_ns
    record_format = None
    try:
        record_format = describe_vrs(session)
    except FormatError as error:
        problems.append(str(error))
    until_ns = found.last_ns if end_ns is None else end_ns
    duration_s = None
    if start_ns is not None and until_ns is not None:
        duration_s = (until_ns - start_ns) / 1e9
    further = [Reason("unreadable", "", text) for text in problems if text not in found.problems]
    return {
        "state": session.state,
        "name": session.name,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "streams": streams,
        "virtual": _describe_virtual(session.path),
        "path": str(session.path),
        "recorded": session.recorded,
        "live": session.live,
        "duration_s": duration_s,
        "bytes": folder_bytes(session.path) - folder_bytes(session.path / ARCHIVES),
        "archives": _measure_archives(session.path),
        "metadata": dict(session.metadata),
        "record_format": record_format,
        "commits": _read_commit_durations(session),
        **found.happened,
        **verdict(found, unreadable=further).to_wire(),
        "events": msgspec.to_builtins(events),
        "problems": problems,
    }


def _describe_virtual(path: Path) -> dict[str, dict[str, Any]]:
    """Return samples, bytes, channels and problem of the virtual sensors, which others write.

    What is wrong with them is no fault of the session.
    """
    found: dict[str, dict[str, Any]] = {}
    with Session(path, virtual=True, partial=True) as session:
        for name in sorted(session.streams.keys() | session.broken.keys()):
            if not name.startswith("_"):
                continue
            stream, reason = session.streams.get(name), session.broken.get(name)
            found[name] = {
                "samples": None if stream is None else len(stream),
                "bytes": folder_bytes(path / name),
                "channels": [] if stream is None else list(stream.meta),
                "problem": None if reason is None else str(reason),
            }
    return found


def _measure_archives(session: Path) -> dict[str, int]:
    """Measure each archive of a session, in bytes; unfinished ones (hidden) are left out."""
    root = session / ARCHIVES
    parts = [path for path in sorted((root / PACKED_PARTS).glob("*")) if path.is_dir()]
    sizes = {}
    for folder, label in [(root, ""), *((part, f", {part.name}") for part in parts)]:
        for path in sorted(folder.glob("[!.]*")):
            if path.is_dir() and path.name != PACKED_PARTS and any(path.glob("[!.]*")):
                sizes[f"{path.name}{label}"] = folder_bytes(path)
    return sizes


def _list_gaps(
    stream: Stream | None, events: Sequence[Mapping[str, Any]], problems: list[str]
) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    left_out = 0
    try:
        for lost in loss_intervals(stream, events):
            if len(found) < MOST_GAPS:
                found.append(lost.to_wire())
            else:
                left_out += 1
    except FormatError as error:
        if str(error) not in problems:
            problems.append(str(error))
    return {"gaps": found, "gaps_left_out": left_out}


def _read_commit_durations(session: Session) -> dict[str, float] | None:
    if not session.recorded:
        return None
    with contextlib.suppress(SessionError):  # `validate` reports the error
        return read_journal(private(session.path, JOURNAL)).durations()
    return None


def brief(path: Path) -> dict[str, Any]:
    """Return a session's line of ``recorder list``, without reading its channels.

    Returns:
        ``{name, path, state, live, start_ns, duration_s, bytes, streams: [NAME], lost,
        lost_intervals, incomplete, verdict, reasons, problem}``; ``lost`` is the number of samples
        counted as lost, over all streams, ``lost_intervals`` the number of uncounted losses,
        ``incomplete`` the number of samples that lack parts (all null for a plain roverd trace);
        ``verdict`` as in `summarize`, ``reasons`` as texts.  If a session cannot be opened,
        ``problem`` is the error, and unknown values are null.
    """
    line = brief_if(path, EVERY)
    assert line is not None
    return line


def brief_if(path: Path, wanted: Filter) -> dict[str, Any] | None:
    """Return `brief` of a session that passes a filter; None of another, as early as possible."""
    line: dict[str, Any] = dict.fromkeys(("state", "start_ns", "duration_s"))
    line |= {"name": path.name, "path": str(path), "live": False, "bytes": None}
    line |= {"streams": [], "lost": None, "lost_intervals": None, "incomplete": None}
    line |= {"verdict": None, "reasons": [], "problem": None}
    try:
        if wanted.is_early((read_header(path) or {}).get("start_ns")):
            return None  # before the streams are read
        with Session(path) as session:
            line |= {"name": session.name, "state": session.state, "live": session.live}
            line["streams"] = sorted(session.streams)
            line["start_ns"] = session.start_ns
            if wanted.is_early(session.start_ns):
                return None
            found = read_accounts(session, quick=True)
            end_ns = found.last_ns if found.end_ns is None else found.end_ns
            if end_ns is not None and line["start_ns"] is not None:
                line["duration_s"] = (end_ns - line["start_ns"]) / 1e9
            streams = found.streams.values()
            line["streams"] = sorted({*session.streams, *found.lost})
            if session.recorded:
                line["lost"] = sum(sum(stream["lost"].values()) for stream in streams)
                line["lost_intervals"] = sum(len(stream["lost_intervals"]) for stream in streams)
                line["incomplete"] = sum(sum_incomplete(s["incomplete"])[0] for s in streams)
            if wanted.lost and not found.problems and not any(line[key] for key in MISSING):
                return None
            judged = verdict(found)
            line |= {"verdict": judged.word, "reasons": [r.text for r in judged.reasons]}
            line["problem"] = "; ".join(found.problems) or None
            if not wanted.has_mark(session):
                return None
    except (SessionError, FormatError) as error:
        line["problem"] = str(error)
        judged = judge_unreadable_session(str(error))
        line |= {"verdict": judged.word, "reasons": [r.text for r in judged.reasons]}
    line["bytes"] = folder_bytes(path)
    return line


def folder_bytes(path: str | Path) -> int:
    """Return the bytes of all files below a folder; files that vanish meanwhile do not count."""
    total = 0
    for _, _, files in walk(path):
        for entry in files:
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total
