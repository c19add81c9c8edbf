"""Bags of the clouds of five drivers, imported and packed for NCore, in NVIDIA's loader.

The truth is what rosbags reads of the same bag.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.command import recorder
from tests.conformance.test_cloud_bags import COUNT, PERIOD_NS, TIMES, plain, run
from tests.formats.ros2.cloud_kit import DRIVERS, STAMP_NS

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
