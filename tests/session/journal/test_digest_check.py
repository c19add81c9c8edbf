"""The check of a session's digests: its progress, and the root of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.session.journal import checks
from recorder.session.journal.frames import decode_frames, encode_frame
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


def test_a_root_of_other_digests_is_an_error(tmp_path: Path) -> None:
    path = Vehicle(tmp_path, None).record("drive")
    journal = path / "_recorder/commits"
    data = journal.read_bytes()
    close = next(frame for frame in decode_frames(data) if frame.kind == "close")
    forged = encode_frame("close", {**close.content, "root": bytes(32)}, close.previous)
    journal.write_bytes(data[: close.start] + forged)
    with Session(path) as session:
        report = Report(path, session.name)
        checks.check_digests(session, report, lambda _: None)
    (problem,) = report.problems
    assert problem.message == f"{journal}: its digests are not those it was closed with"
