"""Lidar odometry with kiss-icp itself, on sweeps of the simulated world."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.archives.ncore.format.manifest import read_manifest
from recorder.codecs.points import Column, points_dtype
from recorder.perception.calibration import read_calibration
from recorder.perception.geometry import invert
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.odometry import LidarOdometry
from recorder.perception.lidar.points import stack_xyz
from recorder.session.playback import recorded_spec
from recorder.session.reader import Session
from tests.acceptance.command import PROJECT, recorder
from tests.session import clouds
from tests.session.build import Builder

pytest.importorskip("kiss_icp", reason="needs kiss-icp (the extra `odometry`), not installed")

pytestmark = pytest.mark.conformance
WORLD = f"""version: 1
storage: {{min_free_gb: 0}}
calibration: {PROJECT / "configs/demo_calibration.yaml"}
sensors:
  lidar: {{driver: %s, source: "sim:", pace: max}}
"""
OUSTER = "ouster, mode: 512x10, beams: 64"
LIDARS = (OUSTER, "hesai, model: PandarXT32")


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seconds of the simulated drive, its lidar calibrated."""
    return make_drive(tmp_path_factory.mktemp("drive"), OUSTER)


def make_drive(folder: Path, lidar: str) -> Path:
    (folder / "config.yaml").write_text(WORLD % lidar)
    ran = recorder(
        "run", folder / "config.yaml", "--root", folder / "s", "--name", "d", "--duration", 3
    )
    assert ran.code == 0, ran.err
    return folder / "s" / "d"


def test_recorded_points_give_the_poses_of_the_ranges(drive: Path, tmp_path: Path) -> None:
    columns = (clouds.POSITION, Column("ring", "u2"), clouds.TIME)
    mounting = read_calibration(drive / "calibration.yaml").of("lidar").pose
    assert mounting is not None
    with Session(drive) as session:
        stream = session.streams["lidar"]
        ((ranges_ns, expected),) = LidarOdometry(stream, mounting).blocks()
        source = make_point_source(recorded_spec(stream))
        starts, sweeps = [], []
        for index in range(len(stream)):
            start_ns, points = source.read(stream, index)
            sweep = np.zeros(len(points), points_dtype(columns))
            sweep["xyz"], sweep["ring"] = stack_xyz(points), points["ring"]
            sweep["t_offset"] = points["t"]
            starts.append(start_ns)
            sweeps.append(sweep)
    builder = Builder(tmp_path / "points")
    made = clouds.add_clouds(builder, sweeps, clouds.cloud_spec(columns))
    with Session(builder.close()) as session:
        ((t_ns, poses),) = LidarOdometry(session.streams["lidar"], mounting).blocks()
    assert np.array_equal(t_ns, made.t_ns)
    last_ns = [int(sweep["t_offset"].max()) for sweep in sweeps]
    assert np.abs(ranges_ns - np.array(starts) - last_ns).max() <= 1
    assert np.abs(poses[:, :3, 3] - expected[:, :3, 3]).max() < 0.01


@pytest.mark.parametrize("lidar", LIDARS)
def test_the_way_driven_is_found(tmp_path: Path, lidar: str) -> None:
    drive = make_drive(tmp_path, lidar)
    with Session(drive, virtual=True) as session:
        stream = session.streams["lidar"]
        mounting = read_calibration(drive / "calibration.yaml").of("lidar").pose
        assert mounting is not None
        source = LidarOdometry(stream, mounting)
        ((t_ns, poses),) = source.blocks()
        assert np.array_equal(t_ns, stream.t_ns)
        truth = session.streams["_pose"]
        data = truth.read(channels=["pos", "rot"])
        at = [truth.at(int(t)) for t in t_ns]
    true = np.tile(np.eye(4), (len(at), 1, 1))
    true[:, :3, :3], true[:, :3, 3] = data["rot"][at], data["pos"][at]
    # Both from where the first sweep ended.
    first = invert(true[0])
    moved = np.stack([first @ pose for pose in true])
    found = np.stack([invert(poses[0]) @ pose for pose in poses])
    driven = float(np.linalg.norm(moved[-1, :3, 3]))
    off = np.linalg.norm(found[:, :3, 3] - moved[:, :3, 3], axis=1)
    turned = np.degrees(np.arccos(np.clip((np.trace(
        np.swapaxes(found[:, :3, :3], 1, 2) @ moved[:, :3, :3], axis1=1, axis2=2) - 1) / 2, -1, 1)
    ))  # fmt: skip
    print(f"driven {driven:.2f} m, off by at most {off.max():.3f} m, {turned.max():.3f} degrees")
    assert driven > 5
    assert off.max() < 0.05 * driven
    assert turned.max() < 1.0
    assert source.describe()["method"].startswith("kiss-icp 1.")


def test_an_archive_says_where_its_poses_come_from(drive: Path, tmp_path: Path) -> None:
    (result,) = finalize(drive, [ArchiveRequest("ncore", {"poses": "kiss-icp"})], out=tmp_path)
    (entry,) = read_manifest(result.files[-1]).stores
    trajectory = entry.components["poses"]["default"]["generic_meta_data"]["trajectory"]
    assert trajectory["source"] == "lidar odometry of lidar"
    assert trajectory["measured"] is False
    assert sum("odometry; drifts" in note for note in result.notes) == 1
