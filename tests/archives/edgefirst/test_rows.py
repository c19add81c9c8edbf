"""Sessions as EdgeFirst datasets: labels, poses and places in the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.common.errors import ArchiveError, SessionError
from tests.archives.edgefirst.rig import (
    BASE,
    FULL_CALIBRATION,
    decode,
    pack,
)
from tests.archives.ncore.packer_rig import (
    add_poses,
    lidar,
    rig,
    still_imu,
)
from tests.session.build import (
    HEIGHT,
    START_NS,
    WIDTH,
    Builder,
    camera_spec,
    gnss_spec,
)

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
ipc: Any = pytest.importorskip("pyarrow.ipc")


def labelled(path: Path) -> Path:
    """A session with every kind of label, its rig turning at the spot."""
    builder = rig(path, 0.5)
    (builder.path / "calibration.yaml").write_text(FULL_CALIBRATION)
    camera_t = builder.streams["camera"].t_ns.tolist()
    sweep_t = builder.streams["lidar"].t_ns.tolist()
    boxes = [
        {"format": "recorder-boxes", "version": 1, "source": "manual", "camera": "camera"},
        {"t_ns": camera_t[2], "frame": 2, "track": "car_1", "class": "car",
         "box_px": [-0.5, 5.5, 16, 12], "occluded": 0.3},
        {"t_ns": camera_t[2], "class": "tree", "polygon_px": [[[0, 0], [31, 0], [31, 23]]]},
        {"t_ns": camera_t[4], "frame": 4, "track": "p", "class": "person", "mask": "p.png"},
    ]  # fmt: skip
    cuboids = [
        {"format": "recorder-cuboids", "version": 1, "source": "manual"},
        *(
            {"t_ns": t, "track": "car_1", "class": "car", "frame": frame,
             "center_m": [10 + k, 2, 0.75], "size_m": [4, 2, 1.5],
             "quaternion_xyzw": [0, 0, np.sqrt(0.5), np.sqrt(0.5)]}
            for k, t in enumerate(sweep_t) for frame in ("rig",)
        ),
    ]  # fmt: skip
    for folder, name, lines in (
        ("_labels", "camera.jsonl", boxes),
        ("_cuboids", "a.jsonl", cuboids),
    ):
        (builder.path / folder).mkdir()
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (builder.path / folder / name).write_text(text)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[3:9, 4:14] = 255
    for place in ("_labels/camera/p.png", "_masks/camera/ego.png"):
        (builder.path / place).parent.mkdir(parents=True)
        assert cv2.imwrite(str(builder.path / place), mask)
    t_ns = START_NS + np.arange(0, 60, dtype=np.int64) * 10_000_000
    add_poses(builder.path, t_ns, np.zeros((60, 3)), "_pose")
    return builder.close()


def test_annotations(tmp_path: Path) -> None:
    data = pack(labelled(tmp_path / "s"))
    rows = data.rows
    assert {row["frame"] for row in rows} == set(range(15))
    masks = [row for row in rows if row["ignore"]]
    assert len(masks) == 15
    assert {row["object_id"] for row in masks} == {f"{BASE}/ego"}
    assert all(row["exclude"] and row["iscrowd"] for row in masks)
    grey = decode(masks[0]["mask"])
    assert np.argwhere(grey)[[0, -1]].tolist() == [[3, 4], [8, 13]]
    assert masks[0]["mask"][24] == 1  # bits of a pixel
    (car,) = (row for row in rows if row["frame"] == 2 and row["object_id"] == f"{BASE}/car_1")
    assert np.allclose(car["box2d"], [0.25, 0.5, 0.5, 0.5])
    # The pictures that share its box in space do not share its place in this one.
    cars = [row for row in rows if row["object_id"] == f"{BASE}/car_1"]
    assert [row["frame"] for row in cars] == list(range(14))  # no sweep is near the last
    assert [row["frame"] for row in cars if row["box2d"] is not None] == [2]
    assert all(row["box3d"] is not None for row in cars)
    # Turned by 90 degrees, it is 2 m long and 4 m wide along the rig's axes.
    assert np.allclose(car["box3d"], [11, 2, 0.75, 2, 4, 1.5])
    assert (car["label"], car["occlusion"], car["ignore"]) == ("car", 1, False)
    (tree,) = (row for row in rows if row["label"] == "tree")
    assert np.allclose(
        tree["polygon"], [[0.5 / 32, 0.5 / 24, 31.5 / 32, 0.5 / 24, 31.5 / 32, 23.5 / 24]]
    )
    assert (tree["frame"], tree["object_id"], tree["box2d"]) == (2, None, None)
    (person,) = (row for row in rows if row["label"] == "person")
    assert person["mask"][24] == 1
    assert {row["label_index"] for row in rows} == {None, 0, 1, 2}
    assert all(row["pose"] == [0, 0, 0] for row in rows)
    assert all(row["size"] == [WIDTH, HEIGHT] for row in rows)


def test_boxes_of_other_frames(tmp_path: Path) -> None:
    """In a sensor's, in the world's with the rig somewhere in it, and in one nobody knows."""
    builder = Builder(tmp_path / "s")
    times = builder.add(camera_spec(), 0.2).t_ns
    (builder.path / "calibration.yaml").write_text(FULL_CALIBRATION)
    header = {"format": "recorder-cuboids", "version": 1, "source": "manual"}
    box = {"center_m": [3, 1, 0], "size_m": [2, 1, 1], "quaternion_xyzw": [0, 0, 0, 1]}
    lines = [
        {"t_ns": int(t), "track": frame, "class": "car", "frame": frame, **box}
        for t in times for frame in ("lidar", "world", "elsewhere")
    ]  # fmt: skip
    (builder.path / "_cuboids").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in (header, *lines))
    (builder.path / "_cuboids/a.jsonl").write_text(text)
    moved = np.stack([times - times[0], 0 * times, 0 * times], axis=1) / 1e9 * 10
    add_poses(builder.path, times, moved, "_pose")
    data = pack(builder.close())
    boxes = {(row["frame"], row["object_id"].split("/")[1]): row["box3d"] for row in data.rows}
    assert {track for _, track in boxes} == {"lidar", "world"}
    for frame, (x, _, _) in enumerate(moved):
        assert np.allclose(boxes[frame, "lidar"], [4, 1, 2, 2, 1, 1])
        assert np.allclose(boxes[frame, "world"], [3 - x, 1, 0, 2, 1, 1], atol=1e-5)
    assert data.noted("6 boxes in space are relative to no known frame") == 1


def write_sets(path: Path, sets: dict[str, str], lines: list[dict[str, Any]]) -> None:
    """Write the same boxes in space as several sets: the source by name."""
    for name, source in sets.items():
        header = {"format": "recorder-cuboids", "version": 1, "source": source}
        (path / "_cuboids").mkdir(exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in (header, *lines))
        (path / f"_cuboids/{name}.jsonl").write_text(text)


BOX = {"size_m": [2, 1, 1], "quaternion_xyzw": [0, 0, 0, 1], "frame": "rig", "class": "car",
       "center_m": [3, 1, 0]}  # fmt: skip


def test_sets_of_labels_stay_apart(tmp_path: Path) -> None:
    """Two sets together would contain every object twice."""
    builder = Builder(tmp_path / "s")
    times = builder.add(camera_spec(), 0.2).t_ns.tolist()
    lines = [{"t_ns": t, "track": "a", **BOX} for t in times]
    write_sets(builder.path, {"net": "yolo", "hand": "manual"}, lines)
    (builder.path / "_labels").mkdir()
    for name, track in (("camera", "a"), ("camera@net", "b")):
        header = {"format": "recorder-boxes", "version": 1, "source": "manual"}
        box = {"t_ns": times[0], "frame": 0, "track": track, "class": "car", "box_px": [1, 2, 3, 4]}
        text = json.dumps(header) + "\n" + json.dumps(box) + "\n"
        (builder.path / f"_labels/{name}.jsonl").write_text(text)
    path = builder.close()
    data = pack(path)
    assert [row["frame"] for row in data.rows] == list(range(6))  # one row a picture
    assert data.rows[0]["box2d"] is not None
    assert data.noted("_cuboids/net.jsonl: left out, hand is packed; the option cuboids") == 1
    assert data.noted("_labels/camera@net.jsonl: left out, camera is packed; the option") == 1
    other = pack(path, labels="net", cuboids="net")
    assert {row["object_id"].removeprefix(f"{BASE}/") for row in other.rows} == {"a", "b"}
    assert other.noted("_cuboids/hand.jsonl: left out, net is packed") == 1
    choices: list[dict[str, Any]] = [{"labels": "nets"}, {"cuboids": "nets"}]
    for choice in choices:
        with pytest.raises(SessionError, match=r"has no set 'nets'; there are: .*net"):
            pack(path, **choice)


@pytest.mark.parametrize("schema", ["2026.10", "mission"])
def test_the_qualities_of_labels_have_columns(tmp_path: Path, schema: str) -> None:
    builder = Builder(tmp_path / "s")
    times = builder.add(camera_spec(), 0.1).t_ns.tolist()
    qualities = {"score": 0.75, "truncated": 0.6, "occluded": 0.1, "status": "verified",
                 "degradation": "low", "metadata": {"colour": "red"}}  # fmt: skip
    lines = [{"t_ns": times[0], "track": track, **BOX, **qualities} for track in ("a", "b")]
    write_sets(builder.path, {"hand": "manual"}, lines)
    header = {"format": "recorder-boxes", "version": 1}
    box = {"t_ns": times[0], "frame": 0, "track": "a", "class": "car", "box_px": [1, 2, 3, 4],
           "polygon_px": [[[0, 0], [9, 0], [9, 9]]], "score": 0.5, "status": "draft"}  # fmt: skip
    (builder.path / "_labels").mkdir()
    text = json.dumps(header) + "\n" + json.dumps(box) + "\n"
    (builder.path / "_labels/camera.jsonl").write_text(text)
    data = pack(builder.close(), schema=schema)
    joined, other = (row for row in data.rows if row["frame"] == 0)
    assert (joined["status"], joined["degradation"]) == ("draft", "low")
    assert (other["status"], other["degradation"]) == ("verified", "low")
    scores = ["box2d_score", "polygon_score", "box3d_score", "mask_score"]
    if schema == "mission":  # outlines are its masks
        scores[1], scores[3] = scores[3], scores[1]
    assert [joined.get(name) for name in scores] == [0.5, 0.5, 0.75, None]
    assert [other.get(name) for name in scores] == [None, None, 0.75, None]
    for row in (joined, other):
        assert (row["truncation"], row["occlusion"]) == (2, 1)
    assert data.noted("left out") == 1  # metadata
    words = "metadata of 2 lines left out; edgefirst.columns names the entries to pack"
    assert data.noted(f"_cuboids/hand.jsonl: {words}") == 1


def test_boxes_in_space_are_of_the_sweeps_time(tmp_path: Path) -> None:
    """Not of the picture's; where no sweep goes with it, they are."""
    builder = Builder(tmp_path / "s")
    times = builder.add(camera_spec(), count=12).t_ns.tolist()
    sweeps = builder.add(lidar(), count=2, offset_ns=15_000_000).t_ns.tolist()
    header = {"format": "recorder-cuboids", "version": 1, "source": "manual"}
    box = {"size_m": [2, 1, 1], "quaternion_xyzw": [0, 0, 0, 1], "frame": "rig", "class": "car"}
    of = [(t, "picture") for t in times] + [(t, "sweep") for t in sweeps]
    lines = [{"t_ns": t, "track": track, "center_m": [0, 0, 0], **box} for t, track in sorted(of)]
    (builder.path / "_cuboids").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in (header, *lines))
    (builder.path / "_cuboids/a.jsonl").write_text(text)
    data = pack(builder.close(), tolerance_ms=16)
    tracks = {row["frame"]: row["object_id"].removeprefix(f"{BASE}/") for row in data.rows}
    with_sweep = {n for n in range(12) if "lidar.pcd" in data.endings(n)}
    assert with_sweep == {0, 3}
    assert tracks == {n: "sweep" if n in with_sweep else "picture" for n in range(12)}


def test_pictures_that_are_left_out_take_their_boxes_along(tmp_path: Path) -> None:
    """Sets of boxes between two samples are passed over."""
    builder = Builder(tmp_path / "s")
    times = builder.add(camera_spec(), 1.0).t_ns.tolist()
    header = {"format": "recorder-cuboids", "version": 1, "source": "manual"}
    box = {"size_m": [2, 1, 1], "quaternion_xyzw": [0, 0, 0, 1], "frame": "rig", "class": "car"}
    lines = [{"t_ns": t, "track": "a", "center_m": [k, 0, 0], **box} for k, t in enumerate(times)]
    (builder.path / "_cuboids").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in (header, *lines))
    (builder.path / "_cuboids/a.jsonl").write_text(text)
    data = pack(builder.close(), every=7, tolerance_ms=1)
    assert {row["frame"]: row["box3d"][0] for row in data.rows} == {k: k for k in range(0, 30, 7)}


def test_annotations_in_the_missions_schema(tmp_path: Path) -> None:
    data = pack(labelled(tmp_path / "s"), schema="mission")
    (person,) = (row for row in data.rows if row["label"] == "person")
    outline = np.array(person["mask"]).reshape(-1, 2) * (WIDTH, HEIGHT) - 0.5
    assert np.allclose([outline.min(axis=0), outline.max(axis=0)], [[4, 3], [13, 8]], atol=1e-5)
    (tree,) = (row for row in data.rows if row["label"] == "tree")
    assert len(tree["mask"]) == 6
    assert "ignore" not in data.table.schema.names
    assert len({row["frame"] for row in data.rows}) == 15


def test_the_missions_schema_tells_an_ego_mask_from_an_object(tmp_path: Path) -> None:
    """It has no columns `ignore` and `exclude`; classes keep the indices that they have alone."""
    path = labelled(tmp_path / "s")
    data = pack(path, schema="mission")
    regions = [row for row in data.rows if row["object_id"] == f"{BASE}/ego"]
    assert len(regions) == 15
    assert {row["label"] for row in regions} == {"ignore.ego"}
    classes = {row["label"]: row["label_index"] for row in data.rows if row["label"]}
    assert classes.pop("ignore.ego") == len(classes)
    alone = pack(path, schema="mission", masks="none")
    assert classes == {row["label"]: row["label_index"] for row in alone.rows if row["label"]}
    present = pack(path)
    labels = {row["label"] for row in present.rows if row["object_id"] == f"{BASE}/ego"}
    assert labels == {None}  # there the columns tell


def test_a_box_that_is_none_is_named(tmp_path: Path) -> None:
    """Where it stands, and the picture that it was read for."""
    path = labelled(tmp_path / "s")
    file = path / "_cuboids/a.jsonl"
    lines = file.read_text().splitlines()
    broken = json.loads(lines[3])
    broken["size_m"][1] = "2"
    file.write_text("\n".join([*lines[:3], json.dumps(broken), *lines[4:]]))
    with pytest.raises(ArchiveError, match=r"camera, sample \d+: .*/a\.jsonl:4: size_m: needs 3"):
        pack(path)


def segmented(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec(), 0.1)
    folder = builder.path / "_camera"
    folder.mkdir()
    classes = np.arange(3)[:, None, None] + np.zeros((3, HEIGHT, WIDTH), np.uint8)
    classes.astype(np.uint8).tofile(folder / "segment")
    meta = {"segment": {"format": "raw", "type": "u1", "shape": [HEIGHT, WIDTH], "desc": ""}}
    (folder / "meta.json").write_text(json.dumps(meta))
    return builder.close()


def test_classes_of_pixels(tmp_path: Path) -> None:
    path = segmented(tmp_path / "s")
    left_out = pack(path)
    assert left_out.noted("_camera: ", "edgefirst.masks=classes packs them") == 1
    data = pack(path, masks="classes")
    for row in data.rows:
        grey = decode(row["mask"])
        assert (grey == row["frame"]).all()
    metadata = data.table.schema.metadata
    assert metadata[b"mask_interpretation"] == b"class_index"
    assert json.loads(metadata[b"labels"]) == ["class_0", "class_1", "class_2"]


def test_places(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.5)
    made = builder.add(gnss_spec(), 0.6)
    fixes = np.tile([52.5, -13.25, 34.0], (len(made.t_ns), 1))
    fixes.astype("<f8").tofile(builder.path / "gnss/pos")
    data = pack(builder.close())
    assert all(row["location"] == [52.5, -13.25] for row in data.rows)
    mission = pack(builder.path, schema="mission")
    assert all(row["location"] == [-13.25, 52.5] for row in mission.rows)
    assert b"WGS-84\0" in data.file(0, "camera.jpeg")


def test_poses_that_nobody_measured_are_said_once(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "imu")
    builder.add(camera_spec(), 0.3)
    builder.add(still_imu(), 0.4)
    notes = [note for note in pack(builder.close()).result.notes if note.startswith("poses:")]
    assert notes == ["poses: orientation from the IMU, translation is zero and not known"]
    builder = Builder(tmp_path / "measured")
    builder.add(camera_spec(), 0.3)
    t_ns = START_NS + np.arange(-1, 5) * 100_000_000
    add_poses(builder.path, t_ns, np.zeros((len(t_ns), 3)), "_pose")
    notes = [note for note in pack(builder.close()).result.notes if note.startswith("poses:")]
    assert notes == []


def test_the_pose_is_the_imus_where_there_is_no_better(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.3)
    builder.add(still_imu(), 0.4)
    turned = np.tile(np.radians([10.0, -20.0, 30.0]), (40, 1)).astype("<f4")
    turned.tofile(builder.path / "imu/rot")
    data = pack(builder.close())
    assert np.allclose([row["pose"] for row in data.rows], [30, -20, 10], atol=1e-4)
    mission = pack(builder.path, schema="mission")
    assert np.allclose([row["pose"] for row in mission.rows], [10, -20, 30], atol=1e-4)
