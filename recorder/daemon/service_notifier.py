"""What surrounds the daemon and may be put in from outside."""

from __future__ import annotations

from typing import Any, Protocol

ERROR, WARNING, INFO = "error", "warning", "info"
"""Log levels: for faults; for losses and absent sensors; for everything else."""


class Say(Protocol):
    """Takes one line for people (`recorder.daemon.logs.Log.say`); may be called from any thread."""

    def __call__(self, text: str, /, level: str = INFO, **fields: Any) -> None:
        """Show it, with its level and what else a program may want to know."""


class ServiceNotifier:
    """Tells the service manager how the daemon is; this one has none to tell."""

    def ready(self) -> None:
        """Drivers are armed, or known to be missing."""

    def watchdog(self) -> None:
        """All is well; called about once a second while it is."""

    def status(self, text: str) -> None:
        """One line for people; called when it changes."""

    def stopping(self) -> None:
        """The end has begun."""
