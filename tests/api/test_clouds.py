"""Points of all lidars by the API: recorded ranges, and recorded points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import recorder
from recorder.common.errors import SessionError
from recorder.perception.lidar.points import SweepPoints
from tests.archives.ncore.packer_rig import lidar, still_imu
from tests.session import clouds, driven_clouds
from tests.session.build import Builder

CALIBRATION = """sensors:
  roof: {T_sensor_rig: {translation_m: [1, 0, 2], quaternion_xyzw: [0, 0, 0, 1]}}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    builder = Builder(tmp_path_factory.mktemp("clouds") / "drive")
    sweeps = [clouds.make_sweep(seed=seed) for seed in range(3)]
    clouds.add_clouds(builder, sweeps, clouds.cloud_spec(name="roof"))
    plain = [clouds.make_sweep(clouds.WITHOUT_TIMES, seed) for seed in range(3)]
    spec = clouds.cloud_spec(clouds.WITHOUT_TIMES, "front")
    clouds.add_clouds(builder, plain, spec)
    builder.add(lidar(), count=3)
    builder.add(still_imu(), 0.3)
    (builder.path / "calibration.yaml").write_text(CALIBRATION)
    builder.close()
    return builder


def test_recorded_points_have_all_fields_and_their_times(built: Builder) -> None:
    with recorder.open(built.path) as session:
        roof = session["roof"]
        assert roof.kind == "lidar"
        for index in range(3):
            sweep, t_ns = clouds.make_sweep(seed=index), built.streams["roof"].t_ns[index]
            cloud = roof.cloud(index)
            assert cloud.dtype.names == (
                "x", "y", "z", "intensity", "ring", "tag_0", "tag_1", "t_ns",
            )  # fmt: skip
            begin_ns = clouds.begin_ns(t_ns, sweep)
            assert np.array_equal(cloud["t_ns"], begin_ns + sweep["t_offset"].astype(np.int64))
            assert cloud["t_ns"].max() == t_ns
            assert np.array_equal(cloud["ring"], sweep["ring"])
            assert np.array_equal(roof[index].cloud["z"], sweep["xyz"][:, 2], equal_nan=True)
            points = roof.points(index, frame="sensor")
            assert np.array_equal(points, sweep["xyz"], equal_nan=True)
            moved = roof[index].points(motion_corrected=False)
            assert np.allclose(moved, sweep["xyz"] + np.array([1, 0, 2]), atol=1e-5, equal_nan=True)


def test_points_are_moved_by_the_rigs_motion_after_the_stamp(tmp_path: Path) -> None:
    made = driven_clouds.drive(tmp_path / "drive", clouds.WITH_TIMES)
    with recorder.open(made.path) as session:
        for index, world in enumerate(made.world):
            at_ns = int(made.lidar.t_ns[index]) + 40_000_000
            rotation, place = driven_clouds.rig_at((at_ns - made.lidar.t_ns[0]) * 1e-9)
            points = session["lidar"].points(index, at_ns=at_ns).astype(np.float64)
            hit = clouds.has_return(made.sweeps[index])
            assert np.abs(points[hit] @ rotation.T + place - world[hit]).max() < 1e-3


def test_points_without_times_have_none(built: Builder) -> None:
    with recorder.open(built.path) as session:
        cloud = session["front"].cloud(1)
    assert cloud.dtype.names == ("x", "y", "z", "reflectivity", "ring")
    sweep = clouds.make_sweep(clouds.WITHOUT_TIMES, 1)
    assert np.array_equal(cloud["reflectivity"], sweep["reflectivity"])


def test_points_of_ranges_are_those_of_the_sweep(built: Builder) -> None:
    made = built.streams["lidar"]
    sample = {name: values[2] for name, values in made.data.items()}
    start_ns, expected = SweepPoints(made.spec).points(sample, int(made.t_ns[2]))
    with recorder.open(built.path) as session:
        cloud = session["lidar"].cloud(2)
    assert np.array_equal(cloud["t_ns"], start_ns + expected["t"].astype(np.int64))
    for name in ("x", "intensity", "return", "ring"):
        assert np.array_equal(cloud[name], expected[name])


def test_what_a_stream_does_not_have_is_an_error(built: Builder) -> None:
    with recorder.open(built.path) as session:
        with pytest.raises(SessionError, match="roof: has no ranges: its lidar records points"):
            session["roof"].ranges(0)
        with pytest.raises(SessionError, match="imu: has no points: it is no lidar's stream"):
            session["imu"].cloud(0)
