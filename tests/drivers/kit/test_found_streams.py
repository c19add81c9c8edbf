"""Streams that a driver finds, and declares, while a session is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ProtocolError
from recorder.session.reader import Session
from recorder.session.summary import summarize
from tests.drivers.kit.sim_driver import CAMERA, IMU, LIDAR, LIDAR_IMU, SimDriver, stream_spec
from tests.drivers.kit.simulation import Plane
from tests.drivers.kit.test_dataplane import (
    assert_nothing_lost,
    begin,
    give,
    recorded_in,
    recording,
)
from tests.drivers.kit.test_link import Stage, stage
from tests.drivers.kit.test_split import together
from tests.drivers.kit.test_split_faults import begin_split, end, losses, new_writer, opened

__all__ = ["stage"]  # a fixture


def find(plane: Plane, sensor: str, count: int = 3) -> StreamSpec:
    """Let a driver find a stream and publish so many samples of it."""
    driver = plane.drivers[sensor]
    spec = driver.find()
    for _ in range(count):
        assert driver.data(spec, [10])
    return spec


def reason_of_end(plane: Plane, name: str) -> str | None:
    account = opened(plane).writer.positions().get(name, {})
    reason: str | None = account.get("ended")
    return reason


def test_a_stream_found_in_a_session_is_recorded_whole(make_plane: Any) -> None:
    plane = recording(make_plane(1))
    spec = find(plane, "cam")
    give(plane.drivers["cam"])
    accounts = plane.stop_session()
    assert_nothing_lost(plane, accounts)
    assert accounts[spec.name]["samples"] == 3 and accounts[spec.name]["ended"] == "stopped"
    with Session(plane.sessions[0]) as session:
        assert session.sensors()["cam"] == ["cam", spec.name]
        assert session.streams[spec.name].spec == spec


def test_a_stream_found_while_no_session_is_open_is_in_the_next_one(make_plane: Any) -> None:
    plane: Plane = make_plane(2)
    plane.start_writer()
    camera = plane.start_driver("cam", CAMERA)
    plane.run(lambda: "armed" in camera.reports, 5.0, "arming")
    spec = camera.find()
    plane.start_session()
    plane.run(lambda: camera.session() is not None, 5.0, "a session")
    assert camera.data(spec, [5]) and camera.data(spec, [6])
    assert_nothing_lost(plane, plane.stop_session())


@pytest.mark.parametrize("before_seam", [True, False])
def test_a_stream_found_while_its_driver_is_behind_is_in_one_part(
    make_plane: Any, before_seam: bool
) -> None:
    """The writer closes the part before although the stream has no sample in it."""
    plane = recording(make_plane(3))
    camera = plane.drivers["cam"]
    begin_split(plane)
    if not before_seam:  # the driver crosses, and the writer does not know it yet
        plane.run(lambda: camera.link.seam.next is not None, 5.0, "the seam is announced")
        camera.link.enter(camera.link.seam.next)
        assert camera.link.seam.leaving is not None
    spec = find(plane, "cam")
    since_ns = plane.now_ns
    first = plane.split_session()
    assert plane.now_ns - since_ns < 9_000_000_000, "the part before was closed by its deadline"
    second = plane.stop_session()
    assert_nothing_lost(plane, together(first, second))
    found = [spec.name for session in plane.sessions if recorded_in(session, spec.name)]
    assert len(found) == 1


def test_a_stream_found_after_its_driver_crossed_waits_for_no_other(make_plane: Any) -> None:
    plane = recording(make_plane(4))
    begin_split(plane)
    camera = plane.drivers["cam"]
    key = opened(plane).writer.key
    plane.now_ns += 2_000_000_000  # a driver that gives nothing crosses
    crossed = lambda: camera.link.seam.present.session.key == key  # type: ignore[union-attr]  # noqa: E731
    plane.run(crossed, 5.0, "the next part")
    spec = find(plane, "cam")
    new_writer(plane)
    first = plane.split_session()
    second = plane.stop_session()
    assert_nothing_lost(plane, together(first, second))
    assert second[spec.name]["samples"] == 3


@pytest.mark.parametrize("reason", ["eof", "stopped"])
def test_a_stream_found_after_the_end_ends_with_the_others(make_plane: Any, reason: str) -> None:
    plane = recording(make_plane(5))
    camera = plane.drivers["cam"]
    end(camera, reason)
    spec = camera.find()
    plane.run(lambda: reason_of_end(plane, spec.name) == reason, 5.0, "its end")
    accounts = plane.stop_session()
    assert accounts[spec.name]["samples"] == 0 and accounts[spec.name]["unknown_losses"] == 0


def test_a_killed_driver_loses_nothing_of_a_stream_that_only_the_next_one_finds(
    make_plane: Any,
) -> None:
    plane = recording(make_plane(6))
    plane.run(lambda: not plane.held(plane.drivers["cam"]), 5.0, "durable")
    plane.kill_driver("cam")
    camera = plane.start_driver("cam", CAMERA)
    plane.run(lambda: camera.session() is not None, 5.0, "the driver's second start")
    give(camera)
    spec = find(plane, "cam")
    accounts = plane.stop_session()
    assert accounts["cam"]["unknown_losses"] == 1
    assert accounts[spec.name]["unknown_losses"] == 0 and accounts[spec.name]["samples"] == 3


def test_a_killed_driver_loses_an_interval_of_a_stream_that_it_had_found(make_plane: Any) -> None:
    plane = recording(make_plane(7))
    plane.run(lambda: not plane.held(plane.drivers["cam"]), 5.0, "durable")
    plane.now_ns += 60_000_000_000
    spec = plane.drivers["cam"].find()
    known = lambda: spec.name in opened(plane).writer.positions()  # noqa: E731
    plane.run(known, 5.0, "the declaration")
    plane.kill_driver("cam")
    plane.now_ns += 2_000_000_000
    camera = plane.start_driver("cam", CAMERA)
    plane.run(lambda: camera.session() is not None, 5.0, "the driver's second start")
    assert find(plane, "cam") == spec
    assert plane.stop_session()[spec.name]["unknown_losses"] == 1
    (lost,) = losses(plane.sessions[0], spec.name)
    assert 2_000_000_000 <= lost["duration_ns"] < 30_000_000_000, "from its declaration on"


def test_a_second_declaration_is_refused(stage: Stage) -> None:
    stage.joined()
    spec = stream_spec("imu_2", 1.0)
    stage.link.declare(spec)
    with pytest.raises(ProtocolError, match="imu_2: is declared a second time"):
        stage.link.declare(spec)


def test_a_declaration_precedes_the_streams_first_message(stage: Stage) -> None:
    session = stage.joined()
    spec = stream_spec("imu_2", 1.0, blob=False)
    stage.link.declare(spec)
    ids = [np.array([7], "<u8").tobytes()]
    message = Message(Kind.DATA, "imu_2", count=1, t_mono_ns=np.array([1]), frames=ids)
    stage.link.publish(message, session)
    join = stage.hear(Kind.JOIN, Kind.DATA)
    assert join.kind is Kind.JOIN
    assert [wire["name"] for wire in join.values["streams"]] == ["imu", "imu_2"]
    assert stage.hear(Kind.DATA).stream == "imu_2"
    assert stage.reports[:2] == ["armed", "streams"]


def test_two_sensors_must_not_find_the_same_stream(make_plane: Any) -> None:
    plane: Plane = make_plane(8)
    begin(plane, ("lid", (LIDAR, LIDAR_IMU)), ("imu", (IMU,)))
    plane.drivers["imu"].link.declare(LIDAR_IMU)
    refused = "the writer refuses: imu and lid both declare 'lid_imu'"
    with pytest.raises(ProtocolError, match=refused):
        plane.run(lambda: False, 5.0, "a refusal")


def test_a_writer_that_dies_at_any_point_of_a_declaration(make_plane: Any) -> None:
    point = 0
    for point in range(1, 60):
        plane = recording(make_plane(9))
        plane.pauses, plane.die_at = 0, point
        spec = find(plane, "cam")

        def die(plane: Plane = plane, driver: SimDriver = plane.drivers["cam"]) -> None:
            if plane.dying:
                plane.dying, plane.die_at = False, None
                new_writer(plane)
            elif plane.rng.random() < 0.1:
                driver.data(driver.specs[-1], [3])

        plane.disturb = die  # type: ignore[method-assign]
        accounts = plane.stop_session()
        assert_nothing_lost(plane, accounts)
        assert accounts[spec.name]["samples"] >= 3
        if not plane.deaths:
            break
    assert point > 5


def test_a_stream_on_disk_says_when_its_driver_found_it(make_plane: Any) -> None:
    """Its folder is made with its second sample; of one sample alone, at the end."""
    plane = recording(make_plane(10))
    spec = find(plane, "cam", count=1)
    plane.run(lambda: not plane.held(plane.drivers["imu"]), 5.0, "durable")
    folder: Path = plane.sessions[0] / spec.name
    assert not folder.exists()
    plane.stop_session()
    assert len(np.fromfile(folder / "ts", "<f8")) == 1


@pytest.mark.parametrize("sporadic", [True, False])
def test_a_stream_without_a_sample_fails_a_session_unless_it_is_sporadic(
    make_plane: Any, sporadic: bool
) -> None:
    plane = recording(make_plane(11))
    spec = replace(stream_spec("cam_1", 1.0), rate_hz=None, sporadic=sporadic)
    plane.drivers["cam"].link.declare(spec)
    accounts = plane.stop_session()
    assert accounts["cam_1"]["samples"] == 0
    with Session(plane.sessions[0]) as session:
        reasons = [reason["what"] for reason in summarize(session)["reasons"]]
    assert ("no samples" in reasons) is not sporadic
