"""When viewers are shown samples: at their rate on average, and as fresh as they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.viewers.live.browser import RateLimit


def test_the_first_sample_and_one_after_its_turn_are_shown_at_once() -> None:
    rate_limit = RateLimit(0.2, 10.0)
    assert rate_limit.compute_wait(100.0) == (0.0, 0.0)
    rate_limit.record_shown(100.0)
    assert rate_limit.compute_wait(100.2) == (0.0, 0.0)
    assert rate_limit.compute_wait(100.5) == (0.0, 0.0)


def test_a_sample_before_its_turn_gives_way_to_the_next_one() -> None:
    rate_limit = RateLimit(0.25, 10.0)
    rate_limit.record_shown(100.0)
    pause_s, patience_s = rate_limit.compute_wait(100.1)
    assert pause_s == pytest.approx(0.12)  # 0.15 s remain, less 0.3 of the interval
    assert patience_s == pytest.approx(0.13)  # to the turn, and one interval


def test_without_a_known_rate_the_newest_is_shown_at_its_turn() -> None:
    rate_limit = RateLimit(0.25, None)
    rate_limit.record_shown(100.0)
    pause_s, patience_s = rate_limit.compute_wait(100.05)
    assert pause_s == pytest.approx(0.2) and patience_s == 0.0


def test_a_slow_stream_waits_no_longer_than_the_viewers_period() -> None:
    rate_limit = RateLimit(0.1, 0.5)
    rate_limit.record_shown(100.0)
    assert sum(rate_limit.compute_wait(100.01)) <= 0.1 + 0.1


@given(st.floats(1.0, 30.0), st.floats(1.0, 100.0))
def test_the_rate_is_kept_and_nothing_old_is_shown(viewer_hz: float, stream_hz: float) -> None:
    """A stream without jitter, and a viewer who draws at once."""
    rate_limit, interval_s = RateLimit(1.0 / viewer_hz, stream_hz), 1.0 / stream_hz
    record_shown: list[tuple[float, float]] = []  # when, and how old the sample is
    now_s, last = 0.0, -1
    while now_s < 30.0:
        newest = max(int(now_s / interval_s + 1e-9), last + 1)  # the next sample that is new
        now_s = max(now_s, newest * interval_s)
        pause_s, patience_s = rate_limit.compute_wait(now_s)
        if pause_s + patience_s > 0.0:
            now_s += pause_s
            next_one = int(now_s / interval_s + 1e-9) + 1
            newest, before_s = next_one - 1, now_s
            now_s = min(now_s + patience_s, next_one * interval_s)
            if now_s == next_one * interval_s:
                newest = next_one
            assert now_s - before_s <= 1.3 * interval_s + 1e-9
        rate_limit.record_shown(now_s)
        record_shown.append((now_s, now_s - newest * interval_s))
        last = newest
    times = [t for t, _ in record_shown]
    assert len(times) / times[-1] >= 0.95 * min(viewer_hz, stream_hz) - 0.1
    assert len(times) / times[-1] <= viewer_hz * 1.02 + 0.1
    assert max(age for _, age in record_shown) <= 1e-6
