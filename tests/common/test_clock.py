"""The injectable clock, and the event that signals may set."""

from __future__ import annotations

import os
import resource
import signal

import pytest

from recorder.common.clock import SignalEvent, SystemClock, read_clocks
from recorder.session.events import ClockWatch
from tests.manual_clock import ManualClock


def test_a_handler_may_set_what_the_main_thread_waits_for() -> None:
    """Also at the moment at which the main thread is inside of `wait`."""
    event = SignalEvent()
    previous = signal.signal(signal.SIGALRM, lambda *_: event.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert event.wait(60)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert event.is_set() and event.wait(0) and SystemClock().wait(event, 60)


def test_a_signal_event_waits_no_longer_than_told_and_stays_set() -> None:
    event = SignalEvent()
    assert not event.wait(0.001) and not event.is_set()
    event.set()
    assert event.wait() and event.wait()
    with pytest.raises(NotImplementedError):
        event.clear()


def test_a_signal_wakes_in_a_process_of_many_descriptors() -> None:
    """select(2) takes none above 1023."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2048:
        pytest.skip(f"a process may have {limits[1]} descriptors at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2048, limits[0]), limits[1]))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        event = SignalEvent()
        assert not event.wait(0.001)
        event.set()
        assert event.wait(60.0)
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class _Interrupted(ManualClock):
    """Its reader loses the processor after reading the calendar clock, for 20 ms a time."""

    def __init__(self, times: int) -> None:
        super().__init__(1_000_000_000)
        self.times = times

    def realtime_ns(self) -> int:
        now_ns = super().realtime_ns()
        if self.times > 0:
            self.times -= 1
            self.advance(0.02)
        return now_ns


def test_both_clocks_are_read_at_one_moment() -> None:
    true_ns = ManualClock(1_000_000_000).realtime_ns() - 1_000_000_000
    reading = read_clocks(_Interrupted(3))
    assert (reading.offset_ns, reading.span_ns) == (true_ns, 0)
    assert read_clocks(_Interrupted(1000)).span_ns == 20_000_000


def test_a_reader_that_loses_the_processor_sees_no_step() -> None:
    clock = _Interrupted(0)
    watch = ClockWatch(clock)
    for times in (3, 1000):
        clock.times = times
        assert watch.step_ns() is None
    clock.times = 2
    clock.step_realtime(2.5)
    assert watch.step_ns() == 2_500_000_000
    assert watch.step_ns() is None
