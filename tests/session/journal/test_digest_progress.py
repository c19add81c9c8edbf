"""How far the check of a session's digests is."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.session.journal import checks
from recorder.session.reader import Session
from recorder.session.validation_report import Report
from tests.integrity.vehicle import Vehicle


def test_progress_comes_to_what_was_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_BLOCK", 4096)
    path = Vehicle(tmp_path, None).record("drive")
    with Session(path) as session:
        report, advanced = Report(path, session.name), list[int]()
        announced = checks.digest_ticks(session)
        checks.check_digests(session, report, advanced.append)
    assert report.sound
    assert len(advanced) > 10
    assert sum(advanced) == announced
