"""The simulated IMU: what it feels integrates back to the world's trajectory."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest

from drivers.world import GRAVITY_M_S2, World, mounts
from drivers.world.imu import ACC_NOISE, AVEL_NOISE, TICK_NS, ImuSamples, SimulatedImu, make_imu

Floats = npt.NDArray[np.float64]
TURNED = mounts.Mount((-0.4, 0.6, 1.1), (0.5, -0.5, 0.5, 0.5))
GOLDEN = "4e1bf5500204aecf09414906dc8c45ccd75485378b71f474dfe9124907bc2afd"


def matrices(rot: Floats) -> Floats:
    """Rz(yaw) Ry(pitch) Rx(roll), [n, 3, 3], of roll, pitch, yaw [n, 3]."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(rot).T, np.cos(rot).T
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


def turned_by(vector: Floats) -> Floats:
    """The rotation by a small rotation vector [3] (Rodrigues)."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector / angle if angle else vector
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)


def navigated(
    batch: ImuSamples, acc: Floats, avel: Floats, start: tuple[Floats, Floats, Floats]
) -> tuple[Floats, Floats, Floats]:
    """Position, velocity, rotation at the last sample, by strapdown integration from the first.

    Args:
        acc, avel: [n, 3], trapezoids between them are summed.
        start: position, velocity, rotation (sensor to world) at the first sample.
    """
    position, velocity, rotation = (value.copy() for value in start)
    gravity = np.array([0, 0, -GRAVITY_M_S2])
    steps = np.diff(batch.t_ns) / 1e9
    for k, dt in enumerate(steps.tolist()):
        after = rotation @ turned_by(0.5 * (avel[k] + avel[k + 1]) * dt)
        mean = 0.5 * (rotation @ acc[k] + after @ acc[k + 1]) + gravity
        position = position + velocity * dt + 0.5 * mean * dt * dt
        velocity = velocity + mean * dt
        rotation = after
    return position, velocity, rotation


def truth(world: World, mount: mounts.Mount, t_s: float) -> tuple[Floats, Floats, Floats]:
    """Position, velocity, rotation of the sensor, from the rig's."""
    motion = world.trajectory.motion(np.array([t_s]))
    rig = motion.rotation[0]
    arm = mount.translation
    swing = np.cross(motion.angular_rate_rad_s[0], arm)
    return (
        motion.position_m[0] + rig @ arm,
        motion.velocity_m_s[0] + rig @ swing,
        rig @ mount.rotation,
    )


@pytest.mark.parametrize("mount", [mounts.IMU, TURNED], ids=["default", "turned"])
def test_without_noise_it_integrates_to_the_trajectory(mount: mounts.Mount) -> None:
    world = World("drive")
    rate = 500.0
    imu = SimulatedImu(rate, world, mount, noise=0.0)
    # From the straight into two corners; then the stop, with a start.
    for begin_s, end_s in ((1.0, 13.0), (52.0, 64.0)):
        first = int(begin_s * rate)
        batch = imu.samples(first, int((end_s - begin_s) * rate) + 1)
        acc, avel = batch.acc.astype(np.float64), batch.avel.astype(np.float64)
        found = navigated(batch, acc, avel, truth(world, mount, begin_s))
        expected = truth(world, mount, end_s)
        assert np.linalg.norm(found[0] - expected[0]) < 3e-3
        assert np.linalg.norm(found[1] - expected[1]) < 1e-3
        assert np.abs(found[2] - expected[2]).max() < 1e-4
        assert np.linalg.norm(expected[0] - truth(world, mount, begin_s)[0]) > 20


def test_with_noise_it_integrates_to_the_trajectory_within_it() -> None:
    world = World("drive", seed=4)
    rate, begin_s, end_s = 100.0, 1.0, 11.0
    imu = SimulatedImu(rate, world)
    batch = imu.samples(int(begin_s * rate), int((end_s - begin_s) * rate) + 1)
    acc = batch.acc.astype(np.float64) - imu.bias[:3]
    avel = batch.avel.astype(np.float64) - imu.bias[3:]
    position, velocity, rotation = navigated(batch, acc, avel, truth(world, mounts.IMU, begin_s))
    expected = truth(world, mounts.IMU, end_s)
    seconds = end_s - begin_s
    walk = np.sqrt(seconds / rate)
    yaw_sigma = AVEL_NOISE * walk
    # An attitude that walks away tilts gravity, too.
    velocity_sigma = ACC_NOISE * walk + GRAVITY_M_S2 * yaw_sigma * seconds / np.sqrt(3)
    assert np.abs(rotation.T @ expected[2] - np.eye(3)).max() < 5 * yaw_sigma
    assert np.abs(velocity - expected[1]).max() < 5 * velocity_sigma
    assert np.abs(position - expected[0]).max() < 5 * velocity_sigma * seconds / np.sqrt(3)
    # The bias is worth being known: with it, it is beyond all this.
    raw = navigated(
        batch, batch.acc.astype(np.float64), batch.avel.astype(np.float64),
        truth(world, mounts.IMU, begin_s),
    )  # fmt: skip
    assert np.linalg.norm(raw[0] - expected[0]) > np.linalg.norm(position - expected[0])


def test_noise_has_its_size_and_scale() -> None:
    world = World("parked", seed=1)
    quiet = SimulatedImu(100.0, world, noise=0.0).samples(0, 20_000)
    loud = SimulatedImu(100.0, world, noise=3.0)
    batch = loud.samples(0, 20_000)
    for name, sigma, bias in (
        ("acc", ACC_NOISE, loud.bias[:3]),
        ("avel", AVEL_NOISE, loud.bias[3:]),
    ):
        error = getattr(batch, name).astype(np.float64) - getattr(quiet, name)
        np.testing.assert_allclose(error.std(axis=0), 3 * sigma, rtol=0.03)
        np.testing.assert_allclose(error.mean(axis=0), bias, atol=3 * sigma / 25)
    assert loud.bias.all() and np.abs(loud.bias[:3]).max() < 0.3


def test_at_rest_it_feels_gravity_alone() -> None:
    for mount in (mounts.IMU, TURNED):
        batch = SimulatedImu(100.0, World("parked"), mount, noise=0.0).samples(0, 10)
        up = mount.rotation.T @ [0, 0, GRAVITY_M_S2]
        np.testing.assert_allclose(batch.acc, np.tile(up, (10, 1)), atol=1e-6)
        assert not batch.avel.any()


def test_orientation_is_the_sensors() -> None:
    world = World("drive")
    for mount in (mounts.IMU, TURNED, mounts.Mount((0, 0, 0), (0.1, 0.2, -0.3, 0.927361850))):
        batch = SimulatedImu(20.0, world, mount).samples(0, 1500)
        expected = world.trajectory.pose(batch.t_ns / 1e9)[1] @ mount.rotation
        np.testing.assert_allclose(matrices(batch.rot.astype(np.float64)), expected, atol=1e-6)


def test_samples_do_not_depend_on_how_they_are_cut() -> None:
    whole = SimulatedImu(100.0, World(seed=3)).samples(0, 3000)
    cut = SimulatedImu(100.0, World(seed=3))
    for first, count in ((2990, 10), (0, 1), (1020, 9), (5, 2500)):
        part = cut.samples(first, count)
        for name in ("t_ns", "t_dev_ns", "acc", "avel", "rot"):
            expected = getattr(whole, name)[first : first + count]
            assert getattr(part, name).tobytes() == expected.tobytes()
    other = SimulatedImu(100.0, World(seed=4)).samples(0, 3000)
    assert (other.acc != whole.acc).any()
    np.testing.assert_array_equal(other.rot, whole.rot)  # another device in the same vehicle


def test_two_sensors_of_one_world_have_noise_of_their_own() -> None:
    table = {"seed": 5, "scene": "drive", "noise": 1.0, "mount": None}
    first, again, other = (
        make_imu(name, table, 100.0).samples(0, 500) for name in ("imu", "imu", "rear_imu")
    )
    assert first.acc.tobytes() == again.acc.tobytes()
    assert (first.acc != other.acc).mean() > 0.9
    np.testing.assert_array_equal(first.rot, other.rot)
    plain = SimulatedImu(100.0, World("drive", 5)).samples(0, 500)
    assert plain.acc.tobytes() == first.acc.tobytes()


def test_device_clock_has_ticks() -> None:
    batch = SimulatedImu(300.0).samples(10, 3000)
    assert not (batch.t_dev_ns % TICK_NS).any()
    behind = batch.t_ns - batch.t_dev_ns
    assert np.ptp(behind) < TICK_NS
    assert (np.diff(batch.t_dev_ns) > 0).all()


def test_golden_samples() -> None:
    batch = SimulatedImu(100.0, World("drive", seed=2), TURNED).samples(1000, 3000)
    content = b"".join((np.round(v, 4) + 0.0).tobytes() for v in (batch.acc, batch.avel, batch.rot))
    assert hashlib.sha256(content).hexdigest() == GOLDEN
