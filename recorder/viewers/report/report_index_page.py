"""HTML page of the index: a table that is readable without its script, which sorts and filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

from recorder.common.text_format import format_bytes, format_seconds, format_time
from recorder.session.layout import RECORDING, RECOVERED, SEALED
from recorder.session.verdict import FAIL, PASS
from recorder.viewers.report.index_rows import NONE, Recording, Row
from recorder.viewers.report.markup import Content, Html, element, page

_COLUMNS: Final[Sequence[tuple[str, str, str]]] = (
    ("Session", "text", "ascending"),
    ("Verdict", "number", "descending"),
    ("Start (UTC)", "number", "descending"),
    ("Duration", "number", "descending"),
    ("Vehicle", "text", "ascending"),
    ("Samples", "number", "descending"),
    ("Lost", "number", "descending"),
    ("Events", "number", "descending"),
    ("Size", "number", "descending"),
    ("Archives", "text", "descending"),
)
"""Title of each column, kind of its values, and the order at the first click."""
_MOST_REASONS: Final = 5
"""Largest number of a verdict's reasons in a row; the report lists all."""
_GRAVITY: Final = {PASS: 1, NONE: 2, FAIL: 3}
"""Sort order of the verdicts."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell, and the value by which its column is sorted; None or "" if the value is unknown."""

    content: Content
    value: float | str | None
    number: bool = False


def fleet_page(title: str, recordings: Sequence[Recording]) -> str:
    """Make the page as one HTML file.

    Args:
        title: name of the root.
        recordings: recordings in the order in which they are shown.
    """
    rows = [row for recording in recordings for row in recording.parts]
    counts = {word: sum(row.word == word for row in rows) for word in _GRAVITY}
    words = [f"{count} {word}" for word, count in counts.items() if count]
    many = "" if len(rows) == 1 else "s"
    header = element(
        "header",
        element("h1", f"Sessions in {title}"),
        element("p", f"{len(rows)} session{many}: {', '.join(words)}." if rows else "No sessions."),
        _make_filters(),
    )
    heads = [
        element(
            "th",
            name,
            scope="col",
            data_kind=kind,
            data_first=first,
            aria_sort="descending" if name.startswith("Start") else None,
        )
        for name, kind, first in _COLUMNS
    ]
    table = element(
        "table",
        element("thead", element("tr", heads)),
        [element("tbody", _make_rows(recording)) for recording in recordings],
        id="sessions",
        class_="fleet",
    )
    script = (resources.files("recorder.viewers.report") / "fleet.js").read_text("utf-8")
    return page(
        f"Sessions in {title}",
        header,
        element("section", element("div", table, class_="wide")),
        script=script,
    )


def _make_filters() -> Html:
    """Make the filters; they are hidden until the script runs."""
    choices = [element("option", "all verdicts", value="")]
    choices += [element("option", word, value=word) for word in _GRAVITY]
    return element(
        "div",
        element("label", "Filter ", element("input", id="words", type="search")),
        element("label", "Verdict ", element("select", choices, id="verdict")),
        element("output", id="shown", aria_live="polite"),
        id="tools",
        hidden=True,
    )


def _make_rows(recording: Recording) -> Iterable[Html]:
    parts = recording.parts
    if len(parts) > 1:
        yield _make_recording_row(recording)
    for row in parts:
        yield _make_session_row(row, part=len(parts) > 1)


def _make_session_row(row: Row, *, part: bool) -> Html:
    name: Content = row.name if row.report is None else element("a", row.name, href=row.report)
    note = _format_state(row)
    head = [
        _make_cell([name, element("small", note) if note else None], row.name),
        _make_cell(_format_verdict(row), _GRAVITY[row.word]),
    ]
    return _make_row(
        [*head, *_make_cells([row], row.start_ns, row.archives)],
        class_="part" if part else None, data_text=_join_words(row), data_verdict=row.word,
    )  # fmt: skip


def _make_recording_row(recording: Recording) -> Html:
    """Make a row with the sums over the parts of a recording, without unknown values."""
    parts = recording.parts
    word = max((row.word for row in parts), key=lambda word: _GRAVITY[word])
    head = [
        _make_cell([recording.name, element("small", f"{len(parts)} parts")], recording.name),
        _make_cell(_make_badge(word), _GRAVITY[word]),
    ]
    cells = _make_cells(parts, recording.start_ns or None, ())
    return _make_row([*head, *cells], class_="recording")


def _make_cells(
    parts: Sequence[Row], start_ns: int | None, archives: Sequence[str]
) -> Iterable[_Cell]:
    """Make the cells after name and verdict, of a session or of all parts of a recording."""
    time = None if start_ns is None else element("time", format_time(start_ns)[:19])
    yield _make_cell(time, start_ns)
    seconds = _sum(row.duration_s for row in parts)
    yield _make_cell(None if seconds is None else format_seconds(seconds), seconds, number=True)
    vehicles = dict.fromkeys(row.metadata.get("vehicle", "") for row in parts)
    vehicle = ", ".join(filter(None, vehicles))
    yield _make_cell(vehicle, vehicle)
    samples = _sum(row.summary.samples for row in parts if row.summary is not None)
    yield _make_cell(samples, samples, number=True)
    yield _make_loss_cell(parts)
    yield _make_event_cell(parts)
    size = sum(row.bytes for row in parts)
    yield _make_cell(format_bytes(size), size, number=True)
    yield _make_cell(", ".join(archives), " ".join(archives))


def _make_row(cells: Sequence[_Cell], **attributes: str | None) -> Html:
    """Make a row; each cell has the title of its column, for screens too narrow for columns."""
    shown = [
        element(
            "td",
            cell.content,
            class_="n" if cell.number else None,
            data_label=title,
            data_v=None if cell.value in (None, "") else str(cell.value),
        )
        for (title, _, _), cell in zip(_COLUMNS, cells, strict=True)
    ]
    return element("tr", shown, **attributes)


def _make_cell(content: Content, value: float | str | None, *, number: bool = False) -> _Cell:
    shown = "–" if content is None else f"{content}" if isinstance(content, int) else content
    return _Cell(shown, value, number)


def _make_badge(word: str) -> Html:
    return element("span", word, class_=f"word small {word.replace(' ', '-').lower()}")


def _format_verdict(row: Row) -> Content:
    content: list[Content] = [_make_badge(row.word)]
    if row.problem is not None:
        content.append(element("small", row.problem))
    if row.report is None:
        content.append(element("small", "no report"))
    if row.outdated:
        content.append(element("small", "made before the session was closed; make it again"))
    reasons = row.why
    if len(reasons) > 1:
        lines = [element("small", reason) for reason in reasons[1:_MOST_REASONS]]
        if len(reasons) > _MOST_REASONS:
            lines.append(element("small", "more in the report"))
        first = element("summary", f"{reasons[0]} (and {len(reasons) - 1} more)")
        content.append(element("details", first, lines))
    elif reasons:
        content.append(element("small", reasons[0]))
    return content


def _format_state(row: Row) -> str:
    match row.state:
        case None:
            return "unreadable"
        case state if state == RECORDING:
            return "is being recorded" if row.live else "not closed: run `recorder recover`"
        case state if state == SEALED:
            return "sealed: its disk failed; run `recorder recover`"
        case state if state == RECOVERED:
            return "recovered"
    return ""


def _make_loss_cell(parts: Sequence[Row]) -> _Cell:
    """Make a cell with counted losses, uncounted intervals, and samples that lack parts."""
    lost, intervals = _sum(row.lost for row in parts), _sum(row.lost_intervals for row in parts)
    if lost is None:
        return _make_cell(None, None, number=True)
    text = f"{lost}" if not intervals else f"{lost} + {intervals} uncounted"
    incomplete = _sum(row.incomplete for row in parts)
    text += f", {incomplete} incomplete" if incomplete else ""
    return _make_cell(text, lost + (0.5 if intervals else 0.0), number=True)


def _make_event_cell(rows: Sequence[Row]) -> _Cell:
    known = [row.summary for row in rows if row.summary is not None]
    if not known:
        return _make_cell(None, None)
    marks, faults = sum(s.marks for s in known), sum(s.faults for s in known)
    texts = [_format_count(faults, "fault"), _format_count(marks, "mark")]
    return _make_cell([element("span", text) for text in texts if text] or "none", marks + faults)


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}" if count else ""


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _join_words(row: Row) -> str:
    """Return the text that the filter searches, in lower case."""
    parts: list[str] = [row.name, row.word, row.state or "", _format_state(row)]
    parts += [format_time(row.start_ns), *row.metadata.values(), *row.streams, *row.archives]
    parts += row.why[:_MOST_REASONS]
    parts += [row.problem or "", "" if row.report else "no report"]
    return " ".join(filter(None, parts)).lower()
