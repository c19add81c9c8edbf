"""Whether a driver's main thread still gets anything from its driver."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.kit.read_watchdog import HUNG_NS, STALLED_NS, ReadWatchdog

LOOK_NS = 250_000_000


def looks(
    stall: ReadWatchdog, seconds: float, start_ns: int = 0
) -> list[tuple[float, dict[str, bool | str]]]:
    """What is told while somebody looks every 250 ms, with the time of it."""
    reported = []
    for t_ns in range(start_ns, start_ns + round(seconds * 1e9) + 1, LOOK_NS):
        if news := stall.look(t_ns):
            reported.append((t_ns / 1e9, news))
    return reported


def test_a_call_that_does_not_return_is_a_stall_and_then_hangs() -> None:
    stall = ReadWatchdog(lambda: 0)
    stall.enter("read")
    reported = looks(stall, 12.0)
    assert reported == [
        (STALLED_NS / 1e9, {"stalled": True, "hung_in": ""}),
        (HUNG_NS / 1e9, {"stalled": True, "hung_in": "read"}),
    ]
    assert stall.find_cause_of_loss(late=True) == "hung" and stall.stalled_ns >= 11e9
    stall.leave()
    assert looks(stall, 1.0, 13 * 10**9)[0][1] == {"stalled": False, "hung_in": ""}


def test_a_played_source_that_gives_nothing_is_a_stall_but_does_not_hang() -> None:
    stall = ReadWatchdog(lambda: 0)
    for k in range(60):
        stall.enter("read")
        stall.leave(waiting=True)
        stall.enter("read")  # which takes a while, each time
        stall.look(k * LOOK_NS)
        stall.leave(waiting=True)
    assert (stall.stalled, stall.hung_in) == (True, "")
    assert stall.find_cause_of_loss(late=False) == "silent"
    stall.enter("read")
    stall.leave()
    stall.look(60 * LOOK_NS)
    assert not stall.stalled
    assert [stall.find_cause_of_loss(late=late) for late in (False, True)] == [None, "late"]


@pytest.mark.parametrize("state", ["sleeping", "silent device", "slow items", "not begun"])
def test_who_waits_for_a_reason_is_no_stall(state: str) -> None:
    stall = ReadWatchdog(lambda: 0)
    rng = np.random.default_rng(5)
    for k in range(400):
        if state == "silent device":  # it gives None, and a device may
            stall.enter("read")
            stall.leave()
        elif state == "slow items" and k % 8 == 0:  # each read takes just below two seconds
            stall.leave()
            stall.enter("read")
        elif state == "sleeping" and k == 3:
            stall.enter("read")
            stall.leave()
        assert stall.look(round((k + rng.uniform(0, 0.1)) * LOOK_NS)) == {}


def test_a_process_that_was_stopped_is_not_taken_for_a_driver_that_hangs() -> None:
    stall = ReadWatchdog(lambda: 0)
    stall.enter("read")
    stall.look(0)
    assert stall.look(3600 * 10**9) == {}
    assert stall.stalled_ns == 500_000_000


def test_a_driver_that_works_is_slow_and_hangs_only_after_a_minute() -> None:
    used_ns = 0

    def used() -> int:
        nonlocal used_ns
        used_ns += LOOK_NS // 10  # on a busy machine
        return used_ns

    stall = ReadWatchdog(used)
    stall.enter("read")
    stalled, hung = looks(stall, 70.0)
    assert 11.5 < stalled[0] < 13 and 59 < hung[0] < 62
