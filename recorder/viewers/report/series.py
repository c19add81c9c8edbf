"""Section with small numbers over time: IMUs, speeds, temperatures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import ChannelSpec
from recorder.perception.earth import declared_position
from recorder.perception.stream_contents import count_values, has_series, is_plotted, value_names
from recorder.session.playback import recorded_spec
from recorder.session.stream import Stream
from recorder.viewers.report.drawing import draw_band, line, plot, time_axis, value_axis
from recorder.viewers.report.markup import Content, Html, element
from recorder.viewers.report.report_context import ReportContext
from recorder.viewers.report.session_scan import READ_ERRORS

_COLUMNS: Final = 240
"""Number of intervals in a plot, each drawn by its least, mean and greatest value."""
_WINDOW: Final = 16_384
_ALL: Final = 2_000_000
"""Number of samples above which a stream is read in pieces, evenly spaced over the session."""
_PIECES, _PIECE = 2000, 512
_MOST_PLOTS: Final = 24
_MOST_VALUES: Final = 6  # of a plot

Floats = npt.NDArray[np.float64]


class Envelope:
    """Least, mean and greatest values of a channel in intervals of equal length.

    Attributes:
        low, mean, high: f8 [columns, values]; NaN where there is no finite value.
    """

    def __init__(self, start_ns: int, end_ns: int, values: int) -> None:
        self._start_ns, self._span_ns = start_ns, max(1, end_ns - start_ns)
        self.low: Floats = np.full((_COLUMNS, values), np.inf)
        self.high: Floats = np.full((_COLUMNS, values), -np.inf)
        self._sum: Floats = np.zeros((_COLUMNS, values))
        self._count: Floats = np.zeros((_COLUMNS, values))

    def add(self, t_ns: npt.NDArray[np.int64], values: Floats) -> None:
        """Add samples: int64 [n], f8 [n, values]."""
        share = (t_ns - self._start_ns) / self._span_ns
        column = np.clip(share * _COLUMNS, 0, _COLUMNS - 1).astype(np.int64)
        starts = np.flatnonzero(np.diff(column, prepend=-1))
        where, finite = column[starts], np.isfinite(values)
        least = np.minimum.reduceat(np.where(finite, values, np.inf), starts)
        most = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
        np.minimum.at(self.low, where, least)
        np.maximum.at(self.high, where, most)
        np.add.at(self._sum, where, np.add.reduceat(np.where(finite, values, 0.0), starts))
        np.add.at(self._count, where, np.add.reduceat(finite.astype(np.float64), starts))

    @property
    def mean(self) -> Floats:
        """Mean values."""
        with np.errstate(invalid="ignore", divide="ignore"):
            made: Floats = self._sum / self._count
        return made

    @property
    def extent(self) -> tuple[float, float]:
        """Least and greatest of all values; NaN without values."""
        if not self._count.any():
            return np.nan, np.nan
        return float(self.low.min()), float(self.high.max())


def series_section(material: ReportContext) -> Content:
    """Make the section with plots of every stream with small samples."""
    plots: list[Content] = []
    for stream in material.streams:
        try:
            spec = recorded_spec(stream)
            if not has_series(spec) or not stream.has_times or not len(stream):
                continue
            position = declared_position(spec)
            for channel in spec.channels:
                if is_plotted(channel) and channel.name != position and len(plots) < _MOST_PLOTS:
                    plots.append(_plot_channel(material, stream, channel))
        except READ_ERRORS as error:
            plots.append(material.fail(stream.name, error))
    return element("div", plots, class_="plots") if plots else None


def ranges_to_read(length: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of samples to read: the whole stream, or pieces of a long one."""
    if length <= _ALL:
        yield from ((at, min(at + _WINDOW, length)) for at in range(0, length, _WINDOW))
        return
    for k in range(_PIECES):
        at = k * (length - _PIECE) // (_PIECES - 1)
        yield at, at + _PIECE


def _plot_channel(material: ReportContext, stream: Stream, channel: ChannelSpec) -> Html:
    shown = min(count_values(channel), _MOST_VALUES)
    envelope = Envelope(*material.span_ns, shown)
    for start, stop in ranges_to_read(len(stream)):
        values = stream.channels[channel.name].read(start, stop).astype(np.float64)
        envelope.add(stream.times(start, stop), values.reshape(stop - start, -1)[:, :shown])
    x = time_axis(material.seconds)
    y = value_axis(*envelope.extent, channel.unit)
    across = (np.arange(_COLUMNS) + 0.5) * material.seconds / _COLUMNS
    shapes: list[Content] = []
    for k in range(shown):
        shapes.append(draw_band(x, y, across, envelope.low[:, k], envelope.high[:, k], k))
        shapes.append(line(x, y, across, envelope.mean[:, k], k))
    names = value_names(channel)
    more = f", the first {shown} of {len(names)}" if len(names) > shown else ""
    title = [element("b", stream.name), f" {channel.name}",
             element("small", f" {channel.description}{more}")]  # fmt: skip
    return plot(title, x, y, shapes, names=names[:shown] if shown > 1 else (),
                text=f"{stream.name}: {channel.name}")  # fmt: skip
