"""Head of a report: the verdict and the session's key facts."""

from __future__ import annotations

import json
import os
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from recorder.common.text_format import format_bytes, format_seconds, format_time
from recorder.session import layout
from recorder.session.discovery import is_session
from recorder.session.events import ENDS
from recorder.session.verdict import FAIL, PASS, Reason, Verdict
from recorder.viewers.report.markup import (
    Content,
    Html,
    details,
    element,
    escape,
    join_content,
    pairs,
    table,
)
from recorder.viewers.report.session_scan import SessionScan

_SHOWN = 12
"""Number of reasons that are shown at once; the others unfold."""
_MOST = 300

_WORDS = {
    PASS: ("pass", "✓ PASS", "Nothing is lost, nothing was at fault, everything can be read."),
    FAIL: ("fail", "✗ FAIL", ""),
}
_OPEN = ("open", "● PASS so far", "The session is being recorded. Nothing broke so far.")


def head(found: SessionScan, judged: Verdict, linked: bool) -> Html:
    """Make the head: name, verdict and key facts.

    Args:
        found: contents of the session.
        judged: the verdict.
        linked: the report lies in the session's folder, so that links to its neighbours hold.
    """
    class_, word, text = _OPEN if judged.open and judged.passed else _WORDS[judged.word]
    if judged.reasons:
        count = len(judged.reasons)
        text = f"{count} thing{'s' if count > 1 else ''} broke the contract"
        text += " so far; the session is being recorded." if judged.open else "."
    return element(
        "header",
        element("h1", found.name),
        element(
            "p", element("span", word, class_=f"word {class_}"), element("span", text),
            class_="verdict", id="verdict",
        ),
        _reasons(judged.reasons, "What broke"),
        _remarks(judged.remarks),
        pairs(_list_facts(found, linked)),
    )  # fmt: skip


def _reasons(reasons: Sequence[Reason], title: str) -> Content:
    if not reasons:
        return None
    shown = _rows(reasons[:_SHOWN], title)
    if len(reasons) <= _SHOWN:
        return shown
    rest = reasons[_SHOWN:_MOST]
    left = f" ({len(reasons) - _MOST} of them are not listed)" if len(reasons) > _MOST else ""
    return [shown, details(f"{len(reasons) - _SHOWN} more{left}", _rows(rest, title))]


def _rows(reasons: Sequence[Reason], title: str) -> Html:
    rows = [element("tr", [element("td", text) for text in (r.what, r.where or "–", r.how_much)],
                    class_="bad") for r in reasons]  # fmt: skip
    heads = element("tr", [element("th", t, scope="col") for t in (title, "Where", "How much")])
    made = element("table", element("thead", heads), element("tbody", rows), class_="reasons")
    return element("div", made, class_="wide")


def _remarks(remarks: Sequence[Reason]) -> Content:
    if not remarks:
        return None
    rows = [(r.what, r.where or None, r.how_much) for r in remarks[:_MOST]]
    count = f"{len(remarks)} remark{'s' if len(remarks) > 1 else ''} (no contract broke)"
    return details(count, table(("Remark", "Where", "How much"), rows))


def _list_facts(found: SessionScan, linked: bool) -> list[tuple[Content, Content]]:
    summary = found.summary
    if summary is None:
        return [("Folder", str(found.path))]
    rows: list[tuple[Content, Content]] = [
        ("Start", format_time(summary["start_ns"])),
        ("End", format_time(summary["end_ns"]) if summary["end_ns"] else "not closed"),
        ("Duration", format_seconds(summary["duration_s"])),
        ("Size", format_bytes(summary["bytes"])),
        ("State", _format_state(found)),
        ("Ended", _format_end(summary)),
    ]
    for key, value in summary["metadata"].items():
        if value not in (None, ""):
            rows.append((str(key), value if isinstance(value, str) else json.dumps(value)))
    if host := found.header.get("hostname"):
        rows.append(("Host", str(host)))
    rows.append(("Folder", str(found.path)))
    for title, name in zip(("Continues", "Continued in"), found.parts, strict=True):
        if name is not None:
            rows.append((title, _make_link(found, name) if linked else name))
    return [(name, join_content(value)) for name, value in rows]


def _format_state(found: SessionScan) -> str:
    if not found.recorded:
        return "a roverd trace of another recorder"
    if found.state == layout.RECORDING:
        return "being recorded" if found.live else "not closed (run `recorder recover`)"
    return str(found.state)


def _format_end(summary: Mapping[str, Any]) -> str | None:
    ended = summary["ended"]
    if ended is None:
        return "–"
    detail = f": {ended['detail']}" if ended["detail"] else ""
    return f"{ENDS.get(ended['cause'], ended['cause'])}{detail}"


def _make_link(found: SessionScan, name: str) -> Html:
    """Make a link to the report of a neighbour; only its name if there is no such session."""
    neighbour = found.path.parent / os.path.basename(name)  # noqa: PTH119  a name, not a path
    try:
        if not is_session(neighbour):
            return escape(name)
    except (OSError, ValueError):
        return escape(name)
    address = f"../{urllib.parse.quote(neighbour.name)}/{layout.REPORT}"
    return element("a", name, href=address)
