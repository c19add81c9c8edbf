"""The calibration of a recording, by transforms and camera models of both worlds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foxglove import messages as foxglove
from mcap.writer import CompressionType
from scipy.spatial.transform import Rotation

from recorder.formats.bags.bag import Bag
from recorder.perception.calibration import read_calibration
from recorder.perception.recorded_calibration import RecordedCalibration, recorded_calibration
from recorder.perception.recordings import sensors_of
from tests.formats.bags.kit import (
    HEIGHT,
    START_NS,
    STORE,
    WIDTH,
    Sent,
    cdr,
    compressed,
    fox_time,
    header,
    imu,
    jpeg,
    proto,
    write_mcap,
)
from tests.support.changes import flip

T = START_NS
OPTICAL = (-0.5, 0.5, -0.5, 0.5)
K = (900.0, 0.0, 15.5, 0.0, 901.0, 11.5, 0.0, 0.0, 1.0)


def transforms(topic: str, *rows: tuple[str, str, Any, Any]) -> Sent:
    """A tf2_msgs/msg/TFMessage of (parent, child, translation, quaternion x y z w)."""
    types = STORE.types
    each = [
        types["geometry_msgs/msg/TransformStamped"](
            header(T, parent),
            child,
            types["geometry_msgs/msg/Transform"](
                types["geometry_msgs/msg/Vector3"](*map(float, place)),
                types["geometry_msgs/msg/Quaternion"](*map(float, turn)),
            ),
        )
        for parent, child, place, turn in rows
    ]
    return cdr(topic, "tf2_msgs/msg/TFMessage", T, transforms=each)


def info(topic: str, frame: str = "camera_optical", **more: Any) -> Sent:
    values: dict[str, Any] = {
        "header": header(T, frame),
        "height": HEIGHT,
        "width": WIDTH,
        "distortion_model": "plumb_bob",
        "d": np.array([-0.1, 0.02, 0.001, -0.002, 0.003]),
        "k": np.array(K),
        "r": np.eye(3).reshape(-1),
        "p": np.zeros(12),
        "binning_x": 0,
        "binning_y": 0,
        "roi": STORE.types["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False),
    }
    return cdr(topic, "sensor_msgs/msg/CameraInfo", T, **values | more)


def calibration(
    tmp_path: Path,
    *sent: Sent,
    frame: str = "camera_optical",
    topic: str = "/camera/image_raw",
) -> RecordedCalibration:
    camera = compressed(topic, jpeg(0), T)
    moved = imu("/imu/data", T, (0, 0, 0), (0, 0, 0))
    with Bag(write_mcap(tmp_path / "a.mcap", [camera, moved, *sent])) as bag:
        found = sensors_of(bag)
        frames, sizes = {"camera": frame, "imu": "imu_link"}, {"camera": (WIDTH, HEIGHT)}
        return recorded_calibration(bag, found.for_calibration, found.sensors, frames, sizes)


def test_places_and_models_are_read_as_the_recorders_own(tmp_path: Path) -> None:
    quarter = Rotation.from_euler("z", 90, degrees=True).as_quat()
    made = calibration(
        tmp_path,
        transforms("/tf_static", ("base_link", "mast", (1, 0, 2), quarter)),
        transforms("/tf_static", ("mast", "camera_optical", (0.5, 0, 0), OPTICAL)),
        transforms("/tf_static", ("base_link", "imu_link", (0, 0, 0.25), (0, 0, 0, 1))),
        transforms("/tf", ("odom", "base_link", (5, 5, 5), (0, 0, 0, 1))),
        info("/camera/camera_info"),
    )
    assert made.notes == [] and made.text is not None
    (tmp_path / "calibration.yaml").write_text(made.text)
    sensors = read_calibration(tmp_path / "calibration.yaml").sensors
    camera = sensors["camera"]
    turned = Rotation.from_quat(quarter)
    wanted = np.eye(4)
    wanted[:3, :3] = (turned * Rotation.from_quat(OPTICAL)).as_matrix()
    wanted[:3, 3] = np.array([1, 0, 2]) + turned.apply([0.5, 0, 0])
    assert camera.pose is not None and np.allclose(camera.pose, wanted)
    assert (camera.model, camera.resolution) == ("opencv-pinhole", (WIDTH, HEIGHT))
    assert camera.parameters == {
        "fx": 900.0, "fy": 901.0, "cx": 15.5, "cy": 11.5,
        "k1": -0.1, "k2": 0.02, "p1": 0.001, "p2": -0.002, "k3": 0.003,
    }  # fmt: skip
    moved = sensors["imu"].pose
    assert moved is not None and np.allclose(moved[:3, 3], [0, 0, 0.25])


def test_foxgloves_messages_give_the_same(tmp_path: Path) -> None:
    place = foxglove.FrameTransform(
        timestamp=fox_time(T), parent_frame_id="rig", child_frame_id="camera",
        translation=foxglove.Vector3(x=1.0, y=2.0, z=3.0),
        rotation=foxglove.Quaternion(x=-0.5, y=0.5, z=-0.5, w=0.5),
    )  # fmt: skip
    moves = foxglove.FrameTransform(
        timestamp=fox_time(T), parent_frame_id="world", child_frame_id="rig",
        translation=foxglove.Vector3(x=1.0, y=2.0, z=3.0),
        rotation=foxglove.Quaternion(w=1.0),
    )  # fmt: skip
    model = foxglove.CameraCalibration(
        timestamp=fox_time(T), frame_id="camera", width=WIDTH, height=HEIGHT,
        distortion_model="kannala_brandt", D=[0.1, 0.2, 0.3, 0.4], K=list(K),
    )  # fmt: skip
    made = calibration(
        tmp_path,
        proto("/tf", foxglove.FrameTransforms(transforms=[place, moves]), T),
        proto("/tf", foxglove.FrameTransforms(transforms=[place]), T + 1),
        proto("/camera/calibration", model, T),
        frame="camera",
    )
    entry = made.sensors["camera"]
    assert entry["T_sensor_rig"]["translation_m"] == [1.0, 2.0, 3.0]
    assert np.allclose(np.abs(entry["T_sensor_rig"]["quaternion_xyzw"]), 0.5)
    assert entry["model"] == "opencv-fisheye" and entry["parameters"]["k4"] == 0.4
    assert made.notes == [
        "imu: no place in the rig: no transforms lead from its frame 'imu_link' to 'rig'"
    ]


def test_nothing_is_made_of_nothing(tmp_path: Path) -> None:
    made = calibration(tmp_path)
    assert (made.text, made.notes) == (None, [])


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        ([("map", "camera_optical", (0, 0, 0), (0, 0, 0, 1))], "have no frame rig or base_link"),
        (
            [
                ("rig", "camera_optical", (0, 0, 0), (0, 0, 0, 1)),
                ("rig", "camera_optical", (0, 0, 1), (0, 0, 0, 1)),
            ],
            "'camera_optical' moves in 'rig'",
        ),
        (
            [
                ("rig", "camera_optical", (0, 0, 0), (0, 0, 0, 1)),
                ("mast", "camera_optical", (0, 0, 0), (0, 0, 0, 1)),
            ],
            "'camera_optical' has two parents",
        ),
        (
            [
                ("a", "camera_optical", (0, 0, 0), (0, 0, 0, 1)),
                ("camera_optical", "a", (0, 0, 0), (0, 0, 0, 1)),
                ("rig", "b", (0, 0, 0), (0, 0, 0, 1)),
            ],
            "are a ring",
        ),
        ([("rig", "camera_optical", (0, 0, 0), (0, 0, 0, 0))], "is no rotation"),
        ([("rig", "camera_optical", (0, 0, np.inf), (0, 0, 0, 1))], "is not finite"),
    ],
)
def test_places_that_are_not_certain_are_left_out(
    tmp_path: Path, rows: list[tuple[str, str, Any, Any]], note: str
) -> None:
    made = calibration(tmp_path, transforms("/tf_static", *rows))
    assert "camera" not in made.sensors
    assert any(n.startswith("camera: no place in the rig: ") and note in n for n in made.notes)


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ({"width": WIDTH + 1}, "it is for 33 x 24 pixels, the pictures have 32 x 24"),
        ({"distortion_model": "ds"}, "'ds' is not known"),
        ({"d": np.zeros(7)}, "plumb_bob with 7 terms"),
        ({"k": np.zeros(9)}, "the camera was not calibrated"),
        ({"k": np.array([1, 0.5, 2, 0, 1, 2, 0, 0, 1])}, "has a skew"),
        ({"d": np.full(5, np.nan)}, "the camera was not calibrated"),
        ({"binning_x": 2}, "are binned"),
    ],
)
def test_models_without_a_counterpart_are_left_out(
    tmp_path: Path, more: dict[str, Any], note: str
) -> None:
    made = calibration(tmp_path, info("/camera/camera_info", **more))
    assert made.sensors == {}
    (line,) = made.notes
    assert line.startswith("camera: no camera model: ") and note in line


def test_a_model_far_away_is_found_by_its_frame(tmp_path: Path) -> None:
    made = calibration(tmp_path, info("/models/a", "other"), info("/models2/b"))
    assert made.sensors["camera"]["model"] == "opencv-pinhole"
    agreed = calibration(tmp_path, info("/models/a"), info("/models2/b"))
    assert agreed.sensors["camera"]["model"] == "opencv-pinhole" and not agreed.notes


P = (800.0, 0.0, 14.0, 0.0, 0.0, 801.0, 12.0, 0.0, 0.0, 0.0, 1.0, 0.0)


@pytest.mark.parametrize("topic", ["/camera/image_rect", "/camera/image_rect_color/compressed"])
def test_rectified_pictures_have_the_projection_matrix(tmp_path: Path, topic: str) -> None:
    """sensor_msgs/CameraInfo: K and D are of the raw picture, P of the rectified one."""
    made = calibration(tmp_path, info("/camera/camera_info", p=np.array(P)), topic=topic)
    assert made.sensors["camera"]["model"] == "opencv-pinhole"
    wanted = {"fx": 800.0, "fy": 801.0, "cx": 14.0, "cy": 12.0}
    assert made.sensors["camera"]["parameters"] == wanted
    without = calibration(tmp_path, info("/camera/camera_info"), topic=topic)
    assert without.sensors == {}
    (note,) = without.notes
    assert note == (
        "camera: no camera model: its projection matrix is none: the camera was not calibrated"
    )


@pytest.mark.parametrize(
    ("topic", "fx"),
    [
        ("/camera/image_raw", 900.0),
        ("/rect/camera/image", 900.0),
        ("/camera/direct", 900.0),
        ("/camera/rectified", 800.0),
        ("/camera/image_rect_raw", 800.0),
        ("/left/Image_Rect", 800.0),
    ],
)
def test_only_rectified_pictures_have_the_projection_matrix(
    tmp_path: Path, topic: str, fx: float
) -> None:
    sent = info("/camera/camera_info", p=np.array(P))
    with Bag(write_mcap(tmp_path / "b.mcap", [compressed(topic, jpeg(0), T), sent])) as bag:
        (sensor,) = sensors_of(bag).sensors
        frames, sizes = {sensor.name: "camera_optical"}, {sensor.name: (WIDTH, HEIGHT)}
        made = recorded_calibration(bag, ["/camera/camera_info"], [sensor], frames, sizes)
    assert made.sensors[sensor.name]["parameters"]["fx"] == fx


def test_a_rectified_camera_is_turned_in_the_rig(tmp_path: Path) -> None:
    """sensor_msgs/CameraInfo: R turns the raw camera's axes to those of the rectified picture."""
    turn = Rotation.from_euler("y", 5, degrees=True)
    sent = (
        transforms("/tf_static", ("base_link", "camera_optical", (1, 0, 2), OPTICAL)),
        info("/camera/camera_info", p=np.array(P), r=turn.as_matrix().reshape(-1)),
    )
    for topic, wanted in (
        ("/camera/image_rect", Rotation.from_quat(OPTICAL) * turn.inv()),
        ("/camera/image_raw", Rotation.from_quat(OPTICAL)),
    ):
        pose = calibration(tmp_path, *sent, topic=topic).sensors["camera"]["T_sensor_rig"]
        made = Rotation.from_quat(pose["quaternion_xyzw"])
        assert np.allclose(made.as_matrix(), wanted.as_matrix()), topic
        assert pose["translation_m"] == [1.0, 0.0, 2.0]


def other_k(**more: Any) -> dict[str, Any]:
    return {"k": np.array((700.0, 0.0, 15.5, 0.0, 701.0, 11.5, 0.0, 0.0, 1.0)), **more}


@pytest.mark.parametrize(
    ("infos", "fx", "note"),
    [
        # The place of its topic does not make a model fit.
        (
            [("/camera/camera_info", "thermal", {})],
            None,
            "/camera/camera_info is of the frame 'thermal', the pictures of 'camera_optical'",
        ),
        (
            [("/models/a", "thermal", {}), ("/models/b", "front", {})],
            None,
            "no CameraInfo or CameraCalibration is of the pictures' frame 'camera_optical'",
        ),
        ([("/models/a", "", {})], None, "no CameraInfo or CameraCalibration is of"),
        (
            [("/camera/camera_info", "camera_optical", {}), ("/camera/b", "thermal", other_k())],
            900,
            "",
        ),
        ([("/camera/camera_info", "/camera_optical", {})], 900, ""),
        ([("/camera/camera_info", "", {})], 900, ""),
        # The nearest of several that fit.
        (
            [("/camera/camera_info", "camera_optical", other_k()), ("/a", "camera_optical", {})],
            700,
            "",
        ),
        # Of two at one place: that of the pictures' size; else they have to agree.
        (
            [
                ("/camera/a", "camera_optical", other_k(width=2 * WIDTH)),
                ("/camera/b", "camera_optical", {}),
            ],
            900,
            "",
        ),
        ([("/camera/a", "camera_optical", {}), ("/camera/b", "camera_optical", {})], 900, ""),
        (
            [("/camera/a", "camera_optical", {}), ("/camera/b", "camera_optical", other_k())],
            None,
            "/camera/a and /camera/b both fit, and differ",
        ),
    ],
)
def test_a_model_fits_by_frame_and_size(
    tmp_path: Path, infos: list[tuple[str, str, dict[str, Any]]], fx: float | None, note: str
) -> None:
    made = calibration(tmp_path, *(info(topic, frame, **more) for topic, frame, more in infos))
    if fx is not None:
        assert (made.sensors["camera"]["parameters"]["fx"], made.notes) == (fx, [])
        return
    assert made.sensors == {}
    (line,) = made.notes
    assert line.startswith("camera: no camera model: ") and note in line


def test_pictures_without_a_frame_have_the_model_beside_them(tmp_path: Path) -> None:
    made = calibration(tmp_path, info("/camera/camera_info"), info("/a", **other_k()), frame="")
    assert made.sensors["camera"]["parameters"]["fx"] == 900.0


def test_a_model_that_cannot_be_decoded_is_noted(tmp_path: Path) -> None:
    sent = info("/camera/camera_info")
    made = calibration(tmp_path, replace(sent, data=sent.data[:40]))
    assert made.sensors == {}
    (note,) = made.notes
    assert note.startswith("/camera/camera_info: not used for the calibration: sensor_msgs/msg/Cam")
    made = calibration(tmp_path, replace(sent, data=sent.data[:40]), sent, sent)
    assert made.sensors["camera"]["model"] == "opencv-pinhole"
    assert made.notes == [note]


def test_damage_is_noted_and_does_not_hide_the_rest(tmp_path: Path) -> None:
    static = transforms("/tf_static", ("base_link", "camera_optical", (0, 0, 1), OPTICAL))
    sent = [compressed("/camera/image_raw", jpeg(0), T), info("/camera/camera_info"), static]
    path = write_mcap(tmp_path / "a.mcap", sent, chunk_size=1, compression=CompressionType.NONE)
    flip(path, path.read_bytes().index(b"base_link"), 0xFF)
    with Bag(path) as bag:
        found = sensors_of(bag)
        names = {"camera": "camera_optical"}, {"camera": (WIDTH, HEIGHT)}
        made = recorded_calibration(bag, found.for_calibration, found.sensors, *names)
    assert made.sensors["camera"]["model"] == "opencv-pinhole"
    (note,) = made.notes
    assert note.startswith("/tf_static: not used for the calibration: ")
    assert "a chunk with a wrong CRC" in note


def test_a_frame_that_moves_late_in_a_recording_is_no_mount(tmp_path: Path) -> None:
    still = [transforms("/tf", ("base_link", "camera_optical", (0, 0, 2), OPTICAL))] * 3000
    assert calibration(tmp_path, *still).sensors["camera"]["T_sensor_rig"]
    moved = transforms("/tf", ("base_link", "camera_optical", (0, 0, 5), OPTICAL))
    made = calibration(tmp_path, *still, moved)
    assert "camera" not in made.sensors
    assert any("'camera_optical' moves in 'base_link'" in note for note in made.notes)
