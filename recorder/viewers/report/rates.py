"""Section on each stream's rate over time, and the times between its samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recorder.common.text_format import format_bytes
from recorder.perception.frames import time_windows
from recorder.session.accounts import format_incomplete
from recorder.session.stream import Stream
from recorder.session.timeline import StreamTimeline, Timeline
from recorder.viewers.report.drawing import (
    Axis,
    bars,
    count_axis,
    line,
    moment_text,
    plot,
    time_axis,
    value_axis,
)
from recorder.viewers.report.markup import Content, Html, element, table
from recorder.viewers.report.report_context import ReportContext
from recorder.viewers.report.session_scan import READ_ERRORS

_EDGES = np.array([0, 0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5,
                   1.8, 2.5, 3.5, 5, 10, 100, np.inf])  # fmt: skip
"""Bounds of the bars of a histogram, in units of the stream's period."""
_FEW = 8
"""Least number of samples in an interval of the rate."""
_MOST = 40
"""Largest number of streams with plots."""


@dataclass(slots=True)
class Gaps:
    """Times between a stream's samples.

    Attributes:
        period_ns: nominal period; the mean period if there is no nominal rate.
        counts: number of times in each interval of `_EDGES`.
        least_ns, longest_ns: shortest and longest time.
        longest_at: index of the sample after the longest time.
    """

    period_ns: float
    counts: npt.NDArray[np.int64]
    least_ns: int
    longest_ns: int
    longest_at: int
    longest_since_ns: int


def find_gaps(stream: Stream) -> Gaps | None:
    """Measure the times between a stream's samples; None below two samples with times."""
    if not stream.has_times or len(stream) < 2:
        return None
    rate_hz = stream.spec.rate_hz if stream.spec is not None else None
    first, last = (int(stream.times(i, i + 1)[0]) for i in (0, len(stream) - 1))
    period_ns = 1e9 / rate_hz if rate_hz else max(1.0, (last - first) / (len(stream) - 1))
    made = Gaps(period_ns, np.zeros(len(_EDGES) - 1, np.int64), 1 << 62, -1, 0, 0)
    before: int | None = None
    for at, times in time_windows(stream):
        steps = np.diff(times, prepend=before if before is not None else times[0])
        begin = 0 if before is not None else 1
        before = int(times[-1])
        steps = steps[begin:]
        if not len(steps):
            continue
        made.counts += np.histogram(np.maximum(steps, 0) / period_ns, _EDGES)[0]
        made.least_ns = min(made.least_ns, int(steps.min()))
        if (most := int(steps.max())) > made.longest_ns:
            k = int(steps.argmax()) + begin
            made.longest_ns, made.longest_at = most, at + k
            made.longest_since_ns = int(times[k]) - most
    return made


def rates_section(material: ReportContext) -> Content:
    """Make the section with a table of all streams, plots of rates, and time histograms."""
    found, session = material.found, material.session
    if found.summary is None:
        return None
    rows = []
    plots: list[Content] = []
    for name, entry in found.summary["streams"].items():
        stream, gaps = session.streams.get(name), None
        try:
            gaps = None if stream is None else find_gaps(stream)
        except READ_ERRORS as error:
            plots.append(material.fail(name, error))
        declared = found.declared.get(name)
        expected = declared.rate_hz if declared is not None else None
        rate_hz = entry["rate_hz"]
        cells: list[Content] = [
            element("b", name),
            "damaged" if entry["samples"] is None else f"{entry['samples']}",
            None if rate_hz is None else f"{rate_hz:.2f}",
            None if expected is None else f"{expected:g}",
            None if gaps is None else _format_time(gaps.period_ns),
            None
            if gaps is None
            else f"{_format_time(gaps.least_ns)} to {_format_time(gaps.longest_ns)}",
            format_incomplete(entry["incomplete"]) or None,
            format_bytes(entry["bytes"]),
        ]
        rows.append(cells)
        if gaps is not None and found.timeline is not None and len(plots) < 2 * _MOST:
            made = found.timeline.streams.get(name)
            if made is not None and made.rates_hz:
                plots.append(_plot_rate(name, made, found.timeline, expected))
            plots.append(_plot_gaps(name, gaps, found.timeline))
    heads = ("Stream", "Samples", "Rate [Hz]", "Expected [Hz]", "Period", "Times between samples",
             "Incomplete", "Size")  # fmt: skip
    listed = table(heads, rows, right=range(1, 8))
    return [listed, element("div", plots, class_="plots")]


def _plot_rate(name: str, made: StreamTimeline, timeline: Timeline, expected: float | None) -> Html:
    seconds = (timeline.end_ns - timeline.start_ns) / 1e9
    rates = _smooth(np.array(made.rates_hz), made.samples)
    x = time_axis(seconds)
    y = value_axis(0.0, max(float(rates.max()), expected or 0.0), "Hz", 3)
    middles = (np.arange(len(rates)) + 0.5) * seconds / len(rates)
    shapes = [line(x, y, middles, rates, 0, 90)]
    if expected is not None:
        level = np.full(2, expected)
        shapes.append(line(x, y, np.array([0.0, seconds]), level, 1, 90))
    names = ("measured", "expected") if expected is not None else ()
    return plot([element("b", name), " rate"], x, y, shapes, height=90, text=f"{name}: rate",
                names=names)  # fmt: skip


def _smooth(rates: npt.NDArray[np.float64], samples: int) -> npt.NDArray[np.float64]:
    """Average rates over fewer intervals if samples are few, so that single samples do not show."""
    wanted = max(1, samples // _FEW)
    count = max(k for k in range(1, len(rates) + 1) if len(rates) % k == 0 and k <= wanted)
    return np.asarray(rates.reshape(count, -1).mean(axis=1))


def _plot_gaps(name: str, gaps: Gaps, timeline: Timeline) -> Html:
    counts = gaps.counts.tolist()
    used = [k for k, count in enumerate(counts) if count]
    first = max(0, min(used) - 1)
    last = min(len(counts), max(used) + 2)
    bounds = [
        (_EDGES[k] * gaps.period_ns, _EDGES[k + 1] * gaps.period_ns) for k in range(len(counts))
    ]
    notes = [
        f"{_format_time(low)} to {_format_time(high)}: {n}"
        for (low, high), n in zip(bounds, counts, strict=True)
    ]
    y, levels = count_axis(counts[first:last], "samples")
    shown = last - first
    labels = [k for k in range(0, shown + 1, max(1, shown // 5)) if first + k < len(_EDGES) - 1]
    x = Axis(0.0, float(shown), [float(k) for k in labels], "",
             lambda k: _format_time(_EDGES[first + int(k)] * gaps.period_ns))  # fmt: skip
    since = (gaps.longest_since_ns - timeline.start_ns) / 1e9
    longest = f"longest {_format_time(gaps.longest_ns)} at {moment_text(since)}"
    title = [element("b", name), " times between samples; ", longest]
    return plot(title, x, y, [bars(y, levels, 90, notes[first:last])], height=90,
                text=f"{name}: times between samples, {longest}")  # fmt: skip


def _format_time(ns: float) -> str:
    """Format a time in ms or s, with three digits."""
    if not np.isfinite(ns):
        return "more"
    return f"{ns / 1e6:.3g} ms" if abs(ns) < 1e9 else f"{ns / 1e9:.3g} s"
