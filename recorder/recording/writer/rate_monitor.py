"""Detection of intervals in which a stream was slower than its minimum rate.

The samples' own times count, so a stalled disk or a busy machine makes no stream slow::

    watch = RateMonitor(floor_hz=50.0, start_ns=start_ns)
    for slow in watch.count_samples(first_ns, last_ns, count):
        slow.cause, slow.since_ns, slow.until_ns, slow.given
    watch.count_loss(t_ns, count)                     # a reported loss; count None: uncounted
    watch.finish(end_ns)
"""

from __future__ import annotations

from dataclasses import dataclass

from recorder.codecs.streams import StreamSpec
from recorder.session.events import SILENT, SLOW, window_ns

_LEAST_NS = 1_000_000_000  # shortest session in which a sample is expected


@dataclass(frozen=True, slots=True)
class RateShortfall:
    """A slow or silent interval, CLOCK_MONOTONIC, with the number of its samples."""

    cause: str
    since_ns: int
    until_ns: int
    given: int = 0


def get_least_ns(spec: StreamSpec) -> int:
    """Return the shortest session that should have a sample of the stream, in ns."""
    return max(_LEAST_NS, round(2e9 / spec.rate_hz) if spec.rate_hz else 0)


class RateMonitor:
    """Monitor of a stream's rate; see the module's example.

    Args:
        floor_hz: minimum rate, Hz.
        start_ns: expected start of the stream, CLOCK_MONOTONIC.
    """

    def __init__(self, floor_hz: float, start_ns: int) -> None:
        self._floor_hz = floor_hz
        self._window_ns = window_ns(floor_hz)
        self._last_ns = start_ns
        self._begin_ns = start_ns  # start of the current window
        self._count = 0
        self._since_ns: int | None = None  # start of an interval below the floor
        self._given = 0

    def count_samples(self, first_ns: int, last_ns: int, count: int) -> list[RateShortfall]:
        """Count samples; return the slow or silent intervals that they end."""
        found: list[RateShortfall] = []
        if first_ns - self._last_ns >= self._window_ns:
            found = [*self._close(), RateShortfall(SILENT, self._last_ns, first_ns)]
            self._begin_ns = first_ns
        self._count += count
        self._last_ns = max(self._last_ns, last_ns)
        if self._last_ns - self._begin_ns >= self._window_ns:
            found += self._judge(self._last_ns)
        return found

    def count_loss(self, t_ns: int, count: int | None) -> list[RateShortfall]:
        """Count a separately reported loss, which is not slowness; return the intervals it ends."""
        if count is not None:
            self._count += count
            self._last_ns = max(self._last_ns, t_ns)
            return []
        found = self._close()
        self._begin_ns = self._last_ns = max(self._last_ns, t_ns)
        return found

    def finish(self, end_ns: int) -> list[RateShortfall]:
        """End the stream; return the intervals that last until its end.

        Args:
            end_ns: time until which samples were expected, CLOCK_MONOTONIC.
        """
        end_ns = max(end_ns, self._last_ns)
        if end_ns - self._last_ns >= self._window_ns:
            return [*self._close(), RateShortfall(SILENT, self._last_ns, end_ns)]
        found: list[RateShortfall] = []
        if self._since_ns is not None or (end_ns - self._begin_ns) * 3 >= self._window_ns * 2:
            found = self._judge(end_ns)
        return found + self._close()

    def _judge(self, until_ns: int) -> list[RateShortfall]:
        """Evaluate a full window; return the interval that it ends."""
        found: list[RateShortfall] = []
        below = (self._count + 1) * 1e9 < self._floor_hz * (until_ns - self._begin_ns)
        if below:
            self._since_ns = self._begin_ns if self._since_ns is None else self._since_ns
            self._given += self._count
        else:
            found = self._close()
        self._begin_ns, self._count = until_ns, 0
        return found

    def _close(self) -> list[RateShortfall]:
        since_ns, given = self._since_ns, self._given
        self._since_ns, self._given, self._count = None, 0, 0
        cause = SLOW if given else SILENT
        return [] if since_ns is None else [RateShortfall(cause, since_ns, self._begin_ns, given)]
