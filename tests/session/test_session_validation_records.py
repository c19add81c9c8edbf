"""Validation of a session's own records: its journal against its files, its checksums."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from recorder.common.files import PosixDisk
from recorder.session.checksums import write_checksums
from recorder.session.journal.journal import JournalWriter, read_journal
from recorder.session.validation import validate
from tests.session.build import frames, full_session


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = full_session(tmp_path_factory.mktemp("root") / "rig", 0.3).path
    write_checksums(path)
    return path


@pytest.fixture
def session(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "rig")


def reported(session: Path, deep: bool = False) -> list[tuple[str, str | None, str]]:
    problems = validate(session, deep).problems
    return [(p.severity, p.stream, p.message.removeprefix(f"{session}/")) for p in problems]


def test_a_closed_session_says_what_was_compared(session: Path) -> None:
    report = validate(session, deep=True)
    assert report.problems == []
    assert "_recorder/commits: 1 commits" in report.checked
    files = sum(path.is_file() for path in session.glob("[!_]*/*")) + 1  # and the config
    assert f"_recorder/checksums.csv: {files} files compared" in report.checked
    (session / "_recorder" / "checksums.csv").unlink()
    assert "_recorder/checksums.csv: none written" in validate(session).checked


def test_the_journal_is_read_to_its_end(session: Path) -> None:
    commits = session / "_recorder" / "commits"
    whole = commits.read_bytes()
    commits.write_bytes(whole + b"0000")
    assert reported(session) == [
        ("error", None, f"_recorder/commits: 4 bytes from byte {len(whole)} on are no record")
    ]
    commits.write_bytes(whole)
    commits.write_bytes(b"".join(frames(commits)[:-1]))
    assert reported(session) == [
        ("warning", None, "_recorder/commits: lacks its last record; run `recorder recover`")
    ]
    state = read_journal(commits)
    writer = JournalWriter(PosixDisk().reopen(commits, state.length), state)
    writer.append("close", state="recovered")
    writer.close()
    ((severity, _, message),) = reported(session)
    assert severity == "error" and "closed as recovered, but session.json says clean" in message
    commits.write_bytes(b"")
    assert reported(session)[0][2].endswith("not one whole record in this journal")
    commits.unlink()
    assert reported(session)[0][2].startswith("_recorder/commits: cannot be read")


def test_epochs_and_declarations_are_those_of_the_journal(session: Path) -> None:
    header = session / "_recorder" / "session.json"
    values = json.loads(header.read_text())
    values["epochs"]["imu"][0]["epoch"] = 12
    values["streams"]["radar"]["rate_hz"] = 25.0
    header.write_text(json.dumps(values))
    assert {(stream, message.rpartition(": ")[2]) for _, stream, message in reported(session)} == {
        ("imu", "epoch 12 from sample 0 on is not in the journal"),
        ("radar", "not declared as session.json has it"),
    }


def test_files_end_where_the_last_commit_says(session: Path) -> None:
    events = session / "_recorder" / "events.jsonl"
    events.write_text('{"type": "mark"}\n')
    assert reported(session)[0][2] == "_recorder/events.jsonl: 17 bytes, where 0 were committed"


@pytest.mark.parametrize("grown", [False, True])
def test_an_open_session_holds_what_was_committed(session: Path, grown: bool) -> None:
    header = session / "_recorder" / "session.json"
    header.write_text(header.read_text().replace('"clean"', '"recording"'))
    commits = session / "_recorder" / "commits"
    commits.write_bytes(b"".join(frames(commits)[:-1]) + b"torn")
    path = session / "imu" / "acc"
    os.truncate(path, path.stat().st_size + (5 if grown else -5))
    messages = [message for _, _, message in reported(session)]
    assert "run `recorder recover`" in messages[0]
    assert messages[1:] == ([] if grown else ["imu/acc: 355 bytes, where 360 were committed"])


def test_a_report_belongs_to_no_data(session: Path) -> None:
    (session / "report.html").write_text("made after the checksums, and again at any time")
    assert reported(session) == [] and validate(session, deep=True).sound
    write_checksums(session)
    (session / "report.html").unlink()
    assert reported(session) == []


def test_checksums(session: Path) -> None:
    path = session / "radar" / "radar.json"
    path.write_text(path.read_text() + "\n")
    assert reported(session) == [], "sizes of intrinsics are not the journal's business"
    ((severity, stream, message),) = reported(session, deep=True)
    assert (severity, stream) == ("error", "radar")
    assert message.startswith("radar/radar.json: has changed since it was closed: MD5 ")
    path.unlink()
    assert ("error", "radar", "radar/radar.json: is missing; checksums.csv lists it") in reported(
        session
    )
    (session / "notes.txt").write_text("dry road\n")
    assert ("warning", None, "notes.txt: is not in checksums.csv") in reported(session)
    (session / "_recorder" / "checksums.csv").write_bytes(b"\xff\x00")
    assert any("checksums.csv: " in message for _, _, message in reported(session))


def test_a_plain_trace_has_no_records_to_check(tmp_path: Path) -> None:
    path = full_session(tmp_path / "plain", 0.3, plain=True).path
    report = validate(path, deep=True)
    assert report.problems == [] and not any("_recorder" in line for line in report.checked)
    data = bytearray((path / "camera" / "video.avi").read_bytes())
    at = data.index(b"avih") + 8 + 16
    data[at : at + 4] = bytes(4)  # the count of frames: other writers leave it as it was
    (path / "camera" / "video.avi").write_bytes(data)
    assert validate(path).problems == []
