"""Section on clocks: the host's offset and steps, and the devices' drift against the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.session.stream import Stream
from recorder.viewers.report.drawing import line, plot, time_axis, value_axis
from recorder.viewers.report.markup import Content, Html, element, table
from recorder.viewers.report.report_context import ReportContext
from recorder.viewers.report.session_scan import READ_ERRORS

_MOST_STATES: Final = 5000
_POINTS: Final = 300
_MOST_DEVICES: Final = 8
_MOST_STEPS: Final = 50

_UNITS: Final = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))

Event = Mapping[str, Any]
Floats = npt.NDArray[np.float64]


def clocks_section(material: ReportContext) -> Content:
    """Make the section on the clocks of host and devices."""
    states: list[Event] = []
    steps: list[Event] = []
    for event in material.session.events():
        cause = (event.get("type"), event.get("cause"))
        if not isinstance(event.get("t_ns"), int):
            continue
        if cause == ("clock", "state") and len(states) < _MOST_STATES:
            states.append(event)
        elif cause in (("clock", "step"), ("time", "step")) and len(steps) < _MOST_STEPS:
            steps.append(event)
    made: list[Content] = []
    if states:
        first, last = (event.get("detail") or "unknown" for event in (states[0], states[-1]))
        made.append(element("p", f"Host clock at the start: {first}; at the end: {last}."))
    made.append(_list_steps(material, steps))
    plots = [*_plot_host(material, states), *_plot_devices(material)]
    if plots:
        made.append(element("div", plots, class_="plots"))
    return made if states or steps or plots else None


def _list_steps(material: ReportContext, steps: Sequence[Event]) -> Content:
    if not steps:
        return element("p", "No clock stepped.", class_="muted")
    rows = []
    for event in steps:
        step_ns = event.get("step_ns")
        size = f"{step_ns / 1e9:+.6f} s" if isinstance(step_ns, int) else None
        since = (event["t_ns"] - material.span_ns[0]) / 1e9
        clock = "host" if event.get("type") == "clock" else str(event.get("stream"))
        rows.append([f"{since:.1f} s", clock, size, str(event.get("detail") or "") or None])
    return table(("Time", "Clock", "Step", "Detail"), rows, caption="Steps")


def _plot_host(material: ReportContext, states: Sequence[Event]) -> Iterator[Html]:
    """Yield plots of the reports of the kernel, the time daemon, PTP clocks and pulses."""
    first = next(
        (ns for e in states if (ns := _read_number(e, "realtime_minus_monotonic_ns"))), 0.0
    )
    ptp, pps = (
        sorted({k for e in states for k in range(len(e.get(kind) or ()))})[:4]
        for kind in ("ptp", "pps")
    )
    series: list[tuple[str, Callable[[Event], float]]] = [
        ("offset that the kernel still slews", lambda e: _read_number(e, "kernel", "offset_ns")),
        ("greatest error, by the kernel", lambda e: _read_number(e, "kernel", "max_error_ns")),
        ("offset of the time daemon", lambda e: _read_number(e, "daemon", "offset_ns")),
        ("change of realtime against monotonic",
         lambda e: _read_number(e, "realtime_minus_monotonic_ns") - first),
        *((f"PTP clock {k} against realtime", lambda e, k=k: _read_number(e, "ptp", k, "offset_ns"))
          for k in ptp),
        *((f"realtime against pulse {k}", lambda e, k=k: _read_number(e, "pps", k, "offset_ns"))
          for k in pps),
    ]  # fmt: skip
    across = np.array([(e["t_ns"] - material.span_ns[0]) / 1e9 for e in states])
    for name, of in series:
        values = np.array([of(event) for event in states])
        if np.count_nonzero(np.isfinite(values)) > 1:
            yield _plot_curve(material, f"host clock: {name}", across, values)


def _read_number(event: Event, *path: str | int) -> float:
    """Return a number in an event; NaN where the event lacks the number."""
    value: Any = event
    for key in path:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return math.nan
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30
    return float(value) if good else math.nan


def _plot_devices(material: ReportContext) -> Iterator[Html]:
    """Yield plots of the devices' clocks against the host's, from the stamps of single samples."""
    left = _MOST_DEVICES
    for stream in material.streams:
        if "t_dev" not in stream.meta or not stream.has_times or not left:
            continue
        try:
            if len(stream) > 1:
                left -= 1
                yield _plot_device(material, stream)
        except READ_ERRORS as error:
            yield material.fail(f"{stream.name}: device clock", error)


def _plot_device(material: ReportContext, stream: Stream) -> Html:
    at = np.unique(np.linspace(0, len(stream) - 1, _POINTS).astype(np.int64)).tolist()
    host = np.array([int(stream.times(i, i + 1)[0]) for i in at])
    reader = stream.channels["t_dev"]
    device = np.array([int(reader.read(i, i + 1)[0]) for i in at])
    # Differences of integers: neither clock's value fits a float exactly.
    apart_ns = ((device - device[0]) - (host - host[0])).astype(np.float64)
    seconds = (host - material.span_ns[0]) / 1e9
    drift = ""
    if seconds[-1] - seconds[0] >= 10:
        rate = float(np.polyfit(seconds - seconds[0], apart_ns, 1)[0]) / 1e3
        drift = f", {rate:+.1f} ppm"
    name = f"{stream.name}: device clock against the host, since the first sample{drift}"
    return _plot_curve(material, name, seconds, apart_ns)


def _plot_curve(material: ReportContext, title: str, across: Floats, values_ns: Floats) -> Html:
    """Plot times in the unit that suits them."""
    finite = values_ns[np.isfinite(values_ns)]
    most = float(np.abs(finite).max())
    unit, size = next((u for u in _UNITS if most >= u[1]), _UNITS[-1])
    x = time_axis(material.seconds)
    y = value_axis(float(finite.min()) / size, float(finite.max()) / size, unit, 3)
    return plot(title, x, y, [line(x, y, across, values_ns / size, 0, 90)], height=90, text=title)
