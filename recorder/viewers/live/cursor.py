"""Read position in one stream of a recorded session."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.session.playback import BATCH_NS, SMALL_BYTES, read_chunk
from recorder.session.replay import create_message
from recorder.session.stream import Stream

_PLOT_NS = 10_000_000_000  # small samples of this time before a position are shown with it
_WINDOW = 1024  # samples whose times are read at once


class Cursor:
    """Read position in a stream.  All methods may raise a FormatError.

    Bisection in the file finds times, so that a stream of any length costs the same memory.

    Attributes:
        index: index of the next sample.
        shown: index of the sample that was sent last; -1: none.
    """

    def __init__(self, stream: Stream, spec: StreamSpec) -> None:
        self.index = 0
        self.shown = -1
        self._stream = stream
        self._spec = spec
        small = stream.sample_bytes <= SMALL_BYTES and not any(c.variable for c in spec.channels)
        self._most = _WINDOW if small else 1  # samples in a message
        self._first = 0  # index of the first sample of the window
        self._times: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._seq: npt.NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self._stream.name

    @property
    def length(self) -> int:
        """Number of samples in the stream."""
        return len(self._stream)

    @property
    def next_ns(self) -> int | None:
        """Stamp of the next sample, epoch ns; None at the end."""
        return self.read_stamp(self.index) if self.index < self.length else None

    def read_stamp(self, index: int) -> int:
        """Return the stamp of a sample, epoch ns."""
        at = self._offset(index)  # may replace the window
        return int(self._times[at])

    def place(self, t_ns: int) -> None:
        """Move to the first sample after a time, epoch ns."""
        times = self._stream.times
        self.index = bisect_right(range(self.length), t_ns, key=lambda i: int(times(i, i + 1)[0]))

    def drop_until(self, t_ns: int) -> int:
        """Skip to the newest samples at or before a time; return how many are left out."""
        before = self.index
        self.place(t_ns)
        self.index = max(before, self.index - self._most)
        return self.index - before

    def batch_end(self, t_ns: int | None) -> int:
        """Return the end of the samples that are sent together with the next one.

        A batch is one sample; or, for small samples, all that are due at `t_ns` (None: some
        milliseconds after the first) and have consecutive numbers.
        """
        if self._most == 1:
            return self.index + 1
        at = self._offset(self.index)
        until_ns = int(self._times[at]) + BATCH_NS if t_ns is None else t_ns
        due = int(np.searchsorted(self._times[at:], until_ns, side="right"))
        breaks = np.flatnonzero(np.diff(self._seq[at : at + due]) != 1)
        return self.index + max(1, int(breaks[0]) + 1 if len(breaks) else due)

    def batch_start(self, last: int) -> int:
        """Return the start of the samples that are shown together with a sample.

        For small samples these are the samples of the last seconds that a plot shows, with
        consecutive numbers, that were not shown before; otherwise the sample alone.
        """
        if self._most == 1:
            return last
        first = max(0, last + 1 - _WINDOW, self.shown + 1 if self.shown < last else 0)
        at = self._offset(first, last)
        stop = at + last + 1 - first
        oldest_ns = int(self._times[stop - 1]) - _PLOT_NS
        first += int(np.searchsorted(self._times[at:stop], oldest_ns))
        breaks = np.flatnonzero(np.diff(self._seq[at:stop]) != 1)
        return max(first, last + 1 - (stop - at) + int(breaks[-1]) + 1) if len(breaks) else first

    def message(self, start: int, stop: int) -> Message:
        """Return the samples [start, stop) as a message, with epoch ns as ``t_mono``."""
        at = self._offset(start, stop - 1)
        times = self._times[at : at + stop - start]
        return create_message(
            read_chunk(self._stream, start, int(self._seq[at]), times), self._spec
        )

    def mark_sent(self, stop: int) -> None:
        """Record that the samples before `stop` were sent."""
        self.index, self.shown = stop, stop - 1

    def extend(self, *, also_inside: bool = False) -> bool:
        """Read the stream's length again, at the end (or anywhere); return True if it was read."""
        if self.index < self.length and not also_inside:
            return False
        self._stream.refresh()
        self._times = self._times[:0]
        return True

    def _offset(self, index: int, last: int | None = None) -> int:
        """Return a sample's place in the window; move the window unless it holds it and `last`."""
        end = self._first + len(self._times)
        if not self._first <= index <= (index if last is None else last) < end:
            stop = min(index + _WINDOW, self.length)
            self._times = self._stream.times(index, stop)
            if "seq" in self._stream.meta:
                self._seq = self._stream.channels["seq"].read(index, stop).astype(np.int64)
            else:
                self._seq = np.arange(index, stop)
            self._first = index
        return index - self._first


def missing_samples(stream: Stream) -> str:
    """List channels that hold fewer samples than others of their stream; empty if none does."""
    lengths = {name: len(stream.channels[name]) for name in stream.meta}
    most = max(lengths.values(), default=0)
    short = [f"{name} holds {n} of {most} samples" for name, n in lengths.items() if n < most]
    return ", ".join(short)
