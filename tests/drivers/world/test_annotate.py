"""Truth, labels and calibration of simulated sessions."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import yaml

from drivers.camera.lens import Lens
from drivers.sim.__main__ import main
from drivers.sim.annotate import annotate
from drivers.sim.calibration import calibration_text
from drivers.sim.truth import RANGE_M, boxes, half_angle
from drivers.world import World, mounts
from recorder.common.errors import SessionError
from recorder.perception.calibration import read_calibration

PROJECT = Path(__file__).resolve().parents[3]
START_NS, START_MONO_NS = 1_790_000_000_123_456_789, 77_000_000_123
CAMERA_NS = np.rint(np.arange(6) * 1e9 / 30).astype(np.int64) + 5_000_000_000
LIDAR_NS = np.arange(1, 4) * 100_000_000 - 97_656 + 5_000_000_000


def matrix(quaternion: list[float]) -> npt.NDArray[np.float64]:
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def make_session(path: Path, sensors: dict[str, Any] | None = None, **header: Any) -> Path:
    """What `annotate` reads of a session: a camera and a lidar, unless told otherwise."""
    if sensors is None:
        sensors = {
            "front": {"driver": "camera", "source": "sim:", "width": 320},
            "lidar": {"driver": "ouster", "source": "sim:"},
            "rear": {"driver": "camera", "source": "file:x.mp4"},
        }
    (path / "_recorder").mkdir(parents=True)
    values = {
        "state": "clean",
        "start_ns": START_NS,
        "start_mono_ns": START_MONO_NS,
        **header,
    }
    (path / "_recorder/session.json").write_text(json.dumps(values))
    (path / "config.yaml").write_text(yaml.safe_dump({"version": 1, "sensors": sensors}))
    for name, entry in sensors.items():
        camera = entry["driver"] == "camera"
        channel = (
            {"video.avi": {"format": "mjpg", "type": "u1", "shape": [180, 320, 3]}}
            if camera
            else {"rng": {"format": "lzmaf", "type": "u2", "shape": [128, 1024]}}
        )
        (path / name).mkdir()
        (path / name / "meta.json").write_text(json.dumps(channel))
        times = CAMERA_NS if camera else LIDAR_NS
        (times + START_MONO_NS).astype("<u8").tofile(path / name / "t_mono")
    return path


def lines(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header, *labels = map(json.loads, path.read_text().splitlines())
    return header, labels


def contents(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def test_cuboids_are_the_targets_in_the_rig(tmp_path: Path) -> None:
    session = make_session(tmp_path / "s")
    written = annotate(session)
    header, labels = lines(session / "_cuboids/truth.jsonl")
    assert (header["format"], header["version"]) == ("recorder-cuboids", 1)
    assert (header["source"], header["times_of"]) == ("simulated", "lidar")
    assert written["_cuboids/truth.jsonl"] == len(labels) > 60
    world = World("drive", 0)
    targets = {target.track: target for target in world.targets}
    assert sorted({label["t_ns"] for label in labels}) == (LIDAR_NS + START_NS).tolist()
    seen: set[tuple[int, str]] = set()
    for label in labels:
        t = np.array([(label["t_ns"] - START_NS) / 1e9])
        position, rotation = (value[0] for value in world.trajectory.pose(t))
        target = targets[label["track"]]
        assert (label["class"], label["frame"]) == (target.kind, "rig")
        assert tuple(label["size_m"]) == target.size_m
        centre, frame = (value[0] for value in target.frame(t))
        found = rotation @ np.array(label["center_m"]) + position
        np.testing.assert_allclose(found, centre, atol=2e-6)
        turned = rotation @ matrix(label["quaternion_xyzw"])
        np.testing.assert_allclose(turned, frame, atol=1e-8)
        velocity = rotation @ np.array(label["velocity_m_s"])
        states = target.fleet.states(t, [target.number])
        np.testing.assert_allclose(velocity, states.velocity_m_s[0, 0], atol=2e-6)
        seen.add((label["t_ns"], label["track"]))
    assert len(seen) == len(labels)
    for t_ns in LIDAR_NS.tolist():  # and nobody who is near is left out
        t = np.array([t_ns / 1e9])
        position = world.trajectory.pose(t)[0][0]
        for target in world.targets:
            distance = float(np.hypot(*(target.pose(t)[0][0] - position)[:2]))
            assert ((t_ns + START_NS, target.track) in seen) == (distance < RANGE_M)


def test_half_angles() -> None:
    angle = np.linspace(-np.pi + 1e-9, np.pi, 1001)
    z, w = half_angle(np.cos(angle), np.sin(angle)).T
    np.testing.assert_allclose(z, np.sin(angle / 2), atol=1e-12)
    np.testing.assert_allclose(w, np.cos(angle / 2), atol=1e-12)


def test_boxes_are_those_of_the_pictures(tmp_path: Path) -> None:
    session = make_session(tmp_path / "s")
    annotate(session)
    header, labels = lines(session / "_labels/front.jsonl")
    assert header == {
        "format": "recorder-boxes",
        "version": 1,
        "source": "simulated",
        "camera": "front",
        "resolution": [320, 180],
    }
    assert not (session / "_labels/rear.jsonl").exists()  # its source is no simulation
    assert {label["frame"] for label in labels} == set(range(6))
    for label in labels:
        assert label["t_ns"] == CAMERA_NS[label["frame"]] + START_NS
        left, top, width, height = label["box_px"]
        assert -0.5 <= left < left + width <= 319.5
        assert -0.5 <= top < top + height <= 179.5
        assert 0 <= label["occluded"] < 1
    mask = cv2.imread(str(session / "_masks/front/ego.png"), cv2.IMREAD_UNCHANGED)
    assert mask is not None and mask.shape == (180, 320) and mask.dtype == np.uint8
    assert 0.01 < (mask > 0).mean() < 0.2 and mask[-1].any() and not mask[:100].any()


def test_raw_pictures_have_the_boxes_of_jpegs(tmp_path: Path) -> None:
    jpegs, raw = make_session(tmp_path / "jpegs"), make_session(tmp_path / "raw")
    channel = {"image.srggb10": {"format": "raw", "type": "u2", "shape": [180, 320]}}
    (raw / "front/meta.json").write_text(json.dumps(channel))
    assert annotate(raw) == annotate(jpegs)
    for file in ("_labels/front.jsonl", "_masks/front/ego.png", "calibration.yaml"):
        assert (raw / file).read_bytes() == (jpegs / file).read_bytes()


def test_occlusion_is_what_is_hidden() -> None:
    """Each target's share of pixels against pictures in which it stands alone."""
    from drivers.camera.model import SimulatedCamera

    world = World("drive")
    camera = SimulatedCamera(world, Lens.default(640, 360), fps=10.0)
    everyone = frozenset(range(len(world.targets)))
    checked = 0
    for index in (12, 530, 575):
        whole, empty = camera.frame(index), camera.frame(index, everyone)
        for box in boxes(camera, index / 10):
            if box.width * box.height < 400 or box.top < 60:
                continue
            alone = (camera.frame(index, everyone - {box.target}) != empty).any(axis=2)
            shown = (camera.frame(index, frozenset({box.target})) != whole).any(axis=2)
            hidden = 1 - shown.sum() / alone.sum()
            assert box.occluded == pytest.approx(hidden, abs=0.06), world.targets[box.target].track
            checked += 1
    assert checked > 15


def test_poses_are_a_virtual_sensor_of_roverd(tmp_path: Path) -> None:
    session = make_session(tmp_path / "s")
    written = annotate(session)
    meta = json.loads((session / "_pose/meta.json").read_bytes())
    values = {}
    for name, entry in meta.items():
        assert set(entry) == {"format", "type", "shape", "desc"} and entry["format"] == "raw"
        dtype = np.dtype("<" + entry["type"])
        values[name] = np.fromfile(session / "_pose" / name, dtype).reshape(-1, *entry["shape"])
        assert len(values[name]) == written["_pose"]
    t_ns = values["t_mono"].astype(np.int64) - START_MONO_NS
    assert (np.diff(t_ns) == 10_000_000).all() and t_ns[0] == 0 and t_ns[-1] > CAMERA_NS[-1]
    np.testing.assert_allclose(values["ts"], (t_ns + START_NS) / 1e9, atol=1e-6)
    motion = World("drive").trajectory.motion(t_ns / 1e9)
    np.testing.assert_array_equal(values["pos"], motion.position_m)
    np.testing.assert_array_equal(values["rot"], motion.rotation)
    np.testing.assert_array_equal(values["vel"], motion.velocity_m_s)
    np.testing.assert_array_equal(values["acc"], motion.acceleration_m_s2)
    for name, times in (("front", CAMERA_NS), ("lidar", LIDAR_NS)):
        with np.load(session / f"_{name}/pose.npz") as bundle:
            assert set(bundle) == {"t", "pos", "rot", "vel", "acc"}
            np.testing.assert_allclose(bundle["t"], (times + START_NS) / 1e9, atol=1e-6)
            expected = World("drive").trajectory.pose(times / 1e9)
            np.testing.assert_array_equal(bundle["pos"], expected[0])
            np.testing.assert_array_equal(bundle["rot"], expected[1])


def test_labels_of_a_late_sensor_are_true_at_its_stamps(tmp_path: Path) -> None:
    sensors: dict[str, dict[str, Any]] = {
        "front": {"driver": "camera", "source": "sim:", "width": 320},
        "lidar": {"driver": "ouster", "source": "sim:"},
    }
    clock = {"offset_ms": 250, "drift_ppm": 100}
    true = make_session(tmp_path / "true", sensors)
    late = make_session(
        tmp_path / "late", {name: entry | {"clock": clock} for name, entry in sensors.items()}
    )
    errors = {}
    for name, times in (("front", CAMERA_NS), ("lidar", LIDAR_NS)):
        errors[name] = 250_000_000 + np.rint(times * 1e-4).astype(np.int64)
        stamps = times + errors[name] + START_MONO_NS
        stamps.astype("<u8").tofile(late / name / "t_mono")
    for session in (true, late):
        annotate(session)
    for file, name in (("_cuboids/truth.jsonl", "lidar"), ("_labels/front.jsonl", "front")):
        expected, found = (lines(session / file)[1] for session in (true, late))
        stamps = sorted({label.pop("t_ns") for label in found})
        measured = sorted({label.pop("t_ns") for label in expected})
        assert found == expected
        assert (np.array(stamps) - measured).tolist() == errors[name].tolist()
    with np.load(true / "_lidar/pose.npz") as one, np.load(late / "_lidar/pose.npz") as other:
        np.testing.assert_array_equal(one["pos"], other["pos"])
        np.testing.assert_allclose(other["t"] - one["t"], errors["lidar"] / 1e9, atol=1e-6)


def test_annotating_twice_gives_the_same(tmp_path: Path) -> None:
    session = make_session(tmp_path / "s")
    (session / "_cuboids").mkdir()
    (session / "_cuboids/mine.jsonl").write_text("kept\n")
    annotate(session)
    first = contents(session)
    assert first.keys() >= {"_cuboids/mine.jsonl", "_labels/front.jsonl", "_pose/meta.json"}
    assert not [name for name in first if name.endswith(".part")]
    assert (session / "_pose/pos").stat().st_mode & 0o777 == 0o640
    annotate(session)
    assert contents(session) == first


def test_without_a_lidar_cuboids_are_those_of_the_pictures(tmp_path: Path) -> None:
    sensors = {"eye": {"driver": "camera", "source": "sim:", "scene": "parked", "seed": 3}}
    session = make_session(tmp_path / "s", sensors)
    annotate(session)
    header, labels = lines(session / "_cuboids/truth.jsonl")
    assert header["times_of"] == "eye"
    assert {label["t_ns"] for label in labels} == set((CAMERA_NS + START_NS).tolist())
    world = World("parked", 3)
    t = CAMERA_NS[:1] / 1e9
    position, rotation = (value[0] for value in world.trajectory.pose(t))
    expected = rotation.T @ (world.targets[0].pose(t)[0][0] - position)
    first = next(label for label in labels if label["track"] == world.targets[0].track)
    np.testing.assert_allclose(first["center_m"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("header", "sensors", "message"),
    [
        ({"state": "recording"}, None, "is not finished"),
        ({"start_ns": None}, None, "session.json is unusable"),
        ({}, {"eye": {"driver": "camera", "source": "file:x.mp4"}}, "no sensor with samples"),
        (
            {},
            {
                "eye": {"driver": "camera", "source": "sim:"},
                "lidar": {"driver": "ouster", "source": "sim:", "scene": "straight"},
            },
            r"different worlds \(eye: scene drive, seed 0, lidar: scene straight, seed 0\)",
        ),
    ],
)
def test_what_cannot_be_annotated_is_told(
    tmp_path: Path, header: dict[str, Any], sensors: dict[str, Any] | None, message: str
) -> None:
    session = make_session(tmp_path / "s", sensors, **header)
    before = contents(session)
    with pytest.raises(SessionError, match=message) as caught:
        annotate(session)
    assert str(session) in str(caught.value)
    assert contents(session) == before


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = make_session(tmp_path / "s")
    assert main(["annotate", str(session)]) == 0
    out = capsys.readouterr().out
    assert f"{session}/_cuboids/truth.jsonl: " in out and f"{session}/_pose: " in out
    assert main(["annotate", str(tmp_path)]) == 1
    assert "not a session of the recorder" in capsys.readouterr().err


def test_the_documented_lines_are_those_that_are_written(tmp_path: Path) -> None:
    session = make_session(tmp_path / "s")
    annotate(session)
    _, cuboids_on = (PROJECT / "docs/labels.md").read_text().split("\n## `_cuboids/SET.jsonl`\n")
    of_both = cuboids_on.partition("\n## `_labels/CAMERA/")[0]
    shown = [json.loads(block.partition("```")[0]) for block in of_both.split("```json\n")[1:]]
    cuboids, boxes_ = (
        lines(session / name) for name in ("_cuboids/truth.jsonl", "_labels/front.jsonl")
    )
    expected = [cuboids[0], cuboids[1][0], boxes_[1][0]]
    for example, line in zip(shown, expected, strict=True):
        assert list(example) == list(line)
        assert [type(value) for value in example.values()] == [type(v) for v in line.values()]


# --- calibration ------------------------------------------------------------------------------


def test_the_shipped_calibration_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibration"]) == 0
    assert capsys.readouterr().out == calibration_text()
    assert (PROJECT / "configs/demo_calibration.yaml").read_text() == calibration_text()


def test_the_calibration_says_what_the_sensors_are() -> None:
    sensors = yaml.safe_load(calibration_text())["sensors"]
    expected = {
        "camera": mounts.CAMERA, "lidar": mounts.LIDAR, "radar": mounts.RADAR, "imu": mounts.IMU,
    }  # fmt: skip
    assert sensors.keys() == expected.keys()
    for name, mount in expected.items():
        place = sensors[name]["T_sensor_rig"]
        assert tuple(place["translation_m"]) == mount.translation_m
        np.testing.assert_allclose(matrix(place["quaternion_xyzw"]), mount.rotation, atol=1e-12)
        assert isinstance(sensors[name]["calibrated_at"], str)
    camera = sensors["camera"]
    assert camera["model"] == "opencv-pinhole"
    width, height = camera["resolution"]
    parameters = camera["parameters"]
    lens = Lens.default(width, height)
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-2, 2, 50), rng.uniform(-1, 1, 50), np.full(50, 4.0)])
    pinhole = np.array(
        [
            [parameters["fx"], 0, parameters["cx"]],
            [0, parameters["fy"], parameters["cy"]],
            [0, 0, 1],
        ]
    )
    distortion = np.array([parameters[key] for key in ("k1", "k2", "p1", "p2", "k3")])
    pixels, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), pinhole, distortion)
    u, v = lens.project(points[:, 0] / 4, points[:, 1] / 4)
    np.testing.assert_allclose(pixels.reshape(-1, 2), np.column_stack([u, v]), atol=1e-9)


def test_the_demo_has_the_calibration_of_its_sensors() -> None:
    demo = yaml.safe_load((PROJECT / "configs/demo.yaml").read_text())
    assert demo["calibration"] == "demo_calibration.yaml"
    camera = demo["sensors"]["camera"]
    assert [camera["width"], camera["height"]] == yaml.safe_load(calibration_text())["sensors"][
        "camera"
    ]["resolution"]
    assert {entry["scene"] for entry in demo["sensors"].values()} == {"drive"}
    assert not any("mount" in entry for entry in demo["sensors"].values())


def test_a_session_without_a_calibration_gets_that_of_its_sensors(tmp_path: Path) -> None:
    """For any size of the pictures, and for mounts and lenses of the config."""
    turned = {"translation_m": [2.0, 0.5, 1.0]}
    entry = {"driver": "camera", "source": "sim:", "width": 320, "focal_px": 200, "mount": turned}
    lidar = {"driver": "ouster", "source": "sim:"}
    rear = {"driver": "camera", "source": "file:x.mp4"}
    session = make_session(tmp_path / "s", {"front": entry, "lidar": lidar, "rear": rear})
    written = annotate(session)
    assert written["calibration.yaml"] == 2
    calibration = read_calibration(session / "calibration.yaml")
    assert calibration.sensors.keys() == {"front", "lidar"}
    front = calibration.of("front")
    assert front.pose is not None
    assert front.pose[:3, 3].tolist() == [2.0, 0.5, 1.0]
    np.testing.assert_allclose(front.pose[:3, :3], mounts.CAMERA.rotation, atol=1e-12)
    assert (front.resolution, front.parameters["fx"]) == ((320, 180), 200.0)
    assert front.parameters["cx"] == 159.5
    before = contents(session)
    annotate(session)
    assert contents(session) == before


@pytest.mark.parametrize("readout_ms", [0.0, 20.0])
def test_the_calibration_has_the_shutter_of_its_cameras(tmp_path: Path, readout_ms: float) -> None:
    entry = {"driver": "camera", "source": "sim:", "width": 320, "readout_ms": readout_ms}
    session = make_session(tmp_path / "s", {"front": entry})
    annotate(session)
    parameters = read_calibration(session / "calibration.yaml").of("front").parameters
    assert parameters.get("shutter") == ("rolling-top-to-bottom" if readout_ms else None)


def test_a_sessions_own_calibration_stays(tmp_path: Path) -> None:
    session = make_session(tmp_path / "s")
    (session / "calibration.yaml").write_text(calibration_text())
    assert "calibration.yaml" not in annotate(session)
    assert (session / "calibration.yaml").read_text() == calibration_text()
