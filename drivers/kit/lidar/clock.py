"""Check of a lidar's clock against the host's: its offset is reported once, its steps as they come.

::

    watch = ClockWatch()
    state = watch.take(host_ns, device_ns)   # {} while there is nothing new
"""

from __future__ import annotations

from typing import Any, Final

_SECOND_NS: Final = 1_000_000_000
_NEAR_S: Final = 1.0
"""Offsets within it are those of a network's clocks and of the time on the wire."""
_DAY_S: Final = 86_400
_STEP_S: Final = 0.2
_LASTING_S: Final = 3.0
"""Time for which packets are later than before: the device's clock was set back."""
DRIFT: Final = 500e-6
"""Most by which a device's clock drifts against the host's."""

_KNOWN: Final = (
    (37.0, _NEAR_S, "it is ahead by the leap seconds: PTP's time scale (TAI), not UTC"),
    (18.0, _NEAR_S, "it is ahead by GPS's leap seconds: GPS time, not UTC"),
    (-37.0, _NEAR_S, "it is behind by the leap seconds"),
    (-18.0, _NEAR_S, "it is behind by GPS's leap seconds"),
    (7.0 * _DAY_S, 60.0, "it is ahead by a week"),
    (-7.0 * _DAY_S, 60.0, "it is behind by a week"),
    (-1024 * 7.0 * _DAY_S, _DAY_S, "it is behind by 1024 weeks: GPS's week number began again"),
    (36525.0 * _DAY_S, 2.0 * _DAY_S, "it is ahead by a century: the year is of the wrong one"),
    (-36525.0 * _DAY_S, 2.0 * _DAY_S, "it is behind by a century: the year is of the wrong one"),
)
"""Offsets, how near, and their cause, as seen from the device."""


class ClockWatch:
    """Watch of a device's clock.

    A network may hold packets up, but none comes before it was sent: one that was under way for
    less than the least so far shows that the clock was set ahead.  That it was set back shows in
    times that decrease, or in a delay that lasts.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None  # the host's and the device's time
        self._least_ns = 0.0  # from a packet's time to its arrival, two clocks
        self._since_ns: int | None = None  # the host's time since which packets are late
        self._late_ns = 0  # the least delay since then

    def take(self, host_ns: int, device_ns: int) -> dict[str, Any]:
        """Return what is new about the clock, in the values of a `State`.

        ``device_clock_offset_s`` is what the device's clock is ahead of the host's, with
        ``device_clock`` in words; ``device_clock_step_ns`` is a step of the clock.  A slow drift is
        neither.

        Args:
            host_ns: arrival of a packet, epoch ns.
            device_ns: its time by the device, epoch ns.
        """
        before, self._last, delay_ns = self._last, (host_ns, device_ns), host_ns - device_ns
        if before is None:
            self._least_ns = delay_ns
            return describe_offset(-delay_ns / _SECOND_NS)
        waited_ns, limit_ns = max(0, host_ns - before[0]), _STEP_S * _SECOND_NS
        later_ns = delay_ns - self._least_ns
        if later_ns <= limit_ns:
            self._since_ns = None
            if later_ns >= -limit_ns - DRIFT * waited_ns:
                self._least_ns = min(delay_ns, self._least_ns + DRIFT * waited_ns)
                return {}
        elif device_ns > before[1] - limit_ns:
            if self._since_ns is None:
                self._since_ns, self._late_ns = host_ns, delay_ns
            self._late_ns = min(self._late_ns, delay_ns)
            if host_ns - self._since_ns < _LASTING_S * _SECOND_NS:
                return {}
            delay_ns = self._late_ns
        step_ns = round(self._least_ns - delay_ns)
        self._least_ns, self._since_ns = delay_ns, None
        offset = describe_offset(-delay_ns / _SECOND_NS)
        return {"device_clock_step_ns": step_ns, **offset}


def describe_offset(offset_s: float) -> dict[str, Any]:
    """Return what a clock's offset means, in the values of a `State`."""
    if abs(offset_s) <= _NEAR_S:
        cause = "it agrees with the host's"
    else:
        cause = "it is ahead" if offset_s > 0 else "it is behind"
        cause += ": not set" if abs(offset_s) > _DAY_S else ""
        known = (text for size_s, near_s, text in _KNOWN if abs(offset_s - size_s) <= near_s)
        cause = next(known, cause)
    return {"device_clock_offset_s": round(offset_s, 3), "device_clock": cause}
