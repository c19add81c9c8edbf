"""Mutated logs in the driver; its parsers are in `tests.fuzz`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from drivers.can.simulated import DATABASE
from drivers.kit.driver import Lost, Sample, State
from recorder.common.errors import SourceError
from tests.drivers.can.rig import WRITERS, driver_for, frames, write_log
from tests.drivers.can.test_logs import drive
from tests.drivers.fuzzing import GROWTH, mutated, resident
from tests.support.devices import play_out

PARTS = (bytes(16), b"\xff" * 8, b"LOBJ", b" 1  123  Rx  d 8 ", b"(1.0) can0 1#R9\n", b"\n")


def logs(folder: Path) -> dict[str, bytes]:
    return {
        suffix: write_log(folder / f"whole{suffix}", drive()).read_bytes() for suffix in WRITERS
    }


def check(path: Path, data: bytes, decoded: bool) -> int:
    """Play a log; the number of frames."""
    path.write_bytes(data)
    options = {"dbc": str(DATABASE), "signals": ["*"]} if decoded else {}
    items, error = play_out(driver_for("file", str(path), "max", **options))
    assert error is None or isinstance(error, SourceError)
    assert error is None or str(error).startswith(f"bus: file:{path}: ")
    for item in items:
        assert isinstance(item, (Sample, State, Lost))
        if isinstance(item, Sample):
            assert 0 < item.count <= 1024
    rows = frames(items)
    assert all(length <= len(data) for _, length, _, data in rows)
    return len(rows)


def run(folder: Path, count: int, seed: int) -> None:
    rng, whole = random.Random(seed), list(logs(folder).items())
    read = 0
    for k in range(count):
        suffix, data = whole[k % len(whole)]
        read += check(folder / f"a{suffix}", mutated(rng, data, PARTS), k % 20 == 0) > 0
    assert read > count // 3  # the frames before the damage are played


def test_mutated_logs(tmp_path: Path) -> None:
    run(tmp_path, 200, seed=1)


@pytest.mark.campaign(weight=60)
def test_many_mutated_logs(tmp_path: Path, mutations: int) -> None:
    run(tmp_path, 2000, seed=4)
    before = resident()
    run(tmp_path, mutations, seed=5)
    assert resident() - before < GROWTH
