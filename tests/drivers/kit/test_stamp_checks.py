"""Stamps that step or jump: what the driver gave is what is placed and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.kit.driver import Item, Lost, Sample, State
from drivers.kit.stamps import Stamps
from recorder.codecs.streams import ChannelSpec, StreamSpec

MS, S = 1_000_000, 1_000_000_000
SPECS = {"x": StreamSpec("x", (ChannelSpec("n", "raw", "u4", (1,)),), rate_hz=100.0)}


class Feed:
    """Stamps of a source, and what has come of its items.

    Attributes:
        steps: (stream, step in ns) as told.
        items: all that came out.
    """

    def __init__(self, *, device: bool = False) -> None:
        self.steps: list[tuple[str, int]] = []
        self.items: list[Item] = []
        self.now_ns = 10**15
        self.given = 0
        self._stamps = Stamps(SPECS, self._reported, (lambda: self.now_ns) if device else None)

    def _reported(self, stream: str, step_ns: int, text: str) -> None:
        assert "step" in text
        self.steps.append((stream, step_ns))

    def give(self, *times_ns: int) -> None:
        """One item, a batch where there are several stamps."""
        numbers = np.arange(self.given, self.given + len(times_ns), dtype="<u4")
        self.given += len(times_ns)
        data = {"n": numbers[:, None]}
        self.items += self._stamps.take(Sample("x", np.array(times_ns, np.int64), data))

    def give_all(self, times_ns: Sequence[int], size: int = 1) -> None:
        """Batches of that size, and the end."""
        for at in range(0, len(times_ns), size):
            self.give(*times_ns[at : at + size])
        self.end()

    def tell(self, t_ns: int) -> None:
        self.items += self._stamps.take(State("x", t_ns, {"k": 1}))

    def end(self) -> None:
        self.items += self._stamps.flush()

    @property
    def placed(self) -> list[tuple[int, int]]:
        """(number, time) of the samples that came out, in order."""
        return [
            (int(n), int(t))
            for item in self.items
            if isinstance(item, Sample)
            for n, t in zip(item.data["n"][:, 0], item.t_ns, strict=True)  # type: ignore[call-overload]
        ]

    @property
    def lost(self) -> int:
        lost = [item for item in self.items if isinstance(item, Lost)]
        assert all(item.cause == "time" for item in lost)
        return sum(item.count or 0 for item in lost)


def ticks(count: int, start: int = 0) -> list[int]:
    return [(start + k) * 10 * MS for k in range(count)]


@pytest.mark.parametrize("size", [1, 7, 50])
@pytest.mark.parametrize("step_ns", [-3600 * S, -5 * S, -25 * MS])
def test_a_played_source_whose_clock_steps_goes_on_where_it_was(size: int, step_ns: int) -> None:
    feed = Feed()
    times = ticks(9) + [t + step_ns for t in ticks(41, 9)]
    feed.give_all(times, size)
    assert feed.placed == list(enumerate(ticks(50)))
    assert feed.lost == 0 and len(feed.steps) == 1
    assert feed.steps[0][1] == step_ns


@pytest.mark.parametrize("size", [1, 7, 50])
@pytest.mark.parametrize("jump_ns", [3600 * S, 5 * S, 2 * S, -3600 * S, -5 * S])
def test_one_wrong_stamp_of_a_played_source_is_counted(size: int, jump_ns: int) -> None:
    feed = Feed()
    times = ticks(50)
    times[9] += jump_ns
    feed.give_all(times, size)
    assert feed.placed == [(n, t) for n, t in enumerate(ticks(50)) if n != 9]
    assert (feed.lost, feed.steps) == (1, [])


@pytest.mark.parametrize("pause_s", [2, 600, 1801, 7200, 86400])
def test_a_pause_of_a_played_source_is_no_fault(pause_s: int) -> None:
    feed = Feed()
    times = ticks(5) + [t + pause_s * S for t in ticks(5, 5)]
    feed.give_all(times)
    assert feed.placed == list(enumerate(times))
    assert (feed.lost, feed.steps) == (0, [])


@pytest.mark.parametrize(("jump_ns", "kept"), [(60 * S, True), (3600 * S, False), (-S, False)])
def test_the_last_stamp_of_a_source_has_none_behind_it(jump_ns: int, kept: bool) -> None:
    feed = Feed()
    times = [*ticks(5), ticks(6)[-1] + jump_ns]
    feed.give_all(times)
    assert len(feed.placed) == 5 + kept and feed.lost == 1 - kept


def test_what_is_told_in_between_keeps_its_order_and_is_never_in_the_future() -> None:
    feed = Feed()
    for t_ns in ticks(5):
        feed.give(t_ns)
    feed.tell(ticks(5)[-1] + 3600 * S)
    feed.give(ticks(6)[-1])
    state, sample = feed.items[-2:]
    assert isinstance(state, State) and isinstance(sample, Sample)
    assert state.t_ns == int(sample.t_ns[0]) == ticks(6)[-1]


def test_equal_stamps_are_left_to_the_writer() -> None:
    feed = Feed()
    feed.give(0, 0, 0)
    feed.give(0)
    assert [t for _, t in feed.placed] == [0, 0, 0, 0] and feed.lost == 0


@pytest.mark.parametrize("step_ns", [-3600 * S, -5 * S, 5 * S, 3600 * S])
def test_a_device_whose_clock_steps_loses_one_sample(step_ns: int) -> None:
    feed = Feed(device=True)
    for k in range(50):
        feed.now_ns += 10 * MS
        feed.give(feed.now_ns + (step_ns if k >= 9 else 0))
    assert [n for n, _ in feed.placed] == [n for n in range(50) if n != 9]
    times = [t for _, t in feed.placed]
    assert times == sorted(times) and times[-1] <= feed.now_ns
    assert feed.lost == 1 and [abs(s) for _, s in feed.steps] == [abs(step_ns)]
    states = [item for item in feed.items if isinstance(item, State)]
    assert [s.lasting for s in states] == [True]


@pytest.mark.parametrize("jump_ns", [-3600 * S, -5 * S, 5 * S, 3600 * S])
def test_one_wrong_stamp_of_a_device_is_counted(jump_ns: int) -> None:
    feed = Feed(device=True)
    for k in range(50):
        feed.now_ns += 10 * MS
        feed.give(feed.now_ns + (jump_ns if k == 9 else 0))
    assert [n for n, _ in feed.placed] == [n for n in range(50) if n != 9]
    assert (feed.lost, feed.steps) == (1, [])


@pytest.mark.parametrize("zero_ns", [0, 1_700_000_000 * S])
def test_a_device_that_counts_from_elsewhere_is_placed_by_its_arrival(zero_ns: int) -> None:
    feed = Feed(device=True)
    for k in range(50):
        feed.now_ns += 10 * MS
        feed.give(zero_ns + k * 10 * MS)
    assert [n for n, _ in feed.placed] == list(range(1, 50))
    assert feed.lost == 1
    assert feed.placed[-1][1] == feed.now_ns


def test_a_device_may_be_silent_for_long() -> None:
    feed = Feed(device=True)
    for pause_s in (0, 1, 7200):
        feed.now_ns += pause_s * S
        feed.give(feed.now_ns)
    assert len(feed.placed) == 3 and feed.lost == 0


STAMPS = st.lists(
    st.integers(-10, 10) | st.integers(-(10**4), 10**4) | st.integers(-(2**40), 2**40), max_size=60
)


@given(STAMPS, st.booleans(), st.integers(1, 5))
def test_whatever_the_stamps_given_is_placed_or_counted(
    offsets: list[int], device: bool, size: int
) -> None:
    feed = Feed(device=device)
    for at in range(0, len(offsets), size):
        feed.now_ns += size * 10 * MS
        chosen = offsets[at : at + size]
        base = feed.now_ns if device else at * 10 * MS
        feed.give(*(base + k * 10 * MS + offset * MS for k, offset in enumerate(chosen)))
    feed.end()
    assert len(feed.placed) + feed.lost == len(offsets)
    numbers, times = [n for n, _ in feed.placed], [t for _, t in feed.placed]
    assert numbers == sorted(set(numbers))
    assert all(b >= a - MS for a, b in pairwise(times))
