"""Times of frames and of sweeps' columns."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.perception.frames import FrameGate, mean_period_ns, sweep_times
from recorder.session.stream import Stream

END = 1_700_000_000_000_000_000


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 100_000)), max_size=40))
def test_what_the_gate_lets_through_rises(frames: list[tuple[int, int]]) -> None:
    gate = FrameGate()
    admitted = [
        times
        for index, (length, end) in enumerate(frames)
        if (times := gate.admit(index, end + 5000 - length, end + 5000)) is not None
    ]
    us = np.array(admitted, np.int64).reshape(-1, 2) // 1000
    assert (np.diff(us, axis=0) > 0).all()
    assert (us[:, 0] <= us[:, 1]).all()
    assert len(admitted) + gate.repeated + gate.backward == len(frames)
    assert bool(gate.remarks()) == (len(admitted) < len(frames) or gate.moved > 0)


def test_the_gate_tells_which_was_the_first() -> None:
    gate = FrameGate()
    for index, end_ns in enumerate((10_000, 20_000, 20_999, 5_000, 30_000)):
        gate.admit(index, end_ns, end_ns)
    assert (gate.repeated, gate.backward, gate.first_bad) == (1, 1, 2)
    first, second = gate.remarks()
    assert "the same microsecond" in first
    assert "go backward (first: sample 2)" in second


def test_columns_end_at_the_stamp() -> None:
    t_col = (np.arange(8) * 1000 + 77).astype(np.uint64)
    times = sweep_times(t_col, 8, END, 100_000_000)
    assert times.columns_ns.tolist() == [END - 7000 + 1000 * n for n in range(8)]
    assert (times.start_ns, times.measured) == (END - 7000, True)


def test_missing_columns_lie_between_their_neighbours() -> None:
    t_col = (np.arange(8) * 1000 + 77).astype(np.uint64)
    t_col[[0, 3, 4, 7]] = 0
    times = sweep_times(t_col, 8, END, 100_000_000).columns_ns
    expected = [END - 6000 + 1000 * n for n in range(7)]
    assert times[:7].tolist() == expected
    assert times[7] == END  # it was never measured; the sweep's stamp is the last time there is


@pytest.mark.parametrize(
    "t_col",
    [None, np.zeros(4, np.uint64), np.array([5, 4, 3, 2], np.uint64),
     np.array([1, 2, 3, 10**10], np.uint64)],
)  # fmt: skip
def test_without_usable_device_times_columns_are_spread(t_col: None) -> None:
    times = sweep_times(t_col, 4, END, 100_000_000)
    assert not times.measured
    assert times.columns_ns.tolist() == [END - 75_000_000, END - 50_000_000, END - 25_000_000, END]


@pytest.mark.parametrize(
    ("stamps_s", "nominal_hz", "declared_hz", "period_ns"),
    [
        ([5.0, 5.5, 6.5], 8.0, 10.0, 125_000_000),
        ([5.0, 5.5, 6.5], None, 10.0, 100_000_000),
        ([5.0, 5.5, 6.5], None, None, 750_000_000),
        ([5.0], None, None, 100_000_000),
        ([5.0, 5.0], None, None, 100_000_000),
        ([5.0, 4.0], None, None, 100_000_000),
    ],
)
def test_the_mean_period(
    stamps_s: list[float], nominal_hz: float | None, declared_hz: float | None, period_ns: int
) -> None:
    t_ns = (np.array(stamps_s) * 1e9).astype(np.int64) + END

    class Spec:
        rate_hz = declared_hz

    class Timed:
        spec = Spec()

        def __len__(self) -> int:
            return len(t_ns)

        def times(self, start: int, stop: int) -> Any:
            return t_ns[start:stop]

    assert mean_period_ns(cast("Stream", Timed()), nominal_hz) == period_ns
