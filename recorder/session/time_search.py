"""Search for samples by time, with a window of a stream's stamps in memory.

::

    search = TimeSearch(stream)
    search.first_at(t_ns)            # index of the first sample at or after a time
    search.nearest(t_ns, 50_000_000)
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from recorder.session.stream import Stream

WINDOW = 65_536
"""Stamps in memory: half a megabyte."""


class TimeSearch:
    """Finds a stream's samples by their stamps, which rise.  Times that rise are found fastest.

    Args:
        stream: a stream with times.
        window: number of stamps in memory.
    """

    def __init__(self, stream: Stream, window: int = WINDOW) -> None:
        self._stream, self._size = stream, window
        self._start = 0
        self._times: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def first_at(self, t_ns: int) -> int:
        """Find the first sample at or after a time; the stream's length if there is none."""
        if not self._covers(t_ns):
            self._load(bisect_left(range(len(self._stream)), t_ns, key=self._stamp))
        return self._start + int(np.searchsorted(self._times, t_ns))

    def between(self, start_ns: int, end_ns: int) -> range:
        """Find the samples in the half-open interval [start_ns, end_ns)."""
        first = self.first_at(start_ns)
        return range(first, max(first, self.first_at(end_ns)))

    def nearest(self, t_ns: int, tolerance_ns: int | None = None) -> int | None:
        """Find the sample nearest to a time, the earlier one of two that are equally near.

        Args:
            t_ns: epoch ns.
            tolerance_ns: largest distance, included; None: any.

        Returns:
            index of the sample; None where no sample is near enough.
        """
        after = self.first_at(t_ns)
        around = [i for i in (after - 1, after) if 0 <= i < len(self._stream)]
        if not around:
            return None
        index = min(around, key=lambda i: abs(self._stamp(i) - t_ns))
        near = tolerance_ns is None or abs(self._stamp(index) - t_ns) <= tolerance_ns
        return index if near else None

    def _covers(self, t_ns: int) -> bool:
        """Return whether the sample that `first_at` finds is among the stamps in memory."""
        if not len(self._times):
            return False
        stop = self._start + len(self._times)
        after_start = self._start == 0 or bool(self._times[0] < t_ns)
        return after_start and (stop == len(self._stream) or bool(t_ns <= self._times[-1]))

    def _stamp(self, index: int) -> int:
        if 0 <= (place := index - self._start) < len(self._times):
            return int(self._times[place])
        return int(self._stream.times(index, index + 1)[0])

    def _load(self, index: int) -> None:
        """Keep the stamps around an index: some before it, most of them after it."""
        self._start = max(0, index - self._size // 8)
        stop = min(self._start + self._size, len(self._stream))
        self._times = self._stream.times(self._start, stop)
