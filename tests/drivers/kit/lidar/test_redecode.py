"""Sweeps made again from their recorded packets are those of the recording, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.hesai.driver import HesaiDriver
from drivers.kit.driver import EndOfSource, Lost, Sample, SensorConfig
from drivers.kit.lidar.raw_packets import AGE, PACKET
from drivers.velodyne.driver import VelodyneDriver
from recorder.archives.export.chosen import with_channels
from recorder.codecs.beams import BEAMS, PACKETS
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError
from recorder.config.options import check_options
from recorder.session.playback import recorded_spec
from recorder.session.reader import Session
from tests.drivers.kit.lidar.lidars import Account, Lidar, feed
from tests.session.build import START_MONO_NS, Builder

MODELS = ["PandarXT16", "QT128", "VLP-16", "VLS-128"]


def record(
    model: str, folder: Path, chosen: slice = slice(None), lost: tuple[int, ...] = (), **loss: Any
) -> tuple[Account, StreamSpec, Path]:
    """Record some sweeps of a lidar with their packets, and leave out some of them."""
    lidar = Lidar(model, rate_hz=10.0)
    turn = round(1e9 / (lidar.decoder.column_ns * lidar.rate_hz * lidar.decoder.columns))
    packets, t_ns = lidar.send(lidar.turn(round(4.4 * turn), azimuth=lidar.decoder.turn // 3))
    kept = np.ones(len(packets), bool)
    kept[loss.get("missing", slice(0, 0))] = False
    packets, t_ns = packets[kept], t_ns[kept]
    if "swapped" in loss:
        at = loss["swapped"]
        packets[[at, at + 1]] = packets[[at + 1, at]]
    stream = lidar.start(packets, packets=True)
    (spec,) = stream.specs(finite=True)
    account = feed(stream, packets, t_ns, batch=loss.get("batch", 64), offset_ns=5_000_000)
    numbers = np.arange(len(account.samples))[chosen]
    numbers = numbers[~np.isin(numbers, lost)]
    data: dict[str, Any] = {}
    for channel in spec.channels:
        values = [account.samples[number].data[channel.name] for number in numbers]
        encoded = channel.name == PACKETS
        data[channel.name] = [v[0] for v in values] if encoded else np.concatenate(values)
    builder = Builder(folder / "s")
    builder.add(spec, seq=numbers.tolist(), data=data)
    path = builder.close()
    stamps = np.array([int(account.samples[number].t_ns[0]) for number in numbers])
    mono_ns = stamps - stamps[0] + START_MONO_NS + 1_000_000
    mono_ns.astype("<u8").tofile(path / "lidar" / "t_mono")
    account.samples = [account.samples[number] for number in numbers]
    return account, spec, path


def make_driver(model: str, path: Path, **options: Any) -> HesaiDriver | VelodyneDriver:
    kind = HesaiDriver if model not in ("VLP-16", "VLS-128") else VelodyneDriver
    given = {"model": model, "packets": True, **options}
    address = f"{path}#lidar"
    return kind(SensorConfig("roof", "packets", address, check_options(kind.options, given)))


def decode(driver: HesaiDriver | VelodyneDriver) -> tuple[StreamSpec, list[Sample], list[Lost]]:
    (spec,) = driver.open()
    samples: list[Sample] = []
    losses: list[Lost] = []
    try:
        while True:
            item = driver.read()
            samples += [item] if isinstance(item, Sample) else []
            losses += [item] if isinstance(item, Lost) else []
    except EndOfSource:
        pass
    finally:
        driver.close()
    return spec, samples, losses


def check(found: list[Sample], recorded: list[Sample], *, packets: bool = True) -> None:
    assert len(found) == len(recorded)
    for mine, theirs in zip(found, recorded, strict=True):
        assert mine.data.keys() == theirs.data.keys()
        for name, values in theirs.data.items():
            if name != PACKETS:
                assert np.array_equal(np.asarray(mine.data[name]), np.asarray(values)), name
            elif packets:
                assert mine.data[name] == values
        assert mine.t_dev_ns is not None and theirs.t_dev_ns is not None
        assert mine.t_dev_ns.tolist() == theirs.t_dev_ns.tolist()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [7, 512])
def test_all_channels_are_the_same(model: str, batch: int, tmp_path: Path) -> None:
    account, spec, path = record(model, tmp_path, batch=batch)
    assert len(account.samples) == 5
    found, samples, losses = decode(make_driver(model, path))
    assert found.channels == spec.channels and found.files[BEAMS] == spec.files[BEAMS]
    check(samples, account.samples)
    assert losses == []
    with Session(path) as session:
        stamps = session.streams["lidar"].t_ns
    assert [int(sample.t_ns[0]) for sample in samples] == stamps.tolist()


@pytest.mark.parametrize("model", MODELS)
def test_a_recording_may_begin_and_end_in_any_sweep(model: str, tmp_path: Path) -> None:
    account, _, path = record(model, tmp_path, slice(1, 4))
    _, samples, losses = decode(make_driver(model, path))
    check(samples, account.samples)
    assert len(samples) == 3 and losses == []


def test_missing_and_late_packets_are_the_same(tmp_path: Path) -> None:
    loss: dict[str, Any] = {"missing": slice(300, 420), "swapped": 700}
    account, _, path = record("PandarXT16", tmp_path, **loss)
    assert account.total("columns_missing") == 480
    _, samples, _ = decode(make_driver("PandarXT16", path))
    check(samples, account.samples)


def test_a_missing_sweep_is_counted(tmp_path: Path) -> None:
    account, _, path = record("PandarXT16", tmp_path, lost=(2,))
    _, samples, losses = decode(make_driver("PandarXT16", path))
    check(samples, account.samples, packets=False)
    assert [(lost.cause, lost.count) for lost in losses] == [("recorded", 1)]
    assert losses[0].t_ns == samples[2].t_ns[0]


def test_damaged_packets_lose_their_sweep_alone(tmp_path: Path) -> None:
    account, _, path = record("PandarXT16", tmp_path)
    offsets = np.fromfile(path / "lidar" / "packets_i", "<u8").reshape(-1, 2)[:, 0]
    file = path / "lidar" / PACKETS
    data = bytearray(file.read_bytes())
    data[int(offsets[2]) + 100] ^= 0xFF
    file.write_bytes(data)
    _, samples, losses = decode(make_driver("PandarXT16", path))
    check(samples, [s for k, s in enumerate(account.samples) if k != 2], packets=False)
    (lost,) = losses
    assert (lost.cause, lost.count) == ("corrupt", 1)
    assert "packets.bin: sample 2: " in lost.detail["reason"]


def test_a_calibration_changes_the_beams_alone(tmp_path: Path) -> None:
    account, spec, path = record("PandarXT16", tmp_path)
    angles = tmp_path / "angles.csv"
    angles.write_text("".join(f"{k},{15.5 - 2 * k},0.25\n" for k in range(16)))
    angles.write_text("Laser id,Elevation,Azimuth\n" + "".join(
        f"{k + 1},{15.5 - 2 * k},0.25\n" for k in range(16)
    ))  # fmt: skip
    options = {"calibration": str(angles), "firing_azimuth": True}
    found, samples, _ = decode(make_driver("PandarXT16", path, **options))
    check(samples, account.samples)
    assert '"calibration": "angles.csv"' in found.files[BEAMS]
    assert '"turns_while_firing": true' in found.files[BEAMS]
    assert found.files[BEAMS] != spec.files[BEAMS]


def test_the_packets_are_those_that_came(tmp_path: Path) -> None:
    """Each is in one sweep, but for those in which a sweep begins; with its arrival."""
    account, _, path = record("PandarXT16", tmp_path)
    lidar = Lidar("PandarXT16")
    turn = round(1e9 / (lidar.decoder.column_ns * lidar.rate_hz * lidar.decoder.columns))
    sent, t_ns = lidar.send(lidar.turn(round(4.4 * turn), azimuth=lidar.decoder.turn // 3))
    with Session(path) as session:
        reader: Any = session.streams["lidar"].channels[PACKETS]
        rows = [reader.sweep(k) for k in range(len(reader))]
    whole = np.concatenate([each[each["again"] == 0] for each in rows])
    assert (whole[PACKET] == sent).all()
    stamps = np.repeat([s.t_ns[0] for s in account.samples], [len(each) for each in rows])
    arrived = stamps - np.concatenate([each[AGE] for each in rows])
    assert (arrived[np.concatenate(rows)["again"] == 0] == t_ns).all()
    hosts = np.concatenate(rows)["stamp_ns"] - stamps
    assert (hosts == 5_000_000).all()


@pytest.mark.parametrize(
    ("model", "text"),
    [("PandarXT16", "has no packets: recorded without"), ("VLP-16", "is not of a VLP-16")],
)
def test_what_cannot_be_decoded_is_named(model: str, text: str, tmp_path: Path) -> None:
    if model == "PandarXT16":
        lidar = Lidar(model)
        packets, _ = lidar.send(lidar.turn(8))
        (spec,) = lidar.start(packets).specs(finite=True)
        builder = Builder(tmp_path / "s")
        builder.add(spec, count=1)
        path = builder.close()
    else:
        _, _, path = record("PandarXT16", tmp_path)
    with pytest.raises(SourceError, match=rf"roof: packets:.*#lidar: .*{text}"):
        make_driver(model, path).open()


def test_a_part_of_the_channels_is_declared_with_the_beams(tmp_path: Path) -> None:
    _, _, path = record("PandarXT32", tmp_path, slice(1, 2))
    with Session(path) as session:
        part = with_channels(session.streams["lidar"], {"rng", "azimuth", "t_col"})
        assert list(recorded_spec(part).files) == [BEAMS]
