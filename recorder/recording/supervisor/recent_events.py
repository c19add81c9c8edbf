"""Latest events for the daemon's status, with or without an open session."""

from __future__ import annotations

from collections import deque
from typing import Any

from recorder.common.secret_masking import mask_passwords
from recorder.session.events import format_event, make_event

MOST = 100
MOST_TEXT = 300


class RecentEvents:
    """Ring of the last `MOST` events.

    ::

        events.add(clock.realtime_ns(), "device", "imu", "lost", detail="no answer")
        events.list()      # [{"number": 0, "t_ns": ..., "kind": "device", "stream": "imu", ...}]
    """

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST)
        self._number = 0

    def add(self, t_ns: int, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """Add an event at `t_ns`, epoch ns; `more` is its text, or values from which it is made."""
        text = format_event(make_event(kind, t_ns, stream, cause, **more))
        # Cut before: masking takes long for long texts.  Cut after: no half of a password is left.
        text, cause = mask_passwords(text[: 4 * MOST_TEXT])[:MOST_TEXT], cause[:MOST_TEXT]
        event = {"number": self._number, "t_ns": t_ns, "kind": kind}
        self._events.append(event | {"stream": stream or None, "cause": cause, "text": text})
        self._number += 1

    def list(self) -> list[dict[str, Any]]:
        """Return the events, oldest first; their numbers count from the daemon's start."""
        return list(self._events)
