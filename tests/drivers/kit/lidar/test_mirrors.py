"""Sweeps of a lidar with turning mirrors: each mirror's passage through its field is one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.hesai.driver import HesaiDriver
from drivers.kit.lidar.simulated import SpinningScene
from drivers.kit.lidar.stream import SweepStream
from recorder.codecs.beams import BEAMS, Beams
from tests.campaigns import seeded
from tests.drivers.kit.lidar.lidars import Account, feed, make_family, make_packet
from tests.drivers.kit.lidar.test_calibration import TURN, build_mirrors
from tests.support.devices import make_driver, read_until, samples, states

BEGINS = (600_000, 3_600_000, 6_600_000)
FIELD_COLUMNS = 1200


@dataclass
class At128:
    """An AT128 in the simulated world: its packets, and a stream for them."""

    path: Path
    mode: int = 0x37

    def __post_init__(self) -> None:
        self.path.write_bytes(build_mirrors())
        family = make_family("AT128", calibration=str(self.path), noise=0.0)
        packet = make_packet("AT128", self.mode, 200)
        self.decoder: Any = family.make_decoder(packet)
        stream = family.start(packet, live=False)
        assert isinstance(stream, SweepStream)
        self.stream = stream
        (spec,) = stream.specs(finite=True)
        self.spec = spec
        beams = Beams.of_text(spec.files[BEAMS], BEAMS)
        self.scene = SpinningScene(family.sensor, self.decoder, beams)

    def send(self, turns: int) -> tuple[Any, Any]:
        packets, times = zip(*(self.scene.sweep(k) for k in range(turns)), strict=True)
        return np.concatenate(packets), np.concatenate(times)


def test_a_sweep_is_one_mirror_at_ten_hertz(tmp_path: Path) -> None:
    (tmp_path / "at.dat").write_bytes(build_mirrors())
    driver = make_driver(
        HesaiDriver, "lidar", "sim", model="AT128", calibration=str(tmp_path / "at.dat")
    )
    (spec,) = driver.open()
    items = read_until(driver, lambda found: len(samples(found)) > 6)
    driver.close()
    assert spec.rate_hz == 10.0
    mirrors = []
    for sample in samples(items)[:6]:
        there = np.asarray(sample.data["t_col"])[0] > 0
        t_col = np.asarray(sample.data["t_col"])[0][there].astype(np.int64)
        azimuth = np.asarray(sample.data["azimuth"])[0][there].astype(np.int64)
        past = [(azimuth - begin) % TURN for begin in BEGINS]
        (mirror,) = [k for k, each in enumerate(past) if each.max() < TURN // 3]
        mirrors.append(mirror)
        assert abs(len(azimuth) - FIELD_COLUMNS) < 15
        assert np.ptp(t_col) < 60_000_000
    assert mirrors in ([0, 1, 2, 0, 1, 2], [1, 2, 0, 1, 2, 0], [2, 0, 1, 2, 0, 1])
    steps_ns = np.diff([int(sample.t_ns[0]) for sample in samples(items)])
    assert np.abs(steps_ns - 100_000_000).max() < 6_000_000  # the fields' widths differ
    assert not [s for s in states(items) if "columns_missing" in s or "rate_hz" in s]


def count(account: Account, whole: int) -> int:
    return account.columns + account.total("columns_missing") + account.lost_sweeps * whole


@seeded(3, weight=6, least=100)
def test_what_is_recorded_and_counted_was_sent(tmp_path_factory: Any, seed: int) -> None:
    dice = random.Random(seed)
    lidar = At128(tmp_path_factory.mktemp("at") / "at.dat", dice.choice([0x37, 0x39]))
    packets, t_ns = lidar.send(4)
    lost: set[int] = set()
    for _ in range(dice.randrange(1, 5)):
        begin, size = dice.randrange(700, len(packets) - 2000), dice.choice([1, 40, 500, 1900])
        lost |= set(range(begin, begin + dice.randrange(1, size + 1)))
    kept = np.array([n for n in range(len(packets)) if n not in lost])
    account = feed(lidar.stream, packets[kept], t_ns[kept], batch=dice.choice([64, 500]))
    sent = len(packets) * lidar.decoder.columns
    whole = round(sent / 12)
    assert abs(count(account, whole) - sent) <= 12 * account.lost_sweeps
    sizes = [int(np.count_nonzero(sample.data["t_col"])) for sample in account.samples]
    assert max(sizes) <= whole + 15


@pytest.mark.parametrize("batch", [64, 5000])
def test_whole_sweeps_are_lost(tmp_path: Path, batch: int) -> None:
    lidar = At128(tmp_path / "at.dat")
    packets, t_ns = lidar.send(5)
    of_sweep = len(packets) // 15
    kept = np.delete(np.arange(len(packets)), np.arange(round(5.5 * of_sweep), 11 * of_sweep + 90))
    account = feed(lidar.stream, packets[kept], t_ns[kept], batch=batch)
    assert account.lost_sweeps == 5
    missing = (len(packets) - len(kept) - 5 * of_sweep) * lidar.decoder.columns
    assert abs(account.total("columns_missing") - missing) <= 60  # the fields' widths differ
    assert len(account.samples) in (10, 11)


def test_a_step_of_the_clock_is_no_loss(tmp_path: Path) -> None:
    lidar = At128(tmp_path / "at.dat")
    packets, t_ns = lidar.send(2)
    later, _ = lidar.scene.sweep(2, shift_ns=3_600_000_000_000)
    after = t_ns[: len(later)] + t_ns[-1] - t_ns[0] + 100_000
    account = feed(lidar.stream, np.concatenate([packets, later]), np.concatenate([t_ns, after]))
    assert not account.lost_sweeps and not account.total("columns_missing")
    assert len(account.samples) == 9


@pytest.mark.parametrize("mode", [0x37, 0x39])
def test_all_packets_are_in_sweeps(tmp_path: Path, mode: int) -> None:
    lidar = At128(tmp_path / "at.dat", mode)
    packets, t_ns = lidar.send(2)
    account = feed(lidar.stream, packets, t_ns)
    assert account.columns == len(packets) * lidar.decoder.columns
    assert len(account.samples) in (6, 7) and lidar.spec.rate_hz == 10.0
