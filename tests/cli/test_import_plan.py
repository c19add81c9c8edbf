"""``recorder import --plan``, ``--map`` and ``--guess``: what a bag becomes, before anything is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from recorder.cli import main
from recorder.formats.bags.bag import Bag
from recorder.perception.import_map import ImportMap, TopicChoice, read_import_map
from recorder.perception.recordings import ANY, PLAYERS, sensors_of
from recorder.recording.supervisor import driver_registry
from recorder.recording.supervisor.driver_registry import CheckResult
from tests.formats.bags.kit import (
    OLD_DRIVERS,
    START_NS,
    Sent,
    compressed,
    imu,
    jpeg,
    write_bag,
    write_mcap,
)
from tests.perception.test_recorded_calibration import OPTICAL, info
from tests.perception.test_recorded_poses import STILL, along, tf
from tests.support.driver_answers import SharedAnswers

STEP_NS = 20_000_000


def cloud(topic: str, log_ns: int) -> Sent:
    return Sent(topic, "sensor_msgs/msg/PointCloud2", "cdr", b"\0\1\0\0", log_ns)


def drive() -> list[Sent]:
    """A camera, an IMU, transforms, and topics of types that no driver of old plays."""
    mounts = (
        ("base_link", "camera_optical", (1, 2, 3), OPTICAL),
        ("base_link", "lidar", (0, 0, 2), STILL),
    )
    sent = [tf("/tf_static", START_NS, *mounts), info("/front/camera_info")]
    for at in range(20):
        t_ns = START_NS + at * STEP_NS
        sent.append(compressed("/front/image_raw", jpeg(at), t_ns))
        sent.append(imu("/imu/data", t_ns, (at, 0, 9.8), (0, 0, 0)))
        sent.append(tf("/tf", t_ns, ("odom", "base_link", *along(t_ns))))
        sent.append(cloud("/lidar/points", t_ns))
        sent.append(Sent("/radar", "edgefirst_msgs/msg/RadarCube", "cdr", b"\0\1\0\0", t_ns))
    sent.append(Sent("/chatter", "std_msgs/msg/String", "cdr", b"\0\1\0\0", START_NS))
    return sorted(sent, key=lambda each: each.log_ns)


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bag(tmp_path_factory.mktemp("bag") / "drive", [drive()[:50], drive()[50:]])


@pytest.fixture(scope="module")
def answers() -> SharedAnswers:
    return SharedAnswers()


@pytest.fixture(autouse=True)
def _ask_once(answers: SharedAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    answers.use(monkeypatch)


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """No drivers but those that are always installed."""
    monkeypatch.setattr(driver_registry, "available_drivers", lambda: sorted(OLD_DRIVERS))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["import", *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("old")
def test_the_plan_lists_every_topic_and_what_is_lost(
    bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "sessions"
    plan = told(capsys, str(bag), "--plan", "--root", str(root))
    topics = plan["topics"]
    assert topics.keys() == {
        "/chatter", "/front/camera_info", "/front/image_raw", "/imu/data", "/lidar/points",
        "/radar", "/tf", "/tf_static",
    }  # fmt: skip
    assert topics["/front/image_raw"] == {
        "type": "sensor_msgs/msg/CompressedImage", "messages": 20, "sensor": "front",
        "driver": "camera",
    }  # fmt: skip
    assert topics["/imu/data"]["driver"] == "xsens"
    assert topics["/tf"]["becomes"] == "mounts and poses"
    assert topics["/lidar/points"]["left_out"] == (
        "no driver plays point clouds: needs the driver 'lidar'"
    )
    assert "no driver plays 'edgefirst_msgs/msg/RadarCube'" in topics["/radar"]["left_out"]
    assert plan["not_imported"] == {"topics": 3, "messages": 41}
    assert plan["poses"] == "20 poses of 'base_link' in 'odom', from /tf"
    assert (plan["mounts"], plan["models"]) == (["front"], ["front"])
    assert "imu: no place in the rig" in plan["notes"][0]
    assert not root.exists()
    assert main(["import", str(bag), "--plan", "--root", str(root)]) == 0
    text = capsys.readouterr().out
    assert "/imu/data  sensor_msgs/msg/Imu  20  -> sensor imu (xsens)\n" in text
    assert "/radar  edgefirst_msgs/msg/RadarCube  20  -> left out: no driver plays" in text
    assert "\nlost: 41 messages of 3 topics are not imported\n" in text


def test_damage_is_in_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive(), chunk_size=2000, finish=False)
    plan = told(capsys, str(path), "--plan")
    (reason,) = plan["unreadable"]
    assert f"the recording is not whole: {reason}" in plan["notes"]
    assert plan["drops"] == "unknown"


def test_installed_drivers_decide_what_topics_become(bag: Path) -> None:
    def become(*drivers: str, **more: Any) -> dict[str, tuple[str, str]]:
        with Bag(bag) as opened:
            found = sensors_of(opened, drivers={*OLD_DRIVERS, *drivers}, **more)
            assert not found.left_out.keys() & {t for s in found.sensors for t in s.topics}
            return {t: (s.name, s.driver) for s in found.sensors for t in s.topics}

    assert become() == {"/front/image_raw": ("front", "camera"), "/imu/data": ("imu", "xsens")}
    assert become("imu")["/imu/data"] == ("imu", "imu")
    assert become("lidar")["/lidar/points"] == ("lidar", "lidar")
    everything = become("lidar", ANY)
    assert everything.keys() == {each.topic for each in drive()}
    raw = {topic for topic, sensor in everything.items() if sensor == (ANY, ANY)}
    assert raw == {"/chatter", "/radar", "/tf", "/tf_static", "/front/camera_info"}
    unread = {"/front/image_raw": "does not decode", "/tf": "never asked"}
    assert become(ANY, unread=unread)["/front/image_raw"] == (ANY, ANY)
    choices = ImportMap(topics={
        "/radar": TopicChoice("cube"), "/tf": TopicChoice(skip=True),
        "/imu/data": TopicChoice("raw_imu", driver=ANY),
    })  # fmt: skip
    chosen = become(ANY, choices=choices)
    assert chosen["/radar"] == ("cube", ANY) and "/tf" not in chosen
    assert chosen["/imu/data"] == ("raw_imu", ANY)
    with Bag(bag) as opened:
        chosen_raw = ImportMap(topics={"/tf": TopicChoice(driver=ANY)})
        found = sensors_of(opened, drivers={*OLD_DRIVERS, ANY}, choices=chosen_raw)
        assert "/tf" in found.for_calibration and found.uses["/tf"] == "mounts and poses"
    wanted = become(ANY, wanted={"/radar": None, "/imu/data": "imu_2"})
    assert wanted == {"/radar": (ANY, ANY), "/imu/data": ("imu_2", "xsens")}
    lidars = {"hesai", "velodyne", "robosense", "livox"}
    assert {*OLD_DRIVERS, *lidars, "imu", "lidar"} == PLAYERS


@pytest.mark.campaign
def test_only_topics_with_control_characters_have_no_sensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("/a#b", "/c\nd", "/e*f/**", "/stra\xdfe")
    sent = [Sent(name, "x/msg/Y", "cdr", b"\0\1\0\0", START_NS + 1) for name in names]
    path = write_mcap(tmp_path / "a.mcap", sent)
    result = told(capsys, str(path), "--root", str(tmp_path))
    assert result["topics"].keys() == {"/a#b", "/e*f/**", "/stra\xdfe"}
    assert result["left_out"].keys() == {"/c\nd"}
    assert sum(stream["samples"] for stream in result["streams"].values()) == 3
    assert main(["import", str(path), "--guess"]) == 0
    (tmp_path / "map.yaml").write_text(capsys.readouterr().out)
    assert read_import_map(tmp_path / "map.yaml").topics.keys() == result["topics"].keys()


def test_the_draft_is_a_map_that_changes_nothing(
    bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(bag), "--guess"]) == 0
    path = tmp_path / "map.yaml"
    path.write_text(capsys.readouterr().out)
    found = read_import_map(path)
    assert (found.rig, found.world, found.poses) == ("base_link", "odom", "/tf")
    assert found.of("/front/image_raw").sensor == "front"
    assert "#  imu_link: {parent: base_link, translation_m: [0.0, 0.0, 0.0]" in path.read_text()
    plan = told(capsys, str(bag), "--plan")
    assert told(capsys, str(bag), "--plan", "--map", str(path)) == plan


@pytest.mark.usefixtures("old")
def test_a_map_says_what_the_bag_does_not(
    bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "map.yaml"
    values: dict[str, Any] = {
        "rig": "base_link", "poses": "none",
        "topics": {
            "/imu/data": {"sensor": "inertia", "frame": "box"},
            "/front/image_raw": {"options": {"quality": 80}}, "/radar": {"skip": True},
        },
        "mounts": {"box": {"translation_m": [1, 2, 3], "quaternion_xyzw": [0, 0, 0, 1]}},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(values))
    plan = told(capsys, str(bag), "--plan", "--map", str(path))
    assert plan["topics"]["/imu/data"]["sensor"] == "inertia"
    assert plan["topics"]["/radar"]["left_out"] == "is skipped by the file of choices"
    assert (plan["mounts"], plan["poses"]) == (["front", "inertia"], None)
    root = tmp_path / "sessions"
    assert main(["import", str(bag), "--map", str(path), "--root", str(root)]) == 0
    config = yaml.safe_load((root / "drive" / "config.yaml").read_text())
    assert config["sensors"]["front"]["quality"] == 80
    assert config["sensors"]["inertia"]["source"] == f"bag:{bag}#/imu/data"
    mount = yaml.safe_load((root / "drive" / "calibration.yaml").read_text())["sensors"]["inertia"]
    assert np.allclose(mount["T_sensor_rig"]["translation_m"], [1, 2, 3])


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"topics": {"/none": {"skip": True}}}, "topics./none: "),
        ({"topics": {"/imu/data": {"driver": "magic"}}}, "topics./imu/data: no driver 'magic'"),
        ({"topics": {"/imu/data": {"driver": "camera"}}}, "topic /imu/data: "),
        ({"topics": {"/imu/data": {"sensor": "Imu"}}}, "'Imu' cannot be a sensor's name"),
        ({"topics": {"/imu/data": {"options": {"speed": 1}}}}, "imu.speed: unknown key"),
        ({"poses": "/imu/data"}, "poses: no topic '/imu/data' with poses; those with some: /tf"),
        ({"wheel": 1}, "map.yaml:1: wheel: unknown key"),
    ],
)
def test_a_wrong_map_is_one_error(
    bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], values: Any, problem: str
) -> None:
    path = tmp_path / "map.yaml"
    path.write_text(yaml.safe_dump(values))
    assert main(["import", str(bag), "--plan", "--map", str(path)]) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count("\n") == 1


def test_where_the_driver_of_all_types_cannot_play_topics_are_left_out_with_its_reason(
    bag: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(sensors: Any) -> list[CheckResult]:
        found = check_sources(sensors)
        drivers = {each.name: each.driver for each in sensors}
        return [
            replace(each, problem="no room", streams=()) if drivers[each.sensor] == ANY else each
            for each in found
        ]

    check_sources = driver_registry.check_sources
    monkeypatch.setattr(driver_registry, "check_sources", check)
    topics = told(capsys, str(bag), "--plan")["topics"]
    assert topics["/radar"]["left_out"] == topics["/chatter"]["left_out"] == "no room"
    assert topics["/tf"]["becomes"] == "mounts and poses" and "left_out" not in topics["/tf"]
    assert topics["/front/image_raw"]["driver"] == "camera"
