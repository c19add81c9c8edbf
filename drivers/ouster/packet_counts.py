"""Counts of an Ouster's missing and duplicate packets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

_PATIENCE: Final = 4  # packets after which a missing packet is lost
_STEP_NS: Final = 1_000_000_000  # a gap longer than the wait for it by this: the clock was set
_HOPELESS: Final = 1000  # measurements: longer pauses are not counted
_FRAMES: Final = 4  # number of latest frames whose packets may still arrive


@dataclass(slots=True)
class _Gap:
    """Missing measurements between two stamps (exclusive)."""

    after_ns: int
    before_ns: int
    missing: int
    age: int = 0
    came: set[int] = field(default_factory=set)  # late packets, by their first stamp


class ImuGaps:
    """Counter of the IMU's missing measurements, by the device's own times.

    Ouster's IMU packets of the profile LEGACY have no counter.  Their measurements have an even
    rate, so a gap's length gives the number of missing measurements.  A packet that was overtaken
    by others fills its gap; measurements still missing after four more packets are lost.

    >>> gaps = ImuGaps(100.0)
    >>> gaps.take(1_010_000_000, 5_010_000_000, 5_010_000_000, 1)
    True
    >>> gaps.lost()
    0

    Args:
        rate_hz: nominal rate of the measurements.
    """

    def __init__(self, rate_hz: float) -> None:
        self._period_ns = 1e9 / rate_hz
        self._gaps: list[_Gap] = []
        self._last_ns: int | None = None
        self._arrival_ns = 0

    def take(self, arrival_ns: int, first_ns: int, last_ns: int, count: int) -> bool:
        """Process a packet's device times; return False for a duplicate.

        Args:
            arrival_ns: of the packet, on the host's clock.
            first_ns, last_ns: device times of its first and last measurement.
            count: number of its measurements.
        """
        last = self._last_ns
        if last is not None and last_ns <= last:
            for gap in self._gaps:
                if gap.after_ns < first_ns and last_ns < gap.before_ns and gap.missing:
                    if first_ns in gap.came:
                        return False
                    gap.came.add(first_ns)
                    gap.missing = max(0, gap.missing - count)
                    return True
            # The clock went back by more than packets can overtake each other: it was set.
            if last - last_ns <= _PATIENCE * max(count, 1) * self._period_ns:
                return False
        for gap in self._gaps:
            gap.age += 1
        if last is not None and last_ns > last:
            missing = round((first_ns - last) / self._period_ns) - 1
            stepped = first_ns - last > arrival_ns - self._arrival_ns + _STEP_NS
            if 0 < missing <= _HOPELESS and not stepped:
                self._gaps.append(_Gap(last, first_ns, missing))
        self._last_ns, self._arrival_ns = last_ns, arrival_ns
        return True

    def lost(self, at_once: bool = False) -> int:
        """Return the newly lost measurements since the last call; `at_once`: of all gaps."""
        over = [gap for gap in self._gaps if at_once or gap.age >= _PATIENCE]
        self._gaps = [gap for gap in self._gaps if not (at_once or gap.age >= _PATIENCE)]
        return sum(gap.missing for gap in over)

    def restart(self) -> None:
        """Discard the state after a restart of the sensor, whose pause cannot be counted."""
        self._last_ns = None
        self._gaps.clear()


class Repeats:
    """Detector of duplicate lidar packets.

    Args:
        core: the module ouster.sdk.core.
        layout: the PacketFormat.
    """

    def __init__(self, core: Any, layout: Any) -> None:
        self._per_packet = int(layout.columns_per_packet)
        packet = core.LidarPacket(layout)
        packet.buf[:] = 0
        layout.set_col_measurement_id(packet, 0, 0xFFFF)
        self._column_at = int(np.flatnonzero(packet.buf)[0])  # offset of the column's id, u2
        self._seen: dict[tuple[int, int], int] = {}

    def is_repeated(self, packet: Any) -> bool:
        """Return whether the packet is a duplicate; store it."""
        key = (packet.init_id(), packet.frame_id())
        at, data = self._column_at, packet.buf
        column = int(data[at]) | int(data[at + 1]) << 8
        bit = 1 << (column // self._per_packet)
        seen = self._seen.get(key, 0)
        if seen & bit:
            return True
        self._seen[key] = seen | bit
        if len(self._seen) > _FRAMES:
            del self._seen[next(iter(self._seen))]
        return False
