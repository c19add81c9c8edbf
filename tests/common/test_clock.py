"""The injectable clock, and the event that signals may set."""

from __future__ import annotations

import os
import resource
import signal

import pytest

from recorder.common.clock import SignalEvent, SystemClock


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
