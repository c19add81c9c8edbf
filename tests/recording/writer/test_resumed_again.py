"""A writer that dies while it closes a session, and its successor, which dies as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.common.files import PosixDisk
from recorder.recording.writer.recovery import recover
from recorder.session import layout
from recorder.session.journal.journal import read_journal
from recorder.session.validation import validate
from tests.manual_clock import ManualClock
from tests.recording.writer.digested import Drive
from tests.recording.writer.test_digested_session import counts, killed


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drive:
    """Every format has its end, durably; the session is not closed."""
    drive = Drive(tmp_path)
    drive.second()
    drive.second()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(layout, "write_session_json", interrupt)
        drive.writer.close("clean")
    drive.die()
    return drive


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def wrong(session: Path) -> list[str]:
    found = [p.message for p in validate(session).problems if p.severity == "error"]
    return [message for message in found if "was not closed" not in message]


@pytest.mark.parametrize("flushed", [False, True])
def test_a_successor_dies_before_its_first_commit(finished: Drive, flushed: bool) -> None:
    finished.go_on()
    if flushed:  # over where an index was
        finished.send("camera", 30)
        finished.send("lidar", 30)
        finished.flush()
    finished.die()
    if not flushed:
        assert not wrong(finished.path)
    finished.go_on()
    finished.second()
    assert not wrong(finished.path)
    finished.close()
    assert validate(finished.path, deep=True).sound
    assert counts(finished.path) == finished.sent


def test_recovery_after_a_successor_that_died(finished: Drive) -> None:
    finished.go_on()
    finished.send("camera", 30)
    finished.send("lidar", 30)
    finished.flush()
    finished.die()
    recover(finished.path, PosixDisk(), ManualClock(99_000_000_000))
    assert counts(finished.path) == finished.sent
    report = validate(finished.path, deep=True)
    assert report.sound, report.problems


def recover_again(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery is killed between its commit and ``session.json``; then comes another one."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(layout, "write_session_json", interrupt)
        recover(session, PosixDisk(), ManualClock(98_000_000_000))
    recover(session, PosixDisk(), ManualClock(99_000_000_000))


def test_an_epoch_that_only_samples_tell_of_outlives_a_killed_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Drive(tmp_path)
    drive.second()
    journal = layout.private(drive.path, layout.JOURNAL)
    committed = journal.read_bytes()
    drive.restart_drivers()
    drive.send("camera", 3)
    drive.send("lidar", 2)
    drive.flush()
    drive.die()
    journal.write_bytes(committed)  # the records of the restart did not reach the disk
    recover_again(drive.path, monkeypatch)
    assert counts(drive.path) == drive.sent
    report = validate(drive.path, deep=True)
    assert report.sound, report.problems
    assert [len(runs) for runs in read_journal(journal).epochs.values()] == [2, 2]


def test_an_epoch_whose_samples_are_gone_outlives_a_killed_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Drive(tmp_path)
    drive.second()
    kept = drive.sent["lidar"] - 2
    drive.restart_drivers()
    drive.second()
    drive.die()
    with (drive.path / "lidar/seq").open("r+b") as file:
        file.truncate(8 * kept)
    recover_again(drive.path, monkeypatch)
    assert counts(drive.path) == drive.sent | {"lidar": kept}
    report = validate(drive.path, deep=True)
    assert report.sound, report.problems


def test_a_tail_is_of_one_writer(tmp_path: Path) -> None:
    """A power cut may leave one file as the resumed writer wrote it, and another as it was before.

    The digests of both writers are on the disk: either file is as it was written, by its writer.
    """
    drive = killed(tmp_path)
    before = drive.path / "lidar/ts"
    stale = before.read_bytes()
    entries = [(drive.path / "_recorder" / name).read_bytes() for name in layout.TAILS]
    drive.clock.advance(1.5)
    drive.go_on()
    drive.send("lidar", 3)
    drive.send("camera", 4)
    drive.flush()
    drive.die()
    assert len(before.read_bytes()) == len(stale) and before.read_bytes() != stale
    before.write_bytes(stale)
    for name, data in zip(layout.RECOVERY_TAILS, entries, strict=True):
        (drive.path / "_recorder" / name).write_bytes(data)
    report = recover(drive.path, PosixDisk(), ManualClock(9_000_000_000), boot="another")
    assert not wrong(drive.path)
    assert report.streams["lidar"].kept == drive.committed["lidar"]
    assert report.streams["camera"].kept == drive.sent["camera"], "its files are of one writer"
