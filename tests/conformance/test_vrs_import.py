"""``recorder import FILE.vrs`` against pyvrs: nothing of a file is lost, of Aria's neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.vrs.importing import read_contents
from recorder.common.files import PosixDisk
from recorder.formats.vrs import Compression, RecordType, StreamId, VrsReader, VrsWriter
from recorder.formats.vrs.headers import RECORD_HEADER_BYTES, RecordHeader
from recorder.formats.vrs.streams import unpack_description
from recorder.perception.geometry import rotation_of_quaternion
from recorder.session.reader import Session
from recorder.session.vrs.files import map_vrs_streams
from tests.acceptance.command import assert_sound, here
from tests.formats.vrs.foreign import COUNT, START_S, jpeg, raw, write_foreign
from tests.h264 import encode

pytestmark = pytest.mark.conformance
pyvrs = pytest.importorskip("pyvrs", reason="needs PyPI `vrs`: run `make conformance`")

KINDS = ("configuration", "state", "data")


def import_file(path: Path, root: Path) -> Path:
    ran = here("import", path, "--root", root, "--name", "s")
    assert (ran.code, ran.complaints) == (0, []), ran.err
    assert_sound(root / "s")
    return root / "s"


def encoded(session: Session, stream: str, channel: str) -> list[bytes]:
    reader: Any = session.streams[stream].channels[channel]
    return [bytes(reader.encoded(at)) for at in range(len(session.streams[stream]))]


def records_of(session: Session) -> Iterator[tuple[str, RecordHeader, bytes]]:
    """Stream, header and data of every record that the session has."""
    for name in session.streams:
        if name.startswith("vrs_"):
            for message in encoded(session, name, "message"):
                header = RecordHeader.unpack(message)
                yield name, header, message[RECORD_HEADER_BYTES:]


def assert_same_counts(path: Path, session: Session) -> None:
    """The session has as many records of each stream as pyvrs finds in the file."""
    theirs = pyvrs.SyncVRSReader(str(path))
    for stream in theirs.stream_ids:
        info = theirs.get_stream_info(stream)
        count = sum(info[f"{kind}_records_count"] for kind in KINDS)
        name = f"vrs_{stream}".replace("-", "_")
        assert count == len(session.streams[name]), stream
    assert len(theirs) + 1 == sum(1 for _ in records_of(session))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file with streams of many kinds, and the session that it becomes."""
    root = tmp_path_factory.mktemp("import")
    path = write_foreign(root / "other.vrs", Compression.LZ4)
    return path, import_file(path, root / "sessions")


def test_every_record_of_every_stream_is_in_the_session(imported: tuple[Path, Path]) -> None:
    path, folder = imported
    cut = {"200-1", "214-1", "214-2", "1201-1"}
    with VrsReader(path) as vrs, Session(folder) as session:
        assert session.start_ns == round(START_S * 1e9)
        assert_same_counts(path, session)
        for stream in vrs.streams:
            found = encoded(session, f"vrs_{stream}".replace("-", "_"), "message")
            for message, record in zip(found, vrs.records(stream), strict=True):
                header = RecordHeader.unpack(message)
                assert (header.stream, header.record_type) == (stream, record.record_type)
                assert header.timestamp_s == record.timestamp_s
                whole = record.payload()
                assert header.size == RECORD_HEADER_BYTES + len(whole)
                if str(stream) not in cut or record.record_type != RecordType.DATA:
                    assert message[RECORD_HEADER_BYTES:] == whole
        # Those before the keyframe are in the records.
        assert len(session.streams["forward_camera"]) == COUNT - 3


def test_pictures_and_values_survive_a_vrs_file_of_the_session(
    imported: tuple[Path, Path], tmp_path: Path
) -> None:
    _, folder = imported
    assert here("finalize", folder, "--to", "vrs", "--out", tmp_path).code == 0
    path = tmp_path / "vrs" / "s.vrs"
    theirs = pyvrs.SyncVRSReader(str(path))
    with VrsReader(path) as vrs, Session(folder) as session:
        names = map_vrs_streams({stream.id: stream.tags for stream in vrs.streams.values()})

        def find(stream: str) -> list[Any]:
            ids = str(names[stream])
            return list(theirs.filtered_by_fields(stream_ids=ids, record_types="data"))

        for stream, wanted in (
            ("rgb_camera_1", [jpeg(at) for at in range(COUNT)]),
            ("rgb_camera_2", [jpeg(at + 50) for at in range(COUNT)]),
            ("camera_slam", [raw(at) for at in range(COUNT)]),
        ):
            pictures = [np.asarray(record.image_blocks[0]).tobytes() for record in find(stream)]
            assert pictures == wanted
        units = vrs.records(names["forward_camera"], RecordType.DATA)
        assert [record.blocks()[1].data for record in units] == encode(COUNT + 2)[5:]  # type: ignore[union-attr]
        blocks = [np.asarray(record.custom_blocks[0]).tobytes() for record in find("vrs_400_1")]
        assert blocks == encoded(session, "vrs_400_1", "message")
        for at, record in enumerate(find("imu_slam")):
            values = np.arange(3, dtype=np.float32) / 3 + at
            found = dict(record.metadata_blocks[0])
            np.testing.assert_array_equal(np.float32(found["acc"]), values)
            np.testing.assert_array_equal(np.float32(found["avel"]), -values)


def test_a_recording_of_aria_is_whole_in_its_session(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "vrs" / "aria_recording.vrs"
    cameras = {
        "211-1": "eye_camera",
        "214-1": "rgb_camera",
        "1201-1": "camera_slam_1",
        "1201-2": "camera_slam_2",
    }
    imus = {"1202-1": "imu_slam_1", "1202-2": "imu_slam_2"}
    theirs = pyvrs.SyncVRSReader(str(path))
    with Session(import_file(path, tmp_path / "root")) as session:
        assert_same_counts(path, session)
        pictures = {}
        for stream, name in cameras.items():
            found = theirs.filtered_by_fields(stream_ids=stream, record_types="data")
            pictures[stream] = [np.asarray(record.image_blocks[0]).tobytes() for record in found]
            assert encoded(session, name, "video.avi") == pictures[stream]
        for stream, name in imus.items():
            found = theirs.filtered_by_fields(stream_ids=stream, record_types="data")
            values = [dict(record.metadata_blocks[0]) for record in found]
            channels = session.streams[name].channels
            for channel, label in (("acc", "accelerometer"), ("avel", "gyroscope")):
                wanted = np.array([each[label] for each in values], np.float32)
                np.testing.assert_array_equal(channels[channel].read(0, len(values)), wanted)
        again = rebuild(tmp_path / "again.vrs", session, pictures)
    sums = [pyvrs.records_checksum(str(each), False) for each in (path, again)]
    assert sums[0] == sums[1]
    assert pyvrs.SyncVRSReader(str(again)).file_tags == theirs.file_tags


def test_mounts_and_counts_are_those_of_projectaria_tools(shared_data: Path) -> None:
    module = "projectaria_tools.core"
    core = pytest.importorskip(f"{module}.data_provider", reason="needs projectaria-tools")
    path = shared_data / "vrs" / "aria_recording.vrs"
    theirs = core.create_vrs_data_provider(str(path))
    contents = read_contents(path)
    sensors = {sensor.source.rpartition("#")[2]: sensor for sensor in contents.sensors}
    mounts = 0
    for stream in theirs.get_all_streams():
        if (sensor := sensors.get(str(stream))) is None:
            continue
        assert sensor.samples == theirs.get_num_data(stream)
        if (entry := contents.calibration.get(sensor.name)) is not None:
            label = theirs.get_label_from_stream_id(stream)
            pose = theirs.get_device_calibration().get_transform_device_sensor(label).to_matrix()
            mount = entry["T_sensor_rig"]
            rotation = rotation_of_quaternion(mount["quaternion_xyzw"])
            np.testing.assert_allclose(rotation, pose[:3, :3], rtol=0, atol=1e-12)
            np.testing.assert_allclose(mount["translation_m"], pose[:3, 3], rtol=0, atol=1e-12)
            mounts += 1
    assert mounts == 5


def rebuild(path: Path, session: Session, pictures: dict[str, list[bytes]]) -> Path:
    """Write the file again of what the session has of it."""
    rows = list(records_of(session))
    ((_, head, tags),) = [row for row in rows if row[0] == "vrs_description"]
    streams, file_tags = unpack_description(tags, head.version, path)
    left = {stream: iter(each) for stream, each in pictures.items()}
    records = []
    for name, header, data in rows:
        if name == "vrs_description":
            continue
        stream = StreamId(header.type_id, header.instance)
        if len(data) + RECORD_HEADER_BYTES < header.size:  # the picture is the last block
            data += next(left[str(stream)])
        assert len(data) + RECORD_HEADER_BYTES == header.size
        records.append((header.timestamp_s, stream, header, data))
    writer = VrsWriter.create_as(path, PosixDisk(), streams, file_tags)
    for t_s, stream, header, data in sorted(records, key=lambda row: row[:2]):
        writer.put(stream, RecordType(header.record_type), header.version, t_s, [data])
    writer.finish()
    for file in writer.files:
        file.close()
    return path
