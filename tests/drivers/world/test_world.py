"""The simulated world: exact motion, the same in every run, something to see at any time."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.world import SCENES, World, mounts, noise
from drivers.world.ground import ASPHALT, GRASS, MARK, PERIOD_M, SHADES, SIDEWALK, YELLOW
from recorder.common.errors import ConfigError, SourceError
from recorder.config.options import check_options

Floats = npt.NDArray[np.float64]
STEP_S = 1e-4
DRIVE = World("drive")


def slope(values: Floats) -> Floats:
    """Derivative of samples STEP_S apart, at all but the first and last."""
    return (values[2:] - values[:-2]) / (2 * STEP_S)


# --- random numbers ---------------------------------------------------------------------------


def test_random_numbers_are_those_of_their_place() -> None:
    whole = noise.normal(3, "test", 5, 100_000)
    assert abs(whole.mean()) < 0.012 and abs(whole.std() - 1) < 0.01
    assert abs((whole**4).mean() - 3) < 0.15
    assert np.abs(whole).max() > 4
    numbers = {
        noise.bits(*place, 4).tobytes()
        for place in (
            (3, "test", 5),
            (4, "test", 5),
            (3, "tesu", 5),
            (3, "test", 6),
            (2**63, "", 5),
        )
    }
    assert len(numbers) == 5
    np.testing.assert_array_equal(noise.bits(3, "a", 1, 9)[:4], noise.bits(3, "a", 1, 4))


# --- the drive --------------------------------------------------------------------------------


def test_all_derivatives_are_those_of_one_motion() -> None:
    t = np.random.default_rng(0).uniform(-1.0, DRIVE.trajectory.period_s + 1, 50_000)
    before, motion, after = (DRIVE.trajectory.motion(t + k * STEP_S) for k in (-1, 0, 1))

    def error(name: str, rate: Floats) -> Floats:
        change = getattr(after, name) - getattr(before, name)
        return np.asarray(np.abs(change / (2 * STEP_S) - rate).reshape(len(t), -1).max(axis=1))

    assert error("position_m", motion.velocity_m_s).max() < 1e-6
    assert error("velocity_m_s", motion.acceleration_m_s2).max() < 3e-4
    # What is fixed to the rig turns by the rate of turn.
    x, y, z = motion.angular_rate_rad_s.T
    cross = np.moveaxis(np.array([[0 * x, -z, y], [z, 0 * x, -x], [-y, x, 0 * x]]), -1, 0)
    assert error("rotation", motion.rotation @ cross).max() < 1e-4
    swing = error("angular_rate_rad_s", motion.angular_acceleration_rad_s2)
    assert np.quantile(swing, 0.9995) < 1e-3  # it jumps where a corner begins
    np.testing.assert_allclose(np.linalg.det(motion.rotation), 1.0, atol=1e-12)
    speed = np.linalg.norm(motion.velocity_m_s, axis=1)
    forward = np.einsum("nij,ni->nj", motion.rotation, motion.velocity_m_s)
    assert np.abs(forward[:, 1:]).max() < 1e-9  # no wheel slips aside
    np.testing.assert_allclose(forward[:, 0], speed, atol=1e-9)


def test_the_drive_goes_straight_turns_and_stops() -> None:
    t = np.arange(0.0, DRIVE.trajectory.period_s, 0.01)
    motion = DRIVE.trajectory.motion(t)
    speed = np.linalg.norm(motion.velocity_m_s, axis=1)
    rate = motion.angular_rate_rad_s[:, 2]
    assert 3.9 < (speed < 1e-9).sum() * 0.01 < 4.2
    assert speed.max() == pytest.approx(9.0)
    assert (np.abs(rate) < 1e-12).mean() > 0.2
    assert rate.max() > 0.3 and rate.min() < -0.3
    assert np.abs(motion.acceleration_m_s2).max() < 5.0
    start, end = DRIVE.trajectory.motion(np.array([0.0, DRIVE.trajectory.period_s])).position_m
    np.testing.assert_allclose(start, end, atol=1e-9)
    later = DRIVE.trajectory.pose(t[::100] + 1000 * DRIVE.trajectory.period_s)[0]
    np.testing.assert_allclose(later, motion.position_m[::100], atol=1e-6)


def test_the_other_scenes_are_what_they_say() -> None:
    t = np.arange(0.0, 100.0, 0.1)
    straight = World("straight").trajectory.motion(t)
    np.testing.assert_allclose(straight.velocity_m_s, np.tile([8.0, 0, 0], (1000, 1)), atol=1e-12)
    np.testing.assert_allclose(straight.position_m[:, 0], 8.0 * t, atol=1e-9)
    parked = World("parked").trajectory.motion(t)
    assert np.ptp(parked.position_m, axis=0).max() == 0
    assert not parked.velocity_m_s.any() and not parked.acceleration_m_s2.any()


# --- targets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_targets_move_as_they_say(scene: str) -> None:
    world = World(scene)
    t = np.arange(3.0, 3.2, STEP_S)
    for target in world.targets:
        centre, yaw = target.pose(t)
        velocity = target.fleet.states(t, [target.number]).velocity_m_s[0]
        assert np.abs(centre[:, 2] - target.size_m[2] / 2).max() == 0  # it stands on the ground
        error = np.abs(slope(centre) - velocity[1:-1]).max(axis=1)
        # On an endless road one that was left behind comes again ahead: one jump at most.
        assert (error > 1e-2).sum() <= (2 if scene == "straight" else 0), target.track
        assert target.standing == (not velocity.any()) or scene == "drive"
        if np.abs(velocity).max() > 0.1:  # it moves where it looks
            speed = np.linalg.norm(velocity, axis=1)
            along = velocity[:, 0] * np.cos(yaw) + velocity[:, 1] * np.sin(yaw)
            np.testing.assert_allclose(along, speed, atol=1e-9)


def test_one_target_and_all_of_them_agree_to_the_bit() -> None:
    t = np.array([0.0, 1.25, 77.7, 4321.0])
    states = DRIVE.states(t)
    for target in DRIVE.targets:
        centre, _ = target.pose(t)
        rotation = target.frame(t)[1]
        assert centre.tobytes() == states.centre_m[target.number].tobytes()
        assert rotation[:, 0, 0].tobytes() == states.cos_yaw[target.number].tobytes()
        for k in range(len(t)):  # whatever else is asked for
            assert target.pose(t[k : k + 1])[0].tobytes() == centre[k].tobytes()
    assert len({target.track for target in DRIVE.targets}) == len(DRIVE.targets)


@pytest.mark.parametrize("scene", sorted(SCENES))
@pytest.mark.parametrize("seed", [0, 7])
def test_every_second_has_something_for_every_sensor(scene: str, seed: int) -> None:
    world = World(scene, seed)
    t = np.arange(0.0, 400.0, 0.5)
    states = world.states(t)
    position, rotation = world.trajectory.pose(t)
    local = np.einsum("nji,mnj->mni", rotation, states.centre_m - position)
    kinds = np.array([target.kind for target in world.targets])
    bearing = np.arctan2(local[..., 1], local[..., 0] - 1.7)
    distance = np.hypot(local[..., 0], local[..., 1])
    assert ((np.abs(bearing) < 0.5) & (distance < 60)).any(axis=0).all()
    assert (distance < 30).any(axis=0).all()
    from_bumper = np.hypot(local[..., 0] - 3.7, local[..., 1])
    ahead = (np.abs(np.arctan2(local[..., 1], local[..., 0] - 3.7)) < 1.0) & (from_bumper < 10.0)
    assert ahead.any(axis=0).all()
    oncoming = (kinds[:, None] == "car") & (states.velocity_m_s**2).sum(axis=-1).astype(bool)
    assert (oncoming & (local[..., 0] > 0) & (distance < 80)).any(axis=0).all()


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_nothing_stands_or_drives_into_the_vehicle(scene: str) -> None:
    world = World(scene)
    t = np.arange(0.0, 170.0, 0.1)
    position, rotation = world.trajectory.pose(t)
    local = np.einsum("nji,mnj->mni", rotation, world.states(t).centre_m - position)
    # The vehicle reaches from 0.9 m behind its origin to 3.7 m before it, and is 1.9 m wide.
    half = np.array([[min(target.size_m[:2]) / 2] for target in world.targets])
    inside = (local[..., 0] > -0.9 - half) & (local[..., 0] < 3.7 + half)
    assert not (inside & (np.abs(local[..., 1]) < 0.95 + half)).any()


# --- ground -----------------------------------------------------------------------------------


def test_the_road_is_where_the_vehicle_drives() -> None:
    t = np.arange(0.0, DRIVE.trajectory.period_s, 0.05)
    position, rotation = DRIVE.trajectory.pose(t)
    left = rotation[:, :2, 1]

    def kinds(lateral_m: float) -> npt.NDArray[np.uint8]:
        at = position[:, :2] + lateral_m * left
        codes = DRIVE.ground.codes(at[:, 0], at[:, 1])
        assert codes.dtype == np.uint8
        return np.asarray(codes // SHADES)

    assert (kinds(-1.4) == ASPHALT).mean() > 0.85  # but for manhole covers and patches
    assert (kinds(-1.905) == MARK).mean() > 0.95
    assert 0.2 < (kinds(1.755) == MARK).mean() < 0.5  # dashes
    assert (kinds(-6.2) == SIDEWALK).mean() > 0.99
    assert (kinds(-12.0) == GRASS).mean() > 0.95
    everywhere = np.unique(DRIVE.ground.tile // SHADES)
    assert YELLOW in everywhere and len(everywhere) == 8


def test_the_ground_repeats_and_reflects() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-20, 160, (2, 1000))
    codes = DRIVE.ground.codes(x, y)
    for shift in (PERIOD_M, -3 * PERIOD_M):
        same = DRIVE.ground.codes(x + shift, y - shift) == codes
        assert same.mean() > 0.999  # rounding at the edge of a cell
    values = DRIVE.ground.reflectivity(x, y)
    assert values.dtype == np.float32 and values.shape == x.shape
    assert values.min() > 0 and values.max() < 1
    assert values[codes // SHADES == MARK].min() > 3 * values[codes // SHADES == ASPHALT].max()


# --- the same in every run --------------------------------------------------------------------

GOLDEN = {
    "drive": "f3ac388f6ea41eb07b04e2ad5ba7d55fa7ba2e4864c0edbcb8277433c31e5191",
    "straight": "cf0daf09187ad6f3bd6f42a8acfb9675b064d09f640ee59951e9c3a9b85ac446",
    "winding": "22dfc1db57c02db80567253304f632e3df1cae5a4e23ae2f7f7dea6ed59e85f6",
    "parked": "5fe4820d5b388246b23c3bdfb333ac2be15956ee2e5a611df6e701dae2a8f3c5",
    "ground": "348757c03e9e31a5d773ecf9f000385a17a534424ed48f4d99ae2dcd868384f5",
}


def digest(*arrays: npt.NDArray[Any]) -> str:
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(np.round(array, 6) + 0.0).tobytes())
    return sha.hexdigest()


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_golden_motion(scene: str) -> None:
    world = World(scene, seed=11)
    t = np.arange(0.0, 300.0, 0.37)
    motion = world.trajectory.motion(t)
    states = world.states(t)
    yaw = [target.pose(t)[1] for target in world.targets]
    assert (
        digest(
            motion.position_m,
            motion.rotation,
            motion.acceleration_m_s2,
            motion.angular_acceleration_rad_s2,
            states.centre_m,
            states.velocity_m_s,
            states.sin_yaw,
            *yaw,
        )
        == GOLDEN[scene]
    )


def test_golden_ground() -> None:
    assert digest(World("drive", seed=11).ground.tile) == GOLDEN["ground"]


# --- mounts -----------------------------------------------------------------------------------


def test_default_mounts_look_the_right_way() -> None:
    camera = mounts.CAMERA.rotation
    np.testing.assert_array_equal(camera, [[0, 0, 1], [-1, 0, 0], [0, -1, 0]])
    for mount in (mounts.LIDAR, mounts.RADAR, mounts.IMU):
        np.testing.assert_array_equal(mount.rotation, np.eye(3))


def test_a_mount_is_read_from_its_option() -> None:
    assert mounts.make_mount("x", None, mounts.RADAR) == mounts.RADAR
    turned = {"translation_m": None, "quaternion_xyzw": [0, 0, math.sqrt(0.5), math.sqrt(0.5)]}
    mount = mounts.make_mount("x", turned, mounts.RADAR)
    assert mount.translation_m == mounts.RADAR.translation_m
    np.testing.assert_allclose(mount.rotation @ [1, 0, 0], [0, 1, 0], atol=1e-12)
    for key in ("translation_m", "quaternion_xyzw"):
        with pytest.raises(ConfigError, match=rf"mount\.{key}\[0\]"):
            check_options({"mount": mounts.MOUNT_OPTION}, {"mount": {key: ["ahead", 0, 0]}}, "cam")
    with pytest.raises(SourceError, match=r"rear: mount\.quaternion_xyzw: of length 0"):
        mounts.make_mount("rear", {"quaternion_xyzw": [0, 0, 0, 0]}, mounts.RADAR)
    with pytest.raises(SourceError, match=r"rear: mount\.translation_m: 2 numbers instead of 3"):
        mounts.make_mount("rear", {"translation_m": [0, 0]}, mounts.RADAR)
