"""SVG plots: functions for lines, bars and lanes that are readable at any width.

Lengths along the horizontal axis are percentages or a stretched picture, so that a plot is as wide
as its place, while its text keeps its size.  Colour alone carries no information: lines differ in
their dashes too, and every series has its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.viewers.report.markup import Content, Html, element, format_number

Values = npt.NDArray[np.floating[Any]]

WIDTH: Final = 1000
"""Width of the stretched pictures in their own units."""
_TOP: Final = 6
SERIES: Final = 6
"""Number of line styles; further series repeat them."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high` with its ticks."""

    low: float
    high: float
    ticks: Sequence[float]
    unit: str = ""
    label: Callable[[float], str] | None = None

    def share(self, value: float) -> float:
        """Return the place of a value: 0 at `low`, 1 at `high`."""
        return (value - self.low) / ((self.high - self.low) or 1.0)

    def text(self, value: float) -> str:
        """Return the label of a tick."""
        if self.label is not None:
            return self.label(value)
        return f"{value:.6g}"


def round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not less than `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((power * m for m in (1, 2, 5) if power * m >= least * (1 - 1e-9)), power * 10)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round values from `low` to `high`, at most `most` + 1."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    step = round_step(span / most)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [round((first + k) * step, 12) for k in range(count + 1)]


def value_axis(low: float, high: float, unit: str = "", most: int = 4) -> Axis:
    """Return an axis of values with ticks at both ends, at most `most` + 3 ticks."""
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = 0.0, 1.0
    if high - low < 1e-9 * max(1.0, abs(low), abs(high)):
        pad = max(abs(low) * 0.1, 0.5)
        low, high = low - pad, high + pad
    step = round_step((high - low) / most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = [round(k * step, 12) for k in range(first, last + 1)]
    return Axis(marks[0], marks[-1], marks, unit)


def count_axis(counts: Sequence[int], unit: str) -> tuple[Axis, list[float]]:
    """Return a logarithmic axis of counts, on which 1 is visible beside 1 M, and their places."""
    levels = [math.log10(count + 1) for count in counts]
    top = max(1, math.ceil(max(levels, default=0.0)))
    marks = [float(power) for power in range(0, top + 1, 1 if top < 5 else 2)]
    return Axis(0.0, float(top), marks, unit, _format_power), levels


def _format_power(power: float) -> str:
    """Format a power of ten: ``0``, ``10``, ``100``, ``1 k``, ``1 M``."""
    thousands, rest = divmod(round(power), 3)
    return f"{10**rest}{('', ' k', ' M', ' G', ' T')[min(thousands, 4)]}" if power else "0"


_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)


def time_axis(seconds: float, most: int = 6) -> Axis:
    """Return an axis of the time since the start of a session, in seconds, minutes, or hours."""
    seconds = max(seconds, 1e-3)
    if seconds < most:
        return Axis(0.0, seconds, ticks(0.0, seconds, most), "s", lambda s: f"{s:g} s")
    step = next((s for s in _STEPS_S if seconds / s <= most), 86_400.0)
    while seconds / step > most:
        step *= 2
    count = int(seconds // step)
    return Axis(0.0, seconds, [k * step for k in range(count + 1)], "s", clock_text)


def moment_text(seconds: float) -> str:
    """Format a moment of a session: ``4.5 s``, ``3:05``, ``1:02:05``."""
    return f"{seconds:.1f} s" if abs(seconds) < 59.95 else clock_text(seconds)


def clock_text(seconds: float) -> str:
    """Format a time: ``45 s``, ``3:05``, ``1:02:05``."""
    whole = round(seconds)
    if abs(whole) < 60:
        return f"{whole} s"
    if whole < 0:
        return f"-{clock_text(-whole)}"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def format_percent(share: float) -> str:
    """Format a share of the width as a percentage, clamped to the picture."""
    return f"{format_number(100 * min(1.0, max(0.0, share)))}%"


def axis_row(axis: Axis) -> Html:
    """Draw the labels below a plot; the last one ends at the right edge."""
    labels = []
    for at in axis.ticks:
        share = axis.share(at)
        anchor = "start" if share < 0.04 else "end" if share > 0.94 else "middle"
        labels.append(
            element("text", axis.text(at), x=format_percent(share), y=12, text_anchor=anchor)
        )
    return element("svg", labels, class_="axis", height=16, aria_hidden="true")


def plot(
    title: Content,
    x: Axis,
    y: Axis,
    shapes: Iterable[Content],
    *,
    names: Sequence[str] = (),
    height: int = 120,
    text: str = "",
) -> Html:
    """Draw a plot with its axes.

    Args:
        title: caption of the plot.
        x, y: axes.
        shapes: shapes from `line` and `bars`, in units of `WIDTH` across and pixels down.
        names: names of the series, for the legend; empty for a single series.
        height: height in pixels.
        text: description for screen readers.
    """
    lines, labels = [], []
    for at in y.ticks:
        down = place(y, at, height)
        lines.append(element("line", x1=0, x2=WIDTH, y1=down, y2=down, class_="grid"))
        shown = y.text(at)
        labels.append(element("text", shown, x=46, y=down + 4, text_anchor="end"))
    if y.unit:
        labels.append(element("title", y.unit))
    for at in x.ticks:
        across = WIDTH * x.share(at)
        lines.append(element("line", x1=across, x2=across, y1=0, y2=height, class_="grid"))
    drawn = [lines, shapes]
    return _frame(title, x, y, labels, drawn, "area", height, text, legend(names))


def _frame(
    title: Content,
    x: Axis,
    y: Axis,
    labels: Content,
    shapes: Content,
    class_: str,
    height: int,
    text: str,
    names: Content = None,
) -> Html:
    """Draw a figure: its caption, the labels of the axes, and the shapes between them."""
    unit = element("small", f" [{y.unit}]") if y.unit else None
    area = element(
        "svg", shapes, class_=class_, viewBox=f"0 0 {WIDTH} {height}", height=height,
        preserveAspectRatio="none", role="img", aria_label=text or None,
    )  # fmt: skip
    return element(
        "figure",
        element("figcaption", title, unit, names),
        element("svg", labels, class_="scale", width=50, height=height, aria_hidden="true"),
        area,
        element("span"),
        axis_row(x),
        class_="plot",
    )


def raster_plot(title: Content, x: Axis, y: Axis, address: str, text: str) -> Html:
    """Draw a picture with axes; its first row is at the top."""
    height = 150
    labels = []
    for at in y.ticks:
        down = height * (1 - y.share(at))
        labels.append(element("text", y.text(at), x=46, y=min(max(down + 4, 10), height),
                              text_anchor="end"))  # fmt: skip
    image = element("image", href=address, width=WIDTH, height=height, preserveAspectRatio="none")
    return _frame(title, x, y, labels, image, "area raster", height, text)


def legend(names: Sequence[str]) -> Html | None:
    """Draw the names of series beside pieces of their lines."""
    if not names:
        return None
    entries = []
    for k, name in enumerate(names):
        sample = element("line", x1=0, x2=26, y1=5, y2=5, class_=style(k))
        entries.append(element("span", element("svg", sample, width=26, height=10), " ", name))
    return element("span", entries, class_="legend")


def style(number_: int) -> str:
    """Return the CSS class of a series' line."""
    return f"s s{number_ % SERIES}"


def place(axis: Axis, value: float, height: int) -> float:
    """Return the distance of a value from the top of a plot, in pixels."""
    return _TOP + (height - 2 * _TOP) * (1 - axis.share(value))


def line(x: Axis, y: Axis, across: Values, values: Values, series: int, height: int = 120) -> Html:
    """Draw a line through points, interrupted where a value is not finite."""
    words: list[str] = []
    pen = "M"
    for at, value in zip(across.tolist(), values.tolist(), strict=True):
        if not (math.isfinite(value) and math.isfinite(at)):
            pen = "M"
            continue
        words.append(f"{pen}{WIDTH * x.share(at):.1f} {place(y, value, height):.1f}")
        pen = "L"
    return element("path", d="".join(words), class_=style(series))


def draw_band(
    x: Axis, y: Axis, across: Values, low: Values, high: Values, series: int, height: int = 120
) -> Html:
    """Draw the area between the least and the greatest values, where both are finite."""
    words: list[str] = []
    known = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], known, [False])).astype(np.int8)))
    for first, stop in edges.reshape(-1, 2).tolist():
        there, back = range(first, stop), range(stop - 1, first - 1, -1)
        corners = [(k, high[k]) for k in there] + [(k, low[k]) for k in back]
        points = (f"{WIDTH * x.share(across[k]):.0f} {place(y, v, height):.1f}" for k, v in corners)
        words.append(f"M{'L'.join(points)}z")
    return element("path", d="".join(words), class_=f"cover s{series % SERIES}")


def bars(y: Axis, counts: Sequence[float], height: int = 120, notes: Sequence[str] = ()) -> Html:
    """Draw bars of equal width; `notes` are their tooltips."""
    wide = WIDTH / max(1, len(counts))
    made = []
    for k, count in enumerate(counts):
        if not count:
            continue
        top = place(y, count, height)
        note = element("title", notes[k]) if k < len(notes) else None
        made.append(
            element("rect", note, x=k * wide + wide * 0.08, width=wide * 0.84, y=top,
                    height=max(1.0, place(y, y.low, height) - top), class_="bar")
        )  # fmt: skip
    return Html("".join(made))


def spans(intervals: Iterable[tuple[float, float]], top: float, height: float) -> Iterator[str]:
    """Yield rectangles as steps of a path, from pairs (left, right) in units of `WIDTH`."""
    for left, right in intervals:
        wide = max(1.2, right - left)
        yield f"M{left:.1f} {top:g}h{wide:.1f}v{height:g}h-{wide:.1f}z"
