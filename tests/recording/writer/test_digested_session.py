"""What is on disk is provable: any bit that changes is found, and only proven bytes are kept."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from recorder.common.files import PosixDisk, Scratch
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.recording.writer.tail_digests import encode_entries
from recorder.session.journal import frames as journal_frames
from recorder.session.journal.digests import Announcement, Leaf
from recorder.session.journal.journal import JournalWriter, read_journal, walk_journal
from recorder.session.validation import validate
from tests.campaigns import Selector
from tests.faults.numbers import stored
from tests.manual_clock import ManualClock
from tests.recording.writer.digested import SPECS, Drive
from tests.support.events import events

COMMITS = "_recorder/commits"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drive = Drive(tmp_path_factory.mktemp("closed"))
    for _ in range(4):
        drive.second()
    drive.close()
    return drive.path


@pytest.fixture
def session(closed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(closed, tmp_path / "drive")


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def errors(session: Path, **how: Any) -> list[Any]:
    return [p for p in validate(session, **how).problems if p.severity == "error"]


def test_a_whole_session_is_sound_and_leaves_nothing_behind(session: Path) -> None:
    report = validate(session)
    assert report.sound, report.problems
    assert any(re.fullmatch(r"digests: \d+ ranges of 13 files", line) for line in report.checked)
    assert not list((session / "_recorder").glob("tail*"))


def growing(session: Path) -> list[str]:
    return sorted(read_journal(session / COMMITS).files)


def test_a_flipped_bit_in_any_committed_byte_is_found(session: Path, select: Selector) -> None:
    """In every file: at its start, its end, and a few places between."""
    found = 0
    for name in growing(session):
        path = session / name
        whole = path.read_bytes()
        places = {0, len(whole) - 1, *range(5, len(whole), max(1, len(whole) // 7))}
        for at in select(sorted(places if whole else ()), 3):
            flip(path, at, at % 8)
            named = [p for p in errors(session) if name in p.message]
            assert named, f"{name} byte {at}"
            path.write_bytes(whole)
            found += 1
    assert found > 30


def test_the_range_and_the_samples_are_named(session: Path) -> None:
    path = session / "lidar/raw"
    flip(path, path.stat().st_size // 2)
    (problem,) = errors(session)
    match = re.search(
        r"bytes (\d+) to (\d+) are not as .* \(samples (\d+) to (\d+)\)", problem.message
    )
    assert match is not None, problem.message
    start, end, first, last = map(int, match.groups())
    assert start <= path.stat().st_size // 2 < end
    assert (start // 256, end // 256 - 1) == (first, last)
    assert last - first + 1 <= 14, "about a second of 10 samples"
    assert (problem.stream, problem.channel, problem.sample) == ("lidar", "raw", first)


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "calibration.yaml", "lidar/meta.json", "_recorder/session.json"],
)
def test_metadata_has_digests_too(session: Path, name: str) -> None:
    path = session / name
    path.write_bytes(path.read_bytes() + b" ")
    (problem,) = errors(session)
    assert problem.message == f"{path}: is not as it was recorded"


def test_a_flipped_bit_in_the_journal_is_found(session: Path, select: Selector) -> None:
    """Every record but the last names the one before; what is damaged is named by its bytes."""
    path = session / COMMITS
    whole = path.read_bytes()
    for at in select(range(3, len(whole), len(whole) // 60), 15):
        flip(path, at)
        assert any(COMMITS in p.message for p in errors(session)), at
        path.write_bytes(whole)


def test_a_record_that_was_made_up_does_not_follow(session: Path) -> None:
    """With a checksum that fits, as somebody would write it who changes a recording."""
    path = session / COMMITS
    frames = [frame for frame, _, _ in walk_journal(path)]
    at = next(i for i, f in enumerate(frames) if f.kind == "epoch")
    forged = dict(frames[at].content) | {"sample": 1}
    data = path.read_bytes()
    frame = journal_frames.encode_frame("epoch", forged, frames[at].previous)
    assert len(frame) == frames[at].end - frames[at].start
    path.write_bytes(data[: frames[at].start] + frame + data[frames[at].end :])
    assert any("does not follow the one before it" in p.message for p in errors(session))


# A killed writer


def killed(root: Path, flushed: bool = True) -> Drive:
    drive = Drive(root)
    for commits in (5, 5, 2):
        drive.second(commits)
    drive.send("lidar", 3)
    drive.send("camera", 4)
    if flushed:
        drive.flush()
    drive.die()
    return drive


def counts(session: Path) -> dict[str, int]:
    numbers = {name: stored(session, name) for name in SPECS}
    assert all(found == list(range(len(found))) for found in numbers.values())
    return {name: len(found) for name, found in numbers.items()}


@pytest.mark.parametrize("boot", [None, "another"])
def test_all_that_the_kernel_had_is_kept_after_a_kill(tmp_path: Path, boot: str | None) -> None:
    """Also under another boot: what has its digest is what was recorded."""
    drive = killed(tmp_path)
    recover(drive.path, PosixDisk(), ManualClock(9_000_000_000), boot=boot)
    assert counts(drive.path) == drive.sent
    assert validate(drive.path, deep=True).sound


@pytest.mark.parametrize("name", ["lidar/raw", "lidar/packed", "lidar/ts", "camera/video.avi"])
def test_a_tail_of_zeros_is_no_sample(tmp_path: Path, name: str) -> None:
    """As a write leaves it that failed: the right length, the wrong bytes, under the same boot."""
    drive = killed(tmp_path)
    path = drive.path / name
    committed = read_journal(drive.path / COMMITS).files[name]
    size = path.stat().st_size
    assert size > committed
    os.truncate(path, committed)
    os.truncate(path, size)
    recover(drive.path, PosixDisk(), ManualClock(9_000_000_000))
    hit = name.partition("/")[0]
    assert counts(drive.path) == {**drive.sent, hit: drive.committed[hit]}
    assert (drive.path / "_recorder/salvage" / f"{name}@{committed}").exists()
    assert validate(drive.path, deep=True).sound


@pytest.mark.parametrize("name", ["lidar/raw", "lidar/packed", "camera/video.avi", "camera/seq"])
@pytest.mark.parametrize("behind_leaves", [False, True])
def test_committed_bytes_that_the_disk_lost_are_counted(
    tmp_path: Path, name: str, behind_leaves: bool
) -> None:
    drive = killed(tmp_path, flushed=False)
    path = drive.path / name
    journal = read_journal(drive.path / COMMITS)
    at = journal.files[name] - 1 if behind_leaves else journal.leaves[name].end - 1
    flip(path, at)
    before = path.read_bytes()
    recover(drive.path, PosixDisk(), ManualClock(9_000_000_000))
    hit = name.partition("/")[0]
    kept = counts(drive.path)
    assert kept == {**drive.committed, hit: kept[hit]} and kept[hit] < drive.committed[hit]
    lost = [e["count"] for e in events(drive.path, cause="damaged")]
    assert lost == [drive.committed[hit] - kept[hit]]
    (salvaged,) = (drive.path / "_recorder/salvage").glob(f"{name}@*")
    assert before.endswith(salvaged.read_bytes()[-100:])
    assert validate(drive.path, deep=True).sound, "session.vrs has the samples that were kept"


@pytest.mark.parametrize("behind_leaves", [False, True])
def test_a_record_file_that_lost_committed_bytes_is_filled_up_again(
    tmp_path: Path, behind_leaves: bool
) -> None:
    drive = killed(tmp_path, flushed=False)
    journal = read_journal(drive.path / COMMITS)
    name = "session.vrs"
    flip(
        drive.path / name, (journal.files[name] if behind_leaves else journal.leaves[name].end) - 9
    )
    report = recover(drive.path, PosixDisk(), ManualClock(9_000_000_000))
    assert report.vrs is not None and report.vrs.damaged
    assert validate(drive.path, deep=True).sound


def test_a_stale_entry_leaves_nothing_out_of_committed_digests(tmp_path: Path) -> None:
    """A killed writer's last entries name patchable ranges of bytes that a resumed one cut."""
    drive = killed(tmp_path, flushed=False)
    path = drive.path / "camera/video.avi"
    journal = read_journal(drive.path / COMMITS)
    start, end = journal.leaves["camera/video.avi"].end, journal.files["camera/video.avi"]
    assert start < end, "the last commit has no leaf of it"
    stale = Announcement(path, Leaf(start, end + 500, b"?" * 32), ((start + 10, 4),))
    with (drive.path / "_recorder/tail.0").open("wb") as tail:
        tail.write(encode_entries(drive.path, [stale], 0))
    report = recover(drive.path, PosixDisk(), ManualClock(90_000_000_000))
    kept = {name: (stream.kept, stream.damaged) for name, stream in report.streams.items()}
    assert kept == {name: (count, None) for name, count in drive.committed.items()}
    assert not errors(drive.path)


def test_where_salvage_cannot_be_written_nothing_is_cut(tmp_path: Path) -> None:
    drive = killed(tmp_path)
    os.truncate(drive.path / "lidar/raw", read_journal(drive.path / COMMITS).files["lidar/raw"])
    before = {p: p.read_bytes() for p in drive.path.glob("*/*") if p.is_file()}

    class Full(PosixDisk):
        def write_file(self, path: Path, data: bytes) -> None:
            if "salvage" in path.parts:
                raise OSError(28, "No space left on device", str(path))
            super().write_file(path, data)

    with pytest.raises(OSError, match="No space left"):
        recover(drive.path, Full(), ManualClock(9_000_000_000))
    after = {p: p.read_bytes() for p in drive.path.glob("*/*") if p.is_file()}
    assert {p: d for p, d in after.items() if p in before} == before


# A writer that goes on


def test_a_resumed_session_is_sound(tmp_path: Path) -> None:
    drive = killed(tmp_path)
    drive.go_on()
    drive.second()
    drive.second()
    drive.close()
    assert validate(drive.path, deep=True).sound, validate(drive.path, deep=True).problems
    assert counts(drive.path) == drive.sent


def test_what_was_reported_after_the_last_commit_is_void_for_a_resumed_writer(
    tmp_path: Path,
) -> None:
    """A driver's start that no commit has is reported anew; its first record must not count."""
    drive = killed(tmp_path)
    drive.writer = SessionWriter.resume(PosixDisk(), drive.path, drive.clock)
    drive.writer.abandon()
    kinds = [frame.kind for frame, _, _ in walk_journal(drive.path / COMMITS)]
    assert kinds[-2:] == ["open", "resume"]
    state = read_journal(drive.path / COMMITS)
    writer = JournalWriter(PosixDisk().reopen(drive.path / COMMITS, state.length), state)
    writer.append("epoch", stream="lidar", epoch=8, sample=5)
    writer.append("resume")
    writer.append("epoch", stream="lidar", epoch=8, sample=9)
    writer.close()
    assert read_journal(drive.path / COMMITS).epochs["lidar"] == [(7, 0), (8, 9)]


def test_what_a_damaged_last_record_committed_goes_to_salvage(tmp_path: Path) -> None:
    drive = killed(tmp_path, flushed=False)
    path = drive.path / COMMITS
    last = [frame for frame, _, _ in walk_journal(path)][-1]
    assert last.kind == "commit"
    flip(path, last.end - 1)
    before = read_journal(path).files["lidar/raw"]
    data = (drive.path / "lidar/raw").read_bytes()
    writer = SessionWriter.resume(PosixDisk(), drive.path, drive.clock)
    writer.abandon()
    kept = drive.path / "_recorder/salvage/lidar" / f"raw@{before}"
    assert data[before:] and kept.read_bytes() == data[before:]


# A session that is taken away


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("lidar/raw", "was removed while it was recorded"),
        ("camera/ts", "was replaced while it was recorded"),
        ("_recorder/commits", "was removed while it was recorded"),
        ("", "was removed while it was recorded"),
    ],
)
def test_files_that_are_taken_away_are_a_fault_at_the_next_commit(
    tmp_path: Path, what: str, said: str
) -> None:
    drive = Drive(tmp_path)
    drive.second()
    durable = dict(drive.writer.durable)
    path = drive.path / what
    if not what:
        drive.path.rename(tmp_path / "elsewhere")
    elif "replaced" in said:
        shutil.copy(path, path.with_name("copy"))
        path.with_name("copy").replace(path)
    else:
        path.unlink()
    drive.send("lidar", 1)
    with pytest.raises(OSError, match=said) as failed:
        drive.writer.commit()
    assert what in str(failed.value)
    assert drive.writer.durable == durable
    drive.writer.abandon()


class CountingDisk(PosixDisk):
    """Counts what is written to scratch files."""

    writes = 0

    def scratch(self, path: Path) -> Scratch:
        made = super().scratch(path)
        write = made.write

        def counted(offset: int, data: bytes) -> None:
            self.writes += 1
            write(offset, data)

        made.write = counted  # type: ignore[method-assign]
        return made


def test_a_commit_writes_the_digests_of_all_its_files_at_once(tmp_path: Path) -> None:
    disk = CountingDisk()
    drive = Drive(tmp_path, disk)
    drive.second()
    drive.send("lidar", 2)
    drive.send("camera", 3)
    before = disk.writes
    drive.commit()
    assert disk.writes == before + 1
    drive.close()
