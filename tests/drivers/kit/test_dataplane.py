"""The data plane as a whole: what was taken is recorded, once and in order, whoever dies."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ProtocolError
from recorder.recording.writer.active_session import ActiveSession
from tests.campaigns import Selector, seeded
from tests.drivers.kit.sim_driver import CAMERA, IMU, LATE, LIDAR, LIDAR_IMU, SimDriver
from tests.drivers.kit.simulation import Plane


def recorded(plane: Plane, stream: str) -> dict[int, list[tuple[int, int]]]:
    """By epoch, the (seq, id) on disk, in order, over all sessions that continue each other."""
    merged: dict[int, list[tuple[int, int]]] = {}
    for session in plane.sessions:
        for epoch, rows in recorded_in(session, stream).items():
            assert epoch not in merged
            merged[epoch] = rows
    return merged


def recorded_in(session: Path, stream: str) -> dict[int, list[tuple[int, int]]]:
    folder = session / stream
    if not folder.is_dir():
        return {}
    seq = np.fromfile(folder / "seq", "<u8").tolist()
    ids = np.fromfile(folder / "id", "<u8").tolist()
    sizes = {len(np.fromfile(folder / name, "<u8")) for name in ("ts", "t_mono", "seq", "id")}
    assert len(sizes) == 1, "channels of one stream differ in length"
    values = json.loads((session / "_recorder" / "session.json").read_bytes())
    runs = values["epochs"][stream]
    firsts = [run["first_sample"] for run in runs] + [len(seq)]
    return {
        run["epoch"]: list(zip(seq, ids, strict=True))[firsts[i] : firsts[i + 1]]
        for i, run in enumerate(runs)
    }


def expected(plane: Plane, stream: str) -> dict[int, list[tuple[int, int]]]:
    """By epoch, the (seq, id) that were taken, with refused and device losses as gaps of seq."""
    by_epoch: dict[int, list[tuple[int, int]]] = {}
    seq: dict[int, int] = {}
    for offer in plane.offers.get(stream, []):
        at = seq.setdefault(offer.epoch, 0)
        rows = by_epoch.setdefault(offer.epoch, [])
        if offer.kind is Kind.DATA and offer.taken:
            rows += [(at + i, value) for i, value in enumerate(offer.ids)]
        seq[offer.epoch] = at + offer.count
    return by_epoch


def refused(plane: Plane, stream: str) -> int:
    offers = plane.offers.get(stream, [])
    return sum(o.count for o in offers if o.kind is Kind.DATA and not o.taken)


def lost_by_device(plane: Plane, stream: str) -> int:
    return sum(o.count for o in plane.offers.get(stream, []) if o.kind is Kind.LOST)


def assert_nothing_lost(plane: Plane, accounts: dict[str, Any]) -> None:
    for stream in plane.offers:
        wanted = {e: rows for e, rows in expected(plane, stream).items() if rows}
        found = {e: rows for e, rows in recorded(plane, stream).items() if rows}
        assert found == wanted, stream
        account = accounts[stream]
        assert account["lost"].get("refused", 0) == refused(plane, stream)
        assert account["lost"].get("device", 0) == lost_by_device(plane, stream)
        assert account["unknown_losses"] == 0
        assert account["samples"] == sum(map(len, wanted.values()))


def begin(plane: Plane, *drivers: tuple[str, tuple[Any, ...]]) -> None:
    plane.start_writer()
    for sensor, specs in drivers:
        plane.start_driver(sensor, *specs)
    armed = lambda: all("armed" in d.reports for d in plane.drivers.values())  # noqa: E731
    plane.run(armed, 5.0, "arming")
    plane.start_session()
    opened = lambda: all(d.session() for d in plane.drivers.values())  # noqa: E731
    plane.run(opened, 5.0, "a session for everybody")


def give(driver: SimDriver, count: int = 3, size: int = 10) -> None:
    """Publish so many samples of the driver's first stream; all are taken."""
    for _ in range(count):
        assert driver.data(driver.specs[0], [size])


def recording(plane: Plane, count: int = 3) -> Plane:
    """A session of a camera and an IMU that have given so many samples in turn."""
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    for _ in range(count):
        for driver in plane.drivers.values():
            give(driver, 1)
    return plane


def act(plane: Plane, driver: SimDriver) -> None:
    """One random thing that a driver's main thread does."""
    rng = plane.rng
    if driver.unfound and rng.random() < 0.05:
        driver.find()
    spec = rng.choice(driver.specs)
    match rng.randrange(12):
        case 0:
            driver.other(spec, Kind.STATE)
        case 1:
            driver.other(spec, Kind.LOST, rng.choice([1, 2, 7]))
        case _:
            size = rng.choice([1, 100, 2000, 6000])
            driver.data(spec, [rng.randint(1, size) for _ in range(rng.randint(1, 3))])


def play(plane: Plane, steps: int, kill: float) -> None:
    """Drivers publish while threads, network and death take their random turns."""
    for _ in range(steps):
        if plane.rng.random() < 0.15:
            act(plane, plane.rng.choice(list(plane.drivers.values())))
        if plane.rng.random() < kill:
            plane.kill_writer()
            plane.start_writer()
        plane.step()


@seeded(2, weight=30, least=10)
def test_killed_writers_lose_nothing(make_plane: Any, seed: int) -> None:
    plane: Plane = make_plane(seed)
    begin(plane, ("cam", (CAMERA,)), ("lid", (LIDAR, LIDAR_IMU)), ("imu", (IMU,)))
    play(plane, 2000, kill=0.004)
    left = plane.rng.randint(0, 3)

    def die_sometimes() -> None:
        nonlocal left
        if left and plane.rng.random() < 0.02:
            left -= 1
            plane.kill_writer()
            plane.start_writer()

    plane.disturb = die_sometimes  # type: ignore[method-assign]
    assert_nothing_lost(plane, plane.stop_session())


@seeded(2, weight=30, least=10)
def test_killed_drivers_lose_only_what_was_not_acknowledged(make_plane: Any, seed: int) -> None:
    plane: Plane = make_plane(seed)
    specs = {"imu": (IMU,), "lid": (LIDAR, LIDAR_IMU)}
    begin(plane, *specs.items())
    acknowledged: dict[tuple[str, int], int] = {}
    killed: set[int] = set()
    for _ in range(plane.rng.randint(1, 4)):
        play(plane, 500, kill=0.002)
        sensor = plane.rng.choice(list(specs))
        if plane.drivers[sensor].link.seam.ring is not None:
            acknowledged |= acknowledged_samples(plane, plane.drivers[sensor])
            killed.add(plane.drivers[sensor].epoch)
        plane.kill_driver(sensor)
        play_others(plane, sensor)
        plane.start_driver(sensor, *specs[sensor])
    play(plane, 500, kill=0.002)
    accounts = plane.stop_session()
    for stream in plane.offers:
        found, wanted = recorded(plane, stream), expected(plane, stream)
        for epoch, rows in wanted.items():
            got = found.get(epoch, [])
            assert got == rows[: len(got)], "not a prefix of what was taken"
            if epoch in killed:
                assert len(got) >= acknowledged[stream, epoch], "something acknowledged is missing"
            else:
                assert got == rows
        # A start that the writer has seen a message of ends, if by death, in a counted interval.
        cut = sum(found.get(e, []) != wanted[e] for e in killed & wanted.keys() & found.keys())
        assert accounts[stream]["unknown_losses"] >= cut


def acknowledged_samples(plane: Plane, driver: SimDriver) -> dict[tuple[str, int], int]:
    """By stream and epoch, how many of the samples taken are no longer in the ring."""
    ring = driver.link.seam.ring
    assert ring is not None
    return {
        (name, ring.epoch): len(expected(plane, name).get(ring.epoch, []))
        - sum(m.count or 0 for m in stream.ring if m.kind is Kind.DATA)
        for name, stream in ring._streams.items()
    }


def play_others(plane: Plane, but: str) -> None:
    driver = next(d for d in plane.drivers.values() if d.sensor != but)
    for _ in range(plane.rng.randint(0, 200)):
        if plane.rng.random() < 0.15:
            act(plane, driver)
        plane.step()


@seeded(1, weight=10, least=5)
def test_a_driver_that_joins_late_shrinks_the_others_buffers(make_plane: Any, seed: int) -> None:
    plane: Plane = make_plane(seed)
    begin(plane, ("cam", (CAMERA,)))
    play(plane, 600, kill=0.0)
    ring = plane.drivers["cam"].link.seam.ring
    assert ring is not None
    before = ring.buffer_bytes
    plane.start_driver("late", LATE)
    plane.run(lambda: ring.buffer_bytes < before, 5.0, "a smaller share")
    play(plane, 600, kill=0.002)
    assert_nothing_lost(plane, plane.stop_session())


@pytest.mark.parametrize("size", [100, 3_000, 7_000, 12_000, 50_000])
@seeded(1, weight=10, least=5)
def test_a_source_at_full_pace_waits_and_comes_to_its_end(
    make_plane: Any, seed: int, size: int
) -> None:
    """Whatever a message's size against ring (10 kB) and credit: the ring always drains.

    What is larger than the ring is refused and counted, in order, and holds up nothing.
    """
    plane: Plane = make_plane(seed, buffer_bytes=10_000)
    begin(plane, ("lid", (LIDAR, LIDAR_IMU)))
    driver = plane.drivers["lid"]
    ring = driver.link.seam.ring
    assert ring is not None
    for i in range(30):
        spec = (LIDAR, LIDAR, LIDAR_IMU)[i % 3]
        wait_for_room(plane, driver, spec, size)
        assert driver.data(spec, [size]) is (size < 10_000), "refused only where it cannot fit"
        if plane.rng.random() < 0.05:
            plane.kill_writer()
            plane.start_writer()
    session = driver.session()
    assert session is not None
    driver.link.end(session, "eof", "")
    plane.run(lambda: "ended" in driver.reports, 5.0, "everything acknowledged")
    accounts = plane.stop_session()
    assert_nothing_lost(plane, accounts)
    assert accounts["lid"]["ended"] == accounts["lid_imu"]["ended"] == "eof"


@seeded(1, weight=10, least=5)
def test_the_end_of_the_last_open_stream_is_committed_at_once(make_plane: Any, seed: int) -> None:
    """A stop does not wait for the sync interval; neither does the end of a file."""
    plane: Plane = make_plane(seed)
    begin(plane, ("cam", (CAMERA,)), ("lid", (LIDAR, LIDAR_IMU)))
    assert plane.service is not None
    active = plane.service._sessions.active
    assert active is not None
    interval_ns = round(active.writer.sync_interval_s * 1e9)
    for name, specs in (("cam", (CAMERA,)), ("lid", (LIDAR, LIDAR_IMU))):
        wait_for_commit(plane, active)
        driver, began_ns, commits = plane.drivers[name], plane.now_ns, active.commits.count
        for spec in specs:
            assert driver.data(spec, [10, 20])
        session = driver.session()
        assert session is not None
        driver.link.end(session, "eof", "")
        plane.run(partial(driver.link.drain, 0), 1.0, "everything acknowledged")
        early = plane.now_ns < began_ns + interval_ns // 2
        assert early is (name == "lid"), "the first end leaves a stream open"
        assert active.commits.count == commits + 1
    assert_nothing_lost(plane, plane.stop_session())


def wait_for_commit(plane: Plane, active: ActiveSession) -> None:
    before = active.commits.count
    plane.run(lambda: active.commits.count > before, 1.0, "a commit")


def wait_for_room(plane: Plane, driver: SimDriver, spec: StreamSpec, size: int) -> None:
    """As the runner waits at full pace, which gives a driver's samples in order."""
    plane.run(lambda: driver.link.wait_for_room(spec.name, 72 + size, 0), 5.0, "room")


def test_a_new_writer_knows_idle_drivers_before_a_session_starts(make_plane: Any) -> None:
    plane: Plane = make_plane(1)
    plane.start_writer()
    driver = plane.start_driver("cam", CAMERA)
    plane.run(lambda: "armed" in driver.reports, 5.0, "arming")
    plane.kill_writer()
    plane.start_writer()
    plane.start_session()
    plane.run(lambda: driver.session() is not None, 5.0, "the driver hears of the session")
    give(driver)
    assert_nothing_lost(plane, plane.stop_session())


def test_a_writer_that_dies_before_it_could_acknowledge(make_plane: Any) -> None:
    """All is durable, but no acknowledgement has left: the next writer must give it."""
    plane: Plane = make_plane(2)
    begin(plane, ("cam", (CAMERA,)))
    driver = plane.drivers["cam"]
    plane.run(lambda: driver.session() is not None, 5.0, "session")
    give(driver, 5)
    session = driver.session()
    assert session is not None
    driver.link.end(session, "eof", "")

    def durable() -> bool:
        assert plane.service is not None and plane.service._sessions.active is not None
        return plane.service._sessions.active.writer.durable.get("cam", (0, 0))[1] == 6

    plane.run(durable, 5.0, "durable")
    assert "ended" not in driver.reports
    plane.kill_writer()
    plane.start_writer()
    plane.run(lambda: "ended" in driver.reports, 5.0, "the new writer acknowledges")
    assert_nothing_lost(plane, plane.stop_session())


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_stream_of_which_only_a_state_is_durable(make_plane: Any, deaths: int) -> None:
    """A stream without a folder has a position too, and keeps it across writers."""
    plane: Plane = make_plane(3)
    begin(plane, ("cam", (CAMERA,)))
    driver = plane.drivers["cam"]
    plane.run(lambda: driver.session() is not None, 5.0, "session")
    driver.other(CAMERA, Kind.STATE)
    driver.other(CAMERA, Kind.LOST, 4)
    plane.run(lambda: bool(driver.link.seam.ring and driver.link.seam.ring.empty), 5.0, "durable")
    for _ in range(deaths):
        plane.kill_writer()
        plane.start_writer()
        commits = plane.now_ns + 500_000_000
        plane.run(lambda at=commits: plane.now_ns > at, 5.0, "a commit")  # type: ignore[misc]
    for _ in range(3):
        assert driver.data(CAMERA, [10])
        plane.run(lambda: plane.held(driver) < 500, 5.0, "sending")
    assert_nothing_lost(plane, plane.stop_session())


def test_a_writer_that_dies_at_any_point_of_closing(make_plane: Any, select: Selector) -> None:
    """The session is closed, once, and the supervisor gets its answer."""

    def close(point: int | None) -> Plane:
        plane: Plane = make_plane(4)
        begin(plane, ("cam", (CAMERA,)))
        give(plane.drivers["cam"], 5)
        plane.pauses, plane.die_at = 0, point

        def die() -> None:
            if plane.dying:
                plane.dying, plane.die_at = False, None
                plane.kill_writer()
                plane.start_writer()

        plane.disturb = die  # type: ignore[method-assign]
        assert_nothing_lost(plane, plane.stop_session())
        return plane

    points = close(None).pauses
    assert 10 < points < 99
    for point in select(range(1, points), 8):
        assert close(point).deaths == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [(Kind.STATE, {"raw": b"bytes"}), (Kind.LOST, {"cause": "device", "stream": "x"})],
)
def test_a_message_that_no_log_can_take_faults_its_driver_not_the_writer(
    make_plane: Any, kind: Kind, values: dict[str, Any]
) -> None:
    plane: Plane = make_plane(5)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    camera, imu = plane.drivers["cam"], plane.drivers["imu"]
    session = camera.session()
    assert session is not None
    camera.link.publish(Message(kind, stream="cam", count=0, values=values), session)
    give(imu)
    with pytest.raises(ProtocolError, match="cam: "):
        plane.run(lambda: False, 5.0, "the fault")
    plane.kill_driver("cam")
    del plane.drivers["cam"]
    accounts = plane.stop_session()
    assert accounts["imu"]["samples"] == 3 and not plane.deaths


@seeded(1, weight=10, least=5)
def test_a_stalled_disk_is_no_reason_for_the_writers_memory_to_grow(
    make_plane: Any, seed: int
) -> None:
    """What waits for the disk stays within the credit, whoever joins meanwhile."""
    plane: Plane = make_plane(seed, buffer_bytes=200_000)
    begin(plane, ("cam", (CAMERA,)))
    driver = plane.drivers["cam"]
    ring = driver.link.seam.ring
    assert ring is not None and plane.service is not None
    opened = plane.service._sessions.active
    assert opened is not None
    window = 20_000
    plane.service._drivers.share_out = lambda: share(plane, window)  # type: ignore[method-assign]
    plane.start_driver("late", LATE)
    plane.run(lambda: ring._window_bytes == window, 5.0, "new credit")
    append = next(a for a in plane.actors if a.name == "append")
    append.ready = lambda: False
    append.deadline_ns = None
    for i in range(600):
        if i % 4 == 0:
            driver.data(CAMERA, [1000])
        if i % 100 == 99:  # a driver that cannot stay up
            plane.kill_driver("late")
            plane.start_driver("late", LATE)
        plane.step()
    waiting = sum(m.nbytes for _, _, m, _ in opened.inbox._items if m.stream == "cam")  # type: ignore[attr-defined]
    assert window / 2 < waiting <= window + 1200


def share(plane: Plane, window: int) -> None:
    assert plane.service is not None
    for known in plane.service._drivers.peers.values():
        known.buffer_bytes, known.window_bytes = 100_000, window
