"""Outages that go on: lost now, in the status, in the counters, on the timeline and in `info`."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import Any

import pytest

from recorder.cli.control import format_status
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.settings import SensorEntry
from recorder.recording.daemon.metrics import render
from recorder.recording.supervisor.sensors import Outage, Sensor, find_outage
from recorder.session.events import make_event
from recorder.session.reader import Session
from recorder.session.summary import brief, summarize
from recorder.session.validation import validate
from recorder.viewers.live.daemon_link import _outages
from recorder.viewers.live.event_tail import Timeline
from recorder.viewers.live.summary import Summary
from tests.recording.daemon.fakes import Vehicle, vehicle
from tests.session.build import START_NS, camera_spec, imu_session, rewrite_header

S = 1_000_000_000
SPEC = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,)),), rate_hz=100.0)


def sensor(*, live: bool = True, **more: Any) -> Sensor:
    made = Sensor(SensorEntry("imu", "xsens", "serial", "", {}, live=live), armed=True)
    for key, value in more.items():
        setattr(made, key, value)
    return made


def account(last_s: float | None = 10.0, **more: Any) -> dict[str, Any]:
    last_ns = -1 if last_s is None else round(last_s * S)
    return {"samples": 0 if last_s is None else 500, "last_ns": last_ns, "ended": None} | more


@pytest.mark.parametrize(
    ("state", "known", "cause"),
    [
        ({}, account(), None),
        ({"device": "lost"}, account(), "device"),
        ({"device": "lost"}, account(None), "absent"),
        ({"device": "absent"}, {}, "absent"),
        ({"armed": False}, account(), "driver"),
        ({"restart_at_ns": 1, "armed": False}, account(), "driver"),
        ({"given_up": True}, account(ended="fault"), "driver"),
        ({"hung_in": "read"}, account(), "hung"),
        ({}, account(8.5), "silent"),
        ({"live": False}, account(8.5), None),  # a played source may pause
        ({"device": "lost"}, account(ended="eof"), None),
        ({"device": "lost"}, account(ended="stopped"), None),
    ],
)
def test_what_is_lost_now_has_its_cause(
    state: dict[str, Any], known: dict[str, Any], cause: str | None
) -> None:
    start_ns, now_ns = 5 * S, 12 * S
    found = find_outage(sensor(**state), SPEC, known, start_ns, now_ns)
    if cause is None:
        assert found is None
        return
    since_ns = max(start_ns, known.get("last_ns", start_ns))
    estimated = (now_ns - since_ns) * 100 // S
    assert found == Outage(cause, since_ns, estimated)


def test_a_stream_without_a_rate_has_no_estimate() -> None:
    spec = StreamSpec("imu", SPEC.channels)
    found = find_outage(sensor(device="lost"), spec, account(), 0, 12 * S)
    assert found == Outage("device", 10 * S, None)


def test_the_status_shows_an_outage_while_it_goes_on(rig: Vehicle) -> None:
    rig.run(1)
    status = rig.running.status()
    assert status["sensors"]["cam"]["streams"]["cam"]["outage"] is None, "nothing is recorded"
    rig.ask("start", name="tour")
    rig.run(4)
    assert rig.running.status()["session"]["outages"] == []
    unplugged_ns = rig.clock.monotonic_ns()
    rig.writer.frozen["cam"] = rig.writer.streams()["cam"]
    rig.children["cam"].report("device", state="lost", message="cam: unplugged")
    rig.run(3)
    status = rig.running.status()
    cam = status["sensors"]["cam"]["streams"]["cam"]
    assert cam["outage"]["cause"] == "device" and status["session"]["outages"] == ["cam"]
    offset_ns = status["session"]["offset_ns"]
    assert abs(cam["outage"]["since_ns"] - offset_ns - unplugged_ns) < S // 2
    assert cam["outage"]["estimated"] == pytest.approx(90, abs=15), "three seconds of 30 Hz"
    assert status["sensors"]["lidar"]["streams"]["lidar"]["outage"] is None
    assert "device outage for " in format_status(status)
    counted = 'recorder_stream_uncounted_losses_total{sensor="cam",stream="cam"} 1'
    assert counted in render(status), "counted before the device is back"
    row = Summary().note(status, {}, time.monotonic_ns())["streams"]["cam"]
    assert row["outage"] == cam["outage"]
    note = Timeline().note(cam["outage"]["since_ns"] + 5 * S, _outages(status))
    since, until = (str(cam["outage"]["since_ns"] + s * S) for s in (0, 5))
    assert note["streams"] == {"cam": [[since, until, "unknown"]]}
    del rig.writer.frozen["cam"]
    rig.children["cam"].report("device", state="present", message="")
    rig.run(1)
    assert rig.running.status()["session"]["outages"] == []


def test_a_sensor_that_has_declared_nothing_has_its_outage_too(tmp_path: Path) -> None:
    with vehicle(tmp_path) as rig:
        rig.arms, rig.writer.rates = False, {"lidar": 10.0}
        rig.daemon()
        rig.run(0.2)
        rig.children["lidar"].arm()
        rig.children["cam"].report("device", state="absent", message="cam: no such device")
        rig.run(1)
        rig.ask("start", name="tour")
        rig.run(2)
        status = rig.running.status()
        cam = status["sensors"]["cam"]
        assert cam["streams"] == {} and cam["outage"]["cause"] == "absent"
        assert cam["outage"]["estimated"] is None and status["session"]["outages"] == ["cam"]
        assert Summary().note(status, {}, 0)["streams"]["cam"]["outage"] == cam["outage"]
        assert 'recorder_stream_outage_seconds{sensor="cam",stream="cam"}' in render(status)


def test_info_of_a_session_whose_outage_has_not_ended(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", 2.0)
    builder.add(camera_spec(), 8.0)
    for t_s, cause in ((1.0, "lost"), (1.5, "present"), (2.5, "lost")):
        at_ns = START_NS + round(t_s * S)
        builder.events.append(make_event("device", at_ns, "imu", cause, detail="unplugged"))
    path = builder.close("recording")
    (interval,) = lost_of(path)
    assert interval["cause"] == "device"
    assert interval["duration_ns"] == pytest.approx(6 * S, abs=S // 10), "to the latest sample"
    assert interval["estimate"] == pytest.approx(600, abs=10)
    assert brief(path)["lost_intervals"] == 1 and brief(path)["verdict"] == "FAIL"
    errors = [problem.message for problem in validate(path).problems]
    assert errors == [error for error in errors if "not closed" in error]
    with (path / "_recorder" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begun_ns = time.monotonic_ns() - 20 * S  # the session goes on, on this machine's clock
        rewrite_header(path, start_mono_ns=begun_ns)
        (interval,) = lost_of(path)
    assert interval["duration_ns"] >= 17 * S, "up to now"


def lost_of(path: Path) -> list[dict[str, Any]]:
    with Session(path) as session:
        found: list[dict[str, Any]] = summarize(session)["streams"]["imu"]["lost_intervals"]
    return found
