"""What a VRS file becomes when it is imported: the plan, without a session."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from drivers.camera.driver import CameraDriver
from drivers.imu.driver import ImuDriver
from drivers.kit.driver import Driver
from drivers.kit.runner import make_driver
from drivers.topics.driver import TopicsDriver
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.archives.importing import Contents
from recorder.archives.vrs.importing import fits, read_contents
from recorder.common.errors import FormatError, SourceError
from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    ImageContent,
    PixelFormat,
    RecordLayout,
    RecordType,
    StreamSpec,
    VrsReader,
    VrsWriter,
)
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import add_poses
from tests.campaigns import seeded
from tests.formats.vrs.foreign import COUNT, HEIGHT, START_S, STEP_S, WIDTH, jpeg, write_foreign
from tests.session.build import START_NS, full_session
from tests.support.devices import play_out

DATA = (RecordType.DATA, 1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_foreign(tmp_path_factory.mktemp("vrs") / "other")


def write_pictures(
    path: Path, tags: dict[str, str] | None = None, **pictures: tuple[ImageContent, bytes]
) -> Path:
    specs = [
        StreamSpec(214, name, {DATA: RecordLayout(content)})
        for name, (content, _) in pictures.items()
    ]
    writer = VrsWriter.create(path, PosixDisk(), specs, tags)
    for stream, (_, data) in zip(writer.streams.values(), pictures.values(), strict=True):
        stream.write(RecordType.DATA, 2e9, data)
    writer.finish()
    for file in writer.files:
        file.close()
    return path


def becomes(contents: Contents) -> dict[str, str]:
    return {sensor.name: sensor.becomes for sensor in contents.sensors}


def test_each_stream_has_its_driver_and_all_records_are_kept(path: Path) -> None:
    assert fits(path)
    contents = read_contents(path)
    assert contents.start_ns == round(START_S * 1e9)
    assert contents.end_ns == round((START_S + (COUNT - 1) * STEP_S) * 1e9)
    found = {
        s.name: (s.driver, s.source.removeprefix(f"vrs:{path}"), s.samples)
        for s in contents.sensors
    }
    assert found == {
        "forward_camera": ("camera", "#200-1", COUNT),
        "rgb_camera_1": ("camera", "#214-1", COUNT),
        "rgb_camera_2": ("camera", "#214-2", COUNT),
        "camera_slam": ("camera", "#1201-1", COUNT),
        "imu_slam": ("imu", "#1202-1", COUNT),
        "vrs": ("topics", "", 8 * COUNT + 3 + 1),
    }
    with VrsReader(path) as vrs:
        assert len(vrs) == 8 * COUNT + 3
    sensors = {sensor.name: sensor for sensor in contents.sensors}
    assert sensors["camera_slam"].options == {"codec": "copy"}
    assert sensors["vrs"].options == {"without_pictures": ["200-1", "214-1", "214-2", "1201-1"]}
    before = "3 pictures before the first keyframe are in the records alone"
    assert list(sensors["forward_camera"].lost) == [before]
    assert contents.lost == {} and len(contents.notes) == 2


def test_pictures_that_a_camera_changes_stay_in_the_records(tmp_path: Path) -> None:
    size = {"width": WIDTH, "height": HEIGHT}
    colour = ImageContent(format="raw", pixel_format=PixelFormat.RGB8, **size)  # type: ignore[arg-type]
    depth = ImageContent(format="raw", pixel_format=PixelFormat.DEPTH32F, **size)  # type: ignore[arg-type]
    yuv = ImageContent(format="raw", pixel_format=PixelFormat.YUV_420_NV12, **size)  # type: ignore[arg-type]
    contents = read_contents(
        write_pictures(
            tmp_path / "a.vrs",
            colour=(colour, bytes(3 * WIDTH * HEIGHT)),
            depth=(depth, bytes(4 * WIDTH * HEIGHT)),
            yuv=(yuv, bytes(WIDTH * HEIGHT * 3 // 2)),
            png=(ImageContent(format="png"), bytes(cv2.imencode(".png", np.zeros((2, 2, 3)))[1])),
            jxl=(ImageContent(format="jxl"), b"\xff\x0a"),
            noise=(ImageContent(format="jpg"), b"no JPEG"),
            video=(ImageContent(format="video", codec="H.265"), b"\0\0\0\1"),
            torn=(ImageContent(format="png"), b"\x89PNG\r\n\x1a\n"),
            late=(ImageContent(format="video", codec="H.264"), b"\0\0\0\1\x41\x80"),
        )
    )
    encoded = "encoded as JPEG; the original ones are in the records"
    assert becomes(contents) == {
        "rgb_camera_1": "pictures, rgb8, encoded as JPEG; the original ones are in the records",
        "rgb_camera_3": f"pictures, yuv_420_nv12, {encoded}",
        "rgb_camera_4": "PNGs, encoded as JPEG; the original ones are in the records",
        "vrs": "every record bit for bit, and the tags",
    }
    alone = [note for note in contents.notes if note.endswith("in the records alone")]
    left = [note.partition(":")[0] for note in alone]
    assert left == [f"214-{number}" for number in (2, 5, 6, 7, 8, 9)]
    assert "depth32f" in alone[0] and "codec=H.265" in alone[3] and "keyframe" in alone[5]


def test_a_cut_file_is_noted_and_others_are_refused(path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert any(note.startswith("the file is not whole: ") for note in read_contents(cut).notes)
    (tmp_path / "head").write_bytes(path.read_bytes()[:90])
    for name, reason in (("head", "ends at byte 90"), ("text.vrs", "is no VRS file")):
        file = tmp_path / name
        if not file.exists():
            file.write_text("text" * 50)
        assert fits(file)
        with pytest.raises(FormatError, match=reason):
            read_contents(file)
    (tmp_path / "a.mcap").write_bytes(b"\x89MCAP0\r\n")
    assert not fits(tmp_path / "a.mcap") and not fits(tmp_path) and not fits(tmp_path / "none.vrs")


CALIBRATION = {"camera": {"model": "opencv-pinhole", "resolution": [32, 24]}}


def test_a_packed_session_becomes_itself(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "drive", 0.2)
    session = builder.path
    t_ns = START_NS + np.arange(0, 4, dtype=np.int64) * 50_000_000
    add_poses(session, t_ns, np.stack([np.arange(4.0), np.zeros(4), np.ones(4)], 1), "_pose")
    head = {"format": "recorder-boxes", "version": 1, "source": "manual"}
    labels = [{"t_ns": int(t), "track": "a", "class": "car"} for t in t_ns[[0, 0, 2]]]
    (session / "_labels").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in (head, *labels))
    (session / "_labels/camera.jsonl").write_text(text)
    (session / "calibration.yaml").write_text(yaml.safe_dump({"sensors": CALIBRATION}))
    (result,) = finalize(session, [ArchiveRequest("vrs", {})])
    path = result.files[0]
    contents = read_contents(path)
    assert contents.kind == "session packed as VRS"
    with Session(session) as opened:
        assert contents.start_ns == opened.first_ns
        counts = {name: len(stream) for name, stream in opened.streams.items()}
    found = {sensor.name: (sensor.source, sensor.samples) for sensor in contents.sensors}
    assert found == {
        name: (f"session:{path}#{name}", counts[name] + counts.get(f"{name}_imu", 0))
        for name in ("camera", "lidar", "radar", "imu")
    }
    assert contents.calibration == CALIBRATION
    assert [file.becomes for file in contents.files] == ["4 poses", "labels of 2 times"]
    (folder := tmp_path / "made").mkdir()
    for file in contents.files:
        if file.prepare is not None:
            file.prepare(folder)
    assert (folder / "_labels/camera.jsonl").read_text() == text
    (target := tmp_path / "new" / "_recorder").mkdir(parents=True)
    shutil.copy(session / "_recorder/session.json", target)
    for file in contents.files:
        if file.complete is not None:
            file.complete(tmp_path / "new")
    for name in ("ts", "t_mono", "pos", "rot"):
        old, new = (np.fromfile(root / "_pose" / name) for root in (session, tmp_path / "new"))
        np.testing.assert_allclose(new, old, rtol=0, atol=1e-9)


def test_damaged_labels_of_a_packed_session_are_one_error(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "drive", 0.1)
    (builder.path / "_labels").mkdir()
    head = {"format": "recorder-boxes", "version": 1, "source": "manual"}
    label = {"t_ns": START_NS + 10_000_000, "track": "a", "class": "car"}
    text = json.dumps(head) + "\n" + json.dumps(label) + "\n"
    (builder.path / "_labels/camera.jsonl").write_text(text)
    (result,) = finalize(builder.path, [ArchiveRequest("vrs", {})])
    path = result.files[0]
    data = path.read_bytes()
    path.write_bytes(data.replace(b'[{"t_ns": ', b'[["t_ns": '))
    (file,) = read_contents(path).files
    assert file.prepare is not None
    with pytest.raises(FormatError, match="labels that are no JSON list"):
        file.prepare(tmp_path)


LENS = {"Label": "camera-rgb", "Projection": {"Name": "FisheyeRadTanThinPrism", "Params": []}}


@pytest.mark.parametrize(
    ("quaternion", "translation", "is_read"),
    [
        ([0.8, [0, 0, 0.6]], [1, 2, 3], True),
        ([0.8, [0, 0, 0.7]], [1, 2, 3], False),
        ([0.8, [0, 0.6]], [1, 2, 3], False),
        ([0.8, [0, 0, 0.6]], [1, 2, float("nan")], False),
        (7, [1, 2, 3], False),
    ],
)
def test_mounts_are_those_of_arias_calibration(
    quaternion: object, translation: object, is_read: bool, tmp_path: Path
) -> None:
    pose = {"UnitQuaternion": quaternion, "Translation": translation}
    other = {"Label": "camera-et-left", "T_Device_Camera": pose}
    cameras = [LENS | {"T_Device_Camera": pose}, other]
    tags = {"calib_json": json.dumps({"CameraCalibrations": cameras})}
    jpg = (ImageContent(format="jpg"), jpeg(0))
    contents = read_contents(write_pictures(tmp_path / "a.vrs", tags, front=jpg))
    (camera,) = (sensor for sensor in contents.sensors if sensor.driver == "camera")
    if is_read:
        mount = {"translation_m": [1, 2, 3], "quaternion_xyzw": [0, 0, 0.6, 0.8]}
        assert contents.calibration == {camera.name: {"T_sensor_rig": mount}}
        (lost,) = contents.lost.values()
        assert lost.startswith("FisheyeRadTanThinPrism is no model of the recorder's")
    else:
        assert contents.calibration == {} == contents.lost
        assert any("calib_json: is no calibration of Aria" in note for note in contents.notes)


@seeded(2, weight=30, least=10)
def test_damaged_files_are_played_or_are_one_error(
    seed: int, path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    damaged = tmp_path_factory.mktemp("damaged") / "a.vrs"
    whole = path.read_bytes()
    drivers: dict[str, type[Driver]] = {"camera": CameraDriver, "imu": ImuDriver}
    for _ in range(8):
        data = bytearray(whole)
        if rng.random() < 0.25:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.choice((1, 2, 20))):
            at = rng.randrange(len(data) + 1)
            data[at : at + 4] = rng.choice(
                (b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f", rng.randbytes(4))
            )
        damaged.write_bytes(data)
        with contextlib.suppress(FormatError, SourceError):
            for sensor in read_contents(damaged).sensors:
                scheme, _, address = sensor.source.partition(":")
                entry = {"name": sensor.name, "scheme": scheme, "address": address, "pace": "max"}
                kind = drivers.get(sensor.driver, TopicsDriver)
                play_out(make_driver(kind, entry | {"options": dict(sensor.options)}))
