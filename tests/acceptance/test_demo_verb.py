"""``recorder demo``: from nothing to a report, in an empty folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from recorder.cli import main
from recorder.cli.demo import CONFIG, _find_packable
from recorder.recording.supervisor.driver_registry import load
from recorder.session.outputs import read_summary
from tests.acceptance.command import DEADLINE_S, RECORDER, assert_nothing_lost
from tests.support.waiting import wait_until

STEPS = ["run", "validate", "finalize", "report", "info", "list"]


@pytest.mark.campaign(weight=11)
def test_it_records_until_ctrl_c_and_then_packs_and_reports(tmp_path: Path) -> None:
    """Ctrl-C, which a terminal sends to the whole group, ends the recording and not the demo."""
    with subprocess.Popen(
        [RECORDER, "demo", "--duration", "3600", "--no-browser"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        for sensor in ("camera", "lidar"):  # each archive needs one of them at least
            ts = wait_until(f"the {sensor}", partial(_find_recorded, tmp_path, sensor, process))
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out
    session = ts.parents[1]
    commands = [line.split() for line in out.splitlines() if line.startswith("$ recorder ")]
    assert [words[2] for words in commands] == STEPS
    packed = commands[2][-1].split(",")
    assert sorted(packed) == ["edgefirst", "l5kit", "mcap", "ncore", "vrs"]
    for archive in packed:
        assert list((session / "_archives" / archive).iterdir()), archive
    summary = read_summary(session / "report.html")
    assert summary is not None and summary.state == "clean"
    late = ("below the minimum rate", "ends early")  # a busy machine simulates slower than time
    assert all(reason.startswith(late) for reason in summary.reasons)
    assert (summary.verdict == "PASS") == (not summary.reasons)
    assert_nothing_lost(session)
    assert out.splitlines()[-1].startswith(f"{session.name}  clean ")


def test_an_archive_whose_packages_are_missing_is_left_out_and_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith(("mcap.", "recorder.formats.mcap", "recorder.archives.mcap")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcap", None)  # an import of it raises
    names = _find_packable(load(CONFIG))
    assert sorted(names) == ["edgefirst", "l5kit", "ncore", "vrs"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("recorder demo: mcap is not packed: ") and "archives]" in line


def test_it_ends_with_the_first_step_that_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file")
    assert main(["demo", str(tmp_path / "taken"), "--duration", "1", "--no-browser"]) == 1
    out, err = capfd.readouterr()
    assert [line.split()[2] for line in out.splitlines() if line.startswith("$ ")] == ["run"]
    assert "taken" in err


def _find_recorded(folder: Path, sensor: str, process: subprocess.Popen[str]) -> Path | None:
    """The sensor's times below ``demo``, where there are some."""
    assert process.poll() is None, process.communicate()[0]
    found = (folder / "demo").glob(f"*/{sensor}/ts")
    return next((path for path in found if path.stat().st_size), None)
