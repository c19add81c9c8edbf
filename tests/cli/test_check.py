"""``recorder check``: all that is wrong, where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recorder.bus.control.addresses import check_socket
from recorder.bus.control.keys import make_keys
from recorder.cli import main
from recorder.config.settings import StorageSettings
from recorder.recording import preflight
from recorder.recording.host import disk
from recorder.recording.host.disk import FileSystem
from recorder.recording.preflight import check_root
from recorder.recording.ring import capacity

CONFIG = """\
version: 1
session: {root: out/sessions}
storage: {min_free_gb: 0.001}
sensors:
  lidar: {driver: fakes.good, source: "sim:", fps: 20}
  cam: {driver: fakes.good, source: "sim:"}
"""
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the disk with fewer bytes."""
    measured = partial(disk.measure, most_bytes=1)
    monkeypatch.setattr(disk, "measure", measured)


def check(folder: Path, text: str, *options: str) -> tuple[int, Path]:
    path = folder / "rig.yaml"
    path.write_text(text)
    return main(["check", str(path), *options]), path


def test_all_is_well(fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = check(tmp_path, CONFIG)
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, "")
    lines = captured.out.splitlines()
    assert lines[0].split() == ["sensor", "stream", "channels", "Hz", "MB/s"]
    assert lines[1].split() == ["lidar", "lidar", "rng", "u2[128,", "1024]", "lzmaf", "20", "1.00"]
    assert lines[2].split() == ["temperature", "f4", "raw"]
    assert "together  1.50 MB/s expected" in lines
    assert f"root      {tmp_path / 'out/sessions'} (not there yet)" in lines
    (disk,) = (line for line in lines if line.startswith("disk "))
    assert re.fullmatch(r"disk +\w+, takes [\d.]+ MB/s, a sync \d+ ms at the most", disk)
    assert lines[-1] == "all is well"
    assert not (tmp_path / "out").exists()


def test_a_drivers_warning_is_shown_and_is_no_problem(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CONFIG.replace('fakes.good, source: "sim:", fps', 'fakes.good, source: "sim:slow", fps')
    code, _ = check(tmp_path, text)
    assert code == 0
    assert "warning: sensors.lidar: slow at net://user:***@host" in capsys.readouterr().out


def test_as_json(fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out/sessions").mkdir(parents=True)
    text = CONFIG + "metrics: {port: 1234}\n"
    code, path = check(tmp_path, text, "--format", "json")
    captured = capsys.readouterr()
    report: dict[str, Any] = json.loads(captured.out)
    assert code == 0 and report["ok"] and report["problems"] == []
    assert report["config"] == str(path)
    assert [s["name"] for s in report["sensors"]] == ["lidar", "cam"]
    [stream] = report["sensors"][0]["streams"]
    assert stream["channels"][0]["shape"] == [128, 1024]
    assert (stream["rate_hz"], stream["bytes_per_second"]) == (20.0, 1_000_000.0)
    assert report["bytes_per_second"] == 1_500_000.0
    root = report["root"]
    assert root["exists"] and root["min_free_bytes"] == 1_000_000
    expected = (root["free_bytes"] - 1_000_000) / 1_500_000
    assert root["seconds_left"] == pytest.approx(expected)
    assert list((tmp_path / "out/sessions").iterdir()) == []
    assert captured.err == ""
    assert root["measured"]["bytes_per_second"] > 0 and root["file_system"]
    assert isinstance(report["clocks"]["summary"], str)


def test_every_problem_is_told(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").touch()
    text = (
        CONFIG.replace('"sim:"}\n', '"sim:code=2"}\n')
        + '  device: {driver: fakes.good, source: "net:code=1"}\n'
        + '  twin: {driver: fakes.good, source: "sim:lidar"}\n'
    )
    code, path = check(tmp_path, text)
    captured = capsys.readouterr()
    assert code == 2
    assert captured.err.splitlines() == [
        f"recorder check: {path}:6: sensors.cam.source: cannot open net://user:***@host (code=2)",
        f"recorder check: {path}:7: sensors.device.source: cannot open net://user:***@host "
        "(code=1)",
        f"recorder check: {path}:8: sensors.twin: its stream 'lidar' is also one of the sensor "
        "'lidar'",
        f"recorder check: {path}:2: session.root: {tmp_path / 'out'} is not a folder",
    ]
    assert "does not open" in captured.out and "all is well" not in captured.out


def test_two_sensors_at_one_port(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, path = check(tmp_path, CONFIG.replace('"sim:"', '"sim:ports"'))
    assert code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"recorder check: {path}:6: sensors.cam: it receives at UDP port {port}, as does the "
        "sensor 'lidar'; give one of them other ports"
        for port in (7502, 7503)
    ]


@pytest.mark.parametrize(("address", "expected"), [("code=1", 1), ("code=2", 2), ("crash", 1)])
def test_exit_codes(fakes: Path, tmp_path: Path, address: str, expected: int) -> None:
    code, _ = check(tmp_path, CONFIG.replace('"sim:"}\n', f'"sim:{address}"}}\n'))
    assert code == expected


def test_a_record_format_stream_that_no_driver_gives(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, path = check(tmp_path, CONFIG + "record_format: {streams: [lidar, lidar_imu]}\n")
    assert code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == (
        f"recorder check: {path}:7: record_format.streams[1]: no sensor gives a stream 'lidar_imu'"
    )


def test_a_bad_config_is_one_line(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, path = check(tmp_path, CONFIG.replace("fps", "fsp"), "--format", "json")
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err == (
        f"recorder check: {path}:5: sensors.lidar.fsp: unknown key for driver 'fakes.good' "
        "(did you mean 'fps'?)\n"
    )


def test_an_interrupt_ends_the_drivers(fakes: Path, tmp_path: Path) -> None:
    (tmp_path / "rig.yaml").write_text(CONFIG.replace("good", "stuck").replace(", fps: 20", ""))
    command = [sys.executable, "-m", "recorder", "check", str(tmp_path / "rig.yaml")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    note = fakes / "pid"
    while not (note.exists() and note.read_text().endswith("\n")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (1, b"")
    assert stderr == b"recorder check: interrupted\n"
    assert not is_running(int(note.read_text()))


def is_running(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has reaped yet does not."""
    try:
        stat = (Path("/proc") / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


STORAGE = StorageSettings(200, 1.0, 256.0, require_mount=False)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(10**10, 0, 999_999_999))
    report = check_root(tmp_path, STORAGE)
    assert report.free_bytes == 999_999_999
    assert report.problem is not None and "less than storage.min_free_gb (1)" in report.problem
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(10**10, 0, 10**9))
    assert check_root(tmp_path, STORAGE).problem is None


def test_a_root_that_cannot_be_written_to(tmp_path: Path) -> None:
    report = check_root(Path("/proc/recordings"), STORAGE)  # as root too: no files are made there
    assert report.problem is not None
    assert report.problem.startswith("/proc/recordings cannot be written to: ")
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        problem = check_root(root, STORAGE).problem
        assert problem == f"{tmp_path / 'file'} is not a folder"
    too_long = check_root(tmp_path / ("x" * 300), STORAGE)
    assert too_long.problem is not None and "File name too long" in too_long.problem


def test_a_volume_that_is_not_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = StorageSettings(200, 0.0, 256.0, require_mount=True)
    root = tmp_path / "disk" / "sessions"
    monkeypatch.setattr(preflight, "file_system", lambda path: None)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == Path("/"))
    report = check_root(root, storage)
    assert report.problem == f"{root} is on no mounted volume, and storage.require_mount is set"
    monkeypatch.setattr(Path, "is_mount", lambda path: path in (tmp_path, Path("/")))
    assert check_root(root, storage).problem is None


def test_what_control_needs_is_told_before_the_daemon_needs_it(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    text = CONFIG + "control: {tcp: '127.0.0.1:5557', curve_keys: keys}\n"
    keys.mkdir()
    code, _ = check(tmp_path, text)
    assert code == 2 and "keys/server.key_secret: no key can be read" in capsys.readouterr().err
    make_keys(keys)
    assert check(tmp_path, text)[0] == 0
    assert check(tmp_path, CONFIG + "control: {tcp: '127.0.0.1:5557'}\n")[0] == 2


def test_a_daemon_that_accepts_nobody_is_waited_for_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []
    connect = socket.socket.connect

    def noted(self: socket.socket, address: Any) -> None:
        waits.append(self.gettimeout())
        connect(self, address)

    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        monkeypatch.setattr(socket.socket, "connect", noted)
        assert check_socket(path) is None
    assert waits == [1.0]


def test_a_control_socket_that_cannot_be_used_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("RECORDER_SOCKET", raising=False)
    path = tmp_path / "run/c.sock"
    assert check_socket(path) is None
    assert "--socket" in str(check_socket(None, tmp_path / "none/there/c.sock"))
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert check_socket(path) is None  # a dead daemon's
        listener.listen()
        assert check_socket(path) is None

    def forbidden(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", forbidden)
    assert "group recorder" in str(check_socket(path))
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    assert "cannot be written to" in str(check_socket(tmp_path / "other/c.sock"))


def test_what_the_live_process_will_find(
    fakes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        text = CONFIG + f"live: {{port: {port}}}\n"
        code, path = check(tmp_path, text)
        out = capsys.readouterr().out
        assert code == 0 and "live      its extra is installed, its port cannot be" in out
        assert f"warning: live.port: cannot listen on 127.0.0.1 port {port}: Address" in out
    check(tmp_path, text, "--format", "json")
    report = json.loads(capsys.readouterr().out)
    assert report["live"] == {"installed": True, "port_free": True}
    monkeypatch.setattr(preflight, "LIVE_MODULES", ("json", "no_such_web_server"))
    code, _ = check(tmp_path, text)
    out = capsys.readouterr().out
    assert code == 0 and "live      its extra is not installed, its port can be" in out
    assert "warning: live: needs the extra live" in out and "no no_such_web_server" in out
    (tmp_path / "no.pem").write_text("nothing")
    text = CONFIG + "live: {port: 0, certificate: no.pem, key: no.pem}\n"
    code, _ = check(tmp_path, text)
    error = capsys.readouterr().err
    assert code == 2 and error.startswith(f"recorder check: {path}:7: live.certificate: cannot be")


def test_a_token_that_is_not_encrypted_is_a_warning(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CONFIG + 'live: {port: 0, bind: "0.0.0.0", token: s3cret-s3cret-s3cret}\n'
    assert check(tmp_path, text)[0] == 0
    out = capsys.readouterr().out
    assert "warning: live.bind: without live.certificate the token" in out and "s3cret" not in out


RING = (
    CONFIG
    + """\
ring: {seconds: %s, gb: %s, part: 10}
triggers:
  hit: {when: "cam.rate > 1", before: %s}
"""
)


def test_a_ring_must_hold_what_a_trigger_asks_for(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 1.5 MB/s; two parts of 10 s, and 7 s for late samples and triggers, beside `before`.
    code, path = check(tmp_path, RING % (60, 0.08, 30))
    text = "ring.gb: 0.08 GB is too small for 30 s before triggers.hit: that takes 0.09 GB"
    assert code == 2 and f"{path}:7: {text}" in capsys.readouterr().err
    code, _ = check(tmp_path, RING % (60, 0.1, 30))
    assert code == 0
    assert "ring.gb: 60 s take 0.13 GB: the ring will be shorter" in capsys.readouterr().out
    code, _ = check(tmp_path, RING % (60, 0.2, 30))
    assert code == 0 and "ring.gb" not in capsys.readouterr().out
    code, path = check(tmp_path, RING % (60, 1, 90))
    text = "triggers.hit.before: 90 s is longer than the ring (ring.seconds)"
    assert code == 2 and text in capsys.readouterr().err
    code, _ = check(tmp_path, RING.replace("out/sessions", "out, split: {minutes: 1}") % (60, 1, 9))
    assert code == 2
    assert "a ring has parts of its own length: session.split must not be set" in (
        capsys.readouterr().err
    )
    ring = RING.replace("ring: {", f"ring: {{medium: ram, folder: {tmp_path}/./out/sessions, ")
    code, path = check(tmp_path, ring % (60, 1, 9))
    assert code == 2 and "ring.folder: is session.root, too" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("camm.rate > 1", "when: camm.rate: there are only the streams cam, lidar"),
        ("cam.speed > 1", "when: cam.speed: cam has only the channels rng, temperature"),
        ("cam.temperature[0] > 1", "when: cam.temperature[0]: is one number, without an index"),
        ("cam.rng[0, 1] > 1", "when: cam.rng[0, 1]: is not a small channel of raw numbers"),
        ("True', until: 'lost.state.x", "until: lost.state.x: there are only the streams"),
        ("cam.temperature > 1 and session.events.clock > 0", None),
    ],
)
def test_a_condition_that_could_never_be_met_is_a_problem(
    fakes: Path,
    tmp_path: Path,
    condition: str,
    text: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistyped name would leave the trigger silent for ever."""
    code, _ = check(tmp_path, CONFIG + f"triggers:\n  hit: {{when: '{condition}'}}\n")
    assert code == (2 if text else 0)
    assert f"triggers.hit.{text}" in capsys.readouterr().err if text else True


def test_a_ring_in_ram_needs_a_tmpfs_of_its_size(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ram"
    text = CONFIG + f"ring: {{seconds: 60, gb: 1, medium: ram, folder: {folder}}}\n"
    kind, size, memory = "tmpfs", 0, 0

    def system(path: Path) -> FileSystem:
        return FileSystem(path, kind, "x", None)

    monkeypatch.setattr(capacity, "file_system", system)
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(size, 0, 10**12))
    monkeypatch.setattr(capacity, "_memory_bytes", lambda: memory)
    size, memory = 130_000_000, 270_000_000  # 1.5 MB/s for 60 + 20 + 7 s are 0.1305 GB
    assert check(tmp_path, text)[0] == 2
    assert f"{folder} has 0.13 GB, 60 s take 0.13 GB" in capsys.readouterr().err
    size = 131_000_000
    assert check(tmp_path, text)[0] == 0, capsys.readouterr().err
    memory = 260_000_000
    assert check(tmp_path, text)[0] == 2
    assert "ring.seconds: 60 s in RAM take 0.13 GB, more than half" in capsys.readouterr().err
    kind = "ext4"
    assert check(tmp_path, text)[0] == 2
    assert f"{folder} is not in RAM, its file system is ext4" in capsys.readouterr().err


def test_secrets_that_an_upload_would_bring_along(
    fakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = "{vehicle: 7, modem: {pin: 1234, cells: 3}, proxy: 'http://u:Zx9@h/', token: }"
    text = CONFIG.replace("out/sessions}", f"out/sessions, metadata: {metadata}}}")
    assert check(tmp_path, text)[0] == 0
    assert "like a secret" not in capsys.readouterr().out
    assert check(tmp_path, f"{text}upload: {{url: 'file:///media/disk'}}\n")[0] == 0
    out = capsys.readouterr().out
    assert "warning: session.metadata: modem.pin, proxy looks like a secret: archives mask" in out
    assert "Zx9" not in out and "1234" not in out
