"""What surrounds the daemon and may be put in from outside."""

from __future__ import annotations


class Notify:
    """Tells the service manager how the daemon is; this one has none to tell."""

    def ready(self) -> None:
        """Drivers are armed, or known to be missing."""

    def watchdog(self) -> None:
        """All is well; called about once a second while it is."""

    def status(self, text: str) -> None:
        """One line for people; called when it changes."""

    def stopping(self) -> None:
        """The end has begun."""
