"""The event log: losses and incidents, as they happen, counted by cause.

One JSON object a line: ``{t_ns, type, stream, cause, first_seq, last_seq, count, duration_ns}``,
and the event's own keys.  ``count`` is null for an uncounted loss, which may have an ``estimate``.
Events of one stream and cause within a second are merged.  The ``count`` of an `INCOMPLETE` event
is a number of stored samples, and its ``parts`` the sum of their missing parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock, read_clocks
from recorder.common.files import AppendFile
from recorder.common.text_format import format_seconds

INCOMPLETE = "incomplete"
"""Type of events about stored samples that lack parts: columns of a sweep, packets of a frame."""
ABSENT_STREAMS = "absent_streams"
"""Key of a driver's state: the streams that the config names and that its device does not have."""
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
        self._offset_ns = read_clocks(clock).offset_ns

    def step_ns(self) -> int | None:
        """Return the clock's step since the last call; None without one."""
        reading = read_clocks(self._clock)
        if reading.span_ns > _CLOCK_STEP_NS:  # on a very busy machine: the next call knows more
            return None
        step_ns, self._offset_ns = reading.offset_ns - self._offset_ns, reading.offset_ns
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


Event = Mapping[str, Any]

ENDS: Final = {
    "duration": "at its duration",
    "sources": "when every source that can end had ended",
    "signal": "by a signal",
    "stop": "by `recorder stop`",
    "clip": "where it was cut",
    "shutdown": "when the daemon ended",
    "split": "continued in the next part",
    "overtime": "after its duration: sources played slower than time",
    "floor": "early: the disk is nearly full",
    "sealed": "early: the disk failed or is full",
    "killed": "early",
}
"""Texts for people, by the reason of a session's end."""
_NAMED: Final = frozenset(
    {"number", "t_ns", "type", "stream", "cause", "first_seq", "last_seq", "count", "duration_ns",
     "detail", "text", "message", "epoch", "merged"}
)  # fmt: skip
"""Keys of an event that are no values of its own."""
_SENTENCES: Final[Mapping[tuple[str, str], str]] = {
    ("device", "absent"): "the device is absent",
    ("device", "lost"): "the device is lost",
    ("device", "present"): "the device is present",
    ("disk", "restored"): "commits again",
    ("writer", "restarted"): "the writer was restarted",
    ("recovery", "killed"): "repaired after the recorder was killed",
    ("recovery", "power"): "repaired after the power was cut",
}


def format_event(event: Event) -> str:
    """Format an event as a sentence for people, without its stream: ``lost 3 samples (network)``.

    Args:
        event: as in the event log (`recorder.session.events`).
    """
    kind, cause = str(event.get("type") or ""), str(event.get("cause") or "")
    given = event.get("text") or event.get("detail") or event.get("message")
    if kind == "end":
        text = f"the session ended {ENDS.get(cause, cause)}".rstrip()
        return f"{text}: {given}" if given else text
    if kind == "session":
        return f"{given or 'a session'} {'began' if cause == 'began' else f'was {cause}'}"
    if given is not None:
        return str(given).removeprefix(f"{event.get('stream')}: ")
    if kind == "lost":
        return _format_loss(event, cause)
    if kind == INCOMPLETE and isinstance(event.get("count"), int):
        return format_incomplete(int(event["count"]), int(event.get("parts") or 0), cause)
    if kind == "rate" and isinstance(event.get("rate_hz"), int | float):
        return _format_rate(event, cause)
    if isinstance(step_ns := event.get("step_ns"), int):
        return f"stepped by {step_ns / 1e9:+.3f} s"
    text = _SENTENCES.get((kind, cause)) or " ".join(part for part in (kind, cause) if part)
    more = ", ".join(_format_values({key: event[key] for key in event if key not in _NAMED}))
    return f"{text}: {more}" if more else text


def format_event_line(event: Event) -> str:
    """Format an event with its stream or type: ``imu: lost 3 samples (network)``."""
    about = event.get("stream") or event.get("type")
    return f"{about}: {format_event(event)}"


def _format_loss(event: Event, cause: str) -> str:
    count, estimate, duration_ns = (event.get(k) for k in ("count", "estimate", "duration_ns"))
    text = "lost samples"
    if count is not None:
        text = f"lost {count} sample{'' if count == 1 else 's'}"
    if isinstance(duration_ns, int) and duration_ns > 0:
        text += f" in {format_seconds(duration_ns / 1e9)}"
    if count is None:
        text += ", not counted" if estimate is None else f", about {estimate}"
    return f"{text} ({cause})" if cause else text


def format_incomplete(samples: int, parts: int, causes: str) -> str:
    """Format how many samples lack how many parts: ``22 samples lack 353 parts (network)``."""
    lacking = "1 sample lacks" if samples == 1 else f"{samples} samples lack"
    return f"{lacking} {parts} part{'' if parts == 1 else 's'}" + (f" ({causes})" if causes else "")


def _format_rate(event: Event, cause: str) -> str:
    word = "below" if cause == "low" else "again above"
    floor = "the minimum"
    if event.get("agreed") is not None:
        floor = "min_rate" if event["agreed"] else "half of what is expected"
    floor_hz = event.get("floor_hz")
    about = f" ({floor_hz:g} Hz)" if isinstance(floor_hz, int | float) else ""
    return f"{event['rate_hz']:.3g} Hz is {word} {floor}{about}"


def _format_values(values: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Yield values as texts: ``cut bytes 40``, nested ones each with the name of its group."""
    for key, value in values.items():
        name = f"{within}{key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _format_values(value, f"{name} ")
        elif isinstance(value, list | tuple):
            yield from _format_values(
                {f"{key} {k + 1}": each for k, each in enumerate(value)}, within
            )
        elif value is not None:
            shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            yield f"{name} {shown:g}" if isinstance(shown, float) else f"{name} {shown}"
