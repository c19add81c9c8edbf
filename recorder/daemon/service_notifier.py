"""Levels of the log, and the function that logs a line."""

from __future__ import annotations

from typing import Any, Protocol

ERROR, WARNING, INFO = "error", "warning", "info"
"""Log levels: for faults; for losses and absent sensors; for everything else."""


class Say(Protocol):
    """Takes one line for people (`recorder.daemon.logs.Log.say`); may be called from any thread."""

    def __call__(self, text: str, /, level: str = INFO, **fields: Any) -> None:
        """Show it, with its level and what else a program may want to know."""


class ReportEvent(Protocol):
    """Logs an event of now, shows it, and puts it into the open session."""

    def __call__(
        self, level: str, kind: str, stream: str = "", cause: str = "", **more: Any
    ) -> None:
        """Report an event; `more` as in `recorder.session.events.make_event`."""
