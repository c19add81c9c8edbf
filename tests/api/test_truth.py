"""What the API computes, against the simulated world, and against what the archives hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import recorder
from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera
from drivers.sim import truth
from drivers.world import World
from recorder.archives.edgefirst.cameras import depth_picture
from recorder.perception.geometry import apply, invert, rotation_of_quaternion
from recorder.perception.sensor_files import lidar_optics
from recorder.session.reader import Session as Reader
from recorder.session.reader import lidar_range_mm
from tests.api.rig import ORIGIN_NS, SIZES
from tests.archives.edgefirst import rig as edgefirst

Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def world() -> World:
    return World("drive")


def labels_at(world: World, t_ns: int) -> list[dict[str, Any]]:
    """The world's boxes around the vehicle, in the rig's frame at a stamp."""
    lines = truth.cuboids(world, np.array([t_ns - ORIGIN_NS]), [t_ns])
    return [json.loads(line) for line in lines]


def beyond_surface(label: dict[str, Any], points: Floats) -> Floats:
    """How far points near a box are off its surface, m; those on the ground are left out."""
    turn = rotation_of_quaternion(label["quaternion_xyzw"])
    beyond = np.abs((points - label["center_m"]) @ turn) - np.array(label["size_m"]) / 2
    near = (beyond < 0.5).all(axis=1) & (points[:, 2] > 0.3)
    return np.asarray(np.abs(beyond[near].max(axis=1)))


def test_points_lie_on_what_stands_still(session: recorder.Session, world: World) -> None:
    """The vehicle drives half a metre while the lidar turns: without its motion they do not."""
    checked, worst = 0, 0.0
    for frame in session.synchronized("camera", lidar=0.05):
        if frame.lidar is None:
            continue
        moved, plain = (
            np.asarray(frame.lidar.points("rig", corrected), np.float64)
            for corrected in (True, False)
        )
        parked = [
            label
            for label in labels_at(world, frame.t_ns)
            if label["class"] == "car" and not np.any(label["velocity_m_s"])
        ]
        near = [(beyond_surface(p, moved), beyond_surface(p, plain)) for p in parked]
        for right, wrong in near:
            if len(right) > 100 and len(wrong) > 100:
                assert right.max() < 0.05, frame.index
                assert np.median(wrong) > np.median(right)
                worst = max(worst, float(wrong.max()))
                checked += 1
    assert checked >= 5 and worst > 0.3


def test_points_of_objects_project_into_their_boxes(
    session: recorder.Session, world: World
) -> None:
    camera = SimulatedCamera(world, Lens.default(*SIZES.picture), fps=10.0)
    calibration = session.calibration("camera")
    seen = 0
    for frame in session.synchronized("camera", lidar=0.05):
        if frame.lidar is None:
            continue
        points = frame.lidar.points()
        boxes = {
            world.targets[b.target].track: b for b in truth.boxes(camera, frame.index / camera.fps)
        }
        for label in labels_at(world, frame.t_ns):
            box = boxes.get(label["track"])
            if label["class"] != "car" or np.any(label["velocity_m_s"]) or box is None:
                continue
            turn = rotation_of_quaternion(label["quaternion_xyzw"])
            local = np.abs((points - label["center_m"]) @ turn)
            inside = (local < np.array(label["size_m"]) / 2 + 0.05).all(axis=1)
            pixels = calibration.project(points[inside])
            pixels = pixels[np.isfinite(pixels).all(axis=1)]
            column, row = (pixels - (box.left, box.top)).T
            assert (column > -1).all() and (column < box.width + 1).all()
            assert (row > -1).all() and (row < box.height + 1).all()
            seen += len(pixels)
    assert seen > 500


def test_a_depth_picture_of_the_points_is_edgefirsts(drive_path: Path, tmp_path: Path) -> None:
    shutil.copytree(drive_path, tmp_path / "drive")
    packed = edgefirst.pack(tmp_path / "drive", lidar_images=["projected"], tolerance_ms=50.0)
    compared = 0
    with recorder.open(tmp_path / "drive") as session:
        calibration = session.calibration("camera")
        for frame in session.synchronized("camera", lidar=0.05):
            if frame.lidar is None:
                assert "depth.png" not in packed.endings(frame.index)
                continue
            points = frame.lidar.points("rig").astype(np.float64)
            pixels = calibration.project(points)
            seen = np.isfinite(pixels).all(axis=1)
            place = calibration.T_sensor_rig
            assert place is not None
            depth_m = ((points - place[:3, 3]) @ place[:3, :3])[:, 2]
            made = depth_picture(pixels[seen], depth_m[seen], SIZES.picture).astype(np.int32)
            theirs = packed.picture(frame.index, "depth.png").astype(np.int32)
            assert np.count_nonzero(theirs) > 500
            same = np.abs(made - theirs) <= 1  # their points are float64
            assert np.count_nonzero(~same) <= 2
            compared += 1
    assert compared == 5


def test_points_of_the_sensor_are_those_of_ncores_rays(
    session: recorder.Session, drive_path: Path
) -> None:
    with Reader(drive_path) as reader:
        stream = reader.streams["lidar"]
        optics, _, _ = lidar_optics(stream)
        ranges = lidar_range_mm(stream, 3)
        rays = optics.rays([ranges], [np.zeros(ranges.shape, np.uint8)])
    points = (rays.direction * rays.distance_m[0][:, None])[ranges.reshape(-1) > 0]
    found = session["lidar"].points(3, "sensor")
    assert found.dtype == np.float32 and found.shape == points.shape
    assert np.abs(found - points).max() < 1e-4
    place = session.calibration("lidar").T_sensor_rig
    assert place is not None
    in_rig = session["lidar"].points(3, "rig", motion_corrected=False)
    assert np.abs(in_rig - (points @ place[:3, :3].T + place[:3, 3])).max() < 1e-3


def test_ranges_are_upright_and_in_metres(session: recorder.Session) -> None:
    from ouster.sdk import core

    sample = session["lidar"][2]
    info = core.SensorInfo((session.path / "lidar" / "lidar.json").read_text())
    staggered = sample["rng"].astype(np.uint32) + sample["rng_far"]
    expected = core.destagger(info, staggered).astype(np.float64) / 1e3
    assert sample.ranges.dtype == np.float32
    assert np.abs(sample.ranges - expected).max() < 1e-4


def test_detections_of_a_radar_are_in_front_of_it(session: recorder.Session) -> None:
    radar = session["radar"]
    sensor, rig = radar.points(4, "sensor"), radar.points(4, motion_corrected=False)
    place = session.calibration("radar").T_sensor_rig
    assert place is not None
    assert len(sensor) > 3 and (sensor[:, 0] >= 0).all()
    assert np.allclose(rig, sensor + place[:3, 3], atol=1e-5)


def test_poses_are_the_worlds(session: recorder.Session, world: World) -> None:
    for t_s in (0.0, 0.1234, 0.5):
        pose = session.pose(ORIGIN_NS + round(t_s * 1e9))
        assert pose is not None and pose.shape == (4, 4)
        position, rotation = world.trajectory.pose(np.array([t_s]))
        assert np.allclose(pose[:3, 3], position[0], atol=1e-3)
        assert np.allclose(pose[:3, :3], rotation[0], atol=1e-4)
    assert session.pose_source == {"source": "sensor _pose", "measured": True}
    first_ns = ORIGIN_NS - 100_000_000  # of the first pose
    assert session.pose(first_ns - 90_000_000) is not None
    assert session.pose(first_ns - 110_000_000) is None
    assert session.pose(0) is None and session.pose(ORIGIN_NS) is not None


def test_a_picture_is_what_was_drawn(session: recorder.Session, world: World) -> None:
    camera = SimulatedCamera(world, Lens.default(*SIZES.picture), fps=10.0)
    sample = session["camera"][3]
    assert sample.rgb.shape == (*SIZES.picture[::-1], 3) and sample.rgb.dtype == np.uint8
    assert np.array_equal(sample.rgb, sample["video.avi"])
    drawn = camera.frame(3)[..., ::-1].astype(np.float64)  # the simulation draws BGR
    assert np.abs(sample.rgb - drawn).mean() < 6
    assert sample.jpeg[:2] == b"\xff\xd8"


def test_points_are_moved_to_any_time(session: recorder.Session) -> None:
    """Also long after the sweep: as points of the world are."""
    lidar = session["lidar"]
    stamp_ns = lidar[1].t_ns
    then, later = session.pose(stamp_ns), session.pose(stamp_ns + 300_000_000)
    assert then is not None and later is not None
    expected = apply(invert(later) @ then, lidar.points(1))
    moved = lidar.points(1, at_ns=stamp_ns + 300_000_000)
    assert np.abs(moved - expected).max() < 1e-3
    assert np.abs(moved - lidar.points(1)).max() > 1


def test_a_part_has_the_poses_around_it(session: recorder.Session, drive_path: Path) -> None:
    with recorder.open(drive_path, from_=0.25, until=0.45) as part:
        assert part.pose(ORIGIN_NS) is not None
        (index,) = (i for i, t in enumerate(session["lidar"].t_ns) if t == part["lidar"][0].t_ns)
        assert np.array_equal(part["lidar"].points(0), session["lidar"].points(index))


def test_processed_streams_are_not_listed_but_found(session: recorder.Session) -> None:
    assert list(session) == ["camera", "imu", "lidar", "radar"]
    assert "_pose" in session and session["_pose"][0:1].pos.shape == (1, 3)


def test_what_is_outside_of_the_picture_has_no_pixel(session: recorder.Session) -> None:
    pixels = session.calibration("camera").project([[0, 0, 10], [9, 0, 10], [0, 9, 10]], "sensor")
    assert np.isfinite(pixels).all(axis=1).tolist() == [True, False, False]


def test_a_session_that_grows_is_read_again(drive_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(drive_path, path)
    header = json.loads((path / "_recorder" / "session.json").read_text())
    header |= {"state": "recording", "end_ns": None}
    (path / "_recorder" / "session.json").write_text(json.dumps(header))
    radar_files = [f"radar/{name}" for name in ("iq", "valid", "ts", "seq", "t_mono")]
    names = radar_files + [f"_pose/{name}" for name in ("pos", "rot", "ts", "t_mono")]
    for name in names:
        data = (drive_path / name).read_bytes()
        (path / name).write_bytes(data[: len(data) // 3])
    with recorder.open(drive_path) as session, recorder.open(path) as growing:
        radar, end_ns = growing["radar"], session["radar"][11].t_ns
        assert (growing.state, growing.end_ns, len(radar)) == ("recording", None, 4)
        assert len(radar.points(3, "sensor")) > 0
        near = radar.nearest(end_ns)
        assert near is not None and near.index == 3
        assert growing.pose(end_ns) is None
        for name in names:
            shutil.copyfile(drive_path / name, path / name)
        assert len(radar) == 4
        growing.refresh()
        assert len(radar) == 12
        near = radar.nearest(end_ns)
        assert near is not None and near.index == 11
        assert np.array_equal(growing.pose(end_ns), session.pose(end_ns))  # type: ignore[arg-type]
        expected = session["radar"].points(11, "sensor")
        assert np.array_equal(radar.points(11, "sensor"), expected)
