"""pyvrs opens what sessions hold: recorded, and killed and recovered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.camera.raw_pictures import RAW_FORMATS
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.bus.wire import Kind
from recorder.common.files import PosixDisk
from recorder.formats.vrs import RecordType, VrsReader
from recorder.recording.writer.recovery import recover
from recorder.session.reader import Session
from recorder.session.vrs.files import map_vrs_streams, open_vrs
from tests.manual_clock import ManualClock
from tests.recording.writer.vrs_session import SPECS, Recording, stream_of
from tests.session.build import Builder, raw_camera_spec

pytestmark = pytest.mark.conformance
pyvrs = pytest.importorskip("pyvrs", reason="pyvrs (PyPI vrs) is not installed")


def recorded(root: Path, record_format: list[str] | None = None, **plan: Any) -> Recording:
    recording = Recording(root, list(SPECS) if record_format is None else record_format, **plan)
    recording.declare()
    for turn in range(5):
        recording.data("camera", 2)
        recording.data("imu", 7)
        recording.data("lidar")
        recording.tell(Kind.STATE, "lidar", temperature=40.0 + turn)
        recording.writer.commit()
    return recording


def hold(path: Path, recording: Recording, acknowledged: dict[str, int]) -> None:
    """Every field and block of every sample, as it was sent; at least what was acknowledged."""
    reader = pyvrs.SyncVRSReader(str(path))
    with VrsReader(path) as ours:
        ids = {name: str(stream_of(ours, name)) for name in SPECS}
        counts = {
            (str(stream), kind.name.lower()): count
            for (stream, kind), count in ours.counts().items()
        }
        assert len(reader) == len(ours)
        assert reader.file_tags == ours.tags
        assert {str(s) for s in ours.streams} == set(reader.stream_ids)
    for (stream, kind), count in counts.items():
        found = reader.filtered_by_fields(stream_ids={stream}, record_types={kind})
        assert len(found) == count
    for name, stream in ids.items():
        records = reader.filtered_by_fields(stream_ids={stream}, record_types={"data"})
        sent = [(m, at) for m in recording.sent[name] for at in range(m.count or 0)]
        assert acknowledged[name] <= len(records) <= len(sent)
        for record, (message, at) in zip(records, sent, strict=False):
            fields: dict[str, Any] = {}
            for block in record.metadata_blocks:
                fields = {**block, **fields}  # the first one's own come first
            assert (fields["seq"], fields["epoch"]) == (message.seq + at, message.epoch)
            assert fields["t_mono_ns"] == message.t_mono_ns[at]  # type: ignore[index]
            if name == "imu":
                assert fields["t_dev_ns"] == message.t_dev_ns[at]  # type: ignore[index]
                acc = np.frombuffer(message.frames[0], "<f4").reshape(-1, 3)[at]
                assert np.asarray(fields["acc"], "<f4").tobytes() == acc.tobytes()
                turn = np.frombuffer(message.frames[3], "<f8").reshape(-1, 9)[at]
                assert np.asarray(fields["turn"], "<f8").tobytes() == turn.tobytes()
            elif name == "camera":
                start = int(message.sizes[0][:at].sum())
                jpeg = message.frames[0][start : start + int(message.sizes[0][at])]
                assert np.asarray(record.image_blocks[0]).tobytes() == jpeg
            else:
                start = int(message.sizes[0][:at].sum())
                sweep = message.frames[0][start : start + int(message.sizes[0][at])]
                assert np.asarray(record.custom_blocks[0]).tobytes() == sweep
                assert len(np.asarray(record.custom_blocks[1]).tobytes()) == 8192
                nir = np.frombuffer(message.frames[3], "<u2").reshape(-1, 64, 128)[at]
                assert np.array_equal(np.asarray(record.image_blocks[0]).view("<u2"), nir)
    states = reader.filtered_by_fields(stream_ids={ids["lidar"]}, record_types={"state"})
    reported = [s.metadata_blocks[0] for s in states]
    heat = [t["numbers"]["temperature"] for t in reported if t["kind"] == "state"]
    assert heat == [40.0, 41.0, 42.0, 43.0, 44.0]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_recorded_session(tmp_path: Path, compression: str) -> None:
    recording = recorded(tmp_path, record_compression=compression)
    path = recording.end()
    counts = {n: sum(m.count or 0 for m in messages) for n, messages in recording.sent.items()}
    hold(path / "session.vrs", recording, counts)


@pytest.mark.parametrize("boot", [None, "another"])
def test_a_killed_and_recovered_session(tmp_path: Path, boot: str | None) -> None:
    recording = recorded(tmp_path)
    acknowledged = {n: sum(m.count or 0 for m in sent) for n, sent in recording.sent.items()}
    for name in SPECS:
        recording.data(name, 3)
    for file in recording.writer._files():
        file.flush()
    recording.writer.abandon()
    recover(recording.path, PosixDisk(), ManualClock(9_000_000_000), boot=boot)
    hold(recording.path / "session.vrs", recording, acknowledged)


def test_a_killed_sessions_file_as_it_lies(tmp_path: Path) -> None:
    """Without an index, and cut in the middle of a record: every whole record is read."""
    recording = recorded(tmp_path)
    recording.writer.abandon()
    path = recording.path / "session.vrs"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5)
    reader = pyvrs.SyncVRSReader(str(path))
    with open_vrs(recording.path) as ours:
        assert len(reader) == len(ours) > 50
        assert len(ours.numbers(types=RecordType.DATA)) >= 5 * 9


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"chunk_mb": 0.02}])
def test_a_session_packed_as_one_file(tmp_path: Path, options: dict[str, Any]) -> None:
    """All streams' data, of which session.vrs has the IMU's only; or as one file in chunks."""
    recording = recorded(tmp_path, ["imu"])
    path = recording.end()
    counts = {n: sum(m.count or 0 for m in messages) for n, messages in recording.sent.items()}
    (result,) = finalize(path, [ArchiveRequest("vrs", options)])
    assert (len(result.files) > 2) is ("chunk_mb" in options)
    hold(result.files[-1], recording, counts)
    reader = pyvrs.SyncVRSReader(str(result.files[-1]))
    stamps = [reader[number].timestamp for number in range(len(reader))]
    assert stamps == sorted(stamps)
    assert reader.n_records == result.summary["records"]


def test_meta_reads_poses_and_labels_without_complaint(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a stream without a configuration, Meta's reader logs an error for each record."""
    (result,) = finalize(world, [ArchiveRequest("vrs")])
    capfd.readouterr()
    reader = pyvrs.SyncVRSReader(str(result.files[0]))
    for record in reader:
        _ = record.metadata_blocks, record.image_blocks, record.custom_blocks
    assert [line for line in "".join(capfd.readouterr()).splitlines() if "ERROR" in line] == []
    with VrsReader(result.files[0]) as ours:
        ids = map_vrs_streams({s: v.tags for s, v in ours.streams.items()})
    for name in ("_pose", "_cuboids/truth", "_labels/camera"):
        stream = {str(ids[name])}
        (first,) = reader.filtered_by_fields(stream_ids=stream, record_types={"configuration"})
        assert first.metadata_blocks[0]["stream"] == name
        assert len(reader.filtered_by_fields(stream_ids=stream, record_types={"data"})) > 10


@pytest.mark.parametrize("boot", [None, "another"])
def test_a_recovered_session_packed_as_one_file(tmp_path: Path, boot: str | None) -> None:
    recording = recorded(tmp_path, ["imu"])
    acknowledged = {n: sum(m.count or 0 for m in sent) for n, sent in recording.sent.items()}
    recording.writer.abandon()
    recover(recording.path, PosixDisk(), ManualClock(9_000_000_000), boot=boot)
    (result,) = finalize(recording.path, [ArchiveRequest("vrs")])
    hold(result.files[0], recording, acknowledged)
    assert "session: recovered: its writer died, or its disk failed" in result.notes


def test_simulated_and_real_sensors_packed_as_one_file(session: Path) -> None:
    """Pictures, sweeps, IQ and IMU of whole sessions."""
    (result,) = finalize(session, [ArchiveRequest("vrs")])
    reader = pyvrs.SyncVRSReader(str(result.files[0]))
    with Session(session) as opened, VrsReader(result.files[0]) as ours:
        assert set(reader.stream_ids) == {str(s) for s in ours.streams}
        ids = map_vrs_streams({s: v.tags for s, v in ours.streams.items()})
        for name, stream in opened.streams.items():
            records = reader.filtered_by_fields(stream_ids={str(ids[name])}, record_types={"data"})
            assert len(records) == len(stream) > 0
            for index in {0, len(stream) // 2, len(stream) - 1}:
                record = records[index]
                assert record.timestamp == stream.t_ns[index : index + 1].astype("<f8")[0] / 1e9
                assert record.metadata_blocks[0]["seq"] == stream.sample(index, ["seq"])["seq"]
                hold_channels(stream, index, record)
    if result.files[0].parent.parent.name == "_archives":
        result.files[0].unlink()


def hold_channels(stream: Any, index: int, record: Any) -> None:
    images, customs = iter(record.image_blocks), iter(record.custom_blocks)
    fields: dict[str, Any] = {}
    for block in record.metadata_blocks:
        fields = {**block, **fields}
    for channel in stream.data_channels:
        form = stream.meta[channel]["format"]
        if form == "mjpg":
            assert np.asarray(next(images)).tobytes() == stream.channels[channel].encoded(index)
        elif form == "lzmaf":
            assert np.asarray(next(customs)).tobytes() == stream.channels[channel].encoded(index)
        else:
            values = stream.sample(index, [channel])[channel]
            found = fields.get(channel)
            found = next(customs) if found is None else found
            stored = np.asarray(found)
            if stored.dtype != values.dtype and channel in fields:
                stored = stored.astype(values.dtype)
            assert stored.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "name", ["SRGGB8", "SBGGR8", "SGBRG8", "SGRBG8", "SGBRG10", "SBGGR10", "SRGGB12", "Y10", "Y16"]
)
def test_raw_pictures_are_images_with_all_bits(tmp_path: Path, name: str) -> None:
    pixels = RAW_FORMATS[name].pixels
    builder = Builder(tmp_path / "drive")
    put = builder.add(raw_camera_spec(pixels=pixels), 0.2)
    (result,) = finalize(builder.close(), [ArchiveRequest("vrs", {})])
    reader = pyvrs.SyncVRSReader(str(result.files[0]))
    with VrsReader(result.files[0]) as ours:
        stream = str(stream_of(ours, "camera"))
    records = reader.filtered_by_fields(stream_ids={stream}, record_types={"data"})
    for record, value in zip(records, put.data[pixels.channel], strict=True):
        (image,) = record.image_blocks
        np.testing.assert_array_equal(np.asarray(image), value)
