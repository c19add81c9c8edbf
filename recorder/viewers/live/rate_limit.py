"""Schedule of the samples that a viewer is shown."""

from __future__ import annotations

from typing import Final

_EARLY: Final = 0.3
"""Share of the stream's interval by which a sample may precede its turn."""


class RateLimit:
    """Rate limit of a viewer that prefers samples that have just come over samples that waited.

    ::

        pace = Pace(period_s, rate_hz)
        ...                                     # a sample has come
        pause_s, patience_s = pace.compute_wait(now_s)  # sleep, then wait for a newer sample
        pace.record_shown(now_s)

    Turns are one period apart on average: a turn that waited for its sample does not delay the
    turns after it.

    Args:
        period_s: interval between two samples that the viewer is shown.
        rate_hz: the stream's rate, if it is known.
    """

    def __init__(self, period_s: float, rate_hz: float | None) -> None:
        self._period_s = period_s
        self._interval_s = min(1.0 / rate_hz, period_s) if rate_hz else 0.0
        self._due_s = float("-inf")

    def compute_wait(self, now_s: float) -> tuple[float, float]:
        """Return how long to let samples pass, and then how long to wait for the next, in seconds.

        Both are 0 from the turn on.  A sample that came before the turn would be old at the turn:
        the next sample is shown instead, or the newest sample if none comes for an interval.
        """
        wait_s = self._due_s - now_s
        if wait_s <= 0.0:
            return 0.0, 0.0
        pause_s = max(0.0, wait_s - _EARLY * self._interval_s)
        return pause_s, (wait_s - pause_s + self._interval_s) if self._interval_s else 0.0

    def record_shown(self, now_s: float) -> None:
        """Record that a sample is shown now."""
        waited = now_s - self._due_s <= self._interval_s  # else the stream paused
        self._due_s = (self._due_s if waited else now_s) + self._period_s
