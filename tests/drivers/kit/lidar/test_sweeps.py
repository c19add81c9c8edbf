"""Sweeps of a lidar that turns evenly, with any columns missing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.kit.lidar.columns import Columns
from drivers.kit.lidar.sweeps import Sweep, SweepAssembly, fill_channels

TURN = 36000


def turning(count: int, step: int, first: int = 0, channels: int = 2) -> Columns:
    """Return columns whose ranges are their numbers, at times of 1 us."""
    number = np.arange(count)
    ranges = np.broadcast_to(number[None, :, None], (1, count, channels)).astype("<u2")
    azimuth = ((first + number * step) % TURN).astype("<u4")
    return Columns(azimuth, number * 1000, ranges, ranges.astype("u1"))


def assemble(columns: Columns, kept: np.ndarray, step: int, cut: int, batches: int) -> list[Sweep]:
    """Return the sweeps of the columns that are kept, given in batches."""
    assembly, sweeps = SweepAssembly(TURN, cut, step), list[Sweep]()
    for part in np.array_split(np.flatnonzero(kept), batches):
        chosen = Columns(
            *(columns.azimuth[part], columns.t_ns[part]),
            *(columns.ranges[:, part], columns.reflectivity[:, part]),
        )
        before = np.searchsorted(np.flatnonzero(kept), part)
        previous = np.append([-1], np.flatnonzero(kept))[before]
        sweeps += assembly.take(chosen, part - previous - 1)
    return [*sweeps, *assembly.finish()]


@given(
    count=st.integers(1, 900),
    step=st.sampled_from([250, 400, 720]),
    first=st.integers(0, TURN - 1),
    cut=st.integers(0, TURN - 1),
    batches=st.integers(1, 7),
    gaps=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 400)), max_size=4),
)
def test_recorded_and_counted_columns_are_those_that_were_sent(
    count: int,
    step: int,
    first: int,
    cut: int,
    batches: int,
    gaps: list[tuple[int, int]],
) -> None:
    columns = turning(count, step, first)
    kept = np.ones(count, bool)
    for begin, size in gaps:
        kept[begin : begin + size] = False
    number_of_sweep = ((first - cut) % TURN + np.arange(count) * step) // TURN
    sweeps = assemble(columns, kept, step, cut, batches)
    there = np.flatnonzero(kept)
    if not len(there):
        assert sweeps == []
        return
    inside = slice(there[0], there[-1] + 1)
    wanted = np.unique(number_of_sweep[kept])
    assert [len(s) for s in sweeps] == [
        np.count_nonzero(kept & (number_of_sweep == n)) for n in wanted
    ]
    assert [s.lost_before for s in sweeps] == [0, *(np.diff(wanted) - 1)]
    missing = [np.count_nonzero(~kept[inside] & (number_of_sweep[inside] == n)) for n in wanted]
    found = [s.missing for s in sweeps]
    # A step does not divide the turn: the columns of a sweep vary by one.
    assert np.abs(np.subtract(found, missing)).max() <= 1
    if len(wanted) == 1:
        assert found == missing


def test_a_sweep_has_its_columns_in_order_and_zeros_behind_them() -> None:
    (sweep,) = assemble(turning(10, 720), np.ones(10, bool), 720, 0, 3)
    data, beyond = fill_channels(sweep.parts, 12)
    assert beyond == 0
    assert data["rng"].shape == (1, 2, 12) and data["rng"].dtype == "<u2"
    assert data["rng"][0].tolist() == [[*range(10), 0, 0]] * 2
    assert data["azimuth"][0].tolist() == [*range(0, 7200, 720), 0, 0]
    assert data["t_col"][0].tolist() == [*range(0, 10_000, 1000), 0, 0]
    data, beyond = fill_channels(sweep.parts, 7)
    assert beyond == 3 and data["rng"].shape == (1, 2, 7)


@pytest.mark.parametrize("returns", [1, 2, 3])
def test_every_return_has_its_channels(returns: int) -> None:
    one = turning(4, 720)
    ranges = np.concatenate([one.ranges + k for k in range(returns)])
    columns = Columns(one.azimuth, one.t_ns, ranges, ranges.astype("u1"), ranges.astype("u1"))
    data, _ = fill_channels([columns], 4)
    names = [f"{name}{k}" for name in ("rng", "rfl", "conf") for k in ("", 2, 3)[:returns]]
    assert set(data) == {*names, "azimuth", "t_col"}
    last = "" if returns == 1 else str(returns)
    assert data[f"rng{last}"][0, 0].tolist() == [returns - 1 + k for k in range(4)]
