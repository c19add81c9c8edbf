"""SIGKILL under load: driver, writer, supervisor, all at once; the acknowledgement is the promise.

What a driver was promised it has written down itself (`tests.faults.counting`).
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.common.clock import SystemClock
from recorder.common.files import PosixDisk
from recorder.recording.writer.recovery import recover
from recorder.session.layout import read_session_json
from recorder.session.validation import validate
from tests.campaigns import Campaign
from tests.faults.numbers import stored
from tests.kills import Recording
from tests.support.events import events

CONFIG = """
version: 1
session: {{root: sessions}}
sensors:
  a: {{driver: tests.faults.counting, source: "sim:", rate: 400, batch: 4, log: {log}}}
  b: {{driver: tests.faults.counting, source: "sim:", rate: 60, format: mjpg, log: {log}}}
  c: {{driver: tests.faults.counting, source: "sim:", rate: 2000, batch: 20, log: {log}}}
storage: {{sync_interval_ms: 50, min_free_gb: 0, buffer_mb: 16}}
"""
STREAMS = ("a", "b", "c")
SECONDS = 1.6
VICTIMS = ("writer", "driver", "supervisor", "all")


@dataclass
class Epoch:
    """What one start of a driver knows.

    Attributes:
        offered: (number, whether the ring took it), in the order of ``seq``.
        acked: samples from the first that were acknowledged.
        ended: everything was, and it said so.
    """

    offered: list[tuple[int, bool]] = field(default_factory=list)
    acked: int = 0
    ended: bool = False


def promises(log: Path, sensor: str) -> dict[int, Epoch]:
    epochs: dict[int, Epoch] = defaultdict(Epoch)
    for file in log.glob(f"{sensor}.*"):
        for line in file.read_text().splitlines():
            kind, *rest = line.split()
            epoch, *values = map(int, rest)
            match kind:
                case "o":
                    number, count, taken = values
                    epochs[epoch].offered += [(number + i, bool(taken)) for i in range(count)]
                case "a":
                    epochs[epoch].acked = max(epochs[epoch].acked, values[0])
                case "e":
                    epochs[epoch].ended = True
    return epochs


def kill(recording: Recording, victim: str, seed: int) -> tuple[int, str]:
    """Kill as the seed has it; exit code and what was said."""
    within_s = SECONDS * 0.8
    match victim:
        case "writer":
            recording.kill_at_random(
                seed, lambda line: "recorder.recording.writer" in line, 2, within_s / 2
            )
        case "driver":
            recording.kill_at_random(seed, lambda line: "counting run" in line, 2, within_s / 2)
        case "supervisor":
            recording.kill_supervisor(seed, within_s)
        case _:
            recording.kill_all(seed, within_s)
    return recording.finish()


def one_run(folder: Path, seed: int) -> None:
    """Record, kill, recover, hold what is there against what was promised."""
    victim = VICTIMS[seed % len(VICTIMS)]
    folder.mkdir()
    log = folder / "log"
    log.mkdir()
    config = folder / "rig.yaml"
    config.write_text(CONFIG.format(log=log))
    recording = Recording(config, "s", SECONDS, "a")
    code, stderr = kill(recording, victim, seed)
    path = recording.path
    where = f"run {seed}, {victim} killed: {stderr}"
    assert "Traceback" not in stderr, where
    if victim in ("supervisor", "all"):
        recover(path, PosixDisk(), SystemClock())
    else:
        assert read_session_json(path)["state"] == "clean", where
        assert code in ((0,) if victim == "writer" else (0, 3)), where
    checked = validate(path, deep=True)
    assert checked.sound, (where, checked.problems)
    for name in STREAMS:
        lost = events(path, type="lost", stream=name)
        hold_against(path, name, promises(log, name), lost, where)


def hold_against(
    path: Path, name: str, epochs: dict[int, Epoch], lost: list[dict[str, Any]], where: str
) -> None:
    where = f"{name} in {path}, {where}"
    numbers = stored(path, name)  # no torn sample
    assert not np.any(np.diff(numbers) <= 0), f"twice, or out of order: {where}"
    found = set(numbers)
    reported = read_session_json(path)["epochs"].get(name, [])
    starts = [*(run["first_sample"] for run in reported), len(numbers)]
    runs = {run["epoch"]: numbers[starts[i] : starts[i + 1]] for i, run in enumerate(reported)}
    assert runs.keys() <= epochs.keys(), where
    for number, epoch in epochs.items():
        taken = [n for n, was_taken in epoch.offered if was_taken]
        acked = [n for n, was_taken in epoch.offered[: epoch.acked] if was_taken]
        here = runs.get(number, [])
        assert set(acked) <= found, f"acknowledged and gone: {where}"
        assert here == taken[: len(here)], f"not what was sent: {where}"
        mine = [e for e in lost if e.get("epoch") == number]
        counted = sum(e["count"] for e in mine if e["count"] is not None)
        if epoch.ended:
            assert len(here) + counted == len(epoch.offered), f"no balance: {where}"
            assert all(e["count"] is not None for e in mine), where
        elif here:
            assert any(e["count"] is None for e in mine), f"a silent loss: {where}"


def run_all(folder: Path, seeds: Iterable[int]) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(one_run, folder / str(seed), seed) for seed in seeds]
    failures = [str(error) for run in runs if (error := run.exception()) is not None]
    assert not failures, "\n\n".join(failures)


@pytest.mark.campaign(weight=120, least=5)
def test_kills_at_seeded_moments_under_load(campaign: Campaign) -> None:
    # On a disk, with its stalls; `tmp_path` may lie in memory.
    with tempfile.TemporaryDirectory(prefix="recorder-kills-") as folder:
        for seed in campaign.seeds():  # each victim once
            first = seed * len(VICTIMS)
            run_all(Path(folder), range(first, first + len(VICTIMS)))
