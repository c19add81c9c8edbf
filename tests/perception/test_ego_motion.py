"""Poses at times in any order are those of the whole trajectory, read in pieces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from recorder.perception.calibration import Calibration
from recorder.perception.ego_motion import EgoMotion, PoseWindow, motion_around
from recorder.perception.geometry import apply, interpolate_poses, invert, transform
from recorder.perception.poses import Identity, RecordedPoses, are_near, find_poses
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import add_poses, still_imu
from tests.session.build import START_NS, Builder

COUNT = 3000  # 30 s


@pytest.fixture(scope="module")
def trip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with a pose sensor, and an IMU with orientations; both have a hole."""
    builder = Builder(tmp_path_factory.mktemp("motion") / "s")
    builder.add(replace(still_imu()), count=COUNT)
    builder.close()
    t_ns = START_NS + np.arange(COUNT, dtype=np.int64) * 10_000_000
    kept = (t_ns < t_ns[1000]) | (t_ns > t_ns[1200])
    seconds = (t_ns - START_NS) / 1e9
    pos = np.stack([10 * seconds, np.sin(seconds), 0 * seconds], axis=1)
    add_poses(builder.path, t_ns[kept], pos[kept], "_pose")
    turns = about_z(0.3 * seconds[kept])
    turns.astype("<f8").tofile(builder.path / "_pose" / "rot")
    np.savez(
        builder.path / "_pose" / "pose.npz",
        t=t_ns / 1e9,
        pos=pos,
        rot=np.tile(np.eye(3), (COUNT, 1, 1)),
    )
    return builder.path


def about_z(angles_rad: Any) -> Any:
    return Rotation.from_rotvec(angles_rad[:, None] * [0, 0, 1]).as_matrix()


def whole(source: RecordedPoses) -> tuple[Any, Any]:
    blocks = list(source.blocks())
    return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("wanted", ["_pose", "imu"])
def test_poses_in_any_order(trip: Path, wanted: str) -> None:
    with Session(trip, virtual=True) as session:
        source = find_poses(session, Calibration(), wanted)
        times, poses = whole(source)
        window = PoseWindow(source)
        rng = np.random.default_rng(1)
        asked = rng.integers(times[0] - 300_000_000, times[-1] + 300_000_000, 60)
        edges = [int(t) + step for t in asked[:20] for step in (0, 1_997_000_000, -1_997_000_000)]
        for t_ns in [
            *edges,
            *asked.tolist(),
            *np.sort(asked).tolist(),
            int(times[0]),
            int(times[-1]),
        ]:
            at = np.array([t_ns])
            expected = interpolate_poses(times, poses, at)[0]
            assert np.array_equal(window.at(at)[0], expected)
            found = window.pose(t_ns)
            if are_near(times, at)[0]:
                assert found is not None and np.array_equal(found, expected)
            else:
                assert found is None
        assert window.pose(int(times[-1]) + 3600 * 10**9) is None
        far = window.at(np.array([int(times[-1]) + 3600 * 10**9]))
        assert np.array_equal(far[0], np.eye(4))


def test_only_poses_around_the_time_are_read(trip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(trip, virtual=True) as session:
        source = find_poses(session, Calibration(), "_pose")
        window = PoseWindow(source)
        for t_s in (5, 20, 5, 25):
            assert window.pose(START_NS + t_s * 10**9) is not None
            assert len(window._t_ns) < 1000


def test_a_trajectory_in_a_file_is_read_whole(trip: Path) -> None:
    with Session(trip, virtual=False) as session:
        source = find_poses(session, Calibration(), "_pose")
        times, poses = whole(source)
        window = PoseWindow(source)
        t_ns = int(times[1500]) + 5
        expected = interpolate_poses(times, poses, np.array([t_ns]))[0]
        assert np.array_equal(window.at(np.array([t_ns]))[0], expected)


def test_times_that_have_a_pose() -> None:
    """0.1 s beyond the ends; inside, where poses are at most a second apart."""
    times = np.array([0, 1_000_000_000, 2_000_000_001])
    asked = {-100_000_000: True, -100_000_001: False, 0: True, 500_000_000: True,
             1_000_000_000: True, 1_000_000_001: False, 2_000_000_000: False,
             2_000_000_001: True, 2_100_000_001: True, 2_100_000_002: False}  # fmt: skip
    assert are_near(times, np.array(list(asked))).tolist() == list(asked.values())


def test_points_are_moved_by_what_the_rig_moved() -> None:
    """A rig that drives 10 m/s along x: a point seen 0.1 s ago is a metre nearer now."""

    def poses_at(t_ns: Any) -> Any:
        turns = about_z(t_ns / 1e9)
        place = np.stack([t_ns / 1e8, 0 * t_ns, 0 * t_ns], axis=1)
        return transform(turns, place)

    rng = np.random.default_rng(2)
    points, t_ns = rng.normal(0, 10, (50, 3)), rng.integers(0, 100_000_000, 50)
    motion = motion_around(poses_at, 130_000_000, 100_000_000, 100_000_000)
    moved = motion.move(points, t_ns)
    here = invert(poses_at(np.array([130_000_000]))[0])
    for point, t, found in zip(points, t_ns, moved, strict=True):
        world = apply(poses_at(np.array([t]))[0], point)
        assert np.allclose(apply(here, world), found, atol=1e-4)


def test_a_rig_without_poses_has_no_motion() -> None:
    assert EgoMotion(Identity()).around(10, 5, 1) is None
