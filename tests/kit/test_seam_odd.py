"""What may go wrong while a session goes on in another: deaths, hangs, disks, ends, new drivers."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from recorder.contract.streams import ChannelSpec
from recorder.contract.wire import Kind, Message
from recorder.writer.opened import Opened
from tests.kit.simulation import Plane, SimDriver
from tests.kit.test_dataplane import (
    CAMERA,
    IMU,
    LATE,
    LIDAR,
    LIDAR_IMU,
    assert_nothing_lost,
    begin,
    recorded_in,
)
from tests.kit.test_seam import make_plane, together

__all__ = ["make_plane"]


def ask_split(plane: Plane) -> int:
    """Ask for a split without waiting for the answer; the question's number."""
    plane._asked += 1
    values = {
        "op": "split",
        "plan": asdict(plane._plan()),
        "session": str(plane.session),
        "live": list(plane.drivers),
    }
    plane.supervisor.send(Message(Kind.COMMAND, number=plane._asked, values=values))
    return plane._asked


def announced(plane: Plane) -> None:
    """Return when the writer is in two sessions."""
    ready = lambda: plane.service is not None and plane.service._leaving is not None  # noqa: E731
    plane.run(ready, 5.0, "the seam")


def new_writer(plane: Plane) -> None:
    plane.kill_writer()
    plane.start_writer()


def leaving(plane: Plane) -> Opened:
    assert plane.service is not None and plane.service._leaving is not None
    return plane.service._leaving


def opened(plane: Plane) -> Opened:
    assert plane.service is not None and plane.service._open is not None
    return plane.service._open


def end(driver: SimDriver, reason: str = "eof", detail: str = "") -> None:
    session = driver.session()
    assert session is not None
    driver.link.end(session, reason, detail)


def hang(driver: SimDriver) -> None:
    """SIGSTOP to the driver's link."""
    driver.actor.ready = lambda: False
    driver.actor.deadline_ns = None


def losses(session: Path, stream: str) -> list[dict[str, Any]]:
    lines = (session / "_recorder" / "events.jsonl").read_text().splitlines()
    events = map(json.loads, lines)
    return [e for e in events if e["type"] == "lost" and e["stream"] == stream]


@pytest.mark.parametrize("steps", range(0, 120, 4))
@pytest.mark.parametrize("when", ["before", "during"])
def test_a_source_that_ends_at_the_seam_keeps_its_ring_until_it_is_durable(
    make_plane: Any, steps: int, when: str
) -> None:
    plane: Plane = make_plane(steps)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    camera, imu = plane.drivers["cam"], plane.drivers["imu"]
    for _ in range(4):
        camera.data(CAMERA, [10])
        imu.data(IMU, [1])
    if when == "before":
        end(camera)
    ask_split(plane)
    announced(plane)
    if when == "during":
        camera.data(CAMERA, [10])
        end(camera)
    for _ in range(steps):
        plane.step()
    new_writer(plane)
    first = plane.split_session()
    assert camera.session() is None
    second = plane.stop_session()
    assert_nothing_lost(plane, together(first, second))
    assert first["cam"]["ended"] == second["cam"]["ended"] == "eof"


def test_streams_of_a_driver_that_died_before_the_seam_are_a_loss_behind_it_too(
    make_plane: Any,
) -> None:
    plane: Plane = make_plane(1)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    for _ in range(3):
        plane.drivers["cam"].data(CAMERA, [10])
        plane.drivers["imu"].data(IMU, [1])
    plane.run(lambda: not plane.held(plane.drivers["cam"]), 5.0, "durable")
    plane.kill_driver("cam")
    del plane.drivers["cam"]
    first = plane.split_session()
    plane.now_ns += 4_000_000_000
    camera = plane.start_driver("cam", CAMERA)
    plane.run(lambda: camera.session() is not None, 5.0, "the driver's second start")
    for _ in range(3):
        camera.data(CAMERA, [10])
    second = plane.stop_session()
    assert first["cam"]["unknown_losses"] == second["cam"]["unknown_losses"] == 1
    (lost,) = losses(plane.sessions[1], "cam")
    assert lost["count"] is None and lost["duration_ns"] > 4_000_000_000


def test_a_driver_that_hangs_over_the_seam(make_plane: Any) -> None:
    """What it held for the part that was closed meanwhile is lost, and both parts say so."""
    plane: Plane = make_plane(2)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    camera = plane.drivers["cam"]
    for _ in range(3):
        camera.data(CAMERA, [10])
    plane.run(lambda: not plane.held(camera), 5.0, "durable")
    hang(camera)
    first = plane.split_session()
    assert first["cam"]["ended"] is None and first["cam"]["unknown_losses"] == 1
    plane.now_ns += 1_000_000_000
    camera.data(CAMERA, [10])  # into the ring of a session that is closed
    camera.actor.ready = lambda: True
    key = opened(plane).writer.key
    plane.run(lambda: camera.link._session.key == key, 5.0, "the part")  # type: ignore[union-attr]
    for _ in range(3):
        camera.data(CAMERA, [10])
    second = plane.stop_session()
    assert second["cam"]["samples"] == 3 and second["cam"]["unknown_losses"] == 1
    assert losses(plane.sessions[1], "cam")[0]["duration_ns"] > 1_000_000_000


@pytest.mark.parametrize("seed", range(3))
def test_a_driver_that_joins_at_the_seam(make_plane: Any, seed: int) -> None:
    plane: Plane = make_plane(seed)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    plane.drivers["cam"].data(CAMERA, [10])
    ask_split(plane)
    announced(plane)
    late = plane.start_driver("late", LATE)
    plane.run(lambda: late.session() is not None, 5.0, "a session")
    for driver, spec in ((late, LATE), (plane.drivers["imu"], IMU)):
        for _ in range(3):
            driver.data(spec, [1])
    first = plane.split_session()
    assert "late" not in first or first["late"]["epoch"] == 0
    assert_nothing_lost(plane, together(first, plane.stop_session()))


def test_a_changed_stream_goes_on_in_the_next_part(make_plane: Any) -> None:
    plane: Plane = make_plane(3)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    camera = plane.drivers["cam"]
    for _ in range(3):
        camera.data(CAMERA, [10])
    end(camera, "changed", "1920 x 1080 now")
    plane.run(lambda: "ended" in camera.reports, 5.0, "durable")
    plane.kill_driver("cam")
    del plane.drivers["cam"]
    first = plane.split_session()
    assert first["cam"]["ended"] == "changed"
    wider = replace(CAMERA, channels=(*CAMERA.channels, ChannelSpec("more", "raw", "u1", (4,))))
    again = plane.start_driver("cam", wider)
    plane.run(lambda: again.session() is not None, 5.0, "a session")
    again.link.publish(
        Message(Kind.STATE, stream="cam", t_mono_ns=plane.now_ns, values={"a": 1}), again.session()
    )
    assert plane.stop_session()["cam"]["ended"] == "stopped"


def test_a_stop_waits_for_the_part_that_is_being_left(make_plane: Any) -> None:
    plane: Plane = make_plane(4)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    for _ in range(3):
        plane.drivers["cam"].data(CAMERA, [10])
        plane.drivers["imu"].data(IMU, [1])
    plane.kill_driver("cam")
    ask_split(plane)
    announced(plane)
    left = leaving(plane).writer.path
    plane.kill_driver("imu")
    plane.drivers.clear()
    plane.stop_session()
    assert plane.service is not None
    assert plane.service._leaving is None and plane.service._open is None
    assert json.loads((left / "_recorder" / "session.json").read_bytes())["state"] == "clean"


def test_room_comes_back_behind_the_seam_as_the_ring_of_the_part_before_drains(
    make_plane: Any,
) -> None:
    plane: Plane = make_plane(5, buffer_bytes=20_000)
    begin(plane, ("cam", (CAMERA,)))
    camera = plane.drivers["cam"]
    assert camera.link._outbox is not None
    append = next(a for a in plane.actors if a.name == "append")
    append.ready, append.deadline_ns = (lambda: False), None
    while camera.data(CAMERA, [1500]):
        pass
    ask_split(plane)
    plane.run(lambda: camera.link.seam_ns() is not None, 5.0, "the seam")
    camera.link.cross()
    behind = camera.link._leaving
    assert behind is not None
    total = plane.buffer_bytes
    camera.data(CAMERA, [1500])  # a stream's first is always taken
    while camera.data(CAMERA, [1500]):
        pass
    assert camera.link._outbox.bytes_held + behind[1].bytes_held <= total + 4 * 1600
    append.ready = lambda: True
    took = [0]

    def look() -> bool:
        if camera.link._leaving is None:
            return True
        held = behind[1].bytes_held
        if 0 < held < total // 2:
            outbox = camera.link._outbox
            assert outbox is not None
            assert outbox.bytes_held + held <= total + 4 * 1600
            took[0] += bool(camera.data(CAMERA, [1500]))
        return False

    plane.run(look, 10.0, "the part is closed")
    plane.split_session()
    plane.stop_session()


def test_the_part_before_is_ended_when_the_disk_of_the_next_fails(make_plane: Any) -> None:
    plane: Plane = make_plane(6)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    for _ in range(3):
        plane.drivers["cam"].data(CAMERA, [10])
        plane.drivers["imu"].data(IMU, [1])
    number = ask_split(plane)
    announced(plane)
    old, new = leaving(plane), opened(plane)
    began_ns = plane.now_ns
    assert plane.service is not None
    plane.service._fail(new, OSError(errno.EIO, "Input/output error"))
    replies: list[dict[str, Any]] = []

    def answered() -> bool:
        while (message := plane.supervisor.receive()) is not None:
            if message.number == number:
                replies.append(message.values)
        return bool(replies)

    plane.run(answered, 30.0, "an answer")
    (reply,) = replies
    assert reply["session"] is None and reply["ended"]["sealed"]
    streams = reply["previous"]["streams"]
    assert all(s["ended"] is not None and not s["unknown_losses"] for s in streams.values())
    assert plane.now_ns - began_ns < 5_000_000_000, "nobody waits for the grace to be over"
    assert len(recorded_in(old.writer.path, "cam")) == 1


def test_no_session_is_begun_while_one_is_still_being_left(make_plane: Any) -> None:
    plane: Plane = make_plane(7)
    begin(plane, ("cam", (CAMERA,)))
    plane.drivers["cam"].data(CAMERA, [10])
    hang(plane.drivers["cam"])
    ask_split(plane)
    announced(plane)
    assert plane.service is not None
    plane.service._fail(opened(plane), OSError(errno.EIO, "Input/output error"))
    plane.run(lambda: plane.service._open is None, 5.0, "sealed")  # type: ignore[union-attr]
    reply = plane.ask(op="start", plan=asdict(plane._plan()))
    assert "error" in reply


def test_a_sealed_part_before_is_no_end_of_the_next(make_plane: Any) -> None:
    plane: Plane = make_plane(8)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    cam, imu = plane.drivers["cam"], plane.drivers["imu"]
    for _ in range(3):
        cam.data(CAMERA, [10])
        imu.data(IMU, [1])
    ask_split(plane)
    announced(plane)
    assert plane.service is not None
    plane.service._fail(leaving(plane), OSError(errno.EIO, "Input/output error"))
    cam.data(CAMERA, [10])
    plane.run(lambda: plane.service._leaving is None, 5.0, "sealed")  # type: ignore[union-attr]
    key = opened(plane).writer.key
    there = lambda: all(d.link._session.key == key for d in (cam, imu))  # type: ignore[union-attr]  # noqa: E731
    plane.run(there, 5.0, "the next part")
    for _ in range(3):
        cam.data(CAMERA, [10])
        imu.data(IMU, [1])
    first = plane.split_session()
    print(first)
    second = plane.stop_session()
    assert second["cam"]["samples"] == second["imu"]["samples"] == 3
