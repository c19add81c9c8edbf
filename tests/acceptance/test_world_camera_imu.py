"""The simulated world through the whole recorder: camera, IMU and labels against one another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import yaml

from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera
from drivers.world import World
from recorder.session.reader import Session
from tests.acceptance.command import (
    PROJECT,
    assert_nothing_lost,
    column,
    header,
    here,
    relative_ns,
    write_config,
)
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.world.test_annotate import matrix

Floats = npt.NDArray[np.float64]

WIDTH, HEIGHT = 1280, 720
SENSORS = """
camera: {driver: camera, source: "sim:", pace: max, quality: 95}
lidar: {driver: ouster, source: "sim:", pace: max, mode: 512x10, beams: 32}
imu: {driver: xsens, source: "sim:", pace: max, rate: 200}
"""
GRAVITY = np.array([0, 0, 9.80665])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second of the drive, annotated as the command does after a simulated recording."""
    root = tmp_path_factory.mktemp("world")
    config = write_config(root / "world.yaml", SENSORS)
    ran = here("run", config, "--root", root, "--name", "world", "--duration", 1, labels=True)
    assert (ran.code, ran.complaints) == (0, [])
    return root / "world"


@pytest.fixture(scope="module")
def calibration() -> dict[str, Any]:
    text = (PROJECT / "configs/demo_calibration.yaml").read_text()
    sensors: dict[str, Any] = yaml.safe_load(text)["sensors"]
    return sensors


def labels(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def rig_at(session: Path, t_ns: int) -> tuple[Floats, Floats]:
    """Position and rotation of the rig by ``_pose``, between its samples by velocity."""
    values = {
        name: np.fromfile(session / "_pose" / name, "<f8").reshape(-1, *shape)
        for name, shape in (("pos", (3,)), ("vel", (3,)), ("acc", (3,)), ("rot", (3, 3)))
    }
    since = t_ns - header(session)["start_ns"]
    k = since // 10_000_000
    dt = (since - k * 10_000_000) / 1e9
    position = values["pos"][k] + values["vel"][k] * dt + values["acc"][k] * dt * dt / 2
    return position, values["rot"][k]


def test_the_session_is_whole(session: Path) -> None:
    assert_nothing_lost(session)
    report = here("validate", session, "--deep", "--format", "json")
    errors = [p for p in report.result["problems"] if p["severity"] == "error"]
    assert (report.code, errors) == (0, []), report.out
    times = relative_ns(session, "camera")
    np.testing.assert_array_equal(times, np.rint(np.arange(30) * 1e9 / 30))


def test_a_targets_pixels_lie_where_the_calibration_projects_its_cuboid(
    session: Path, calibration: dict[str, Any]
) -> None:
    camera, lens = calibration["camera"], calibration["camera"]["parameters"]
    pinhole = np.array([[lens["fx"], 0, lens["cx"]], [0, lens["fy"], lens["cy"]], [0, 0, 1]])
    distortion = np.array([lens[key] for key in ("k1", "k2", "p1", "p2", "k3")])
    to_rig = matrix(camera["T_sensor_rig"]["quaternion_xyzw"])
    eye = np.array(camera["T_sensor_rig"]["translation_m"])
    world = World("drive")
    pictures = SimulatedCamera(world, Lens.default(WIDTH, HEIGHT))
    numbers = {target.track: target.number for target in world.targets}
    cuboids: dict[str, dict[int, dict[str, Any]]] = {}
    for label in labels(session / "_cuboids/truth.jsonl"):
        cuboids.setdefault(label["track"], {})[label["t_ns"]] = label
    boxes = labels(session / "_labels/camera.jsonl")
    signs = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
    checked = set()
    with Session(session) as read:
        for frame in (4, 15, 26):
            recorded = read.streams["camera"].sample(frame)["video.avi"][..., ::-1]
            assert read_frame_number(np.ascontiguousarray(recorded)) == frame
            for box in (box for box in boxes if box["frame"] == frame):
                left, top, width, height = box["box_px"]
                inside = left > 0 and left + width < WIDTH - 2 and top > 40
                beside = left > 150 or top > 140  # of the number in the picture
                if not (inside and beside) or box["occluded"] or min(width, height) < 12:
                    continue
                # Where nobody hides it: cuboids lie between sweeps, the picture between two.
                known = cuboids[box["track"]]
                before = max(t for t in known if t <= box["t_ns"])
                after = min(t for t in known if t > box["t_ns"])
                share = (box["t_ns"] - before) / (after - before)
                ends = [np.array(known[t]["center_m"]) for t in (before, after)]
                centre = ends[0] + share * (ends[1] - ends[0])
                turn = matrix(known[before]["quaternion_xyzw"])
                points = (signs * np.array(known[before]["size_m"]) / 2) @ turn.T + centre
                pixels, _ = cv2.projectPoints(
                    (points - eye) @ to_rig, np.zeros(3), np.zeros(3), pinhole, distortion
                )
                low, high = pixels[:, 0].min(axis=0), pixels[:, 0].max(axis=0)
                np.testing.assert_allclose([left, top], low, atol=1.0)
                np.testing.assert_allclose([left + width, top + height], high, atol=1.0)
                without = pictures.frame(frame, frozenset({numbers[box["track"]]}))
                different = np.abs(recorded.astype(int) - without).max(axis=2) > 40
                # JPEG rings at every edge, a pixel wide.
                different = cv2.morphologyEx(
                    different.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)
                )
                rows, columns = np.nonzero(different[:, : int(left + width) + 20])
                around = (columns > left - 20) & (rows > top - 20) & (rows < top + height + 20)
                assert abs(columns[around].min() - low[0]) < 3, box
                assert abs(rows[around].min() - low[1]) < 3, box
                assert abs(columns[around].max() - high[0]) < 3, box
                assert abs(rows[around].max() - high[1]) < 3, box
                checked.add((frame, box["track"]))
    assert len(checked) >= 6, checked


def test_what_stands_stays_where_it_is(session: Path) -> None:
    places: dict[str, list[Floats]] = {}
    moved = set()
    for label in labels(session / "_cuboids/truth.jsonl"):
        position, rotation = rig_at(session, label["t_ns"])
        place = rotation @ np.array(label["center_m"]) + position
        places.setdefault(label["track"], []).append(place)
        if np.any(label["velocity_m_s"]):
            moved.add(label["track"])
    for track, found in places.items():
        spread = float(np.ptp(np.array(found), axis=0).max())
        if track in moved:
            assert spread > 0.5 or len(found) < 5, track
        else:
            assert spread < 1e-4, track
    assert len(moved) > 10 and len(places.keys() - moved) > 10


def test_the_imu_integrates_to_the_poses(session: Path, calibration: dict[str, Any]) -> None:
    acc = column(session, "imu", "acc").astype(np.float64)
    avel = column(session, "imu", "avel").astype(np.float64)
    t = relative_ns(session, "imu") / 1e9
    arm = np.array(calibration["imu"]["T_sensor_rig"]["translation_m"])
    poses = {
        name: np.fromfile(session / "_pose" / name, "<f8").reshape(-1, 3)
        for name in ("pos", "vel", "acc")
    }
    rot = np.fromfile(session / "_pose/rot", "<f8").reshape(-1, 3, 3)
    end = 99  # the last sample of _pose that the IMU reaches, at 0.99 s
    count = 2 * end + 1
    velocity, position = poses["vel"][0].copy(), poses["pos"][0] + rot[0] @ arm
    rotation = rot[0].copy()
    for k in range(count - 1):
        dt = t[k + 1] - t[k]
        x, y, z = 0.5 * (avel[k] + avel[k + 1]) * dt
        after = rotation @ (np.eye(3) + np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]))
        mean = 0.5 * (rotation @ acc[k] + after @ acc[k + 1]) - GRAVITY
        position = position + velocity * dt + mean * dt * dt / 2
        velocity, rotation = velocity + mean * dt, after
    # Biases of up to three of their standard deviations, and gravity through a tilt.
    seconds = float(t[count - 1])
    tilt = 3 * 0.0006 * seconds + 5 * 0.0012 * np.sqrt(seconds / 200)
    most_velocity = 3 * 0.02 * seconds + 9.81 * tilt * seconds / 2
    assert np.abs(rotation.T @ rot[end] - np.eye(3)).max() < tilt
    assert np.abs(velocity - poses["vel"][end]).max() < most_velocity
    expected = poses["pos"][end] + rot[end] @ arm
    assert np.abs(position - expected).max() < most_velocity * seconds / 2
    assert np.linalg.norm(expected - poses["pos"][0]) > 7


def test_the_same_bytes_at_every_pace(tmp_path: Path) -> None:
    recorded = {}
    for pace in ("realtime", "max"):
        config = write_config(
            tmp_path / f"{pace}.yaml",
            f"""
            camera: {{driver: camera, source: "sim:", width: 320, seed: 9, pace: {pace}}}
            imu: {{driver: xsens, source: "sim:", seed: 9, pace: {pace}}}
            """,
        )
        ran = here("run", config, "--root", tmp_path, "--name", pace, "--duration", 0.3)
        assert ran.code == 0, ran.err
        path = tmp_path / pace
        with Session(path) as read:
            frames = [read.streams["camera"].sample(k)["video.avi"].tobytes() for k in range(9)]
        values = [column(path, "imu", name).tobytes() for name in ("acc", "avel", "rot")]
        recorded[pace] = [*frames, *values]
    assert recorded["realtime"] == recorded["max"]
