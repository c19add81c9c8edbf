"""`recorder start`, `stop`, `status`, `mark` and `keep` against a daemon without processes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recorder.bus.control.server import Call, ControlServer
from recorder.cli import main
from tests.recording.daemon.fakes import Vehicle, make_session, vehicle


class Command:
    """The command line of a user, and the vehicle that it is for."""

    def __init__(self, rig: Vehicle, socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.rig = rig
        self.socket = socket
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main([*words, "--socket", str(self.socket)])
        out, err = self._capsys.readouterr()
        return code, out, err


@pytest.fixture
def recorder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    with vehicle(tmp_path) as rig:
        rig.daemon()
        rig.run(1)

        def take(call: Call) -> None:
            rig.running.take(call)
            while not call.answered:  # the server's thread is the daemon's here
                rig.running.turn(0.1)

        server = ControlServer(tmp_path / "c.sock", take, lambda: rig.running.state)
        server.start()
        try:
            yield Command(rig, server.path, capsys)
        finally:
            server.close()


def test_a_session_by_the_command_line(recorder: Command) -> None:
    code, out, err = recorder("start", "--name", "tour", "--meta", "driver=ada", "--meta", "n=a=b")
    assert (code, err) == (0, "")
    assert out == f"recording  {recorder.rig.root}/tour\n"
    (plan,) = [c["plan"] for c in recorder.rig.writer.commands if c["op"] == "start"]
    assert plan["metadata"] == {"vehicle": "rig-1", "driver": "ada", "n": "a=b"}
    assert recorder("mark", "pothole")[0] == 0
    assert recorder.rig.writer.events["tour"][0]["text"] == "pothole"
    recorder.rig.run(4)
    code, out, _ = recorder("status")
    assert code == 0
    assert "state     recording for " in out and "session   tour\n" in out
    cam = next(line.split() for line in out.splitlines() if line.startswith("cam"))
    assert cam[:3] == ["cam", "armed", "cam"] and cam[4:7] == ["Hz", "30", "Hz"]
    code, out, _ = recorder("stop", "--format", "json")
    assert code == 0
    reply = json.loads(out)
    assert (reply["ok"], reply["state"]) == (True, "idle")
    assert reply["closed"]["session"] == f"{recorder.rig.root}/tour"
    assert "last      " in recorder("status")[1]


def test_refusals_reach_the_user(recorder: Command) -> None:
    assert recorder("stop") == (1, "", "recorder stop: nothing is being recorded\n")
    code, out, err = recorder("stop", "--format", "json")
    assert code == 1 and err and json.loads(out)["ok"] is False
    make_session(recorder.rig.root / "tour")
    code, _, err = recorder("start", "--name", "tour")
    assert code == 2 and "exists" in err
    assert recorder("start", "--name", "../x")[0] == 2
    assert recorder("start", "--meta", "novalue")[0] == 2
    assert recorder("start", "--meta", "a=1", "--meta", "a=2")[0] == 2
    assert recorder("start", "--meta", "a=x\ny")[0] == 2
    assert recorder("mark", "")[0] == 2
    assert recorder("mark", "x")[0] == 1
    assert recorder.rig.running.state == "idle"


@pytest.mark.parametrize(
    ("losses", "text"),
    [
        ({"lost": {"buffer": 3}}, "buffer 3"),
        ({"lost": {}, "unknown_losses": 1}, " MB  1 uncounted"),
    ],
)
def test_a_stop_after_loss_says_so(recorder: Command, losses: dict[str, Any], text: str) -> None:
    recorder("start")
    recorder.rig.run(1)
    recorder.rig.writer.frozen["cam"] = recorder.rig.writer.streams()["cam"] | losses
    code, out, _ = recorder("stop")
    (row,) = [line for line in out.splitlines() if line.startswith("cam ")]
    assert code == 3 and row.endswith(text), row


def test_a_stop_after_a_fault_says_so(recorder: Command) -> None:
    recorder("start")
    recorder.rig.run(1)
    recorder.rig.running.supervisor.faults.append("cam: is not there")
    code, out, _ = recorder("stop")
    assert code == 3 and "fault: cam: is not there" in out


def test_keep_by_folder_and_by_name(recorder: Command) -> None:
    path = make_session(recorder.rig.root / "tour")
    marker = path / "_recorder/keep"
    assert recorder("keep", "tour")[0] == 0 and marker.exists()
    assert recorder("keep", "tour", "--release")[0] == 0 and not marker.exists()
    code, out, _ = recorder("keep", str(path), "--format", "json")
    assert code == 0 and marker.exists()
    assert json.loads(out) == {"session": str(path), "kept": True}
    assert recorder("keep", "none")[0] == 1
    assert recorder("keep", str(recorder.rig.root / "none"))[0] == 1


def test_faults_are_shown(recorder: Command) -> None:
    recorder.rig.children["cam"].report("device", state="lost", message="cam: unplugged")
    recorder.rig.run(1)
    code, out, _ = recorder("start")
    assert code == 0 and "fault     cam: unplugged\n" in out
    assert "fault     cam: unplugged\n" in recorder("status")[1]


def test_no_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--socket", str(tmp_path / "none.sock")]) == 1
    assert "no daemon runs here" in capsys.readouterr().err
    assert main(["status", "--socket", "tcp://127.0.0.1:1"]) == 2
    assert "--keys" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"url": "http://127.0.0.1:8377/", "fault": None}, "live      http://127.0.0.1:8377/\n"),
        ({"url": None, "fault": "ended with code 1"}, "live      ended with code 1\n"),
        ({"url": None, "fault": None}, "live      starting\n"),
    ],
)
def test_the_status_shows_where_the_streams_are_seen(
    recorder: Command, values: dict[str, str | None], shown: str
) -> None:
    assert "live  " not in recorder("status")[1]
    status = values | {"pid": None, "restarts": 0}
    recorder.rig.running.live = SimpleNamespace(status=lambda: status)  # type: ignore[assignment]
    assert shown in recorder("status")[1]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_status_is_shown_again_and_again_until_ctrl_c(
    recorder: Command, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("recorder.cli.control.time", SimpleNamespace(sleep=sleep))
    code, out, err = recorder("status", "--watch", "0.5", "--format", form)
    assert (code, err, slept) == (0, "", [0.5] * 3)
    if form == "json":
        assert [json.loads(line)["state"] for line in out.splitlines()] == ["idle"] * 3
    else:
        assert out.count("state     idle for ") == 3 and out.count("\n\nstate") == 2
        assert recorder("status")[1].count("state     idle for ") == 1
    for wrong in ("0", "x", "nan", "1e9"):
        assert recorder("status", "--watch", wrong)[0] == 2


def test_at_a_terminal_the_status_is_drawn_over_itself(
    recorder: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def sleep(_: float) -> None:
        if terminal.getvalue().count("state     idle") == 2:
            raise KeyboardInterrupt

    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("recorder.cli.control.time", SimpleNamespace(sleep=sleep))
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("LINES", "5")
    assert main(["status", "--watch", "--socket", str(recorder.socket)]) == 0
    first, second = terminal.getvalue().split("\x1b[4A")
    assert first.count("\n") == second.count("\n") == 4, "as many lines as the terminal has room"
    assert all(len(line) < 50 + len("\x1b[2K") for line in first.splitlines())
