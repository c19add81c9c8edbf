"""Bags of ROS 2: motion, positions, transforms, labels, events and names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.archives.mcap.ros2_names import tokens
from recorder.common.errors import FormatError
from recorder.perception.geometry import rotation_of_quaternion, rotation_of_rpy
from recorder.session.part import Moment, Part
from tests.archives.mcap.bags import (
    Bag,
    cloud,
    gnss_spec,
    pack,
    received,
    rig,
    stamp_ns,
)
from tests.archives.mcap.test_ros2 import bag as bag
from tests.archives.mcap.test_ros2 import replace_data, rewrite
from tests.archives.ncore.packer_rig import lidar, still_imu
from tests.session.build import (
    BEAMS,
    COLUMNS,
    START_NS,
    Builder,
    imu_spec,
)


@pytest.mark.parametrize("local", ["ENU", "NED", "NWU"])
def test_inertial_data_are_those_of_the_session(tmp_path: Path, local: str) -> None:
    builder = Builder(tmp_path / "drive")
    made = builder.add(replace(imu_spec(), settings={"coordinates": local}), 0.3)
    rot, acc = made.data["rot"].copy(), made.data["acc"].copy()
    rot[3], acc[4, 1] = np.nan, np.nan
    rot.tofile(builder.path / "imu" / "rot")
    acc.tofile(builder.path / "imu" / "acc")
    builder.close()
    bag = pack(builder)
    # Rows: x east, y north, z up in axes of the local frame.
    to_enu = {
        "ENU": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        "NED": [[0, 1, 0], [1, 0, 0], [0, 0, -1]],
        "NWU": [[0, -1, 0], [1, 0, 0], [0, 0, 1]],
    }[local]
    for index, message in enumerate(bag.of("/imu/data")):
        assert stamp_ns(message) == made.t_ns[index]
        assert message.header.frame_id == "imu"
        assert np.array_equal(xyz(message.angular_velocity), made.data["avel"][index])
        assert np.array_equal(xyz(message.linear_acceleration), acc[index], equal_nan=True)
        assert message.angular_velocity_covariance.tolist() == [0.0] * 9
        assert message.linear_acceleration_covariance[0] == (-1.0 if index == 4 else 0.0)
        turn = message.orientation
        quaternion = [turn.x, turn.y, turn.z, turn.w]
        if index == 3:
            assert quaternion == [0, 0, 0, 1]
            assert message.orientation_covariance.tolist() == [-1.0] + [0.0] * 8
            continue
        assert message.orientation_covariance.tolist() == [0.0] * 9
        expected = np.array(to_enu) @ rotation_of_rpy(rot[index].astype(float))
        assert np.allclose(rotation_of_quaternion(quaternion), expected, atol=1e-12)


def xyz(vector: Any) -> list[float]:
    return [vector.x, vector.y, vector.z]


def test_an_imu_without_orientation_is_raw(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    spec = imu_spec("lidar_imu")
    builder.add(replace(spec, channels=spec.channels[:2]), 0.2)
    builder.close()
    found = pack(builder).of("/lidar_imu/data_raw")
    assert len(found) == 20
    assert {message.orientation_covariance[0] for message in found} == {-1.0}


def test_positions_are_fixes(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    made = builder.add(gnss_spec(), 0.5)
    pos = np.array([[48.5, 9.25, 400.0]] * 5) + np.arange(5)[:, None] * 1e-5
    pos[4] = np.nan
    fix = np.array([3, 0, 3, 3, 3], np.uint8)
    cov = np.arange(45, dtype="<f4").reshape(5, 3, 3)
    cov[3] = np.nan
    for name, values in (("pos", pos), ("fix", fix), ("cov", cov)):
        values.tofile(builder.path / "imu_gnss" / name)
    builder.close()
    bag = pack(builder)
    found = bag.of("/imu_gnss/fix")
    assert bag.log_ns("/imu_gnss/fix") == made.t_ns.tolist()
    assert [message.status.status for message in found] == [0, -1, 0, 0, -1]
    for index, message in enumerate(found[:4]):
        assert [message.latitude, message.longitude, message.altitude] == pos[index].tolist()
    assert np.isnan([found[4].latitude, found[4].longitude, found[4].altitude]).all()
    assert [message.position_covariance_type for message in found] == [3, 3, 3, 0, 3]
    (n, e, d) = cov[0]
    assert found[0].position_covariance.tolist() == [
        e[1], e[0], -e[2], n[1], n[0], -n[2], -d[1], -d[0], d[2],
    ]  # fmt: skip
    assert len(bag.of("/imu_gnss/samples")) == 5


def test_other_numbers_are_json(bag: Bag) -> None:
    speeds = [json.loads(message.data)["speed"] for message in bag.of("/wheel/samples")]
    assert speeds == bag.recorded["wheel"].data["speed"].tolist()


def test_transforms_are_the_calibration_and_the_poses(bag: Bag) -> None:
    (static,) = bag.of("/tf_static")
    found = {each.child_frame_id: each for each in static.transforms}
    assert found.keys() == {"camera_optical_frame", "imu"}
    camera = found["camera_optical_frame"]
    assert camera.header.frame_id == "base_link"
    assert xyz(camera.transform.translation) == [1, 0, 1.5]
    turn = camera.transform.rotation
    expected = rotation_of_quaternion([-0.5, 0.5, -0.5, 0.5])
    assert np.allclose(rotation_of_quaternion([turn.x, turn.y, turn.z, turn.w]), expected)
    assert bag.noted("lidar", "not in the calibration: no transform")
    poses = [message.transforms[0] for message in bag.of("/tf")]
    assert {(each.header.frame_id, each.child_frame_id) for each in poses} == {
        ("odom", "base_link")
    }
    assert [xyz(each.transform.translation)[0] for each in poses] == list(range(len(poses)))


def test_the_world_is_a_map_where_poses_are_on_earth(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(still_imu(), 0.5)
    made = builder.add(gnss_spec(), 0.5)
    pos = np.array([[48.5, 9.25, 400.0]] * 5) + np.arange(5)[:, None] * 1e-5
    pos.tofile(builder.path / "imu_gnss" / "pos")
    builder.close()
    messages = pack(builder).messages["/tf"]
    assert {message.transforms[0].header.frame_id for _, message in messages} == {"map"}
    assert made.t_ns[0] <= messages[0][0] <= messages[-1][0] <= made.t_ns[-1]


def test_labels_are_cubes_with_steady_numbers(bag: Bag) -> None:
    found = bag.of("/labels/people")
    assert len(found) == 3
    for message in found:
        gone, *cubes = message.markers
        assert gone.action == 3
        assert [(cube.ns, cube.id, cube.text, cube.type) for cube in cubes] == [
            ("car", 0, "a", 1), ("car", 1, "b", 1),
        ]  # fmt: skip
        assert cubes[0].header.frame_id == "base_link"
        assert xyz(cubes[0].pose.position) == [1, 2, 3]
        assert xyz(cubes[0].scale) == [4.0, 1.8, 1.5]
        assert cubes[0].pose.orientation.z == 0.6
        assert cubes[0].color.a > 0


def test_events_losses_and_marks(bag: Bag) -> None:
    logs = {(log.name, log.level): log.msg for log in bag.of("/rosout")}
    assert logs == {
        ("camera", 30): "lost 3 samples (buffer)",
        ("recorder", 20): "mark: Schlagloch ✓",
    }
    (loss,) = [json.loads(message.data) for message in bag.of("/recorder/losses")]
    assert (loss["stream"], loss["count"], loss["first_seq"]) == ("camera", 3, 3)
    (mark,) = [json.loads(message.data) for message in bag.of("/recorder/marks")]
    assert mark["text"] == "Schlagloch ✓"
    assert bag.log_ns("/recorder/marks") == [START_NS + 600_000_000]


def test_a_part_has_its_interval_only(tmp_path: Path) -> None:
    builder = rig(tmp_path / "drive")
    builder.close()
    part = Part(Moment.parse("0.1"), Moment.parse("0.3"), ("camera", "imu"))
    (result,) = finalize(builder.path, [ArchiveRequest("mcap", {"profile": "ros2"})], part=part)
    found = received(result.files[0])
    begin_ns, end_ns = START_NS + 100_000_000, START_NS + 300_000_000
    assert {topic for topic in found if not topic.startswith("/recorder")} == {
        "/camera/camera_info", "/camera/image/compressed", "/imu/data", "/labels/people",
        "/rosout", "/tf", "/tf_static",
    }  # fmt: skip
    for topic, messages in found.items():
        assert all(begin_ns <= t_ns < end_ns for t_ns, _ in messages), topic
    inside = [t for t in builder.streams["imu"].t_ns.tolist() if begin_ns <= t < end_ns]
    assert [t_ns for t_ns, _ in found["/imu/data"]] == inside


def test_names_that_ros_forbids_are_changed(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive", plain=True)
    for name in ("tf", "a__b", "a_b", "c_"):
        builder.add(imu_spec(name), 0.1)
    builder.close()
    found = [t for t in pack(builder).messages if t.endswith("/data")]
    assert sorted(found) == ["/a_b/data", "/a_b_2/data", "/c/data", "/tf_2/data"]
    assert tokens(["9-front..imu", "Über", "_"]) == {
        "9-front..imu": "n9_front_imu", "Über": "ber", "_": "unnamed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["{}"], "t_ns"),
        (['{"t_ns": 1, "track": "a"}'], "class"),
    ],
)
def test_damaged_labels_name_their_line(tmp_path: Path, lines: Iterable[str], problem: str) -> None:
    builder = rig(tmp_path / "drive", 0.2)
    path = builder.path / "_cuboids" / "people.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n" + "\n".join(lines) + "\n")
    builder.close()
    with pytest.raises(FormatError, match=rf"labels/people: .*people\.jsonl:2: {problem}"):
        pack(builder)


def test_a_sweep_without_returns_is_an_empty_cloud(tmp_path: Path) -> None:
    for order, size in (("staggered", (1, 0)), ("destaggered", (BEAMS, COLUMNS))):
        builder = Builder(tmp_path / order)
        made = builder.add(lidar(), count=2)
        zero = {name: np.zeros_like(made.data[name]) for name in ("rng", "rng_far")}
        rewrite(builder, replace_data(made, zero))
        bag = pack(builder, points=order)
        assert [cloud(message).shape for message in bag.of("/lidar/points")] == [size, size]
        assert all(np.isnan(cloud(message)["x"]).all() for message in bag.of("/lidar/points"))
