"""Detection, from another thread, of a driver's `read()` that hangs or gives no items.

The main thread marks the start and end of each call of its driver; the link's thread checks::

    stall.enter("read")                     # the main thread
    item = driver.read()
    stall.leave(waiting=item is None and driver.played)

    if news := stall.look(clock.monotonic_ns()):        # the link's thread, a few times a second
        report("stall", **news)

Only time between checks counts, at most half a second per check: a process that was stopped as a
whole does not count as hanging.  Time in which the process uses the processor counts a sixth: a
driver on a busy machine is slow, and only a driver whose call never ends hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STALLED_NS = 2_000_000_000
"""After this time without an item, a session that ends records an interval of loss."""
HUNG_NS = 10_000_000_000
"""A call of this duration hangs: the supervisor ends the process and starts another."""
_LOOK_NS = 500_000_000
_BUSY = 0.02  # of the time
_BUSY_SHARE = 6
_WAITING = "waiting"

HUNG, SILENT, LATE = "hung", "silent", "late"
"""Causes of losses: a call that does not return; calls that return without an item; a source that
plays too slowly and has not reached the session's end."""


class ReadWatchdog:
    """Watchdog of a driver's calls; see the module.

    Each method belongs to one thread; shared values are set in one step.

    Args:
        used_ns: processor time that this process has used.

    Attributes:
        stalled: the driver has given no item for `STALLED_NS`, although `read` was called.
        stalled_ns: how long the driver has given no item.
        hung_in: the call that has not returned for `HUNG_NS`; empty if no call hangs.
    """

    def __init__(self, used_ns: Callable[[], int] = time.process_time_ns) -> None:
        self._used_ns = used_ns
        self._used_before_ns = used_ns()
        self.stalled = False
        self.hung_in = ""
        self._call = ""
        self._calls = 0
        self._items = 0
        self._seen = (0, 0)
        self._looked_ns: int | None = None
        self.stalled_ns = 0
        self._hung_ns = 0

    def enter(self, call: str) -> None:
        """Record that the main thread calls its driver."""
        self._call = call

    def leave(self, *, waiting: bool = False) -> None:
        """Record that the call returned; `waiting`: a played source returned no item."""
        self._calls += 1
        if not waiting:
            self._items += 1
        self._call = _WAITING if waiting else ""

    def find_cause_of_loss(self, *, late: bool) -> str | None:
        """Return the cause of the loss of the rest of a session that ends now; None without loss.

        Args:
            late: the session's duration is over.
        """
        if self.stalled:
            return HUNG if self._hung_ns >= STALLED_NS else SILENT
        return LATE if late else None

    def look(self, now_ns: int) -> dict[str, bool | str]:
        """Check the main thread's calls; return the changes since the last check, for a report.

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        before = self.stalled, self.hung_in
        passed_ns = 0 if self._looked_ns is None else min(now_ns - self._looked_ns, _LOOK_NS)
        self._looked_ns = now_ns
        used_ns = self._used_ns()
        busy = used_ns - self._used_before_ns > _BUSY * passed_ns
        self._used_before_ns = used_ns
        if busy:
            passed_ns //= _BUSY_SHARE
        call, seen = self._call, (self._calls, self._items)
        same_call, same_item = (a == b for a, b in zip(seen, self._seen, strict=True))
        self._seen = seen
        self.stalled_ns = self.stalled_ns + passed_ns if call and same_item else 0
        in_call = call not in ("", _WAITING)
        self._hung_ns = self._hung_ns + passed_ns if in_call and same_call else 0
        self.stalled = self.stalled_ns >= STALLED_NS
        self.hung_in = call if self._hung_ns >= HUNG_NS else ""
        if (self.stalled, self.hung_in) == before:
            return {}
        return {"stalled": self.stalled, "hung_in": self.hung_in}
