"""Record of the clocks' states in the session: at its start and every minute."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from recorder.common.process_setup import start_thread
from recorder.recording.host.clocks import clock_state, summary
from recorder.recording.supervisor.log_levels import INFO, WARNING, ReportEvent

EVERY_S = 60.0

Put = Callable[..., None]
"""Function ``put(kind, stream, cause, **values)`` that puts an event into the open session."""


class ClockRecord:
    """Recorder of ``clock`` events with cause ``state``; a thread reads the state, which may hang.

    Every state is put into the session.  It is also reported to users if the synchronization or the
    time daemon has changed.

    ::

        record = ClockRecord()
        while recording:
            record.tick("sessions/a", clock.monotonic_ns(), put, report)

    Args:
        ask: returns the state; may take seconds.
        every_s: seconds between two states.

    Attributes:
        last: the latest state, even without a session; None before the first.
    """

    def __init__(
        self, ask: Callable[[], dict[str, Any]] = clock_state, every_s: float = EVERY_S
    ) -> None:
        self.last: dict[str, Any] | None = None
        self._ask = ask
        self._every_ns = round(every_s * 1e9)
        self._session: str | None = None
        self._due_ns = 0
        self._thread: threading.Thread | None = None
        self._answer: dict[str, Any] | None = None

    def tick(self, session: str | None, now_ns: int, put: Put, report: ReportEvent) -> None:
        """Record a new state, and start the next reading if it is due; call this regularly.

        Args:
            session: the session being recorded; None without one.
            now_ns: CLOCK_MONOTONIC.
            put: called with a state that was read since the last call.
            report: called instead of `put` if the state has changed.
        """
        if self._answer is not None:
            before, self.last, self._answer = self.last, self._answer, None
            values = {"detail": summary(self.last), **self.last}
            if before is not None and _quality(before) != _quality(self.last):
                level = INFO if _quality(self.last)[0] else WARNING
                report(level, "clock", "", "state", **values)
            elif session is not None and session == self._session:
                put("clock", "", "state", **values)
        if session != self._session:
            self._session, self._due_ns = session, now_ns
        if now_ns >= self._due_ns and (self._thread is None or not self._thread.is_alive()):
            self._due_ns = now_ns + self._every_ns
            thread = threading.Thread(target=self._find_out, name="clocks", daemon=True)
            with contextlib.suppress(OSError):  # no memory: retried after the interval
                start_thread(thread)
                self._thread = thread

    def _find_out(self) -> None:
        self._answer = self._ask()

    def close(self) -> None:
        """Wait for a reading in progress, at most five seconds."""
        if self._thread is not None:
            self._thread.join(5.0)


def _quality(state: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """Return the parts of a state that users care about: synchronization and time daemon."""
    return (state["kernel"] or {}).get("synchronized"), (state["daemon"] or {}).get("name")
