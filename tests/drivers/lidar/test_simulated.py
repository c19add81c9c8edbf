"""The simulated lidar against plain geometry, and itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from drivers.kit.driver import Sample
from drivers.kit.runner import make_driver
from drivers.lidar.driver import LidarDriver
from drivers.lidar.model import POINT, START_NS, LidarScene
from drivers.world.mounts import LIDAR
from recorder.codecs.points import unpack_points
from recorder.config.options import check_options
from tests.session.clouds import begin_ns

SMALL = {"beams": 8, "columns": 180}


def scene(**options: Any) -> LidarScene:
    return LidarScene("lidar", check_options(LidarDriver.options, SMALL | options))


def test_points_lie_on_the_beams_and_on_the_ground() -> None:
    made = scene(noise=0.0, scene="parked")
    points = made.sweep(3)
    assert points.dtype == POINT and len(points) > 200
    column = np.rint(points["t_offset"] / made.beams.step_ns).astype(int)
    direction = made.beams.direction[:, points["ring"], column].T
    length = np.linalg.norm(points["xyz"], axis=1)
    np.testing.assert_allclose(direction * length[:, None], points["xyz"], atol=1e-3)
    ground = -LIDAR.translation_m[2]
    lowest = points["xyz"][:, 2].min()
    assert abs(lowest - ground) < 1e-3
    assert (np.abs(points["xyz"][:, 2] - ground) < 1e-3).mean() > 0.2


def test_a_sweep_is_the_same_again_and_with_another_seed_another() -> None:
    first, again, other = scene().sweep(2), scene().sweep(2), scene(seed=1).sweep(2)
    assert first.tobytes() == again.tobytes() != other.tobytes()
    assert first.tobytes() != scene(noise=0.0).sweep(2).tobytes()


def test_the_source_has_sweeps_of_different_size() -> None:
    entry = {"name": "lidar", "scheme": "sim", "address": "", "options": SMALL, "pace": "max"}
    source = make_driver(LidarDriver, entry)
    (spec,) = source.open()
    sizes = set()
    for index in range(4):
        item = source.read()
        assert isinstance(item, Sample)
        points = unpack_points(item.data["points.bin"][0], POINT, "here")
        assert np.asarray(item.data["grid"]).tolist() == [[1, len(points)]]
        assert (np.diff(points["t_offset"].astype(np.int64)) >= 0).all()
        assert points["t_offset"].max() < 100_000_000
        assert begin_ns(item.t_ns[0], points) == START_NS + index * 100_000_000
        sizes.add(len(points))
    assert len(sizes) > 1
    source.close()
    assert spec.rate_hz == 10.0 and not spec.finite
