"""Section on all streams over time, with losses, marks and faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from recorder.session.accounts import format_incomplete
from recorder.session.timeline import DATA, LOST, UNCOUNTED, Piece, StreamTimeline, Timeline
from recorder.viewers.report.drawing import (
    WIDTH,
    axis_row,
    format_percent,
    moment_text,
    spans,
    time_axis,
)
from recorder.viewers.report.markup import Content, Html, details, element, table
from recorder.viewers.report.report_context import ReportContext
from recorder.viewers.report.session_scan import SessionScan

_LANE = 18
_NOTED = 60
"""Largest number of a stream's losses with a tooltip each."""
_FEW = 20
"""Largest number of marks that are listed unfolded."""
_POINTS = 200
"""Largest number of shown marks, and of shown faults."""


def timeline_section(material: ReportContext) -> Content:
    """Make the section with the timeline of every stream."""
    found = material.found
    timeline = found.timeline
    if timeline is None or found.summary is None:
        return None
    seconds = max(1e-3, (timeline.end_ns - timeline.start_ns) / 1e9)
    rows: list[Content] = []
    start_ns = timeline.start_ns
    for title, class_, points in (
        ("marks", "mark", _marks(timeline.marks)),
        ("faults", "fault", _faults(found.summary["faults"])),
    ):
        if shown := [p for p in points if p[0] is not None][-_POINTS:]:
            rows += [
                element("span", title, class_="name"),
                _draw_points(shown, class_, start_ns, seconds),
                element("small", f"{len(shown)}", class_="blank"),
            ]
    if any(found.parts):
        rows += [element("span", "parts", class_="name"), _draw_neighbours(*found.parts),
                 element("span", class_="blank")]  # fmt: skip
    for name, stream in timeline.streams.items():
        rows += [
            element("span", name, class_="name"),
            _draw_lane(stream, timeline, name),
            element("small", _format_lane(found, name, stream)),
        ]
    rows += [element("span", class_="blank"), axis_row(time_axis(seconds))]
    key = element(
        "p",
        _sample("data", "samples"),
        _sample("lost", "lost, counted"),
        _sample("unknown", "may be lost, not counted"),
        _sample("mark", "mark", point=True),
        _sample("fault", "fault", point=True),
        element("span", "time since the start of the session"),
        class_="key",
    )
    marks = _list_marks(_marks(timeline.marks), start_ns)
    problem = element("p", timeline.problem, class_="odd") if timeline.problem else None
    lanes = element("div", rows, class_="lanes")
    return [_draw_patterns(), problem, lanes, key, marks]


def _draw_patterns() -> Html:
    """Draw the hatching of uncounted losses."""
    stroke = element("line", x1=0, y1=0, x2=0, y2=7, class_="hatch")
    pattern = element("pattern", stroke, id="hatch", width=7, height=7,
                      patternUnits="userSpaceOnUse", patternTransform="rotate(45)")  # fmt: skip
    return element("svg", element("defs", pattern), width=0, height=0, aria_hidden="true")


def _draw_lane(stream: StreamTimeline, timeline: Timeline, name: str) -> Html:
    start_ns, span_ns = timeline.start_ns, max(1, timeline.end_ns - timeline.start_ns)

    def places(kind: str) -> Iterator[tuple[float, float]]:
        for piece in stream.pieces:
            if piece.kind == kind:
                left, right = ((t - start_ns) / span_ns for t in (piece.start_ns, piece.end_ns))
                yield WIDTH * min(1.0, max(0.0, left)), WIDTH * min(1.0, max(0.0, right))

    shapes: list[Content] = [element("path", d="".join(spans(places(DATA), 3, 12)), class_="data")]
    for kind, class_, top, high in ((UNCOUNTED, "unknown", 0, _LANE), (LOST, "lost", 0, _LANE)):
        pieces = [piece for piece in stream.pieces if piece.kind == kind]
        if len(pieces) > _NOTED:
            d = "".join(spans(places(kind), top, high))
            shapes.append(element("path", d=d, class_=class_))
            continue
        for piece, (left, right) in zip(pieces, places(kind), strict=True):
            note = element("title", _format_note(piece, start_ns))
            wide = max(1.5, right - left)
            shapes.append(element("rect", note, x=min(left, WIDTH - wide), y=top, width=wide,
                                  height=high, class_=class_))  # fmt: skip
    label = f"{name}: {len([p for p in stream.pieces if p.kind != DATA])} intervals with losses"
    return element(
        "svg", shapes, viewBox=f"0 0 {WIDTH} {_LANE}", height=_LANE, class_="lane",
        preserveAspectRatio="none", role="img", aria_label=label,
    )  # fmt: skip


def _format_note(piece: Piece, start_ns: int) -> str:
    since, until = ((t - start_ns) / 1e9 for t in (piece.start_ns, piece.end_ns))
    kind = "lost" if piece.kind == LOST else "not counted"
    return f"{piece.text} {kind}, {since:.1f} s to {until:.1f} s"


def _format_lane(found: SessionScan, name: str, stream: StreamTimeline) -> str:
    if stream.problem:
        return "cannot be read"
    words = [f"{stream.samples} samples"]
    if found.recorded:
        words += [f"{cause} {count} lost" for cause, count in stream.lost.items()]
        causes: dict[str, int] = {}
        entry = (found.summary or {"streams": {}})["streams"].get(name) or {}
        for interval in entry.get("lost_intervals", ()):
            cause = str(interval.get("cause"))
            causes[cause] = causes.get(cause, 0) + 1
        words += [f"{cause}: {n} uncounted" for cause, n in causes.items()]
        words += filter(None, [format_incomplete(entry.get("incomplete") or {})])
    return ", ".join(words)


def _marks(marks: Sequence[Mapping[str, Any]]) -> list[tuple[Any, str]]:
    return [(mark.get("t_ns"), str(mark.get("text"))) for mark in marks]


def _faults(faults: Iterable[Mapping[str, Any]]) -> list[tuple[Any, str]]:
    found = []
    for fault in faults:
        words = [str(fault[key]) for key in ("stream", "type", "cause", "detail") if fault[key]]
        t_ns = fault["t_ns"] if isinstance(fault["t_ns"], int) else None
        found.append((t_ns, " ".join(words)))
    return found


def _list_marks(marks: Sequence[tuple[Any, str]], start_ns: int) -> Content:
    """Make a table of the marks, since print and phones show no tooltips."""
    rows = [(moment_text((t_ns - start_ns) / 1e9), text) for t_ns, text in marks[-_POINTS:]
            if t_ns is not None]  # fmt: skip
    if not rows:
        return None
    listed = table(("Time", "Mark"), rows)
    return listed if len(rows) <= _FEW else details(f"{len(rows)} marks", listed)


def _draw_points(
    points: Sequence[tuple[Any, str]], class_: str, start_ns: int, seconds: float
) -> Html:
    """Draw marks or faults as triangles with tooltips."""
    shapes = []
    for t_ns, text in points:
        since = (t_ns - start_ns) / 1e9
        note = element("title", f"{moment_text(since)}: {text}")
        shape = element("path", note, d="M-6 2h12l-6 12z", class_=class_)
        shapes.append(element("svg", shape, x=format_percent(since / seconds), y=1))
    return element("svg", shapes, height=_LANE, class_="axis", role="img", aria_label=class_)


def _draw_neighbours(previous: str | None, following: str | None) -> Html:
    """Draw the names of the parts before and after."""
    shown = []
    if previous is not None:
        shown.append(element("text", f"← {previous}", x=0, y=13))
    if following is not None:
        shown.append(element("text", f"{following} →", x="100%", y=13, text_anchor="end"))
    return element("svg", shown, height=_LANE, class_="axis")


def _sample(class_: str, text: str, *, point: bool = False) -> Html:
    shape = element("path", d="M1 2h12l-6 12z", class_=class_)
    if not point:
        shape = element("rect", x=0, y=2, width=22, height=11, class_=class_)
    return element("span", element("svg", shape, width=14 if point else 22, height=15), text)
