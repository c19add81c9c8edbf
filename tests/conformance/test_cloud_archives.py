"""Bags of the clouds of five drivers, imported and packed for NCore, in NVIDIA's loader.

The truth is what rosbags reads of the same bag, and scipy's rotations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial.transform import Rotation, Slerp

from tests.acceptance.command import recorder
from tests.conformance.test_cloud_bags import COUNT, PERIOD_NS, TIMES, plain, run
from tests.formats.bags.kit import START_NS, write_sqlite
from tests.formats.bags.kit import Sent as Message
from tests.formats.ros2.cloud_kit import DRIVERS, FRAME, STAMP_NS
from tests.perception import test_recorded_poses as poses

pytestmark = pytest.mark.conformance
components: Any = pytest.importorskip(
    "ncore.impl.data.v4.components", reason="needs nvidia-ncore, which is not installed"
)
compat: Any = pytest.importorskip("ncore.impl.data.v4.compat")


@pytest.mark.parametrize("name", DRIVERS)
def test_nvidias_loader_has_the_points_and_times_of_the_bag(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    stamps = [STAMP_NS + k * PERIOD_NS for k in range(COUNT)]
    clouds = [plain(DRIVERS[name](rng, stamp_ns=stamp_ns), stamp_ns) for stamp_ns in stamps]
    (tmp_path / "clouds.json").write_text(json.dumps(clouds))
    run("write", tmp_path / "clouds.json", tmp_path / "bag", "mcap")
    told = [json.loads(line) for line in run("read", tmp_path / "bag").splitlines()]
    ran = recorder("import", tmp_path / "bag", "--root", tmp_path / "s", "--name", "drive")
    assert ran.code == 0, ran.err
    ran = recorder("finalize", tmp_path / "s/drive", "--to", "ncore", "--format", "json")
    assert ran.code == 0, ran.err
    (archive,) = ran.result["archives"]
    reader = components.SequenceComponentGroupsReader([Path(archive["files"][-1])])
    loader = compat.SequenceLoaderV4(reader)
    (lidar,) = loader.lidar_ids
    sensor = loader.get_lidar_sensor(lidar)
    assert sensor.frames_count == COUNT
    for index, cloud in enumerate(told):
        theirs = {key: np.array(values) for key, values in cloud["points"].items()}
        xyz = np.stack([theirs[axis] for axis in ("x", "y", "z")], axis=1)
        times_ns = np.rint(TIMES[name](theirs, cloud)) + cloud["stamp_ns"] % 10**9
        hit = np.nan_to_num(np.abs(xyz).sum(axis=1)) > 0
        points = sensor.get_frame_point_cloud(index, False, False, 0).xyz_m_end
        assert points.shape == xyz[hit].shape
        assert np.abs(points - xyz[hit]).max() < 1e-4
        assert np.array_equal(
            sensor.get_frame_generic_data(index, "ring"),
            theirs["line" if "line" in theirs else "ring"][hit],
        )
        # The session begins with the first cloud; what counts is the time from cloud to cloud.
        stamps_us = sensor.get_frame_ray_bundle_timestamp_us(index).astype(np.int64)
        since_us = stamps_us - int(sensor.frames_timestamps_us[index, 0])
        expected_us = (times_ns - times_ns.min())[hit] / 1000
        assert np.abs(since_us - expected_us).max() <= 1.001


LIDAR = ((0.5, 0.0, 2.0), Rotation.from_euler("z", 30, degrees=True).as_quat())


def by_tf(t_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Poses of the lidar in the map, each transform interpolated as tf2 does."""
    made = np.tile(np.eye(4), (len(t_ns), 1, 1))
    for moves, first, step in ((poses.drift, 2, 5), (poses.along, 0, 1)):
        known = START_NS + np.arange(first, 100, step, dtype=np.int64) * 20_000_000
        places, turns = zip(*(moves(int(t)) for t in known), strict=True)
        each = np.tile(np.eye(4), (len(t_ns), 1, 1))
        since = (t_ns - START_NS).astype(np.float64)
        slerp = Slerp((known - START_NS).astype(np.float64), Rotation.from_quat(turns))
        each[:, :3, :3] = slerp(since).as_matrix()
        for axis in range(3):
            each[:, axis, 3] = np.interp(since, known - START_NS, np.array(places)[:, axis])
        made = made @ each
    return np.asarray(made @ poses.matrix(*poses.LEVER) @ poses.matrix(*LIDAR))


def test_points_are_in_the_world_where_the_transforms_say(tmp_path: Path) -> None:
    """The vehicle turns by 6 degrees in a sweep; tf and its interpolation are scipy's."""
    rng = np.random.default_rng(3)
    starts = [START_NS + 300_000_000 + k * PERIOD_NS for k in range(4)]
    sent = [*poses.drive(2.0), poses.tf("/tf_static", START_NS, ("base_link", FRAME, *LIDAR))]
    clouds = [DRIVERS["ouster"](rng, columns=1024, stamp_ns=start) for start in starts]
    for start, cloud in zip(starts, clouds, strict=True):
        sent.append(Message("/lidar/points", cloud.type_name, "cdr", cloud.data, start))
    bag = write_sqlite(tmp_path / "drive_0.db3", sorted(sent, key=lambda each: each.log_ns))
    ran = recorder("import", bag, "--root", tmp_path, "--name", "drive")
    assert ran.code == 0, ran.err
    ran = recorder("finalize", tmp_path / "drive", "--to", "ncore", "--format", "json")
    assert ran.code == 0, ran.err
    (archive,) = ran.result["archives"]
    reader = components.SequenceComponentGroupsReader([Path(archive["files"][-1])])
    loader = compat.SequenceLoaderV4(reader)
    (name,) = loader.lidar_ids
    sensor = loader.get_lidar_sensor(name)
    ends_us = sensor.frames_timestamps_us[:, 1]
    to_world = loader.pose_graph.evaluate_poses(name, "world", ends_us)
    for index, cloud in enumerate(clouds):
        assert cloud.t_ns is not None
        xyz = np.stack([cloud.points[axis] for axis in "xyz"], axis=1).astype(np.float64)
        hit = np.isfinite(xyz).all(axis=1)
        times, at = np.unique(cloud.t_ns[hit], return_inverse=True)
        placed = by_tf(times)
        expected = np.einsum("nij,nj->ni", placed[at, :3, :3], xyz[hit]) + placed[at, :3, 3]
        points = sensor.get_frame_point_cloud(index, True, False, 0).xyz_m_end.astype(np.float64)
        world = points @ to_world[index, :3, :3].T + to_world[index, :3, 3]
        assert np.linalg.norm(world - expected, axis=1).max() < 1e-3
