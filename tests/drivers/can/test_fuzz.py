"""Mutated logs, databases and structures: no crash, no hang, no growing memory."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy as np
import pytest

from drivers.can.errors import BusErrors
from drivers.can.frames import FD, FD_BYTES, Frame, pack_frame, parse_frames
from drivers.can.signals import SignalTable
from drivers.can.simulated import DATABASE
from drivers.kit.driver import EndOfSource, Item, Lost, Sample, State
from recorder.common.errors import FormatError, SourceError
from tests.drivers.can.rig import WRITERS, driver_for, frames, write_log
from tests.drivers.can.test_logs import drive
from tests.drivers.fuzzing import COUNT, GROWTH, mutated, resident

PARTS = (bytes(16), b"\xff" * 8, b"LOBJ", b" 1  123  Rx  d 8 ", b"(1.0) can0 1#R9\n", b"\n")


def logs(folder: Path) -> dict[str, bytes]:
    return {
        suffix: write_log(folder / f"whole{suffix}", drive()).read_bytes() for suffix in WRITERS
    }


def check(path: Path, data: bytes, decoded: bool) -> int:
    """Play a log; the number of frames."""
    path.write_bytes(data)
    options = {"dbc": str(DATABASE), "signals": ["*"]} if decoded else {}
    driver = driver_for("file", str(path), "max", **options)
    items: list[Item] = []
    try:
        driver.open()
        while True:
            if (item := driver.read()) is not None:
                items.append(item)
    except SourceError as error:
        assert str(error).startswith(f"bus: file:{path}: ")
    except EndOfSource:
        pass
    finally:
        driver.close()
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
    run(tmp_path, 600, seed=1)


def structures(count: int, seed: int) -> None:
    rng = random.Random(seed)
    whole = [pack_frame(Frame(0, 1, b"\1\2")), pack_frame(Frame(0, 0x9ABCDEF0, bytes(64), FD))]
    table, errors = SignalTable(DATABASE, ["*"]), BusErrors()
    for _ in range(count // 100):
        packets = [mutated(rng, whole[k & 1])[:80] for k in range(100)]
        rows = np.zeros((100, 80), np.uint8)
        for row, packet in zip(rows, packets, strict=True):
            row[: len(packet)] = np.frombuffer(packet, np.uint8)
        sizes = np.array([len(packet) for packet in packets], np.int64)
        times = np.arange(100, dtype=np.int64)
        found, kept = parse_frames(rows, sizes, times, times < 50, FD_BYTES)
        assert len(found) == len(kept) and set(sizes[kept].tolist()) <= {16, 72}
        assert (found.length <= 64).all()
        for message, part in table.split(found):
            some, columns, short = message.decode(part)
            assert len(next(iter(columns.values()))) == some.sum() and 0 <= short <= len(part)
        for number, data in zip(found.id.tolist(), found.data, strict=True):
            errors.feed(number, data[: rng.randrange(9)].tobytes())


def test_mutated_structures() -> None:
    structures(3000, seed=2)


def databases(folder: Path, count: int, seed: int) -> None:
    rng, whole, read = random.Random(seed), DATABASE.read_bytes(), 0
    path = folder / "a.dbc"
    for _ in range(count):
        path.write_bytes(mutated(rng, whole, (b" SG_ ", b"|", b"99999999999999999999")))
        with contextlib.suppress(SourceError, FormatError):
            read += bool(SignalTable(path, ["*"]).messages)
    assert read > count // 10


def test_mutated_databases(tmp_path: Path) -> None:
    databases(tmp_path, 40, seed=3)


@pytest.mark.campaign(weight=60)
def test_many_mutated_logs(tmp_path: Path) -> None:
    run(tmp_path, 2000, seed=4)
    before = resident()
    run(tmp_path, COUNT, seed=5)
    assert resident() - before < GROWTH


@pytest.mark.campaign(weight=10)
def test_many_mutated_structures_and_databases(tmp_path: Path) -> None:
    structures(COUNT, seed=6)
    databases(tmp_path, 2000, seed=7)
