"""A mistake that is often made gets one line that says what was probably meant."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from recorder.cli import main
from tests.session.build import Builder, imu_spec

CONFIG = "version: 1\nsensors:\n  front: {{driver: {driver}, source: {source}}}\n"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("vaildate", "did you mean 'validate'?"),
        ("mine.yaml", "did you mean 'recorder run mine.yaml'?"),
        ("drive.mcap", "did you mean 'recorder import drive.mcap'?"),
        ("sessions", "did you mean 'recorder info sessions' or 'recorder list sessions'?"),
        ("qqq", "'qqq' is not a verb; 'recorder --help' lists the verbs"),
    ],
)
def test_an_unknown_verb_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    word: str,
    meant: str,
) -> None:
    (tmp_path / "sessions").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main([word]) == 2
    captured = capsys.readouterr()
    assert meant in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_the_bare_command_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Look at sessions:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("driver", "source", "meant"),
    [
        ("camera", "drive.mp4", "did you mean 'file:drive.mp4'?"),
        ("camera", "/dev/video0", "did you mean 'v4l2:/dev/video0'?"),
        ("camera", "drive.mcap", "did you mean 'mcap:drive.mcap'?"),
        ("camera", "drive_0.db3", "did you mean 'bag:drive_0.db3'?"),
        ("camera", "sim", "did you mean 'sim:'?"),
        ("ouster", "data/sweeps.pcap", "did you mean 'pcap:data/sweeps.pcap'?"),
        ("can", "can0", "did you mean 'can:can0'?"),
        ("camera", "front", "is not of the form SCHEME:ADDRESS; driver 'camera' takes"),
    ],
)
def test_a_source_without_its_scheme(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], driver: str, source: str, meant: str
) -> None:
    config = tmp_path / "rig.yaml"
    config.write_text(CONFIG.format(driver=driver, source=source))
    assert main(["run", str(config)]) == 2
    error = capsys.readouterr().err
    assert meant in error and f"{config}:3: sensors.front.source" in error


@pytest.mark.parametrize("verb", [["info"], ["export"], ["replay"]])
def test_a_root_in_place_of_a_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(imu_spec(), 0.1)
    builder.close()
    more = ["imu", "--to", "csv"] if verb == ["export"] else []
    assert main([*verb, str(tmp_path), *more]) == 1
    error = capsys.readouterr().err
    assert f"holds one session, such as {tmp_path / 'drive'}" in error
    assert f"`recorder list {tmp_path}`" in error


def test_control_without_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as dead:  # a daemon that was killed leaves its socket
        dead.bind(str(place))
    for path in (tmp_path / "none.sock", place):
        assert main(["start", "--socket", str(path)]) == 1
        error = capsys.readouterr().err
        assert f"{path}: no daemon runs here" in error and "`recorder serve CONFIG`" in error


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may become another user")
def test_control_without_the_right_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()
        place.chmod(0o660)
        for folder in tmp_path.parents:
            if folder.name.startswith("pytest"):
                folder.chmod(0o755)
        tmp_path.chmod(0o755)
        os.seteuid(65534)
        try:
            code = main(["status", "--socket", str(place)])
        finally:
            os.seteuid(0)
    assert code == 1
    assert "usermod -aG recorder" in capsys.readouterr().err
