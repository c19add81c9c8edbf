"""Losses one by one: gaps with their causes, and losses without a gap."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.session.loss_accounts import Gap, LossInterval, _Reported, loss_intervals, losses
from recorder.session.reader import Session
from tests.session.build import START_NS, Builder, imu_spec

S = 1_000_000_000


def intervals(builder: Builder, name: str = "imu") -> list[LossInterval]:
    with Session(builder.path) as session:
        events = [e for e in session.events() if e["stream"] == name]
        return list(loss_intervals(session.streams.get(name), events))


def test_a_gap_lasts_from_the_sample_before_to_the_sample_after(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    made = builder.add(imu_spec(), seq=[*range(10), *range(13, 30), *range(31, 40)])
    builder.lose("imu", 10, 12, "buffer")
    builder.lose("imu", 30, 30, "refused")
    builder.close()
    t_ns = made.t_ns.tolist()
    assert intervals(builder) == [
        LossInterval(t_ns[9], t_ns[10], "buffer", 3, None, 10, 12),
        LossInterval(t_ns[26], t_ns[27], "refused", 1, None, 30, 30),
    ]


def test_a_gap_of_several_causes_and_a_gap_of_none(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), seq=[2, 3, *range(10, 20), *range(25, 30)])
    builder.lose("imu", 0, 1, "device")
    builder.lose("imu", 4, 6, "refused")
    # Merged from 7 to 9 and from 20 to 21; nobody reported 22 to 24.
    builder.lose("imu", 7, 21, "buffer", count=5, merged=2)
    builder.close("recording")
    found = [(x.first_seq, x.last_seq, x.cause, x.reported) for x in intervals(builder)]
    assert found == [
        (0, 1, "device", True),
        (4, 6, "refused", True),
        (7, 9, "buffer", True),
        (20, 21, "buffer", True),
        (22, 24, "unknown", False),
    ]
    assert intervals(builder)[0].start_ns is None


def test_losses_without_a_gap_have_the_time_of_their_event(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), seq=[*range(20), *range(25, 40)])
    at = START_NS + 2 * S
    builder.lose("imu", 20, 24)
    builder.lose("imu", 40, 44, "device", t_ns=at, duration_ns=S)
    builder.lose("imu", 45, None, "driver", count=None, t_ns=at + S, duration_ns=S // 2, estimate=7)
    builder.close()
    _, counted, uncounted = intervals(builder)
    assert counted == LossInterval(at - S, at, "device", 5)
    assert uncounted == LossInterval(at + S // 2, at + S, "driver", None, 7)


def test_epochs_do_not_take_each_others_events(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    seq = [*range(5), *range(6, 10), *range(5), *range(6, 10)]
    builder.add(imu_spec(), seq=seq, epochs=((11, 0), (12, 9)))
    builder.lose("imu", 5, 5, "device", epoch=11)
    builder.lose("imu", 5, 5, "buffer", epoch=12)
    builder.close()
    assert [x.cause for x in intervals(builder)] == ["device", "buffer"]


def test_a_stream_without_a_sample(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.lose("imu", 0, 4, "device", t_ns=START_NS + S)
    builder.lose("imu", 5, None, "absent", count=None, t_ns=START_NS + S, duration_ns=S)
    builder.close()
    found = intervals(builder)
    assert [(x.cause, x.count) for x in found] == [("absent", None), ("device", 5)]
    assert found[0].to_wire()["duration_ns"] == S


@given(st.data())
def test_the_parts_of_a_gap_have_each_number_once(data: st.DataObject) -> None:
    numbers = st.integers(0, 40)
    spans = data.draw(st.lists(st.tuples(numbers, numbers).map(sorted), max_size=6))
    events = [{"first_seq": a, "last_seq": b, "cause": f"c{k}"} for k, (a, b) in enumerate(spans)]
    first, last = sorted(data.draw(st.tuples(numbers, numbers)))
    parts = _Reported(events).parts(Gap(0, 0, first, last))
    covered = [n for low, high, _ in parts for n in range(low, high + 1)]
    assert covered == list(range(first, last + 1))
    for low, high, cause in parts:
        known = [f"c{k}" for k, (a, b) in enumerate(spans) if a <= low and high <= b]
        if cause is None:
            assert not any(a <= n <= b for a, b in spans for n in range(low, high + 1))
        else:
            assert cause in known


@pytest.mark.parametrize("seed", range(4))
def test_the_sum_is_that_of_the_events(tmp_path: Path, seed: int) -> None:

    rng, builder = random.Random(seed), Builder(tmp_path / "rig")
    lost = sorted(rng.sample(range(1, 199), 40))
    builder.add(imu_spec(), seq=[n for n in range(200) if n not in lost])
    runs: list[list[Any]] = []
    for number in lost:
        cause = rng.choice(["buffer", "refused", "device"])
        if runs and runs[-1][1] == number - 1 and runs[-1][2] == cause:
            runs[-1][1] = number
        else:
            runs.append([number, number, cause])
    for first, last, cause in runs:
        builder.lose("imu", first, last, cause)
    builder.close()
    counts: dict[str, int] = {}
    for one in intervals(builder):
        assert one.count is not None and one.reported
        counts[one.cause] = counts.get(one.cause, 0) + one.count
    assert counts == losses(builder.events)[0]
