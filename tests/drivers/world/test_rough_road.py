"""A rough road: what IMU, lidar, camera and radar see of the vehicle's pitch and roll agrees."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from drivers.camera.backdrop import Backdrop
from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera
from drivers.lidar.model import LidarScene
from drivers.mmwave.model import SIM_CHIRP, SimulatedRadar
from drivers.sim import truth
from drivers.world import GRAVITY_M_S2, World, mounts, trajectory
from drivers.world.imu import SimulatedImu

Floats = npt.NDArray[np.float64]
WORLD = World("drive", 3, "rough")
FLAT = World("drive", 3)


def rotation_vectors(rotation: Floats) -> Floats:
    """Rotation vectors f8 [n, 3] of rotations, by OpenCV."""
    return np.array([cv2.Rodrigues(matrix)[0][:, 0] for matrix in rotation])


def test_pitch_and_roll_have_the_rates_of_a_road() -> None:
    t = np.arange(0.0, WORLD.trajectory.period_s, 0.01)
    motion = WORLD.trajectory.motion(t)
    speed = np.linalg.norm(motion.velocity_m_s, axis=1)
    rate = motion.angular_rate_rad_s
    for axis in (0, 1):
        cruising = np.abs(rate[speed > 5.5, axis])
        assert 0.05 < np.sqrt((cruising**2).mean()) < 0.1 and 0.15 < cruising.max() < 0.3
        assert np.abs(rate[speed < 1e-9, axis]).max() == 0
    # Along the same path as without.
    flat = FLAT.trajectory.motion(t)
    np.testing.assert_array_equal(motion.position_m[:, :2], flat.position_m[:, :2])
    assert 0 < np.abs(motion.position_m[:, 2]).max() < 0.03
    assert (World("drive", 4, "rough").trajectory.pose(t)[1] != motion.rotation).any()


def test_all_derivatives_are_those_of_one_motion() -> None:
    step = 1e-4
    t = np.random.default_rng(0).uniform(0.0, WORLD.trajectory.period_s, 2000)
    before, motion, after = (WORLD.trajectory.motion(t + k * step) for k in (-1, 0, 1))

    def error(name: str, rate: Floats) -> Floats:
        change = (getattr(after, name) - getattr(before, name)) / (2 * step)
        return np.asarray(np.abs(change - rate).reshape(len(t), -1).max(axis=1))

    assert error("position_m", motion.velocity_m_s).max() < 1e-6
    assert np.quantile(error("velocity_m_s", motion.acceleration_m_s2), 0.99) < 3e-4
    swing = error("angular_rate_rad_s", motion.angular_acceleration_rad_s2)
    assert np.quantile(swing, 0.99) < 1e-3
    np.testing.assert_allclose(np.linalg.det(motion.rotation), 1.0, atol=1e-12)


def test_the_gyro_is_the_derivative_of_the_true_poses() -> None:
    rate_hz, count = 100.0, 3000
    imu = SimulatedImu(rate_hz, WORLD, mounts.Mount((0.0, 0.0, 0.0)), noise=0.0)
    batch = imu.samples(0, count)
    # The poses that `annotate` stores, half a period before and after each sample.
    edges = np.arange(count + 1) * 10_000_000 - 5_000_000
    rotation = truth.poses(WORLD, edges)["rot"]
    turn = rotation_vectors(np.swapaxes(rotation[:-1], 1, 2) @ rotation[1:]) * rate_hz
    np.testing.assert_allclose(batch.avel, turn, atol=5e-4)
    assert np.abs(batch.avel[:, :2]).max() > 0.1
    position = truth.poses(WORLD, np.arange(-1, count + 1) * 10_000_000)["pos"]
    acceleration = np.diff(position, 2, axis=0) * rate_hz**2 + [0.0, 0.0, GRAVITY_M_S2]
    middle = truth.poses(WORLD, batch.t_ns)["rot"]
    force = np.einsum("nji,nj->ni", middle, acceleration)
    assert np.quantile(np.abs(batch.acc - force), 0.999) < 0.02


def test_a_lidars_points_lie_on_the_ground_and_on_targets() -> None:
    options = {"scene": "drive", "seed": 3, "road": "rough", "rate": 10.0, "beams": 24,
               "columns": 180, "noise": 0.0, "mount": None}  # fmt: skip
    scene = LidarScene("lidar", options)
    for index in (20, 123):
        points = scene.sweep(index)
        t_s = index * 0.1 + points["t_offset"] / 1e9
        heights = {}
        for name, world in (("rough", WORLD), ("flat", FLAT)):
            position, rotation = world.trajectory.pose(t_s)
            in_rig = points["xyz"].astype(np.float64) + mounts.LIDAR.translation
            heights[name] = (np.einsum("nij,nj->ni", rotation, in_rig) + position)[:, 2]
        ground = np.abs(heights["rough"]) < 0.005
        assert ground.mean() > 0.4 and heights["rough"].min() > -0.005
        assert np.abs(heights["flat"][ground]).max() > 0.2  # the tilt matters


@pytest.mark.parametrize("readout_s", [0.0, 0.02])
def test_a_camera_sees_the_ground_where_its_rays_meet_it(readout_s: float) -> None:
    lens, t_s = Lens.default(160, 120), 7.3
    rows = np.arange(lens.height)
    times = t_s - readout_s * (lens.height - 1 - rows) / lens.height
    codes = Backdrop(WORLD, lens, mounts.CAMERA).codes(times if readout_s else times[-1:])
    right = total = 0
    for v in range(70, 120, 7):
        pixels = np.stack([np.arange(160.0), np.full(160, float(v))], axis=1)[:, None]
        matrix = np.array([[lens.focal_px, 0, lens.centre_px[0]],
                           [0, lens.focal_px, lens.centre_px[1]], [0, 0, 1]])  # fmt: skip
        ray = cv2.undistortPoints(pixels, matrix, np.array(lens.distortion))[:, 0]
        position, rotation = (value[0] for value in WORLD.trajectory.pose(times[v : v + 1]))
        axes = rotation @ mounts.CAMERA.rotation
        eye = position + rotation @ mounts.CAMERA.translation
        way = np.column_stack([ray, np.ones(160)]) @ axes.T
        down = way[:, 2] < -0.02
        at = eye[:2] - way[down, :2] * (eye[2] / way[down, 2])[:, None]
        right += int((WORLD.ground.codes(at[:, 0], at[:, 1]) == codes[v, down]).sum())
        total += int(down.sum())
    assert total > 800 and right / total > 0.97  # rounding at the edges of cells


def test_without_waves_a_rough_road_looks_like_a_flat_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectory, "_AMPLITUDES", np.zeros((3, 5)))
    still, lens = World("drive", 3, "rough"), Lens.default(160, 120)
    cast, looked = (
        Backdrop(world, lens, mounts.CAMERA).codes(np.array([7.3])) for world in (still, FLAT)
    )
    ground = cast < 128
    np.testing.assert_array_equal(ground, looked < 128)
    assert (cast == looked)[ground].mean() > 0.98
    t = np.arange(0.0, 20.0, 0.1)
    np.testing.assert_allclose(still.trajectory.pose(t)[1], FLAT.trajectory.pose(t)[1], atol=1e-15)


def test_boxes_are_where_opencv_projects_the_targets() -> None:
    lens = Lens.default(640, 360)
    camera = SimulatedCamera(WORLD, lens, prepared=False)
    checked = 0
    for t_s in (2.0, 9.0, 14.5):
        position, rotation = (value[0] for value in WORLD.trajectory.pose(np.array([t_s])))
        axes = rotation @ mounts.CAMERA.rotation
        eye = position + rotation @ mounts.CAMERA.translation
        for box in truth.boxes(camera, t_s):
            target = WORLD.targets[box.target]
            centre, turn = (value[0] for value in target.frame(np.array([t_s])))
            signs = np.array(np.meshgrid(*[(-0.5, 0.5)] * 3)).reshape(3, 8).T
            corners = (signs * target.size_m) @ turn.T + centre
            local = (corners - eye) @ axes
            inside = box.left > 1 and box.left + box.width < 638 and box.top > 1
            if local[:, 2].min() < 3 or not inside or box.top + box.height > 358:
                continue
            matrix = np.array([[lens.focal_px, 0, lens.centre_px[0]],
                               [0, lens.focal_px, lens.centre_px[1]], [0, 0, 1]])  # fmt: skip
            zero = np.zeros(3)
            pixels = cv2.projectPoints(local, zero, zero, matrix, np.array(lens.distortion))[0][
                :, 0
            ]
            low, high = pixels.min(axis=0), pixels.max(axis=0)
            np.testing.assert_allclose((box.left, box.top), low, atol=0.6)
            np.testing.assert_allclose((box.width, box.height), high - low, atol=1.0)
            checked += 1
    assert checked > 10


def test_a_radars_ranges_and_speeds_are_those_of_the_tilted_vehicle() -> None:
    radar = SimulatedRadar(SIM_CHIRP, "qqii", seed=3, world=WORLD)
    poles = {target.track: target for target in WORLD.targets if target.kind == "pole"}
    checked = 0
    for index in (40, 170):
        middle_s = index * SIM_CHIRP.frame_period * 1e-3 + 0.5e-3 * SIM_CHIRP.frame_time
        t = middle_s + np.array([-1e-3, 0.0, 1e-3])
        position, rotation = WORLD.trajectory.pose(t)
        eye = position + rotation @ mounts.RADAR.translation
        for state in radar.targets(index):
            pole = poles.get(state.track)
            if pole is None:
                continue
            # The nearest point of a pole is at the radar's height, on its near side.
            away = pole.pose(t)[0][:, :2] - eye[:, :2]
            distance = np.linalg.norm(away, axis=1) - pole.size_m[0] / 2
            if pole.size_m[2] < eye[:, 2].max():
                continue
            assert state.range_m == pytest.approx(distance[1], abs=1e-6)
            assert state.velocity_mps == pytest.approx((distance[2] - distance[0]) / 2e-3, abs=2e-3)
            way = np.append(away[1] / np.linalg.norm(away[1]), 0.0)
            up = (rotation[1].T @ way)[2]
            assert np.sin(state.elevation_rad) == pytest.approx(up, abs=1e-6)
            checked += 1
    assert checked > 4


def test_cuboids_are_turned_into_the_tilted_rig() -> None:
    import json

    t_ns = np.array([7_300_000_000])
    position, rotation = (value[0] for value in WORLD.trajectory.pose(t_ns / 1e9))
    targets = {target.track: target for target in WORLD.targets}
    found = [json.loads(line) for line in truth.cuboids(WORLD, t_ns, [0])]
    assert len(found) > 20
    for label in found:
        centre, turn = (value[0] for value in targets[label["track"]].frame(t_ns / 1e9))
        x, y, z, w = label["quaternion_xyzw"]
        angle = 2 * np.arctan2(np.sqrt(x * x + y * y + z * z), w)
        axis = np.array([x, y, z]) / max(np.sqrt(x * x + y * y + z * z), 1e-12)
        np.testing.assert_allclose(rotation @ cv2.Rodrigues(axis * angle)[0], turn, atol=1e-7)
        np.testing.assert_allclose(rotation @ label["center_m"] + position, centre, atol=1e-5)
