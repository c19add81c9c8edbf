"""The simulated IMU: deterministic, and one motion behind all that it measures."""

from __future__ import annotations

import numpy as np

from drivers.sim.imu import GRAVITY, TICK_NS, SimulatedImu


def test_samples_do_not_depend_on_how_they_are_cut() -> None:
    whole = SimulatedImu(100.0, seed=3).samples(0, 3000)
    cut = SimulatedImu(100.0, seed=3)
    for first, count in ((2990, 10), (0, 1), (1020, 9), (5, 2500)):
        part = cut.samples(first, count)
        for name in ("t_ns", "t_dev_ns", "acc", "avel", "rot"):
            expected = getattr(whole, name)[first : first + count]
            assert getattr(part, name).tobytes() == expected.tobytes()
    other = SimulatedImu(100.0, seed=4).samples(0, 3000)
    assert (other.acc != whole.acc).any()
    np.testing.assert_array_equal(other.rot, whole.rot)  # another device in the same vehicle


def test_device_clock_has_ticks() -> None:
    batch = SimulatedImu(300.0).samples(10, 3000)
    assert not (batch.t_dev_ns % TICK_NS).any()
    behind = batch.t_ns - batch.t_dev_ns
    assert np.ptp(behind) < TICK_NS
    assert (np.diff(batch.t_dev_ns) > 0).all()


def test_simulated_motion_fits_together() -> None:
    imu = SimulatedImu(1000.0)
    batch = imu.samples(0, 60_000)
    # The rate of turn, integrated, is the orientation; without motion there is gravity alone.
    roll, pitch, yaw = batch.rot.astype(np.float64).T
    p, q, r = batch.avel.astype(np.float64).T
    yaw_rate = (q * np.sin(roll) + r * np.cos(roll)) / np.cos(pitch)
    pitch_rate = q * np.cos(roll) - r * np.sin(roll)
    roll_rate = p + yaw_rate * np.sin(pitch)
    for angle, rate in ((yaw, yaw_rate), (pitch, pitch_rate), (roll, roll_rate)):
        assert np.abs(angle[0] + np.cumsum(rate) * 1e-3 - angle).max() < 3e-3
    down = np.stack(
        [-np.sin(pitch), np.cos(pitch) * np.sin(roll), np.cos(pitch) * np.cos(roll)], axis=1
    )
    vertical = (batch.acc * down).sum(axis=1)  # the vehicle stays on its plane
    assert abs(vertical.mean() - GRAVITY) < 1e-3
    assert vertical.std() < 0.01
    assert np.ptp(yaw) > 2.0 and np.ptp(batch.acc[:, 1]) > 1.0
    assert np.abs(yaw).max() < np.pi
