"""A recorded session: control of its playback, labels, poses and events."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.perception.calibration import Calibration
from recorder.perception.labels import cuboid_files
from recorder.viewers.foxglove.scene import LabelSets, Trajectory
from tests.session.build import START_NS, Builder, imu_session
from tests.viewers.live.foxglove.client import Client, decode_schema, stamp_ns
from tests.viewers.live.foxglove.rig import FakeBackend, FakePlayer, FakePosition, serving

STEP_NS = 100_000_000
CALIBRATION = """
sensors:
  lidar: {T_sensor_rig: {translation_m: [1.0, 2.0, 3.0], quaternion_xyzw: [0.0, 0.0, 1.0, 0.0]}}
"""


def box(number: int, track: str = "car_01", **changes: Any) -> dict[str, Any]:
    values = {
        "t_ns": START_NS + number * STEP_NS,
        "track": track,
        "class": "car",
        "frame": "rig",
        "center_m": [float(number), 1.0, 0.5],
        "size_m": [4.0, 2.0, 1.5],
        "quaternion_xyzw": [0.0, 0.0, 0.0, 1.0],
    }
    return values | changes


def write_labels(session: Path, labels: list[dict[str, Any]]) -> None:
    header = {"format": "recorder-cuboids", "version": 1, "source": "simulated"}
    folder = session / "_cuboids"
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(line) + "\n" for line in [header, *labels]]
    (folder / "truth.jsonl").write_text("".join(lines))


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Ten boxes of a car and from the fifth on a truck; a rig that drives along x."""
    path = tmp_path / "drive"
    builder = imu_session(path, 1.0)
    builder.lose("imu", first_seq=10, last_seq=12)
    builder.close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    labels = []
    for number in range(10):
        labels.append(box(number))
        if number >= 5:
            labels.append(box(number, "truck_02", **{"class": "truck"}))
    write_labels(path, labels)
    (path / "_pose").mkdir()
    t_s = (START_NS + np.arange(11) * STEP_NS) / 1e9
    pos = np.stack([np.arange(11.0), np.zeros(11), np.zeros(11)], axis=1)
    rot = np.tile(np.eye(3), (11, 1, 1))
    np.savez(path / "_pose" / "pose.npz", t=t_s, pos=pos, rot=rot)
    return path


def player() -> FakePlayer:
    return FakePlayer(FakePosition(START_NS, START_NS + 10 * STEP_NS, START_NS))


async def state(client: Client) -> dict[str, Any]:
    return await client.op("playbackState")


def playing() -> FakeBackend:
    backend = FakeBackend(frozenset({"play", "pause"}))
    backend.mode = "playback"
    return backend


async def test_the_greeting_has_the_range_of_the_data() -> None:
    async with serving(playback=player(), backend=playing()) as rig:
        info = await (await rig.client("foxglove.sdk.v1")).op("serverInfo")
        assert set(info["capabilities"]) == {
            "parameters", "parametersSubscribe", "time", "playbackControl",
        }  # fmt: skip
        start, end = info["dataStartTime"], info["dataEndTime"]
        assert start["sec"] * 10**9 + start["nsec"] == START_NS
        assert end["sec"] * 10**9 + end["nsec"] == START_NS + 10 * STEP_NS
        assert info["metadata"]["mode"] == "playback"


async def test_one_viewer_controls_and_all_learn_of_it() -> None:
    async with serving(playback=player(), backend=playing()) as rig:
        one, other = await rig.client("foxglove.sdk.v1"), await rig.client()
        for client in (one, other):
            first = await state(client)
            assert first["status"] == 1  # paused
            assert (first["t_ns"], first["seeked"], first["request"]) == (START_NS, False, "")
        there = START_NS + 3 * STEP_NS
        await one.control(play=False, seek_ns=there, request="go")
        answer, news = await state(one), await state(other)
        assert answer == {
            "op": "playbackState", "status": 1, "t_ns": there, "speed": 1.0,
            "seeked": True, "request": "go",
        }  # fmt: skip
        assert news == {**answer, "request": ""}
        await one.control(play=True, speed=2.0, request="on")
        answer = await state(one)
        assert (answer["status"], answer["speed"], answer["seeked"]) == (0, 2.0, False)
        assert answer["request"] == "on"
        while (await state(other))["status"] != 0:
            pass
        await one.control(play=True, speed=1e30, request="fast")
        assert (await state(one))["speed"] == 16.0
        await one.control(play=False, speed=-1.0, request="slow")
        answer = await state(one)
        assert answer["status"] == 1
        assert answer["speed"] == pytest.approx(0.1)


async def test_time_passes_and_the_end_is_reported() -> None:
    source = player()
    async with serving(playback=source, backend=playing()) as rig:
        client = await rig.client()
        assert (await client.op("time"))["t_ns"] == START_NS
        source.position = replace(source.position, t_ns=START_NS + 5, playing=True)
        assert (await client.op("time"))["t_ns"] == START_NS + 5
        source.position = replace(source.position, playing=False, ended=True)
        while (await state(client))["status"] != 3:
            pass


async def test_a_refused_request_is_reported_with_the_state() -> None:
    source = player()
    source.refused = "the session is gone"
    async with serving(playback=source, backend=playing()) as rig:
        client = await rig.client()
        await client.control(play=True, request="x")
        assert (await client.op("status"))["message"] == "the session is gone"
        answer = await state(client)
        assert (answer["request"], answer["status"]) == ("x", 1)


async def test_a_live_server_has_no_playback() -> None:
    async with serving() as rig:
        client = await rig.client()
        await client.control(play=True)
        assert "no playback" in (await client.op("status"))["message"]


async def test_labels_are_the_newest_set_at_the_time_and_come_again_after_a_seek(
    session: Path,
) -> None:
    async with serving(playback=player(), backend=playing(), session=session) as rig:
        client = await (await rig.client()).greeted("/labels/truth")
        channel = client.channels["/labels/truth"]
        assert channel["schemaName"] == "foxglove.SceneUpdate"
        await client.subscribe("/labels/truth", 1)
        await client.data(1)
        for number in (7, 2):
            await client.control(play=False, seek_ns=START_NS + number * STEP_NS + 5)
            received = await client.data(1)
            update = decode_schema(channel, received.payload)
            assert received.t_ns == START_NS + number * STEP_NS
            assert [deletion.type for deletion in update.deletions] == [1]  # ALL
            tracks = {entity.id: entity for entity in update.entities}
            assert tracks.keys() == ({"car_01", "truck_02"} if number == 7 else {"car_01"})
            car = tracks["car_01"]
            assert stamp_ns(car.timestamp) == received.t_ns
            assert (car.frame_id, car.frame_locked) == ("rig", True)
            (cube,) = car.cubes
            assert cube.pose.position.x == number
            assert (cube.size.x, cube.size.y, cube.size.z) == (4.0, 2.0, 1.5)
            assert cube.pose.orientation.w == 1.0
            assert {pair.key: pair.value for pair in car.metadata} == {"class": "car"}


@pytest.mark.parametrize(
    "damage",
    [
        {"center_m": [1.0]},
        {"track": ""},
        {"quaternion_xyzw": "none"},
    ],
)
async def test_damaged_labels_are_reported_and_the_next_ones_shown(
    session: Path, damage: dict[str, Any]
) -> None:
    write_labels(session, [box(0, **damage), box(1)])
    async with serving(playback=player(), backend=playing(), session=session) as rig:
        client = await (await rig.client()).greeted("/labels/truth")
        await client.subscribe("/labels/truth", 1)
        status = await client.op("status")
        assert "truth.jsonl" in status["message"]
        assert str(session) not in status["message"]
        await client.control(play=False, seek_ns=START_NS + STEP_NS)
        assert (await client.data(1)).t_ns == START_NS + STEP_NS


def test_a_label_file_is_indexed_by_its_times(session: Path) -> None:
    with (session / "_cuboids" / "truth.jsonl").open("a") as file:
        file.write("\n{not json\n")
    (file_,) = cuboid_files(session)
    due = LabelSets(file_).start()
    assert due(START_NS - 1) == []
    for number in range(9):
        ((t_ns, _),) = due(START_NS + number * STEP_NS + 99_999_999)
        assert t_ns == START_NS + number * STEP_NS
        assert due(t_ns + 5) == []


async def test_transforms_are_the_calibration_and_the_poses(session: Path) -> None:
    async with serving(playback=player(), backend=playing(), session=session) as rig:
        client = await (await rig.client()).greeted("/tf")
        await client.subscribe("/tf", 1)
        there = START_NS + 2 * STEP_NS + STEP_NS // 2
        await client.data(1)
        await client.control(play=False, seek_ns=there)
        received = await client.data(1)
        found = decode_schema(client.channels["/tf"], received.payload).transforms
        assert received.t_ns == there
        places = {(t.parent_frame_id, t.child_frame_id): t for t in found}
        assert places.keys() == {("rig", "lidar"), ("world", "rig")}
        lidar, rig_place = places["rig", "lidar"], places["world", "rig"]
        assert stamp_ns(lidar.timestamp) == stamp_ns(rig_place.timestamp) == there
        place = lidar.translation
        assert (place.x, place.y, place.z) == (1.0, 2.0, 3.0)
        turn = lidar.rotation
        assert (turn.x, turn.y, turn.z, turn.w) == (0.0, 0.0, 1.0, 0.0)
        assert rig_place.translation.x == pytest.approx(2.5, abs=1e-5)


def test_a_session_without_poses_has_no_world(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "plain")
    builder.close()
    assert Trajectory.of_session(tmp_path / "plain", Calibration()) is None
    assert Trajectory.of_session(tmp_path / "none", Calibration()) is None


async def test_events_are_logged_as_the_playback_reaches_them(session: Path) -> None:
    source = player()
    async with serving(playback=source, backend=playing(), session=session) as rig:
        client = await rig.viewing("/log", 1)
        source.position = replace(source.position, t_ns=START_NS + 9 * STEP_NS, playing=True)
        received = await client.data(1)
        log = decode_schema(client.channels["/log"], received.payload)
        assert START_NS < received.t_ns == stamp_ns(log.timestamp) <= START_NS + 9 * STEP_NS
        assert (log.name, log.level) == ("imu", 3)  # WARNING
        assert "lost 3 samples" in log.message


async def test_parameters_are_the_sessions_config(session: Path) -> None:
    async with serving(playback=player(), backend=playing(), session=session) as rig:
        client = await rig.client()
        await client.send(op="getParameters", parameterNames=[], id="all")
        values = await client.op("parameterValues")
        assert {"name": "version", "value": 1} in values["parameters"]
