"""``recorder report``: a session, a session that is open, a root, and what goes wrong."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import recorder.viewers.report
from recorder.cli import main
from recorder.common.errors import RecorderError, StorageError
from recorder.common.files import PosixDisk
from recorder.session.checksums import write_checksums
from recorder.session.outputs import read_summary
from recorder.session.summary import brief
from recorder.session.validation import validate
from recorder.viewers.report.report_index import write_index
from tests.session.build import Builder, imu_spec
from tests.viewers.report.index_rig import make_report, make_session


@pytest.fixture(autouse=True)
def not_idle(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The priority of the tests' own process stays; a list of who would have lowered it."""
    calls: list[bool] = []
    monkeypatch.setattr("recorder.common.syscalls.be_idle", lambda: calls.append(True))
    return calls


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_session(tmp_path_factory.mktemp("recorded") / "drive", seconds=0.3, lost=2)
    write_checksums(path)
    return path


@pytest.fixture
def session(recorded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded, tmp_path / "root" / "drive")


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    code = main(["report", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def result(capsys: pytest.CaptureFixture[str], *argv: object) -> Any:
    code, out, err = run(capsys, *argv, "--format", "json")
    assert code == 0, err
    return json.loads(out)


def test_a_session_has_its_report_and_stays_what_it_was(
    session: Path, capsys: pytest.CaptureFixture[str], not_idle: list[bool]
) -> None:
    before = brief(session)
    code, out, err = run(capsys, session)
    report = session / "report.html"
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "verdict  FAIL" and lines[-1].startswith(f"report   {report} (")
    assert any("samples lost (imu): 2 of 32" in line and "refused" in line for line in lines)
    assert report.stat().st_mode & 0o777 == 0o640 and not_idle == [True]
    assert validate(session, deep=True).problems == []
    after = brief(session)
    assert after.pop("bytes") == before.pop("bytes") + report.stat().st_size and after == before
    summary = read_summary(report)
    assert summary is not None and (summary.state, summary.samples) == ("clean", 30)


def test_json_and_a_file_elsewhere(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "for the stick.html"
    found = result(capsys, session, "--out", out)
    assert found["report"] == str(out) and found["session"] == str(session)
    assert found["bytes"] == out.stat().st_size and found["index"] is None
    assert found["verdict"] == "FAIL" and "refused" in found["reasons"][0]
    assert not (session / "report.html").exists()


def test_an_index_of_the_root_on_request(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = result(capsys, session, "--index")
    index = session.parent / "index.html"
    assert found["index"] == str(index) and 'href="drive/report.html"' in index.read_text()


def test_a_session_that_is_being_recorded_is_reported_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = Builder(tmp_path / "open")
    builder.add(imu_spec(), 0.2)
    builder.close("recording")
    lock = os.open(builder.path / "_recorder/lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    code, out, err = run(capsys, builder.path)
    os.close(lock)
    assert code == 0 and out.startswith("verdict  PASS\n")
    assert err == (
        f"{builder.path}: is being recorded or repaired: the report has the data so far\n"
    )
    summary = read_summary(builder.path / "report.html")
    assert summary is not None and (summary.state, summary.verdict) == ("recording", "PASS")


def test_a_session_is_locked_while_it_is_read(
    session: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery and retention take the lock for themselves; another report waits its turn."""
    refused: list[int | None] = []

    def write_report(path: Path, out: Path | None, progress: Any) -> Path:
        for place, flags in ((path / "_recorder/lock", os.O_RDWR), (path, os.O_RDONLY)):
            fd = os.open(place, flags)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                refused.append(error.errno)
            os.close(fd)
        progress("half", 0.5)
        make_report(path)
        return path / "report.html"

    monkeypatch.setattr(recorder.viewers.report, "write_report", write_report)
    assert run(capsys, session)[0] == 0
    assert refused == [errno.EWOULDBLOCK, errno.EWOULDBLOCK]


def test_the_root_has_its_index_and_the_reports_that_were_missing(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = session.parent
    make_report(make_session(root / "fresh"))
    make_report(make_session(root / "outdated"), state="recording")
    damaged = make_session(root / "damaged")
    (damaged / "_recorder/session.json").write_text("{")
    elsewhere = make_session(root.parent / "elsewhere")
    (root / "link").symlink_to(elsewhere)
    fresh = (root / "fresh/report.html").read_bytes()
    code, out, err = run(capsys, root)
    assert code == 0 and str(damaged) in err
    assert out == f"{root}/index.html: 5 sessions: 2 FAIL, 3 PASS\n"
    found = result(capsys, root, "--missing")
    names = ("damaged", "drive", "outdated")
    assert found["reports"] == [str(root / name / "report.html") for name in names]
    assert (found["sessions"], found["failed"]) == (5, [])
    assert (root / "fresh/report.html").read_bytes() == fresh
    assert not (elsewhere / "report.html").exists(), "nothing is written through a link"
    assert result(capsys, root, "--missing")["reports"] == []


def test_a_report_that_fails_costs_no_other_and_not_the_index(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = session.parent
    blocked = make_session(root / "blocked")
    (blocked / "report.html.tmp").mkdir()
    code, out, err = run(capsys, root, "--missing")
    assert code == 1 and f"{session}/report.html\n" in out
    assert f"recorder report: {blocked}/report.html: cannot be written: Is a directory" in err
    assert (root / "index.html").is_file()
    assert run(capsys, blocked)[0] == 1


def test_what_cannot_be_reported(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(session)
    nowhere, root = tmp_path / "nowhere", session.parent
    expected: dict[tuple[object, ...], tuple[int, str]] = {
        (nowhere,): (1, f"{nowhere}: no such folder"),
        (tmp_path / "root/drive/config.yaml",): (1, "config.yaml: no such folder"),
        (session / "imu",): (1, "is no session, and there are no sessions in it"),
        (link,): (1, "is a symbolic link to"),
        (session, "--missing"): (2, "is a session; name the root of the sessions"),
        (root, "--index"): (2, "is no session; its index is written anyway"),
        (session, "--out", tmp_path): (2, "is a folder; name a file in it"),
        (session, "--out", nowhere / "r.html"): (2, f"there is no folder {nowhere}"),
        (session, "--format", "xml"): (2, "invalid choice"),
    }
    for argv, (code, text) in expected.items():
        found, out, err = run(capsys, *argv)
        assert (found, out) == (code, "") and text in err, argv
    assert not list(tmp_path.rglob("*.html"))
    assert run(capsys, link, "--out", tmp_path / "r.html")[0] == 0


def test_an_older_report_stays_where_the_new_one_cannot_be_written(
    session: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_report(session)
    before = (session / "report.html").read_bytes()

    def full(self: PosixDisk, path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PosixDisk, "write_file", full)
    code, out, err = run(capsys, session)
    assert (code, out) == (1, "")
    assert err == (
        f"recorder report: {session}/report.html: cannot be written: No space left on device\n"
    )
    assert (session / "report.html").read_bytes() == before


def test_two_at_a_time_write_one_after_the_other(session: Path) -> None:
    """The temporary file has one name: two writers at a time would publish half a file."""
    from recorder.cli.report import _lock_folder

    inside, seen = threading.Event(), []

    def second() -> None:
        inside.wait()
        with _lock_folder(session):
            seen.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with _lock_folder(session):
        inside.set()
        thread.join(0.1)
        seen.append("first")
    thread.join()
    assert seen == ["first", "second"]
    with pytest.raises(StorageError, match="cannot be read"), _lock_folder(session / "none"):
        raise AssertionError


def test_errors_of_the_index_are_the_projects_own(tmp_path: Path) -> None:
    (tmp_path / "index.html").mkdir()
    make_session(tmp_path / "s")
    with pytest.raises(RecorderError, match=r"index\.html: cannot be written"):
        write_index(tmp_path)


def test_a_report_replaces_no_file_of_a_session(
    capsys: pytest.CaptureFixture[str], session: Path, tmp_path: Path
) -> None:
    """``--out`` names a file in a session: of this one, of its neighbour, or behind a link."""
    neighbour = make_session(session.parent / "other", seconds=0.1)
    (tmp_path / "link").symlink_to(session)
    config = (session / "config.yaml").read_bytes()
    for path, out, folder in (
        (session, session / "config.yaml", session),
        (session, session / "imu" / "ts", session),
        (session, session / "new.html", session),
        (session, neighbour / "report.html", neighbour),
        (session, tmp_path / "link" / "config.yaml", session),
        (session.parent, session / "config.yaml", session),
        (session.parent, session / "report.html", session),
    ):
        existed = out.exists()
        code, printed, err = run(capsys, path, "--out", out)
        assert (code, printed) == (2, ""), out
        assert err == (
            f"recorder report: --out {out}: is in the session {folder}; name another place\n"
        )
        assert out.exists() == existed
    assert (session / "config.yaml").read_bytes() == config
    assert not (session / "report.html").exists()
    assert run(capsys, session, "--out", tmp_path / "link" / "report.html")[0] == 0
    assert run(capsys, session.parent, "--out", session.parent / "index.html")[0] == 0
