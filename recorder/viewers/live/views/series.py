"""Plots of small numeric channels, such as IMU samples and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.perception.earth import declared_position, local_track
from recorder.perception.encoded import EncodedSamples
from recorder.perception.stream_contents import has_series, is_plotted, value_names
from recorder.viewers.live.views.drawing import Drawing, checked_options

_PERIODS, _PAUSE_NS = 2.5, 100_000_000
"""Number of intervals, and least time, without a sample after which a stream has paused."""


class SeriesView:
    """View of all samples since the last drawing.

    A drawing has the arrays ``t``, f8 [n], seconds after ``t0_ns`` of the header (a string, on
    the clock of the messages' ``t_mono``: the stamp of the newest sample, so that no time is
    positive), and one [n, k] of each channel, by the channel's name: f4 where it holds all values,
    else f8.  Where the stream has positions, ``local_m`` f8 [n, 3] has them as east, north and up
    in metres from ``origin`` of the header, the first position seen (latitude and longitude in
    degrees, height in metres); NaN where there is none.

    ``gaps`` of the header are the indices of samples that do not follow the sample before: no line
    is drawn to them.  Samples between the two were lost or not shown, or the stream paused.

    The header also has ``channels``: of each one ``name``, ``unit``, ``description`` and
    ``labels`` [k]; and ``position``, the channel of positions, or null.
    """

    every = True
    static: Drawing | None = None

    def __init__(self, spec: StreamSpec, options: Mapping[str, Any]) -> None:
        checked_options(spec, "series", {}, options)
        self._samples = EncodedSamples(spec)
        self._channels = [channel for channel in spec.channels if is_plotted(channel)]
        self._position = declared_position(spec)
        self._origin: npt.NDArray[np.float64] | None = None
        self._before = (-2, 0)  # number and time of the last sample
        self._pause_ns = max(_PERIODS * 1e9 / spec.rate_hz, _PAUSE_NS) if spec.rate_hz else 1e9
        listed = [
            {
                "name": channel.name,
                "unit": channel.unit,
                "description": channel.description,
                "labels": value_names(channel),
            }
            for channel in self._channels
        ]
        self._about = {"channels": listed, "position": self._position}

    @staticmethod
    def is_offered(spec: StreamSpec) -> bool:
        """Check that the samples are small and hold numbers that can be plotted."""
        return has_series(spec)

    def draw(self, messages: Sequence[Message]) -> Drawing | None:
        """Draw the samples of all messages; see `recorder.viewers.live.views.View`."""
        for message in messages:
            self._samples.check(message)
        times = np.concatenate([np.atleast_1d(message.t_mono_ns) for message in messages])
        header: dict[str, Any] = {
            "t0_ns": str(times[-1]),
            "gaps": self._gaps(messages, times),
            **self._about,
        }
        drawing = Drawing(header, [("t", (times - times[-1]) * 1e-9)])
        for channel in self._channels:
            values = np.concatenate([self._samples.every(m, channel.name) for m in messages])
            if channel.name == self._position:
                drawing.arrays.append(("local_m", self._track(values)))
            plotted = values.astype(_dtype(channel)).reshape(len(times), -1)
            drawing.arrays.append((channel.name, plotted))
        if self._origin is not None:
            header["origin"] = self._origin.tolist()
        return drawing

    def _gaps(self, data: Sequence[Message], times: npt.NDArray[np.int64]) -> list[int]:
        seq = np.concatenate([np.arange(m.seq, m.next_seq) for m in data])
        before_seq, before_ns = self._before  # of no sample: the first one follows none
        steps, pauses = np.diff(seq, prepend=before_seq), np.diff(times, prepend=before_ns)
        self._before = int(seq[-1]), int(times[-1])
        gaps: list[int] = np.flatnonzero((steps != 1) | (pauses > self._pause_ns)).tolist()
        return gaps

    def _track(self, positions: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        track, self._origin = local_track(positions, self._origin)
        return track


def _dtype(channel: ChannelSpec) -> str:
    """Return ``<f4`` where it holds every value of the channel, else ``<f8``."""
    kind, size = channel.np_dtype.kind, channel.np_dtype.itemsize
    return "<f4" if size < 4 or (kind, size) == ("f", 4) else "<f8"
