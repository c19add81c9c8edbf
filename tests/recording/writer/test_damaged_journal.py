"""A damaged record of the journal takes only itself."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.common.errors import SessionError
from recorder.common.files import PosixDisk
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.journal.frames import MAX_BODY, Frame, encode_frame
from recorder.session.journal.journal import read_journal, walk_journal
from recorder.session.validation import validate
from tests.manual_clock import ManualClock
from tests.recording.writer.digested import Drive
from tests.recording.writer.test_digested_session import COMMITS, counts, flip, killed

FIRST_LEAVES, BEFORE_LAST, LAST = 0, -2, -1


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    """A killed writer's session: leaves every second, and two commits behind the last ones."""
    drive = Drive(tmp_path_factory.mktemp("left"))
    for commits in (5, 5, 5, 5, 2):
        drive.second(commits)
    drive.die()
    return drive


@pytest.fixture
def session(left: Drive, tmp_path: Path) -> Path:
    return shutil.copytree(left.path, tmp_path / "drive")


def with_leaves(session: Path) -> list[Frame]:
    frames = walk_journal(session / COMMITS)
    return [f for f, content, _ in frames if f.kind == "commit" and "leaves" in content]


def damage(session: Path, which: int) -> None:
    frame = with_leaves(session)[which]
    flip(session / COMMITS, (frame.start + frame.end) // 2)


def called_wrong(session: Path) -> list[str]:
    """What is said of files whose bytes are right."""
    return [
        p.message
        for p in validate(session).problems
        if "as it was" in p.message or "as they were" in p.message or "committed last" in p.message
    ]


@pytest.mark.parametrize("which", [FIRST_LEAVES, BEFORE_LAST, LAST])
def test_a_damaged_record_of_leaves_costs_recovery_no_sample(
    session: Path, left: Drive, which: int
) -> None:
    damage(session, which)
    report = recover(session, PosixDisk(), ManualClock(99_000_000_000))
    assert [stream.damaged for stream in report.streams.values()] == [None, None]
    assert counts(session) == left.committed
    assert not called_wrong(session)


@pytest.mark.parametrize("which", [FIRST_LEAVES, BEFORE_LAST, LAST])
def test_a_writer_goes_on_behind_a_damaged_record_of_leaves(
    session: Path, left: Drive, which: int
) -> None:
    damage(session, which)
    writer = SessionWriter.resume(PosixDisk(), session, left.clock)
    assert {n: p["samples"] for n, p in writer.positions().items()} == left.committed
    writer.close("clean")
    assert counts(session) == left.committed
    assert not called_wrong(session)


def test_bytes_that_do_not_match_are_cut_also_behind_a_damaged_record(
    session: Path, left: Drive
) -> None:
    """A later leaf that does not match is evidence, whatever was lost before it."""
    damage(session, BEFORE_LAST)
    flip(session / "lidar/raw", read_journal(session / COMMITS).leaves["lidar/raw"].end - 1)
    recover(session, PosixDisk(), ManualClock(99_000_000_000))
    kept = counts(session)
    assert kept["lidar"] < left.committed["lidar"] and kept["camera"] == left.committed["camera"]


PACKED_WRONG: dict[str, Callable[[], bytes]] = {
    "not packed": lambda: b"no zlib at all",
    "half of it": lambda: zlib.compress(bytes(100_000))[:-20],
    "zeros, more than may be": lambda: zlib.compress(bytes(MAX_BODY + 1), 1),
}


@pytest.mark.parametrize("wrong", PACKED_WRONG)
def test_a_snapshot_that_cannot_be_unpacked_is_refused_with_one_message(
    session: Path, wrong: str
) -> None:
    path = session / COMMITS
    link = read_journal(path).link
    packed = PACKED_WRONG[wrong]()
    path.write_bytes(path.read_bytes() + encode_frame("snapshot", packed, link))
    with pytest.raises(SessionError, match="not of this version"):
        read_journal(path)
    assert not validate(session).sound


# A writer that refuses to go on


@pytest.mark.parametrize("wrong", ["flipped", "short", "gone"])
def test_a_writer_that_does_not_go_on_has_cut_nothing(tmp_path: Path, wrong: str) -> None:
    """What follows the last commit is still there for recovery, which can prove it."""
    drive = killed(tmp_path)
    journal = read_journal(drive.path / COMMITS)
    path = drive.path / "lidar/raw"
    match wrong:
        case "flipped":
            flip(path, journal.files["lidar/raw"] - 1)
        case "short":
            path.write_bytes(path.read_bytes()[: journal.files["lidar/raw"] - 1])
        case _:
            path.unlink()
    files = [drive.path / name for name in [*journal.files, COMMITS]]
    before = {p: p.read_bytes() for p in files if p.exists()}
    with pytest.raises(SessionError) as caught:
        SessionWriter.resume(PosixDisk(), drive.path, drive.clock)
    assert wrong != "flipped" or "do not hold what was committed" in str(caught.value)
    assert {p: p.read_bytes() for p in files if p.exists()} == before


def test_the_torn_end_of_a_journal_is_kept_beside_the_session(session: Path) -> None:
    """It may be all that is left of a commit that nobody was told of."""
    with (session / COMMITS).open("ab") as file:
        file.write(b"a record that was not whole")
    whole = (session / COMMITS).read_bytes()
    recover(session, PosixDisk(), ManualClock(99_000_000_000))
    kept = [path.read_bytes() for path in (session / "_recorder" / "salvage").rglob("*")
            if path.is_file() and COMMITS.rpartition("/")[2] in path.name]  # fmt: skip
    assert any(b"a record that was not whole" in one and one in whole for one in kept)
