"""Recordings of other software, in any order: each message is a sample with its own stamp."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Driver, Item, Lost, Sample
from drivers.kit.runner import make_driver
from drivers.xsens.driver import XsensDriver
from tests.campaigns import Campaign
from tests.drivers.kit.recorded_drives import CAMERA, IMU, LAYOUTS, MS, Drive, Written, write_drive
from tests.support.devices import play as play_one

DRIVERS: dict[str, type[Driver]] = {IMU: XsensDriver, CAMERA: CameraDriver}


def play(path: Path, topic: str) -> tuple[Driver, list[Item]]:
    entry = {
        "name": "s", "scheme": "mcap", "address": f"{path}#{topic}", "options": {}, "pace": "max",
    }  # fmt: skip
    driver = make_driver(DRIVERS[topic], entry)
    return driver, play_one(driver)[1]


def check(written: Written, drive: Drive) -> None:
    """Check that nothing is lost or moved, and that each step is reported once, for all alike."""
    found = {topic: play(written.path, topic) for topic in written.stamps}
    (steps,) = {tuple(driver.clock_steps) for driver, _ in found.values()}
    sizes_ns = [-step_ns for step_ns, _ in steps]
    assert len(sizes_ns) == len(drive.steps)
    for size_ns, (_, size_ms) in zip(sizes_ns, drive.steps, strict=True):
        assert abs(size_ns - size_ms * MS) <= 11 * MS
    shifts = [0, *accumulate(sizes_ns)]
    for topic, (driver, items) in found.items():
        samples = [item for item in items if isinstance(item, Sample)]
        lost = Counter({i.cause: i.count for i in items if isinstance(i, Lost)})
        assert sum(i.count or 0 for i in items if isinstance(i, Lost)) == drive.untimed
        assert set(lost) <= {"time"}
        times = [t for sample in samples for t in sample.t_ns.tolist()]
        assert all(a <= b for a, b in pairwise(times))
        stamps, since = written.stamps[topic], written.steps[topic]
        numbers = list(range(len(stamps)))
        if topic == IMU:
            numbers = [round(x) for s in samples for x in s.data["acc"][:, 0]]  # type: ignore[call-overload]
            if not drive.steps:
                assert numbers == list(range(len(stamps)))
        assert sorted(numbers) == list(range(len(stamps)))
        assert times == [stamps[n] + shifts[since[n]] for n in numbers]
        assert driver.origin_ns == min(each[0] for each in written.stamps.values())


def drives(*, steps: bool) -> st.SearchStrategy[Drive]:
    if not steps:
        return st.builds(
            Drive,
            seed=st.integers(0, 1000),
            late=st.sampled_from([0.0, 0.05, 0.5]),
            delay_ms=st.sampled_from([5, 100, 600]),
            publishers=st.integers(1, 2),
            pause_s=st.sampled_from([0, 3, 3600]),
            layout=st.sampled_from(LAYOUTS),
            untimed=st.sampled_from([0, 0, 3]),
            chunk_bytes=st.sampled_from([700, 4000, 1 << 20]),
        )
    sizes = st.sampled_from([100, 137, 250, 2500, 61_000, 3_600_000])
    return st.builds(
        Drive,
        seed=st.integers(0, 1000),
        length_s=st.just(3.0),
        late=st.sampled_from([0.0, 0.05]),
        delay_ms=st.just(40),
        publishers=st.integers(1, 2),
        steps=st.tuples(st.floats(0.7, 1.2), sizes).map(lambda one: [one])
        | st.tuples(st.floats(0.7, 1.0), sizes, st.floats(1.8, 2.1), sizes).map(
            lambda two: [(two[0], two[1]), (two[2], two[3])]
        ),
        layout=st.sampled_from(["one file", "split"]),
        untimed=st.sampled_from([0, 3]),
        chunk_bytes=st.sampled_from([700, 4000, 1 << 20]),
    )


def tried(folder: Path, drive: Drive) -> None:
    shutil.rmtree(folder / "bag", ignore_errors=True)
    check(write_drive(folder / "bag", drive), drive)


@settings(max_examples=3)
@given(drive=drives(steps=False))
def test_messages_in_any_order_keep_their_stamps(
    tmp_path_factory: pytest.TempPathFactory, drive: Drive
) -> None:
    tried(tmp_path_factory.getbasetemp(), drive)


@settings(max_examples=2)
@given(drive=drives(steps=True))
def test_steps_of_the_clock_are_the_same_for_all_topics(
    tmp_path_factory: pytest.TempPathFactory, drive: Drive
) -> None:
    tried(tmp_path_factory.getbasetemp(), drive)


@pytest.mark.campaign(weight=40, least=60)
def test_many_drives(tmp_path: Path, campaign: Campaign) -> None:
    for seed in campaign.seeds():
        rng = random.Random(seed)
        sizes = [100, 137, 250, 2500, 61_000, 3_600_000]
        steps = [(rng.uniform(0.7, 1.0), rng.choice(sizes))]
        if rng.random() < 0.5:
            steps.append((rng.uniform(1.8, 2.1), rng.choice(sizes)))
        common = Drive(
            seed=seed,
            length_s=3.0,
            late=rng.choice([0.0, 0.05]),
            delay_ms=40,
            publishers=rng.choice([1, 2]),
            untimed=rng.choice([0, 3]),
            chunk_bytes=rng.choice([300, 4000, 1 << 20]),
        )
        layout = rng.choice(["one file", "split"])
        tried(tmp_path, replace(common, steps=steps, layout=layout))
        pause_s, layout = rng.choice([0, 3, 3600, 10**6]), rng.choice(LAYOUTS)
        late = rng.choice([0.0, 0.05, 0.5])
        tried(tmp_path, replace(common, late=late, delay_ms=900, pause_s=pause_s, layout=layout))
