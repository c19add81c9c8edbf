"""The live table and its log line, from states made by hand."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from recorder.cli.live_table import LiveView
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.settings import SensorEntry
from recorder.recording.supervisor.sensors import Sensor, Status


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def account(samples: int, size: int, **more: Any) -> dict[str, Any]:
    return {
        "samples": samples,
        "bytes": size,
        "lost": {},
        "unknown_losses": 0,
        "ended": None,
    } | more


def status(seconds: float, streams: dict[str, dict[str, Any]]) -> Status:
    sensor = Sensor(SensorEntry("imu", "xsens", "sim", "", {}), ring_held=25, ring_size=100)
    spec = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,)),), rate_hz=100)
    sensor.specs = {"imu": spec}
    return Status(seconds, Path("sessions/a"), streams, {"imu": sensor})


def test_rates_are_taken_between_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    view = LiveView()
    view(status(1.0, {"imu": account(100, 1_000_000)}))
    now = status(3.0, {"imu": account(296, 5_000_000, lost={"refused": 4})})
    view(now)
    assert view.rows(now) == [["imu", "98.0 Hz", "100 Hz", "296", "2.00", "4", "0", "25%"]]


def test_an_uncounted_loss_and_an_end_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    view = LiveView()
    now = status(1.0, {"imu": account(7, 0, lost={"device": 2}, unknown_losses=1, ended="eof")})
    view(now)
    assert view.rows(now) == [["imu", "ended: eof", "100 Hz", "7", "-", "2+?", "0", "25%"]]


def test_a_sensor_that_is_absent_or_lost_has_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    view = LiveView()
    for seconds in (1.0, 2.0):
        now = status(seconds, {"imu": account(7, 0)})
        now.sensors["imu"].device = "lost"
        now.sensors["cam"] = Sensor(SensorEntry("cam", "camera", "v4l2", "", {}), device="absent")
        view(now)
    assert view.rows(now) == [
        ["imu", "lost", "100 Hz", "7", "0.00", "0", "0", "25%"],
        ["cam", "absent", "-", "0", "-", "0+?", "0", "-"],
    ]


def test_the_table_is_drawn_over_itself_and_a_line_stands_above(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    view = LiveView()
    view(status(1.0, {"imu": account(1, 0)}))
    view(status(2.0, {"imu": account(2, 0)}))
    view.say("imu: driver ended")
    view(status(3.0, {"imu": account(3, 0)}))
    screen: list[str] = []
    row = 0
    for part in terminal.getvalue().split("\x1b["):  # a terminal of two commands: up, clear
        code, text = (part[:2], part[2:]) if part[:1].isdigit() else (part[:1], part[1:])
        if code.endswith("A"):
            row -= int(code[:-1])
        elif code == "J":
            del screen[row:]
        for line in text.splitlines():
            screen[row:] = [line, *screen[row + 1 :]]
            row += 1
    assert [line.split("  ")[0].strip() for line in screen] == [
        "imu: driver ended",
        "a",
        "stream",
        "imu",
    ]
    assert all(len(line) < 30 for line in screen)


def test_elsewhere_it_is_a_log_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("recorder.cli.live_table.time.monotonic", lambda: now[0])
    view = LiveView()
    view(status(1.0, {"imu": account(100, 0)}))
    assert capsys.readouterr().err == ""
    now[0] += 5
    view(status(6.0, {"imu": account(600, 0)}))
    assert capsys.readouterr().err == "6.0 s: imu 600 (100.0 Hz, lost 0)\n"
    now[0] += 5
    holes = {"network": {"samples": 2, "parts": 32}, "corrupt": {"samples": 1, "parts": 3}}
    view(status(11.0, {"imu": account(1100, 0, incomplete=holes)}))
    assert capsys.readouterr().err == "11.0 s: imu 1100 (100.0 Hz, lost 0, 3 incomplete)\n"


def test_an_outage_that_goes_on_is_lost_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    now = status(1.0, {"imu": account(7, 0)})
    now.outages = {"imu": {"cause": "device", "since_ns": 1, "estimated": 100}}
    view = LiveView()
    view(now)
    assert view.rows(now)[0][5] == "0+?"
