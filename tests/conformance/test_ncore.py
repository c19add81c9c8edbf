"""NVIDIA's own reader and loader on the sequences that we write, in both kinds of store."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from recorder.archives.ncore import Interval, OpenCvPinhole, SequenceWriter
from recorder.archives.ncore.format.sequence import StoreKind
from tests.archives.ncore import build
from tests.archives.ncore.build import START_NS, STOP_NS, Given

components: Any = pytest.importorskip(
    "ncore.impl.data.v4.components", reason="needs nvidia-ncore, which is not installed"
)
compat: Any = pytest.importorskip("ncore.impl.data.v4.compat")
pil_image: Any = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.conformance
INTERVAL = Interval.from_ns(START_NS, STOP_NS)


class Packed(NamedTuple):
    """A sequence, what went into it, and NVIDIA's view of it."""

    folder: Path
    given: Given
    reader: Any
    loader: Any


@pytest.fixture(scope="module", params=["itar", "folder"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    folder = tmp_path_factory.mktemp(request.param)
    given = build.write_sequence(folder, request.param)
    reader = components.SequenceComponentGroupsReader([folder / "drive.json"])
    return Packed(folder, given, reader, compat.SequenceLoaderV4(reader))


def us(t_ns: int) -> int:
    return t_ns // 1000


def test_root(packed: Packed) -> None:
    loader = packed.loader
    assert loader.sequence_id == "drive"
    assert loader.generic_meta_data == build.METADATA
    interval = loader.sequence_timestamp_interval_us
    assert (interval.start, interval.stop) == (INTERVAL.start_us, INTERVAL.stop_us)
    assert sorted(loader.camera_ids) == sorted(build.MODELS)
    assert (loader.lidar_ids, loader.radar_ids) == (["lidar"], ["radar"])


def test_the_json_file_is_what_the_reader_would_make(packed: Packed) -> None:
    ours = json.loads((packed.folder / "drive.json").read_text())
    assert ours == packed.reader.get_sequence_meta().to_dict()


def test_metadata_is_the_same_without_its_consolidated_form(packed: Packed) -> None:
    plain = components.SequenceComponentGroupsReader(
        [packed.folder / "drive.json"], open_consolidated=False
    )
    (stored,) = (root for root, _ in plain._component_stores.values())
    (consolidated,) = (root for root, _ in packed.reader._component_stores.values())
    seen = []
    consolidated.visititems(lambda path, item: seen.append((path, dict(item.attrs))))
    assert len(seen) > 150
    for path, attributes in seen:
        assert dict(stored[path].attrs) == attributes


def test_cameras(packed: Packed) -> None:
    for camera_id, frames in packed.given.cameras.items():
        sensor = packed.loader.get_camera_sensor(camera_id)
        assert sensor.frames_timestamps_us.tolist() == [[us(a), us(b)] for a, b, _ in frames]
        for index, (_, _, image) in enumerate(frames):
            stored = sensor.get_frame_handle(index).get_data()
            assert bytes(stored.get_encoded_image_data()) == image
            assert stored.get_encoded_image_format() == "jpeg"
            expected = np.asarray(pil_image.open(io.BytesIO(image)))
            assert np.array_equal(np.asarray(stored.get_decoded_image()), expected)
            assert sorted(sensor.get_frame_generic_data_names(index)) == ["empty", "gain"]
            assert sensor.get_frame_generic_data(index, "gain").tolist() == [index]
            assert sensor.get_frame_generic_data(index, "empty").shape == (0, 3)
            assert sensor.get_frame_generic_meta_data(index) == {"number": index}
    readers = packed.reader.open_component_readers(components.CameraSensorComponent.Reader)
    assert readers["fish"].generic_meta_data == {"position": "fish"}
    assert readers["fish"].get_generic_data("exposure_s").tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_intrinsics(packed: Packed) -> None:
    for camera_id, model in build.MODELS.items():
        read = packed.loader.get_camera_sensor(camera_id).model_parameters
        expected = model.attributes()
        assert read.type() == expected["camera_model_type"]
        assert read.to_dict() == expected["camera_model_parameters"]
    assert read.to_dict()["resolution"] == [64, 48]
    lidar = packed.loader.get_lidar_sensor("lidar").model_parameters
    assert lidar.to_dict() == build.LIDAR.attributes()["lidar_model_parameters"]


def test_fisheye_reach_is_as_theirs(packed: Packed) -> None:
    read = packed.loader.get_camera_sensor("fish").model_parameters
    theirs = type(read).compute_max_angle(
        read.resolution, read.focal_length, read.principal_point, read.radial_coeffs
    )
    assert read.max_angle == pytest.approx(theirs, abs=1e-4)


def test_masks(packed: Packed) -> None:
    masks = packed.loader.get_camera_sensor("front").get_mask_images()
    assert list(masks) == ["ego"]
    assert np.array_equal(np.asarray(masks["ego"]), packed.given.ego_mask * 255)
    assert packed.loader.get_camera_sensor("fish").get_mask_images() == {}


def test_poses(packed: Packed) -> None:
    t_ns, poses = packed.given.trajectory
    graph = packed.loader.pose_graph
    interpolated = graph.evaluate_poses("rig", "world", t_ns // 1000)
    assert np.allclose(interpolated, poses, rtol=0, atol=1e-12)  # it renormalizes rotations
    reader = packed.loader._poses_reader
    read, times = reader.get_dynamic_pose("rig", "world")
    assert np.array_equal(read, poses)
    assert np.array_equal(times, t_ns // 1000)
    for sensor, pose in packed.given.static.items():
        stored = reader.get_static_pose(sensor, "rig")
        assert stored.dtype == pose.dtype
        assert np.array_equal(stored, pose)
    assert np.array_equal(reader.get_generic_data("imu"), packed.given.imu)
    assert reader.get_generic_data("imu_t_ns").tolist() == list(range(300))
    assert reader.generic_meta_data == {"source": "identity"}


def test_lidar(packed: Packed) -> None:
    sensor = packed.loader.get_lidar_sensor("lidar")
    for index, sweep in enumerate(packed.given.sweeps):
        times = [us(sweep["t_start_ns"]), us(sweep["t_end_ns"])]
        assert sensor.frames_timestamps_us[index].tolist() == times
        assert np.array_equal(sensor.get_frame_ray_bundle_direction(index), sweep["direction"])
        stamps = sensor.get_frame_ray_bundle_timestamp_us(index)
        assert np.array_equal(stamps, sweep["t_ns"] // 1000)
        elements = sensor.get_frame_ray_bundle_model_element(index)
        assert (elements.dtype, elements[17].tolist()) == (np.uint16, [1, 1])
        assert sensor.get_frame_ray_bundle_return_count(index) == 2
        for number in range(2):
            distance = sweep["distance_m"][number]
            valid = sensor.get_frame_ray_bundle_return_valid_mask(index, number)
            assert np.array_equal(valid, ~np.isnan(distance))
            read = sensor.get_frame_ray_bundle_return_distance_m(index, number)
            assert np.array_equal(read, distance, equal_nan=True)
            read = sensor.get_frame_ray_bundle_return_intensity(index, number)
            assert np.array_equal(read, sweep["intensity"][number], equal_nan=True)
            cloud = sensor.get_frame_point_cloud(index, False, False, number).xyz_m_end
            expected = sweep["direction"] * distance[:, None]
            assert np.array_equal(cloud, expected, equal_nan=True)
        moved = sensor.get_frame_point_cloud(index, True, False, 0).xyz_m_end
        assert moved.shape == (build.RAYS, 3)
        assert np.array_equal(sensor.get_frame_generic_data(index, "rfl"), sweep["data"]["rfl"])
        reader = sensor.lidar_reader
        noise = reader.get_frame_ray_bundle_return_data(times[1], "range_noise_m", None)
        assert np.array_equal(noise, sweep["returns"]["range_noise_m"], equal_nan=True)


def test_radar(packed: Packed) -> None:
    sensor = packed.loader.get_radar_sensor("radar")
    assert sensor.frames_count == 3
    for index, frame in enumerate(packed.given.detections):
        assert sensor.get_frame_ray_bundle_count(index) == frame["distance_m"].shape[1]
        assert sensor.get_frame_generic_meta_data(index) == {}
        assert sensor.get_frame_generic_data_names(index) == []
        assert np.array_equal(sensor.get_frame_ray_bundle_direction(index), frame["direction"])
        read = sensor.get_frame_ray_bundle_return_distance_m(index)
        assert np.array_equal(read, frame["distance_m"][0])
        reader = sensor.radar_reader
        for name, values in frame["returns"].items():
            t_us = us(frame["t_end_ns"])
            read = reader.get_frame_ray_bundle_return_data(t_us, name, None)
            assert np.array_equal(read, values)
    assert reader.generic_meta_data == {"chirp": {"slope": 70.006}}


def test_cuboids(packed: Packed) -> None:
    read = list(packed.loader.get_cuboid_track_observations())
    assert len(read) == len(build.CUBOIDS)
    for theirs, ours in zip(read, build.CUBOIDS, strict=True):
        assert (theirs.track_id, theirs.class_id) == (ours.track, ours.category)
        assert theirs.timestamp_us == us(ours.t_ns)
        assert theirs.reference_frame_id == ours.frame
        assert theirs.reference_frame_timestamp_us == us(ours.frame_t_ns)
        assert theirs.bbox3.centroid == ours.center_m
        assert theirs.bbox3.dim == ours.size_m
        assert theirs.bbox3.rot == ours.rotation_xyz_rad
        assert (theirs.source.name, theirs.source_version) == (ours.source, ours.source_version)
        theirs.transform("world", us(ours.frame_t_ns), packed.loader.pose_graph)


def test_point_clouds(packed: Packed) -> None:
    source = packed.loader.get_point_clouds_source("map")
    assert source.pc_timestamps_us.tolist() == [us(c["t_ns"]) for c in packed.given.clouds]
    for index, cloud in enumerate(packed.given.clouds):
        read = source.get_pc(index)
        assert np.array_equal(read.xyz, cloud["xyz"])
        assert (read.reference_frame_id, read.coordinate_unit.name) == ("world", "METERS")
        assert sorted(read.attribute_names) == ["normal", "rgb", "weight"]
        for name, values in cloud["attributes"].items():
            attribute = read.get_attribute(name)
            assert attribute.dtype == values.dtype
            assert np.array_equal(attribute, values)
        assert read.get_attribute_transform_type("normal").name == "DIRECTION"
        assert np.array_equal(source.get_pc_generic_data(index, "votes"), cloud["data"]["votes"])
        assert source.get_pc_generic_meta_data(index) == {"number": index}


def test_camera_labels(packed: Packed) -> None:
    loader, given = packed.loader, packed.given
    ids = ["depth.z@front", "flow.optical_forward@front", "segmentation.semantic@front"]
    assert sorted(loader.camera_labels_ids) == ids
    depth, flow, classes = (loader.get_camera_labels(name) for name in ids)
    for t_ns, values in given.depths:
        read = depth.get_label(us(t_ns))
        assert read.get_data().dtype == np.float32
        assert np.abs(read.get_data() - values).max() <= 0.00501 + 600 * 2**-23
    assert read.generic_meta_data == {"number": 2}
    for t_ns, values in given.flows:
        assert np.array_equal(flow.get_label(us(t_ns)).get_data(), values)
    for t_ns, image in given.classes:
        label = classes.get_label(us(t_ns))
        assert label.get_encoded_data() == image
        assert np.array_equal(label.get_data(), np.asarray(pil_image.open(io.BytesIO(image))))
    assert classes.labels_generic_meta_data == {"names": ["road", "car"]}
    types: Any = pytest.importorskip("ncore.impl.data.types")
    assert depth.label_descriptor.label_type == types.LabelType.DEPTH_Z_M
    assert flow.label_descriptor.label_type == types.LabelType.FLOW_OPTICAL_FORWARD_PX
    assert classes.label_descriptor.label_type == types.LabelType.SEGMENTATION_SEMANTIC
    for labels, ours in ((depth, build.DEPTH), (flow, build.FLOW), (classes, build.CLASSES)):
        assert labels.label_descriptor.to_dict() == ours.document()
        assert labels.label_descriptor.default_instance_name == ours.instance
    assert len(loader.query_camera_labels("front", label_category=types.LabelCategory.DEPTH)) == 1


def test_custom_components(packed: Packed) -> None:
    class Reader(components.ComponentReader):  # type: ignore[misc]
        @staticmethod
        def get_component_name() -> str:
            return "com.example.velocity"

        @staticmethod
        def supports_component_version(version: str) -> bool:
            return version == "v2"

    (reader,) = packed.reader.open_component_readers(Reader).values()
    assert reader.instance_name == "fused"
    assert np.array_equal(reader._group["velocities"][:], np.eye(3))


@pytest.mark.parametrize("store", ["itar", "folder"])
def test_components_in_groups_and_later_ones(tmp_path: Path, store: StoreKind) -> None:
    with SequenceWriter(
        tmp_path, "drive", interval_ns=(START_NS, STOP_NS), metadata={"a": 1}, store=store
    ) as sequence:
        build.write_poses(sequence, ["front"], Given())
        model = OpenCvPinhole((64, 48), focal_length_px=(9, 9), principal_point_px=(32, 24))
        sequence.intrinsics(group="calibration").camera("front", model)
        sequence.camera("front", group="images").frame(START_NS, START_NS + 1000, build.jpeg(1))
    with SequenceWriter.extend(tmp_path / "drive.json", store=store) as later:
        labels = later.camera_labels(build.CLASSES, group="labels")
        labels.label(START_NS + 1000, b"\x89PNG")
        later.poses("refined", group="poses2").static_pose("front", "rig", np.eye(4))
    ending = ".zarr.itar" if store == "itar" else ".zarr"
    groups = ("", "-calibration", "-images", "-labels", "-poses2")
    names = {f"drive.ncore4{group}{ending}" for group in groups} | {"drive.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
    reader = components.SequenceComponentGroupsReader([tmp_path / "drive.json"])
    loader = compat.SequenceLoaderV4(reader)
    assert loader.get_camera_sensor("front").frames_count == 1
    assert loader.get_camera_labels("segmentation.semantic@front").labels_count == 1
    compat.SequenceLoaderV4(reader, poses_component_group_name="refined")
    ours = json.loads((tmp_path / "drive.json").read_text())
    theirs = reader.get_sequence_meta().to_dict()
    by_path = {entry["path"]: entry for entry in theirs.pop("component_stores")}
    assert {entry["path"]: entry for entry in ours.pop("component_stores")} == by_path
    assert ours == theirs


def test_an_empty_sequence_opens(tmp_path: Path) -> None:
    with SequenceWriter(tmp_path, "drive", interval_ns=(START_NS, STOP_NS)) as sequence:
        sequence.poses().static_pose("rig", "world", np.eye(4))
        sequence.point_clouds("none")
        sequence.camera_labels(build.CLASSES)
    reader = components.SequenceComponentGroupsReader([tmp_path / "drive.json"])
    loader = compat.SequenceLoaderV4(reader)
    assert (loader.camera_ids, list(loader.get_cuboid_track_observations())) == ([], [])
    assert loader.get_point_clouds_source("none").pcs_count == 0
    assert loader.get_camera_labels("segmentation.semantic@front").labels_count == 0


def test_placeholder_intrinsics_open(tmp_path: Path) -> None:
    with SequenceWriter(tmp_path, "drive", interval_ns=(START_NS, STOP_NS)) as sequence:
        build.write_poses(sequence, ["front"], Given())
        sequence.intrinsics().placeholder("front", (64, 48), "ROLLING_TOP_TO_BOTTOM")
        sequence.camera("front").frame(START_NS, START_NS + 1000, build.jpeg(1))
    reader = components.SequenceComponentGroupsReader([tmp_path / "drive.json"])
    model = compat.SequenceLoaderV4(reader).get_camera_sensor("front").model_parameters
    assert model.resolution.tolist() == [64, 48]
    assert model.shutter_type.name == "ROLLING_TOP_TO_BOTTOM"
    assert type(model).__name__ == "OpenCVPinholeCameraModelParameters"


def members(path: Path) -> Iterator[str]:
    with tarfile.open(path, "r:") as tar:
        yield from tar.getnames()


@pytest.mark.parametrize("packed", ["itar"], indirect=True)
def test_tar_programs_read_it(packed: Packed, tmp_path: Path) -> None:
    itar = packed.folder / "drive.ncore4.zarr.itar"
    names = list(members(itar))
    listed = subprocess.run(["tar", "-tf", itar], capture_output=True, text=True, check=True)
    assert (listed.stdout.split(), listed.stderr) == (names, "")
    done = subprocess.run(["tar", "-xf", itar, "-C", tmp_path], capture_output=True, check=True)
    assert done.stderr == b""
    extracted = tmp_path / "tarfile"
    with tarfile.open(itar) as tar:
        tar.extractall(extracted, filter="data")
        for name in names:
            member = tar.extractfile(name)
            assert member is not None
            assert member.read() == (tmp_path / name).read_bytes()
            assert (extracted / name).read_bytes() == (tmp_path / name).read_bytes()
