"""Times of an MTi's samples, and gaps between them, from the device's counter and clock.

PacketCounter (u2) counts all messages that the device sends.  SampleTimeFine (u4) counts at 10 kHz;
it is regular for samples, but for GNSS messages it has another time base and jumps.  Both wrap,
both restart with the device, and either may be absent.  No I/O and no own clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TICK_NS: Final = 100_000
"""Tick of SampleTimeFine, which counts at 10 kHz."""

_U16, _U32 = 1 << 16, 1 << 32
_TRUSTED_LEAP_NS = 10_000_000_000
_LATE = 8  # messages; a line does not reorder, but a repetition is not a gap of 65535 messages


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing samples before a sample.

    Attributes:
        count: number of samples; None where it is unknown; `estimate` may then be set.
        estimate: see `count`.
        corrupt: the gap contains bytes of no good message.
        duration_ns: from the sample before the gap to the sample after it.
        messages: number of missing messages of all kinds; None without a packet counter.
        skipped_bytes: bytes of no good message.
        incomplete: number of messages with measurements that are not complete samples.
    """

    count: int | None
    estimate: int | None
    corrupt: bool
    duration_ns: int
    messages: int | None
    skipped_bytes: int
    incomplete: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A sample's place in time.

    Attributes:
        t_ns: strictly increasing; continues evenly where the device's clock is set or restarts.
        t_dev_ns: the device's own time, unwrapped.
        gap: missing samples before this sample, if any.
        clock_step_ns: size of a step of the device's clock, if any.
    """

    t_ns: int
    t_dev_ns: int
    gap: Gap | None = None
    clock_step_ns: int | None = None


class SampleClock:
    """Clock that places samples in time and finds the gaps between them.

    Usage::

        clock = SampleClock(period_ns=1e7)
        for message in messages:
            clock.record_skipped(message.skipped)
            clock.record_message(values.packet_counter)
            if is_sample:
                placed = clock.place_sample(values.sample_time_fine, message.size)
            else:
                clock.record_other(incomplete=False)

    Args:
        period_ns: mean interval of samples on the device's clock.
        strict: any leap of the device's clock that the packet counter does not explain is a step.
            False for a log, whose period is uncertain: only a leap beyond 10 s is a step.
    """

    def __init__(self, period_ns: float, strict: bool = False) -> None:
        self._period_ns = period_ns
        self._strict = strict
        self._placed: Placed | None = None
        self._ticks: int | None = None
        self._counter: int | None = None
        self._counted = False
        self._interleaved = False
        self._missing = 0
        self._skipped = 0
        self._incomplete = 0
        self._size = 0

    @property
    def incomplete(self) -> int:
        """Number of incomplete messages since the last sample."""
        return self._incomplete

    def is_stale(self, counter: int | None, ticks: int | None) -> bool:
        """Return whether a sample repeats, or precedes, one of the latest samples.

        Both counter and clock must show it: the sample of a restarted device is not stale.
        """
        if None in (counter, ticks, self._counter, self._ticks):
            return False
        back = ((self._counter or 0) - (counter or 0)) % _U16
        late_ns = ((self._ticks or 0) - (ticks or 0)) % _U32 * TICK_NS
        return back <= _LATE and abs(late_ns - back * self._period_ns) < self._period_ns / 2

    def record_skipped(self, count: int) -> None:
        """Record that `count` bytes of no good message precede the next message."""
        self._skipped += count

    def record_message(self, counter: int | None) -> None:
        """Record an MTData2 message, sample or not, with its packet counter."""
        self._counted = counter is not None and self._counter is not None
        if counter is None:
            return
        if self._counter is not None:
            self._missing += (counter - self._counter - 1) % _U16
        self._counter = counter

    def record_other(self, *, incomplete: bool) -> None:
        """Record a message that is not a sample; `incomplete`: it is an incomplete sample."""
        if incomplete:
            self._incomplete += 1
            self._missing += 1
        else:
            self._interleaved = True

    def place_sample(self, ticks: int | None, size: int) -> Placed:
        """Place a sample with this SampleTimeFine, of `size` bytes in all."""
        if self._placed is None:
            # Messages before the first sample were never part of the log.
            self._ticks = ticks
            placed = Placed((ticks or 0) * TICK_NS, (ticks or 0) * TICK_NS)
        else:
            placed = self._follow(self._placed, ticks)
        self._placed, self._size = placed, size
        self._missing = self._skipped = self._incomplete = 0
        return placed

    def end(self, skipped: int) -> Gap | None:
        """Return the gap at the end, where `skipped` bytes follow the last good message.

        Fewer bytes than a sample's are the truncated end of a recording; more bytes are damage.
        """
        estimate = skipped // self._size if self._size else 0
        return Gap(None, estimate, True, 0, None, skipped, 0) if estimate else None

    def _follow(self, last: Placed, ticks: int | None) -> Placed:
        leap_ns: int | None = None
        if ticks is not None and self._ticks is not None:
            leap = (ticks - self._ticks) % _U32
            leap_ns = (leap - _U32 if leap >= _U32 // 2 else leap) * TICK_NS
        fit = None if leap_ns is None else round(leap_ns / self._period_ns) - 1
        count, estimate = self._count(fit)
        missed = bool(count or estimate)
        stepped = False
        if leap_ns is None:
            step_ns = round((1 + (count or estimate or 0)) * self._period_ns)
        elif self._is_plausible(leap_ns, fit or 0):
            step_ns = leap_ns
        else:
            # The device restarted or its clock was set: neither time nor counter are comparable.
            stepped, step_ns = True, round(self._period_ns)
            count = estimate = None
            missed = bool(self._missing or self._skipped)
        t_dev_ns = last.t_dev_ns + (step_ns if leap_ns is None else leap_ns)
        if t_dev_ns < 0:
            t_dev_ns += _U32 * TICK_NS
        if ticks is None and self._ticks is not None:
            ticks = (self._ticks + step_ns // TICK_NS) % _U32
        self._ticks = ticks
        gap = None
        if missed:
            gap = Gap(
                count=count,
                estimate=estimate,
                corrupt=self._skipped > 0,
                duration_ns=step_ns,
                messages=self._missing if self._counted else None,
                skipped_bytes=self._skipped,
                incomplete=self._incomplete,
            )
        return Placed(last.t_ns + step_ns, t_dev_ns, gap, leap_ns if stepped else None)

    def _count(self, fit: int | None) -> tuple[int | None, int | None]:
        """Return (samples lost, estimate where their number is unknown).

        Where messages of other kinds are interleaved, the device's clock determines how many of
        the missing messages were samples: `fit` is the number that its time has room for.
        """
        if self._counted:
            if fit is None:
                return self._missing, None
            missing = self._unwrap(fit)
            return (min(missing, max(0, fit)) if self._interleaved else missing), None
        if fit is not None:
            return (None, fit) if fit > 0 else (0, None)
        if self._skipped:
            return None, max(1, round(self._skipped / self._size))
        return self._incomplete, None

    def _unwrap(self, fit: int) -> int:
        """Return the missing messages; the device's clock determines the counter's full turns."""
        turns = round((fit - self._missing) / _U16)
        return self._missing + max(0, turns) * _U16 if self._missing else 0

    def _is_plausible(self, leap_ns: int, fit: int) -> bool:
        """Return whether the device's clock continued, rather than being set or restarted."""
        if leap_ns <= 0:
            return False
        if not self._counted:
            return True
        apart = abs(self._unwrap(fit) - fit)
        if self._strict and not self._interleaved:
            step_ns = (self._unwrap(fit) + 1) * self._period_ns
            return abs(leap_ns - step_ns) < self._period_ns / 2 + fit * self._period_ns / 100
        return leap_ns <= (0 if self._strict else _TRUSTED_LEAP_NS) or apart <= 2 + fit // 8
