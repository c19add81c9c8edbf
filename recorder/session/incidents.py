"""Incidents of a session besides losses: the reason of its end, marks, faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recorder.session.events import format_event
from recorder.session.layout import RECOVERED, SEALED
from recorder.session.reader import Session

END = "end"
"""Type of the event at a session's end; its cause is the reason in one word."""

_KILLED: Mapping[Any, str] = {
    "killed": "the recorder was killed, or its disk failed",
    "power": "the power was cut, or the machine was restarted",
}
"""By cause of a recovery's event, why a session ended that has no reason of its own."""

_FAULTS: Mapping[str, tuple[str, ...]] = {
    "fault": (),
    "time": ("step",),
    "device": ("absent", "lost"),
    "disk": ("floor", "sealed", "stalled"),
    "writer": ("restarted",),
    "clock": ("step",),
}
"""By type of events that are faults, the causes that are faults; empty: all causes."""


def incidents(session: Session) -> dict[str, Any]:
    """Return the reason of a session's end, its marks and its faults.

    Returns:
        - ``ended``: ``{cause, detail}``; cause is ``duration``, ``sources`` (all that can end have
          ended), ``signal``, ``stop``, ``shutdown``, ``split``, ``overtime``, ``floor``,
          ``sealed``, or ``killed`` (a recovered session); null if the session is open, or has no
          such event;
        - ``marks``: ``[{t_ns, text}]``;
        - ``faults``: ``[{t_ns, type, stream, cause, detail}]``.

    Raises:
        FormatError: the event log cannot be read.
    """
    return classify_events(session.events(), session.header or {})


def classify_events(
    events: Iterable[Mapping[str, Any]], header: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `incidents` of a session's events and its ``session.json``."""
    ended: dict[str, Any] | None = None
    floor: dict[str, Any] | None = None
    sealed = header.get("sealed")
    killed = "the recorder was killed, the power was cut, or the disk failed"
    marks, faults = [], []
    for event in events:
        kind, cause = event.get("type"), event.get("cause")
        detail = event.get("detail")
        if kind == "mark":
            marks.append({"t_ns": event.get("t_ns"), "text": str(event.get("text", cause))})
        elif kind == "recovery":
            killed = _KILLED.get(cause, killed)
        elif kind == END:
            ended = {"cause": cause, "detail": detail}
        elif _is_fault(kind, cause):
            keys = ("t_ns", "type", "stream", "cause")
            faults.append({key: event.get(key) for key in keys} | {"detail": _format_detail(event)})
        if (kind, cause) == ("disk", "floor"):
            floor = {"cause": "floor", "detail": detail}
        if (kind, cause) == ("disk", SEALED):
            sealed = sealed or detail  # a failing disk may take an event, and no new session.json
    if sealed:
        ended = {"cause": "sealed", "detail": str(sealed)}
    elif floor is not None:
        ended = floor
    elif ended is None and header.get("state") == RECOVERED:
        ended = {"cause": "killed", "detail": killed}
    return {"ended": ended, "marks": marks, "faults": faults}


def _is_fault(kind: Any, cause: Any) -> bool:
    causes = _FAULTS.get(kind) if isinstance(kind, str) else None
    return causes is not None and (not causes or cause in causes)


def _format_detail(event: Mapping[str, Any]) -> str:
    """Return the detail of an event, for people; for a step of the clock, its size."""
    if not event.get("detail") and event.get("step_ns") is None:
        return ""
    return format_event({**event, "stream": None})
