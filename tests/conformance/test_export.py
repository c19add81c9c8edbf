"""Exported points, read by pypcd4."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.export import Wanted, export
from recorder.perception.lidar.points import POINT
from recorder.perception.radar.detections import DETECTION
from recorder.session.reader import Session, lidar_range_mm
from tests.session.simulated import simulated_session

pytestmark = pytest.mark.conformance
pypcd4: Any = pytest.importorskip("pypcd4", reason="needs pypcd4, which is not installed")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    path = tmp_path_factory.mktemp("root") / "rig"
    with Session(simulated_session(path, 0.3, streams=["lidar", "radar"]).path) as opened:
        yield opened


def test_points_of_a_lidar(session: Session, tmp_path: Path) -> None:
    made = export(session, Wanted("lidar", "pcd"), tmp_path / "lidar")
    assert len(made.files) == 3
    lidar = session.streams["lidar"]
    for index, path in enumerate(made.files):
        cloud = pypcd4.PointCloud.from_path(path)
        assert cloud.fields == POINT.names
        hit = lidar_range_mm(lidar, index) > 0
        columns = np.broadcast_to(lidar.sample(index, ["t_col"])["t_col"], hit.shape)[hit]
        assert cloud.points == hit.sum() > 1000
        assert np.array_equal(
            cloud.numpy(("t",))[:, 0].astype(np.int64), (columns - columns.min()).astype(np.int64)
        )
        assert np.array_equal(cloud.numpy(("ring",))[:, 0], np.nonzero(hit)[0])
        assert np.isfinite(cloud.numpy(("x", "y", "z"))).all()


def test_detections_of_a_radar(session: Session, tmp_path: Path) -> None:
    made = export(session, Wanted("radar", "pcd"), tmp_path / "radar")
    assert len(made.files) == 6
    for path in made.files:
        cloud = pypcd4.PointCloud.from_path(path)
        assert cloud.fields == DETECTION.names
        assert cloud.points > 3
        assert (cloud.numpy(("snr",)) > 12).all()
        assert np.abs(cloud.numpy(("velocity",))).max() < 60
