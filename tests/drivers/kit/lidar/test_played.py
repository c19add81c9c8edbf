"""Captures of lidars, played by their drivers: every value, every loss, every change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.hesai.driver import HesaiDriver
from drivers.hesai.models import MODELS as HESAI
from drivers.kit.driver import EndOfSource, SensorConfig
from drivers.velodyne.driver import VelodyneDriver
from recorder.common.errors import SourceError
from recorder.config.options import check_options
from recorder.formats.pcap.writer import MAPPED, PcapWriter
from tests.drivers.kit.lidar.lidars import Account, Lidar, Packets, Times

SENSOR, OTHER, HOST = (MAPPED + bytes((192, 168, 1, last)) for last in (201, 202, 100))


def write(path: Path, packets: Packets, t_ns: Times, source: bytes = SENSOR) -> None:
    """Append packets to a capture that may be there."""
    with path.open("ab" if path.exists() else "wb") as file:
        writer = PcapWriter.__new__(PcapWriter) if file.tell() else PcapWriter(file)
        writer._file = file
        for packet, at_ns in zip(packets, t_ns.tolist(), strict=True):
            writer.write(at_ns, source, 2368, HOST, 2368, packet.tobytes())


def make_driver(path: Path, vendors_model: str, **options: Any) -> Any:
    driver = HesaiDriver if vendors_model in HESAI else VelodyneDriver
    return driver(SensorConfig("lidar", "pcap", str(path), check_options(driver.options, options)))


def play(driver: Any) -> Account:
    account = Account()
    driver.open()
    try:
        while True:
            account.take([driver.read()])
    except EndOfSource:
        return account
    finally:
        driver.close()


@pytest.mark.parametrize(
    "model", ["PandarXT32", "Pandar64", "QT128", "VLP-16", "VLP-32C", "VLS-128"]
)
def test_every_value_is_recorded(model: str, tmp_path: Path) -> None:
    lidar = Lidar(model)
    per_turn = int(1e9 / lidar.rate_hz / lidar.decoder.column_ns)
    columns = lidar.turn(2 * per_turn // lidar.decoder.columns)
    packets, t_ns = lidar.send(columns)
    write(tmp_path / "a.pcap", packets, t_ns)
    account = play(make_driver(tmp_path / "a.pcap", model, model=model))
    assert not account.total("columns_missing") and not account.lost_sweeps
    samples = account.samples
    widths = [np.count_nonzero(sample.data["t_col"]) for sample in samples]
    assert sum(widths) == len(columns.azimuth) and len(samples) in (2, 3)

    def join(name: str) -> Any:
        parts = [np.asarray(s.data[name])[0] for s in samples]
        return np.concatenate(
            [p[..., :width] for p, width in zip(parts, widths, strict=True)], axis=-1
        )

    for number, mark in enumerate(("", "2")):
        assert np.array_equal(join(f"rng{mark}"), columns.ranges[number].T)
        assert np.array_equal(join(f"rfl{mark}"), columns.reflectivity[number].T)
    if columns.confidence is not None:
        assert np.array_equal(join("conf2"), columns.confidence[1].T)
    assert np.abs(join("t_col").astype(np.int64) - columns.t_ns).max() <= 1000
    assert all(
        (np.asarray(s.data["rng"])[0][:, w:] == 0).all()
        for s, w in zip(samples, widths, strict=True)
    )


@pytest.mark.parametrize("model", ["PandarXT32", "VLP-16"])
def test_a_cut_moves_the_begin_of_sweeps(model: str, tmp_path: Path) -> None:
    lidar = Lidar(model)
    packets, t_ns = lidar.send(lidar.turn(900))
    write(tmp_path / "a.pcap", packets, t_ns)
    account = play(make_driver(tmp_path / "a.pcap", model, cut_deg=90.0))
    begins = [int(np.asarray(s.data["azimuth"])[0, 0]) for s in account.samples]
    assert begins[0] == 0 and all(9000 <= begin < 9040 for begin in begins[1:])


def test_a_change_of_the_returns_ends_a_capture_by_name(tmp_path: Path) -> None:
    lidar, later = Lidar("PandarXT32", 0x39), Lidar("PandarXT32", 0x37)
    packets, t_ns = lidar.send(lidar.turn(500))
    then, _ = later.send(later.turn(100))
    path = tmp_path / "a.pcap"
    write(path, packets, t_ns)
    write(path, then, t_ns[-1] + np.arange(1, 101) * 1_000_000)
    driver, account = make_driver(path, "PandarXT32"), Account()
    driver.open()
    with pytest.raises(SourceError, match="the returns strongest, 1080 bytes each from here on"):
        while True:
            account.take([driver.read()])
    assert account.columns == 500 * lidar.decoder.columns
    driver.close()


def test_another_lidar_in_the_capture_is_not_recorded(tmp_path: Path) -> None:
    lidar, path = Lidar("VLP-16", 0x37), tmp_path / "a.pcap"
    packets, t_ns = lidar.send(lidar.turn(100))
    for at in range(0, 100, 10):
        write(path, packets[at : at + 10], t_ns[at : at + 10])
        write(path, packets[at : at + 5], t_ns[at : at + 5], OTHER)
    account = play(make_driver(path, "VLP-16"))
    assert account.columns == 2400 and not account.total("packets_repeated")


@pytest.mark.parametrize(
    ("model", "wanted", "fault"),
    [
        ("PandarXT32", "QT128", "a packet of 1080 bytes that begins with ee ff 06 01"),
        ("VLP-16", "VLP-32C", "a packet of a VLP-16, not of a VLP-32C"),
        ("VLP-16", "HDL-64E S3", "whose blocks are not of the two banks of a HDL-64E S3"),
    ],
)
def test_a_capture_of_another_model_is_named(
    model: str, wanted: str, fault: str, tmp_path: Path
) -> None:
    lidar = Lidar(model, 0x37)
    write(tmp_path / "a.pcap", *lidar.send(lidar.turn(20)))
    with pytest.raises(SourceError, match=fault):
        make_driver(tmp_path / "a.pcap", model, model=wanted).open()
