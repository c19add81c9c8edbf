"""The content of a session as a mapping for JSON: the output of ``recorder info``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from recorder.contract.errors import FormatError, SessionError
from recorder.session.absence import reported_losses
from recorder.session.folders import walk
from recorder.session.incidents import incidents
from recorder.session.journal import read_journal
from recorder.session.kept_events import KeptEvent
from recorder.session.layout import ARCHIVES, JOURNAL, LOG, private
from recorder.session.loss_accounts import losses
from recorder.session.loss_intervals import loss_intervals
from recorder.session.packing_records import PARTS
from recorder.session.reader import Session, read_header
from recorder.session.search import EVERY, Filter
from recorder.session.stream import BATCH_SAMPLES, Stream
from recorder.session.vrs.files import describe_vrs

MOST_GAPS = 10_000
"""Largest number of losses of a stream that are listed one by one."""


def summarize(session: Session, *, gaps: bool = False) -> dict[str, Any]:
    """The content of a session.

    A declared stream without samples is included, with 0 samples.

    Args:
        session: the session.
        gaps: whether the losses are listed one by one.

    Returns:
        ``{state, name, start_ns, end_ns, streams: {NAME: {samples, first_ns, last_ns, rate_hz,
        lost: {CAUSE: N}}}}`` (DESIGN, section 4), and beside them:

        - ``path``, ``recorded`` (False for a plain roverd trace), ``live`` (a writer holds it),
          ``duration_s``, ``bytes`` (of the folder without archives), ``metadata``;
        - ``archives``: the bytes of each packed archive by name, as ``NAME, PART`` for a part;
        - per stream ``bytes``, ``channels`` and ``lost_intervals``: the uncounted losses, each
          ``{cause, t_ns, duration_ns, estimate}``.  N in ``lost`` is the sum of the counted losses;
          an interval adds nothing to it;
        - per stream ``incomplete``: samples that lack a part of their measurement,
          ``{samples, columns_missing}``: a lidar's sweeps that lack columns (from ``log.jsonl``),
          a radar's frames whose ``valid`` is 0 (without ``columns_missing``).  They are not
          counted in ``lost``; empty if nothing is missing;
        - per stream, if asked for, ``gaps``: the losses in order of time, each ``{start_ns, end_ns,
          duration_ns, cause, count, estimate, first_seq, last_seq}``
          (`recorder.session.loss_intervals`), the first `MOST_GAPS`, and ``gaps_left_out``, the
          number of the others;
        - ``record_format``: content of ``session.vrs``, ``{bytes, records, indexed, streams}``
          (see `describe_vrs`); null if the session has none;
        - ``commits``: durations of the commits, ``{count, half_ms, most_ms, longest_ms}``: half of
          the commits, and 99%, took less than the first two; null if unknown;
        - ``events``: the `KeptEvent` that touch the session, by time;
        - ``ended``, ``marks``, ``faults``: see `recorder.session.incidents.incidents`;
        - ``problems``: a message for everything that could not be read.  The numbers of a damaged
          stream are null.
    """
    problems: list[str] = []
    lost = {}
    happened: dict[str, Any] = {"ended": None, "marks": [], "faults": []}
    try:
        lost = reported_losses(session)
        happened = incidents(session)
    except FormatError as error:
        problems.append(str(error))
    events: list[KeptEvent] = []
    try:
        events = session.kept_events()
    except FormatError as error:
        problems.append(str(error))
    columns = _missing_columns(session, problems)
    problems += map(str, session.broken.values())
    streams: dict[str, dict[str, Any]] = {}
    reported = {name for names in session.sensors().values() for name in names}
    for name in sorted({*session.streams, *session.declared, *session.broken, *reported, *lost}):
        entry: dict[str, Any] = dict.fromkeys(("samples", "first_ns", "last_ns", "rate_hz"))
        stream = session.streams.get(name)
        incomplete: dict[str, int] = {}
        if name in session.broken:
            entry |= {"bytes": folder_bytes(session.path / name), "channels": []}
        elif stream is None:
            entry |= {"samples": 0, "bytes": 0, "channels": []}
        else:
            entry |= {"bytes": folder_bytes(stream.path), "channels": list(stream.meta)}
            try:
                entry |= _extent(stream)
                incomplete = columns.get(name) or _invalid(stream)
            except FormatError as error:
                problems.append(str(error))
        entry["lost"], entry["lost_intervals"] = losses(lost.get(name, ()))
        entry["incomplete"] = incomplete
        if gaps:
            entry |= _gaps(stream, lost.get(name, ()), problems)
        streams[name] = entry
    try:
        start_ns, end_ns = session.start_ns, session.end_ns
    except FormatError:  # reported above, for its stream
        start_ns = end_ns = None
    record_format = None
    try:
        record_format = describe_vrs(session)
    except FormatError as error:
        problems.append(str(error))
    last = (s["last_ns"] for s in streams.values())
    last_ns = max((t for t in last if t is not None), default=None)
    until_ns = last_ns if end_ns is None else end_ns
    duration_s = None
    if start_ns is not None and until_ns is not None:
        duration_s = (until_ns - start_ns) / 1e9
    return {
        "state": session.state,
        "name": session.name,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "streams": streams,
        "path": str(session.path),
        "recorded": session.recorded,
        "live": session.live,
        "duration_s": duration_s,
        "bytes": folder_bytes(session.path) - folder_bytes(session.path / ARCHIVES),
        "archives": _archive_sizes(session.path),
        "metadata": dict(session.metadata),
        "record_format": record_format,
        "commits": _commits(session),
        **happened,
        "events": msgspec.to_builtins(events),
        "problems": problems,
    }


def _archive_sizes(session: Path) -> dict[str, int]:
    """Measure each archive of a session, in bytes; unfinished ones (hidden) are left out."""
    root = session / ARCHIVES
    parts = [path for path in sorted((root / PARTS).glob("*")) if path.is_dir()]
    sizes = {}
    for folder, label in [(root, ""), *((part, f", {part.name}") for part in parts)]:
        for path in sorted(folder.glob("[!.]*")):
            if path.is_dir() and path.name != PARTS and any(path.glob("[!.]*")):
                sizes[f"{path.name}{label}"] = folder_bytes(path)
    return sizes


def _gaps(
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


def _commits(session: Session) -> dict[str, float] | None:
    if not session.recorded:
        return None
    with contextlib.suppress(SessionError):  # `validate` reports the error
        return read_journal(private(session.path, JOURNAL)).durations()
    return None


def brief(path: Path) -> dict[str, Any]:
    """A session in one line of ``recorder list``, without reading its channels.

    Returns:
        ``{name, path, state, live, start_ns, duration_s, bytes, streams: [NAME], lost,
        lost_intervals, problem}``; ``lost`` is the number of samples counted as lost, over all
        streams, ``lost_intervals`` the number of uncounted losses (both null for a plain roverd
        trace).  If a session cannot be opened, ``problem`` is the error, and unknown values are
        null.
    """
    line = brief_if(path, EVERY)
    assert line is not None
    return line


def brief_if(path: Path, wanted: Filter) -> dict[str, Any] | None:
    """`brief` of a session that is wanted; None of another, as early as that is known."""
    line: dict[str, Any] = dict.fromkeys(("state", "start_ns", "duration_s"))
    line |= {"name": path.name, "path": str(path), "live": False, "bytes": None}
    line |= {"streams": [], "lost": None, "lost_intervals": None, "problem": None}
    try:
        if wanted.is_early((read_header(path) or {}).get("start_ns")):
            return None  # before the streams are read
        with Session(path) as session:
            line |= {"name": session.name, "state": session.state, "live": session.live}
            line["streams"] = sorted(session.streams)
            line["start_ns"] = session.start_ns
            if wanted.is_early(session.start_ns):
                return None
            end_ns = session.end_ns
            if end_ns is None:
                last = (_last_stamp(stream) for stream in session.streams.values())
                end_ns = max((t for t in last if t is not None), default=None)
            if end_ns is not None and line["start_ns"] is not None:
                line["duration_s"] = (end_ns - line["start_ns"]) / 1e9
            lost = reported_losses(session)
            line["streams"] = sorted({*session.streams, *lost})
            counted, intervals = losses(event for events in lost.values() for event in events)
            if session.recorded:
                line |= {"lost": sum(counted.values()), "lost_intervals": len(intervals)}
            if wanted.lost and not line["lost"] and not line["lost_intervals"]:
                return None
            if not wanted.has_mark(session):
                return None
    except (SessionError, FormatError) as error:
        line["problem"] = str(error)
    line["bytes"] = folder_bytes(path)
    return line


def folder_bytes(path: str | Path) -> int:
    """Bytes of all files below a folder; files that vanish meanwhile do not count."""
    total = 0
    for _, _, files in walk(path):
        for entry in files:
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _extent(stream: Stream) -> dict[str, Any]:
    length = len(stream)
    extent: dict[str, Any] = {"samples": length}
    if length and stream.has_times:
        first = int(stream.times(0, 1)[0])
        last = int(stream.times(length - 1, length)[0])
        extent |= {"first_ns": first, "last_ns": last}
        if last > first:
            extent["rate_hz"] = (length - 1) * 1e9 / (last - first)
    return extent


def _missing_columns(session: Session, problems: list[str]) -> dict[str, dict[str, int]]:
    """By stream, the number of sweeps that lack columns, and of missing columns."""
    missing: dict[str, dict[str, int]] = {}
    path = private(session.path, LOG)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break  # being written, or was when the power went
                if b"columns_missing" not in line:
                    continue
                try:
                    entry = json.loads(line)
                    name, count = str(entry["stream"]), int(entry["state"]["columns_missing"])
                except (ValueError, KeyError, TypeError):
                    problems.append(f"{path}:{number}: is no state of a sensor")
                    continue
                reported = missing.setdefault(name, {"samples": 0, "columns_missing": 0})
                reported["samples"] += 1
                reported["columns_missing"] += count
    except FileNotFoundError:
        pass
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror}")
    return missing


def _invalid(stream: Stream) -> dict[str, int]:
    """A radar's frames that lack packets."""
    if "valid" not in stream.meta or not len(stream):
        return {}
    count = 0
    for batch in stream.iterate(BATCH_SAMPLES, ["valid"]):
        count += int(np.count_nonzero(batch.data["valid"] == 0))
    return {"samples": count} if count else {}


def _last_stamp(stream: Stream) -> int | None:
    """The last stamp in ``ts``: about the end of an open session."""
    length = len(stream.channels["ts"]) if stream.has_times else 0
    if not length:
        return None
    return round(float(stream.channels["ts"].read(length - 1, length)[0]) * 1e9)
