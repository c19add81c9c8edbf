"""Pulses per second that the kernel stamps (Documentation/driver-api/pps.rst).

``/sys/class/pps/pps0/assert`` has the CLOCK_REALTIME of the latest pulse and its number:
``1700000000.000012345#42``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drivers.kit.satellite_navigation import SECOND_NS, convert_gps_to_utc

_EVERY_NS = 10 * SECOND_NS
_FRESH_NS = 2 * SECOND_NS
_NEAR_NS = SECOND_NS // 2


class PulsePerSecond:
    """The pulses of a receiver.

    Args:
        device: ``/dev/pps0``, or its folder in ``/sys/class/pps``.
        realtime_ns, monotonic_ns: injectable clocks.
        classes: where the kernel shows the devices.
    """

    def __init__(
        self,
        device: str,
        realtime_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        classes: Path = Path("/sys/class/pps"),
    ) -> None:
        self._path = classes / Path(device).name / "assert"
        self._device = device
        self._realtime_ns, self._monotonic_ns = realtime_ns, monotonic_ns
        self._told_ns: int | None = None

    def latest(self) -> tuple[int, int] | None:
        """Return the latest pulse's CLOCK_REALTIME in ns and number; None without a fresh one."""
        try:
            stamp, _, number = self._path.read_text().strip().partition("#")
            seconds, _, rest = stamp.partition(".")
            t_ns = int(seconds) * SECOND_NS + int(rest.ljust(9, "0")[:9])
            found = t_ns, int(number)
        except (OSError, ValueError):
            return None
        return found if 0 <= self._realtime_ns() - t_ns <= _FRESH_NS else None

    def host_ns(self, gps_ns: int) -> int | None:
        """Convert a GPS time to CLOCK_MONOTONIC in ns by the latest pulse; None without one.

        The pulse marks a whole second.  Which one it is follows from the host's clock, which must
        be right within half a second.
        """
        pulse = self.latest()
        if pulse is None:
            return None
        realtime_ns, monotonic_ns = self._realtime_ns(), self._monotonic_ns()
        second_ns = (pulse[0] + _NEAR_NS) // SECOND_NS * SECOND_NS
        ahead_ns = convert_gps_to_utc(gps_ns) - second_ns
        if abs(ahead_ns) > 2 * _FRESH_NS:
            return None
        return monotonic_ns - (realtime_ns - pulse[0]) + ahead_ns

    def report(self) -> dict[str, Any] | None:
        """Return the host's clock against the pulse, every ten seconds; None in between.

        ``offset_ns`` is the host's clock at the pulse minus the whole second that it marks;
        ``pulse`` is its number, None without a fresh one.
        """
        now_ns = self._monotonic_ns()
        if self._told_ns is not None and now_ns - self._told_ns < _EVERY_NS:
            return None
        self._told_ns = now_ns
        pulse = self.latest()
        if pulse is None:
            return {"device": self._device, "pulse": None}
        t_ns, number = pulse
        offset_ns = (t_ns + _NEAR_NS) % SECOND_NS - _NEAR_NS
        found = {"device": self._device, "pulse": number, "realtime_ns": t_ns}
        return {**found, "offset_ns": offset_ns}
