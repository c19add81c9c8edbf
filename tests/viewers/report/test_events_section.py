"""Rows of the table of events, and the reasons of a verdict in the index."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from recorder.session.events import make_event
from recorder.session.outputs import SessionSummary
from recorder.viewers.report.events_section import _make_row
from recorder.viewers.report.markup import element
from recorder.viewers.report.report_index import read_rows
from recorder.viewers.report.report_index_page import _format_verdict
from tests.viewers.report.index_rig import make_report, make_session

START_NS, S = 1_750_000_000_000_000_000, 1_000_000_000


def lost(count: int | None, **more: Any) -> dict[str, Any]:
    return dict(make_event("lost", START_NS + 1_500_000_000, "imu", "slow", count=count, **more))


@pytest.mark.parametrize(
    ("event", "row"),
    [
        (lost(3), ["1.500 s", "lost slow", "imu", "lost 3 samples (slow)"]),
        (
            {"t_ns": START_NS - S // 4, "type": "clock", "cause": "step", "step_ns": -S // 2},
            ["-0.250 s", "clock step", None, "stepped by -0.500 s"],
        ),
        (
            make_event("rate", START_NS, "cam", "low", rate_hz=4.528, floor_hz=5.0, agreed=True),
            ["0.000 s", "rate low", "cam", "4.53 Hz is below min_rate (5 Hz)"],
        ),
        ({"type": "mark", "text": "gate", "t_ns": "?"}, [None, "mark", None, "gate"]),
        ({"type": "fault", "port": 7}, [None, "fault", None, "fault: port 7"]),
        ({"type": "mark", "text": "a" * 600}, [None, "mark", None, "a" * 500]),
    ],
)
def test_an_event_is_a_row(event: dict[str, Any], row: list[str | None]) -> None:
    assert _make_row(event, START_NS) == row
    assert _make_row(event, None) == [None, *row[1:]]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6])
def test_of_several_reasons_the_first_is_seen_and_five_unfold(tmp_path: Path, count: int) -> None:
    reasons = [f"reason {k}" for k in range(count)]
    make_report(make_session(tmp_path / "one"), "FAIL", *reasons)
    (row,) = read_rows(tmp_path, tmp_path)
    assert isinstance(row.summary, SessionSummary)
    shown = str(element("td", _format_verdict(row)))
    head = re.findall(r"<summary>([^<]*)", shown)
    assert head == ([f"reason 0 (and {count - 1} more)"] if count > 1 else [])
    lines = re.findall(r"<small>([^<]*)", shown)
    expected = reasons[1:5] if count > 1 else reasons
    assert lines == [*expected, *(["more in the report"] if count > 5 else [])]
