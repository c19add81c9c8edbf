"""Lidar odometry: what goes into kiss-icp, and what becomes of its poses."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from recorder.common.errors import UsageError
from recorder.formats.ros2.clouds import NO_TIME
from recorder.perception.geometry import transform
from recorder.perception.lidar import odometry
from recorder.perception.lidar.odometry import LidarOdometry, require_odometry
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import lidar
from tests.session import beam_sweeps, clouds
from tests.session.build import Builder, build_session


class Fake:
    """Stands in for kiss-icp: every sweep is a metre further along the lidar's x."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.last_pose = np.eye(4)
        self.frames: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
        Fake.made = self

    made: Fake

    def register_frame(self, points: npt.NDArray[Any], share: npt.NDArray[Any]) -> None:
        self.frames.append((points, share))
        self.last_pose = self.last_pose @ transform(np.eye(3), [1.0, 0, 0])


def fake_module(name: str) -> Any:
    if name == "kiss_icp.config":
        part = SimpleNamespace(voxel_size=None)
        config = SimpleNamespace(data=SimpleNamespace(), mapping=part)
        return SimpleNamespace(load_config=lambda _: config)
    assert name == "kiss_icp.kiss_icp"
    return SimpleNamespace(KissICP=Fake)


def test_without_kiss_icp_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="needs the extra odometry"):
        require_odometry()
    with Session(build_session(tmp_path / "s", lidar(), count=2).path) as session:
        source = LidarOdometry(session.streams["lidar"], np.eye(4))
        with pytest.raises(UsageError, match="needs the extra odometry"):
            next(source.blocks())


def test_poses_are_the_rigs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odometry, "require_odometry", lambda: None)
    monkeypatch.setattr(importlib, "import_module", fake_module)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.3.0")
    builder = Builder(tmp_path / "s")
    made = builder.add(lidar(), count=4)
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])  # the lidar's x is the rig's y
    mounting = transform(turn, [1.0, 0, 2])
    ticks: list[float] = []
    with Session(builder.close()) as session:
        source = LidarOdometry(session.streams["lidar"], mounting, ticks.append)
        ((t_ns, poses),) = source.blocks()
    assert np.array_equal(t_ns, made.t_ns)
    assert poses[:, :3, 3].tolist() == [[0, n, 0] for n in (1, 2, 3, 4)]
    assert np.allclose(poses[:, :3, :3], np.eye(3))
    assert len(ticks) == 4
    assert source.describe()["measured"] is False
    assert source.describe()["method"] == "kiss-icp 1.3.0"
    for points, share in Fake.made.frames:
        assert len(points) == len(share) > 0
        assert 0 <= share.min() <= share.max() <= 1
        distance = np.linalg.norm(points, axis=1)
        assert (distance > 1).all() and (distance < 100).all()
        assert (points[:, 2] + 2 > 0.25).all()  # what is on the ground is left out


def test_ranges_in_the_packets_unit_go_in_with_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(odometry, "require_odometry", lambda: None)
    monkeypatch.setattr(importlib, "import_module", fake_module)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.3.0")
    driven = beam_sweeps.drive(tmp_path / "s")
    with Session(driven.path) as session:
        source = LidarOdometry(session.streams["lidar"], np.eye(4))
        ((t_ns, poses),) = source.blocks()
    assert np.array_equal(t_ns, driven.lidar.t_ns)
    assert poses[:, 0, 3].tolist() == [1, 2, 3]
    assert Fake.made.config.data.deskew is True
    assert "not corrected" not in source.describe()["note"]
    for index, (points, share) in enumerate(Fake.made.frames):
        first = [point for point in driven.sweeps[index] if point.return_ == 0]
        assert np.allclose(points, [point.xyz for point in first], rtol=0, atol=1e-4)
        span_ns = int(driven.lidar.t_ns[index]) - driven.start_ns(index)
        assert np.allclose(share, np.array([p.t_ns for p in first]) / span_ns, rtol=0, atol=1e-9)


@pytest.mark.parametrize("columns", [clouds.WITH_TIMES, clouds.WITHOUT_TIMES])
def test_recorded_points_go_in_with_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: Any
) -> None:
    monkeypatch.setattr(odometry, "require_odometry", lambda: None)
    monkeypatch.setattr(importlib, "import_module", fake_module)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.3.0")
    sweeps = [clouds.make_sweep(columns, seed) for seed in range(3)]
    timed = columns is clouds.WITH_TIMES
    if timed:
        sweeps[1]["t_offset"][::3] = NO_TIME
    builder = Builder(tmp_path / "s")
    made = clouds.add_clouds(builder, sweeps, clouds.cloud_spec(columns))
    with Session(builder.close()) as session:
        source = LidarOdometry(session.streams["lidar"], np.eye(4))
        ((t_ns, poses),) = source.blocks()
    if timed:  # points without a time are left out
        sweeps[1] = sweeps[1][sweeps[1]["t_offset"] != NO_TIME]
    assert np.array_equal(t_ns, made.t_ns)  # a pose is that at the sweep's end
    assert poses[:, 0, 3].tolist() == [1, 2, 3]
    assert Fake.made.config.data.deskew is timed
    assert ("not corrected for motion" in source.describe()["note"]) is not timed
    for (points, share), sweep in zip(Fake.made.frames, sweeps, strict=True):
        assert np.array_equal(points, sweep["xyz"][clouds.has_return(sweep)].astype(np.float64))
        if timed:
            t_offset = sweep["t_offset"][clouds.has_return(sweep)]
            assert np.allclose(share, t_offset / sweep["t_offset"].max(), rtol=0, atol=1e-9)
