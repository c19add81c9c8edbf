"""Order of packets by their numbers or times: late ones are put in place or counted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

WINDOW: Final = 64
"""Packets behind a gap that wait for the packets in it."""
_RESTART: Final = 100_000
"""A number so far from the one before is of a device that counts from another number."""
_REMEMBERED: Final = 4096
_WAITING: Final = 8
"""Packets without numbers that wait for earlier ones."""

Packets = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ordered:
    """Packets in the order of their numbers.

    Attributes:
        packets: u1 [packets, size].
        t_ns: i8 [packets], arrival.
        missing: i8 [packets], packets that are missing before each one.
    """

    packets: Packets
    t_ns: Numbers
    missing: Numbers

    def __len__(self) -> int:
        return len(self.t_ns)


class PacketOrder:
    """Sorter of packets by number.

    Args:
        bits: width of the number in a packet, after which it begins again at 0.

    Attributes:
        repeated: packets that came twice; the caller resets it.
        late: packets that came after they had been counted as missing; the caller resets it.
        restarts: how often the device began to count from another number; the caller resets it.
    """

    def __init__(self, bits: int = 32) -> None:
        self._span = 1 << bits
        self._next: int | None = None  # number of the next packet, counted on beyond `bits`
        self._held: dict[int, tuple[Packets, int]] = {}
        self._given: deque[int] = deque(maxlen=_REMEMBERED)
        self._behind: list[tuple[Packets, int, int]] = []
        self.repeated = self.late = self.restarts = 0

    def take(self, packets: Packets, t_ns: Numbers, numbers: npt.NDArray[np.uint32]) -> Ordered:
        """Add packets; return those whose place is known."""
        unwrapped = self._unwrap(numbers)
        in_order = (np.diff(unwrapped, prepend=self._next_or(unwrapped) - 1) == 1).all()
        if in_order and not self._held and not self._behind:  # nearly always
            self._next = int(unwrapped[-1]) + 1
            self._given.extend(unwrapped[-_REMEMBERED:].tolist())
            return Ordered(packets, t_ns, np.zeros(len(packets), np.int64))
        out: list[tuple[Packets, int, int]] = []
        for packet, at_ns, number in zip(packets, t_ns.tolist(), unwrapped.tolist(), strict=True):
            self._add(packet.copy(), at_ns, number, out)
        return _join(out, packets.shape[1])

    def finish(self, size: int) -> Ordered:
        """Return the packets that wait, of `size` bytes."""
        out: list[tuple[Packets, int, int]] = []
        self._settle_behind()
        while self._held:
            self._release(out)
        return _join(out, size)

    def _next_or(self, numbers: Numbers) -> int:
        return int(numbers[0]) if self._next is None else self._next

    def _unwrap(self, numbers: npt.NDArray[np.uint32]) -> Numbers:
        """Return the numbers counted on where they begin again at 0."""
        own = numbers.astype(np.int64)
        before = own[0] if self._next is None else self._next - 1
        half = self._span // 2
        steps = (np.diff(own, prepend=before % self._span) + half) % self._span - half
        return np.asarray(before + np.cumsum(steps), np.int64)

    def _add(
        self, packet: Packets, t_ns: int, number: int, out: list[tuple[Packets, int, int]]
    ) -> None:
        if self._next is None:
            self._next = number
        if abs(number - self._next) > _RESTART:
            self._behind.append((packet, t_ns, number))
            self._restart(out)
            return
        if number < self._next:
            self._behind.append((packet, t_ns, number))
            if len(self._behind) >= WINDOW:  # so many in a row: the device counts anew
                self._restart(out)
            return
        self._settle_behind()
        if number in self._held:
            self.repeated += 1
            return
        self._held[number] = packet, t_ns
        while self._next in self._held or len(self._held) > WINDOW:
            self._release(out)

    def _restart(self, out: list[tuple[Packets, int, int]]) -> None:
        """Begin to count with the packets that lie behind, or far from the others."""
        while self._held:
            self._release(out)
        behind, self._behind = self._behind, []
        self.restarts += 1
        self._next = behind[0][2]
        self._given.clear()
        for packet, t_ns, number in behind:
            self._add(packet, t_ns, number, out)

    def _settle_behind(self) -> None:
        """Count the packets that lie behind: they came twice, or too late."""
        for _, _, number in self._behind:
            known = number in self._given
            self.repeated += known
            self.late += not known
        self._behind.clear()

    def _release(self, out: list[tuple[Packets, int, int]]) -> None:
        assert self._next is not None
        number = self._next if self._next in self._held else min(self._held)
        packet, t_ns = self._held.pop(number)
        out.append((packet, t_ns, number - self._next))
        self._given.append(number)
        self._next = number + 1


class TimeOrder:
    """Sorter of packets without numbers by the device's time.

    The last packets wait for earlier ones.  A step of the device's clock is not an order: the
    packets behind it keep the order of their arrival.

    Args:
        interval_ns: of packets.
        span_ns: time after which the device's time begins again at 0; 0: never.

    Attributes:
        repeated: packets that came twice; the caller resets it.
        late: packets that came too late to be put in place; the caller resets it.
        restarts: always 0.
    """

    def __init__(self, interval_ns: float, span_ns: int = 0) -> None:
        self._window_ns, self._span_ns = round(interval_ns * WINDOW), span_ns
        self._held: list[tuple[int, Packets, int]] = []  # in the order of the device's time
        self._behind: list[tuple[int, Packets, int]] = []
        self._newest: int | None = None  # the device's time of the packet that came last
        self._given: deque[int] = deque(maxlen=_REMEMBERED)
        self.repeated = self.late = self.restarts = 0

    def take(self, packets: Packets, t_ns: Numbers, times_ns: Numbers) -> Ordered:
        """Add packets; return those whose place is known."""
        times = self._unwrap(times_ns)
        steps = np.diff(times, prepend=self._held[-1][0] if self._held else times[0] - 1)
        out: list[tuple[int, Packets, int]] = []
        if not self._behind and ((steps > 0) & (steps < self._window_ns)).all():  # nearly always
            kept = max(0, len(packets) - _WAITING)
            if kept:
                held, self._held = self._held, []
                front = self._join(held, packets.shape[1])
                self._given.extend(time_ns for time_ns, _, _ in held)
                self._given.extend(times[:kept].tolist())
                self._hold(packets, t_ns, times, kept)
                return _merge(front, packets[:kept], t_ns[:kept])
        for packet, at_ns, time_ns in zip(packets, t_ns.tolist(), times.tolist(), strict=True):
            self._add((time_ns, packet.copy(), at_ns), out)
        return self._join(out, packets.shape[1])

    def finish(self, size: int) -> Ordered:
        """Return the packets that wait, of `size` bytes."""
        self._settle_behind()
        held, self._held = self._held, []
        return self._join(held, size)

    def _unwrap(self, times_ns: Numbers) -> Numbers:
        if not self._span_ns:
            return times_ns
        before = int(times_ns[0]) if self._newest is None else self._newest
        half = self._span_ns // 2
        steps = np.diff(times_ns, prepend=before % self._span_ns)
        times = before + np.cumsum((steps + half) % self._span_ns - half)
        self._newest = int(times[-1])
        return np.asarray(times, np.int64)

    def _hold(self, packets: Packets, t_ns: Numbers, times: Numbers, begin: int) -> None:
        for at in range(begin, len(packets)):
            self._held.append((int(times[at]), packets[at].copy(), int(t_ns[at])))

    def _add(self, item: tuple[int, Packets, int], out: list[tuple[int, Packets, int]]) -> None:
        time_ns, packet, _ = item
        last_ns = self._given[-1] if self._given else None
        newest_ns = self._held[-1][0] if self._held else last_ns
        if newest_ns is not None and abs(time_ns - newest_ns) >= self._window_ns:
            self._settle_behind()
            self._step(out)
        elif last_ns is not None and time_ns <= last_ns:
            self._behind.append(item)
            if len(self._behind) >= _WAITING:  # so many in a row: the clock has stepped
                behind, self._behind = self._behind, []
                self._step(out)
                for each in behind:
                    self._add(each, out)
            return
        self._settle_behind()
        at = len(self._held)
        while at and self._held[at - 1][0] >= time_ns:
            at -= 1
            if self._held[at][0] == time_ns and (self._held[at][1] == packet).all():
                self.repeated += 1
                return
        self._held.insert(at, item)
        if len(self._held) > _WAITING:
            self._release(out)

    def _step(self, out: list[tuple[int, Packets, int]]) -> None:
        while self._held:
            self._release(out)
        self._given.clear()

    def _release(self, out: list[tuple[int, Packets, int]]) -> None:
        out.append(self._held.pop(0))
        self._given.append(out[-1][0])

    def _settle_behind(self) -> None:
        """Count the packets that lie behind: they came twice, or too late."""
        for time_ns, _, _ in self._behind:
            known = time_ns in self._given
            self.repeated += known
            self.late += not known
        self._behind.clear()

    @staticmethod
    def _join(items: list[tuple[int, Packets, int]], size: int) -> Ordered:
        return _join([(packet, t_ns, 0) for _, packet, t_ns in items], size)


def _join(out: list[tuple[Packets, int, int]], size: int) -> Ordered:
    if not out:
        return Ordered(np.empty((0, size), np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    packets, times, missing = zip(*out, strict=True)
    return Ordered(np.stack(packets), np.array(times, np.int64), np.array(missing, np.int64))


def _merge(front: Ordered, packets: Packets, t_ns: Numbers) -> Ordered:
    """Return ordered packets and further ones behind them."""
    if len(front):
        packets = np.concatenate([front.packets, packets])
        t_ns = np.concatenate([front.t_ns, t_ns])
    return Ordered(packets, t_ns, np.zeros(len(packets), np.int64))
