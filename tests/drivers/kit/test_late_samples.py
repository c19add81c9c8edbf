"""Late samples of captures and logs are sorted; nothing is lost, and reports keep their places."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.kit.driver import Item, Lost, Sample
from drivers.kit.stamps import Stamps
from recorder.codecs.streams import ChannelSpec, StreamSpec

MS, S = 1_000_000, 1_000_000_000
LATE_NS = 100 * MS
SPECS = {"x": StreamSpec("x", (ChannelSpec("n", "raw", "u4", (1,)),), rate_hz=None)}


def placed(times_ms: list[float], size: int = 1) -> tuple[list[int], list[float], list[Lost], int]:
    """Numbers and times (ms) of what comes out, the losses, and how many steps were reported."""
    steps: list[int] = []
    stamps = Stamps(SPECS, lambda *step: steps.append(step[1]), late_ns=LATE_NS)
    items: list[Item] = []
    for at in range(0, len(times_ms), size):
        some = [round(t * MS) for t in times_ms[at : at + size]]
        numbers = np.arange(at, at + len(some), dtype="<u4")[:, None]
        items += stamps.take(Sample("x", np.array(some, np.int64), {"n": numbers}))
    items += stamps.flush()
    samples = [item for item in items if isinstance(item, Sample)]
    order = [int(n) for s in samples for n in s.data["n"][:, 0]]  # type: ignore[call-overload]
    found = [t / MS for s in samples for t in s.t_ns.tolist()]
    return order, found, [item for item in items if isinstance(item, Lost)], len(steps)


@pytest.mark.parametrize("size", [1, 3, 64])
def test_samples_that_are_late_by_milliseconds_are_sorted(size: int) -> None:
    times = [0.5, 1, 1.5, -0.5, 2.5, 3, 3.5, 1.5, 4.5, 5, 5.5, 3.5]
    order, found, lost, steps = placed(times, size)
    assert found == sorted(times) and order[0] == 3
    assert order == sorted(range(len(times)), key=lambda n: (times[n], n))
    assert (lost, steps) == ([], 0)


def test_a_sample_that_lies_further_back_is_not_late() -> None:
    order, found, lost, steps = placed([0, 50, 200, 300, 150, 350, 400])
    assert order == [0, 1, 2, 3, 5, 6] and found == [0, 50, 200, 300, 350, 400]
    assert [each.cause for each in lost] == ["time"] and steps == 0


def test_a_clock_that_was_set_back_further_is_a_step() -> None:
    times = [*range(0, 1000, 10), *range(500, 900, 10)]
    order, found, lost, steps = placed([float(t) for t in times])
    assert order == list(range(140)) and (lost, steps) == ([], 1)
    assert all(a < b for a, b in pairwise(found))


def test_what_is_ready_is_not_held() -> None:
    stamps = Stamps(SPECS, lambda *_: None, late_ns=LATE_NS)
    given_out = 0
    for n in range(1000):
        one = Sample("x", np.array([n * 10 * MS], np.int64), {"n": np.zeros((1, 1), "<u4")})
        given_out += len(stamps.take(one))
        assert n + 1 - given_out <= 10, "at most what a late sample could precede"


@given(
    st.lists(st.integers(0, 95), min_size=1, max_size=60),
    st.integers(1, 7),
    st.lists(st.integers(0, 30), min_size=60, max_size=60),
)
def test_whatever_is_late_within_the_limit_is_sorted(
    delays: list[int], size: int, gaps: list[int]
) -> None:
    """Samples arrive in the order of time + delay; a delay is less than the limit."""
    times = np.cumsum(gaps[: len(delays)]).tolist()
    arrived = sorted(range(len(delays)), key=lambda n: times[n] + delays[n])
    order, found, lost, steps = placed([float(times[n]) for n in arrived], size)
    assert found == sorted(times) and sorted(order) == list(range(len(delays)))
    assert (lost, steps) == ([], 0)


def test_a_stream_that_is_found_later_is_sorted_too() -> None:
    specs = dict(SPECS)
    stamps = Stamps(specs, lambda *_: None, late_ns=LATE_NS)
    stamps.take(Sample("x", np.array([1], np.int64), {"n": np.zeros((1, 1), "<u4")}))
    specs["y"] = StreamSpec("y", SPECS["x"].channels)
    items: list[Item] = []
    for t_ms in (0, 10, 5, 20):
        times = np.array([t_ms * MS], np.int64)
        items += stamps.take(Sample("y", times, {"n": np.zeros((1, 1), "<u4")}))
    items += [item for item in stamps.flush() if item.stream == "y"]
    assert [int(each.t_ns[0]) // MS for each in items if isinstance(each, Sample)] == [0, 5, 10, 20]
