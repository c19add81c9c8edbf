"""NCore sequences become sessions again: what is kept bit for bit, what is refused."""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.dataset_source import DatasetSource
from drivers.kit.driver import EndOfSource, Lost, Sample, SensorConfig
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.archives.ncore import SequenceWriter
from recorder.archives.ncore.importing import fits, read_contents
from recorder.cli import main
from recorder.common.errors import FormatError, SourceError
from recorder.formats.ncore.sequence import NcoreSequence
from recorder.formats.pcd import decode_pcd
from recorder.formats.png import encode_png
from recorder.formats.zarr2 import open_store, read_array
from recorder.perception.calibration import read_calibration, session_calibration
from recorder.perception.lidar.clouds import make_point_source
from recorder.session.reader import Session
from tests.acceptance.command import assert_sound
from tests.archives.ncore import build
from tests.archives.ncore.packer_rig import CALIBRATION, add_poses, rig
from tests.session.build import START_NS

ARCHIVES = ("ncore", "edgefirst", "l5kit", "mcap")
CUBOIDS = [
    {"format": "recorder-cuboids", "version": 1, "source": "manual", "labeller": "a"},
    {
        "t_ns": START_NS // 1000 * 1000 + 100_000_000, "frame": "rig", "track": "t1",
        "class": "car", "center_m": [10.0, -2.0, 0.5], "size_m": [4.0, 1.8, 1.5],
        "quaternion_xyzw": [0.0, 0.0, 0.6, 0.8],
    },
]  # fmt: skip
BOXES = [
    {"format": "recorder-boxes", "version": 1, "source": "manual"},
    {
        "t_ns": START_NS + 70_000_000,
        "frame": 2,
        "track": "t",
        "class": "car",
        "box_px": [1, 2, 3, 4],
    },
]


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write_lines(path: Path, lines: list[Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sequence of ours, of a session with labels, a mask and poses."""
    path = tmp_path_factory.mktemp("packed") / "drive"
    builder = rig(path, 0.3)
    builder.close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    t_ns = START_NS + np.arange(0, 400, 10) * 1_000_000
    places = np.cumsum(np.random.default_rng(1).normal(size=(len(t_ns), 3)), axis=0)
    add_poses(path, t_ns, places, "_pose")
    _write_lines(path / "_cuboids" / "hand.jsonl", CUBOIDS)
    _write_lines(path / "_labels" / "camera.jsonl", BOXES)
    (path / "_masks" / "camera").mkdir(parents=True)
    mask = np.zeros((24, 32), np.uint8)
    mask[20:] = 255
    import cv2

    cv2.imwrite(str(path / "_masks" / "camera" / "ego.png"), mask)
    list(finalize(path, [ArchiveRequest("ncore")]))
    return path / "_archives" / "ncore" / "drive.json"


def _assert_same_frames(first: Path, second: Path, *, count: int) -> None:
    """Compare all frames of cameras, lidars and radars, bit for bit."""
    a, b = NcoreSequence(first), NcoreSequence(second)
    compared = 0
    for component in ("cameras", "lidars", "radars"):
        assert a.instances(component).keys() == b.instances(component).keys()
        for name, one in a.instances(component).items():
            other = b.instances(component)[name]
            assert np.array_equal(one.frames_us(), other.frames_us())
            for end_us in one.frames_us()[:, 1].tolist():
                compared += 1
                frame = f"frames/{end_us}"
                if component == "cameras":
                    assert one.encoded(f"{frame}/image") == other.encoded(f"{frame}/image")
                    continue
                for group in ("ray_bundle", "ray_bundle_returns", "generic_data"):
                    names = one.children(f"{frame}/{group}")
                    assert other.children(f"{frame}/{group}") == names
                    for array in names:
                        path = f"{frame}/{group}/{array}"
                        left, right = one.array(path), other.array(path)
                        assert (left.dtype, left.shape) == (right.dtype, right.shape), path
                        assert left.tobytes() == right.tobytes(), path
    assert compared == count


def _check_samples(packed: Path, path: Path) -> None:
    with Session(packed.parents[2]) as first, Session(path) as session:
        assert {n: len(s) for n, s in session.streams.items()} == {
            "camera": 9, "lidar": 3, "radar": 6, "imu": 30,
        }  # fmt: skip
        for index in range(9):
            both = [one.streams["camera"].channels["video.avi"] for one in (first, session)]
            assert both[0].encoded(index) == both[1].encoded(index)
        old, new = first.streams["imu"], session.streams["imu"]
        assert np.array_equal(new.t_ns, old.t_ns)
        for channel in ("acc", "avel", "rot"):
            left, right = new.read(0, 30)[channel], old.read(0, 30)[channel]
            assert np.array_equal(left, right, equal_nan=True)


def _check_poses(packed: Path, path: Path) -> None:
    poses = NcoreSequence(packed).instance("poses")
    assert poses is not None
    stored = poses.attributes("dynamic_poses")["('rig', 'world')"]
    wanted = np.array(stored["poses"])
    pos = np.fromfile(path / "_pose" / "pos").reshape(-1, 3)
    rot = np.fromfile(path / "_pose" / "rot").reshape(-1, 3, 3)
    assert np.allclose(pos, wanted[:, :3, 3], rtol=0, atol=1e-9)
    assert np.allclose(rot, wanted[:, :3, :3], rtol=0, atol=1e-9)
    header = json.loads((path / "_recorder" / "session.json").read_bytes())
    shift_ns = header["start_ns"] - header["start_mono_ns"]
    t_ns = np.fromfile(path / "_pose" / "t_mono", "<u8").astype(np.int64) + shift_ns
    assert (t_ns // 1000).tolist() == stored["timestamps_us"]
    calibration, before = session_calibration(path), session_calibration(packed.parents[2])
    for name in ("camera", "imu"):
        mine, theirs = calibration.of(name), before.of(name)
        assert mine.pose is not None and theirs.pose is not None
        assert np.allclose(mine.pose, theirs.pose, rtol=0, atol=1e-9)
        assert (mine.model, mine.resolution) == (theirs.model, theirs.resolution)
    assert calibration.of("camera").parameters["fx"] == 30
    assert calibration.of("camera").parameters["k1"] == pytest.approx(0.1, abs=1e-8)


def _check_labels(packed: Path, path: Path) -> None:
    head, line = _lines(path / "_cuboids" / "hand.jsonl")
    assert head == CUBOIDS[0]
    assert line.pop("center_m") == pytest.approx(CUBOIDS[1]["center_m"], abs=1e-9)
    assert line.pop("quaternion_xyzw") == pytest.approx([0, 0, 0.6, 0.8], abs=1e-9)
    assert line.items() <= CUBOIDS[1].items()
    boxes = _lines(path / "_labels" / "camera.jsonl")
    assert boxes[1]["frame"] == 2 and boxes[1]["box_px"] == [1, 2, 3, 4]
    mask = Path("_masks/camera/ego.png")
    assert (path / mask).read_bytes() == (packed.parents[2] / mask).read_bytes()


def test_a_session_comes_back_bit_for_bit(packed: Path, tmp_path: Path) -> None:
    assert main(["import", str(packed), "--root", str(tmp_path)]) == 0
    path = tmp_path / "drive"
    assert_sound(path)
    _check_samples(packed, path)
    _check_poses(packed, path)
    _check_labels(packed, path)
    made = list(finalize(path, [ArchiveRequest(name) for name in ARCHIVES]))
    assert not any("several lidars" in note for one in made for note in one.notes)
    assert main(["export", str(path), "lidar", "--to", "pcd", "--out", str(tmp_path / "x")]) == 0
    assert len(list((tmp_path / "x").rglob("*.pcd"))) == 3
    with zipfile.ZipFile(path / "_archives/edgefirst/drive/drive.zip") as container:
        (name, *_) = (one for one in container.namelist() if one.endswith(".radar.pcd"))
        points, _ = decode_pcd(container.read(name), name)
    assert {"x", "y", "z", "speed", "power", "noise", "rcs"} <= {*(points.dtype.names or ())}
    _assert_same_frames(packed, path / "_archives" / "ncore" / "drive.json", count=18)


def _play(path: Path, part: str) -> list[Any]:
    """All items of a source, in this process."""
    source = DatasetSource(SensorConfig("one", "ncore", f"{path}#{part}", {}, pace="max"))
    source.open()
    items = []
    try:
        while True:
            items.append(source.read())
    except EndOfSource:
        return items
    finally:
        source.close()


@pytest.fixture(scope="module", params=["itar", "folder"])
def sequence(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sequence with every component, of a writer that is no session's."""
    folder = tmp_path_factory.mktemp(request.param)
    build.write_sequence(folder, request.param)
    return folder / "drive.json"


def test_the_plan_names_what_is_lost(sequence: Path) -> None:
    for path in (sequence, sequence.parent, *sequence.parent.glob("*.zarr*")):
        assert fits(path)
        contents = read_contents(path)
        becomes = {sensor.origin: sensor.becomes for sensor in contents.sensors}
        assert becomes["cameras/front"] == "pictures, bit for bit"
        assert becomes["radars/radar"] == "detections as points"
        assert contents.lost == {"com.example.velocity/fused": "a component that is not known"}
        lost = {sensor.origin: sensor.lost for sensor in contents.sensors}
        assert any("gain" in line for line in lost["cameras/front"])
        assert any("number" in line for line in lost["lidars/lidar"])
        files = {file.origin: file.becomes for file in contents.files}
        assert files["cuboids/default"] == "7 cuboids"
        assert files["point_clouds/map"] == "2 point clouds"
        assert {"front", "fish", "theta", "ideal"} <= contents.calibration.keys()
    assert not fits(sequence.parent / "none.json") and not fits(sequence.parents[1])


def test_models_come_back_as_they_were(sequence: Path) -> None:
    from recorder.archives.ncore.mapping.models import camera_model, find_shutter

    contents = read_contents(sequence)
    path = sequence.parent / "calibration.yaml"
    path.write_text(json.dumps({"sensors": contents.calibration}))
    calibration = read_calibration(path)
    for name in ("front", "fish", "theta"):
        shutter, _ = find_shutter(calibration, name, 0)
        model = camera_model(calibration, name, shutter)
        assert model is not None
        assert model.attributes() == build.MODELS[name].attributes()


def test_every_value_of_a_ray_is_recorded(sequence: Path) -> None:
    items = _play(sequence, "lidars/lidar")
    assert [type(item) for item in items] == [Sample] * 3
    source = DatasetSource(SensorConfig("one", "ncore", f"{sequence}#lidars/lidar", {}))
    (spec,) = source.open()
    source.close()
    points = make_point_source(spec)
    columns = {column.name: (column.type, column.shape) for column in spec.channels[0].columns}
    assert columns["distance"] == columns["intensity"] == ("f4", (2,))
    assert columns["range_noise_m"] == ("f4", (2,))
    assert columns["element"] == ("u2", (2,))
    sample = items[1]
    from recorder.codecs.points import points_dtype, unpack_points

    dtype = points_dtype(spec.channels[0].columns)
    rays = unpack_points(sample.data["points.bin"][0], dtype, "test")
    store = NcoreSequence(sequence).instance("lidars", "lidar")
    assert store is not None
    end_us = int(store.frames_us()[1, 1])
    distance = store.array(f"frames/{end_us}/ray_bundle_returns/distance_m")
    assert np.ascontiguousarray(rays["distance"].T).tobytes() == distance.tobytes()
    start_ns, made = points.points(
        {"points.bin": rays, "duration": sample.data["duration"]}, int(sample.t_ns[0])
    )
    assert start_ns == int(store.frames_us()[1, 0]) * 1000
    assert len(made) == 2 * build.RAYS and set(made["return"].tolist()) == {0, 1}
    xyz = np.stack([made[axis] for axis in "xyz"], 1)[: build.RAYS]
    wanted = rays["direction"].astype(np.float64) * distance[0][:, None]
    assert np.allclose(xyz, wanted, rtol=0, atol=1e-4, equal_nan=True)
    assert made["ring"][:3].tolist() == [0, 0, 0]


def test_frames_without_rays_are_samples(sequence: Path) -> None:
    items = _play(sequence, "radars/radar")
    assert [type(item) for item in items] == [Sample] * 3


def _copy(sequence: Path, folder: Path) -> Path:
    target = folder / "copy"
    shutil.copytree(sequence.parent, target)
    return target / sequence.name


Change = Callable[[Path], None]


def _cut(path: Path) -> None:
    (store,) = path.parent.glob("*.zarr.itar")
    store.write_bytes(store.read_bytes()[:-700])


def _forget(path: Path) -> None:
    (store,) = path.parent.glob("*.zarr.itar")
    store.unlink()


def _edit(**values: Any) -> Change:
    def change(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def _leave(path: Path) -> None:
    document = json.loads(path.read_text())
    document["component_stores"][0]["path"] = "../drive.ncore4.zarr.itar"
    path.write_text(json.dumps(document))


def _tear(path: Path) -> None:
    path.write_text('{"component_stores": ')


BAD: dict[str, tuple[Change, str]] = {
    "a store is cut": (_cut, "not an itar, or cut"),
    "a store is missing": (_forget, "its store drive.ncore4.zarr.itar is missing"),
    "another version": (_edit(version="v3"), "is no NCore v4 sequence: its version is 'v3'"),
    "no store": (_edit(component_stores=[]), "names no store"),
    "a store elsewhere": (_leave, "names a store outside of its folder: '../drive"),
    "no JSON": (_tear, ""),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_sequences_are_one_error_and_write_nothing(
    name: str, packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words = BAD[name]
    path = _copy(packed, tmp_path)
    change(path)
    root = tmp_path / "root"
    assert main(["import", str(path), "--root", str(root)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and words in message
    assert not root.exists()


def _rewrite(path: Path, key: str, data: bytes) -> None:
    (path.parent / "drive.ncore4.zarr" / key).write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sequence in a folder store, whose keys are files."""
    build.write_sequence(tmp_path, "folder")
    return tmp_path / "drive.json"


def test_chains_of_poses_are_composed(tmp_path: Path) -> None:
    span = build.START_NS, build.STOP_NS
    steps = build.rotations(np.array([0.2, -0.3, 0.4]))
    with SequenceWriter(tmp_path, "a", interval_ns=span) as sequence:
        poses = sequence.poses()
        t_ns = np.linspace(poses._interval.start_ns, poses._interval.last_ns, 3).astype(np.int64)
        moving = build.rotations(np.array([0.1, 0.2, 0.3]))
        poses.static_pose("mast", "rig", steps[0])
        poses.static_pose("mast", "front", steps[1])  # the other way round
        poses.dynamic_pose("rig", "odom", t_ns, moving)
        poses.static_pose("world", "odom", steps[2])
        poses.dynamic_pose("arm", "rig", t_ns, moving)
        sequence.intrinsics().placeholder("front", (64, 48))
        sequence.intrinsics().placeholder("arm", (64, 48))
        for name in ("front", "arm"):
            frame = build.START_NS, build.START_NS + 1_000_000, build.jpeg(1)
            sequence.camera(name).frame(*frame)
    contents = read_contents(tmp_path / "a.json")
    place = contents.calibration["front"]["T_sensor_rig"]
    wanted = steps[0] @ np.linalg.inv(steps[1])
    assert place["translation_m"] == pytest.approx(wanted[:3, 3].tolist(), abs=1e-12)
    assert contents.lost["the mount of cameras/arm"] == "it moves in the rig: arm -> rig"
    assert "the pose arm -> rig" in contents.lost
    (file,) = (file for file in contents.files if file.origin == "poses/default")
    assert file.complete is not None
    found = file.complete.args[0]  # type: ignore[attr-defined]
    assert np.allclose(found.poses, np.linalg.inv(steps[2]) @ moving, rtol=0, atol=1e-12)
    assert np.array_equal(found.t_ns, t_ns // 1000 * 1000)


def test_an_exposure_has_no_readout(tmp_path: Path) -> None:
    span = build.START_NS, build.STOP_NS
    with SequenceWriter(tmp_path, "a", interval_ns=span) as sequence:
        build.write_poses(sequence, ["front"], build.Given())
        sequence.intrinsics().placeholder("front", (64, 48))
        camera = sequence.camera("front", metadata={"settings": {"readout_ms": 20.0}})
        camera.frame(build.START_NS, build.START_NS + 25_000_000, build.jpeg(1))
    (item,) = _play(tmp_path / "a.json", "cameras/front")
    assert item.data["exposure"].tolist() == [5000]


def test_further_calibrations_are_sets(tmp_path: Path) -> None:
    span = build.START_NS, build.STOP_NS
    with SequenceWriter(tmp_path, "a", interval_ns=span) as sequence:
        build.write_poses(sequence, ["front"], build.Given())
        place = build.rotations(np.array([0.5]))[0]
        sequence.poses("online").static_pose("front", "rig", place)
        sequence.intrinsics().camera("front", build.MODELS["front"])
        sequence.intrinsics("factory").camera("front", build.MODELS["fish"])
        sequence.camera("front").frame(build.START_NS, build.START_NS + 1_000_000, build.jpeg(1))
    contents = read_contents(tmp_path / "a.json")
    assert {file.origin for file in contents.files} == {
        "poses/default", "poses and intrinsics factory", "poses and intrinsics online",
    }  # fmt: skip
    for file in contents.files:
        if file.prepare is not None:
            file.prepare(tmp_path)
    sets = {path.stem: read_calibration(path) for path in tmp_path.glob("_calibrations/*.yaml")}
    assert sets["factory"].of("front").model == "opencv-fisheye"
    pose = sets["online"].of("front").pose
    assert pose is not None and np.allclose(pose, place, rtol=0, atol=1e-9)


def test_values_of_a_colour_sensor_are_those_of_its_pattern(tmp_path: Path) -> None:
    values = np.arange(48 * 64, dtype=np.uint16).reshape(48, 64)
    image = encode_png(values)
    span = build.START_NS, build.STOP_NS
    with SequenceWriter(tmp_path, "a", interval_ns=span) as sequence:
        build.write_poses(sequence, ["front"], build.Given())
        sequence.intrinsics().placeholder("front", (64, 48))
        about = {"format": "SRGGB12", "bits": 12, "pattern": "RGGB"}
        camera = sequence.camera("front", metadata={"pixels": about})
        camera.frame(build.START_NS, build.START_NS + 1_000_000, image, "png")
    (item,) = _play(tmp_path / "a.json", "cameras/front")
    assert np.array_equal(item.data["image.srggb12"][0], values)


def test_a_damaged_frame_is_a_loss(folder: Path) -> None:
    frames = NcoreSequence(folder).instances("cameras")["front"].frames_us()
    _rewrite(folder, f"cameras/front/frames/{frames[2, 1]}/image/0", b"no picture")
    items = _play(folder, "cameras/front")
    assert [type(item) for item in items] == [Sample, Sample, Lost, Sample, Sample]
    assert items[2].cause == "corrupt" and items[2].count == 1
    other = build.jpeg(3, (24, 32))
    _rewrite(folder, f"cameras/front/frames/{frames[2, 1]}/image/0", other)
    assert _play(folder, "cameras/front")[2].cause == "changed"


@pytest.mark.parametrize(
    ("key", "data", "words"),
    [
        ("cuboids/default/cuboids/.zattrs", b'{"cuboid_track_observations": [{}]}', "a cuboid is"),
        ("poses/default/static_poses/.zattrs", b'{"x": {}}', "names no two frames"),
        ("lidars/lidar/.zattrs", b'{"component_version": "v9"}', "version 'v9', not v1"),
        ("cameras/front/frames/.zattrs", b'{"frames_timestamps_us": [["a", 1]]}', "timestamps"),
        (".zattrs", b'{"version": "v4"}', "its interval is damaged"),
        ("masks/default/cameras/front/.zattrs", b'{"mask_names": ["../../x"]}', "is missing"),
    ],
)
def test_damaged_parts_are_one_error(key: str, data: bytes, words: str, folder: Path) -> None:
    _rewrite(folder, key, data)
    with pytest.raises((FormatError, SourceError), match=words):
        contents = read_contents(folder)
        (staged := folder.parent / "staged").mkdir()
        for file in contents.files:
            if file.prepare is not None:
                file.prepare(staged)


def test_a_cuboid_has_the_time_of_its_frame(folder: Path, tmp_path: Path) -> None:
    (file,) = (f for f in read_contents(folder).files if f.origin == "cuboids/default")
    assert file.prepare is not None
    file.prepare(staged := tmp_path / "staged")
    head, *lines = _lines(staged / "_cuboids" / "default.jsonl")
    assert head["source"] == "simulated" and head["maker"] == "v3"
    assert {line["t_ns"] for line in lines} == {build.START_NS + 150_000_000}
    assert [line["metadata"]["timestamp_us"] for line in lines] == [
        build.START_NS // 1000 + 1000 * number for number in range(7)
    ]


def test_a_mask_of_a_hostile_name_stays_in_its_folder(folder: Path, tmp_path: Path) -> None:
    masks = folder.parent / "drive.ncore4.zarr" / "masks/default/cameras/front"
    (masks / ".zattrs").write_text(json.dumps({"mask_names": ["..", "a/../../b"]}))
    shutil.copytree(masks / "ego", masks.parent / "x")
    contents = read_contents(folder)
    names = [name for file in contents.files if file.origin == "masks/default"
             for (_, name) in file.prepare.args[1]]  # type: ignore[union-attr]  # fmt: skip
    assert all(Path(name).name == name and not name.startswith("..") for name in names)


def test_a_hostile_store_runs_no_code_and_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    (path / "a").mkdir(parents=True)
    (path / "a" / "0").write_bytes(b"cos\nsystem\n(S'touch /tmp/x'\ntR.")
    array = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|u1", "fill_value": 0,
             "order": "C", "filters": None, "compressor": {"id": "pickle"}}  # fmt: skip
    (path / "a" / ".zarray").write_text(json.dumps(array))
    with pytest.raises(FormatError, match="compressor 'pickle'"):
        read_array(open_store(path), "a")
    array |= {"compressor": None, "shape": [1 << 40], "chunks": [1 << 40]}
    (path / "a" / ".zarray").write_text(json.dumps(array))
    with pytest.raises(FormatError, match="too large"):
        read_array(open_store(path), "a")


def test_an_index_beyond_the_file_is_refused(tmp_path: Path) -> None:
    from recorder.formats.zarr2 import documents
    from recorder.formats.zarr2.itar import END_FORMAT

    index = {"items": ["a/.zarray"], "offset_datas": [0], "sizes": [1 << 50]}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w"):
        pass
    data = lzma.compress(documents.dump_cbor(index))
    start = len(buffer.getvalue())
    end = END_FORMAT.pack(b"itar", 1, start, len(data)).ljust(512, b"\0")
    path = tmp_path / "a.itar"
    path.write_bytes(buffer.getvalue() + data + bytes(-len(data) % 512) + end)
    with pytest.raises(FormatError, match="reaches beyond its end"):
        open_store(path)


def test_rows_are_read_by_their_chunks(packed: Path) -> None:
    poses = NcoreSequence(packed).instance("poses")
    assert poses is not None
    whole = poses.array("generic_data/imu.acc")
    for start, stop in ((0, 30), (3, 7), (29, 40), (5, 5)):
        rows = poses.rows("generic_data/imu.acc", start, stop)
        assert np.array_equal(rows, whole[start:stop], equal_nan=True)
