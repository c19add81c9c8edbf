"""Datasets that nvidia-ncore and edgefirst-client wrote themselves, imported and packed again."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial.transform import Rotation

from recorder.session.reader import Session
from tests.acceptance.command import assert_nothing_lost, assert_sound, recorder

pytestmark = pytest.mark.conformance

START_US = 1_700_000_000_000_000
STOP_US = START_US + 1_000_000
RAYS = 500
CLIENT = Path(sys.executable).with_name("edgefirst-client")


def _jpeg(number: int, size: tuple[int, int] = (48, 64)) -> bytes:
    picture = np.full((*size, 3), 40 * number % 255, np.uint8)
    picture[: size[0] // 2] = 200
    return bytes(cv2.imencode(".jpg", picture)[1].tobytes())


def _directions(rng: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    vectors = rng.normal(size=(count, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


def _poses(count: int) -> npt.NDArray[np.float64]:
    poses = np.tile(np.eye(4), (count, 1, 1))
    turns = Rotation.from_euler("xyz", np.linspace(0, 0.6, 3 * count).reshape(count, 3))
    poses[:, :3, :3] = turns.as_matrix()
    poses[:, :3, 3] = np.linspace(0, 20, 3 * count).reshape(count, 3)
    return poses


def _write_sensors(c: Any, writer: Any) -> None:
    rng = np.random.default_rng(40)
    register = writer.register_component_writer
    camera = register(c.CameraSensorComponent.Writer, "cam.front", "cameras")
    for number in range(4):
        end = START_US + 50_000 + 200_000 * number
        times = np.array([end - 8_000, end], np.uint64)
        camera.store_frame(_jpeg(number), "jpeg", times, {"gain": np.ones(1)}, {"k": number})
    lidar = register(c.LidarSensorComponent.Writer, "roof", "rays")
    radar = register(c.RadarSensorComponent.Writer, "bumper", "rays")
    for number in range(3):
        start = START_US + 10_000 + 300_000 * number
        times = np.array([start, start + 99_000], np.uint64)
        stamps = (start + np.sort(rng.integers(0, 99_000, RAYS))).astype(np.uint64)
        distance = rng.uniform(1, 180, (2, RAYS)).astype(np.float32)
        distance[1, ::3] = np.nan
        intensity = np.where(np.isnan(distance), np.nan, np.float32(0.5)).astype(np.float32)
        element = rng.integers(0, 16, (RAYS, 2)).astype(np.uint16)
        lidar.store_frame(
            _directions(rng, RAYS), stamps, element, distance, intensity, times, {}, {}
        )
        radar.store_frame(
            _directions(rng, 5), stamps[:5], rng.uniform(1, 50, (1, 5)).astype(np.float32), times,
            {}, {},
        )  # fmt: skip


def _write_labels(c: Any, t: Any, writer: Any) -> None:
    cuboids = writer.register_component_writer(c.CuboidsComponent.Writer, "default", "labels")
    cuboids.store_observations(
        [
            t.CuboidTrackObservation(
                f"track{k}", "car", START_US + 100_000, "rig", START_US + 109_000,
                t.BBox3((1.0 + k, 2.0, 0.5), (4.0, 2.0, 1.5), (0.1, -0.2, 0.3)),
                t.LabelSource.AUTOLABEL, "net 3",
            )
            for k in range(3)
        ]
    )  # fmt: skip
    attributes = {
        "normal": c.PointCloudsComponent.AttributeSchema(
            c.PointCloud.AttributeTransformType.DIRECTION, np.dtype(np.float32), (3,)
        )
    }
    clouds = writer.register_component_writer(
        c.PointCloudsComponent.Writer, "map", "labels", None,
        c.PointCloud.CoordinateUnit.METERS, attributes,
    )  # fmt: skip
    normal = np.tile(np.array([0, 0, 1], np.float32), (7, 1))
    clouds.store_pc(
        np.arange(21, dtype=np.float32).reshape(7, 3),
        "world",
        START_US + 200_000,
        {"normal": normal},
    )


def write_ncore(folder: Path, store: str) -> Path:
    """A sequence of NVIDIA's writer: three component groups, in their own stores."""
    c: Any = pytest.importorskip("ncore.impl.data.v4.components")
    t: Any = pytest.importorskip("ncore.impl.data.types")
    pil: Any = pytest.importorskip("PIL.Image")
    upath: Any = pytest.importorskip("upath")
    from ncore.impl.common.transformations import HalfClosedInterval  # type: ignore[import-not-found]

    interval = HalfClosedInterval(START_US, STOP_US)
    writer = c.SequenceComponentGroupsWriter(
        upath.UPath(folder), "theirs", "seq-7", interval, {"city": "x"}, store
    )
    poses = writer.register_component_writer(c.PosesComponent.Writer, "default")
    times = np.linspace(START_US, STOP_US - 1, 11).astype(np.uint64)
    poses.store_dynamic_pose("rig", "world", _poses(11), times)
    place = _poses(3)[2]
    for name in ("cam.front", "roof", "bumper"):
        poses.store_static_pose(name, "rig", place)
    models = writer.register_component_writer(c.IntrinsicsComponent.Writer, "default")
    models.store_camera_intrinsics(
        "cam.front",
        t.OpenCVPinholeCameraModelParameters(
            np.array([64, 48], np.uint64), t.ShutterType.ROLLING_TOP_TO_BOTTOM, None,
            np.array([32, 24], np.float32), np.array([50, 51], np.float32),
            np.array([0.1, 0, 0, 0, 0, 0], np.float32), np.zeros(2, np.float32),
            np.zeros(4, np.float32),
        ),
    )  # fmt: skip
    masks = writer.register_component_writer(c.MasksComponent.Writer, "default")
    ego = np.zeros((48, 64), np.uint8)
    ego[40:] = 255
    masks.store_camera_masks("cam.front", {"ego": pil.fromarray(ego)})
    _write_sensors(c, writer)
    _write_labels(c, t, writer)
    writer.finalize()
    return folder


def _load(paths: list[Path]) -> Any:
    components: Any = pytest.importorskip("ncore.impl.data.v4.components")
    compat: Any = pytest.importorskip("ncore.impl.data.v4.compat")
    return compat.SequenceLoaderV4(components.SequenceComponentGroupsReader(paths))


def _finish(folder: Path, source: Path, *options: str) -> Path:
    """Import, validate, and pack; return the session."""
    ran = recorder("import", source, "--root", folder, "--name", "back", *options)
    assert (ran.code, ran.complaints) == (0, []), ran.err
    session = folder / "back"
    assert_sound(session)
    assert_nothing_lost(session)
    return session


def _pack(session: Path, *options: str) -> Path:
    ran = recorder("finalize", session, "--to", *options)
    assert ran.code == 0, ran.err
    place = session / "_archives" / options[0]
    checked = recorder("validate", place)
    assert checked.code == 0, checked.out
    return place


@pytest.mark.parametrize("store", ["itar", "directory"])
def test_a_sequence_of_their_writer_comes_back(store: str, tmp_path: Path) -> None:
    pytest.importorskip("ncore.impl.data.v4.components", reason="needs nvidia-ncore")
    source = write_ncore(tmp_path / "theirs", store)
    session = _finish(tmp_path, source)
    theirs = _load(sorted(source.glob("*.zarr*")))
    ours = _load([_pack(session, "ncore") / "back.json"])
    before, after = theirs.get_camera_sensor("cam.front"), ours.get_camera_sensor("cam_front")
    assert np.array_equal(before.frames_timestamps_us, after.frames_timestamps_us)
    for index in range(before.frames_count):
        pictures = [
            sensor.get_frame_handle(index).get_data().get_encoded_image_data()
            for sensor in (before, after)
        ]
        assert bytes(pictures[0]) == bytes(pictures[1])
    assert before.model_parameters.to_dict() == after.model_parameters.to_dict()
    masks = [np.asarray(sensor.get_mask_images()["ego"]) for sensor in (before, after)]
    assert np.array_equal(masks[0], masks[1])
    for one, other, returns in (
        (theirs.get_lidar_sensor("roof"), ours.get_lidar_sensor("roof"), 2),
        (theirs.get_radar_sensor("bumper"), ours.get_radar_sensor("bumper"), 1),
    ):
        assert np.array_equal(one.frames_timestamps_us, other.frames_timestamps_us)
        for index in range(one.frames_count):
            for number in range(returns):
                clouds = [s.get_frame_point_cloud(index, True, False, number) for s in (one, other)]
                for left, right in zip(*(c.xyz_m_end.tolist() for c in clouds), strict=True):
                    assert left == pytest.approx(right, abs=1e-4, nan_ok=True)
    ends = before.frames_timestamps_us[:, 1]
    places = [
        loader.pose_graph.evaluate_poses(name, "world", ends)
        for loader, name in ((theirs, "cam.front"), (ours, "cam_front"))
    ]
    assert np.allclose(places[0], places[1], rtol=0, atol=1e-9)
    cuboids = [list(loader.get_cuboid_track_observations()) for loader in (theirs, ours)]
    assert len(cuboids[0]) == len(cuboids[1]) == 3
    for mine, their in zip(*cuboids, strict=True):
        assert mine.track_id == their.track_id and mine.source == their.source
        assert mine.bbox3.centroid == pytest.approx(their.bbox3.centroid, abs=1e-9)
        assert mine.bbox3.rot == pytest.approx(their.bbox3.rot, abs=1e-9)
    (one_cloud,), (other_cloud,) = (
        [loader.get_point_clouds_source("map").get_pc(0)] for loader in (theirs, ours)
    )
    assert np.array_equal(one_cloud.xyz, other_cloud.xyz)
    _pack(session, "edgefirst")


def _client(*arguments: object) -> None:
    pytest.importorskip("edgefirst_client", reason="needs edgefirst-client")
    ran = subprocess.run(
        [CLIENT, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("sequences", [False, True])
def test_pictures_that_the_client_lists_come_back(sequences: bool, tmp_path: Path) -> None:
    root = tmp_path / "set"
    name = "rig_2026_05_01_12_00_00"
    folder = root / "set" / (name if sequences else "")
    folder.mkdir(parents=True)
    for number in range(1, 5):
        (folder / f"{name}_{number:03d}.camera.jpeg").write_bytes(_jpeg(number))
    more = ["--detect-sequences"] if sequences else []
    _client("generate-arrow", root / "set", "--output", root / "set.arrow", *more)
    session = _finish(tmp_path, root)
    with Session(session) as read:
        pictures = read.streams["camera"].channels["video.avi"]
        for number in range(1, 5):
            assert pictures.encoded(number - 1) == _jpeg(number)
    _pack(session, "edgefirst")


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
def test_boxes_that_the_client_converted_come_back(ending: str, tmp_path: Path) -> None:
    images = [
        {"id": k, "file_name": f"{k:06d}.jpg", "width": 64, "height": 48} for k in range(1, 4)
    ]
    boxes = [
        {"id": k, "image_id": k, "category_id": 3, "bbox": [4.0 * k, 6.0, 10.0, 12.0],
         "area": 120.0, "iscrowd": 0,
         "segmentation": [[4.0 * k, 6.0, 4.0 * k + 10, 6.0, 4.0 * k + 10, 18.0]]}
        for k in range(1, 4)
    ]  # fmt: skip
    coco = {"images": images, "annotations": boxes, "categories": [{"id": 3, "name": "car"}]}
    (source := tmp_path / "coco").mkdir()
    for k in range(1, 4):
        (source / f"{k:06d}.jpg").write_bytes(_jpeg(k))
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    root = tmp_path / "set"
    root.mkdir()
    _client(
        "coco-to-arrow", tmp_path / "coco.json", "-o", root / f"set.{ending}", "--images", source
    )
    if not (root / "set").is_dir():
        (found,) = [path for path in root.rglob("*") if path.is_dir()]
        shutil.move(found, root / "set")
    session = _finish(tmp_path, root)
    text = (session / "_labels/camera.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()][1:]
    assert [line["class"] for line in lines] == ["car"] * 3
    for k, line in enumerate(lines, start=1):
        # COCO's corner of a pixel is ours, half a pixel before its centre.
        assert line["box_px"] == pytest.approx([4 * k - 0.5, 5.5, 10, 12], abs=1e-4)
        assert line["polygon_px"][0][0] == pytest.approx([4 * k - 0.5, 5.5], abs=1e-4)
    place = _pack(session, "edgefirst")
    again = tmp_path / "again.json"
    _client("arrow-to-coco", place / "back" / "back.arrow", "-o", again)
    found = json.loads(again.read_text())["annotations"]
    assert len(found) == 3
    assert {tuple(np.round(entry["bbox"], 3)) for entry in found} == {
        (4.0 * k, 6.0, 10.0, 12.0) for k in range(1, 4)
    }


def test_pillow_reads_what_was_recorded(tmp_path: Path) -> None:
    """A grey PNG of 16 bits of their writer has all its bits in the session."""
    pil: Any = pytest.importorskip("PIL.Image")
    values = np.arange(48 * 64, dtype=np.uint16).reshape(48, 64) * 20
    data = io.BytesIO()
    pil.fromarray(values).save(data, "PNG")
    from recorder.formats.images import PictureChannel

    pictures = PictureChannel(data.getvalue(), "png", "test")
    assert pictures.channel.name == "image.y16"
    assert np.array_equal(np.asarray(pictures.convert(data.getvalue(), "png"))[0], values)
