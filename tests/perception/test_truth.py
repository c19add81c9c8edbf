"""Signs, axes and units against the simulated world, whose truth is exact, and other software.

Nothing here stands level, in the middle, or along an axis: a sign that is wrong, an axis that is
swapped, or a matrix that is not turned back shows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from ouster.sdk import core
from scipy.spatial.transform import Rotation

from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera
from drivers.mmwave.driver import SIM_CHIRP
from drivers.sim import truth
from drivers.world import World
from drivers.world.imu import SimulatedImu
from drivers.world.mounts import Mount
from recorder.archives.edgefirst.cameras import depth_picture
from recorder.perception.calibration import Calibration, SensorCalibration, read_calibration
from recorder.perception.geometry import (
    apply,
    interpolate_poses,
    invert,
    quaternion_of_rotation,
    rotation_of_quaternion,
    rotation_of_rpy,
    slerp,
    transform,
)
from recorder.perception.lidar.lidar import OusterOptics
from recorder.perception.poses import ImuOrientation, NpzPoses, StreamPoses
from recorder.perception.projection import Projection
from recorder.perception.radar.geometry import SPEED_OF_LIGHT, RadarGeometry
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import add_poses
from tests.session.build import START_NS, Builder, imu_spec

# A sensor that is mounted askew about all three axes, and not in the rig's origin.
ASKEW = Rotation.from_euler("ZYX", [50, -20, 110], degrees=True)
PLACE_M = (1.7, -0.4, 1.45)
MOUNT = Mount(PLACE_M, tuple(ASKEW.as_quat().tolist()))

# x, y, z of each local frame in the world's axes (east, north, up), as their names say.
EAST, NORTH, UP = np.eye(3)
LOCAL = {
    "ENU": np.stack([EAST, NORTH, UP]),
    "NWU": np.stack([NORTH, -EAST, UP]),
    "NED": np.stack([NORTH, EAST, -UP]),
}
COUNT = 400


@pytest.fixture(scope="module")
def world() -> World:
    return World("drive", 3)


def calibration_file(path: Path, mount: Mount = MOUNT, name: str = "imu") -> Calibration:
    entry = json.dumps(mount.to_mapping())
    path.write_text(f"sensors:\n  {name}:\n    T_sensor_rig: {entry}\n")
    return read_calibration(path)


@pytest.mark.parametrize("local", LOCAL)
def test_the_attitude_of_an_imu_that_is_mounted_askew(
    world: World, tmp_path: Path, local: str
) -> None:
    """Whatever its local frame, the rig heads where it does in the world."""
    imu = SimulatedImu(100.0, world, MOUNT, noise=0.0)
    t_s = np.linspace(0, world.trajectory.period_s, COUNT)
    _, truth_ = world.trajectory.pose(t_s)
    headings = np.arctan2(truth_[:, 1, 0], truth_[:, 0, 0])
    assert np.ptp(headings) > 3, "it turns all round"
    # What the sensor says of itself: R = Rz(yaw) Ry(pitch) Rx(roll), to its local frame.
    sensor = LOCAL[local] @ truth_ @ MOUNT.rotation
    if local == "ENU":
        own = imu.samples(0, 50)
        assert np.allclose(own.rotation, world.trajectory.pose(own.t_ns / 1e9)[1] @ MOUNT.rotation)
    yaw_pitch_roll = Rotation.from_matrix(sensor).as_euler("ZYX")
    builder = Builder(tmp_path / "s")
    builder.add(replace(imu_spec(), settings={"coordinates": local}), count=COUNT)
    builder.close()
    yaw_pitch_roll[:, ::-1].astype("<f4").tofile(builder.path / "imu/rot")
    with Session(builder.path) as session:
        source = ImuOrientation(
            session.streams["imu"], calibration_file(tmp_path / "calibration.yaml")
        )
        found = np.concatenate([poses for _, poses in source.blocks()])
    assert np.abs(found[:, :3, :3] - truth_).max() < 1e-5
    assert source.describe()["local_frame"] == local


@pytest.mark.parametrize("kind", ["matrix", "quaternion", "angles"])
def test_poses_in_every_form(world: World, tmp_path: Path, kind: str) -> None:
    """A rig that pitches and rolls as well: a road does not do that here."""
    builder = Builder(tmp_path / "s")
    builder.close()
    t_ns = START_NS + np.arange(COUNT, dtype=np.int64) * 10_000_000
    pos, rot = world.trajectory.pose(np.linspace(0, world.trajectory.period_s, COUNT))
    rot = rot @ Rotation.from_euler("ZYX", [0, 0.2, -0.3]).as_matrix()
    forms = {
        "matrix": rot,
        "quaternion": Rotation.from_matrix(rot).as_quat(),
        "angles": Rotation.from_matrix(rot).as_euler("ZYX")[:, ::-1],
    }
    add_poses(builder.path, t_ns, pos, "odometry")
    forms[kind].astype("<f8").tofile(builder.path / "odometry/rot")
    meta = json.loads((builder.path / "odometry/meta.json").read_text())
    meta["rot"]["shape"] = list(forms[kind].shape[1:])
    (builder.path / "odometry/meta.json").write_text(json.dumps(meta))
    np.savez(builder.path / "odometry/pose.npz", t=t_ns / 1e9, pos=pos, rot=rot)
    with Session(builder.path) as session:
        source = StreamPoses(session.streams["odometry"])
        times, poses = (np.concatenate(parts) for parts in zip(*source.blocks(), strict=True))
    ((npz_times, npz_poses),) = NpzPoses(builder.path / "odometry/pose.npz").blocks()
    assert np.array_equal(times, t_ns)
    assert np.abs(npz_times - t_ns).max() < 500  # float64 seconds since 1970
    for found in (poses, npz_poses):
        assert np.abs(found - transform(rot, pos)).max() < 1e-12


def test_rotations_are_scipys() -> None:
    rng = np.random.default_rng(1)
    quaternions = rng.normal(size=(200, 4))
    known = Rotation.from_quat(quaternions)
    assert np.allclose(rotation_of_quaternion(quaternions), known.as_matrix(), atol=1e-12)
    back = quaternion_of_rotation(known.as_matrix())
    assert np.allclose(np.abs(np.sum(back * known.as_quat(), axis=1)), 1, atol=1e-12)
    roll_pitch_yaw = rng.uniform(-3, 3, (200, 3))
    turned = Rotation.from_euler("ZYX", roll_pitch_yaw[:, ::-1]).as_matrix()
    assert np.allclose(rotation_of_rpy(roll_pitch_yaw), turned, atol=1e-12)


def test_what_lies_between_poses_is_scipys() -> None:
    """Large turns and small ones, the long way round written both ways."""
    from scipy.spatial.transform import Slerp

    rng = np.random.default_rng(2)
    steps = np.concatenate([rng.normal(0, 1.0, (20, 3)), rng.normal(0, 0.01, (20, 3))])
    rotations = [Rotation.identity()]
    for step in steps:
        rotations.append(rotations[-1] * Rotation.from_rotvec(step))
    keys = Rotation.concatenate(rotations)
    t_ns = np.cumsum(rng.integers(1, 10, len(steps) + 1)) * 1_000_000
    pos = rng.normal(size=(len(t_ns), 3))
    wanted = np.linspace(t_ns[0], t_ns[-1], 333).astype(np.int64)
    found = interpolate_poses(t_ns, transform(keys.as_matrix(), pos), wanted)
    known = Slerp(t_ns.astype(np.float64), keys)(wanted.astype(np.float64))
    assert np.abs(found[:, :3, :3] - known.as_matrix()).max() < 1e-5
    for axis in range(3):
        assert np.allclose(found[:, axis, 3], np.interp(wanted, t_ns, pos[:, axis]))
    first, second = keys.as_quat()[:-1], keys.as_quat()[1:]
    share = rng.uniform(size=len(first))
    for a, b in ((first, second), (-first, second), (first, -second)):
        between = rotation_of_quaternion(slerp(a, b, share))
        relative = (keys[:-1].inv() * keys[1:]).as_rotvec() * share[:, None]
        expected = (keys[:-1] * Rotation.from_rotvec(relative)).as_matrix()
        assert np.abs(between - expected).max() < 1e-5


def test_a_calibrated_place_takes_points_to_the_rig(tmp_path: Path) -> None:
    """By the definition of T_sensor_rig, and back."""
    pose = calibration_file(tmp_path / "c.yaml").of("imu").pose
    assert pose is not None
    points = np.array([[1.0, 2.0, 3.0], [-4.0, 0.5, 0.0]])
    in_rig = ASKEW.apply(points) + PLACE_M
    assert np.allclose(apply(pose, points), in_rig)
    assert np.allclose(apply(invert(pose), in_rig), points)


def tilted_metadata() -> str:
    """A lidar whose beams leave above its origin, tilted in its housing: as some products are."""
    info = json.loads(core.SensorInfo.from_default(core.LidarMode._512x10).to_json_string())
    beam = np.eye(4)
    beam[0, 3], beam[2, 3] = 27.7, 13.3
    housing = np.eye(4)
    housing[:3, :3] = Rotation.from_euler("ZYX", [170, 8, -5], degrees=True).as_matrix()
    housing[:3, 3] = 4.0, -7.5, 38.1
    info["beam_intrinsics"]["beam_to_lidar_transform"] = beam.reshape(-1).tolist()
    info["lidar_intrinsics"]["lidar_to_sensor_transform"] = housing.reshape(-1).tolist()
    return json.dumps(info)


@pytest.mark.parametrize("far", [False, True])
def test_points_of_a_lidar_with_unusual_optics_are_the_sdks(far: bool) -> None:
    text = tilted_metadata()
    lut = core.XYZLut(core.SensorInfo(text), use_extrinsics=False)
    optics = OusterOptics.of_metadata(text, "lidar.json")
    rng = np.random.default_rng(4)
    low, high = (50_000, 250_000) if far else (300, 3_000)  # near by, where beams begin matters
    ranges = rng.integers(low, high, (optics.beams, optics.columns)).astype(np.uint32)
    rays = optics.rays([ranges], [np.zeros(ranges.shape, np.uint8)])
    points = rays.direction * rays.distance_m[0][:, None]
    assert np.abs(points - lut(ranges).reshape(-1, 3)).max() < (1e-4 if far else 5e-6)


LENSES: dict[str, dict[str, float]] = {
    "opencv-pinhole": {"k1": -0.12, "k2": 0.03, "p1": 6e-3, "p2": -4e-3, "k3": 0.01, "k4": 0.02,
                       "k5": -0.01, "k6": 3e-3, "s1": 4e-3, "s2": -2e-3, "s3": -3e-3, "s4": 1e-3},
    "opencv-fisheye": {"k1": -0.02, "k2": 0.003, "k3": -1e-3, "k4": 2e-4},
}  # fmt: skip
WIDTH, HEIGHT = 640, 480
FX, FY, CX, CY = 500.0, 510.0, 322.0, 236.0
MATRIX = np.array([[FX, 0, CX], [0, FY, CY], [0, 0, 1]])


def calibrated(model: str, parameters: dict[str, float]) -> Projection:
    values = {"fx": FX, "fy": FY, "cx": CX, "cy": CY, **parameters}
    sensor = SensorCalibration(None, model, values, (WIDTH, HEIGHT))
    return Projection(Calibration(sensors={"camera": sensor}), "camera")


@pytest.mark.parametrize("model", LENSES)
def test_every_term_of_a_lens_is_opencvs(model: str) -> None:
    """One by one and together, all over the picture."""
    rng = np.random.default_rng(5)
    points = np.stack([rng.uniform(-0.8, 0.8, 500), rng.uniform(-0.6, 0.6, 500), np.ones(500)], 1)
    points *= rng.uniform(0.5, 80, (500, 1))
    every = LENSES[model]
    for terms in ({}, every, *({name: value} for name, value in every.items())):
        places, seen = calibrated(model, terms).pixels(points)
        order: tuple[str, ...] = (
            "k1",
            "k2",
            "p1",
            "p2",
            "k3",
            "k4",
            "k5",
            "k6",
            "s1",
            "s2",
            "s3",
            "s4",
        )
        if model == "opencv-fisheye":
            order = ("k1", "k2", "k3", "k4")
        d = np.array([terms.get(name, 0.0) for name in order])
        project = cv2.projectPoints if model == "opencv-pinhole" else cv2.fisheye.projectPoints
        expected, _ = project(points[:, None], np.zeros(3), np.zeros(3), MATRIX, d)
        assert np.allclose(places, expected[:, 0], atol=1e-6), terms
        inside = (expected[:, 0] >= -0.5) & (expected[:, 0] < (WIDTH - 0.5, HEIGHT - 0.5))
        assert np.array_equal(seen, inside.all(axis=1)), terms
        assert 100 < np.count_nonzero(seen) < 500, terms


@pytest.mark.parametrize("model", ["opencv-pinhole", "opencv-fisheye", "ftheta"])
def test_a_picture_ends_half_a_pixel_beyond_its_outer_pixels(model: str) -> None:
    """(0, 0) is the middle of the first pixel, so that what is seen always has a pixel."""
    lens = calibrated(model, {"angle_to_pixel": [0.0, FX]} if model == "ftheta" else {})  # type: ignore[dict-item]
    step = 1e-6
    cases = [((u, CY), True) for u in (-0.5 + step, 0, WIDTH - 1, WIDTH - 0.5 - step)]
    cases += [((CX, v), True) for v in (-0.5 + step, 0, HEIGHT - 1, HEIGHT - 0.5 - step)]
    cases += [((u, CY), False) for u in (-1, -0.5 - step, WIDTH - 0.5 + step, WIDTH)]
    cases += [((CX, v), False) for v in (-1, -0.5 - step, HEIGHT - 0.5 + step, HEIGHT)]
    pixels = np.array([pixel for pixel, _ in cases], np.float64)
    focal = (FX, FX) if model == "ftheta" else (FX, FY)
    reach = (pixels - (CX, CY)) / focal
    if model == "opencv-pinhole":
        points = np.concatenate([reach, np.ones((len(reach), 1))], axis=1)
    else:  # an angle is a distance in the picture
        angle = np.linalg.norm(reach, axis=1, keepdims=True)
        aside = np.sin(angle) * reach / np.maximum(angle, 1e-12)
        points = np.concatenate([aside, np.cos(angle)], axis=1)
    places, seen = lens.pixels(points * 7.0)
    assert np.allclose(places[seen], pixels[seen], atol=1e-4 if model == "ftheta" else 1e-8)
    assert seen.tolist() == [inside for _, inside in cases]
    picture = depth_picture(places[seen], np.full(np.count_nonzero(seen), 2.0), (WIDTH, HEIGHT))
    assert {tuple(at) for at in np.argwhere(picture).tolist()} == {
        (round(v), round(u)) for u, v in np.clip(pixels[seen], 0, (WIDTH - 1, HEIGHT - 1)).tolist()
    }


def test_cuboids_appear_in_the_boxes_of_the_simulated_camera(world: World) -> None:
    """The rig's calibration and lens against what the camera drew, to a tenth of a pixel."""
    lens = Lens.default(WIDTH, HEIGHT)
    mount = Mount((1.5, 0.3, 1.6), (-0.5, 0.5, -0.5, 0.5))
    camera = SimulatedCamera(world, lens, mount=mount)
    sensor = SensorCalibration(
        transform(mount.rotation, mount.translation), "opencv-pinhole", lens.parameters(),
        (WIDTH, HEIGHT),
    )  # fmt: skip
    projection = Projection(Calibration(sensors={"camera": sensor}), "camera")
    assert sensor.pose is not None
    corners = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]) / 2
    whole = cut = 0
    for t_s in np.arange(0.0, 20.0, 0.5):
        lines = truth.cuboids(world, np.array([round(t_s * 1e9)]), [0])
        labels = {label["track"]: label for label in map(json.loads, lines)}
        for box in truth.boxes(camera, t_s):
            label = labels.get(world.targets[box.target].track)
            if label is None or label["class"] in ("pole", "pedestrian", "cyclist"):
                continue  # far away, or drawn as what is no box
            turn = rotation_of_quaternion(label["quaternion_xyzw"])
            in_rig = (corners * label["size_m"]) @ turn.T + label["center_m"]
            places, seen = projection.pixels(apply(invert(sensor.pose), in_rig))
            if seen.all():
                edges = [box.left, box.top, box.left + box.width, box.top + box.height]
                found = [*places.min(axis=0), *places.max(axis=0)]
                assert np.allclose(found, edges, atol=0.1), (t_s, label["track"])
                whole += 1
            else:
                cut += 1
    assert whole > 40 and cut > 3, (whole, cut)


def test_a_chirp_in_the_units_of_physics() -> None:
    """TI, "Programming Chirp Parameters in TI Radar Devices" (SWRA553), with its own numbers."""
    chirp = SIM_CHIRP
    values = chirp.intrinsics("iiqq")
    found = RadarGeometry.of_metadata(json.dumps(values), "radar.json")
    chirps, tx, _, samples = chirp.shape[0], chirp.shape[1], chirp.shape[2], chirp.shape[3] // 2
    chirp_s = (chirp.idle_time + chirp.ramp_end_time) * 1e-6 * tx
    slope_hz_s = chirp.freq_slope * 1e12
    sampled_s = samples / (chirp.sample_rate * 1e3)
    middle_hz = chirp.frequency * 1e9 + slope_hz_s * (chirp.adc_start_time * 1e-6 + sampled_s / 2)
    assert found.shape == (chirps, tx, chirp.shape[2], samples)
    assert found.chirp_time == pytest.approx(chirp_s, rel=1e-9)
    assert found.frame_time == pytest.approx(chirps * chirp_s, rel=1e-9)
    assert found.wavelength == pytest.approx(SPEED_OF_LIGHT / middle_hz, rel=1e-3)
    expected = SPEED_OF_LIGHT / (2 * slope_hz_s * sampled_s)
    assert found.range_resolution == pytest.approx(expected, rel=1e-6)
    resolution = found.wavelength / (2 * chirps * chirp_s)
    assert found.doppler_resolution == pytest.approx(resolution, rel=1e-6)
    assert found.max_velocity == pytest.approx(found.wavelength / (4 * chirp_s), rel=1e-6)
    # A frequency that is off by the Doppler shift looks like another range.
    doppler_hz = 2 * 1.0 / found.wavelength
    looks_m = doppler_hz * SPEED_OF_LIGHT / (2 * slope_hz_s)
    assert abs(found.coupling_s) == pytest.approx(looks_m, rel=1e-6)


@pytest.mark.parametrize("missing", [("frame_time",), ("frame_time", "chirp_time", "wavelength")])
def test_what_another_recorder_does_not_say_of_a_chirp(missing: tuple[str, ...]) -> None:
    values: dict[str, Any] = SIM_CHIRP.intrinsics("iiqq")
    known = RadarGeometry.of_metadata(json.dumps(values), "radar.json")
    for key in missing:
        del values[key]
    found = RadarGeometry.of_metadata(json.dumps(values), "radar.json")
    assert found.frame_time == pytest.approx(known.frame_time, rel=0.03)
    assert found.chirp_time == pytest.approx(known.chirp_time, rel=0.03)
    assert found.wavelength == pytest.approx(known.wavelength, rel=0.03)
