"""Sessions as EdgeFirst datasets: labels, pictures, clocks and older tables that are not right."""

from __future__ import annotations

import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.context import PackingContext
from recorder.archives.edgefirst import table as table_
from recorder.archives.edgefirst.packer import PACKER
from recorder.archives.edgefirst.samples import Places, PoseWalk, nearest_all
from recorder.archives.edgefirst.sensors import LidarFiles
from recorder.archives.edgefirst.table import Annotation, Sample, Table
from recorder.archives.edgefirst.table_files import ExistingTable
from recorder.codecs.storage.mjpg import MjpgReader
from recorder.common.errors import ArchiveError, FormatError
from recorder.formats.exif import insert_exif
from recorder.perception.calibration import Calibration
from recorder.session.reader import Session
from tests.archives.edgefirst.rig import BASE, exif_of, pack, pack_all
from tests.archives.ncore.packer_rig import LIDAR_JSON, add_poses, lidar, rig
from tests.session.build import (
    BEAMS,
    COLUMNS,
    HEIGHT,
    WIDTH,
    Builder,
    build_session,
    camera_spec,
    gnss_spec,
    imu_spec,
)

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
ipc: Any = pytest.importorskip("pyarrow.ipc")

BOXES = {"format": "recorder-boxes", "version": 1, "source": "manual", "camera": "camera"}
CUBOIDS = {"format": "recorder-cuboids", "version": 1, "source": "manual"}


def labelled(path: Path, file: str, header: dict[str, Any], lines: list[dict[str, Any]]) -> Path:
    """Six pictures, and labels; a label's ``t_ns`` is the number of its picture."""
    builder = Builder(path)
    times = builder.add(camera_spec(), 0.2).t_ns.tolist()
    (path / file).parent.mkdir()
    reported = [{**line, "t_ns": times[line["t_ns"]]} for line in lines]
    (path / file).write_text("".join(json.dumps(line) + "\n" for line in (header, *reported)))
    return builder.close()


def box(picture: int, **more: Any) -> dict[str, Any]:
    return {"t_ns": picture, "frame": picture, "class": "car", "box_px": [1, 2, 3, 4]} | more


def cuboid(picture: int, **more: Any) -> dict[str, Any]:
    place = {"center_m": [10, 0, 0], "size_m": [4, 2, 1], "quaternion_xyzw": [0, 0, 0, 1]}
    return {"t_ns": picture, "track": "a", "class": "car", "frame": "rig"} | place | more


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([box(3), box(1)], r":3: is of picture 1, after a label of picture 3"),
        ([box(0, box_px=[0, 0, -1, 4])], r"sample 0: .*:2: box_px: is not a box"),
        ([box(0, box_px=[0, 0, 1e300, 4])], r":2: box_px: is not a box"),
        ([box(0), box(0, **{"class": 3})], r":3: class: needs a text, not 3"),
        (
            [box(0, polygon_px=[[[0, 0], [1, 1]]])],
            r"polygon_px: needs rings of at least three points",
        ),
        ([box(0, polygon_px=[[[0, 0], [1e39, 1], [2, 2]]])], r"polygon_px: a point is too far"),
        ([box(0, mask="../x.png")], r"mask: '../x.png' is not a file name in its folder"),
        ([box(0, mask="x.png")], r"camera/x.png: cannot be read: No such file"),
    ],
)
def test_labels_of_pictures_that_are_none(
    tmp_path: Path, lines: list[dict[str, Any]], words: str
) -> None:
    path = labelled(tmp_path / "s", "_labels/camera.jsonl", BOXES, lines)
    with pytest.raises(ArchiveError, match=words):
        pack(path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (cuboid(1, quaternion_xyzw=[0, 0, 0, 0]), "quaternion_xyzw: is not a rotation"),
        (cuboid(1, quaternion_xyzw=[1e200, 0, 0, 0]), "quaternion_xyzw: is not a rotation"),
        (cuboid(1, quaternion_xyzw=[1e-200, 0, 0, 0]), "quaternion_xyzw: is not a rotation"),
        (cuboid(1, size_m=[4, -2, 1]), "size_m: are not valid sizes"),
        (cuboid(1, size_m=[4, 1e39, 1]), "size_m: are not valid sizes"),
        (cuboid(1, center_m=[0, 0, -1e39]), "center_m: is too far away"),
    ],
)
def test_boxes_in_space_that_are_none(tmp_path: Path, line: dict[str, Any], words: str) -> None:
    lines = [cuboid(1, track="b"), line]
    path = labelled(tmp_path / "s", "_cuboids/a.jsonl", CUBOIDS, lines)
    with pytest.raises(ArchiveError, match=rf"a\.jsonl:3: {words}"):
        pack(path)


def test_boxes_in_space_must_be_in_order(tmp_path: Path) -> None:
    path = labelled(tmp_path / "s", "_cuboids/a.jsonl", CUBOIDS, [cuboid(3), cuboid(1)])
    with pytest.raises(FormatError, match=r"a\.jsonl:3: t_ns: the lines are not in order"):
        pack(path)


def test_labels_of_no_picture_are_counted(tmp_path: Path) -> None:
    """Beyond the last one, before the first, or far from any where only the time is given."""
    far = {**box(5), "frame": None}
    lines = [box(0, frame=-1), box(1), box(2, frame=None), far]
    lines += [box(5), box(5, frame=6), box(5, frame=99)]
    path = labelled(tmp_path / "s", "_labels/camera.jsonl", BOXES, lines)
    file = path / "_labels/camera.jsonl"
    text = file.read_text().splitlines()
    moved = json.loads(text[4])
    text[4] = json.dumps({**moved, "t_ns": moved["t_ns"] + 200_000_000})
    file.write_text("\n".join(text))
    data = pack(path)
    assert [row["frame"] for row in data.rows if row["label"]] == [1, 2, 5]
    assert data.noted("camera: 4 labels are of no picture of it: left out") == 1
    assert pack(path, every=4).noted("camera: 4 labels are of no picture") == 1


def test_boxes_of_the_world_move_in_the_rig(tmp_path: Path) -> None:
    """From picture to picture, though all go with one set of boxes."""
    line = cuboid(2, frame="world")
    path = labelled(tmp_path / "s", "_cuboids/a.jsonl", CUBOIDS, [line])
    with Session(path) as session:
        t_ns = session.streams["camera"].t_ns
    moved = np.arange(6)[:, None] * [1.0, 0, 0]
    add_poses(path, t_ns, moved, "_pose")
    rows = pack(path, tolerance_ms=500).rows
    assert np.allclose([row["box3d"][0] for row in rows], 10 - moved[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("label", "hidden", "joined"), [("car", 0.7, True), ("truck", 0.5, False), ("car", 0, True)]
)
def test_one_tracks_labels_of_one_class_are_one_row(
    tmp_path: Path, label: str, hidden: float, joined: bool
) -> None:
    path = labelled(tmp_path / "s", "_cuboids/a.jsonl", CUBOIDS, [cuboid(0)])
    with Session(path) as session:
        t_ns = int(session.streams["camera"].t_ns[0])
    line = box(0, track="a", occluded=hidden) | {"t_ns": t_ns, "class": label}
    (path / "_labels").mkdir()
    (path / "_labels/camera.jsonl").write_text(f"{json.dumps(BOXES)}\n{json.dumps(line)}\n")
    rows = [row for row in pack(path, tolerance_ms=1).rows if row["frame"] == 0]
    assert len(rows) == (1 if joined else 2)
    assert {row["object_id"] for row in rows} == {f"{BASE}/a"}
    assert rows[0]["occlusion"] == (2 if hidden else 0)
    assert [row["box3d"] is None for row in rows] == ([False] if joined else [True, False])


ROTATED = b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, 6, 0, 0)
"""EXIF of a camera that was held upright: to be turned by 90 degrees."""


def test_pictures_stay_as_the_sensor_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the camera says of how it was held: boxes and lenses are of the picture itself."""
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), count=1)
    plain = pack(builder.close(), images="png").picture(0, "camera.png")
    encoded = MjpgReader.encoded

    def turned(self: MjpgReader, index: int) -> bytes:
        return bytes(insert_exif(encoded(self, index), ROTATED))

    monkeypatch.setattr(MjpgReader, "encoded", turned)
    data = pack(builder.path, images="png")
    assert data.picture(0, "camera.png").shape == (HEIGHT, WIDTH, 3)
    assert np.array_equal(data.picture(0, "camera.png"), plain)
    assert 0x0112 not in exif_of(pack(builder.path).file(0, "camera.jpeg"))["0"]


def test_a_picture_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream and its number; verification has seen it whole."""
    builder = build_session(tmp_path / "s", camera_spec(), seconds=0.2)
    monkeypatch.setattr("recorder.archives.finalize.sessions._find_warnings", lambda _: [])
    monkeypatch.setattr(MjpgReader, "encoded", lambda *_: b"nothing")
    with pytest.raises(ArchiveError, match="edgefirst: camera, sample 0: is not a JPEG"):
        pack(builder.path)


@pytest.mark.parametrize(
    ("shifts", "words"), [(["x"], "needs whole numbers"), ([1, 2], "has 2 rows, not 8")]
)
def test_metadata_of_a_lidar_that_do_not_fit(tmp_path: Path, shifts: list[Any], words: str) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), count=1)
    reported = json.loads(LIDAR_JSON)
    reported["lidar_data_format"]["pixel_shift_by_row"] = shifts
    builder.add(replace(lidar(), files={"lidar.json": json.dumps(reported)}), count=1)
    with pytest.raises(ArchiveError, match=rf"lidar: .*lidar\.json: pixel_shift_by_row: {words}"):
        pack(builder.close())


def test_poses_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the picture that they are for; those that are not finite are none."""
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.2)
    made = builder.add(imu_spec(), 0.2)
    add_poses(builder.path, made.t_ns, np.full((len(made.t_ns), 3), np.nan), "_pose")
    path = builder.close()
    assert "pose" not in pack(path).table.schema.names
    (path / "_pose/pos").write_bytes(bytes(len(made.t_ns) * 24))

    def broken(*_: object) -> Any:
        raise FormatError("_pose/rot: cannot be read")

    monkeypatch.setattr(PoseWalk, "at", broken)
    with pytest.raises(ArchiveError, match="edgefirst: camera, sample 0: _pose/rot"):
        pack(path)


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """Of a plain trace: what is nearest in time is found all the same, and it is said."""
    path = build_session(tmp_path / "s", camera_spec(), lidar(), seconds=0.6, plain=True).path
    ts = np.fromfile(path / "lidar/ts")
    ts[3:] -= 0.25
    ts.tofile(path / "lidar/ts")
    with Session(path) as session:
        sweeps, wanted = session.streams["lidar"], session.streams["camera"].t_ns
        found = nearest_all(sweeps, wanted, 40_000_000).tolist()
        for t_ns, index in zip(wanted.tolist(), found, strict=True):
            off = np.abs(sweeps.t_ns - t_ns)
            assert (index == -1) is bool(off.min() > 40_000_000)
            assert index == -1 or off[index] == off.min()
    assert {0, 1, 3, 4, 5} <= set(found)
    assert pack(path).noted("lidar/ts: sample 3: ", "is not after") == 1


TABLE = {"name": ["b"], "frame": [0]}
ENTRY = {"name": "s", "start_ns": 1, "base": "b", "sequences": {"camera": "b"}}


@pytest.mark.parametrize(
    ("columns", "metadata", "words"),
    [
        (TABLE, {"category_metadata": "{"}, "metadata category_metadata: not JSON"),
        (TABLE, {"category_metadata": "[1]"}, "metadata category_metadata: a list, not a dict"),
        (TABLE, {"category_metadata": '{"car": 3}'}, "category_metadata: 'car': not a mapping"),
        (TABLE, {"category_metadata": '{"car": {"id": "1"}}'}, "label 'car' has index '1'"),
        (TABLE, {"label_indices": '{"car": -1}'}, "label 'car' has index -1"),
        (TABLE, {"recorder": "[]"}, "metadata recorder: a list, not a dict"),
        (
            TABLE,
            {"recorder": json.dumps({"sessions": [ENTRY | {"base": 3}]})},
            "metadata recorder: .*not text",
        ),
        (TABLE, {"x": b"\xff"}, "is no table: 'utf-8'"),
        (TABLE | {"frame": ["zero"]}, {}, "cannot be extended: .*zero"),
        (TABLE | {"name": [1]}, {}, "its names are of type int64"),
        (TABLE | {"box2d": [[1.0]]}, {}, "cannot be extended"),
    ],
)
def test_older_tables_that_are_not_right(
    tmp_path: Path, columns: dict[str, Any], metadata: dict[str, Any], words: str
) -> None:
    """Refused with the reason, and left as they are."""
    root = tmp_path / "out/edgefirst/out"
    root.mkdir(parents=True)
    old = pa.table(columns).replace_schema_metadata({"schema_version": "2026.04", **metadata})
    with ipc.new_file(str(root / "out.arrow"), old.schema) as writer:
        writer.write_table(old)
    with zipfile.ZipFile(root / "out.zip", "w") as file:
        file.writestr("b/b_000.camera.jpeg", b"x")
    before = (root / "out.arrow").read_bytes()
    with pytest.raises(ArchiveError, match=words) as caught:
        pack_all([build_session(tmp_path / "s", camera_spec(), count=1).path], tmp_path / "out")
    assert str(root / "out.arrow") in str(caught.value)
    assert (root / "out.arrow").read_bytes() == before


def test_a_table_cut_in_the_middle_of_its_rows(tmp_path: Path) -> None:
    with Table(tmp_path, "2026.10") as table:
        table.add(Sample("a", 1, "train", (1, 1)), [Annotation("x" * 3000)])
        table.finish(tmp_path / "a.arrow", {})
    data = (tmp_path / "a.arrow").read_bytes()
    at = data.index(b"x" * 3000)
    (tmp_path / "a.arrow").write_bytes(data[:at] + b"\xff" * 3000 + data[at + 3000 :])
    with (
        Table(tmp_path, "2026.10") as table,
        pytest.raises(ArchiveError, match=r"a\.arrow: is no table|a\.arrow: is damaged"),
    ):
        table.keep(ExistingTable.read(tmp_path / "a.arrow"), ())


def test_large_masks_do_not_wait_for_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by bytes, not by rows alone."""
    monkeypatch.setattr(table_, "MASK_BYTES", 1000)
    most = 0
    mask = bytes(300)
    with Table(tmp_path, "2026.10") as table:
        for frame in range(20):
            table.add(Sample("a", frame), [Annotation(mask=mask)])
            most = max(most, len(table._annotations))
        table.finish(tmp_path / "a.arrow", {})
    assert most == 3
    with pa.OSFile(str(tmp_path / "a.arrow")) as file:
        reader = ipc.open_file(file)
        assert reader.num_record_batches == 5
        rows = reader.read_all()
    assert rows["frame"].to_pylist() == list(range(20))
    assert set(rows["mask"].to_pylist()) == {mask}


def test_rows_that_wait_are_gone_though_the_disk_is_full(tmp_path: Path) -> None:
    class Full:
        def close(self) -> None:
            raise OSError(28, "No space left on device")

    table = Table(tmp_path, "2026.10")
    table._writer = Full()
    with pytest.raises(OSError, match="No space left"):
        table.close()
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_read_are_blamed_on_their_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, t_ns: int) -> Any:
        raise FormatError("ends inside a sample")

    monkeypatch.setattr(Places, "at", broken)
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.2)
    builder.add(gnss_spec(), count=3)
    with pytest.raises(ArchiveError, match="edgefirst: gnss: ends inside a sample"):
        pack(builder.close())


@pytest.mark.parametrize("columns", [COLUMNS - 1, COLUMNS + 1])
def test_a_lidar_whose_metadata_is_anothers(tmp_path: Path, columns: int) -> None:
    """Its sweeps could be read all the same, with every point in a wrong place."""
    builder = rig(tmp_path / "drive", 0.5)
    path = builder.close()
    metadata = json.loads((path / "lidar/lidar.json").read_text())
    metadata["lidar_data_format"]["columns_per_frame"] = columns
    (path / "lidar/lidar.json").write_text(json.dumps(metadata))
    with Session(path) as session:
        context = PackingContext(session, tmp_path, PACKER.check({}), Calibration())
        words = rf"lidar.json: has \({BEAMS}, {columns}\) beams and columns, channel rng has"
        with pytest.raises(FormatError, match=words):
            LidarFiles(context, session.streams["lidar"], project=False)
