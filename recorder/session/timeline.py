"""The content of a session's streams over time, for a picture: samples, losses, marks, events.

Only stamps, sample numbers and the event log are read, no payload.  The result is bounded however
long the session is: pieces that the picture could not distinguish are merged.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import RecorderError
from recorder.session.incidents import classify_events
from recorder.session.loss_accounts import WINDOW, find_gap_losses, get_event_interval_ns, losses
from recorder.session.missing_sensors import collect_losses
from recorder.session.reader import Session
from recorder.session.stream import Stream

PIECES = 400
"""Largest number of pieces of one kind of a stream."""
EVENTS = 100
MARKS = 500
"""Largest number of events and marks; the newest are kept."""
RATES = 60
"""Number of intervals whose sample rates are given."""
DATA, LOST, UNCOUNTED = "data", "lost", "unknown"
_BREAK = 2.5  # sample intervals without a sample that end a piece of data

Event = Mapping[str, Any]


@dataclass(slots=True)
class Piece:
    """An interval of a stream, epoch ns.

    Attributes:
        start_ns, end_ns: both included.
        kind: `DATA` (samples without a pause), `LOST` (counted), or `UNCOUNTED` (samples may be
            lost).
        causes: lost samples by cause; 0 for an uncounted cause.
    """

    start_ns: int
    end_ns: int
    kind: str
    causes: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        """The causes in words: ``buffer 12, device``."""
        return ", ".join(f"{name} {n}" if n else name for name, n in self.causes.items())


@dataclass(slots=True)
class StreamTimeline:
    """One stream over time.

    Attributes:
        samples: samples that can be read.
        pieces: in order of time.
        lost: counted losses by cause; ``unknown`` for gaps without an event.
        uncounted: number of intervals in which samples may be lost.
        rate_hz: mean rate; None below two samples.
        rates_hz: mean rates in `RATES` intervals of equal length, from the session's start to its
            end; empty without a sample.
        problem: why the stream cannot be read; empty if it can be.
    """

    samples: int = 0
    pieces: list[Piece] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    uncounted: int = 0
    rate_hz: float | None = None
    rates_hz: list[float] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A session over time.

    Attributes:
        start_ns, end_ns: the interval of the picture, epoch ns.
        streams: by name, declared streams without samples included.
        marks: ``{t_ns, text}``.
        events: losses, faults, marks and the end, as in the log.
        problem: why the event log cannot be read; empty if it can be.
    """

    start_ns: int
    end_ns: int
    streams: Mapping[str, StreamTimeline]
    marks: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]
    problem: str = ""


def make_timeline(session: Session, start_ns: int, end_ns: int) -> Timeline:
    """Return the timeline of a session from its start to its end, epoch ns.

    The timeline reports faults of files; nothing is raised.
    """
    lost: Mapping[str, Sequence[Event]] = {}
    log: deque[Event] = deque(maxlen=EVENTS)
    marks: deque[Event] = deque(maxlen=MARKS)
    problem = ""
    try:
        lost = collect_losses(session)
        for event in filter(_is_shown, session.events()):
            log.append(event)
            marks += classify_events([event], {})["marks"]
    except RecorderError as error:
        problem = str(error)
    names = {*session.streams, *session.declared, *session.broken, *lost}
    streams = {}
    for name in sorted(names):
        streams[name] = row = StreamTimeline()
        events = lost.get(name, ())
        row.lost, intervals = losses(events)
        row.lost = {cause: count for cause, count in row.lost.items() if count}
        row.uncounted = len(intervals)
        pieces = [_convert_loss(event, start_ns, end_ns) for event in events]
        try:
            if name in session.broken:
                raise session.broken[name]
            if name in session.streams and session.streams[name].has_times:
                stream = session.streams[name]
                unknown = list(_find_unknown_gaps(stream, events, start_ns, end_ns))
                if count := sum(piece.causes["unknown"] for piece in unknown):
                    row.lost["unknown"] = row.lost.get("unknown", 0) + count
                pieces += unknown
                pieces += _add_samples(row, stream, start_ns, end_ns)
        except RecorderError as error:
            row.problem = str(error)
        row.pieces = merge(pieces, (end_ns - start_ns) // PIECES)
    return Timeline(start_ns, end_ns, streams, list(marks), list(log), problem)


def merge(pieces: Iterable[Piece], resolution_ns: int) -> list[Piece]:
    """Sort pieces by time, and merge those of one kind that are nearer than the resolution."""
    merged: list[Piece] = []
    newest: dict[str, Piece] = {}
    for piece in sorted(pieces, key=lambda piece: piece.start_ns):
        before = newest.get(piece.kind)
        if before is not None and piece.start_ns - before.end_ns <= resolution_ns:
            before.end_ns = max(before.end_ns, piece.end_ns)
            for cause, count in piece.causes.items():  # `update` would leave out what is 0
                before.causes[cause] += count
        else:
            merged.append(piece)
            newest[piece.kind] = piece
    return merged


def _add_samples(row: StreamTimeline, stream: Stream, start_ns: int, end_ns: int) -> list[Piece]:
    """Count a stream's samples; return the pieces that they cover."""
    row.samples = length = len(stream)
    if not length:
        return []
    first, last = (int(stream.times(i, i + 1)[0]) for i in (0, length - 1))
    interval_ns = (last - first) / max(1, length - 1)
    if length > 1 and last > first:
        row.rate_hz = 1e9 / interval_ns
    limit_ns = max(_BREAK * interval_ns, (end_ns - start_ns) / PIECES)
    edges = np.linspace(start_ns, max(end_ns, start_ns + 1), RATES + 1).astype(np.int64)
    edges[-1] = max(end_ns, start_ns + 1) + 1  # the last moment is included
    counts: npt.NDArray[np.int64] = np.zeros(RATES, np.int64)
    pieces = [Piece(first, first, DATA)]
    for at in range(0, length, WINDOW):
        times = stream.times(at, min(at + WINDOW, length))
        counts += np.diff(np.searchsorted(times, edges))
        before = np.concatenate(([pieces[-1].end_ns], times[:-1]))
        for k in np.flatnonzero(times - before > limit_ns).tolist():
            pieces[-1].end_ns = int(before[k])
            pieces.append(Piece(int(times[k]), int(times[k]), DATA))
        pieces[-1].end_ns = int(times[-1])
    row.rates_hz = (counts * 1e9 / np.diff(edges)).tolist()
    return pieces


def _convert_loss(event: Event, start_ns: int, end_ns: int) -> Piece:
    count = event.get("count")
    causes = Counter({str(event.get("cause") or "unknown"): count if isinstance(count, int) else 0})
    kind = LOST if isinstance(count, int) else UNCOUNTED
    first_ns, last_ns = get_event_interval_ns(event) or (start_ns, end_ns)
    return Piece(max(first_ns, min(start_ns, last_ns)), last_ns, kind, causes)


def _find_unknown_gaps(
    stream: Stream, events: Sequence[Event], start_ns: int, end_ns: int
) -> Iterator[Piece]:
    """Yield gaps in the sample numbers that no event explains."""
    for lost in find_gap_losses(stream, events):
        if not lost.reported and lost.count:
            first_ns = start_ns if lost.start_ns is None else lost.start_ns
            last_ns = end_ns if lost.end_ns is None else lost.end_ns
            yield Piece(first_ns, last_ns, LOST, Counter(unknown=lost.count))


def _is_shown(event: Event) -> bool:
    if not isinstance(event.get("t_ns"), int):
        return False
    found = classify_events([event], {})
    return bool(event.get("type") == "lost" or found["marks"] or found["faults"] or found["ended"])
