"""Accounts of a session: its stored and lost samples, the basis of every verdict.

Only events, headers and the first and last stamps are read, so that ``recorder list`` can judge
hundreds of sessions.  `recorder.session.verdict` judges.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, SessionError
from recorder.session import events as event_log
from recorder.session.events import INCOMPLETE
from recorder.session.incidents import classify_events
from recorder.session.layout import POSTPROCESSING, private
from recorder.session.loss_accounts import losses
from recorder.session.missing_sensors import collect_losses
from recorder.session.reader import Session
from recorder.session.stream import BATCH_SAMPLES, Stream

Event = Mapping[str, Any]
Incomplete = dict[str, dict[str, int]]
"""By cause, the samples that lack parts, and the parts: ``{CAUSE: {samples, parts}}``."""


@dataclass(slots=True)
class Accounts:
    """The accounts of a session.

    Attributes:
        state, live, recorded: as of the `Session`.
        header: its ``session.json``; empty for a plain roverd trace.
        declared: the declared streams.
        start_ns, end_ns: epoch ns; None if not known.
        streams: by stream ``{samples, first_ns, last_ns, rate_hz, lost, lost_intervals,
            incomplete}`` (`recorder.session.summary.summarize`).
        lost: by stream its ``lost`` events.
        happened: ``ended``, ``marks``, ``faults`` (`recorder.session.incidents`).
        slow: by stream the events of a rate below the minimum, as the supervisor saw it.
        steps: the steps after the recording (`read_postprocessing_steps`).
        problems: a message for everything that could not be read.
    """

    state: str
    live: bool
    recorded: bool
    header: Mapping[str, Any]
    declared: Mapping[str, StreamSpec]
    start_ns: int | None = None
    end_ns: int | None = None
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    happened: dict[str, Any] = field(
        default_factory=lambda: {"ended": None, "marks": [], "faults": []}
    )
    slow: dict[str, list[Event]] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def sensors(self) -> Mapping[str, Mapping[str, Any]]:
        """The sensors' entries in ``session.json``."""
        entries: Mapping[str, Any] = self.header.get("sensors") or {}
        return {name: entry for name, entry in entries.items() if isinstance(entry, Mapping)}

    @property
    def last_ns(self) -> int | None:
        """Stamp of the latest sample of any stream, epoch ns; None without one."""
        known = (stream["last_ns"] for stream in self.streams.values())
        return max((t_ns for t_ns in known if t_ns is not None), default=None)


def read_accounts(session: Session, *, quick: bool = False) -> Accounts:
    """Read the accounts of a session; what cannot be read becomes a problem.

    Args:
        session: the session.
        quick: count samples by their stamps alone, and do not look at the other channels.
    """
    header = session.header or {}
    found = Accounts(session.state, session.live, session.recorded, header, session.declared)
    found.steps = read_postprocessing_steps(session.path)[0]
    incomplete: dict[str, Incomplete] = {}
    try:
        events = list(session.events())
        found.lost = collect_losses(session, events)
        found.happened = classify_events(events, header)
        incomplete = count_incomplete(events)
        found.slow = _group_low_rates(events)
    except FormatError as error:
        found.problems.append(str(error))
    found.problems += map(str, session.broken.values())
    reported = {name for names in session.sensors().values() for name in names}
    lost = found.lost
    for name in sorted({*session.streams, *session.declared, *session.broken, *reported, *lost}):
        entry: dict[str, Any] = dict.fromkeys(("samples", "first_ns", "last_ns", "rate_hz"))
        entry["incomplete"] = incomplete.get(name, {})
        stream = session.streams.get(name)
        if stream is not None:
            try:
                entry |= _measure_extent(stream, quick=quick)
                if not session.recorded:
                    entry["incomplete"] = _count_invalid(stream)
            except FormatError as error:
                found.problems.append(str(error))
        elif name not in session.broken:
            entry["samples"] = 0
        entry["lost"], entry["lost_intervals"] = losses(lost.get(name, ()))
        found.streams[name] = entry
    try:
        found.start_ns, found.end_ns = session.start_ns, session.end_ns
    except FormatError:  # reported above, for its stream
        found.start_ns = found.end_ns = None
    return found


def count_incomplete(events: Iterable[Event]) -> dict[str, Incomplete]:
    """Return the stored samples that lack parts, by stream, from the events of a session."""
    found: dict[str, Incomplete] = {}
    for event in events:
        count, parts = event.get("count"), event.get("parts")
        if event.get("type") == INCOMPLETE and isinstance(count, int) and isinstance(parts, int):
            causes = found.setdefault(str(event.get("stream")), {})
            known = causes.setdefault(str(event.get("cause")), {"samples": 0, "parts": 0})
            known["samples"] += count
            known["parts"] += parts
    return found


def sum_incomplete(incomplete: Mapping[str, Mapping[str, int]]) -> tuple[int, int]:
    """Return the samples that lack parts, and the missing parts, over all causes."""
    samples = sum(counts["samples"] for counts in incomplete.values())
    return samples, sum(counts["parts"] for counts in incomplete.values())


def format_incomplete(incomplete: Mapping[str, Mapping[str, int]]) -> str:
    """Format for people: ``22 samples lack 353 parts (network)``; empty if nothing is missing."""
    samples, parts = sum_incomplete(incomplete)
    causes = ", ".join(cause for cause, counts in incomplete.items() if counts["samples"])
    if not samples:
        return ""
    return event_log.format_incomplete(samples, parts, causes)


def read_postprocessing_steps(path: Path) -> tuple[Mapping[str, Mapping[str, Any]], bool]:
    """Return the daemon's steps after the recording, and whether they are to be skipped."""
    try:
        values = json.loads(private(path, POSTPROCESSING).read_bytes())
        steps = values.get("steps") or {}
        entries = {str(k): v for k, v in steps.items() if isinstance(v, Mapping)}
        return entries, bool(values.get("skip"))
    except (OSError, ValueError, RecursionError, AttributeError):
        return {}, False


def _group_low_rates(events: Iterable[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for event in events:
        if (event.get("type"), event.get("cause")) == ("rate", "low"):
            found.setdefault(str(event.get("stream")), []).append(event)
    return found


def _measure_extent(stream: Stream, *, quick: bool) -> dict[str, Any]:
    if quick:
        return _measure_stamped_extent(stream)
    length = len(stream)
    extent: dict[str, Any] = {"samples": length}
    if length and stream.has_times:
        first = int(stream.times(0, 1)[0])
        last = int(stream.times(length - 1, length)[0])
        extent |= _describe_span(first, last, length)
    return extent


def _measure_stamped_extent(stream: Stream) -> dict[str, Any]:
    """Return the extent by ``ts``, the channel in which a sample is written last."""
    if not stream.has_times:
        return {}
    stamps = stream.channels["ts"]
    length = len(stamps)
    if not length:
        return {"samples": 0}
    first, last = (float(stamps.read(at, at + 1)[0]) for at in (0, length - 1))
    if not np.isfinite(first) or not np.isfinite(last):
        raise FormatError(f"{stream.path / 'ts'}: {first} and {last} are no times")
    return {"samples": length, **_describe_span(round(first * 1e9), round(last * 1e9), length)}


def _describe_span(first_ns: int, last_ns: int, length: int) -> dict[str, Any]:
    extent: dict[str, Any] = {"first_ns": first_ns, "last_ns": last_ns}
    if last_ns > first_ns:
        extent["rate_hz"] = (length - 1) * 1e9 / (last_ns - first_ns)
    return extent


def _count_invalid(stream: Stream) -> Incomplete:
    """Return the radar frames that lack packets, in a trace of another recorder."""
    if "valid" not in stream.meta or not len(stream):
        return {}
    count = 0
    try:
        for batch in stream.iterate(BATCH_SAMPLES, ["valid"]):
            count += int(np.count_nonzero(batch.data["valid"] == 0))
    except SessionError:  # it has no times
        return {}
    return {"unknown": {"samples": count, "parts": count}} if count else {}
