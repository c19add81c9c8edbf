"""When the receiving thread may rest between two turns."""

from __future__ import annotations

from recorder.recording.writer.service import REST_S, ReceiveBatching
from tests.manual_clock import ManualClock

LITTLE_BYTES = 2_000_000


def test_a_rest_follows_a_turn_with_few_messages() -> None:
    rest = ReceiveBatching(ManualClock())
    assert [rest.should_rest(messages, 1000) for messages in (0, 1, 15, 16)] == [
        False,
        True,
        True,
        False,
    ]


def test_no_rest_while_a_driver_sends_much() -> None:
    clock = ManualClock()
    rest = ReceiveBatching(clock)
    assert rest.should_rest(1, LITTLE_BYTES - 1)
    assert not rest.should_rest(1, LITTLE_BYTES)
    for _ in range(5):
        clock.advance(REST_S)
        assert not rest.should_rest(1, LITTLE_BYTES)  # 100 MB/s
    clock.advance(REST_S)
    assert not rest.should_rest(1, LITTLE_BYTES - 1)  # less for the first time
    assert rest.should_rest(1, 1000)


def test_the_rate_counts_over_the_time_that_passed() -> None:
    clock = ManualClock()
    rest = ReceiveBatching(clock)
    rest.should_rest(1, LITTLE_BYTES)
    clock.advance(REST_S / 2)
    assert not rest.should_rest(1, 10)  # the time of a rest is not over
    clock.advance(REST_S / 2)
    assert not rest.should_rest(1, LITTLE_BYTES - 10)
    clock.advance(2 * REST_S)
    assert not rest.should_rest(1, 2 * LITTLE_BYTES - 1)
    assert rest.should_rest(1, 0)
