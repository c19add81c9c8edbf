"""A bounded queue of pictures for a decoder, which drops pictures if the decoder is too slow."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from drivers.camera.rtsp.rtp import AccessUnit

_REASONS = {
    "overrun": "came faster than they could be decoded and encoded",
    "corrupt": "cannot be decoded without earlier pictures that are damaged or missing",
    "device": "numbers of RTP packets are missing",
}


@dataclass(slots=True)
class Dropped:
    """Consecutive pictures that are not decoded.

    Attributes:
        t_ns: arrival of the last of them.
        counts: pictures by cause of loss.
        reasons: the last reason of each cause.
    """

    t_ns: int
    counts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


class Backlog:
    """A bounded queue of access units between two threads.

    A full backlog drops pictures, from the newest on, until a picture is decodable without
    the dropped ones and there is room; so do damaged and missing pictures.  Pictures before the
    first decodable one are not counted: the stream begins with it.

    >>> backlog.offer(unit)                       # the receiving thread
    >>> item = backlog.take(0.2)                  # the decoding thread
    >>> backlog.done()                            # after an AccessUnit

    Args:
        most_units, most_bytes: bounds, with the unit that is being decoded.
    """

    def __init__(self, most_units: int, most_bytes: int) -> None:
        self._most_units = most_units
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._items: deque[AccessUnit | Dropped | Exception] = deque()
        self._units = self._bytes = 0
        self._waits_for = ""  # cause of the loss up to the next decodable picture
        self._started = False

    def offer(self, unit: AccessUnit) -> None:
        """Add a picture, or count it as dropped."""
        with self._changed:
            if unit.missed:
                self._drop(unit.t_ns - 1, "device", unit.missed)
                self._waits_for = self._waits_for or "corrupt"
            full = (
                self._units >= self._most_units or self._bytes + len(unit.data) > self._most_bytes
            )
            if unit.fault:
                self._drop(unit.t_ns, "corrupt", 1, unit.fault)
                self._waits_for = self._waits_for or "corrupt"
            elif full:
                self._waits_for = "overrun"
                self._drop(unit.t_ns, "overrun", 1)
            elif not unit.key and (self._waits_for or not self._started):
                self._drop(unit.t_ns, self._waits_for, 1)
            else:
                self._waits_for, self._started = "", True
                self._units += 1
                self._bytes += len(unit.data)
                self._items.append(unit)
            self._changed.notify()

    def end(self, reason: Exception) -> None:
        """Add the end of the stream."""
        with self._changed:
            self._items.append(reason)
            self._changed.notify()

    def take(self, timeout_s: float) -> AccessUnit | Dropped | Exception | None:
        """Return the next item; None after the time limit.

        An access unit stays in the backlog until `done`.
        """
        with self._changed:
            self._changed.wait_for(lambda: bool(self._items), timeout_s)
            if not self._items:
                return None
            if isinstance(self._items[0], AccessUnit):
                return self._items[0]
            return self._items.popleft()

    def done(self) -> None:
        """Remove the access unit that `take` returned."""
        with self._changed:
            unit = self._items.popleft()
            assert isinstance(unit, AccessUnit)
            self._units -= 1
            self._bytes -= len(unit.data)

    def _drop(self, t_ns: int, cause: str, count: int, reason: str = "") -> None:
        if not self._started:
            return
        if not self._items or not isinstance(self._items[-1], Dropped):
            self._items.append(Dropped(t_ns))
        last = self._items[-1]
        assert isinstance(last, Dropped)
        last.t_ns = t_ns
        last.counts[cause] = last.counts.get(cause, 0) + count
        last.reasons[cause] = reason or _REASONS[cause]
