"""A clock that a test moves by hand."""

from __future__ import annotations

import threading


class ManualClock:
    """A clock for tests: it moves by `advance` and by waiting.

    >>> clock = ManualClock()
    >>> clock.advance(1.5)
    >>> clock.monotonic_ns()
    1500000000
    """

    def __init__(self, monotonic_ns: int = 0, realtime_ns: int = 1_700_000_000_000_000_000) -> None:
        self._offset_ns = realtime_ns - monotonic_ns
        self._now_ns = monotonic_ns

    def monotonic_ns(self) -> int:
        return self._now_ns

    def realtime_ns(self) -> int:
        return self._now_ns + self._offset_ns

    def advance(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)

    def step_realtime(self, seconds: float) -> None:
        """Step the calendar clock alone, as NTP or a GNSS fix does."""
        self._offset_ns += round(seconds * 1e9)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if event.is_set():
            return True
        self.advance(max(0.0, seconds))
        return False
