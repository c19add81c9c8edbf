"""When a trigger fires, given whether its condition holds: pure, without a clock."""

from __future__ import annotations

from recorder.contract.config.settings import TriggerSettings


class Firing:
    """One trigger's state.

    A trigger fires when its condition has held for its duration, once, and again only after it was
    released: by `until`, or else by the end of the condition.  Within the cooldown after it has
    fired it does not fire; what would have fired is counted.

    Attributes:
        settings: the trigger's.
        suppressed: times that the cooldown prevented.
    """

    def __init__(self, settings: TriggerSettings) -> None:
        self.settings = settings
        self.suppressed = 0
        self._since_ns: int | None = None
        self._released = True
        self._fired_ns: int | None = None

    def look(self, t_ns: int, holds: bool, releases: bool) -> bool:
        """Whether the trigger fires at a time.

        Args:
            t_ns: epoch ns; times do not step back by more than streams differ.
            holds: the condition is met.
            releases: what releases the trigger is met.
        """
        if not self._released and releases:
            self._released, self._since_ns = True, None
        if not holds:
            self._since_ns = None
            return False
        if self._since_ns is None:
            self._since_ns = t_ns
        if not self._released or t_ns - self._since_ns < self.settings.duration * 1e9:
            return False
        self._released = False
        cooling = self._fired_ns is not None and (
            t_ns - self._fired_ns < self.settings.cooldown * 1e9
        )
        if cooling:
            self.suppressed += 1
            return False
        self._fired_ns = t_ns
        return True
