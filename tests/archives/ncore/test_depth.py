"""Depth labels of a lidar's points in the pictures of calibrated cameras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.common.errors import ArchiveError, SessionError
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.points import find_returns, stack_xyz
from recorder.perception.projection import draw_depth
from recorder.session.playback import recorded_spec
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import CALIBRATION, add_poses, lidar, pack, rig
from tests.session.build import START_NS, Builder, camera_spec, content

LIDAR = "  lidar: {T_sensor_rig: {translation_m: [0, 0, 2], quaternion_xyzw: [0, 0, 0, 1]}}\n"
INSTANCE = "camera_labels/depth.z@camera@lidar"


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = rig(tmp_path / "drive", 0.5).close()
    (path / "calibration.yaml").write_text(CALIBRATION + LIDAR)
    return path


def expected(session: Path, sweep: int, moved_m: float = 0.0) -> Any:
    """Depth by OpenCV's projection of the sweep's points, which are `moved_m` ahead by then."""
    with Session(session) as opened:
        stream = opened.streams["lidar"]
        _, points = make_point_source(recorded_spec(stream)).read(stream, sweep)
    x, y, z = stack_xyz(points[find_returns(points)]).astype(float).T
    # The camera is 1 m ahead of the rig and looks ahead; the lidar is 0.5 m above the camera.
    in_camera = np.stack([-y, -(z + 0.5), x - 1 - moved_m], 1)
    in_camera = in_camera[in_camera[:, 2] > 0.05]
    matrix = np.array([[30, 0, 15.5], [0, 31, 11.5], [0, 0, 1.0]])
    distortion = np.array([0.1, 0, 0, 0, 0.0])
    near = np.abs(in_camera[:, :2] / in_camera[:, 2:]).max(1) < 0.8
    in_camera = in_camera[near]
    pixels, _ = cv2.projectPoints(in_camera, np.zeros(3), np.zeros(3), matrix, distortion)
    return draw_depth(pixels[:, 0], in_camera[:, 2], (32, 24))


def test_depth_is_that_of_the_nearest_points(session: Path) -> None:
    archive = pack(session, depth="lidar", poses="identity")
    times = archive.array(f"{INSTANCE}/timestamps_us")
    ends = archive.times_us("cameras/camera")[:, 1]
    assert np.isin(times, ends).all() and len(times) == len(ends)
    descriptor = archive.attributes(f"{INSTANCE}/labels")["descriptor"]
    assert descriptor["label_type"] == {"category": "DEPTH", "qualifier": "z", "unit": "METERS"}
    assert descriptor["label_schema"]["quantization"]["scale"] == 1 / 256
    some = 0
    for t_us in times[[0, 7, -1]]:
        about = archive.attributes(f"{INSTANCE}/labels/{t_us}")["generic_meta_data"]
        stored = archive.array(f"{INSTANCE}/labels/{t_us}/data")
        assert stored.dtype == np.uint16
        depth = expected(session, about["sweep"])
        assert np.abs(stored / 256 - depth).max() <= 1 / 512 + 1e-5
        some += int(np.count_nonzero(stored))
    assert some > 20


def test_points_are_moved_to_the_time_of_the_picture(session: Path) -> None:
    t_ns = START_NS + np.arange(-20, 40, dtype=np.int64) * 50_000_000
    ahead = (t_ns - START_NS) / 1e9 * 20.0  # m, at 20 m/s along x
    add_poses(session, t_ns, np.stack([ahead, ahead * 0, ahead * 0], axis=1), "_pose")
    archive = pack(session, depth="lidar")
    still = pack(session, depth="lidar", poses="identity")
    differ = 0
    for t_us in archive.array(f"{INSTANCE}/timestamps_us"):
        path = f"{INSTANCE}/labels/{t_us}/data"
        differ += not np.array_equal(archive.array(path), still.array(path))
    assert differ > 5


def test_points_beyond_the_largest_step_are_left_out(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.2)
    spec = lidar()
    data = content(spec, 2, 1)
    data["rng"][:], data["rng_far"][:] = 40_000, 0
    data["rng_far"][:, :, ::2] = 300_000
    builder.add(spec, count=2, data=data)
    session = builder.close()
    (session / "calibration.yaml").write_text(CALIBRATION + LIDAR)
    archive = pack(session, depth="lidar", poses="identity")
    t_us = archive.array(f"{INSTANCE}/timestamps_us")[0]
    stored = archive.array(f"{INSTANCE}/labels/{t_us}/data")
    assert 30 < stored[stored > 0].max() / 256 < 41


def test_the_nearest_point_of_a_pixel_is_drawn() -> None:
    places = np.array([[0, 0], [0, 0], [1, 0.4], [3.6, 0], [1, -0.6]], float)
    drawn = draw_depth(places, np.array([3.0, 2, 5, 6, 7]), (4, 2))
    assert drawn.tolist() == [[2, 5, 0, 0], [0, 0, 0, 0]]


def test_cameras_without_a_calibration_have_no_depth(session: Path) -> None:
    (session / "calibration.yaml").unlink()
    archive = pack(session, depth="lidar")
    assert not any(key.startswith("camera_labels/") for key in archive.keys)
    assert archive.noted("camera: not calibrated for its pictures: no depth labels") == 1


def test_without_the_option_there_are_no_depth_labels(session: Path) -> None:
    assert not any(key.startswith("camera_labels/") for key in pack(session).keys)


@pytest.mark.parametrize("name", ["radar", "lydar"])
def test_a_lidar_that_is_none_is_named(session: Path, name: str) -> None:
    with pytest.raises((ArchiveError, SessionError), match=rf"no lidar '{name}'; has: lidar"):
        pack(session, depth=name)
