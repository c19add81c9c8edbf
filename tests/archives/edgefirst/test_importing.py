"""EdgeFirst datasets become sessions again: what is kept, what is lost, what is refused."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from drivers.kit.dataset_source import DatasetSource
from drivers.kit.driver import EndOfSource, Lost, Sample, SensorConfig
from recorder.archives.edgefirst.imported_rows import SET
from recorder.archives.edgefirst.importing import fits, read_contents
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.cli import main
from recorder.common.errors import FormatError
from recorder.formats.edgefirst.files import EdgeFirstDataset
from recorder.formats.exif import find_exif, read_exif
from recorder.formats.ncore.sequence import NcoreSequence
from recorder.formats.pcd import decode_pcd, encode_pcd
from recorder.perception.calibration import session_calibration
from recorder.session.reader import Session
from tests.acceptance.command import assert_sound
from tests.archives.edgefirst.rig import FULL_CALIBRATION
from tests.archives.ncore.packer_rig import add_poses, rig
from tests.session.build import START_NS, gnss_spec

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
ipc: Any = pytest.importorskip("pyarrow.ipc")
parquet: Any = pytest.importorskip("pyarrow.parquet")

T0 = START_NS + 1_000_000
CUBOID = {
    "frame": "rig", "track": "t1", "class": "car", "center_m": [10.0, -2, 0.5],
    "size_m": [4.0, 1.8, 1.5], "quaternion_xyzw": [0, 0, 0, 1],
}  # fmt: skip


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write_labels(path: Path) -> None:
    def write(name: str, *lines: dict[str, Any]) -> None:
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(json.dumps(line) + "\n" for line in lines))

    head = {"version": 1, "source": "manual"}
    cuboids = [CUBOID | {"t_ns": T0 + k * 100_000_000} for k in range(3)]
    write("_cuboids/hand.jsonl", head | {"format": "recorder-cuboids"}, *cuboids)
    boxes: list[dict[str, Any]] = [
        {"t_ns": T0, "frame": k, "track": "t1", "class": "car", "box_px": [1 + k, 2, 3, 4]}
        for k in range(3)
    ]
    boxes[0]["score"] = 0.5
    ring = [[1.0, 1.0], [9.0, 1.0], [5.0, 8.0]]
    boxes += [
        {"t_ns": T0, "frame": 3, "class": "person", "polygon_px": [ring], "occluded": 0.75,
         "status": "checked"},
        {"t_ns": T0, "frame": 4, "class": "person", "mask": "a.png"},
    ]  # fmt: skip
    write("_labels/camera.jsonl", head | {"format": "recorder-boxes"}, *boxes)
    (path / "_labels" / "camera").mkdir()
    diagonal = np.eye(24, 32, dtype=np.uint8) * 255
    cv2.imwrite(str(path / "_labels/camera/a.png"), diagonal)
    (path / "_masks" / "camera").mkdir(parents=True)
    cv2.imwrite(str(path / "_masks/camera/ego.png"), np.flipud(diagonal))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of ours, of a session with labels, a mask, poses and positions."""
    path = tmp_path_factory.mktemp("packed") / "drive"
    builder = rig(path, 0.3)
    places = np.array([[52.5, 13.4, 40.0]]) + np.arange(3)[:, None] * 1e-5
    builder.add(gnss_spec(), 0.3, data={"pos": places})
    builder.close()
    (path / "calibration.yaml").write_text(FULL_CALIBRATION)
    _write_labels(path)
    t_ns = START_NS + np.arange(0, 400, 10) * 1_000_000
    add_poses(path, t_ns, np.cumsum(np.ones((len(t_ns), 3)), axis=0), "_pose")
    list(finalize(path, [ArchiveRequest("edgefirst")]))
    return path / "_archives" / "edgefirst" / "drive"


def _members(root: Path) -> dict[str, bytes]:
    """Files by number and ending."""
    with zipfile.ZipFile(root / f"{root.name}.zip") as container:
        names = container.namelist()
        return {name.rpartition("_")[2]: container.read(name) for name in names}


def _rows(root: Path) -> list[dict[str, Any]]:
    with pa.OSFile(str(root / f"{root.name}.arrow")) as file:
        rows: list[dict[str, Any]] = ipc.open_file(file).read_all().to_pylist()
    for row in rows:
        row["object_id"] = row["object_id"] and row["object_id"].rpartition("/")[2]
        del row["name"], row["group"]  # of the host, and of the host's name
    return rows


def _assert_same_rows(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            if name == "box2d" and value is None and (one["mask"] or one["polygon"]):
                assert one["label"] is None or other[name] is not None  # around the outline
            elif name in ("pose", "location", "box2d", "box3d"):
                assert other[name] == (None if value is None else pytest.approx(value, abs=1e-5))
            elif name == "object_id" and value is None:
                assert other[name] is not None  # an object without a name gets one
            elif name == "polygon" and value is not None:
                assert np.allclose(other[name], value, rtol=0, atol=1e-6)
            else:
                assert other[name] == value, name


def test_a_session_comes_back(packed: Path, tmp_path: Path) -> None:
    assert main(["import", str(packed), "--root", str(tmp_path)]) == 0
    path, source = tmp_path / "drive", packed.parents[2]
    assert_sound(path)
    with Session(source) as first, Session(path) as session:
        counts = {name: len(stream) for name, stream in session.streams.items()}
        assert counts == {"camera": 9, "lidar": 3, "radar": 6, "radar_cube": 6, "location": 9}
        old, new = first.streams["camera"], session.streams["camera"]
        assert np.array_equal(new.t_ns, old.t_ns)
        for index in range(9):
            both = [stream.channels["video.avi"].encoded(index) for stream in (old, new)]
            assert both[0] == both[1]
        assert new.spec is not None
        place = session.streams["location"].read(0, 1)["pos"][0]
        assert place == pytest.approx([52.5, 13.4, 40.0], abs=1e-7)
    calibration, before = session_calibration(path), session_calibration(source)
    for name in ("camera", "lidar", "radar"):
        mine, theirs = calibration.of(name).pose, before.of(name).pose
        assert mine is not None and theirs is not None
        assert np.allclose(mine, theirs, rtol=0, atol=1e-9)
    assert calibration.of("camera").parameters == before.of("camera").parameters
    boxes = _lines(path / "_labels" / "camera.jsonl")
    assert boxes[1]["box_px"] == pytest.approx([1, 2, 3, 4], abs=1e-5)
    assert (boxes[1]["track"], boxes[1]["score"], boxes[1]["frame"]) == ("t1", 0.5, 0)
    assert boxes[4]["polygon_px"][0][2] == pytest.approx([5, 8], abs=1e-5)
    assert (boxes[4]["occluded"], boxes[4]["status"]) == (0.75, "checked")
    assert boxes[4]["box_px"] == pytest.approx([1, 1, 8, 7], abs=1e-5)
    assert boxes[5]["box_px"] == [-0.5, -0.5, 24, 24]  # of the mask
    cuboids = _lines(path / "_cuboids" / f"{SET}.jsonl")
    assert cuboids[1]["center_m"] == [10.0, -2.0, 0.5] and cuboids[1]["track"] == "t1"
    mask = cv2.imread(str(path / "_masks/camera/ego.png"), cv2.IMREAD_GRAYSCALE)
    assert mask is not None
    assert np.array_equal(mask != 0, np.flipud(np.eye(24, 32)) != 0)
    # All of a sample has the same time now: a box of the next picture is not of this one.
    options = {"tolerance_ms": 1.0}
    list(
        finalize(
            path,
            [ArchiveRequest("edgefirst", options), ArchiveRequest("ncore"), ArchiveRequest("mcap")],
        )
    )
    again = path / "_archives" / "edgefirst" / "drive"
    before_files, files = _members(packed), _members(again)
    assert before_files.keys() == files.keys()
    for name, data in before_files.items():
        if name.endswith(".pcd"):
            left, right = decode_pcd(data, name), decode_pcd(files[name], name)
            assert left[0].dtype == right[0].dtype and left[0].tobytes() == right[0].tobytes()
            assert left[1] == pytest.approx(right[1], abs=1e-8)
        elif name.endswith(".png"):
            assert data == files[name]
    _assert_same_rows(_rows(packed), _rows(again))
    earliest = min(name for name in files if name.endswith(".radar.pcd"))
    _check_radar(files[earliest], path / "_archives" / "ncore" / "drive.json")


def _check_radar(pcd: bytes, sequence: Path) -> None:
    """Detections are those of NCore's radar, too."""
    points, _ = decode_pcd(pcd, "pcd")
    radar = NcoreSequence(sequence).instance("radars", "radar")
    assert radar is not None and len(points)
    group = f"frames/{radar.frames_us()[0, 1]}/ray_bundle_returns"
    values = {name: radar.array(f"{group}/{name}")[0] for name in radar.children(group)}
    wanted = np.sqrt(points["x"] ** 2 + points["y"] ** 2 + points["z"] ** 2)
    assert np.allclose(values["distance_m"], wanted, rtol=1e-6)
    assert np.array_equal(values["radial_velocity_m_s"], points["speed"])
    assert np.allclose(values["snr_db"], points["power"] - points["noise"], atol=1e-4)
    assert np.array_equal(values["rcs_dbsm"], points["rcs"])


def _play(path: Path, part: str) -> list[Any]:
    source = DatasetSource(SensorConfig("one", "edgefirst", f"{path}#{part}", {}, pace="max"))
    source.open()
    items = []
    try:
        while True:
            items.append(source.read())
    except EndOfSource:
        return items
    finally:
        source.close()


def _jpeg(number: int) -> bytes:
    picture = np.full((24, 32, 3), 20 * number, np.uint8)
    return bytes(cv2.imencode(".jpg", picture)[1].tobytes())


CLOUD = np.array(
    [(1.0, 2.0, 3.0, 0.5, 7), (4.0, 5.0, 6.0, 0.25, 8)],
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("power", "<f4"), ("cluster_id", "<i4")],
)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A dataset that knows no times: two pictures of a sequence with points, a Parquet table."""
    root = tmp_path / "summer"
    folder = root / "summer" / "car_2024_05_01_10_00_00"
    folder.mkdir(parents=True)
    for number in (1, 2):
        stem = f"{folder.name}_{number:03d}"
        (folder / f"{stem}.camera.jpeg").write_bytes(_jpeg(number))
        (folder / f"{stem}.radar.pcd").write_bytes(encode_pcd(CLOUD[:number]))
    (folder / "notes.txt").write_text("x")
    rows = {
        "name": [folder.name] * 2,
        "frame": pa.array([1, 2], pa.uint32()),
        "label": ["car", None],
        "box2d": pa.array([[0.5, 0.5, 0.25, 0.5], None], pa.list_(pa.float32(), 4)),
        "weather": ["rain", None],
    }
    parquet.write_table(pa.table(rows), root / "summer.parquet")
    return root


def test_a_dataset_of_others_is_planned(foreign: Path) -> None:
    contents = read_contents(foreign)
    assert {sensor.origin.rpartition("/")[2]: sensor.samples for sensor in contents.sensors} == {
        "camera": 2, "radar": 2,
    }  # fmt: skip
    camera = next(sensor for sensor in contents.sensors if sensor.driver == "camera")
    assert "the pictures have no times: 0.1 s apart by their frames" in camera.lost
    assert contents.lost["the column weather"].startswith("a column that the recorder does not")
    assert contents.lost["1 files"] == "of no sample"
    assert contents.start_ns == 1_714_557_600_100_000_000
    (staged := foreign / "staged").mkdir()
    for file in contents.files:
        assert file.prepare is not None
        file.prepare(staged)
    _, line = _lines(staged / "_labels" / "camera.jsonl")
    assert line["box_px"] == [11.5, 5.5, 8.0, 12.0] and line["class"] == "car"


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("box2d", [float("nan"), 0.5, 0.1, 0.1], "number that is not finite"),
        ("polygon", [[0.1, 0.2, 0.3]], "point of one number"),
        ("box2d", [0.5, 0.5], "is damaged"),
    ],
)
def test_damaged_rows_are_one_error(column: str, value: Any, words: str, foreign: Path) -> None:
    (folder,) = foreign.glob("summer/*/")
    rows = {"name": [folder.name], "frame": pa.array([1], pa.uint32()), column: [value]}
    parquet.write_table(pa.table(rows), foreign / "summer.parquet")
    (file,) = read_contents(foreign).files
    assert file.prepare is not None
    (staged := foreign / "staged").mkdir()
    with pytest.raises(FormatError, match=words):
        file.prepare(staged)


def test_points_of_others_are_recorded_with_all_fields(foreign: Path) -> None:
    items = _play(foreign, "car_2024_05_01_10_00_00/radar")
    assert [type(item) for item in items] == [Sample, Sample]
    assert items[1].t_ns[0] - items[0].t_ns[0] == 100_000_000
    from recorder.codecs.points import unpack_points

    dtype = np.dtype([("xyz", "<f4", (3,)), ("power", "<f4"), ("cluster_id", "<i4")])
    points = unpack_points(items[1].data["detections.bin"][0], dtype, "test")
    assert points["xyz"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert points["cluster_id"].tolist() == [7, 8]


def test_a_file_that_accompanies_several_pictures_is_one_sample(foreign: Path) -> None:
    first, second = sorted(foreign.glob("summer/*/*.radar.pcd"))
    second.write_bytes(first.read_bytes())
    assert len(_play(foreign, "car_2024_05_01_10_00_00/radar")) == 1
    assert len(_play(foreign, "car_2024_05_01_10_00_00/camera")) == 2


def test_a_damaged_file_is_a_loss(foreign: Path) -> None:
    (place,) = foreign.glob("summer/*/*_002.radar.pcd")
    place.write_bytes(place.read_bytes()[:-3])
    items = _play(foreign, "car_2024_05_01_10_00_00/radar")
    assert [type(item) for item in items] == [Sample, Lost] and items[1].cause == "corrupt"
    other = np.zeros(1, [("x", "<f4"), ("y", "<f4"), ("z", "<f4")])
    place.write_bytes(encode_pcd(other))
    assert _play(foreign, "car_2024_05_01_10_00_00/radar")[1].cause == "changed"


def test_pictures_without_a_sequence_are_one_recording(tmp_path: Path) -> None:
    root = tmp_path / "set"
    (root / "set").mkdir(parents=True)
    for number, name in enumerate(("b", "a")):
        (root / "set" / f"{name}.jpg").write_bytes(_jpeg(number))
    table = pa.table(
        {"name": ["b"], "box2d": pa.array([[0.5, 0.5, 1, 1]], pa.list_(pa.float32(), 4))}
    )
    with pa.OSFile(str(root / "set.arrow"), "wb") as file, ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    contents = read_contents(root)
    assert [(sensor.origin, sensor.samples) for sensor in contents.sensors] == [
        ("images/camera", 2)
    ]
    (staged := tmp_path / "staged").mkdir()
    contents.files[0].prepare(staged)  # type: ignore[misc]
    assert _lines(staged / "_labels" / "camera.jsonl")[1]["frame"] == 1


def test_one_of_several_recordings_is_chosen(
    foreign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = foreign / "summer" / "car_2024_05_01_10_00_00"
    second = foreign / "summer" / "van_2024_05_01_10_00_00"
    second.mkdir()
    for path in first.glob("car*"):
        (second / path.name.replace("car", "van")).write_bytes(path.read_bytes())
    root = tmp_path / "root"
    assert main(["import", str(foreign), "--root", str(root)]) == 2
    message = capsys.readouterr().err
    assert "has 2 recordings: choose one with --sequence: car_" in message
    assert not root.exists()
    contents = read_contents(foreign, "van_2024_05_01_10_00_00")
    assert all(sensor.origin.startswith("van_") for sensor in contents.sensors)
    with pytest.raises(FormatError, match="has no recording 'x'"):
        read_contents(foreign, "x")


def test_the_paths_of_a_dataset(packed: Path, foreign: Path) -> None:
    for path in (packed, packed / "drive.zip", packed / "drive.arrow", foreign):
        assert fits(path)
    for path in (packed.parent, foreign / "summer", foreign / "none.zip"):
        assert not fits(path)


Change = Callable[[Path], None]


def _cut(root: Path) -> None:
    place = root / "drive.zip"
    place.write_bytes(place.read_bytes()[:-200])


def _hide(root: Path) -> None:
    (root / "drive.zip").unlink()


def _spoil(root: Path) -> None:
    (root / "drive.arrow").write_bytes(b"ARROW1\0\0 no table")


def _leave(name: str) -> Change:
    def change(root: Path) -> None:
        with zipfile.ZipFile(root / "drive.zip", "a") as container:
            container.writestr(name, b"x")

    return change


BAD: dict[str, tuple[Change, str]] = {
    "the container is cut": (_cut, "drive.zip: is damaged"),
    "the container is missing": (_hide, "has neither drive.zip nor the folder drive"),
    "the table is none": (_spoil, "drive.arrow: is no table"),
    "a path above": (_leave("../../evil.camera.jpeg"), "leads out of it"),
    "an absolute path": (_leave("/etc/evil.camera.jpeg"), "leads out of it"),
    "a path of Windows": (_leave("a\\..\\evil.camera.jpeg"), "leads out of it"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_datasets_are_one_error_and_write_nothing(
    name: str, packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words = BAD[name]
    root = tmp_path / "drive"
    shutil.copytree(packed, root)
    change(root)
    assert main(["import", str(root), "--root", str(tmp_path / "root")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and words in message
    assert not (tmp_path / "root").exists()


def test_a_link_out_of_a_folder_is_refused(foreign: Path) -> None:
    (secret := foreign.parent / "secret").write_bytes(b"x")
    (foreign / "summer" / "a.camera.jpeg").symlink_to(secret)
    with pytest.raises(FormatError, match="leads out of the dataset"):
        EdgeFirstDataset(foreign)


def test_exif_is_read_as_it_was_written(packed: Path) -> None:
    members = _members(packed)
    found = read_exif(find_exif(members["000.camera.jpeg"]))
    with Session(packed.parents[2]) as session:
        assert found.t_ns == int(session.streams["camera"].t_ns[0])
    assert found.software.startswith("recorder ")
    for size in range(0, 400, 7):  # a cut one states less, and is no error
        read_exif(find_exif(members["000.camera.jpeg"])[:size])


TEXT = b"""# .PCD v0.7
VERSION 0.7
FIELDS x y z n
SIZE 4 4 4 2
TYPE F F F U
COUNT 1 1 1 2
WIDTH 2
HEIGHT 1
POINTS 2
DATA ascii
1 2 3 4 5
nan 7 8 9 10
"""


def test_clouds_of_text_are_read() -> None:
    points, place = decode_pcd(TEXT, "a.pcd")
    assert points["n"].tolist() == [[4, 5], [9, 10]] and points["y"].tolist() == [2, 7]
    assert place == (0, 0, 0, 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "has no end"),
        (TEXT[:-3], "is cut"),
        (TEXT.replace(b"POINTS 2", b"POINTS -1"), "header is damaged"),
        (TEXT.replace(b"SIZE 4 4 4 2", b"SIZE 4 4"), "header is damaged"),
        (TEXT.replace(b"ascii", b"binary_compressed"), "binary_compressed is not read"),
        (TEXT.replace(b"7 8", b"7 x"), "no number"),
        (TEXT.replace(b"FIELDS x y z n\n", b""), "has no FIELDS"),
        (encode_pcd(CLOUD)[:-1], "is cut"),
    ],
)
def test_damaged_clouds_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode_pcd(data, "a.pcd")
