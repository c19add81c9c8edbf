"""Plots: axes that cover what they show, lines where their values are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.viewers.report.drawing import (
    WIDTH,
    Axis,
    bars,
    clock_text,
    count_axis,
    draw_band,
    format_percent,
    line,
    moment_text,
    place,
    spans,
    ticks,
    time_axis,
    value_axis,
)

VALUES = st.floats(-1e9, 1e9)


@given(VALUES, VALUES, st.integers(2, 6))
def test_an_axis_covers_its_values_with_round_ticks(a: float, b: float, most: int) -> None:
    low, high = min(a, b), max(a, b)
    axis = value_axis(low, high, most=most)
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    assert axis.low <= low + slack and axis.high >= high - slack
    assert (axis.ticks[0], axis.ticks[-1]) == (axis.low, axis.high)
    assert 2 <= len(axis.ticks) <= most + 3


def test_an_axis_of_nothing() -> None:
    assert value_axis(float("nan"), float("nan")).low == 0.0
    assert value_axis(-0.0038, 0.0047).ticks == [-0.005, 0.0, 0.005]
    assert value_axis(9.8, 9.8).ticks[0] < 9.8 < value_axis(9.8, 9.8).ticks[-1]


@given(st.floats(0.001, 1e6))
def test_an_axis_of_time(seconds: float) -> None:
    axis = time_axis(seconds)
    assert axis.high == pytest.approx(max(seconds, 1e-3)) and axis.ticks[0] == 0
    assert 1 <= len(axis.ticks) <= 8 and axis.ticks[-1] <= axis.high * (1 + 1e-9)


def test_ticks() -> None:
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10] and ticks(0, 0) == [0]
    assert ticks(-3, 14, 4) == [0, 5, 10]


@pytest.mark.parametrize(
    ("seconds", "clock", "moment"),
    [
        (0.0, "0 s", "0.0 s"),
        (59.9, "1:00", "59.9 s"),
        (61.2, "1:01", "1:01"),
        (3725.0, "1:02:05", "1:02:05"),
        (-5.0, "-5 s", "-5.0 s"),
        (-65.0, "-1:05", "-1:05"),
    ],
)
def test_times(seconds: float, clock: str, moment: str) -> None:
    assert (clock_text(seconds), moment_text(seconds)) == (clock, moment)


def test_counts_are_logarithmic() -> None:
    axis, levels = count_axis([0, 1, 999, 1_200_000], "samples")
    assert levels[0] == 0 and levels[1] > 0.3 and axis.high == 7
    assert [axis.text(tick) for tick in axis.ticks] == ["0", "100", "10 k", "1 M"]


def test_lines_are_where_their_values_are() -> None:
    x, y = Axis(0, 10, ()), Axis(0, 2, ())
    assert (place(y, 2, 120), place(y, 0, 120)) == (6, 114), "large values are above small ones"
    values = np.array([0.0, 1.0, np.nan, 2.0, 2.0])
    drawn = line(x, y, np.array([0.0, 2.5, 5.0, 7.5, 10.0]), values, 0)
    d = re.search(r' d="([^"]*)"', drawn)
    assert d is not None and d[1] == "M0.0 114.0L250.0 60.0M750.0 6.0L1000.0 6.0"


def test_bars_stand_on_the_axis() -> None:
    drawn = bars(Axis(0, 4, ()), [4, 0, 2], notes=["four", "none", "two"])
    tops = [float(value) for value in re.findall(r' y="([\d.]+)"', drawn)]
    heights = [float(value) for value in re.findall(r' height="([\d.]+)"', drawn)]
    assert tops == [6, 60] and [a + b for a, b in zip(tops, heights, strict=True)] == [114, 114]
    assert "<title>four</title>" in drawn and "none" not in drawn


def test_spans_are_wide_enough_to_be_seen() -> None:
    assert list(spans([(0, 10), (20, 20)], 3, 12)) == [
        "M0.0 3h10.0v12h-10.0z",
        "M20.0 3h1.2v12h-1.2z",
    ]
    assert (format_percent(-1), format_percent(0.5), format_percent(7)) == ("0%", "50%", "100%")
    assert WIDTH == 1000


def test_an_area_is_between_its_least_and_greatest_values() -> None:
    x, y = Axis(0, 2, ()), Axis(0, 2, ())
    low, high = np.array([0.0, 1.0, np.inf]), np.array([1.0, 2.0, -np.inf])
    drawn = draw_band(x, y, np.array([0.0, 1.0, 2.0]), low, high, 0)
    assert 'd="M0 60.0L500 6.0L500 60.0L0 114.0z"' in drawn and 'class="cover s0"' in drawn
