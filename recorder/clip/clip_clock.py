"""The clock of a clip: the time of the sample that is written."""

from __future__ import annotations

import threading


class ClipClock:
    """A clock that stands at the latest recorded time.

    Args:
        mono_ns: where it begins, the recording's CLOCK_MONOTONIC.
        offset_ns: what is to be added for epoch ns.
    """

    def __init__(self, mono_ns: int, offset_ns: int) -> None:
        self._mono_ns, self._offset_ns = mono_ns, offset_ns

    def advance(self, mono_ns: int) -> None:
        """Go on to a time; never back."""
        self._mono_ns = max(self._mono_ns, mono_ns)

    def monotonic_ns(self) -> int:
        return self._mono_ns

    def realtime_ns(self) -> int:
        return self._mono_ns + self._offset_ns

    def wait(self, event: threading.Event, seconds: float) -> bool:  # noqa: ARG002
        """Nothing happens while a clip waits."""
        return event.is_set()
