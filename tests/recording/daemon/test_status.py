"""What the daemon's status tells a dashboard: rates while idle, ages, the disk, events, clocks."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from recorder.recording.daemon import status as status_module
from recorder.recording.host import clocks
from recorder.recording.supervisor.supervisor import MOST, MOST_TEXT, RecentEvents
from recorder.recording.writer.stream_state import make_absent_position
from tests.recording.daemon.fakes import Vehicle

S = 1_000_000_000
TURN_S = 0.11


@pytest.fixture(autouse=True)
def _armed(rig: Vehicle) -> None:
    rig.run(1)


def stream(rig: Vehicle, name: str) -> dict[str, Any]:
    status: dict[str, Any] = rig.running.status()["sensors"][name]["streams"][name]
    return status


def give(rig: Vehicle, seconds: int, hz: int = 30, nbytes: int = 1000, since: int = 0) -> None:
    """The camera's driver reports every second; its newest sample is 20 ms old."""
    for second in range(since, since + seconds):
        last_ns = rig.clock.monotonic_ns() - 20_000_000
        given = {"cam": (second * hz, second * hz * nbytes, last_ns)}
        rig.children["cam"].report("stats", held=0, buffer=1, given=given)
        rig.run(1)


def test_an_idle_daemon_shows_the_rates_and_ages_that_drivers_report(rig: Vehicle) -> None:
    cam = stream(rig, "cam")
    assert cam["rate_hz"] is cam["bytes_per_s"] is cam["last_ns"] is cam["age_s"] is None
    give(rig, 5)
    cam = stream(rig, "cam")
    assert cam["rate_hz"] == pytest.approx(30) and cam["bytes_per_s"] == 30_000
    assert cam["samples"] is None and not cam["slow"]
    newest_ns = rig.clock.monotonic_ns() - 1_020_000_000
    assert cam["last_ns"] == newest_ns and cam["age_s"] == pytest.approx(0.02, abs=TURN_S)
    for _ in range(4):  # the device gives nothing, the driver reports
        given = {"cam": (120, 120_000, newest_ns)}
        rig.children["cam"].report("stats", held=0, buffer=1, given=given)
        rig.run(1)
    cam = stream(rig, "cam")
    assert cam["rate_hz"] == 0 and cam["age_s"] == pytest.approx(4.02, abs=TURN_S)
    rig.run(3)  # nor does the driver
    cam = stream(rig, "cam")
    assert cam["rate_hz"] is cam["bytes_per_s"] is None
    assert cam["age_s"] == pytest.approx(8.02, abs=TURN_S)


def test_a_driver_that_runs_has_a_process(rig: Vehicle) -> None:
    assert rig.running.status()["sensors"]["cam"]["pid"] == 4711
    rig.running.supervisor.sensors["cam"].child = None
    assert rig.running.status()["sensors"]["cam"]["pid"] is None


def test_counts_of_a_stream_that_is_not_declared_yet_are_no_fault(rig: Vehicle) -> None:
    """A driver reports every second, also while a slow writer has not armed it."""
    for second in range(3):
        given = {"cam_more": (second * 30, second * 1000, None)}
        rig.children["cam"].report("stats", held=0, buffer=1, given=given)
        rig.run(1)
    assert rig.running.status()["sensors"]["cam"]["fault"] is None


def test_a_restarted_driver_counts_anew_and_the_age_goes_on(rig: Vehicle) -> None:
    give(rig, 5)
    rig.children["cam"].die()
    rig.run(1)
    assert rig.children["cam"].alive
    rig.children["cam"].report("stats", held=0, buffer=1, given={"cam": (0, 0, None)})
    rig.run(1)
    assert stream(rig, "cam")["age_s"] == pytest.approx(2.02, abs=2 * TURN_S)
    give(rig, 4, since=1)
    assert stream(rig, "cam")["rate_hz"] == pytest.approx(30)


def test_a_session_has_the_writers_rates_and_its_clock(rig: Vehicle) -> None:
    give(rig, 3)
    reply = rig.ask("start")
    session = reply["status"]["session"]
    assert session["start_ns"] == rig.writer.start_ns
    assert session["offset_ns"] == rig.writer.start_ns - rig.writer.start_mono_ns
    rig.clock.step_realtime(3600.0)
    give(rig, 5, hz=7)  # the writer has more: samples that waited in the driver
    assert rig.running.status()["session"]["offset_ns"] == session["offset_ns"]
    cam = stream(rig, "cam")
    assert cam["rate_hz"] == pytest.approx(30, rel=0.05)
    assert cam["bytes_per_s"] == pytest.approx(1e6, rel=0.05)
    assert cam["age_s"] == pytest.approx(0.02, abs=TURN_S)
    rig.ask("mark", text="pothole")
    (mark,) = [e for e in rig.running.status()["events"] if e["kind"] == "mark"]
    now_ns = rig.clock.monotonic_ns() + session["offset_ns"]
    assert 0 <= now_ns - mark["t_ns"] < S, "the session's clock, which does not step"
    rig.ask("mark", text="bend", age_s=30.0)
    bend = [e for e in rig.running.status()["events"] if e["kind"] == "mark"][1]
    assert abs(now_ns - bend["t_ns"] - 30 * S) < S


def test_a_stream_that_a_device_does_not_have_is_named(
    rig: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(rig, 3)
    rig.ask("start")
    streams, absent = rig.writer.streams, make_absent_position() | {"bytes": 0, "adjusted": 0}
    monkeypatch.setattr(rig.writer, "streams", lambda: streams() | {"cam_silent": absent})
    give(rig, 3)
    status = rig.running.status()
    assert status["sensors"]["cam"]["absent_streams"] == ["cam_silent"]
    assert {"cam_silent absent"} == {f"{f['about']} {f['kind']}" for f in status["faults"]}
    rig.ask("stop")
    assert rig.running.status()["sensors"]["cam"]["absent_streams"] == []


def test_the_hours_of_the_disk_do_not_jump(rig: Vehicle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "free_bytes", lambda _: 3_000_000_000)

    def per_s() -> float:
        return float(rig.running.status()["disk"]["bytes_per_s"])

    assert per_s() == 40, "as declared: 30 Hz and 10 Hz of a byte"
    rig.ask("start")
    rates = [40.0]
    for _ in range(90):  # the writer gets 2 MB a second, 50 000 times as much
        rig.run(2)
        rates.append(per_s())
    assert rates == sorted(rates) and rates[-1] == pytest.approx(2e6, rel=0.15)
    assert max(after - before for before, after in itertools.pairwise(rates)) < 4e5
    disk = rig.running.status()["disk"]
    assert disk["seconds_left"] == pytest.approx(3e9 / disk["bytes_per_s"] - 60, abs=1)
    rig.ask("stop")
    rig.run(10)
    assert per_s() == pytest.approx(rates[-1], rel=0.02), "as in the last session"
    rig.ask("start")
    rig.run(5)
    assert per_s() == pytest.approx(rates[-1], rel=0.05)
    monkeypatch.setattr(status_module, "free_bytes", lambda _: 1_000_000)
    assert rig.running.status()["disk"]["seconds_left"] == 0


def test_events_are_shown_also_without_a_session(rig: Vehicle) -> None:
    rig.children["cam"].report("device", state="lost", message="cam: unplugged")
    rig.run(1)
    assert not rig.writer.events
    rig.children["cam"].report("device", state="present", message="")
    rig.ask("start", name="tour")
    rig.run(1)
    lost = {"bytes": 1, "samples": 1, "lost": {"refused": 7}, "unknown_losses": 0, "ended": None}
    rig.writer.frozen["cam"] = lost
    rig.run(2)
    rig.ask("mark", text="pothole")
    rig.ask("stop")
    events = rig.running.status()["events"]
    assert [(e["kind"], e["stream"], e["cause"], e["text"]) for e in events] == [
        ("device", "cam", "lost", "unplugged"),
        ("device", "cam", "present", "the device is present"),
        ("session", None, "began", "tour began"),
        ("lost", "cam", "", "lost 7 samples (refused)"),
        ("mark", None, "pothole", "pothole"),
        ("end", None, "stop", "the session ended by `recorder stop`"),
        ("session", None, "closed", "tour was closed"),
    ]
    assert [e["number"] for e in events] == list(range(7))
    assert all(type(e["t_ns"]) is int and e["t_ns"] > 10**18 for e in events)


def test_the_events_of_the_status_are_bounded() -> None:
    events = RecentEvents()
    for number in range(2 * MOST):
        events.add(number, "fault", "imu", "driver", detail="x" * 10_000)
    events.add(2 * MOST, "rate", "imu", "low", rate_hz=3.5, floor_hz=5.0, expected_hz=None)
    events.add(2 * MOST + 1, "fault", detail="rtsp://ada:secret@10.0.0.1/live refuses")
    shown = events.list()
    assert len(shown) == MOST and shown[0]["number"] == MOST + 2
    assert len(shown[0]["text"]) == MOST_TEXT and len(json.dumps(shown)) < 60_000
    assert shown[-2]["text"] == "3.5 Hz is below the minimum (5 Hz)"
    assert "secret" not in shown[-1]["text"]


def test_the_state_of_the_clock_is_the_kernels_and_the_time_daemons(
    rig: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = {"synchronized": True, "offset_ns": -1200, "max_error_ns": 3_500_000}
    monkeypatch.setattr(clocks, "kernel_clock", lambda: kernel)
    expected: dict[str, Any] = {"synchronized": True, "by": None, "reference": None}
    expected |= {"offset_ns": -1200, "max_error_ns": 3_500_000}
    assert rig.running.status()["clock"] == expected
    daemon = {"name": "chrony", "reference": "GPS", "offset_ns": 40}
    rig.running.supervisor.clock_state = {"kernel": None, "daemon": daemon}
    expected |= {"by": "chrony", "reference": "GPS", "offset_ns": 40}
    assert rig.running.status()["clock"] == expected
    monkeypatch.setattr(clocks, "kernel_clock", lambda: None)
    rig.running.supervisor.clock_state = None
    assert set(rig.running.status()["clock"].values()) == {None}
