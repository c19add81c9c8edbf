"""``recorder run`` with ``report: true``: the report is there when the command ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.cli import post_session
from recorder.recording.postprocessing.steps import find_due
from recorder.session.outputs import read_summary
from tests.acceptance.command import Ran, assert_sound, here, write_config

IMU = 'imu: {driver: xsens, source: "sim:", pace: max}'


def record(folder: Path, *more: str) -> Ran:
    config = write_config(folder / "c.yaml", IMU)
    config.write_text(config.read_text() + "report: true\n")
    where = ("--root", folder / "root", "--name", "s", "--duration", 1)
    return here("run", config, *where, *more)


def test_a_recording_has_its_report_and_the_root_its_index(tmp_path: Path) -> None:
    ran = record(tmp_path)
    assert (ran.code, ran.complaints) == (0, [])
    report = tmp_path / "root/s/report.html"
    assert ran.out.splitlines()[-1] == f"report {report}"
    summary = read_summary(report)
    assert summary is not None
    assert (summary.state, summary.verdict, summary.reasons) == ("clean", "PASS", ())
    assert summary.samples == 100
    assert 'href="s/report.html"' in (tmp_path / "root/index.html").read_text()
    assert_sound(tmp_path / "root/s")


@pytest.mark.campaign
def test_no_finalize_makes_none_and_no_later_daemon_does(tmp_path: Path) -> None:
    ran = record(tmp_path, "--no-finalize", "--format", "json")
    assert (ran.code, ran.result["report"]) == (0, None)
    assert not list((tmp_path / "root").rglob("*.html"))
    due = find_due(tmp_path / "root/s", frozenset())
    assert due is not None and not due.unfinished


@pytest.mark.campaign
def test_a_report_that_fails_is_told_and_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeds = post_session.run_separately

    def fails(module: str, *arguments: str) -> bool:
        return arguments[:1] != ("report",) and succeeds(module, *arguments)

    monkeypatch.setattr(post_session, "run_separately", fails)
    ran = record(tmp_path, "--format", "json")
    session = tmp_path / "root/s"
    assert (ran.code, ran.result["exit_code"], ran.result["report"]) == (1, 0, None)
    complaint = f"{session}: recorded, but its report could not be made; see `recorder report`"
    assert complaint in ran.err
    assert ran.result["streams"]["imu"]["samples"] == 100
    assert_sound(session)
