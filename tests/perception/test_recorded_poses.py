"""Poses of the rig from transforms and odometry, against scipy's rotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial.transform import Rotation, Slerp

from recorder.common.errors import FormatError
from recorder.formats.bags.bag import Bag
from recorder.perception.geometry import transform
from recorder.perception.import_map import ImportMap, TopicChoice
from recorder.perception.recorded_calibration import RIGS, recorded_calibration
from recorder.perception.recorded_poses import Trajectory, choose_trajectory
from recorder.perception.recordings import sensors_of
from tests.formats.bags.kit import SECOND, START_NS, STORE, Sent, cdr, header, write_mcap

Values = npt.NDArray[Any]
STILL = (0.0, 0.0, 0.0, 1.0)
MILLI = SECOND // 1000


def quaternion(values: Any) -> Any:
    return STORE.types["geometry_msgs/msg/Quaternion"](*map(float, values))


def tf(topic: str, log_ns: int, *rows: tuple[str, str, Any, Any], stamp_ns: int = 0) -> Sent:
    """A message of (parent, child, translation, quaternion x y z w) at one stamp."""
    types = STORE.types
    each = [
        types["geometry_msgs/msg/TransformStamped"](
            header(stamp_ns or log_ns, parent), child,
            types["geometry_msgs/msg/Transform"](
                types["geometry_msgs/msg/Vector3"](*map(float, place)), quaternion(turn)
            ),
        )
        for parent, child, place, turn in rows
    ]  # fmt: skip
    return cdr(topic, "tf2_msgs/msg/TFMessage", log_ns, transforms=each)


def pose(place: Any, turn: Any) -> Any:
    point = STORE.types["geometry_msgs/msg/Point"](*map(float, place))
    return STORE.types["geometry_msgs/msg/Pose"](point, quaternion(turn))


def odometry(topic: str, log_ns: int, frames: tuple[str, str], place: Any, turn: Any) -> Sent:
    types, zeros = STORE.types, np.zeros(36)
    zero = types["geometry_msgs/msg/Vector3"](0.0, 0.0, 0.0)
    return cdr(
        topic, "nav_msgs/msg/Odometry", log_ns, header=header(log_ns, frames[0]),
        child_frame_id=frames[1],
        pose=types["geometry_msgs/msg/PoseWithCovariance"](pose(place, turn), zeros),
        twist=types["geometry_msgs/msg/TwistWithCovariance"](
            types["geometry_msgs/msg/Twist"](zero, zero), zeros
        ),
    )  # fmt: skip


def stamped(topic: str, log_ns: int, frame: str, place: Any, turn: Any) -> Sent:
    kind = "geometry_msgs/msg/PoseStamped"
    return cdr(topic, kind, log_ns, header=header(log_ns, frame), pose=pose(place, turn))


def along(t_ns: int) -> tuple[Values, Values]:
    """Where odometry sees the rig: on a circle, turning, 10 m/s."""
    angle = (t_ns - START_NS) / 1e9
    turn: Values = Rotation.from_euler("zyx", [angle, 0.1 * angle, 0.02]).as_quat()
    return np.array([10 * np.sin(angle), 10 - 10 * np.cos(angle), 0.1 * angle]), turn


def drift(t_ns: int) -> tuple[Values, Values]:
    """Where the map sees odometry: it drifts."""
    angle = 0.05 * (t_ns - START_NS) / 1e9
    return np.array([500 + angle, -300, 2]), Rotation.from_euler("z", angle).as_quat()


def matrix(place: Any, turn: Any) -> Values:
    return transform(Rotation.from_quat(turn).as_matrix(), place)


LEVER = ((0.0, 0.0, 0.3), Rotation.from_euler("y", 2, degrees=True).as_quat())
FRAMES = ("map", "odom", "base_footprint", "base_link")


def drive(seconds: float = 2.0, late_ns: int = 2 * MILLI) -> list[Sent]:
    """``map > odom`` at 10 Hz, ``odom > base_footprint`` at 50 Hz, the rest fixed."""
    sent = [tf("/tf_static", START_NS, ("base_footprint", "base_link", *LEVER))]
    for at in range(round(seconds * 50)):
        t_ns = START_NS + at * 20 * MILLI
        rows = [("odom", "base_footprint", *along(t_ns))]
        sent.append(tf("/tf", t_ns + late_ns, *rows, stamp_ns=t_ns))
        if at % 5 == 2:
            rows = [("map", "odom", *drift(t_ns))]
            sent.append(tf("/tf", t_ns + late_ns + 1, *rows, stamp_ns=t_ns))
    return sent


def truth(t_ns: Values) -> Values:
    """The poses by scipy: the slow transform interpolated, as tf does."""
    known = START_NS + np.arange(2, 100, 5, dtype=np.int64) * 20 * MILLI
    slerp = Slerp(known - START_NS, Rotation.from_quat([drift(int(t))[1] for t in known]))
    made = []
    for t in t_ns:
        places = np.array([drift(int(k))[0] for k in known])
        place = [np.interp(t - START_NS, known - START_NS, places[:, axis]) for axis in range(3)]
        slow = matrix(place, slerp(t - START_NS).as_quat())
        made.append(slow @ matrix(*along(int(t))) @ matrix(*LEVER))
    return np.array(made)


def read(
    tmp_path: Path, sent: list[Sent], choices: ImportMap | None = None
) -> tuple[Trajectory | None, list[str]]:
    choices = choices or ImportMap()
    with Bag(write_mcap(tmp_path / "a.mcap", sorted(sent, key=lambda each: each.log_ns))) as bag:
        topics = sensors_of(bag).for_calibration
        made = recorded_calibration(bag, topics, [], {}, {}, choices)
        return choose_trajectory(bag, topics, made.tree, made.rig, choices)


def test_a_chain_of_transforms_is_the_rigs_trajectory(tmp_path: Path) -> None:
    found, notes = read(tmp_path, drive())
    assert found is not None and notes == []
    assert (found.rig, found.world, found.sources) == ("base_link", "map", ["/tf"])
    # From the first to the last transform of the slower edge, at the times of the faster one.
    wanted = START_NS + np.arange(2, 98, dtype=np.int64) * 20 * MILLI
    assert np.array_equal(found.t_ns, wanted)
    assert np.abs(found.poses - truth(found.t_ns)).max() < 1e-7
    assert found.describe() == "96 poses of 'base_link' in 'map', from /tf"


def test_the_choices_name_rig_and_world(tmp_path: Path) -> None:
    found, _ = read(tmp_path, drive(), ImportMap(rig="base_footprint", world="odom"))
    assert found is not None and (found.rig, found.world) == ("base_footprint", "odom")
    assert len(found.t_ns) == 100
    for t_ns, each in zip(found.t_ns, found.poses, strict=True):
        assert np.abs(each - matrix(*along(int(t_ns)))).max() < 1e-12
    found, notes = read(tmp_path, drive(), ImportMap(world="earth"))
    assert found is None
    assert notes == ["no poses from transforms: no transforms lead from 'base_link' to 'earth'"]


def test_stamps_of_another_clock_give_way_to_log_times(tmp_path: Path) -> None:
    found, _ = read(tmp_path, drive(late_ns=-37 * SECOND))  # of TAI
    assert found is not None
    assert found.t_ns[0] == START_NS - 37 * SECOND + 60 * MILLI


def test_a_frame_with_two_parents_is_noted_and_can_be_chosen(tmp_path: Path) -> None:
    sent = drive()
    for at in range(20):
        t_ns = START_NS + at * 100 * MILLI
        sent.append(tf("/tf", t_ns, ("gps_map", "base_footprint", (at, 0, 0), STILL)))
    found, notes = read(tmp_path, sent)
    assert found is None
    (note,) = notes
    assert "'base_footprint' has the parents 'gps_map' and 'odom'" in note
    found, _ = read(tmp_path, sent, ImportMap(world="gps_map"))
    assert found is not None and len(found.t_ns) == 20
    assert np.allclose(found.poses[:, :3, 3], [[at, 0, 0.3] for at in range(20)])


def test_odometry_is_used_where_transforms_do_not_move(tmp_path: Path) -> None:
    sent = [tf("/tf_static", START_NS, ("base_link", "imu_link", *LEVER))]
    few = [START_NS + at * 100 * MILLI for at in range(10)]
    many = [START_NS + at * 10 * MILLI for at in range(100)]
    sent += [odometry("/a/odom", t, ("odom", "base_link"), *along(t)) for t in few]
    sent += [odometry("/b/odom", t, ("odom", "imu_link"), *along(t)) for t in many]
    sent += [stamped("/c/pose", t, "map", *along(t)) for t in few]
    found, notes = read(tmp_path, sent)
    assert found is not None and (found.world, found.sources) == ("odom", ["/b/odom"])
    inverse = np.linalg.inv(matrix(*LEVER))
    for t_ns, each in zip(found.t_ns, found.poses, strict=True):
        assert np.abs(each - matrix(*along(int(t_ns))) @ inverse).max() < 1e-9
    assert notes == [
        "/a/odom: its poses are not used beside those of /b/odom",
        "/c/pose: its poses are not used beside those of /b/odom",
    ]
    found, _ = read(tmp_path, sent, ImportMap(poses="/c/pose"))
    assert found is not None and np.abs(found.poses[3] - matrix(*along(few[3]))).max() < 1e-12
    choice = {"/c/pose": TopicChoice(frame="imu_link")}
    found, _ = read(tmp_path, sent, ImportMap(poses="/c/pose", topics=choice))
    assert found is not None
    assert np.abs(found.poses[3] - matrix(*along(few[3])) @ inverse).max() < 1e-9
    assert read(tmp_path, sent, ImportMap(poses="none")) == (None, [])
    with pytest.raises(FormatError, match="no topic '/x' with poses; those with some: /a/odom"):
        read(tmp_path, sent, ImportMap(poses="/x"))


def test_odometry_of_a_frame_that_is_not_fixed_to_the_rig_is_noted(tmp_path: Path) -> None:
    sent = [tf("/tf_static", START_NS, ("base_link", "imu_link", *LEVER))]
    sent += [odometry("/odom", START_NS + at, ("odom", "trailer"), *along(at)) for at in range(9)]
    found, notes = read(tmp_path, sent)
    assert found is None
    (note,) = notes
    assert note.startswith("no poses from odometry: /odom: has poses of 'trailer': no transforms")


def test_odometry_of_several_frames_is_no_trajectory(tmp_path: Path) -> None:
    sent = [odometry("/odom", START_NS + at, ("odom", f"b{at % 2}"), *along(at)) for at in range(9)]
    assert read(tmp_path, sent)[1] == [
        "no poses from odometry: /odom: its poses have the frames b0, b1"
    ]


def test_poses_that_are_none_are_counted_and_orientation_alone_is_not_used(tmp_path: Path) -> None:
    bad: list[Any] = [(1e300, np.nan, 0), (0, 0, 0, 0), (0, 0, 0, 1e300)]
    sent = []
    for at in range(10):
        pair: tuple[Any, Any] = along(START_NS + at * SECOND)
        place, turn = pair
        place = bad[0] if at == 3 else place
        turn = bad[at - 4] if at in (5, 6) else turn
        sent.append(tf("/tf", START_NS + at * SECOND, ("odom", "base_link", place, turn)))
    found, _ = read(tmp_path, sent)
    assert found is not None and (len(found.t_ns), found.left_out) == (7, 3)
    sent = [
        tf("/tf", START_NS + at, ("odom", "base_link", (0, 0, 0), along(at * SECOND)[1]))
        for at in range(9)
    ]
    assert read(tmp_path, sent) == (None, ["/tf: its poses have no positions, and are not used"])


def test_a_recording_without_transforms_has_no_poses(tmp_path: Path) -> None:
    assert read(tmp_path, [tf("/tf", START_NS)]) == (None, [])
    still = [tf("/tf", START_NS + at, ("map", RIGS[1], (1, 2, 3), STILL)) for at in range(9)]
    assert read(tmp_path, still) == (None, [])
