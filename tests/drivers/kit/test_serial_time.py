"""Arrivals of bytes, and device times on the host's clock: with simulated latencies."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.kit.serial_time import WINDOW_NS, ByteArrivals, MinDelayClock

S, MS, US = 1_000_000_000, 1_000_000, 1_000
TICK = 100 * US
LEAST = 7 * MS  # what every message is late by: nobody can take that out
Delay = Callable[[random.Random, int], float]


def mapped(
    delay: Delay,
    *,
    rate: int = 100,
    seconds: float = 60,
    drift: float = 50e-6,
    jump: tuple[float, int] = (1e9, 0),
    reported: bool = False,
) -> npt.NDArray[np.int64]:
    """Errors in ns of the mapped times, the constant part taken off, by sample.

    The device's clock runs `drift` fast, has ticks of 100 us, and jumps by jump[1] ns at jump[0] s.
    """
    rng, clock = random.Random(5), MinDelayClock()
    errors, last = [], -(2**62)
    jumped = False
    for k in range(round(seconds * rate)):
        true = round(k * S / rate)
        device = round(true * (1 + drift)) // TICK * TICK + 90 * S
        if true >= jump[0] * S:
            if reported and not jumped:
                clock.restart()
            jumped = True
            device += jump[1]
        arrival = true + LEAST + round(delay(rng, k))
        t_ns = clock.host_ns(device, arrival)
        assert last < t_ns <= max(arrival, last + 1)
        last = t_ns
        errors.append(t_ns - true - LEAST)
    return np.array(errors, np.int64)


def scheduler(rng: random.Random, k: int) -> float:
    return rng.expovariate(1 / (200 * US))


def stalls(rng: random.Random, k: int) -> float:
    """A scheduler that now and then comes up to 200 ms late."""
    return scheduler(rng, k) + (rng.random() < 0.02) * rng.random() * 200 * MS


def converter(rng: random.Random, k: int) -> float:
    """Holds bytes back for up to 16 ms, in no step with the samples."""
    return rng.random() * 16 * MS


def in_step(period: int, poll: float) -> Delay:
    """Polls that keep step with the samples, but for 30 ppm."""
    return lambda rng, k: -(k * period * (1 + 3e-5)) % poll


def busy(rng: random.Random, k: int) -> float:
    """One second in four, everything comes 3 ms later."""
    return scheduler(rng, k) + (k // 100 % 4 == 0) * 3 * MS


@pytest.mark.parametrize(
    "drift", [-100e-6, *(pytest.param(d, marks=pytest.mark.campaign) for d in (0.0, 50e-6))]
)
@pytest.mark.parametrize(
    ("delay", "most"),
    [(scheduler, 150), (stalls, 150), (converter, 400), (busy, 200)],
)
def test_error_of_random_lateness(delay: Delay, most: int, drift: float) -> None:
    errors = mapped(delay, drift=drift)[500:]
    assert np.abs(errors).max() < most * US
    # Taken as they came, the times would be as late as their messages were.
    raw = np.array([delay(random.Random(k), k) for k in range(5000)])
    assert np.abs(errors).mean() < raw.mean()


def test_error_at_the_start() -> None:
    """Before the drift is known it adds its part: two seconds of 100 ppm."""
    errors = mapped(scheduler, seconds=2, drift=100e-6)
    assert np.abs(errors[20:]).max() < 400 * US


@pytest.mark.parametrize(("period", "poll"), [(10 * MS, 16 * MS), (10 * MS, 1 * MS)])
def test_error_of_polls_that_keep_step(period: int, poll: int) -> None:
    """Up to the common divisor of both periods, as is documented."""
    errors = mapped(in_step(period, poll), drift=-20e-6)[500:]
    assert errors.min() > -0.4 * MS and errors.max() < np.gcd(period, poll) + 0.2 * MS


def test_high_rate() -> None:
    errors = mapped(scheduler, rate=1000, seconds=15)[3000:]
    assert np.abs(errors).max() < 150 * US


@pytest.mark.parametrize("jump", [-40 * S, -3 * MS, 3 * MS, 40 * S])
def test_a_step_that_is_told_costs_a_start(jump: int) -> None:
    errors = mapped(scheduler, seconds=40, jump=(20, jump), reported=True)
    assert np.abs(errors[300:2000]).max() < 150 * US
    assert np.abs(errors[2020:2200]).max() < 400 * US
    assert np.abs(errors[2300:]).max() < 150 * US


@pytest.mark.parametrize("jump", [2 * MS, 15 * MS, 2 * S])
def test_a_step_forwards_is_seen_at_once(jump: int) -> None:
    errors = mapped(scheduler, seconds=40, jump=(20, jump))
    assert errors[2000:2100].max() < 5 * MS
    assert np.abs(errors[2300:]).max() < 150 * US


def test_a_step_backwards_is_followed_within_the_window() -> None:
    errors = mapped(scheduler, seconds=60, jump=(25, -4 * MS))
    assert errors[2500:].min() > -4.3 * MS
    assert np.abs(errors[2500 + WINDOW_NS // (10 * MS) + 100 :]).max() < 300 * US


def test_a_gap_does_not_disturb() -> None:
    clock, errors = MinDelayClock(), []
    rng = random.Random(1)
    for k in [*range(1000), *range(9000, 9500), *range(50_000, 50_100)]:
        true = k * 10 * MS
        arrival = true + LEAST + round(scheduler(rng, k))
        errors.append(clock.host_ns(round(true * (1 + 40e-6)), arrival) - true - LEAST)
    assert np.abs(errors[200:1000]).max() < 100 * US
    assert np.abs(errors[1000:]).max() < 20 * MS * 0.25  # drift times the time without a message


def test_observed_first_are_times_of_the_best() -> None:
    clock = MinDelayClock()
    lateness = [40 * MS, 30 * MS, 0, 25 * MS]
    arrivals = [k * 10 * MS + late for k, late in enumerate(lateness)]
    for k, arrival in enumerate(arrivals):
        clock.observe(k * 10 * MS, arrival)
    assert [clock.host_ns(k * 10 * MS, arrivals[k]) for k in range(4)] == [
        0, 10 * MS, 20 * MS, 30 * MS
    ]  # fmt: skip
    assert clock.restarts == 0 and clock.lateness_ns > 0


def test_without_them_the_pace_is_halved_until_it_fits() -> None:
    clock = MinDelayClock()
    lateness = [18 * MS, 0, 0, 0, 0, 0]
    times = [clock.host_ns(k * 10 * MS, k * 10 * MS + late) for k, late in enumerate(lateness)]
    # What has arrived was measured before, which overrules the pace.
    assert times[0] == 18 * MS and times[1] == 18 * MS + 1
    assert times[2:] == [23 * MS - 3 * MS, 30 * MS, 40 * MS, 50 * MS]


@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.integers(0, 2**40)), max_size=60))
def test_any_stamps_give_increasing_times(stamps: list[tuple[int, int]]) -> None:
    clock, last = MinDelayClock(), -(2**62)
    for device, arrival in stamps:
        t_ns = clock.host_ns(device, arrival)
        assert t_ns > last
        last = t_ns


def test_memory_is_bounded_by_the_window() -> None:
    clock = MinDelayClock()
    for k in range(20_000):
        clock.host_ns(k * 10 * MS, k * 10 * MS + k % 7 * MS)
    assert len(clock._closed) <= WINDOW_NS // (500 * MS) + 2


# --- bytes ------------------------------------------------------------------------------------


def test_bytes_behind_in_the_chunk_take_their_time() -> None:
    arrivals = ByteArrivals(1000.0)
    arrivals.chunk(100, 5 * MS)
    assert arrivals.start_ns(0, 40) == 5 * MS - (60 + 40) * 1000
    assert arrivals.start_ns(40, 60) == 5 * MS - 60 * 1000
    arrivals.chunk(30, 6 * MS)
    arrivals.chunk(20, 7 * MS)
    assert arrivals.start_ns(100, 40) == 7 * MS - (10 + 40) * 1000  # its end came last
    assert arrivals.start_ns(140, 10) == 7 * MS - 10 * 1000


def test_a_message_that_was_cut_out_late_has_its_own_chunk() -> None:
    """One that hid behind a broken length came with its bytes, not with the parser's decision."""
    arrivals = ByteArrivals(0.0)
    for k in range(10):
        arrivals.chunk(50, k * MS)
    assert [arrivals.start_ns(50 * k, 50) for k in range(2, 9)] == [k * MS for k in range(2, 9)]


@given(
    st.lists(st.integers(20, 90), min_size=1, max_size=30),
    st.lists(st.integers(1, 200), min_size=1, max_size=30),
    st.integers(0, 1000),
)
def test_no_message_is_placed_before_it_was_sent(
    sizes: list[int], chunks: list[int], late_us: int
) -> None:
    """A line without pauses, read in chunks of any size: never early, and late by the reader."""
    byte_ns, arrivals = 86_805, ByteArrivals(86_805)
    total, done, turn = sum(sizes), 0, 0
    begins = np.cumsum([0, *sizes])
    reported = []
    message = 0
    while done < total:
        size = min(chunks[turn % len(chunks)], total - done)
        done, turn = done + size, turn + 1
        arrivals.chunk(size, done * byte_ns + late_us * US)
        while message < len(sizes) and begins[message + 1] <= done:
            reported.append(arrivals.start_ns(int(begins[message]), sizes[message]))
            message += 1
    for start, begin in zip(reported, begins.tolist(), strict=False):
        assert 0 <= start - begin * byte_ns <= late_us * US + len(reported)


@pytest.mark.parametrize("delay", [scheduler, stalls, converter])
@pytest.mark.parametrize("seconds", [0.3, 3.0, 30.0])
def test_a_clock_that_is_restarted_maps_as_a_new_one(delay: Delay, seconds: float) -> None:
    """Nothing of what it knew is left but the order of its times."""
    rng = random.Random(7)
    used, new = MinDelayClock(), MinDelayClock()
    for k in range(round(seconds * 100)):
        used.host_ns(k * S // 100, k * S // 100 + round(delay(rng, k)))
    used.restart()
    begins = 100 * S
    for k in range(3000):
        true = begins + k * S // 100
        device, arrival = round(k * S / 100 * (1 - 80e-6)), true + round(delay(rng, k))
        assert used.host_ns(device, arrival) == new.host_ns(device, arrival)
    assert (used.drift, used.lateness_ns) == (new.drift, new.lateness_ns)
    assert (used.restarts, new.restarts) == (1, 0)
