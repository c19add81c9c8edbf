"""The section of a report on lidars that are recorded as points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recorder.codecs.points import Column
from recorder.viewers.report import lidars, write_report
from tests.session import clouds
from tests.session.build import Builder, imu_spec
from tests.viewers.report.reading import Page


@pytest.mark.parametrize("columns", [clouds.WITH_TIMES, clouds.WITHOUT_TIMES])
def test_sweeps_are_shown_from_above(tmp_path: Path, columns: tuple[Column, ...]) -> None:
    builder = Builder(tmp_path / "drive")
    sweeps = [clouds.make_sweep(columns, seed) for seed in range(4)]
    clouds.add_clouds(builder, sweeps, clouds.cloud_spec(columns))
    builder.add(imu_spec(), 0.4)
    page = Page(write_report(builder.close()))
    section = page.sections["lidars"]
    for sweep in sweeps:
        assert f"{np.count_nonzero(clouds.has_return(sweep))} points" in section
    assert "range image" not in section
    assert len(page.pictures) == len(sweeps)


def test_the_points_are_the_returns_in_the_rigs_frame() -> None:
    sweep = clouds.make_sweep()
    points = np.zeros(len(sweep), [(axis, "<f4") for axis in "xyz"])
    for at, axis in enumerate("xyz"):
        points[axis] = sweep["xyz"][:, at]
    returned = sweep["xyz"][clouds.has_return(sweep)]
    assert np.array_equal(lidars.find_points(points, None), returned)
    pose = np.eye(4)
    pose[:3, 3] = 1, 2, 3
    assert np.allclose(lidars.find_points(points, pose), returned + np.array([1, 2, 3]), atol=1e-5)


def test_a_damaged_sweep_is_named(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    clouds.add_clouds(builder, [clouds.make_sweep(seed=seed) for seed in range(4)])
    path = builder.close() / "lidar/points.bin"
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 8] ^= 0xFF  # in sweep 1
    path.write_bytes(data)
    page = Page(write_report(builder.path))
    assert "lidar, sweep 1" in page.sections["lidars"]
    assert len(page.pictures) == 3
