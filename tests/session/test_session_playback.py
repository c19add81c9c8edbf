"""Playback, and the session source of the driver kit."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.kit.driver import EndOfSource, Lost, Sample, SensorConfig
from drivers.kit.encode import Encoder
from drivers.kit.session_source import SessionSource
from drivers.kit.stamps import Timeline
from recorder.codecs.storage import open_channel
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError, SourceError
from recorder.session import playback
from recorder.session.loss_accounts import Gap, gaps
from recorder.session.playback import Chunk, Hole, play, recorded_spec
from recorder.session.reader import Session
from recorder.session.stream import Stream
from tests.codecs.blob_kit import write_blobs
from tests.session.build import (
    START_NS,
    Builder,
    build_session,
    camera_spec,
    full_session,
    imu_spec,
    lidar_spec,
    radar_spec,
)
from tests.support.changes import flip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return full_session(tmp_path_factory.mktemp("root") / "rig", 0.6)


def source(
    path: Path, name: str, sensor: str | None = None, *, loop: bool = False
) -> SessionSource:
    address = str(path) + (f"#{sensor}" if sensor else "")
    return SessionSource(SensorConfig(name, "session", address, {}, loop=loop))


def items_of(driver: SessionSource) -> Iterator[Sample | Lost]:
    while True:
        try:
            item = driver.read()
        except EndOfSource:
            return
        assert isinstance(item, Sample | Lost)
        yield item


def stored(path: Path, stream: str, channel: str) -> bytes:
    meta = json.loads((path / stream / "meta.json").read_text())
    with open_channel(path / stream, channel, meta[channel]) as reader:
        return b"".join(reader.encoded(i) for i in range(len(reader)))


# Gaps


def numbered(tmp_path: Path, seq: list[int], epochs: list[tuple[int, int]] | None) -> list[Gap]:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), seq=seq, epochs=epochs or [(11, 0)])
    builder.close("recording" if epochs is None else "clean")
    with Session(builder.path) as session:
        return list(gaps(session.streams["imu"]))


def test_gaps_within_told_epochs(tmp_path: Path) -> None:
    seq = [2, 3, 7, 8, 0, 1, 9, 12]
    found = numbered(tmp_path, seq, [(5, 0), (6, 4), (7, 6)])
    assert found == [Gap(0, 0, 0, 1), Gap(2, 0, 4, 6), Gap(6, 2, 0, 8), Gap(7, 2, 10, 11)]
    assert [gap.count for gap in found] == [2, 3, 9, 2]


def test_gaps_with_epochs_that_are_not_told(tmp_path: Path) -> None:
    found = numbered(tmp_path, [0, 1, 4, 0, 1, 3], None)
    assert found == [Gap(2, 0, 2, 3), Gap(5, 1, 2, 2)]


def test_gaps_across_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    seq = np.flatnonzero(rng.random(500) < 0.6).tolist() + list(range(4, 40))
    epochs = [(1, 0), (2, len(seq) - 36)]
    whole = numbered(tmp_path / "whole", seq, epochs)
    assert sum(gap.count for gap in whole) == seq[-37] + 1 - (len(seq) - 36) + 4
    for window in (1, 2, 7, 64):
        monkeypatch.setattr("recorder.session.loss_accounts.WINDOW", window)
        assert numbered(tmp_path / str(window), seq, epochs) == whole


# Playback


def test_a_100_hz_imu_comes_sample_by_sample(built: Builder) -> None:
    with Session(built.path) as session:
        chunks = [c for c in play(session, ["imu"]) if isinstance(c, Chunk)]
    assert [c.start for c in chunks] == list(range(60))


def test_a_fast_imu_comes_in_batches(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    made = builder.add(imu_spec(rate_hz=1000.0), seq=[*range(505), *range(510, 3000)])
    builder.close()
    with Session(builder.path) as session:
        items = list(play(session))
    chunks = [c for c in items if isinstance(c, Chunk)]
    assert all(c.t_ns[-1] - c.t_ns[0] <= 8_000_000 for c in chunks)
    assert len(chunks) < 3000 / 7
    np.testing.assert_array_equal(np.concatenate([c.t_ns for c in chunks]), made.t_ns)
    np.testing.assert_array_equal(
        np.concatenate([np.asarray(c.data["acc"]) for c in chunks]), made.data["acc"]
    )
    at = items.index(Hole("imu", int(made.t_ns[505]), 5))
    before, after = items[at - 1], items[at + 1]
    assert isinstance(before, Chunk) and isinstance(after, Chunk)
    assert before.seq + len(before.t_ns) == 505 and after.seq == 510


def test_small_samples_are_read_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(tmp_path / "rig")
    recorded = builder.add(imu_spec(), 15.0, seq=[*range(700), *range(702, 1502)])
    with Session(builder.close()) as session:
        reads = []
        real = playback.read_chunk

        def counted(stream: Stream, start: int, seq: int, times: Any) -> Chunk:
            reads.append((start, start + len(times)))
            return real(stream, start, seq, times)

        monkeypatch.setattr(playback, "read_chunk", counted)
        items = list(play(session, ["imu"]))
    assert reads == [(0, 1024), (1024, 1500)]
    chunks = [item for item in items if isinstance(item, Chunk)]
    assert [chunk.seq for chunk in chunks] == recorded.seq.tolist()
    assert [item.count for item in items if isinstance(item, Hole)] == [2]
    for name, values in recorded.data.items():
        np.testing.assert_array_equal(np.concatenate([c.data[name] for c in chunks]), values)
    assert recorded.t_dev_ns is not None
    devices = [c.t_dev_ns for c in chunks if c.t_dev_ns is not None]
    np.testing.assert_array_equal(np.concatenate(devices), recorded.t_dev_ns)


def test_small_samples_before_damage_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), 0.2)
    real = playback.read_chunk

    def damaged(stream: Stream, start: int, seq: int, times: Any) -> Chunk:
        if start <= 12 < start + len(times):
            raise FormatError("acc: sample 12")
        return real(stream, start, seq, times)

    monkeypatch.setattr(playback, "read_chunk", damaged)
    played = []
    with Session(builder.close()) as session, pytest.raises(FormatError, match="sample 12"):
        for item in play(session, ["imu"]):
            assert isinstance(item, Chunk)
            played.append(item.start)
    assert played == [*range(12)]


def test_playback_is_in_order_and_can_begin_later(built: Builder) -> None:
    def due(item: Chunk | Hole) -> int:
        return int(item.t_ns[-1]) if isinstance(item, Chunk) else item.t_ns

    with Session(built.path) as session:
        items = list(play(session))
        assert [due(i) for i in items] == sorted(due(i) for i in items)
        later = list(play(session, start_ns=START_NS + 300_000_000))
        first = {i.stream: i for i in reversed(later) if isinstance(i, Chunk)}
        for name, made in built.streams.items():
            assert first[name].start == np.searchsorted(made.t_ns, START_NS + 300_000_000)


def test_losses_that_no_gap_shows(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), seq=[*range(5), *range(8, 20)])
    builder.lose("imu", 5, 7)
    builder.lose("imu", 20, 24, t_ns=START_NS + 900_000_000)
    builder.lose("imu", 25, None, "driver", count=None, estimate=9, t_ns=START_NS + 950_000_000)
    builder.close()
    with Session(builder.path) as session:
        holes = [i for i in play(session) if isinstance(i, Hole)]
    assert holes == [
        Hole("imu", int(builder.streams["imu"].t_ns[5]), 3),
        Hole("imu", START_NS + 900_000_000, 5, None, "buffer"),
        Hole("imu", START_NS + 950_000_000, None, 9, "driver"),
    ]


def test_specs_of_a_plain_trace_are_those_of_the_recording(tmp_path: Path) -> None:
    plain = full_session(tmp_path / "plain", 1.0, plain=True)
    with Session(plain.path) as session:
        for name, made in plain.streams.items():
            spec = recorded_spec(session.streams[name])
            assert spec.rate_hz == pytest.approx(made.spec.rate_hz, rel=1e-3)
            assert spec.bytes_per_sample > 0 and spec.finite
            as_recorded = replace(
                made.spec,
                rate_hz=spec.rate_hz,
                bytes_per_sample=spec.bytes_per_sample,
                device_clock=False,
                finite=True,
                channels=tuple(replace(c, delta=False) for c in made.spec.channels),
            )
            assert spec == as_recorded


def test_blob_channels_become_recorded_ones(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    folder = trace / "camera"
    folder.mkdir(parents=True)
    (trace / "config.yaml").write_text("{}")
    images = [np.full((16, 16, 3), 20 * i, np.uint8) for i in range(5)]
    masks = [np.full((4, 4), i, np.uint8) for i in range(5)]
    meta = {
        "ts": {"format": "raw", "type": "f8", "shape": [], "desc": ""},
        "image": write_blobs(folder, "image", "jpg", images),
        "mask": write_blobs(folder, "mask", "npz", masks),
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    (np.arange(5, dtype="<f8") / 10 + 1.7e9).tofile(folder / "ts")
    driver = source(trace, "camera")
    (spec,) = driver.open()
    assert [c.format for c in spec.channels] == ["mjpg", "lzmaf"]
    encoder = Encoder(spec)
    jpegs = []
    for i, item in enumerate(items_of(driver)):
        assert isinstance(item, Sample)
        frames, sizes = encoder.encode(item)
        jpegs += [bytes(frames[0])]
        assert lzma.decompress(frames[1]) == bytes([i] * 16) and len(sizes) == 2
    assert jpegs == [(folder / "image" / f"{i:06d}.jpg").read_bytes() for i in range(5)]
    encoder.close()
    driver.close()


def test_intrinsics_that_cannot_be_read(tmp_path: Path) -> None:
    path = full_session(tmp_path / "rig", 0.2).path
    (path / "radar" / "radar.json").write_bytes(b"\xff\xfe")
    with Session(path) as session, pytest.raises(FormatError, match=r"radar\.json: is no text"):
        recorded_spec(session.streams["radar"])
    (path / "radar" / "radar.json").unlink()
    with Session(path) as session, pytest.raises(FormatError, match=r"radar\.json: cannot be"):
        recorded_spec(session.streams["radar"])


# The source


@pytest.mark.parametrize("sensor", ["camera", "lidar", "radar", "imu"])
def test_the_source_hands_on_identical_payloads(built: Builder, sensor: str) -> None:
    driver = source(built.path, sensor)
    specs = {spec.name: spec for spec in driver.open()}
    encoders = {name: Encoder(spec) for name, spec in specs.items()}
    payload: dict[tuple[str, str], bytearray] = {}
    times: dict[str, list[int]] = {name: [] for name in specs}
    devices: dict[str, list[int]] = {name: [] for name in specs}
    for item in items_of(driver):
        assert isinstance(item, Sample)
        frames, _ = encoders[item.stream].encode(item)
        for channel, frame in zip(specs[item.stream].channels, frames, strict=True):
            key = (item.stream, channel.name)
            payload.setdefault(key, bytearray()).extend(
                lzma.decompress(frame) if channel.format == "lzma" else frame
            )
        times[item.stream] += item.t_ns.tolist()
        if item.t_dev_ns is not None:
            devices[item.stream] += item.t_dev_ns.tolist()
    assert set(specs) == {n for n in built.streams if n == sensor or n == sensor + "_imu"} - (
        {"imu"} if sensor != "imu" else set()
    )
    for name, spec in specs.items():
        made = built.streams[name]
        assert spec == replace(made.spec, finite=True)
        assert times[name] == made.t_ns.tolist()
        if made.t_dev_ns is not None:
            assert devices[name] == made.t_dev_ns.tolist()
        for channel in spec.channels:
            assert payload[(name, channel.name)] == stored(built.path, name, channel.name)
    assert driver.origin_ns == min(int(s.t_ns[0]) for s in built.streams.values())
    for encoder in encoders.values():
        encoder.close()
    driver.close()


def test_another_name_takes_all_streams_of_the_sensor(built: Builder) -> None:
    driver = source(built.path, "roof", "lidar")
    assert [spec.name for spec in driver.open()] == ["roof", "roof_imu"]
    streams = {item.stream for item in items_of(driver)}
    assert streams == {"roof", "roof_imu"}
    driver.close()


def test_sensors_whose_names_begin_alike_are_kept_apart(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    for name in ("camera", "camera_left"):
        builder.add(camera_spec(name), 0.2)
    builder.close()
    for sensor in ("camera", "camera_left"):
        driver = source(builder.path, "front", sensor)
        assert [spec.name for spec in driver.open()] == ["front"]
        assert len(list(items_of(driver))) == 6
        driver.close()


def test_a_folder_may_have_a_hash_in_its_name(tmp_path: Path) -> None:
    path = full_session(tmp_path / "run#3", 0.2).path
    for driver in (source(path, "imu"), source(path, "x", "imu")):
        assert len(driver.open()) == 1
        driver.close()


def test_relative_times_of_several_sensors_survive_the_timeline(built: Builder) -> None:
    new: dict[str, list[int]] = {}
    for sensor in ("camera", "lidar", "radar", "imu"):
        driver = source(built.path, sensor)
        specs = {spec.name: spec for spec in driver.open()}
        timeline = Timeline(specs, 10**15, driver.origin_ns)
        for item in items_of(driver):
            timeline.place(item)
            assert isinstance(item, Sample)
            new.setdefault(item.stream, []).extend(item.t_ns.tolist())
        driver.close()
    origin = min(int(s.t_ns[0]) for s in built.streams.values())
    for name, made in built.streams.items():
        assert new[name] == (made.t_ns - origin + 10**15).tolist()


def test_a_loop_moves_device_times_in_columns_too(built: Builder) -> None:
    driver = source(built.path, "lidar", loop=True)
    specs = {spec.name: spec for spec in driver.open()}
    timeline = Timeline(specs, 0, driver.origin_ns)
    laps: list[list[npt.NDArray[Any]]] = []
    for _ in range(2):
        columns = []
        for item in items_of(driver):
            timeline.place(item)
            if isinstance(item, Sample) and item.stream == "lidar":
                columns.append(np.asarray(item.data["t_col"]).astype(np.int64))
        laps.append(columns)
        driver.close()
        driver.open()
        timeline.loop()
    moved = np.unique((np.array(laps[1]) - np.array(laps[0]))[np.array(laps[0]) != 0])
    assert len(moved) == 1 and 0.55e9 < moved[0] < 0.75e9
    driver.close()


def test_recorded_losses_are_told_once_each(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), seq=[*range(3, 10), *range(12, 20)])
    builder.lose("imu", 0, 2)
    builder.lose("imu", 10, 11)
    builder.lose("imu", 20, 21, t_ns=START_NS + 900_000_000)
    builder.lose("imu", 22, None, "driver", count=None, estimate=3, t_ns=START_NS + 10**9)
    builder.close()
    driver = source(builder.path, "imu")
    driver.open()
    lost = [item for item in items_of(driver) if isinstance(item, Lost)]
    assert [(i.cause, i.count, i.estimate) for i in lost] == [
        ("recorded", 3, None),
        ("recorded", 2, None),
        ("recorded", 2, None),
        ("recorded", None, 3),
    ]
    assert lost[2].detail == {"recorded_cause": "buffer"}
    driver.close()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nothing", "no such session folder"),
        (".", "is no session"),
        ("rig#gnss", "no sensor 'gnss' was recorded; the sensors are: camera, lidar, radar, imu"),
        ("rig#lidar_imu", "no sensor 'lidar_imu'"),
        ("broken#imu", r"meta\.json: not JSON"),
        ("empty#imu", "has no sample"),
    ],
)
def test_sources_that_cannot_be_played(tmp_path: Path, address: str, message: str) -> None:
    full_session(tmp_path / "rig", 0.1)
    broken = full_session(tmp_path / "broken", 0.1)
    (broken.path / "imu" / "meta.json").write_text("{")
    build_session(tmp_path / "empty", imu_spec(), count=0)
    driver = SessionSource(SensorConfig("car", "session", str(tmp_path / address), {}))
    with pytest.raises(SourceError, match=message) as error:
        driver.open()
    assert str(error.value).startswith("car: session:") and error.value.exit_code == 2
    driver.close()


def test_a_source_that_breaks_in_the_middle(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(lidar_spec(), 1.0)
    path = builder.close() / "lidar" / "t_col"
    driver = source(builder.path, "lidar", loop=True)  # decodes t_col
    driver.open()
    flip(path, int(np.fromfile(path.with_name("t_col_i"), "<u8")[4]) + 30, 0xFF)
    items = items_of(driver)
    assert len([next(items) for _ in range(4)]) == 4
    with pytest.raises(SourceError, match="t_col: sample 4"):
        next(items)
    driver.close()


def test_a_raw_stream_declares_what_it_is(built: Builder) -> None:
    with Session(built.path) as session:
        assert recorded_spec(session.streams["radar"]) == replace(radar_spec(), finite=True)
        channel = recorded_spec(session.streams["radar"]).channel("iq")
    assert isinstance(channel, ChannelSpec)
