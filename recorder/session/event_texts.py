"""Events as sentences: the same in the log, on the page, in the report, and in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from recorder.common.text_format import human_seconds
from recorder.session.events import INCOMPLETE

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
        text += f" in {human_seconds(duration_ns / 1e9)}"
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
