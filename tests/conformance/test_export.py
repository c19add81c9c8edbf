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
from recorder.session.reader import Session
from tests.cli.test_export_pictures import read_pcd
from tests.session.simulated import simulated_session

pytestmark = pytest.mark.conformance
pypcd4: Any = pytest.importorskip("pypcd4", reason="needs pypcd4, which is not installed")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    path = tmp_path_factory.mktemp("root") / "rig"
    with Session(simulated_session(path, 0.3, streams=["lidar", "radar"]).path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("stream", "count", "dtype"), [("lidar", 3, POINT), ("radar", 6, DETECTION)]
)
def test_points_are_read_as_by_the_other_tests(
    session: Session, tmp_path: Path, stream: str, count: int, dtype: np.dtype[Any]
) -> None:
    made = export(session, Wanted(stream, "pcd"), tmp_path / "out")
    assert len(made.files) == count
    for path in made.files:
        cloud, (_, points) = pypcd4.PointCloud.from_path(path), read_pcd(path)
        assert cloud.fields == dtype.names and cloud.points == len(points) > 3
        for name in cloud.fields:
            assert np.array_equal(cloud.numpy((name,))[:, 0], points[name]), name
