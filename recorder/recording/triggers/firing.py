"""State machine of a trigger: duration, release and cooldown; without a clock."""

from __future__ import annotations

from recorder.config.settings import TriggerSettings


class Firing:
    """Firing state of one trigger.

    A trigger fires once when its condition has held for its duration.  It can fire again after its
    release: by `until`, or without `until` by the end of the condition.  Within the cooldown after
    a firing it does not fire; these suppressed firings are counted.

    Attributes:
        settings: the trigger's settings.
        suppressed: number of firings that the cooldown prevented.
    """

    def __init__(self, settings: TriggerSettings) -> None:
        self.settings = settings
        self.suppressed = 0
        self._since_ns: int | None = None
        self._released = True
        self._fired_ns: int | None = None

    def update(self, t_ns: int, holds: bool, releases: bool) -> bool:
        """Update the state at a time, and return whether the trigger fires.

        Args:
            t_ns: epoch ns; may step back by as much as the stamps of streams differ.
            holds: whether the condition is true.
            releases: whether the release condition is true.
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
