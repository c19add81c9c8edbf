"""Sessions packed by ``recorder finalize --to ncore``, read by NVIDIA's own loader."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.model import SimulatedRadar
from drivers.world import World
from recorder.session.reader import Session, lidar_range_mm
from tests.acceptance.command import contents, recorder
from tests.conftest import SHARED_DATA

components: Any = pytest.importorskip(
    "ncore.impl.data.v4.components", reason="needs nvidia-ncore, which is not installed"
)
compat: Any = pytest.importorskip("ncore.impl.data.v4.compat")
sdk: Any = pytest.importorskip("ouster.sdk.core")

pytestmark = pytest.mark.conformance
Floats = npt.NDArray[np.float64]

OUSTER = SHARED_DATA / "ouster"
PCAPS = sorted(path.name for path in OUSTER.glob("*.pcap")) or ["(none)"]


class Packed(NamedTuple):
    """A session, its archive, and NVIDIA's view of it."""

    session: Session
    folder: Path
    loader: Any
    result: dict[str, Any]


def pack(session: Path, *options: object) -> Packed:
    """Finalize a session and open what came out."""
    ran = recorder("finalize", session, "--to", "ncore", "--format", "json", *options)
    assert (ran.code, ran.err) == (0, [])
    (result,) = ran.result["archives"]
    meta = Path(result["files"][-1])
    assert meta.name == f"{session.name}.json"
    reader = components.SequenceComponentGroupsReader([meta])
    return Packed(
        Session(session, virtual=True), meta.parent, compat.SequenceLoaderV4(reader), result
    )


def record(folder: Path, text: str, name: str, seconds: float) -> Path:
    (folder / "config.yaml").write_text(text)
    root = folder / "sessions"
    ran = recorder(
        "run", folder / "config.yaml", "--root", root, "--name", name, "--duration", seconds
    )
    assert ran.code == 0, ran.err
    return root / name


@pytest.fixture(scope="module")
def packed(world: Path) -> Iterator[Packed]:
    packed = pack(world)
    yield packed
    packed.session.close()


@pytest.fixture(scope="module", params=["itar", "folder"])
def stored(request: pytest.FixtureRequest, world: Path) -> Iterator[Packed]:
    """A session in a store of either kind, each beside what the other tests read."""
    out = world.parent / request.param
    packed = pack(world, "--option", f"ncore.store={request.param}", "--out", out)
    yield packed
    packed.session.close()


def us(t_ns: Any) -> Any:
    return t_ns // 1000


def graph(packed: Packed, source: str, target: str, t_us: Any) -> Floats:
    times = np.atleast_1d(np.asarray(t_us, np.uint64))
    poses: Floats = packed.loader.pose_graph.evaluate_poses(source, target, times)
    return poses


def test_nothing_recorded_is_touched(world: Path) -> None:
    before = {k: v for k, v in contents(world).items() if not k.startswith("_archives/")}
    pack(world).session.close()
    after = {k: v for k, v in contents(world).items() if not k.startswith("_archives/")}
    assert after == before
    assert recorder("validate", world, "--deep").code == 0
    assert {path.name for path in (world / "_archives/ncore").iterdir()} == {
        "world.json",
        "world.ncore4.zarr.itar",
    }


def test_sensors_and_interval(stored: Packed) -> None:
    loader = stored.loader
    assert (loader.camera_ids, loader.lidar_ids, loader.radar_ids) == (
        ["camera"],
        ["lidar"],
        ["radar"],
    )
    interval = loader.sequence_timestamp_interval_us
    stamps = [s.t_ns for n, s in stored.session.streams.items() if not n.startswith("_")]
    assert interval.stop - 1 == max(us(int(t[-1])) for t in stamps)
    for name, sensor in (
        ("camera", loader.get_camera_sensor("camera")),
        ("lidar", loader.get_lidar_sensor("lidar")),
        ("radar", loader.get_radar_sensor("radar")),
    ):
        ends = sensor.frames_timestamps_us[:, 1]
        assert np.array_equal(ends, us(stored.session.streams[name].t_ns))
        assert (sensor.frames_timestamps_us[:, 0] >= interval.start).all()
    assert loader.generic_meta_data["session_state"] == "clean"


def test_camera_bytes(stored: Packed) -> None:
    sensor = stored.loader.get_camera_sensor("camera")
    pictures = stored.session.streams["camera"].channels["video.avi"]
    for index in range(sensor.frames_count):
        frame = sensor.get_frame_handle(index).get_data()
        assert bytes(frame.get_encoded_image_data()) == pictures.encoded(index)
        assert sensor.get_frame_generic_meta_data(index)["seq"] == index


def test_poses_are_the_truth(packed: Packed) -> None:
    truth = packed.session.streams["_pose"]
    interval = packed.loader.sequence_timestamp_interval_us
    t_us = us(truth.t_ns)
    inside = (t_us >= interval.start) & (t_us < interval.stop)
    poses = graph(packed, "rig", "world", t_us[inside])
    data = truth.read(channels=["pos", "rot"])
    assert np.abs(poses[:, :3, 3] - data["pos"][inside]).max() < 1e-4  # stamps are cut to 1 us
    assert np.abs(poses[:, :3, :3] - data["rot"][inside]).max() < 1e-5
    metadata = packed.loader._poses_reader.generic_meta_data
    assert metadata["trajectory"]["source"] == "sensor _pose"
    assert metadata["trajectory"]["measured"] is True
    # The ends of the sequence can be asked for, too.
    graph(packed, "camera", "world", [interval.start, interval.stop - 1])


def test_imu_is_generic_data_of_the_poses(packed: Packed) -> None:
    reader = packed.loader._poses_reader
    imu = packed.session.streams["imu"]
    assert np.array_equal(reader.get_generic_data("imu.t_ns"), imu.t_ns)
    for name, values in imu.read().items():
        assert np.array_equal(reader.get_generic_data(f"imu.{name}"), values)
    assert reader.generic_meta_data["generic_streams"]["imu"]["channels"]["acc"]["unit"] == "m/s^2"


def lidar_points_agree(packed: Packed, name: str) -> float:
    """Compare with ouster-sdk; returns the largest distance of second returns, in m."""
    stream = packed.session.streams[name]
    info = sdk.SensorInfo((stream.path / "lidar.json").read_text())
    lut = sdk.XYZLut(info, use_extrinsics=False)
    sensor = packed.loader.get_lidar_sensor(name)
    t_col = stream.read(channels=["t_col"])["t_col"].astype(np.int64)
    worst = 0.0
    for index in range(sensor.frames_count):
        for number in range(sensor.get_frame_ray_bundle_return_count(index)):
            ranges = lidar_range_mm(stream, index, number + 1)
            expected = lut(ranges).reshape(-1, 3)
            hit = ranges.reshape(-1) > 0
            valid = sensor.get_frame_ray_bundle_return_valid_mask(index, number)
            assert np.array_equal(valid, hit)
            points = sensor.get_frame_point_cloud(index, False, False, number).xyz_m_end
            off = np.linalg.norm(points[hit] - expected[hit], axis=1)
            if number == 0:
                first = ranges.reshape(-1).astype(float)
                assert off.max(initial=0) < 1e-3
            else:
                worst = max(worst, float(off.max(initial=0)))
                # A beam begins up to 46 mm beside the origin that its two returns share.
                apart = np.abs(ranges.reshape(-1)[hit] / np.maximum(first[hit], 1) - 1)
                assert (off <= np.where(first[hit] > 0, 0.046 * apart, 0) + 1e-3).all()
            rfl = stream.sample(index, [("rfl", "rfl2")[number]])
            intensity = sensor.get_frame_ray_bundle_return_intensity(index, number)
            (expected_rfl,) = rfl.values()
            assert np.array_equal(np.rint(intensity[hit] * 255), expected_rfl.reshape(-1)[hit])
            t_us = int(sensor.frames_timestamps_us[index, 1])
            ambient = sensor.lidar_reader.get_frame_ray_bundle_return_data(t_us, "ambient", number)
            nir = stream.sample(index, ["nir"])["nir"].reshape(-1)
            assert np.array_equal(ambient[hit], nir[hit])
        stamps = sensor.get_frame_ray_bundle_timestamp_us(index).reshape(info.h, info.w)
        present = t_col[index] > 0
        relative = t_col[index] - t_col[index].max() + stream.t_ns[index]
        assert (stamps[:, present] == us(relative[present])).all()
    return worst


def test_lidar_points_are_those_of_ouster_sdk(packed: Packed) -> None:
    assert lidar_points_agree(packed, "lidar") == 0.0


def test_lidar_model_gives_the_directions_of_its_elements(packed: Packed) -> None:
    sensor = packed.loader.get_lidar_sensor("lidar")
    model = sensor.model_parameters
    elements = sensor.get_frame_ray_bundle_model_element(0).astype(int)
    elevation = model.row_elevations_rad[elements[:, 0]]
    azimuth = model.column_azimuths_rad[elements[:, 1]]
    azimuth = azimuth + model.row_azimuth_offsets_rad[elements[:, 0]]
    level = np.cos(elevation)
    expected = np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], 1)
    direction = sensor.get_frame_ray_bundle_direction(0)
    far = np.nan_to_num(sensor.get_frame_ray_bundle_return_distance_m(0, 0), nan=1e9) > 20
    angle = np.linalg.norm(direction - expected, axis=1)
    assert angle[far].max() < 0.05 / 20  # a beam begins some centimetres beside the origin


def test_radar_points_stand_where_the_targets_are(packed: Packed) -> None:
    sensor = packed.loader.get_radar_sensor("radar")
    world = SimulatedRadar(SIM_CHIRP, "qqii", world=World("drive", 0))
    checked = 0
    for index in range(sensor.frames_count):
        distance = sensor.get_frame_ray_bundle_return_distance_m(index, 0)
        points = sensor.get_frame_ray_bundle_direction(index) * distance[:, None]
        t_us = int(sensor.frames_timestamps_us[index, 1])
        velocity = sensor.radar_reader.get_frame_ray_bundle_return_data(
            t_us, "radial_velocity_m_s", None
        )[0]
        assert sensor.radar_reader.get_frame_ray_bundle_return_data(
            t_us, "power_db", None
        ).shape == (1, len(distance))
        targets = world.targets(index)
        for target in targets:
            alone = all(
                abs(other.range_m - target.range_m) > 4 * SIM_CHIRP.range_resolution
                for other in targets
                if other is not target and other.amplitude > 0.05 * target.amplitude
            )
            if target.amplitude < 8 or not alone:
                continue
            level = np.cos(target.elevation_rad)
            place = target.range_m * np.array(
                [level * np.cos(target.azimuth_rad), level * np.sin(target.azimuth_rad),
                 np.sin(target.elevation_rad)]
            )  # fmt: skip
            nearest = int(np.argmin(np.linalg.norm(points - place, axis=1)))
            cell = SIM_CHIRP.range_resolution
            assert abs(distance[nearest] - target.range_m) < cell, (index, target)
            assert abs(velocity[nearest] - target.velocity_mps) < SIM_CHIRP.doppler_resolution
            azimuth = np.arctan2(points[nearest, 1], points[nearest, 0])
            # Eight antennas half a wave apart tell 2/8 of a radian apart.
            assert abs(azimuth - target.azimuth_rad) < 0.25 / np.cos(target.azimuth_rad)
            checked += 1
    assert checked > 2 * sensor.frames_count
    chirp = sensor.radar_reader.generic_meta_data["radar"]
    assert chirp["freq_slope"] == SIM_CHIRP.freq_slope


def test_cuboids_hold_the_points_on_them(packed: Packed) -> None:
    observations = list(packed.loader.get_cuboid_track_observations())
    lines = (packed.session.path / "_cuboids/truth.jsonl").read_text().splitlines()[1:]
    assert len(observations) == len(lines)
    sensor = packed.loader.get_lidar_sensor("lidar")
    (mounting,) = graph(packed, "lidar", "rig", sensor.frames_timestamps_us[:1, 1])
    held = 0
    for index in (3, 9):
        t_us = int(sensor.frames_timestamps_us[index, 1])
        points = sensor.get_frame_point_cloud(index, False, False, 0).xyz_m_end
        points = points[np.isfinite(points).all(axis=1)] @ mounting[:3, :3].T + mounting[:3, 3]
        for seen in observations:
            if seen.timestamp_us != t_us or seen.class_id not in ("car", "truck"):
                continue
            assert seen.reference_frame_id == "rig"
            assert seen.source.name == "GT_SYNTHETIC"
            center, size = np.array(seen.bbox3.centroid), np.array(seen.bbox3.dim)
            if not np.linalg.norm(center[:2]) < 25:
                continue
            yaw = seen.bbox3.rot[2]
            turn = np.array(
                [[np.cos(yaw), np.sin(yaw), 0], [-np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]]
            )
            local = (points - center) @ turn.T
            # A sweep takes its time: what moves against the rig has moved by up to 2.5 m in it.
            inside = (np.abs(local) < size / 2 + (2.5, 0.4, 0.1)).all(axis=1)
            held += int(inside.sum()) > 20
            assert inside.any()
    assert held >= 2


def test_cuboids_project_into_the_boxes_of_the_pictures(packed: Packed) -> None:
    sensor = packed.loader.get_camera_sensor("camera")
    model = sensor.model_parameters
    assert model.type() == "opencv-pinhole"
    (fx, fy), (cx, cy) = model.focal_length, model.principal_point - 0.5
    matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    k, p = model.radial_coeffs, model.tangential_coeffs
    distortion = np.array([k[0], k[1], p[0], p[1], k[2], k[3], k[4], k[5]], np.float64)
    t_lidar = packed.loader.get_lidar_sensor("lidar").frames_timestamps_us[:, 1]
    cuboids: dict[int, dict[str, Any]] = {}
    for seen in packed.loader.get_cuboid_track_observations():
        cuboids.setdefault(seen.timestamp_us, {})[seen.track_id] = seen
    compared = 0
    for index in range(sensor.frames_count):
        _, end = (int(t) for t in sensor.frames_timestamps_us[index])
        nearest = int(t_lidar[np.argmin(np.abs(t_lidar.astype(np.int64) - end))])
        boxes = sensor.get_frame_generic_meta_data(index)["boxes"]
        rig_of_cuboid, rig_of_picture = graph(packed, "rig", "world", [nearest, end])
        (camera,) = graph(packed, "camera", "rig", [end])
        for box in boxes:
            seen = cuboids[nearest].get(box["track"])
            left, top, width, height = box["box_px"]
            cut = left < 1 or top < 1 or left + width > 1278 or top + height > 718
            if seen is None or box["class"] != "pole" or cut or abs(nearest - end) > 40_000:
                continue
            size = np.array(seen.bbox3.dim)
            signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
            corners = np.array(seen.bbox3.centroid) + signs * size / 2  # poles have no heading
            world = corners @ rig_of_cuboid[:3, :3].T + rig_of_cuboid[:3, 3]
            to_camera = np.linalg.inv(rig_of_picture @ camera)
            local = world @ to_camera[:3, :3].T + to_camera[:3, 3]
            pixels, _ = cv2.projectPoints(local, np.zeros(3), np.zeros(3), matrix, distortion)
            low, high = pixels[:, 0].min(axis=0), pixels[:, 0].max(axis=0)
            found = np.array([low[0], low[1], high[0], high[1]])
            expected = np.array([left, top, left + width, top + height])
            assert np.abs(found - expected).max() < 4.0, (index, box, found)
            compared += 1
    assert compared > 10


def test_masks(packed: Packed) -> None:
    masks = packed.loader.get_camera_sensor("camera").get_mask_images()
    stored = cv2.imread(str(packed.session.path / "_masks/camera/ego.png"), cv2.IMREAD_GRAYSCALE)
    assert list(masks) == ["ego"]
    assert stored is not None
    assert np.array_equal(np.asarray(masks["ego"]), stored)


def metadata_of(capture: str) -> Path:
    """The sensor's description: the file whose name the capture's name begins with."""
    (found,) = [path for path in OUSTER.glob("*.json") if capture.startswith(path.stem)]
    return found


@pytest.mark.parametrize("name", PCAPS)
def test_every_capture(name: str, shared_data: Path, tmp_path: Path) -> None:
    text = (
        "version: 1\nstorage: {min_free_gb: 0}\nsensors:\n  lidar: {driver: ouster, pace: max, "
        f'source: "pcap:{OUSTER / name}", metadata: "{metadata_of(name)}"}}\n'
    )
    packed = pack(record(tmp_path, text, "capture", 30))
    assert len(packed.session.streams["lidar"]) >= 1
    worst = lidar_points_agree(packed, "lidar")
    metadata = packed.loader.get_lidar_sensor("lidar").lidar_reader.generic_meta_data
    reported = metadata.get("second_return_error_m", 0.0)
    # The report says how far second returns are off; that is what the beams' origins explain.
    assert worst == pytest.approx(reported, abs=1e-4)
    own = pack(packed.session.path, "--option", "ncore.second_returns=own")
    own.session.close()
    sensor = own.loader.get_lidar_sensor("lidar")
    for number in range(sensor.get_frame_ray_bundle_return_count(0)):
        points = sensor.get_frame_point_cloud(0, False, False, number).xyz_m_end
        points = points[np.isfinite(points).all(axis=1)]
        info = sdk.SensorInfo((packed.session.path / "lidar/lidar.json").read_text())
        ranges = lidar_range_mm(packed.session.streams["lidar"], 0, number + 1)
        expected = sdk.XYZLut(info, use_extrinsics=False)(ranges)[ranges > 0]
        assert points.shape == expected.shape
        assert np.abs(np.sort(points, axis=0) - np.sort(expected, axis=0)).max() < 1e-3
    told_in_report = any("second returns share" in note for note in packed.result["notes"])
    assert told_in_report == ("rng2" in packed.session.streams["lidar"].meta)
    packed.session.close()


def test_a_session_without_calibration(world: Path, tmp_path: Path) -> None:
    session = tmp_path / "bare"
    left_out = shutil.ignore_patterns("_[!r]*", "_radar", "calibration.yaml")
    shutil.copytree(world, session, ignore=left_out)
    checksums = session / "_recorder/checksums.csv"  # or the labels would be written again
    lines = checksums.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("_", "calibration.yaml"))]
    checksums.write_text("".join(kept))
    ran = recorder("finalize", session, "--to", "ncore", "--format", "json")
    assert ran.code == 0, ran.err
    (result,) = ran.result["archives"]
    reader = components.SequenceComponentGroupsReader([Path(result["files"][-1])])
    loader = compat.SequenceLoaderV4(reader)
    assert loader._poses_reader.generic_meta_data["trajectory"]["source"] == "orientation of imu"
    intrinsics = json.loads(Path(result["files"][-1]).read_text())["component_stores"][0]
    said = intrinsics["components"]["intrinsics"]["default"]["generic_meta_data"]
    assert said["placeholder_cameras"] == ["camera"]
    assert loader.get_camera_sensor("camera").model_parameters.resolution.tolist() == [1280, 720]
    notes = " | ".join(result["notes"])
    for sentence in ("no intrinsics in the calibration", "has no calibration", "orientation from"):
        assert notes.count(sentence) == 1, notes


def test_depth_labels_are_the_points_as_nvidia_places_them(world: Path) -> None:
    """NVIDIA's loader compensates the sweeps' motion, OpenCV projects."""
    out = world.parent / "depth"
    packed = pack(world, "--option", "ncore.depth=lidar", "--out", out)
    camera = packed.loader.get_camera_sensor("camera")
    lidar = packed.loader.get_lidar_sensor("lidar")
    model = camera.model_parameters
    (fx, fy), (cx, cy) = model.focal_length, model.principal_point - 0.5
    matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    k, p = model.radial_coeffs, model.tangential_coeffs
    distortion = np.array([k[0], k[1], p[0], p[1], k[2], k[3], k[4], k[5]], np.float64)
    labels = packed.loader.get_camera_labels("depth.z@camera@lidar")
    times = labels.label_timestamps_us
    assert len(times) == camera.frames_count
    sweeps = lidar.frames_timestamps_us[:, 1].astype(np.int64)
    checked, off = 0, []
    for t_us in times[5::10]:
        handle = labels.get_label(int(t_us))
        depth = handle.get_data()
        sweep = handle.generic_meta_data["sweep"]
        assert sweep == np.argmin(np.abs(sweeps - int(t_us)))
        cloud = lidar.get_frame_point_cloud(sweep, True, False, 0)
        points = cloud.xyz_m_end[np.isfinite(cloud.xyz_m_end).all(axis=1)]
        (to_world,) = graph(packed, "lidar", "world", [sweeps[sweep]])
        (from_camera,) = graph(packed, "camera", "world", [t_us])
        to_camera = np.linalg.inv(from_camera) @ to_world
        local = points @ to_camera[:3, :3].T + to_camera[:3, 3]
        local = local[(local[:, 2] > 1) & (np.abs(local[:, :2]).max(1) < local[:, 2])]
        pixels, _ = cv2.projectPoints(local, np.zeros(3), np.zeros(3), matrix, distortion)
        column, row = np.rint(pixels[:, 0]).astype(int).T
        inside = (column >= 0) & (column < 1280) & (row >= 0) & (row < 720)
        found = depth[row[inside], column[inside]]
        # A point is at its pixel, or behind another point there.
        assert np.mean(found > 0) > 0.98
        off += [np.abs(found - local[inside, 2])]
        checked += int(inside.sum())
    assert checked > 2000
    assert np.mean(np.concatenate(off) < 0.02) > 0.95
    packed.session.close()
