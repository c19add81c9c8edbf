"""A session that goes on in another: at the seam nothing is lost and nothing is there twice."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from recorder.session.journal.journal import read_journal
from tests.campaigns import seeded
from tests.drivers.kit.sim_driver import CAMERA, IMU, LIDAR, LIDAR_IMU
from tests.drivers.kit.simulation import Plane
from tests.drivers.kit.test_dataplane import (
    act,
    assert_nothing_lost,
    begin,
    give,
    recorded_in,
    recording,
)
from tests.support.events import events

DRIVERS = (("cam", (CAMERA,)), ("lid", (LIDAR, LIDAR_IMU)), ("imu", (IMU,)))


def play(plane: Plane, steps: int, kill: float = 0.0) -> None:
    for _ in range(steps):
        plane.step()
        if plane.rng.random() < 0.3:
            act(plane, plane.rng.choice(list(plane.drivers.values())))
        if plane.rng.random() < kill:
            plane.kill_writer()
            plane.start_writer()


def disturbed(plane: Plane, kill: float) -> None:
    """While the supervisor waits for the seam the drivers go on, and writers may die."""
    most = plane.deaths + 2

    def disturb() -> None:
        if plane.rng.random() < 0.3:
            act(plane, plane.rng.choice(list(plane.drivers.values())))
        if plane.rng.random() < kill and plane.deaths < most:
            plane.kill_writer()
            plane.start_writer()

    plane.disturb = disturb  # type: ignore[method-assign]


def together(*accounts: dict[str, Any]) -> dict[str, Any]:
    """The accounts of sessions that continue each other as those of one."""
    sums: dict[str, Any] = {}
    for account in accounts:
        for stream, values in account.items():
            known = sums.setdefault(stream, {"lost": Counter(), "unknown_losses": 0, "samples": 0})
            known["lost"].update(values["lost"])
            known["unknown_losses"] += values["unknown_losses"]
            known["samples"] += values["samples"]
    return sums


@pytest.mark.parametrize("kill", [pytest.param(0.0, marks=pytest.mark.campaign), 0.004])
@seeded(1, weight=40, least=5)
def test_every_sample_is_in_one_part(make_plane: Any, seed: int, kill: float) -> None:
    plane: Plane = make_plane(seed)
    begin(plane, *DRIVERS)
    accounts = []
    for _ in range(2):
        play(plane, 80, kill)
        disturbed(plane, kill)
        accounts.append(plane.split_session())
    play(plane, 80, kill)
    plane.disturb = lambda: None  # type: ignore[method-assign]
    accounts.append(plane.stop_session())
    assert_nothing_lost(plane, together(*accounts))
    assert all(a["cam"]["ended"] == "split" for a in accounts[:-1])
    for session, following in zip(plane.sessions, plane.sessions[1:], strict=False):
        values = json.loads((following / "_recorder" / "session.json").read_bytes())
        assert values["previous"] == session.name
        assert read_journal(session / "_recorder" / "commits").next == following.name
        assert values["state"] == "clean"
    assert sum(bool(recorded_in(session, "imu")) for session in plane.sessions) > 1


@pytest.mark.campaign
def test_a_writer_that_dies_at_any_point_of_a_split(make_plane: Any) -> None:
    deaths = 0
    for point in range(1, 200):
        plane: Plane = make_plane(4)
        begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
        for _ in range(5):
            assert plane.drivers["cam"].data(CAMERA, [10])
            plane.drivers["imu"].data(IMU, [1])
        plane.pauses, plane.die_at = 0, point

        def die(plane: Plane = plane) -> None:
            plane.drivers["imu"].data(IMU, [1])
            if plane.dying:
                plane.dying, plane.die_at = False, None
                plane.kill_writer()
                plane.start_writer()

        plane.disturb = die  # type: ignore[method-assign]
        first = plane.split_session()
        plane.die_at = None
        plane.disturb = lambda: None  # type: ignore[method-assign]
        play(plane, 50)
        assert_nothing_lost(plane, together(first, plane.stop_session()))
        made = {path for path in plane.root.iterdir() if path.name[0] != "."}
        assert made == set(plane.sessions), "one split, however often it was asked for"
        deaths += plane.deaths
        if not plane.deaths:
            break
    assert 10 < point < 199 and deaths == point - 1


def test_a_driver_that_gives_nothing_crosses_too(make_plane: Any) -> None:
    plane: Plane = make_plane(5)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    plane.split_session()
    assert all(d.session() is not None for d in plane.drivers.values())
    plane.drivers["imu"].data(IMU, [1, 1])
    assert_nothing_lost(plane, plane.stop_session())


def test_a_source_that_has_ended_does_not_begin_again(make_plane: Any) -> None:
    plane = recording(make_plane(6))
    camera = plane.drivers["cam"]
    session = camera.session()
    assert session is not None
    camera.link.end(session, "eof", "")
    plane.split_session()
    assert camera.session() is None
    plane.drivers["imu"].data(IMU, [1, 1])
    accounts = plane.stop_session()
    assert accounts["cam"]["ended"] == "eof" and accounts["cam"]["samples"] == 0
    assert accounts["imu"]["ended"] == "stopped"


def test_a_driver_that_dies_at_the_seam_is_an_interval_of_loss(make_plane: Any) -> None:
    plane: Plane = make_plane(7)
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    give(plane.drivers["cam"])
    play(plane, 100)
    plane.kill_driver("cam")
    del plane.drivers["cam"]
    first = plane.split_session()
    assert first["cam"]["unknown_losses"] == 1
    assert plane.stop_session()["imu"]["ended"] == "stopped"


def test_a_device_that_is_away_is_an_interval_in_every_part(make_plane: Any) -> None:
    plane: Plane = make_plane(8)
    begin(plane, ("imu", (IMU,)))
    imu = plane.drivers["imu"]
    imu.data(IMU, [1, 1])
    imu.link.mark_device_lost()
    plane.now_ns += 3_000_000_000
    first = plane.split_session()
    plane.now_ns += 2_000_000_000
    imu.link.mark_device_back()
    imu.data(IMU, [1, 1])
    second = plane.stop_session()
    assert first["imu"]["unknown_losses"] == second["imu"]["unknown_losses"] == 1
    estimates = []
    for session in plane.sessions:
        (lost,) = events(session, type="lost")
        assert lost["cause"] == "device" and lost["count"] is None
        estimates.append(lost["estimate"])
    assert sum(estimates) == pytest.approx(500, abs=210) and min(estimates) >= 200
