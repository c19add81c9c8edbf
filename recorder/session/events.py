"""The event log: losses and incidents, as they happen, counted by cause.

One JSON object a line: ``{t_ns, type, stream, cause, first_seq, last_seq, count, duration_ns}``,
and the event's own keys.  ``count`` is null for an uncounted loss, which may have an ``estimate``.
Events of one stream and cause within a second are merged.  The ``count`` of an `INCOMPLETE` event
is a number of stored samples, and its ``parts`` the sum of their missing parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock
from recorder.common.files import AppendFile

INCOMPLETE = "incomplete"
"""Type of events about stored samples that lack parts: columns of a sweep, packets of a frame."""
MERGE_NS = 1_000_000_000
_CLOCK_STEP_NS = 10_000_000  # a larger change between two readings is a step
_KNOWN = ("t_ns", "type", "stream", "cause", "first_seq", "last_seq", "count", "duration_ns")


def make_event(
    kind: str, t_ns: int, stream: str = "", cause: str = "", **more: Any
) -> dict[str, Any]:
    """Return an event with every key of the format; `more` sets or adds keys."""
    event: dict[str, Any] = dict.fromkeys(_KNOWN)
    event |= {"t_ns": t_ns, "type": kind, "stream": stream or None, "cause": cause or None}
    return event | more


class EventLog:
    """The log of a session's events, which merges events and appends them to a file.

    Events that may still be merged are `pending`.  The journal's commit records hold them until
    they are in the file, so that no event is lost with a killed writer.
    """

    def __init__(self, file: AppendFile, pending: Iterable[dict[str, Any]] = ()) -> None:
        self.file = file
        self.pending: list[dict[str, Any]] = list(pending)
        self.uncommitted: list[dict[str, Any]] = []  # in the file, and in no commit yet

    def add(self, event: dict[str, Any]) -> None:
        """Log an event, or merge it into an earlier one of its stream and cause."""
        for earlier in self.pending:
            if _can_merge(earlier, event):
                _merge(earlier, event)
                return
        self.pending.append(event)

    def write_due(self, now_ns: int | None = None) -> None:
        """Append events that are older than a second (None: all) to the file."""
        waiting = []
        for event in self.pending:
            if now_ns is not None and now_ns - event["t_ns"] < MERGE_NS:
                waiting.append(event)
            else:
                self.file.append(json.dumps(event, separators=(",", ":")).encode() + b"\n")
                self.uncommitted.append(event)
        self.pending = waiting


class ClockWatch:
    """Detection of steps of the calendar clock; `ts` counts from the start, without steps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = clock.realtime_ns() - clock.monotonic_ns()

    def step_ns(self) -> int | None:
        """Return the clock's step since the last call; None without one."""
        offset_ns = self._clock.realtime_ns() - self._clock.monotonic_ns()
        step_ns, self._offset_ns = offset_ns - self._offset_ns, offset_ns
        return step_ns if abs(step_ns) > _CLOCK_STEP_NS else None


def _can_merge(earlier: dict[str, Any], event: dict[str, Any]) -> bool:
    return (
        all(earlier[key] == event[key] for key in ("type", "stream", "cause"))
        and earlier.get("epoch") == event.get("epoch")
        and (earlier["count"] is None) == (event["count"] is None)
        and 0 <= event["t_ns"] - earlier["t_ns"] < MERGE_NS
    )


def _merge(earlier: dict[str, Any], event: dict[str, Any]) -> None:
    if event["count"] is not None:
        earlier["count"] += event["count"]
    for key in ("estimate", "parts"):
        if event.get(key) is not None:
            earlier[key] = (earlier.get(key) or 0) + event[key]
    if event["last_seq"] is not None:
        earlier["last_seq"] = event["last_seq"]
    earlier["duration_ns"] = (
        event["t_ns"] - earlier["t_ns"] + (event["duration_ns"] or earlier["duration_ns"] or 0)
    )
    earlier["merged"] = earlier.get("merged", 1) + 1


SILENT, SLOW = "silent", "rate"
"""Causes of losses: a stream gave no sample, or fewer than its minimum rate."""

WINDOW_NS = 3_000_000_000
_PERIODS = 3  # of the minimum rate: slow streams have longer windows
_SHARE = 0.5  # of the expected rate, if no `min_rate` is set


def floor_hz(sensor: str, header: Mapping[str, Any], spec: StreamSpec) -> float | None:
    """Return a stream's minimum rate: its sensor's ``min_rate``, or half of the expected rate.

    ``min_rate`` applies to the stream that has the sensor's name.

    Args:
        sensor: the sensor's name.
        header: the sensor's entry of ``session.json``.
        spec: the stream.
    """
    agreed = header.get("min_rate")
    if spec.name == sensor and agreed is not None:
        return float(agreed) or None
    return spec.rate_hz * _SHARE if spec.rate_hz else None


def window_ns(floor: float) -> int:
    """Return the interval in which a stream of that minimum rate is judged, in ns."""
    return max(WINDOW_NS, round(_PERIODS * 1e9 / floor))
