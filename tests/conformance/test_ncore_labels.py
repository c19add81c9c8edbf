"""NVIDIA's loader on sessions with labels of every kind, on odd ones, and on ones packed again."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.archives.finalize import ArchiveRequest, PackedArchive, finalize
from recorder.archives.ncore import SequenceWriter
from recorder.archives.ncore.format.sequence import StoreKind
from recorder.archives.validation import validate_archive
from recorder.codecs.raw_pixels import RawPixels
from recorder.perception.camera.camera_pictures import Pictures
from recorder.session.reader import Session
from tests.archives.contract import backward, empty_imu
from tests.archives.ncore import build
from tests.archives.ncore.packer_rig import CALIBRATION, add_poses, lidar, rig, still_imu
from tests.archives.ncore.test_calibrations import write_sets
from tests.archives.ncore.test_packer import add_sets, write_labels
from tests.session.build import (
    START_NS,
    Builder,
    build_session,
    camera_spec,
    radar_spec,
    raw_camera_spec,
)
from tests.session.camera_labels import KINDS, make_values, write_folder

components: Any = pytest.importorskip(
    "ncore.impl.data.v4.components", reason="needs nvidia-ncore, which is not installed"
)
compat: Any = pytest.importorskip("ncore.impl.data.v4.compat")

pytestmark = pytest.mark.conformance
S = 1_000_000_000


def pack(path: Path, **options: Any) -> PackedArchive:
    (result,) = finalize(path, [ArchiveRequest("ncore", options)])
    return result


def load(meta: Path) -> Any:
    return compat.SequenceLoaderV4(components.SequenceComponentGroupsReader([meta]))


# What stands beside the streams


@pytest.fixture(scope="module", params=["itar", "folder"])
def labelled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The session, and NVIDIA's view of it."""
    path = rig(tmp_path_factory.mktemp("root") / "drive").close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    t_ns = START_NS + np.arange(-5, 30, dtype=np.int64) * 50_000_000
    add_poses(path, t_ns, np.stack([(t_ns - START_NS) / S] * 3, axis=1), "_pose")
    write_labels(path)
    loader = load(pack(path, store=request.param).files[-1])
    with Session(path, virtual=True) as session:
        yield session, loader


def test_camera_labels_are_the_segments(labelled: Any) -> None:
    session, loader = labelled
    (name,) = loader.camera_labels_ids
    labels = loader.get_camera_labels(name)
    ends = session.streams["camera"].t_ns // 1000
    for number, index in enumerate((1, 4)):
        image = labels.get_label(int(ends[index])).get_data()
        assert np.array_equal(image, np.full((24, 32), number, np.uint8))
    assert labels.label_descriptor.camera_id == "camera"


def test_point_clouds(labelled: Any) -> None:
    _, loader = labelled
    source = loader.get_point_clouds_source("map")
    cloud = source.get_pc(0)
    assert np.array_equal(cloud.xyz, np.arange(12, dtype=np.float32).reshape(4, 3))
    assert np.array_equal(cloud.get_attribute("label"), np.arange(4, dtype=np.uint8))
    assert cloud.reference_frame_id == "world"


def test_sets_are_instances_and_clouds_turn_as_described(tmp_path: Path) -> None:
    path = rig(tmp_path / "drive").close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    t_ns = START_NS + np.arange(-5, 30, dtype=np.int64) * 50_000_000
    add_poses(path, t_ns, np.stack([(t_ns - START_NS) / S] * 3, axis=1), "_pose")
    write_labels(path)
    add_sets(path)
    reader = components.SequenceComponentGroupsReader([pack(path).files[-1]])
    tracks = {}
    for instance in ("default", "net"):
        loader = compat.SequenceLoaderV4(reader, cuboids_component_group_name=instance)
        tracks[instance] = [seen.track_id for seen in loader.get_cuboid_track_observations()]
    assert tracks == {"default": ["car_1"], "net": ["car_9"]}
    cloud = loader.get_point_clouds_source("model").get_pc(0)
    assert cloud.coordinate_unit.name == "UNITLESS"
    moved = cloud.transform("rig", cloud.reference_frame_timestamp_us, loader.pose_graph)
    # Ahead of the camera is ahead of the rig; below it is down.
    assert np.allclose(moved.get_attribute("normal"), [[0, 0, -1], [1, 0, 0]], atol=1e-6)
    assert np.allclose(moved.get_attribute("goal"), moved.xyz + np.array([1, -1, -1]), atol=1e-5)
    assert moved.get_attribute("label").tolist() == [1, 1]
    source = loader.get_point_clouds_source("model")
    assert source.get_pc_generic_data(0, "bounds").tolist() == [[0, 5]]
    assert source.get_pc_generic_meta_data(0) == {"epoch": 3}


def test_masks_and_boxes(labelled: Any) -> None:
    _, loader = labelled
    sensor = loader.get_camera_sensor("camera")
    (mask,) = sensor.get_mask_images().values()
    assert np.array_equal(np.asarray(mask), np.eye(24, 32, dtype=np.uint8) * 255)
    boxes = [sensor.get_frame_generic_meta_data(i)["boxes"] for i in range(3)]
    assert [len(found) for found in boxes] == [1, 0, 2]
    (cuboid,) = loader.get_cuboid_track_observations()
    assert (cuboid.track_id, cuboid.bbox3.centroid) == ("car_1", (5, 0, 1))


def test_intrinsics_project_as_opencv_does(labelled: Any) -> None:
    _, loader = labelled
    model = loader.get_camera_sensor("camera").model_parameters
    assert model.focal_length.tolist() == [30, 31]
    assert model.principal_point.tolist() == [16, 12]  # of OpenCV's (15.5, 11.5)
    assert model.radial_coeffs.tolist() == pytest.approx([0.1, 0, 0, 0, 0, 0])


# Odd sessions


def one(spec: Any) -> Callable[[Path], Path]:
    def build_one(path: Path) -> Path:
        return build_session(path, spec, count=3).path

    return build_one


def late_and_early(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec(), 2.5)
    builder.add(lidar(), 0.5, offset_ns=S)
    builder.add(still_imu(), 0.5, offset_ns=S)
    return builder.close()


def recovered(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec(), seq=[0, 1, 2, 7, 8])
    builder.lose("camera", 3, 6)
    builder.lose("camera", 9, None, "crash", count=None)
    return builder.close("recovered")


ODD: dict[str, tuple[Callable[[Path], Path], dict[str, int], list[str]]] = {
    "equal and backward times": (
        backward, {"camera": 8}, ["the same microsecond", "times go backward"]),
    "a camera only, not calibrated": (
        one(camera_spec()), {"camera": 3}, ["no intrinsics", "no calibration"]),
    "a lidar only": (one(lidar()), {"lidar": 3}, ["no calibration"]),
    "a radar only": (one(radar_spec()), {"radar": 3}, ["no antennas", "no calibration"]),
    "an IMU only": (one(still_imu()), {}, ["orientation"]),
    "an empty stream": (empty_imu, {"camera": 6}, ["imu: no sample was recorded"]),
    "a late stream, and early ends": (
        late_and_early, {"camera": 75, "lidar": 5},
        ["imu: begins 1.", "imu: ends 0.", "lidar: begins", "lidar: ends", "before the first of"]),
    "recovered, with gaps": (
        recovered, {"camera": 5},
        ["session: recovered", "camera: lost samples: 4 (buffer), an interval of unknown count"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_sessions_open(tmp_path: Path, name: str) -> None:
    make, frames, sentences = ODD[name]
    path = make(tmp_path / "odd")
    result = pack(path)
    for sentence in sentences:
        assert sum(sentence in note for note in result.notes) == 1, result.notes
    assert len(set(result.notes)) == len(result.notes)
    loader = load(result.files[-1])
    found = {}
    for ids, get in (
        (loader.camera_ids, loader.get_camera_sensor),
        (loader.lidar_ids, loader.get_lidar_sensor),
        (loader.radar_ids, loader.get_radar_sensor),
    ):
        for sensor_id in ids:
            sensor = get(sensor_id)
            found[sensor_id] = sensor.frames_count
            times = sensor.frames_timestamps_us.astype(np.int64)
            assert (np.diff(times, axis=0) > 0).all()
            assert (times[:, 0] <= times[:, 1]).all()
    assert found == frames
    interval = loader.sequence_timestamp_interval_us
    ends = np.array([interval.start, interval.stop - 1], np.uint64)
    for frame in [*found, "rig"]:
        assert loader.pose_graph.evaluate_poses(frame, "world", ends).shape == (2, 4, 4)
    assert loader._poses_reader.generic_meta_data["notes"] == list(result.notes)


# Packed again, with what was added


@pytest.mark.parametrize("store", ["itar", "folder"])
def test_added_components_open_with_what_is_packed_again(tmp_path: Path, store: StoreKind) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.5)
    path = builder.close()
    meta = pack(path, store=store).files[-1]
    end_ns = int(builder.streams["camera"].t_ns[3])
    done, image = cv2.imencode(".png", np.full((24, 32), 7, np.uint8))
    assert done
    with SequenceWriter.extend(meta, store=store) as later:
        labels = later.camera_labels(build.CLASSES, "reviewed@camera", group="labels")
        labels.label(end_ns, bytes(image.data))
        added = later.custom("com.example.velocity", "fused", group="labels")
        added.group.array("velocities", np.eye(3))
    (path / "calibration.yaml").write_text(CALIBRATION)
    again = pack(path, store=store).files[-1]
    loader = load(again)
    read = loader.get_camera_labels("reviewed@camera").get_label(end_ns // 1000)
    assert np.array_equal(read.get_data(), np.full((24, 32), 7, np.uint8))
    assert loader.get_camera_sensor("camera").model_parameters.focal_length.tolist() == [30, 31]
    reader = components.SequenceComponentGroupsReader([again])
    theirs = {e["path"]: e for e in reader.get_sequence_meta().to_dict()["component_stores"]}
    ours = {e["path"]: e for e in json.loads(again.read_text())["component_stores"]}
    assert ours == theirs  # the MD5 of each, among others
    assert len(ours) == 2


# Labels with a value per pixel


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """NVIDIA's view of a session with labels of every kind, of the pictures 1 and 4."""
    builder = Builder(tmp_path_factory.mktemp("root") / "drive")
    builder.add(camera_spec(), 0.5)
    path = builder.close()
    for name, about in KINDS.items():
        shape = tuple(about.get("shape", ()))
        labels = [({"t_ns": k, "frame": k}, make_values(about["dtype"], shape, k)) for k in (1, 4)]
        write_folder(path, name, labels)
    return load(pack(path).files[-1])


SOURCES = {"simulated": "GT_SYNTHETIC", "manual": "GT_ANNOTATION"}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_label(pixels: Any, name: str) -> None:
    about, (kind, _, label_set) = KINDS[name], name.partition("@")
    instance = f"{kind}@camera" + (f"@{label_set}" if label_set else "")
    labels = pixels.get_camera_labels(instance)
    descriptor = labels.label_descriptor
    assert descriptor.camera_id == "camera"
    found = descriptor.label_type
    assert f"{found.category.name.lower()}.{found.qualifier}" == kind
    assert (None if found.unit is None else found.unit.name.lower()) == about["unit"]
    source = about.get("source", "EXTERNAL")
    assert descriptor.label_source.name == SOURCES.get(source, source)
    assert tuple(descriptor.label_schema.shape_suffix) == tuple(about.get("shape", ()))
    ends = pixels.get_camera_sensor("camera").frames_timestamps_us[:, 1]
    assert labels.label_timestamps_us.tolist() == [int(ends[1]), int(ends[4])]
    for k in (1, 4):
        values = make_values(about["dtype"], tuple(about.get("shape", ())), k)
        read = labels.get_label(int(ends[k])).get_data()
        assert (read.dtype, read.shape) == (values.dtype, values.shape)
        step = about.get("quantization", {"scale": 0.0})["scale"]
        assert np.abs(read.astype(float) - values).max() <= step / 2 + 1e-6 * bool(step)


def test_labels_are_found_by_what_they_are(pixels: Any) -> None:
    category = importlib.import_module("ncore.impl.data.types").LabelCategory.SEGMENTATION
    queried = pixels.query_camera_labels("camera", label_category=category)
    kinds = sorted(found.label_descriptor.label_type.qualifier for found in queried)
    assert kinds == ["instance", "semantic"]


def test_the_loader_reads_the_calibration_that_it_is_asked_for(tmp_path: Path) -> None:
    path = rig(tmp_path / "drive").close()
    write_sets(path)
    reader = components.SequenceComponentGroupsReader([pack(path).files[-1]])
    found = {}
    for name in ("default", "factory", "online_refined"):
        loader = compat.SequenceLoaderV4(
            reader, poses_component_group_name=name, intrinsics_component_group_name=name
        )
        times = loader.get_camera_sensor("camera").frames_timestamps_us[:1, 1]
        (pose,) = loader.pose_graph.evaluate_poses("camera", "rig", times)
        loader.pose_graph.evaluate_poses("lidar", "world", times)
        model = loader.get_camera_sensor("camera").model_parameters
        found[name] = [*pose[:3, 3].tolist(), model.type(), *model.focal_length.tolist()]
        assert loader.get_lidar_sensor("lidar").model_parameters is not None
    assert found == {
        "default": [1, 0, 1.5, "opencv-pinhole", 30, 31],
        "factory": [2, 0, 1.5, "opencv-pinhole", 30, 31],
        "online_refined": [1, 0, 1.5, "opencv-fisheye", 20, 21],
    }


# Groups of components


@pytest.mark.parametrize("store", ["itar", "folder"])
def test_the_loader_composes_groups_that_were_packed_at_different_times(
    tmp_path: Path, store: str
) -> None:
    path = rig(tmp_path / "drive").close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    write_labels(path)
    pack(path, groups="standard", store=store)
    (path / "_cuboids/hand.jsonl").unlink()
    add_sets(path)
    write_sets(path)
    better = CALIBRATION.replace("[1, 0, 1.5]", "[1.25, 0, 1.5]").replace("fx: 30", "fx: 33")
    (path / "calibration.yaml").write_text(better)
    label = ({"t_ns": 0, "frame": 3}, make_values("f4"))
    write_folder(path, "depth.z", [label])
    result = pack(path, store=store, only=["labels", "poses"])
    assert len(result.kept) == 1
    reader = components.SequenceComponentGroupsReader([result.files[-1]])
    assert len(reader.component_store_paths) == 3
    loader = compat.SequenceLoaderV4(reader)
    camera = loader.get_camera_sensor("camera")
    ends = camera.frames_timestamps_us[:, 1]
    (pose,) = loader.pose_graph.evaluate_poses("camera", "rig", ends[:1])
    assert pose[:3, 3].tolist() == [1.25, 0, 1.5]
    assert camera.model_parameters.focal_length.tolist() == [33, 31]
    assert [seen.track_id for seen in loader.get_cuboid_track_observations()] == ["car_9"]
    read = loader.get_camera_labels("depth.z@camera").get_label(int(ends[3])).get_data()
    assert np.abs(read - make_values("f4")).max() <= 0.00390625 / 2 + 1e-6
    assert list(camera.get_mask_images()) == ["ego"]
    assert loader.get_point_clouds_source("model").pcs_count == 1
    for sensor, get in (("lidar", loader.get_lidar_sensor), ("radar", loader.get_radar_sensor)):
        assert get(sensor).frames_count > 0
        loader.pose_graph.evaluate_poses(sensor, "world", ends[:1])
    factory = compat.SequenceLoaderV4(reader, poses_component_group_name="factory")
    (pose,) = factory.pose_graph.evaluate_poses("camera", "rig", ends[:1])
    assert pose[:3, 3].tolist() == [2, 0, 1.5]
    theirs = {e["path"]: e for e in reader.get_sequence_meta().to_dict()["component_stores"]}
    ours = {e["path"]: e for e in json.loads(result.files[-1].read_text())["component_stores"]}
    assert ours == theirs


# What `recorder validate` says of it


def test_labels_groups_and_calibrations_validate(tmp_path: Path) -> None:
    path = rig(tmp_path / "drive").close()
    write_labels(path)
    add_sets(path)
    write_sets(path)
    write_folder(path, "mask.dynamic", [({"t_ns": 0, "frame": 3}, make_values("u1"))])
    report = validate_archive(pack(path, groups="standard").files[-1])
    assert (report.problems, report.unchecked) == ([], [])
    said = "\n".join(report.checked)
    for words in ("3 stores: MD5", "mask.dynamic@camera 1 labels", "2 cuboids",
                  "poses of factory, online_refined", "intrinsics of factory"):  # fmt: skip
        assert words in said, said


def test_a_label_of_another_shape_does_not_validate(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.5)
    meta = pack(builder.close()).files[-1]
    done, image = cv2.imencode(".png", np.zeros((24, 32, 3), np.uint8))
    assert done
    with SequenceWriter.extend(meta) as later:
        writer = later.camera_labels(build.CLASSES, "classes@camera", group="labels")
        writer.label(START_NS + S // 4, bytes(image.data))
    (problem,) = validate_archive(meta).problems
    assert "classes@camera, " in problem and "has shape [24, 32, 3]" in problem


# Raw pictures


@pytest.mark.parametrize("pixels", [RawPixels(12, "RGGB"), RawPixels(16), RawPixels(8)])
def test_raw_pictures_have_the_values_of_the_sensor(tmp_path: Path, pixels: RawPixels) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(raw_camera_spec(pixels=pixels), 0.2)
    path = builder.close()
    result = pack(path, raw_pictures="png")
    camera = load(result.files[-1]).get_camera_sensor("camera")
    with Session(path) as session:
        pictures = Pictures(session.streams["camera"])
        for index in range(camera.frames_count):
            image = np.asarray(camera.get_frame_image(index))
            assert image.dtype == pixels.dtype
            assert np.array_equal(image, pictures.values(index))
    report = validate_archive(result.files[-1])
    assert (report.problems, report.unchecked) == ([], [])
