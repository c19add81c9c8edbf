"""Clocks, injectable so that no test waits for or depends on the wall clock.

All times are int64 nanoseconds.  `Clock.monotonic_ns` is CLOCK_MONOTONIC, the time base of every
sample (`t_mono`); `Clock.realtime_ns` is CLOCK_REALTIME and is read once per session, to place
the session on the calendar.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from typing import Final, NamedTuple, Protocol

_READS: Final = 20
_SPAN_NS: Final = 100_000  # longest undisturbed reading of both clocks


class Clock(Protocol):
    """Interface of a clock."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since an arbitrary start; never steps."""
        ...

    def realtime_ns(self) -> int:
        """Return nanoseconds since 1970-01-01 UTC; may step."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; return True if it was set."""
        ...


class ClockReading(NamedTuple):
    """Both clocks at one moment, ns.

    Attributes:
        monotonic_ns, realtime_ns: the clocks.
        span_ns: length of the reading, within which the moment lies.
    """

    monotonic_ns: int
    realtime_ns: int
    span_ns: int

    @property
    def offset_ns(self) -> int:
        """The calendar clock minus the monotonic one."""
        return self.realtime_ns - self.monotonic_ns


def read_clocks(clock: Clock) -> ClockReading:
    """Read both clocks; a process that loses the processor in between repeats the reading."""
    best: ClockReading | None = None
    for _ in range(_READS):
        before_ns, realtime_ns = clock.monotonic_ns(), clock.realtime_ns()
        span_ns = clock.monotonic_ns() - before_ns
        if best is None or span_ns < best.span_ns:
            best = ClockReading(before_ns + span_ns // 2, realtime_ns, span_ns)
        if span_ns <= _SPAN_NS:
            break
    assert best is not None
    return best


class SystemClock:
    """Clocks of the machine."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def realtime_ns(self) -> int:
        return time.time_ns()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))


class SignalEvent(threading.Event):
    """Event that a signal handler may set.

    `threading.Event.set` takes a lock. A handler runs in the main thread between two of its
    bytecodes, which may be holding that lock in `wait`: the handler would deadlock.
    """

    def __init__(self) -> None:
        super().__init__()
        self._set = False
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        raise NotImplementedError("a signal is not taken back")

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            poll = select.poll()  # unlike select(2), takes descriptors of any number
            poll.register(self._fd, select.POLLIN)
            poll.poll(None if timeout is None else math.ceil(1e3 * timeout))
        return self._set

    def __del__(self) -> None:
        os.close(self._fd)
