"""Times and gaps from packet counter and SampleTimeFine."""

from __future__ import annotations

import pytest

from drivers.xsens.sample_clock import TICK_NS, Placed, SampleClock

PERIOD = 100  # ticks, 100 Hz


def place(clock: SampleClock, counter: int | None, ticks: int | None, skipped: int = 0) -> Placed:
    clock.record_skipped(skipped)
    clock.record_message(None if counter is None else counter % 2**16)
    return clock.place_sample(None if ticks is None else ticks % 2**32, 50)


def other(clock: SampleClock, counter: int | None, skipped: int = 0) -> None:
    clock.record_skipped(skipped)
    clock.record_message(None if counter is None else counter % 2**16)
    clock.record_other(incomplete=False)


def make() -> SampleClock:
    return SampleClock(PERIOD * TICK_NS)


def test_both_wrap() -> None:
    clock = make()
    first = 2**32 - 250
    placed = [place(clock, 65530 + k, first + PERIOD * k) for k in range(20)]
    assert [p.t_ns for p in placed] == [(first + PERIOD * k) * TICK_NS for k in range(20)]
    assert all(p.t_dev_ns == p.t_ns and (p.gap, p.clock_step_ns) == (None, None) for p in placed)


def test_broken_bytes_before_the_first_sample_are_no_loss() -> None:
    assert place(make(), 7, 500, skipped=90).gap is None


def test_other_messages_count_but_are_no_gap() -> None:
    clock = make()
    place(clock, 10, 1000)
    other(clock, 11)
    assert place(clock, 12, 1100) == Placed(1100 * TICK_NS, 1100 * TICK_NS)


def test_gap_is_counted() -> None:
    clock = make()
    place(clock, 65534, 1000)
    gap = place(clock, 65534 + 4, 1400).gap
    assert gap is not None
    assert (gap.count, gap.estimate, gap.corrupt, gap.messages) == (3, None, False, 3)
    assert gap.duration_ns == 400 * TICK_NS
    assert place(clock, 65534 + 5, 1500).gap is None


def test_lost_messages_of_other_kinds_are_no_lost_samples() -> None:
    clock = make()
    other(clock, 9)
    place(clock, 10, 1000)
    assert place(clock, 12, 1100, skipped=104).gap is None  # a GNSS message broke
    gap = place(clock, 16, 1300, skipped=200).gap  # one sample and two others
    assert gap is not None
    assert (gap.count, gap.corrupt, gap.messages, gap.skipped_bytes) == (1, True, 3, 200)


def test_a_gap_across_other_messages_adds_up() -> None:
    clock = make()
    place(clock, 10, 1000)
    other(clock, 12)
    gap = place(clock, 14, 1300).gap
    assert gap is not None and gap.count == 2


def test_long_gap_takes_whole_turns_from_the_clock() -> None:
    clock = make()
    place(clock, 0, 0)
    lost = 2 * 65536 + 5
    placed = place(clock, lost + 1, PERIOD * (lost + 1))
    assert placed.gap is not None and placed.gap.count == lost
    assert placed.t_ns == PERIOD * (lost + 1) * TICK_NS
    assert placed.clock_step_ns is None


def test_restarted_device() -> None:
    clock = make()
    place(clock, 43_000, 50_000_000)
    placed = place(clock, 0, 300)
    assert placed.t_ns == (50_000_000 + PERIOD) * TICK_NS
    assert placed.t_dev_ns == 300 * TICK_NS
    assert placed.clock_step_ns == (300 - 50_000_000) * TICK_NS
    assert placed.gap is not None and placed.gap.count is placed.gap.estimate is None
    after = place(clock, 1, 400)
    assert after == Placed(placed.t_ns + PERIOD * TICK_NS, 400 * TICK_NS)


def test_clock_that_is_set_while_nothing_is_missing() -> None:
    clock = make()
    place(clock, 5, 9000)
    back = place(clock, 6, 100)
    assert back.gap is None and back.clock_step_ns == -8900 * TICK_NS
    assert back.t_ns == 9100 * TICK_NS
    ahead = place(clock, 7, 100 + 3_600 * 10_000)  # an hour, and no message missing
    assert ahead.gap is None and ahead.clock_step_ns == 36_000_000 * TICK_NS
    assert ahead.t_ns == 9200 * TICK_NS


def test_device_time_never_falls_below_zero() -> None:
    clock = make()
    place(clock, 1, 5)
    assert place(clock, 2, -10).t_dev_ns == (2**32 - 10) * TICK_NS


def test_without_counter_the_clock_estimates() -> None:
    clock = make()
    place(clock, None, 1000)
    assert place(clock, None, 1101).gap is None
    gap = place(clock, None, 1600).gap
    assert gap is not None
    assert (gap.count, gap.estimate, gap.corrupt, gap.messages) == (None, 4, False, None)
    assert place(clock, None, 1700, skipped=9).gap is None  # stray bytes, but no time is missing
    gap = place(clock, None, 1900, skipped=55).gap
    assert gap is not None and (gap.count, gap.estimate, gap.corrupt) == (None, 1, True)


def test_without_clock_the_counter_makes_the_time() -> None:
    clock = make()
    step = PERIOD * TICK_NS
    assert place(clock, 65535, None).t_ns == 0
    other(clock, 65536)
    assert place(clock, 65537, None).t_ns == step
    placed = place(clock, 65540, None)
    assert placed.t_ns == placed.t_dev_ns == 4 * step
    assert placed.gap is not None and placed.gap.count == 2


def test_with_neither_the_samples_make_the_time() -> None:
    clock = make()
    step = PERIOD * TICK_NS
    assert [place(clock, None, None).t_ns for _ in range(3)] == [0, step, 2 * step]
    placed = place(clock, None, None, skipped=160)
    assert placed.gap is not None
    assert (placed.gap.count, placed.gap.estimate, placed.gap.corrupt) == (None, 3, True)
    assert placed.t_ns == 6 * step


def test_incomplete_measurements_are_a_gap() -> None:
    clock = make()
    place(clock, 1, 100)
    clock.record_message(2)
    clock.record_other(incomplete=True)
    gap = place(clock, 3, 300).gap
    assert gap is not None and (gap.count, gap.incomplete) == (1, 1)
    clock.record_message(4)
    clock.record_other(incomplete=True)
    assert clock.incomplete == 1


def test_time_that_is_missing_now_and_then() -> None:
    clock = make()
    place(clock, 1, 1000)
    place(clock, 2, None)
    assert place(clock, 3, 1200) == Placed(1200 * TICK_NS, 1200 * TICK_NS)


def test_tail() -> None:
    clock = make()
    assert clock.end(1000) is None  # no sample, no size to go by
    place(clock, 1, 100)
    assert clock.end(49) is None
    gap = clock.end(120)
    assert gap is not None and (gap.count, gap.estimate, gap.corrupt) == (None, 2, True)


# --- of a device: strict ----------------------------------------------------------------------


def strict() -> SampleClock:
    return SampleClock(PERIOD * TICK_NS, strict=True)


def test_what_repeats_or_is_late_is_stale() -> None:
    clock = strict()
    assert not clock.is_stale(5, 100)  # nothing is known yet
    for k in range(65_530, 65_540):
        assert not clock.is_stale(k % 2**16, PERIOD * k)
        place(clock, k, PERIOD * k)
    assert all(clock.is_stale(k % 2**16, PERIOD * k) for k in range(65_532, 65_540))
    assert not clock.is_stale(3, PERIOD * 65_000)  # its clock has been set
    assert not clock.is_stale(0, 0) and not clock.is_stale(None, 5) and not clock.is_stale(3, None)
    assert place(clock, 65_540, PERIOD * 65_540).gap is None


@pytest.mark.parametrize("jump", [-60, 60, 250, 25_000, 2_000_000])
def test_every_leap_that_the_counter_does_not_explain_is_a_step(jump: int) -> None:
    clock = strict()
    place(clock, 1, 50_000)
    placed = place(clock, 2, 50_000 + PERIOD + jump)
    assert placed.clock_step_ns == (PERIOD + jump) * TICK_NS
    assert placed.gap is None
    assert place(clock, 3, 50_000 + 2 * PERIOD + jump).clock_step_ns is None


def test_small_jitter_and_counted_gaps_are_no_steps() -> None:
    clock = strict()
    place(clock, 1, 50_000)
    assert place(clock, 2, 50_000 + PERIOD + 3).clock_step_ns is None
    placed = place(clock, 12, 50_000 + 11 * PERIOD)
    assert placed.clock_step_ns is None and placed.gap is not None and placed.gap.count == 9
    placed = place(clock, 14 + 65_536, 50_000 + (13 + 65_536) * PERIOD)
    assert placed.gap is not None and placed.gap.count == 65_537


def test_steps_between_other_messages() -> None:
    """Where others are counted, too, the counter tells the time less well."""
    clock = strict()
    other(clock, 0)
    place(clock, 1, 50_000)
    other(clock, 2)
    assert place(clock, 3, 50_000 + PERIOD).clock_step_ns is None
    assert place(clock, 4, 50_000 + 9 * PERIOD).clock_step_ns is not None
