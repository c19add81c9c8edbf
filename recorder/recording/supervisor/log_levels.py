"""Log levels, and the types of the functions that log."""

from __future__ import annotations

from typing import Any, Protocol

ERROR, WARNING, INFO = "error", "warning", "info"
"""Log levels: for faults; for losses and absent sensors; for everything else."""


class LogLine(Protocol):
    """Function that logs one line for users from any thread, as `Log.say` of the daemon's logs."""

    def __call__(self, text: str, /, level: str = INFO, **fields: Any) -> None:
        """Log a line with its level and further values for programs."""


class ReportEvent(Protocol):
    """Function that logs a current event, shows it, and puts it into the open session."""

    def __call__(
        self, level: str, kind: str, stream: str = "", cause: str = "", **more: Any
    ) -> None:
        """Report an event; `more` as in `recorder.session.events.make_event`."""
