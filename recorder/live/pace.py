"""When a viewer is shown the next sample of a stream."""

from __future__ import annotations

from typing import Final

_EARLY: Final = 0.3
"""A sample is fresh enough if it comes this share of the stream's interval before its turn."""


class Pace:
    """Keeps a viewer's rate, and shows samples as they come instead of samples that waited.

    ::

        pace = Pace(period_s, rate_hz)
        ...                                     # a sample has come
        pause_s, patience_s = pace.turn(now_s)  # sleep, then wait for a newer sample
        pace.shown(now_s)

    Turns are one period apart on average: a turn that waited for its sample does not delay the
    turns after it.

    Args:
        period_s: between two samples that the viewer is shown.
        rate_hz: the stream's rate, if it is known.
    """

    def __init__(self, period_s: float, rate_hz: float | None) -> None:
        self._period_s = period_s
        self._interval_s = min(1.0 / rate_hz, period_s) if rate_hz else 0.0
        self._due_s = float("-inf")

    def turn(self, now_s: float) -> tuple[float, float]:
        """How long to let samples pass, and how long to wait then for the next one, in seconds.

        Both are 0 from the turn on.  Before it, the sample that has come would be old at its turn:
        the next one is shown instead, or the newest there is if none comes for an interval.
        """
        wait_s = self._due_s - now_s
        if wait_s <= 0.0:
            return 0.0, 0.0
        pause_s = max(0.0, wait_s - _EARLY * self._interval_s)
        return pause_s, (wait_s - pause_s + self._interval_s) if self._interval_s else 0.0

    def shown(self, now_s: float) -> None:
        """A sample is shown now."""
        waited = now_s - self._due_s <= self._interval_s  # else the stream paused
        self._due_s = (self._due_s if waited else now_s) + self._period_s
