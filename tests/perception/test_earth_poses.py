"""Poses from positions on Earth and an IMU's orientation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from recorder.common.errors import SessionError
from recorder.perception.calibration import Calibration, SensorCalibration
from recorder.perception.earth import earth_points, local_axes, local_to_earth
from recorder.perception.geometry import rotation_of_rpy, transform
from recorder.perception.poses import EarthPoses, find_poses
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import still_imu
from tests.session.build import START_MONO_NS, Builder, gnss_spec

ORIGIN = (48.1, 11.6, 520.0)
S = 1_000_000_000
COUNT = 60  # positions, 10 a second
SAMPLES = 10 * (COUNT - 1) + 1  # of the IMU, up to the last position


def positions(count: int = COUNT) -> npt.NDArray[np.float64]:
    """A drive to the north and uphill: about 11 m and 1 m a second."""
    k = np.arange(count)[:, None]
    fixes: npt.NDArray[np.float64] = np.array(ORIGIN) + k * np.array([1e-5, 0.0, 0.1])
    return fixes


def add_gnss(
    builder: Builder,
    fixes: npt.NDArray[np.float64],
    name: str = "imu_gnss",
    period_ns: int = S // 10,
) -> None:
    builder.add(gnss_spec(name), count=len(fixes))
    fixes.astype("<f8").tofile(builder.path / name / "pos")
    even(builder, name, len(fixes), period_ns)


def even(builder: Builder, name: str, count: int, period_ns: int) -> None:
    t_mono = START_MONO_NS + np.arange(count, dtype=np.int64) * period_ns
    t_mono.astype("<u8").tofile(builder.path / name / "t_mono")


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    builder = Builder(tmp_path / "s")
    builder.add(still_imu(), count=SAMPLES)
    even(builder, "imu", SAMPLES, S // 100)
    return builder


def poses_of(
    path: Path, calibration: Calibration | None = None, wanted: str = "auto"
) -> tuple[EarthPoses, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The source, times, poses, and the IMU's roll, pitch, yaw."""
    with Session(path, virtual=True) as session:
        source = find_poses(session, calibration or Calibration(), wanted)
        assert isinstance(source, EarthPoses)
        blocks = list(source.blocks())
        rot = session.streams["imu"].read()["rot"].astype(np.float64)
    times, poses = ([block[k] for block in blocks] for k in (0, 1))
    return source, np.concatenate(times), np.concatenate(poses), rot


def test_the_world_is_level_at_the_first_position(builder: Builder) -> None:
    fixes = positions()
    fixes[:3] = np.nan  # no fix yet
    add_gnss(builder, fixes)
    source, t_ns, poses, rot = poses_of(builder.close())
    np.testing.assert_allclose(source.to_earth, local_to_earth(fixes[3]))
    assert source.describe()["origin"] == {
        "latitude_deg": fixes[3, 0], "longitude_deg": fixes[3, 1], "height_m": fixes[3, 2],
    }  # fmt: skip
    # On Earth, the poses lie where the positions say; an IMU's sample falls on every position.
    on_earth = (source.to_earth @ poses)[::10, :3, 3]
    np.testing.assert_allclose(on_earth, earth_points(fixes[3:]), atol=1e-6)
    assert abs(poses[10, 0, 3]) < 1e-6 and poses[10, 1, 3] == pytest.approx(1.112, abs=1e-3)
    np.testing.assert_allclose(
        poses[0, :3, :3], rotation_of_rpy(rot[len(rot) - len(t_ns)]), atol=1e-6
    )
    assert source.describe()["measured"] and source.describe()["poses_left_out"] == 30


def test_an_interval_has_the_poses_of_the_whole(builder: Builder) -> None:
    add_gnss(builder, positions())
    with Session(builder.close(), virtual=True) as session:
        source = find_poses(session, Calibration())
        ((t_ns, poses),) = source.blocks()
        start_ns, end_ns = int(t_ns[200]), int(t_ns[230])
        ((times, part),) = source.between(start_ns, end_ns).blocks()
    assert np.array_equal(times, t_ns[200:230])
    np.testing.assert_array_equal(part, poses[200:230])


def test_positions_are_moved_from_the_antenna_to_the_rig(builder: Builder) -> None:
    add_gnss(builder, positions())
    builder.close()
    place = transform(np.diag([-1.0, -1.0, 1.0]), np.array([0.5, -0.25, 1.5]))
    _, _, bare, _ = poses_of(builder.path)
    for name in ("imu_gnss", "imu"):  # the antenna's own place, or else the device's
        known = Calibration(sensors={name: SensorCalibration(pose=place)})
        _, _, poses, _ = poses_of(builder.path, known)
        antenna = poses[:, :3, :3] @ place[:3, 3] + poses[:, :3, 3]
        np.testing.assert_allclose(antenna, bare[:, :3, 3], atol=1e-6)


def test_no_pose_is_made_up_far_from_a_position(builder: Builder) -> None:
    fixes = positions(COUNT)
    add_gnss(builder, fixes[[0, 10, 45]], period_ns=25 * S // 10)
    _, t_ns, _, _ = poses_of(builder.close())
    with Session(builder.path) as session:
        first = session.streams["imu"].t_ns[0]
    late_s = (t_ns - first) / S
    assert late_s.tolist() == [0.0, 2.5, 5.0]  # beside a position alone; not after the last one


def test_the_axes_turn_with_the_meridian(builder: Builder) -> None:
    """Orientations are level where the vehicle is, not where it started."""
    fixes = positions(2)
    fixes[1] += (0.5, 0.5, 0.0)
    add_gnss(builder, fixes)
    source, _, poses, rot = poses_of(builder.close())
    on_earth = source.to_earth[:3, :3] @ poses[[0, 10], :3, :3]
    expected = local_axes(fixes) @ rotation_of_rpy(rot[[0, 10]])
    np.testing.assert_allclose(on_earth, expected, atol=1e-6)


def test_which_streams_are_taken(builder: Builder) -> None:
    add_gnss(builder, np.full((COUNT, 3), np.nan), "blind")
    add_gnss(builder, positions(), "receiver")
    builder.close()
    source, *_ = poses_of(builder.path)
    assert source.name == "receiver"
    assert poses_of(builder.path, wanted="receiver")[0].name == "receiver"
    with Session(builder.path) as session:
        assert find_poses(session, Calibration(), "imu").name == "imu"
        with pytest.raises(SessionError, match="blind: has neither poses"):
            find_poses(session, Calibration(), "blind")
