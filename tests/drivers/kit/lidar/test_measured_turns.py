"""Lidars whose turns have other numbers of columns than their model's table says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.hesai.driver import HesaiDriver
from drivers.kit.driver import SensorConfig
from drivers.kit.lidar.columns import Columns
from drivers.kit.lidar.stream import COLUMNS_PER_TURN, FIRST, SPARE
from drivers.kit.lidar.sweeps import SweepAssembly
from recorder.codecs.beams import BEAMS, PACKETS, Beams
from recorder.config.options import check_options
from recorder.formats.pcap.writer import PcapWriter
from tests.drivers.kit.lidar.lidars import Account, Lidar
from tests.drivers.kit.lidar.packet_messages import HOST, SENSOR
from tests.drivers.kit.lidar.test_redecode import decode, make_driver
from tests.session.build import Builder

DENSE = 1800


def send(turns: float) -> tuple[Lidar, Any, Any]:
    """The packets of a QT128 at 10 Hz, a column each, 1800 a turn; its table has 900."""
    lidar = Lidar("QT128")
    count = round(turns * DENSE)
    columns = lidar.turn(count)
    number = np.arange(count)
    t_ns = columns.t_ns[0] + number * 100_000_000 // DENSE
    dense = Columns(
        (number * 20 % 36_000).astype("<u4"), t_ns, columns.ranges, columns.reflectivity,
        columns.confidence, columns.state,
    )  # fmt: skip
    packets, _ = lidar.send(dense)
    return lidar, packets, t_ns


def test_the_first_packets_tell_the_width(tmp_path: Path) -> None:
    lidar, packets, t_ns = send(3.0)
    stream = lidar.start(packets, packets=True)
    account = Account()
    account.take(stream.take(packets[: FIRST - 1], t_ns[: FIRST - 1], t_ns[: FIRST - 1]))
    assert account.states == []  # waits for more packets
    account.take(stream.take(packets[FIRST - 1 :], t_ns[FIRST - 1 :], t_ns[FIRST - 1 :]))
    (spec,) = stream.specs(finite=False)
    account.take(stream.finish())
    assert spec.channel("rng").shape == (128, round(DENSE * SPARE))
    assert spec.settings[COLUMNS_PER_TURN] == DENSE
    assert Beams.of_text(spec.files[BEAMS], "").column_ns == pytest.approx(1e8 / DENSE)
    assert account.columns == 3 * DENSE and account.total("columns_missing") == 0
    builder = Builder(tmp_path / "s")
    data: dict[str, Any] = {}
    for channel in spec.channels:
        values = [sample.data[channel.name] for sample in account.samples]
        kept = channel.name == PACKETS
        data[channel.name] = [v[0] for v in values] if kept else np.concatenate(values)
    builder.add(spec, count=len(account.samples), data=data)
    found, samples, _ = decode(make_driver("QT128", builder.close()))
    assert found.channels == spec.channels
    assert found.files[BEAMS] == spec.files[BEAMS]
    for mine, theirs in zip(samples, account.samples, strict=True):
        assert np.array_equal(np.asarray(mine.data["rng2"]), np.asarray(theirs.data["rng2"]))


def test_few_packets_are_not_held_back_for_ever() -> None:
    lidar, packets, t_ns = send(0.01)
    stream = lidar.start(packets)
    account = Account()
    account.take(stream.take(packets, t_ns, t_ns))
    assert account.samples == []
    account.take(stream.finish())
    assert account.columns == len(packets) == 18


def test_a_capture_tells_the_width(tmp_path: Path) -> None:
    _, packets, t_ns = send(0.1)
    path = tmp_path / "a.pcap"
    with path.open("wb") as file:
        writer = PcapWriter(file)
        for at, packet in zip(t_ns.tolist(), packets, strict=True):
            writer.write(at, SENSOR, 10000, HOST, 2368, packet.tobytes())
    options = check_options(HesaiDriver.options, {})
    driver = HesaiDriver(SensorConfig("lidar", "pcap", str(path), options))
    (spec,) = driver.open()
    driver.close()
    assert spec.channel("rng").shape == (128, round(DENSE * SPARE))


def test_a_lidar_that_does_not_turn_ends_its_sweeps() -> None:
    assembly = SweepAssembly(turn=36_000, cut=0, step=360.0)
    count = 1000
    still = Columns(
        np.full(count, 77, "<u4"), np.arange(count, dtype=np.int64),
        np.zeros((1, count, 2), "<u2"), np.zeros((1, count, 2), "u1"),
    )  # fmt: skip
    sweeps = []
    for at in range(0, count, 50):
        sweeps += list(assembly.take(still.part(at, at + 50), np.zeros(50, np.int64)))
    assert [len(sweep) for sweep in sweeps] == [450, 450]
