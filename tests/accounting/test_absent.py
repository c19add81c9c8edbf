"""A sensor that gave a session nothing is a loss of the whole session, wherever one looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.bus.wire import Kind, Message
from recorder.cli import main
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import PosixDisk
from recorder.recording.writer.disk_policy import read_ending
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.journal.journal import read_journal
from recorder.session.layout import SessionPlan
from recorder.session.missing_sensors import find_absent_streams
from recorder.session.reader import Session
from recorder.session.summary import brief, summarize
from recorder.session.validation import validate
from tests.manual_clock import ManualClock
from tests.support.events import events

IMU = StreamSpec("imu", (ChannelSpec("value", "raw", "f4", (1,)),), rate_hz=10.0)
SENSORS: dict[str, Any] = {
    "imu": {"driver": "xsens", "source": "serial", "streams": ["imu"]},
    "cam": {"driver": "camera", "source": "v4l2", "streams": []},
    "lidar": {"driver": "ouster", "source": "ouster", "streams": ["lidar", "lidar_imu"]},
}
MISSING = ["cam", "lidar", "lidar_imu"]


def begin(root: Path, clock: ManualClock) -> SessionWriter:
    plan = SessionPlan(
        str(root), "s", False, "version: 1\n", sensors=json.loads(json.dumps(SENSORS))
    )
    return SessionWriter.create(PosixDisk(), plan, clock)


def record_imu(writer: SessionWriter, clock: ManualClock, epoch: int = 1) -> None:
    """Five seconds of the one sensor that is there."""
    writer.declare(IMU, "imu")
    times = clock.monotonic_ns() + np.arange(1, 51) * 100_000_000
    frames = [np.zeros(50, "<f4").tobytes()]
    writer.append(Message(Kind.DATA, "imu", epoch, 0, 0, 50, times, frames=frames))
    writer.append(Message(Kind.END, "imu", epoch, 1, 50, values={"reason": "stopped"}))
    clock.advance(5.0)
    writer.commit()


def intervals(path: Path) -> dict[str, Any]:
    with Session(path) as session:
        summary = summarize(session)
    assert summary["problems"] == []
    return {n: (s["samples"], s["lost_intervals"]) for n, s in summary["streams"].items()}


def assert_told(path: Path, duration_ns: int | None = 5_000_000_000) -> None:
    """`info`, `list` and `validate` show the three streams that nobody gave."""
    found = intervals(path)
    assert sorted(found) == [*MISSING[:1], "imu", *MISSING[1:]]
    assert found["imu"] == (50, [])
    for name in MISSING:
        samples, (interval,) = found[name]
        assert (samples, interval["cause"]) == (0, "absent")
        assert interval["duration_ns"] == duration_ns
    line = brief(path)
    assert line["streams"] == sorted(found)
    assert (line["lost"], line["lost_intervals"]) == (0, 3)
    accounts = {a.stream: a for a in validate(path).accounts}
    assert sorted(accounts) == sorted(found) or duration_ns is None
    for name in MISSING:
        account = accounts[name]
        assert (account.stored, account.ended, account.fault) == (0, "absent", None)
        assert "uncounted loss (absent)" in str(account)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    clock = ManualClock(10**12)
    writer = begin(tmp_path, clock)
    record_imu(writer, clock)
    writer.close("clean")
    return writer.path


def test_sensors_that_never_came_are_rows_with_one_interval(closed: Path) -> None:
    assert_told(closed)
    assert validate(closed).sound
    assert sorted(e["stream"] for e in events(closed, type="lost")) == MISSING
    assert [p.name for p in sorted(closed.iterdir()) if p.is_dir()] == ["_recorder", "imu"]


def test_the_writer_tells_them_to_whoever_asks_how_the_session_ended(closed: Path) -> None:
    how = read_ending(closed)
    assert how is not None
    for name in MISSING:
        account = how.streams[name]
        assert (account["samples"], account["unknown_losses"], account["ended"]) == (
            0,
            1,
            "absent",
        )
    assert read_journal(closed / "_recorder/commits").closed == "clean"


def test_the_command_line_shows_them(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(closed)]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert rows["cam"].split()[1] == "0" and "1 uncounted interval (absent)" in rows["cam"]
    assert main(["list", str(closed.parent)]) == 0
    out = capsys.readouterr().out
    assert "cam imu lidar lidar_imu" in out and "0 + ?" in out
    assert main(["validate", str(closed)]) == 0
    out = capsys.readouterr().out
    assert "account  cam: 0 stored + 0 lost" in out and "(absent)" in out
    assert main(["info", str(closed), "--format", "json"]) == 0
    cam = json.loads(capsys.readouterr().out)["streams"]["cam"]
    assert cam["samples"] == 0 and [i["cause"] for i in cam["lost_intervals"]] == ["absent"]


def test_a_session_without_the_event_shows_them_too(closed: Path) -> None:
    log = closed / "_recorder/events.jsonl"
    log.write_text("".join(s + "\n" for s in log.read_text().splitlines() if '"lost"' not in s))
    assert_told(closed)


def test_a_session_that_is_open_shows_who_has_declared_nothing(tmp_path: Path) -> None:
    clock = ManualClock(10**12)
    writer = begin(tmp_path, clock)
    record_imu(writer, clock)
    account = intervals(writer.path)
    (interval,) = account["cam"][1]
    assert (interval["cause"], interval["duration_ns"]) == ("absent", None)
    assert account["lidar"] == (0, []), "declared: its first samples may be on their way"
    writer.abandon()


def test_recovery_tells_them_once(tmp_path: Path) -> None:
    clock = ManualClock(10**12)
    writer = begin(tmp_path, clock)
    record_imu(writer, clock)
    writer.abandon()
    recover(writer.path, PosixDisk(), clock)
    with Session(writer.path) as session:
        assert session.end_ns is not None and session.start_ns is not None
        assert_told(writer.path, session.end_ns - session.start_ns)


def test_a_death_between_the_last_commit_and_the_end_tells_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(10**12)
    writer = begin(tmp_path, clock)
    record_imu(writer, clock)

    def die(state: str, end_ns: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "_describe", die)
    with pytest.raises(KeyboardInterrupt):
        writer.close("clean")
    writer.abandon()
    recover(writer.path, PosixDisk(), clock)
    assert_told(writer.path)


def test_a_sensor_that_comes_late_is_not_absent(tmp_path: Path) -> None:
    clock = ManualClock(10**12)
    writer = begin(tmp_path, clock)
    record_imu(writer, clock)
    spec = StreamSpec("cam", IMU.channels, rate_hz=10.0)
    writer.declare(spec, "cam")
    times = clock.monotonic_ns() + np.arange(1, 3) * 100_000_000
    frames = [np.zeros(2, "<f4").tobytes()]
    writer.append(Message(Kind.DATA, "cam", 5, 0, 0, 2, times, frames=frames))
    writer.append(Message(Kind.END, "cam", 5, 1, 2, values={"reason": "stopped"}))
    writer.close("clean")
    account = intervals(writer.path)
    assert account["cam"][0] == 2 and "absent" not in {i["cause"] for i in account["cam"][1]}
    with Session(writer.path) as session:
        assert session.sensors()["cam"] == ["cam"]


def test_a_stream_belongs_to_the_sensor_with_the_longest_name() -> None:
    sensors: dict[str, list[str]] = {"cam": [], "cam_left": [], "gps": ["fixes"]}
    assert find_absent_streams(sensors, ["cam_left", "fixes"]) == {"cam": ["cam"]}
    assert find_absent_streams(sensors, ["cam_depth"]) == {
        "cam_left": ["cam_left"],
        "gps": ["fixes"],
    }
