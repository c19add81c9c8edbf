"""Sections with tables of a session's events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from recorder.session.event_clips import CAUSES
from recorder.session.events import format_event
from recorder.viewers.report.markup import Content, details, element, table
from recorder.viewers.report.report_context import ReportContext

_MOST = 400
"""Largest number of listed events: one half from the start, one half from the end."""
_MOST_SHORTFALLS = 20
_OPEN = 60
"""Largest number of events that are shown unfolded."""
_LONGEST = 500


def kept_section(material: ReportContext) -> Content:
    """Make the section on kept events, with the missing parts of each."""
    events = material.session.kept_events()
    if not events:
        return None
    start_ns = (material.found.summary or {}).get("start_ns")
    rows = []
    for event in events[:_MOST]:
        at = None if start_ns is None else f"{(event.t_ns - start_ns) / 1e9:.3f} s"
        before_s, after_s = event.t_ns - event.from_ns, event.until_ns - event.t_ns
        window = f"{before_s / 1e9:g} s before, {after_s / 1e9:g} s after"
        missing = "; ".join(
            f"{each.stream or 'all streams'}, {(each.from_ns - event.t_ns) / 1e9:+.1f} s to "
            f"{(each.until_ns - event.t_ns) / 1e9:+.1f} s: {CAUSES.get(each.cause, each.cause)}"
            for each in event.shortfalls[:_MOST_SHORTFALLS]
        )
        if (more := len(event.shortfalls) - _MOST_SHORTFALLS) > 0:
            missing += f"; and {more} more"
        rows.append([at, event.text, window, event.state, ", ".join(event.parts), missing or None])
    heads = ("Time", "Event", "Kept", "State", "Sessions", "Missing")
    return table(heads, rows)


def events_section(material: ReportContext) -> Content:
    """Make the section on all events except clock states, which have plots of their own."""
    first: list[Mapping[str, Any]] = []
    last: deque[Mapping[str, Any]] = deque(maxlen=_MOST // 2)
    kinds: Counter[str] = Counter()
    total = 0
    for event in material.session.events():
        kinds[_format_kind(event)] += 1
        if (event.get("type"), event.get("cause")) == ("clock", "state"):
            continue
        total += 1
        if len(first) < _MOST // 2:
            first.append(event)
        else:
            last.append(event)
    if not total:
        return None
    start_ns = (material.found.summary or {}).get("start_ns")
    shown = [*first, *last]
    rows = [_make_row(event, start_ns) for event in shown]
    listed = table(("Time", "Event", "Stream", "What happened"), rows)
    counts = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(20))
    left = total - len(shown)
    missing = f"{left} events between the first and the last {_MOST // 2} are not listed. "
    text = element("p", missing if left else None, element("span", counts), class_="muted")
    body = listed if len(shown) <= _OPEN else details(f"{len(shown)} events", listed)
    return [text, body]


def _format_kind(event: Mapping[str, Any]) -> str:
    return " ".join(str(event[key]) for key in ("type", "cause") if event.get(key))


def _make_row(event: Mapping[str, Any], start_ns: int | None) -> list[str | None]:
    t_ns, stream = event.get("t_ns"), event.get("stream")
    at = None
    if isinstance(t_ns, int) and start_ns is not None:
        at = f"{(t_ns - start_ns) / 1e9:.3f} s"
    where = None if stream is None else str(stream)
    return [at, _format_kind(event), where, format_event(event)[:_LONGEST]]
