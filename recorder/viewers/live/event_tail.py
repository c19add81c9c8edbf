"""Event log of the open session, and the timeline of its losses and marks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from recorder.session.events import format_event
from recorder.session.layout import EVENTS, private
from recorder.viewers.live.backend import Note

MOST_INTERVALS = 500
"""Largest number of intervals of a stream in a timeline; beyond it neighbours are merged."""
_MOST_READ = 1 << 20
_MOST_EVENTS = 2000

Event = dict[str, Any]


class EventTail:
    """Reader that follows a session's event log, in one worker thread.

    Args:
        path: the session's folder.

    Attributes:
        path, name: the session's folder and name.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.path = path
        self._at = 0

    def read(self) -> list[Event]:
        """Return the events since the last call; keep an incomplete line for the next call."""
        try:
            with private(self.path, EVENTS).open("rb") as file:
                file.seek(self._at)
                data = file.read(_MOST_READ)
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        self._at += whole
        events = []
        for line in data[:whole].splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and isinstance(event.get("t_ns"), int):
                    events.append(event)
        return events


class Timeline:
    """Losses and marks of a session on one axis."""

    def __init__(self, start_ns: int | None = None) -> None:
        self.start_ns = start_ns
        self._streams: dict[str, list[tuple[int, int, str]]] = {}
        self._marks: list[tuple[int, str]] = []

    def add(self, events: Iterable[Event]) -> None:
        """Add further events."""
        for event in events:
            t_ns, duration_ns = event["t_ns"], int(event.get("duration_ns") or 0)
            if event["type"] == "mark":
                self._marks.append((t_ns, str(event.get("text") or event.get("cause") or "")))
            elif event["type"] == "lost" and event.get("stream"):
                # A loss is found at its end; that of merged events is written at its begin.
                begin_ns = t_ns if event.get("merged") else t_ns - duration_ns
                kind = "unknown" if event.get("count") is None else "lost"
                intervals = self._streams.setdefault(event["stream"], [])
                intervals.append((begin_ns, begin_ns + duration_ns, kind))
                if len(intervals) > MOST_INTERVALS:
                    self._streams[event["stream"]] = _merge(intervals)
        del self._marks[:-_MOST_EVENTS]

    def note(self, end_ns: int, outages: Mapping[str, Mapping[str, Any]] | None = None) -> Note:
        """Return the note ``timeline``.

        Args:
            end_ns: the current time, epoch ns.
            outages: ongoing outages by stream, each shown as a loss until `end_ns`.
        """
        streams = {name: list(intervals) for name, intervals in self._streams.items()}
        for name, outage in (outages or {}).items():
            begin_ns = min(int(outage["since_ns"]), end_ns)
            streams.setdefault(name, []).append((begin_ns, end_ns, "unknown"))
        return {
            "type": "timeline",
            "start_ns": None if self.start_ns is None else str(self.start_ns),
            "end_ns": str(end_ns),
            "streams": {
                name: [[str(begin), str(end), kind] for begin, end, kind in intervals]
                for name, intervals in streams.items()
            },
            "marks": [{"t_ns": str(t_ns), "text": text} for t_ns, text in self._marks],
        }


def event_note(event: Event, text: str | None = None) -> Note:
    """Return the note ``event``, with `text` or a generated sentence."""
    return {
        "type": "event",
        "t_ns": str(event["t_ns"]),
        "kind": event["type"],
        "stream": event.get("stream"),
        "cause": event.get("cause"),
        "text": format_event(event) if text is None else text,
    }


def _merge(intervals: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Halve the number of intervals: merge each pair, with the gap between them."""
    pairs = [intervals[i : i + 2] for i in range(0, len(intervals), 2)]
    return [(pair[0][0], max(end for _, end, _ in pair), pair[0][2]) for pair in pairs]
