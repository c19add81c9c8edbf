"""What may go wrong while a session goes on in another: deaths, hangs, disks, ends, new drivers."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec
from recorder.common.files import PosixDisk
from recorder.recording.writer.active_session import ActiveSession
from recorder.recording.writer.disk_policy import find_next_session, read_ending
from recorder.recording.writer.recovery import recover
from tests.drivers.kit.sim_driver import CAMERA, IMU, LATE, LIDAR, LIDAR_IMU, SimDriver
from tests.drivers.kit.simulation import Plane
from tests.drivers.kit.test_dataplane import (
    act,
    assert_nothing_lost,
    begin,
    give,
    recorded_in,
    recording,
)
from tests.drivers.kit.test_split import play, together
from tests.support.events import events


def tries(fast: int, most: int) -> list[Any]:
    return [n if n < fast else pytest.param(n, marks=pytest.mark.campaign) for n in range(most)]


def answer(plane: Plane, number: int) -> dict[str, Any]:
    """The writer's answer to a question."""
    replies: list[dict[str, Any]] = []

    def answered() -> bool:
        while (message := plane.supervisor.receive()) is not None:
            if message.number == number:
                replies.append(message.values)
        return bool(replies)

    plane.run(answered, 30.0, "an answer")
    return replies[0]


def ask_split(plane: Plane, root: Path | None = None) -> int:
    """Ask for a split without waiting for the answer; the question's number.

    Args:
        plane: where.
        root: folder of the next part; that of the open one unless given.
    """
    plane._asked += 1
    plan = plane._plan().to_wire()
    values = {
        "op": "split",
        "plan": plan if root is None else plan | {"root": str(root)},
        "session": str(plane.session),
        "live": list(plane.drivers),
    }
    plane.supervisor.send(Message(Kind.COMMAND, number=plane._asked, values=values))
    return plane._asked


def announced(plane: Plane) -> None:
    """Return when the writer is in two sessions."""
    ready = lambda: plane.service is not None and plane.service._sessions.previous is not None  # noqa: E731
    plane.run(ready, 5.0, "the seam")


def begin_split(plane: Plane) -> int:
    """Ask for a split; return the question's number when the writer is in two sessions."""
    number = ask_split(plane)
    announced(plane)
    return number


def new_writer(plane: Plane) -> None:
    plane.kill_writer()
    plane.start_writer()


def leaving(plane: Plane) -> ActiveSession:
    assert plane.service is not None and plane.service._sessions.previous is not None
    return plane.service._sessions.previous


def opened(plane: Plane) -> ActiveSession:
    assert plane.service is not None and plane.service._sessions.active is not None
    return plane.service._sessions.active


def end(driver: SimDriver, reason: str = "eof", detail: str = "") -> None:
    session = driver.session()
    assert session is not None
    driver.link.end(session, reason, detail)


def hang(driver: SimDriver) -> None:
    """SIGSTOP to the driver's link."""
    driver.actor.ready = lambda: False
    driver.actor.deadline_ns = None


def losses(session: Path, stream: str) -> list[dict[str, Any]]:
    return events(session, type="lost", stream=stream)


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_source_that_ends_at_the_seam_keeps_its_ring_until_it_is_durable(
    make_plane: Any, when: str
) -> None:
    plane = recording(make_plane(1), 4)
    camera = plane.drivers["cam"]
    old = opened(plane)
    if when == "before":
        end(camera)
        plane.run(lambda: old.positions["cam"].ended is not None, 5.0, "the end has arrived")
    begin_split(plane)
    if when == "during":
        end(camera)
    crossed = lambda: camera.link.seam.present.session.key != old.writer.key  # type: ignore[union-attr]  # noqa: E731
    plane.run(crossed, 5.0, "the next part")
    assert old.writer.durable.get("cam", (0, 0))[1] < 5, "not all is durable"
    new_writer(plane)
    first = plane.split_session()
    assert camera.session() is None
    second = plane.stop_session()
    assert_nothing_lost(plane, together(first, second))
    assert first["cam"]["ended"] == second["cam"]["ended"] == "eof"


def test_streams_of_a_driver_that_died_before_the_seam_are_a_loss_behind_it_too(
    make_plane: Any,
) -> None:
    plane = recording(make_plane(1))
    plane.run(lambda: not plane.held(plane.drivers["cam"]), 5.0, "durable")
    plane.kill_driver("cam")
    del plane.drivers["cam"]
    first = plane.split_session()
    plane.now_ns += 4_000_000_000
    camera = plane.start_driver("cam", CAMERA)
    plane.run(lambda: camera.session() is not None, 5.0, "the driver's second start")
    give(camera)
    second = plane.stop_session()
    assert first["cam"]["unknown_losses"] == second["cam"]["unknown_losses"] == 1
    (lost,) = losses(plane.sessions[1], "cam")
    assert lost["count"] is None and lost["duration_ns"] > 4_000_000_000


def test_a_driver_that_hangs_over_the_seam(make_plane: Any) -> None:
    """What it held for the part that was closed meanwhile is lost, and both parts say so."""
    plane: Plane = make_plane(2)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    camera = plane.drivers["cam"]
    give(camera)
    plane.run(lambda: not plane.held(camera), 5.0, "durable")
    hang(camera)
    first = plane.split_session()
    assert first["cam"]["ended"] is None and first["cam"]["unknown_losses"] == 1
    plane.now_ns += 1_000_000_000
    camera.data(CAMERA, [10])  # into the ring of a session that is closed
    camera.actor.ready = lambda: True
    key = opened(plane).writer.key
    plane.run(lambda: camera.link.seam.present.session.key == key, 5.0, "the part")  # type: ignore[union-attr]
    give(camera)
    second = plane.stop_session()
    assert second["cam"]["samples"] == 3 and second["cam"]["unknown_losses"] == 1
    assert losses(plane.sessions[1], "cam")[0]["duration_ns"] > 1_000_000_000


@pytest.mark.parametrize("seed", range(3))
def test_a_driver_that_joins_at_the_seam(make_plane: Any, seed: int) -> None:
    plane: Plane = make_plane(seed)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    plane.drivers["cam"].data(CAMERA, [10])
    begin_split(plane)
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
    give(camera)
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
    plane = recording(make_plane(4))
    plane.kill_driver("cam")
    begin_split(plane)
    left = leaving(plane).writer.path
    plane.kill_driver("imu")
    plane.drivers.clear()
    plane.stop_session()
    assert plane.service is not None
    assert plane.service._sessions.previous is None and plane.service._sessions.active is None
    assert json.loads((left / "_recorder" / "session.json").read_bytes())["state"] == "clean"


@pytest.mark.parametrize("seed", tries(2, 10))
def test_a_stop_that_follows_a_split_at_once(make_plane: Any, seed: int) -> None:
    plane: Plane = make_plane(seed)
    begin(plane, ("cam", (CAMERA,)), ("lid", (LIDAR, LIDAR_IMU)))
    play(plane, 200)

    def disturb() -> None:
        if plane.rng.random() < 0.1:
            act(plane, plane.rng.choice(list(plane.drivers.values())))
        if plane.rng.random() < 0.005 and plane.deaths < seed:
            new_writer(plane)

    assert plane.session is not None
    begin_split(plane)
    plane.disturb = disturb  # type: ignore[method-assign]
    last = plane.stop_session()
    left = read_ending(plane.session)
    following = find_next_session(plane.session)
    assert left is not None and following is not None
    plane.sessions.append(following)
    assert_nothing_lost(plane, together(left.streams, last))
    assert all(s["ended"] == "stopped" for s in last.values())


def test_room_comes_back_behind_the_seam_as_the_ring_of_the_part_before_drains(
    make_plane: Any,
) -> None:
    plane: Plane = make_plane(5, buffer_bytes=20_000)
    begin(plane, ("cam", (CAMERA,)))
    camera = plane.drivers["cam"]
    first = camera.link.seam.ring
    assert first is not None and plane.service is not None
    for peer, known in plane.service._drivers.peers.items():
        known.window_bytes = 4_000  # the end of the part before waits for its turn
        plane.service._drivers.hello(peer)
    plane.run(lambda: first._window_bytes == 4_000, 5.0, "less credit")
    append = next(a for a in plane.actors if a.name == "append")
    append.ready, append.deadline_ns = (lambda: False), None
    while camera.data(CAMERA, [1500]):
        pass
    ask_split(plane)
    plane.run(lambda: camera.link.seam.next is not None, 5.0, "the seam")
    camera.link.enter(camera.link.seam.next)
    behind = camera.link.seam.leaving
    assert behind is not None
    while camera.data(CAMERA, [1500]):
        pass
    append.ready = lambda: True
    taken = 0

    def offer() -> bool:
        nonlocal taken
        if camera.link.seam.leaving is None or not behind.ring.bytes_held:
            return True
        ring = camera.link.seam.ring
        assert ring is not None
        took = camera.data(CAMERA, [1500])
        room = plane.buffer_bytes - ring.bytes_held - behind.ring.bytes_held
        assert room > -4 * 1600, "the firsts of streams, and the ends, beyond the budget"
        assert took or room < 1600
        taken += bool(took)
        return False

    plane.run(offer, 10.0, "all is durable behind the seam")
    assert taken
    assert_nothing_lost(plane, together(plane.split_session(), plane.stop_session()))


def test_the_part_before_is_ended_when_the_disk_of_the_next_fails(make_plane: Any) -> None:
    plane = recording(make_plane(6))
    number = begin_split(plane)
    old, new = leaving(plane), opened(plane)
    began_ns = plane.now_ns
    assert plane.service is not None
    new.fail(OSError(errno.EIO, "Input/output error"))
    reply = answer(plane, number)
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
    begin_split(plane)
    assert plane.service is not None
    opened(plane).fail(OSError(errno.EIO, "Input/output error"))
    plane.run(lambda: plane.service._sessions.active is None, 5.0, "sealed")  # type: ignore[union-attr]
    reply = plane.ask(op="start", plan=plane._plan().to_wire())
    assert "error" in reply


def test_a_sealed_part_before_is_no_end_of_the_next(make_plane: Any) -> None:
    plane = recording(make_plane(8))
    cam, imu = plane.drivers["cam"], plane.drivers["imu"]
    begin_split(plane)
    assert plane.service is not None
    leaving(plane).fail(OSError(errno.EIO, "Input/output error"))
    cam.data(CAMERA, [10])
    plane.run(lambda: plane.service._sessions.previous is None, 5.0, "sealed")  # type: ignore[union-attr]
    key = opened(plane).writer.key
    there = lambda: all(d.link.seam.present.session.key == key for d in (cam, imu))  # type: ignore[union-attr]  # noqa: E731
    plane.run(there, 5.0, "the next part")
    give(cam)
    give(imu)
    plane.split_session()
    second = plane.stop_session()
    assert second["cam"]["samples"] == second["imu"]["samples"] == 3


def test_the_next_part_is_received_while_the_one_before_is_closed(make_plane: Any) -> None:
    """Closing takes as long as the disk does: rings must not run full over it."""
    plane = recording(make_plane(9))
    begin_split(plane)
    plane.run(lambda: leaving(plane).closer is not None, 15.0, "the part before is being closed")
    closer = next(a for a in plane.actors if a.name == "close")
    closer.ready, closer.deadline_ns = (lambda: False), None  # the disk stands still for it
    camera = plane.drivers["cam"]
    for _ in range(10):
        for _ in range(3):
            assert camera.data(CAMERA, [1000])
        plane.run(lambda: plane.held(camera) < 2000, 5.0, "durable in the next part")
    closer.ready = lambda: True
    assert_nothing_lost(plane, together(plane.split_session(), plane.stop_session()))


def test_a_driver_that_starts_anew_behind_the_seam_knows_how_far_its_source_had_come(
    make_plane: Any,
) -> None:
    plane: Plane = make_plane(10)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    give(plane.drivers["cam"])
    last_ns = plane.now_ns  # a source played at full pace may be far beyond the seam by then
    plane.run(lambda: not plane.held(plane.drivers["cam"]), 5.0, "durable")
    plane.split_session()
    for deaths in range(2):  # the second writer knows it of the session before
        if deaths:
            new_writer(plane)
        plane.kill_driver("cam")
        again = plane.start_driver("cam", CAMERA)
        plane.run(lambda d=again: d.session() is not None, 5.0, "a session")  # type: ignore[misc]
        session = again.session()
        assert session is not None and session.last_ns == last_ns


def test_a_device_is_away_since_its_last_sample(make_plane: Any) -> None:
    """However long its driver waited before it gave it up."""
    plane: Plane = make_plane(11)
    begin(plane, ("imu", (IMU,)))
    imu = plane.drivers["imu"]
    imu.data(IMU, [1, 1])
    plane.now_ns += 5_000_000_000
    imu.link.mark_device_lost()
    plane.now_ns += 1_000_000_000
    plane.split_session()
    plane.now_ns += 2_000_000_000
    imu.link.mark_device_back()
    imu.data(IMU, [1])
    plane.stop_session()
    (first,), (second,) = (losses(session, "imu") for session in plane.sessions)
    assert first["duration_ns"] > 6_000_000_000 and second["duration_ns"] > 2_000_000_000
    seam_s = 1.5  # a driver that gives nothing crosses so much later, at most
    total_s = (first["duration_ns"] + second["duration_ns"]) / 1e9
    away_s = (plane.now_ns - 5_000_000_000) / 1e9
    assert 8.0 < total_s < away_s + seam_s


def test_another_split_is_refused_until_the_part_before_is_closed(make_plane: Any) -> None:
    plane: Plane = make_plane(12)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    number = begin_split(plane)
    part = opened(plane).writer.path
    reply = plane.ask(op="split", plan=plane._plan().to_wire(), session=str(part), live=["cam"])
    assert "still being split" in reply["error"]
    assert leaving(plane).finishing is not None
    assert leaving(plane).finishing.request == number  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "steps",
    [0, 30, 60, 120, *(pytest.param(n, marks=pytest.mark.campaign) for n in range(5, 300, 13))],
)
@pytest.mark.parametrize("how", ["quit", "power"])
def test_the_end_of_the_writer_or_of_all_at_the_seam(make_plane: Any, steps: int, how: str) -> None:
    plane = recording(make_plane(steps), 4)
    begin_split(plane)
    parts = (leaving(plane).writer.path, opened(plane).writer.path)
    for driver in plane.drivers.values():
        plane.run(lambda d=driver: d.link.seam.next is not None, 5.0, "told")  # type: ignore[misc]
        driver.link.enter(driver.link.seam.next)
        for _ in range(3):
            driver.data(driver.specs[0], [10])
    for _ in range(steps):
        plane.step()
    if how == "quit":
        assert plane.service is not None
        plane.service.quit()
        writer = next(a for a in plane.actors if a.name == "writer")
        plane.run(lambda: writer.done, 60.0, "the writer's end")
        new_writer(plane)
        assert_nothing_lost(plane, together(plane.split_session(), plane.stop_session()))
        return
    acknowledged: dict[str, int] = {}
    for name, driver in plane.drivers.items():
        boxes = [part.ring for part in driver.link.seam.parts]
        held = [m for box in boxes for m in box._streams[name].ring if m.kind is Kind.DATA]
        acknowledged[name] = 7 - sum(m.count or 0 for m in held)
    plane.kill_writer()
    for stream in ("cam", "imu"):
        found = 0
        for part in parts:
            report = recover(part, PosixDisk(), plane.clock, boot="after the power cut")
            rows = recorded_in(part, stream).values()
            found += sum(map(len, rows))
            if report.action == "recovered":
                assert report.streams[stream].interval_lost == bool(losses(part, stream))
                # Where more was sent, nobody can count what is gone.
                ended = report.streams[stream].interval_lost is False
                assert ended == (part == parts[0] and found >= 4), (part, found)
        assert acknowledged[stream] <= found
