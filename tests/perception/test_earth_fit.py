"""A trajectory's world is placed on Earth by the positions beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from recorder.perception.calibration import Calibration
from recorder.perception.earth_fit import find_earth_fit
from recorder.perception.geometry import invert, rotation_of_rpy, transform
from recorder.perception.poses import EarthPoses, find_poses
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import still_imu
from tests.perception.test_earth_poses import SAMPLES, S, add_gnss, even, positions
from tests.session.build import Builder

WORLD = transform(rotation_of_rpy([0.02, -0.03, 2.0]), np.array([300.0, -20.0, 5.0]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    builder = Builder(tmp_path / "s")
    builder.add(still_imu(), count=SAMPLES)
    even(builder, "imu", SAMPLES, S // 100)
    add_gnss(builder, positions())
    return builder.close()


def fitted(
    path: Path, cut: int, drift_m: float = 0.0
) -> tuple[npt.NDArray[np.float64] | None, float, npt.NDArray[np.float64]]:
    """world to ECEF, the residual, and the truth; the trajectory comes in parts of `cut`."""
    with Session(path, virtual=True) as session:
        source = find_poses(session, Calibration())
        assert isinstance(source, EarthPoses)
        fit = find_earth_fit(session, Calibration())
        assert fit is not None and fit.name == "imu_gnss"
        for t_ns, poses in source.blocks():
            other = invert(WORLD) @ poses
            other[:, 0, 3] += np.linspace(-drift_m, drift_m, len(t_ns))
            for at in range(0, len(t_ns), cut):
                fit.add(t_ns[at : at + cut], other[at : at + cut])
        return fit.to_earth(), fit.residual_m, source.to_earth @ WORLD


@pytest.mark.parametrize("cut", [1, 7, 100, 10_000])
def test_the_world_is_found_in_parts_of_any_size(path: Path, cut: int) -> None:
    found, residual_m, truth = fitted(path, cut)
    assert found is not None
    np.testing.assert_allclose(found, truth, atol=1e-6)
    assert residual_m < 1e-6


def test_drift_is_reported(path: Path) -> None:
    found, residual_m, truth = fitted(path, 100, drift_m=2.0)
    assert found is not None
    np.testing.assert_allclose(found[:3, :3], truth[:3, :3], atol=1e-6)
    assert 1.2 < residual_m < 2.1


def test_a_trajectory_at_another_time_is_not_placed(path: Path) -> None:
    with Session(path) as session:
        fit = find_earth_fit(session, Calibration())
        assert fit is not None
        fit.add(np.array([0, S, 2 * S]), np.tile(np.eye(4), (3, 1, 1)))
        assert fit.to_earth() is None


def test_a_session_without_positions(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(still_imu(), 0.5)
    add_gnss(builder, np.full((5, 3), np.nan))
    with Session(builder.close()) as session:
        assert find_earth_fit(session, Calibration()) is None
