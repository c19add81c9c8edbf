"""Sessions as one VRS file: every stream's configuration, state and data, in order, indexed."""

from __future__ import annotations

import json
import lzma
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.context import PackingContext
from recorder.archives.finalize import ArchiveRequest, PackedArchive, finalize
from recorder.archives.validation import validate_archive
from recorder.archives.vrs.metadata_records import MetadataFile
from recorder.archives.vrs.packer import PACKER
from recorder.bus.wire import Kind
from recorder.common.errors import FormatError, SessionError
from recorder.common.files import PosixDisk
from recorder.formats.vrs import ImageContent, LayoutBlock, RecordType, VrsReader, VrsWriter
from recorder.formats.vrs.headers import INDEX_OFFSET_AT
from recorder.perception.calibration import Calibration
from recorder.session.reader import Session
from recorder.session.vrs.files import open_vrs
from recorder.session.vrs.records import ConfigurationData, StateData
from tests.acceptance.command import contents
from tests.archives.contract import backward, recovered
from tests.archives.ncore.packer_rig import add_poses
from tests.recording.writer.vrs_session import EPOCH, SPECS, Recording, stream_of
from tests.session.build import (
    START_MONO_NS,
    START_NS,
    Builder,
    build_session,
    camera_spec,
    full_session,
    imu_spec,
    radar_spec,
)
from tests.support.changes import flip

CALIBRATION = "sensors: {camera: {model: opencv-pinhole, resolution: [32, 24]}}\n"


def pack(path: Path, **options: Any) -> PackedArchive:
    (result,) = finalize(path, [ArchiveRequest("vrs", options)])
    return result


def blocks_of(vrs: VrsReader, name: str) -> list[tuple[dict[str, Any], list[Any]]]:
    """Of each data record of a stream: its values, and its other blocks."""
    made = []
    for record in vrs.records(stream_of(vrs, name), RecordType.DATA):
        blocks = record.blocks()
        values: dict[str, Any] = {}
        for block in blocks:
            if isinstance(block, LayoutBlock):
                values = {**block.as_dict(), **values}
        made.append((values, [b for b in blocks if not isinstance(b, LayoutBlock)]))
    return made


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Camera, lidar with its IMU, radar, IMU; no session.vrs."""
    return full_session(tmp_path_factory.mktemp("root") / "drive", 0.5).path


@pytest.fixture(scope="module")
def packed(session: Path) -> PackedArchive:
    return pack(session)


def test_every_sample_of_every_stream(session: Path, packed: PackedArchive) -> None:
    with Session(session) as opened, VrsReader(packed.files[0]) as vrs:
        for name, stream in opened.streams.items():
            found = blocks_of(vrs, name)
            assert len(found) == len(stream) == packed.summary["frames"][name]
            data = stream.read()
            for index, (values, blocks) in enumerate(found):
                assert values["t_mono_ns"] + _offset_ns(opened) == stream.t_ns[index]
                assert (values["seq"], values["epoch"]) == (index, 11)
                left = iter(blocks)
                for channel, expected in data.items():
                    if channel in values:
                        stored = np.asarray(values[channel], expected.dtype)
                        assert np.array_equal(stored, expected[index].reshape(stored.shape))
                        continue
                    block = next(left)
                    form = stream.meta[channel]["format"]
                    if form in ("lzmaf", "mjpg"):  # as they are stored
                        assert bytes(block.data) == stream.channels[channel].encoded(index)
                    else:
                        assert bytes(block.data) == expected[index].tobytes()
                    assert isinstance(block.content, ImageContent) == (form == "mjpg")
                assert next(left, None) is None


def _offset_ns(session: Session) -> int:
    assert session.header is not None
    return int(session.header["start_ns"] - session.header["start_mono_ns"])


def test_records_lie_in_order_of_time_and_are_indexed(packed: PackedArchive) -> None:
    with VrsReader(packed.files[0]) as vrs:
        assert (vrs.indexed, vrs.tail) == (True, None)
        stamps = [record.timestamp_s for record in vrs.records(file_order=True)]
        assert stamps == sorted(stamps)
        assert len(stamps) == packed.summary["records"]
        # Of one time by stream, as readers sort them: they find nothing to sort.
        offsets = [record.offset for record in vrs]
        assert offsets == sorted(offsets)
        for stream in vrs.streams:
            kinds = [r.record_type for r in vrs.records(stream, file_order=True)]
            assert kinds[0] is RecordType.CONFIGURATION
    assert [path.name for path in packed.files[0].parent.iterdir()] == ["drive.vrs"]


def test_samples_of_one_time_lie_in_the_order_of_their_streams(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", plain=True)
    for spec in (camera_spec("a"), radar_spec("b"), imu_spec("c"), camera_spec("d")):
        builder.add(replace(spec, rate_hz=10.0), count=4)
    path = builder.close()
    with VrsReader(pack(path).files[0]) as vrs:
        offsets = [record.offset for record in vrs]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize("plain", [False, True])
def test_what_is_told_stands_where_readers_need_it(tmp_path: Path, plain: bool) -> None:
    """Configured before the first sample even of the same time; told at a sample's time, behind."""
    builder = Builder(tmp_path / "s", plain=plain)
    for spec in (camera_spec("a"), imu_spec("b")):
        made = builder.add(replace(spec, rate_hz=10.0), count=5, epochs=((11, 0), (12, 3)))
        builder.lose(spec.name, 2, 2, t_ns=int(made.t_ns[2]), count=0)
    with VrsReader(pack(builder.close()).files[0]) as vrs:
        for name in ("a", "b"):
            records = list(vrs.records(stream_of(vrs, name), file_order=True))
            kinds = [record.record_type for record in records]
            assert kinds[0] is RecordType.CONFIGURATION
            data = [r.timestamp_s for r in records if r.record_type is RecordType.DATA]
            for number, record in enumerate(records):
                if record.record_type is RecordType.STATE and record.timestamp_s in data[1:]:
                    assert data[: data.index(record.timestamp_s) + 1] == [
                        r.timestamp_s for r in records[:number] if r.record_type is RecordType.DATA
                    ]
            assert kinds.count(RecordType.STATE) == (0 if plain else 3)


def test_what_is_known_without_a_session_vrs(session: Path, packed: PackedArchive) -> None:
    assert sum("has no session.vrs" in note for note in packed.notes) == 1
    with Session(session) as opened, VrsReader(packed.files[0]) as vrs:
        assert vrs.tags["session_id"] == "drive"
        assert vrs.tags["metadata.vehicle"] == "rig-1"
        for name, stream in opened.streams.items():
            (metadata,) = vrs.records(stream_of(vrs, name), RecordType.CONFIGURATION)
            configuration = metadata.layout(ConfigurationData)
            assert stream.spec is not None
            assert configuration.files == dict(stream.spec.files)
            declared = json.loads(configuration.declaration)["channels"]
            assert [c["name"] for c in declared] == [c.name for c in stream.spec.channels]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Three streams; the IMU's data are in session.vrs; the lidar's driver started twice."""
    made = Recording(tmp_path / "root", ["imu"])
    made.declare()
    for turn in range(4):
        made.data("camera", 2)
        made.data("imu", 5)
        made.data("lidar")
        made.tell(Kind.STATE, "lidar", temperature=40.0 + turn)
        made.writer.commit()
        if turn == 1:
            made.restart("lidar")
    made.end()
    return made


def test_session_vrs_goes_in_byte_for_byte(recording: Recording) -> None:
    (path,) = pack(recording.path).files
    with open_vrs(recording.path) as live, VrsReader(path) as vrs:
        assert vrs.tags.items() > live.tags.items()
        for name in ("", *SPECS):
            stream = stream_of(live, name)
            assert stream_of(vrs, name) == stream
            kinds = [RecordType.CONFIGURATION, RecordType.STATE]
            kinds += [RecordType.DATA] if name == "imu" else []
            for kind in kinds:
                ours = [(r.timestamp_s, r.payload()) for r in vrs.records(stream, kind)]
                assert ours == [(r.timestamp_s, r.payload()) for r in live.records(stream, kind)]
        for name in SPECS:
            sent = sum(m.count or 0 for m in recording.sent[name])
            assert len(vrs.numbers(stream_of(vrs, name), RecordType.DATA)) == sent
        states = vrs.records(stream_of(vrs, "lidar"), RecordType.STATE)
        heat = [json.loads(s.layout(StateData).values).get("temperature") for s in states]
        assert [t for t in heat if t is not None] == [40.0, 41.0, 42.0, 43.0]


def test_a_stream_whose_driver_started_twice(recording: Recording) -> None:
    (path,) = pack(recording.path).files
    with VrsReader(path) as vrs:
        epochs: list[tuple[RecordType, int]] = []
        for record in vrs.records(stream_of(vrs, "lidar"), file_order=True):
            if record.record_type is RecordType.DATA:
                block = record.blocks()[0]
                assert isinstance(block, LayoutBlock)
                epochs.append((record.record_type, block["epoch"]))
            elif record.record_type is RecordType.CONFIGURATION:
                epochs.append((record.record_type, record.layout(ConfigurationData).epoch))
    configured, data = RecordType.CONFIGURATION, RecordType.DATA
    one, other = [(data, EPOCH)] * 2, [(data, EPOCH + 1)] * 2
    assert epochs == [(configured, EPOCH), *one, (configured, EPOCH + 1), *other]


def test_what_was_sent_in_one_frame_for_several_samples(recording: Recording) -> None:
    (path,) = pack(recording.path).files
    with VrsReader(path) as vrs:
        found = blocks_of(vrs, "lidar")
        for (values, blocks), message in zip(found, recording.sent["lidar"], strict=True):
            assert bytes(values["valid"]) == lzma.decompress(message.frames[1])
            assert bytes(blocks[0].data) == bytes(message.frames[0])


def without_index(path: Path) -> None:
    """As a file that nobody has finished: the header names none, and none is there."""
    raw = bytearray(path.read_bytes())
    offset = int.from_bytes(raw[INDEX_OFFSET_AT : INDEX_OFFSET_AT + 8], "little")
    raw[INDEX_OFFSET_AT : INDEX_OFFSET_AT + 8] = bytes(8)
    path.write_bytes(raw[:offset])


def pack_into(session: Path, folder: Path) -> Path:
    """Pack a session as it is, without the checks of `finalize`."""
    folder.mkdir()
    with Session(session, virtual=True) as opened:
        context = PackingContext(opened, folder, PACKER.check({}), Calibration())
        (name,) = PACKER.pack(context).files
    return folder / name


def test_a_session_vrs_without_index_is_only_read(recording: Recording, tmp_path: Path) -> None:
    whole = pack(recording.path).files[0].read_bytes()
    without_index(recording.path / "session.vrs")
    before = contents(recording.path)
    made = pack_into(recording.path, tmp_path / "out")
    assert contents(recording.path) == before
    assert made.read_bytes()[16:] == whole[16:]  # but for the creation id
    with VrsReader(made) as vrs:
        assert vrs.indexed


def test_poses_and_labels_are_packed(tmp_path: Path) -> None:
    path = build_session(tmp_path / "s", camera_spec(), seconds=0.2).path
    t_ns = START_NS + np.arange(0, 4, dtype=np.int64) * 50_000_000
    add_poses(path, t_ns, np.stack([np.arange(4.0), np.zeros(4), np.ones(4)], 1), "_pose")
    for file, kind in (("_labels/camera", "boxes"), ("_cuboids/hand", "cuboids")):
        head = {"format": f"recorder-{kind}", "version": 1, "source": "manual"}
        times = (int(t_ns[1]), int(t_ns[1]), int(t_ns[3]))
        labels = [{"t_ns": t, "track": f"t{n}", "class": "car"} for n, t in enumerate(times)]
        (path / file).parent.mkdir()
        lines = [json.dumps(line) for line in (head, *labels)]
        (path / f"{file}.jsonl").write_text("\n".join(lines))
    result = pack(path)
    assert result.summary["frames"] == {
        "camera": 6, "_pose": 4, "_cuboids/hand": 2, "_labels/camera": 2,
    }  # fmt: skip
    offset_ns = START_NS - START_MONO_NS
    with VrsReader(result.files[0]) as vrs:
        poses = [values for values, _ in blocks_of(vrs, "_pose")]
        assert [pose["t_mono_ns"] + offset_ns for pose in poses] == t_ns.tolist()
        assert [list(pose["position_m"]) for pose in poses] == [[k, 0, 1] for k in range(4)]
        assert list(poses[0]["quaternion_xyzw"]) == [0, 0, 0, 1]
        for name in ("_labels/camera", "_cuboids/hand"):
            sets = [values for values, _ in blocks_of(vrs, name)]
            assert [one["t_mono_ns"] + offset_ns for one in sets] == [t_ns[1], t_ns[3]]
            tracks = [[label["track"] for label in json.loads(one["labels"])] for one in sets]
            assert tracks == [["t0", "t1"], ["t2"]]
            header = json.loads(vrs.streams[stream_of(vrs, name)].tags["header"])
            assert header["source"] == "manual"
        stamps = [record.timestamp_s for record in vrs]
        assert stamps == sorted(stamps)
        assert_configured(vrs)
        for name, about in (("_pose", "source"), ("_cuboids/hand", "source")):
            (record,) = vrs.records(stream_of(vrs, name), RecordType.CONFIGURATION)
            described = record.layout(ConfigurationData)
            assert described.stream == name and json.loads(described.settings)[about]
            first = next(vrs.records(stream_of(vrs, name), RecordType.DATA))
            assert record.timestamp_s == first.timestamp_s
            assert described.t_mono_ns + offset_ns in t_ns.tolist()


def assert_configured(vrs: VrsReader) -> None:
    """Every stream with data has a configuration before them, or other readers complain."""
    configured = set()
    for record in vrs:
        if record.record_type is RecordType.CONFIGURATION:
            configured.add(record.stream)
        elif record.record_type is RecordType.DATA:
            assert record.stream in configured, record.stream


def without_stream(path: Path, name: str) -> None:
    """Write a `session.vrs` anew, without the records of a stream."""
    metadata, place = MetadataFile(path), path.with_name("other.vrs")
    dropped = metadata.names[name]
    streams = {stream: tags for stream, tags in metadata.streams.items() if stream != dropped}
    writer = VrsWriter.create_as(place, PosixDisk(), streams, metadata.tags)
    for record in metadata.records():
        if record.stream != dropped:
            kind, version = record.record_type, record.version
            writer.put(record.stream, kind, version, record.timestamp_s, [record.data])
    writer.finish()
    for file in writer.files:
        file.close()
    metadata.close()
    place.replace(path)


def test_a_stream_that_session_vrs_does_not_have_is_configured(
    recording: Recording, tmp_path: Path
) -> None:
    without_stream(recording.path / "session.vrs", "camera")
    with VrsReader(pack_into(recording.path, tmp_path / "out")) as vrs:
        assert_configured(vrs)
        (record,) = vrs.records(stream_of(vrs, "camera"), RecordType.CONFIGURATION)
        about = record.layout(ConfigurationData)
        channels = [channel["name"] for channel in json.loads(about.declaration)["channels"]]
        assert (about.stream, channels) == ("camera", [c.name for c in SPECS["camera"].channels])
        assert len(vrs.numbers(stream_of(vrs, "camera"), RecordType.DATA)) == 8


def test_a_calibration_goes_into_the_tags(session: Path, tmp_path: Path) -> None:
    (tmp_path / "better.yaml").write_text(CALIBRATION)
    (result,) = finalize(
        session, [ArchiveRequest("vrs")], out=tmp_path, calibration=tmp_path / "better.yaml"
    )
    with VrsReader(result.files[0]) as vrs:
        assert vrs.tags["calibration"] == CALIBRATION
        assert len(vrs.tags["calibration_sha256"]) == 64


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_records_hold_the_same(
    session: Path, packed: PackedArchive, tmp_path: Path, compression: str
) -> None:
    step = ArchiveRequest("vrs", {"compression": compression})
    (result,) = finalize(session, [step], out=tmp_path)
    assert result.bytes < packed.bytes
    with VrsReader(packed.files[0]) as one, VrsReader(result.files[0]) as other:
        assert [r.payload() for r in one] == [r.payload() for r in other]
        assert any(r.header().uncompressed_size for r in other)


def test_a_packed_file_in_chunks(session: Path, tmp_path: Path) -> None:
    whole = pack(session).files[0].read_bytes()
    path = shutil.copytree(session, tmp_path / "drive")
    shutil.rmtree(path / "_archives")
    result = pack(path, chunk_mb=0.02)
    *others, first = result.files
    assert first.name == "drive.vrs" and len(others) > 2
    assert [file.name for file in others] == [f"drive.vrs_{n}" for n in range(1, len(result.files))]
    chunks = [file.read_bytes() for file in (first, *others)]
    assert b"".join(chunks)[16:] == whole[16:]  # but for the creation id
    sizes = [len(chunk) for chunk in chunks]
    assert all(size <= 20_000 for size in sizes[:-1])
    with VrsReader(first) as vrs:
        assert vrs.indexed and len(vrs) == result.summary["records"]
        for record in vrs:
            record.blocks()
    assert sum(sizes) == result.bytes
    fewer = pack(path, chunk_mb=0.1)
    assert {file.name for file in first.parent.iterdir()} == {f.name for f in fewer.files}
    assert validate_archive(first).problems == []
    assert pack(path).files == (first,)
    assert list(first.parent.iterdir()) == [first]


def test_a_plain_trace_with_backward_times(tmp_path: Path) -> None:
    path = backward(tmp_path / "plain")
    result = pack(path)
    assert sum("2 samples with equal or backward times" in note for note in result.notes) == 1
    with VrsReader(result.files[0]) as vrs, Session(path) as opened:
        camera = opened.streams["camera"]
        found = sorted(blocks_of(vrs, "camera"), key=lambda made: made[0]["seq"])
        assert [values["t_mono_ns"] for values, _ in found] == camera.t_ns.tolist()
        for index, (_, blocks) in enumerate(found):
            assert bytes(blocks[0].data) == camera.channels["video.avi"].encoded(index)


def test_what_is_odd_is_said_once(tmp_path: Path) -> None:
    result = pack(recovered(tmp_path / "s"))
    for sentence in ("session: recovered: ", "session: has no session.vrs"):
        assert sum(note.startswith(sentence) for note in result.notes) == 1, result.notes
    with VrsReader(result.files[0]) as vrs:
        assert [v["seq"] for v, _ in blocks_of(vrs, "camera")] == [0, 1, 2, 7, 8]
        (metadata,) = [
            record.layout(StateData)
            for record in vrs.records(stream_of(vrs, "camera"), RecordType.STATE)
            if record.layout(StateData).kind == "lost"
        ]
        assert (metadata.cause, metadata.numbers["count"]) == ("buffer", 4.0)


def test_a_trace_without_streams_is_refused(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", plain=True)
    with pytest.raises(SessionError, match="no stream to pack"):
        pack(builder.close())


def test_a_failure_names_archive_stream_and_sample(tmp_path: Path) -> None:
    path = build_session(tmp_path / "drive", radar_spec(), count=6).path
    flip(path / "radar/valid", (path / "radar/valid").stat().st_size // 2, 0xFF)
    with Session(path) as opened:
        context = PackingContext(opened, tmp_path, PACKER.check({}), Calibration())
        with pytest.raises(FormatError, match=r"^radar, sample \d: .*radar/valid"):
            PACKER.pack(context)


def test_memory_does_not_grow_with_the_session(tmp_path: Path) -> None:
    peaks = []
    for count in (40, 400):  # 1.3 and 13 MB
        builder = Builder(tmp_path / str(count))
        builder.add(radar_spec(), count=count)
        path = builder.close()
        del builder
        folder = tmp_path / f"out{count}"
        folder.mkdir()
        with Session(path) as opened:
            context = PackingContext(opened, folder, PACKER.check({}), Calibration())
            tracemalloc.start()
            PACKER.pack(context)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 500_000


def test_a_stream_without_times_is_left_out_and_told_of_once(tmp_path: Path) -> None:
    path = build_session(tmp_path / "s", imu_spec("a"), imu_spec("b"), seconds=0.2, plain=True).path
    meta = json.loads((path / "b/meta.json").read_text())
    del meta["ts"]
    (path / "b/meta.json").write_text(json.dumps(meta))
    (path / "b/ts").unlink()
    result = pack(path)
    assert [note for note in result.notes if "left out" in note and "ts'" not in note] == [
        "b: has no times: left out"
    ]
    with VrsReader(result.files[0]) as vrs:
        names = {stream.tags.get("stream") for stream in vrs.streams.values()}
        assert len(blocks_of(vrs, "a")) == 20 and "b" not in names
