"""``recorder recover`` as its user meets it."""

from __future__ import annotations

import hashlib
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recorder.cli import main
from recorder.common.clock import SystemClock
from recorder.common.files import PosixDisk
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.journal.frames import MARKER
from recorder.session.journal.journal import read_journal
from recorder.session.layout import SessionPlan
from recorder.session.validation import validate
from tests.acceptance.command import PROJECT, namespace
from tests.faults.long_session import COMMITS, SAMPLES, TAIL, long_session
from tests.faults.numbers import message, stored, stream
from tests.manual_clock import ManualClock

A = stream("a", 100.0, ("raw", "lzmaf"))


def begun(root: Path, name: str, ended: bool = False, **plan: Any) -> SessionWriter:
    """A session with ten committed samples and one that is not."""
    clock = ManualClock(5_000_000_000)
    planned = {"config_text": "v: 1\n", "record_format": ["a"]} | plan
    writer = SessionWriter.create(PosixDisk(), SessionPlan(str(root), name, True, **planned), clock)
    writer.declare(A)
    for number in range(11):
        if number == 10 and not ended:
            writer.commit()
        clock.advance(0.01)
        item = message(A, [number], clock.monotonic_ns())
        item.epoch, item.number, item.seq = 7, number, number
        writer.append(item)
    return writer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Clean, killed, torn, and what is no session of ours."""
    root = tmp_path / "root"
    begun(root, "clean", ended=True).close("clean")
    begun(root, "killed").abandon()
    torn = begun(root, "torn")
    torn.abandon()
    with (torn.path / "a/packed").open("ab") as file:
        file.write(b"half a sample")
    (root / "garbage").mkdir()
    (root / "garbage/notes.txt").write_text("mine")
    (root / "trace").mkdir()
    (root / "trace/config.yaml").write_text("sensors: {}\n")
    (root / "file").write_text("no folder")
    return root


def contents(folder: Path) -> dict[str, str]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {str(p.relative_to(folder)): hashlib.md5(p.read_bytes()).hexdigest() for p in files}


def ask(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, Any, list[str]]:
    code = main(["recover", *map(str, args), "--format", "json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else None, captured.err.splitlines()


def test_a_root(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = begun(root, "live")
    code, result, said = ask(capsys, root)
    reports = {Path(s["session"]).name: s for s in result["sessions"]}
    assert code == 3
    assert {name: r["action"] for name, r in reports.items()} == {
        "clean": "none",
        "killed": "recovered",
        "torn": "recovered",
    }
    assert {name: r["lost"] for name, r in reports.items()} == {
        "clean": False,
        "killed": True,
        "torn": True,
    }
    assert reports["torn"]["streams"]["a"]["cut_bytes"] == {"packed": 13}
    assert reports["torn"]["streams"]["a"]["kept"] == 11
    assert [line for line in said if "live" in line] == [f"{root}/live: is being recorded; skipped"]
    assert not [line for line in said if "Traceback" in line]
    for name in ("killed", "torn"):
        assert stored(root / name, "a") == list(range(11))
        assert validate(root / name, deep=True).sound
    assert (root / "torn/_recorder/salvage/a/packed@").parent.is_dir()

    before = contents(root)
    assert ask(capsys, root)[0] == 0  # nothing left to do
    assert contents(root) == before
    live.close("clean")
    assert stored(root / "live", "a") == list(range(11))  # nobody touched it


@pytest.mark.parametrize("ended", [False, True])
def test_simulated_sessions_get_their_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ended: bool
) -> None:
    """Also one that was closed before the recorder was killed."""
    config = 'sensors: {a: {driver: xsens, source: "sim:"}}\n'
    sensors = {"a": {"driver": "xsens", "source": "sim", "streams": ["a"]}}
    writer = begun(tmp_path, "s", ended, config_text=config, sensors=sensors)
    if ended:
        writer.close("clean")
    else:
        writer.abandon()
    main(["recover", str(tmp_path), "--dry-run"])
    assert not (tmp_path / "s/_pose").exists()
    main(["recover", str(tmp_path)])
    assert (tmp_path / "s/_pose/meta.json").is_file()
    assert (tmp_path / "s/calibration.yaml").is_file()
    before = contents(tmp_path)
    assert main(["recover", str(tmp_path)]) == 0
    assert contents(tmp_path) == before
    capsys.readouterr()


def test_the_text(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recover", str(root)]) == 3
    text = capsys.readouterr().out
    assert f"{root}/killed: recovered (its writer was killed)" in text
    assert "1 closed already: nothing to do" in text
    assert "13 B" in text
    assert main(["recover", str(root / "clean")]) == 0


def test_what_cannot_be(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = begun(root, "live")
    for path, text in (
        (root / "live", "another writer has this session open"),
        (root / "garbage", "neither a session nor a folder of sessions"),
        (root / "absent", "cannot be listed"),
        (root / "trace", "not a session of the recorder"),
    ):
        assert main(["recover", str(path)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"recorder recover: {path}") and text in line, line
    live.abandon()
    journal = root / "killed/_recorder/commits"
    journal.write_bytes(journal.read_bytes().replace(MARKER, b"xxxx"))
    before = contents(root / "killed")
    code, result, said = ask(capsys, root)
    assert code == 1  # and the others are recovered all the same
    assert {Path(s["session"]).name for s in result["sessions"]} == {"clean", "live", "torn"}
    assert [s for s in said if "not one whole record" in s]
    assert contents(root / "killed") == before


def test_a_dry_run_changes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(root)
    code, dry, _ = ask(capsys, root, "--dry-run")
    assert code == 3 and contents(root) == before
    _, real, _ = ask(capsys, root)
    for was, would in zip(real["sessions"], dry["sessions"], strict=True):
        assert was["streams"] == would["streams"] and was["lost"] == would["lost"]
        assert (was["action"], would["action"]) in {("none",) * 2, ("recovered", "would recover")}


def test_a_dry_run_on_a_read_only_mount(root: Path) -> None:
    words = namespace()
    if words is None:
        pytest.skip("needs to mount (root, or user namespaces), which is refused here")
    before = contents(root)
    script = f'mount --bind {root} {root} && mount -o remount,ro,bind {root} && exec "$@"'
    command = [sys.executable, "-m", "recorder", "recover", str(root), "--format", "json"]
    done = subprocess.run(
        [*words, "sh", "-c", script, "sh", *command, "--dry-run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert len(json.loads(done.stdout)["sessions"]) == 3
    assert contents(root) == before
    # Without --dry-run it cannot, and says so of each, in a line.
    done = subprocess.run(
        [*words, "sh", "-c", script, "sh", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.count("Read-only file system") == 3, done.stderr
    assert contents(root) == before


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.campaign)])
def test_killed_before_any_of_its_calls_and_run_again(tmp_path: Path, step: int) -> None:
    session = begun(tmp_path / "root", "s")
    other = stream("c", 100.0, ("raw",))
    session.declare(other)
    for number in range(2):  # never committed, and no sample of it is whole
        item = message(other, [number], 5_200_000_000 + number)
        item.epoch, item.number, item.seq = 7, number, number
        session.append(item)
    session.abandon()
    (session.path / "c/ts").write_bytes(b"")
    with (session.path / "a/packed").open("ab") as file:
        file.write(b"x" * 400_000)
    work = tmp_path / "work"
    work.mkdir()
    torn = session.path / "_recorder/b.tmp"  # a stream whose folder was not whole yet
    torn.mkdir()
    (torn / "meta.json").write_text("{}")
    script = [sys.executable, "-m", "tests.faults.killed_recovery", str(session.path)]
    script += [str(work), "1", str(step)]
    done = subprocess.run(script, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    undisturbed, *killed = map(json.loads, done.stdout.splitlines())
    assert undisturbed["kills"] == [] and "_recorder/salvage/a/packed@" in str(undisturbed)
    assert "_recorder/salvage/c/ts" in undisturbed["result"]
    assert len(killed) > 30 // step
    assert sum(len(run["kills"]) == 2 for run in killed) > 15 // step
    for run in killed:
        assert run["result"] == undisturbed["result"], run["kills"]


def test_the_work_goes_by_the_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """360 commits, 3,600 lidar and 10,800 camera frames, 36,000 IMU samples."""
    path = long_session(tmp_path)
    assert read_journal(path / "_recorder/commits").commits == COMMITS + 1
    decoded = []
    real = lzma.decompress

    def decompress(frame: bytes) -> bytes:
        decoded.append(len(frame))
        return real(frame)

    monkeypatch.setattr(lzma, "decompress", decompress)
    report = recover(path, PosixDisk(), SystemClock())
    for name, stream_report in report.streams.items():
        assert stream_report.committed == SAMPLES[name]
        assert stream_report.kept == SAMPLES[name] + TAIL[name]
    assert len(decoded) == TAIL["lidar"]
    salvage = path / "_recorder/salvage"
    assert not list(salvage.iterdir())  # nothing was torn, nothing is copied


def test_a_root_s_links_that_lead_out_of_it_are_left_alone(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "link").symlink_to(root / "killed")
    before = contents(root / "killed")
    code, result, said = ask(capsys, other)
    assert (code, result["sessions"]) == (0, [])
    assert said == [
        f"{other}/link: is a symbolic link to {root}/killed, outside of {other}; skipped"
    ]
    assert contents(root / "killed") == before
