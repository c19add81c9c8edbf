"""While the next part is made, which takes as long as the disk does, the one before is recorded."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.recording.writer.disk_policy import find_next_session, read_ending
from recorder.recording.writer.pending_split import PendingSplit
from recorder.session.journal.journal import read_journal
from tests.campaigns import seeded
from tests.drivers.kit.actors import Actor
from tests.drivers.kit.sim_driver import CAMERA, IMU
from tests.drivers.kit.simulation import Plane
from tests.drivers.kit.test_dataplane import assert_nothing_lost, begin, give, recording
from tests.drivers.kit.test_split import play, together
from tests.drivers.kit.test_split_faults import (
    announced,
    answer,
    ask_split,
    begin_split,
    leaving,
    losses,
    new_writer,
    opened,
)


def stand_still(plane: Plane, reported: bool = False) -> Actor:
    """Ask for a split, and let the disk stand still for whoever makes the next part.

    Args:
        plane: where.
        reported: only once the journal names that part.
    """
    ask_split(plane)
    plane.run(lambda: making(plane) is not None, 5.0, "it is being made")
    (maker,) = makers(plane)
    journal = opened(plane).writer.path / "_recorder" / "commits"
    if reported:
        plane.run(lambda: read_journal(journal).next is not None, 5.0, "the part's name")
    maker.ready, maker.deadline_ns = (lambda: False), None
    return maker


def makers(plane: Plane) -> list[Actor]:
    return [actor for actor in plane.actors if actor.name == "make" and not actor.done]


def goes_on(maker: Actor) -> None:
    maker.ready = lambda: True


def making(plane: Plane) -> PendingSplit | None:
    return None if plane.service is None else plane.service._pending_split


def record(plane: Plane, size: int = 10) -> None:
    for driver in plane.drivers.values():
        give(driver, size=size)


def no_room(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next part can be made but for its name."""
    before = plane.disk.rename

    def rename(source: Path, target: Path) -> None:
        if target.parent == plane.root:
            raise OSError(errno.ENOSPC, "No space left on device")
        before(source, target)

    monkeypatch.setattr(plane.disk, "rename", rename)


@pytest.mark.parametrize("reported", [False, True])
def test_rings_drain_into_the_open_part_while_the_next_is_made(
    make_plane: Callable[..., Plane], reported: bool
) -> None:
    plane = recording(make_plane(1))
    camera, first = plane.drivers["cam"], opened(plane).writer.path
    maker = stand_still(plane, reported)
    for _ in range(20):
        record(plane, 1000)
        plane.run(lambda: plane.held(camera) < 2000, 5.0, "durable in the open part")
    status = plane.ask(op="status")
    assert (status["session"], status["splitting"]) == (str(first), True)
    goes_on(maker)
    announced(plane)
    assert leaving(plane).writer.path == first
    accounts = plane.split_session()
    record(plane)
    assert accounts["cam"]["samples"] >= 60
    assert_nothing_lost(plane, together(accounts, plane.stop_session()))


def test_a_stop_waits_for_the_part_that_is_being_made(make_plane: Callable[..., Plane]) -> None:
    plane = recording(make_plane(2))
    maker = stand_still(plane)
    assert plane.session is not None
    first = plane.session

    def disturb() -> None:
        if (made := making(plane)) is not None and made.waiting:
            goes_on(maker)

    plane.disturb = disturb  # type: ignore[method-assign]
    last = plane.stop_session()
    left, following = read_ending(first), find_next_session(first)
    assert left is not None and following is not None
    plane.sessions.append(following)
    assert read_ending(following) is not None
    assert_nothing_lost(plane, together(left.streams, last))


@pytest.mark.parametrize("dies", [False, True])
def test_a_driver_that_starts_meanwhile_joins_the_part_that_is_made(
    make_plane: Callable[..., Plane], dies: bool
) -> None:
    """What it misses until then is one interval in either part, and no more."""
    plane = recording(make_plane(3))
    plane.run(lambda: not plane.held(plane.drivers["cam"]), 5.0, "durable")
    maker = stand_still(plane, reported=True)
    plane.kill_driver("cam")
    camera = plane.start_driver("cam", CAMERA)
    waits = lambda: bool(making(plane) and making(plane).waiting)  # type: ignore[union-attr]  # noqa: E731
    plane.run(waits, 5.0, "the driver's second start")
    assert camera.session() is None
    goes_on(maker)
    announced(plane)
    plane.run(lambda: camera.session() is not None, 5.0, "a session")
    record(plane)
    if dies:
        new_writer(plane)
    first = plane.split_session()
    second = plane.stop_session()
    assert (first["cam"]["samples"], second["cam"]["samples"]) == (3, 3)
    assert first["cam"]["unknown_losses"] == second["cam"]["unknown_losses"] == 1
    assert first["imu"]["unknown_losses"] == second["imu"]["unknown_losses"] == 0


def test_a_driver_that_comes_back_meanwhile_crosses_with_all_others(
    make_plane: Callable[..., Plane],
) -> None:
    """It was there before the split was asked for, but had not joined this writer yet."""
    plane: Plane = make_plane(4)
    begin(plane, ("cam", (CAMERA,)))
    imu = plane.start_driver("imu", IMU)
    imu.actor.ready, imu.actor.deadline_ns = (lambda: False), None
    plane.now_ns += 1_000_000
    maker = stand_still(plane)
    imu.actor.ready = lambda: True
    plane.run(lambda: imu.session() is not None, 5.0, "it has joined")
    record(plane)
    goes_on(maker)
    first = plane.split_session()
    record(plane)
    second = plane.stop_session()
    assert first["imu"]["samples"] == second["imu"]["samples"] == 3
    assert_nothing_lost(plane, together(first, second))


def test_where_the_next_part_cannot_be_made_the_open_one_goes_on(
    make_plane: Callable[..., Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = recording(make_plane(5))
    first = opened(plane)
    with monkeypatch.context() as patch:
        no_room(plane, patch)
        reply = answer(plane, ask_split(plane))
    assert "is full" in reply["error"] and reply["exit_code"] == 1
    assert opened(plane) is first and first.failure is None and making(plane) is None
    assert find_next_session(first.writer.path) is None
    record(plane)
    accounts = plane.split_session()  # asked again, with room
    assert accounts["cam"]["samples"] == 6
    record(plane)
    assert_nothing_lost(plane, together(accounts, plane.stop_session()))


def test_a_stop_is_obeyed_where_the_next_part_cannot_be_made(
    make_plane: Callable[..., Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = recording(make_plane(6))
    maker = stand_still(plane)
    no_room(plane, monkeypatch)

    def disturb() -> None:
        if (made := making(plane)) is not None and made.waiting:
            goes_on(maker)

    plane.disturb = disturb  # type: ignore[method-assign]
    assert_nothing_lost(plane, plane.stop_session())
    assert plane.session is not None and find_next_session(plane.session) is None


@pytest.mark.parametrize("reported", [False, True])
def test_a_disk_that_fails_under_the_open_part_seals_it_when_the_next_is_made(
    make_plane: Callable[..., Plane], reported: bool
) -> None:
    plane = recording(make_plane(7))
    first = opened(plane)
    maker = stand_still(plane, reported)
    assert plane.service is not None
    first.fail(OSError(errno.EIO, "Input/output error"))
    for _ in range(50):
        plane.step()
    assert plane.service._sessions.active is first, "its journal is still being written to"
    goes_on(maker)
    sessions = plane.service._sessions
    over = lambda: sessions.active is not first and sessions.previous is None  # noqa: E731
    plane.run(over, 15.0, "sealed")
    how = read_ending(first.writer.path)
    assert how is not None and "Input/output error" in (how.sealed or "")
    assert losses(first.writer.path, "cam") and losses(first.writer.path, "imu")
    camera, key = plane.drivers["cam"], opened(plane).writer.key
    plane.run(lambda: camera.link.seam.present.session.key == key, 5.0, "the next part")  # type: ignore[union-attr]
    record(plane)
    plane.session = opened(plane).writer.path
    assert plane.stop_session()["cam"]["samples"] == 3


def test_a_journal_that_fails_at_the_name_of_the_next_part_seals_the_open_one(
    make_plane: Callable[..., Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = recording(make_plane(8))
    first = opened(plane)

    def record_next(name: str, first: bytes, folder: str | None) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(first.writer, "record_next", record_next)
    reply = answer(plane, ask_split(plane))
    assert "error" in reply
    plane.run(lambda: plane.service._sessions.active is None, 5.0, "sealed")  # type: ignore[union-attr]
    how = read_ending(first.writer.path)
    assert how is not None and "Input/output error" in (how.sealed or "")
    assert [path for path in plane.root.iterdir() if path.name[0] != "."] == [first.writer.path]


@pytest.mark.parametrize("fails", [False, True])
def test_a_disk_that_is_nearly_full_ends_what_is_open_when_the_next_part_is_made(
    make_plane: Callable[..., Plane], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    plane = recording(make_plane(9))
    first = opened(plane)
    maker = stand_still(plane)
    first.full = "nearly full"
    for _ in range(50):
        plane.step()
    assert first.finishing is None
    if fails:
        no_room(plane, monkeypatch)
    goes_on(maker)
    plane.run(lambda: plane.service._sessions.active is not first, 15.0, "its end")  # type: ignore[union-attr]
    if fails:
        how = read_ending(first.writer.path)
        assert how is not None and how.full == "nearly full" and how.sealed is None
        assert_nothing_lost(plane, how.streams)
    else:
        assert_nothing_lost(plane, together(plane.split_session(), plane.stop_session()))


@pytest.mark.parametrize("reported", [False, True])
@pytest.mark.parametrize("how", ["quit", "killed"])
def test_the_end_of_a_writer_that_makes_a_part(
    make_plane: Callable[..., Plane], reported: bool, how: str
) -> None:
    plane = recording(make_plane(10))
    maker = stand_still(plane, reported)
    record(plane)
    if how == "quit":
        assert plane.service is not None
        plane.service.quit()
        writer = next(a for a in plane.actors if a.name == "writer")
        for _ in range(30):
            plane.step()
        assert not writer.done, "what is half made may be named already"
        goes_on(maker)
        plane.run(lambda: writer.done, 60.0, "the writer's end")
    new_writer(plane)
    record(plane)
    first = plane.split_session()
    record(plane)
    assert_nothing_lost(plane, together(first, plane.stop_session()))
    made = {path for path in plane.root.iterdir() if path.name[0] != "."}
    assert made == set(plane.sessions), "one split, however often it was asked for"


@seeded(2, weight=60, least=8)
def test_whatever_happens_while_a_part_is_made(make_plane: Callable[..., Plane], seed: int) -> None:
    """Drivers record, start and die, writers die, for as long as a disk is slow."""
    plane = recording(make_plane(seed))
    rng, accounts = plane.rng, []
    for _ in range(3):
        ask_split(plane)
        for _ in range(rng.randrange(0, 120)):
            plane.step()
            for maker in makers(plane):
                maker.ready = lambda: False
                maker.deadline_ns = plane.now_ns + rng.randrange(0, 2_000_000_000)
            if rng.random() < 0.1:
                record(plane)
            if rng.random() < 0.01:
                new_writer(plane)
        play(plane, 50, kill=0.002)
        for maker in makers(plane):
            goes_on(maker)
        accounts.append(plane.split_session())
    assert_nothing_lost(plane, together(*accounts, plane.stop_session()))


def test_what_waits_only_in_the_part_that_is_left_is_seen(make_plane: Callable[..., Plane]) -> None:
    plane = recording(make_plane(11))
    plane.run(lambda: not plane.held(plane.drivers["cam"]), 5.0, "durable")
    begin_split(plane)
    old = leaving(plane)
    sync = next(a for a in plane.actors if a.name == "sync")
    sync.ready, sync.deadline_ns = (lambda: False), None  # the disk stands still for it
    record(plane)
    plane.run(lambda: old.waiting_since_ns is not None, 5.0, "received")
    assert opened(plane).waiting_since_ns is None
    plane.now_ns += 3_000_000_000
    assert plane.ask(op="status")["oldest_uncommitted_s"] >= 3.0
    sync.ready = lambda: True
    first = plane.split_session()
    assert plane.ask(op="status")["oldest_uncommitted_s"] < 1.0
    assert_nothing_lost(plane, together(first, plane.stop_session()))


@pytest.mark.parametrize("closed", [False, True])
def test_a_part_in_another_folder_is_found_by_the_next_writer(
    make_plane: Callable[..., Plane], closed: bool
) -> None:
    plane = recording(make_plane(10))
    first, other = opened(plane).writer.path, plane.root.parent / "ram"
    ask_split(plane, other)
    announced(plane)
    if closed:
        plane.run(lambda: read_ending(first) is not None, 5.0, "the part before is closed")
    record(plane)
    new_writer(plane)
    resumed = lambda: plane.service is not None and plane.service._sessions.active is not None  # noqa: E731
    plane.run(resumed, 5.0, "it is resumed")
    following = opened(plane).writer.path
    assert following == find_next_session(first) and following.parent == other
    assert opened(plane).writer.previous_path == first
    record(plane)
    plane.run(lambda: read_ending(first) is not None, 30.0, "the part before is closed")
    left = read_ending(first)
    plane.session = following
    plane.sessions.append(following)
    assert left is not None
    assert_nothing_lost(plane, together(left.streams, plane.stop_session()))
