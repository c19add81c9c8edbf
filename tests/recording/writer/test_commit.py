"""What a commit promises: all that was appended is synced before the journal says so, and an
error is the end."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.common.errors import RecorderError, StorageError
from recorder.common.files import SYNC_THREADS, PosixDisk
from recorder.recording.writer.active_session import ActiveSession, CommitTimes
from recorder.recording.writer.disk_policy import Fuse
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import CLEAN, JOURNAL, TAILS, SessionPlan, read_session_json
from recorder.session.reader import Session
from tests.faults.numbers import message, stream
from tests.manual_clock import ManualClock
from tests.recording.writer.digested import SPECS, Drive

STREAMS = 12  # of at least three files each, far more than are synced at a time
NAMES = [f"s{k:02d}" for k in range(STREAMS)]


class Recording:
    """A session of many streams, written in one thread."""

    def __init__(self, root: Path, names: list[str] = NAMES) -> None:
        self.clock = ManualClock(5_000_000_000)
        plan = SessionPlan(str(root), "s", True, "version: 1\n")
        self.writer = SessionWriter.create(PosixDisk(), plan, self.clock)
        self.path = self.writer.path
        self.count = dict.fromkeys(names, 0)
        for name in names:
            self.writer.declare(stream(name))

    def append(self, name: str, samples: int = 2) -> None:
        """The next message of a stream; its folder is made with the second sample."""
        spec, first = stream(name), sum(self.count.values())
        self.clock.advance(0.01)
        item = message(spec, list(range(first, first + samples)), self.clock.monotonic_ns())
        item.epoch, item.number = 7, self.count[name]
        item.seq = samples * self.count[name]
        self.writer.append(item)
        self.count[name] += 1


def watched(monkeypatch: pytest.MonkeyPatch, session: Path) -> list[tuple[str, str]]:
    """What is written to and synced below a session, in order, as (call, file)."""
    done: list[tuple[str, str]] = []
    lock = threading.Lock()

    def reported(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(fd: int, *args: Any) -> Any:
            path = Path(f"/proc/self/fd/{fd}").readlink()
            result = real(fd, *args)
            if path.is_relative_to(session):
                with lock:
                    done.append((call, str(path.relative_to(session))))
            return result

        return run

    for call in ("write", "writev", "pwrite", "fdatasync", "fsync"):
        kind = "sync" if "sync" in call else "write"
        monkeypatch.setattr(os, call, reported(kind, getattr(os, call)))
    return done


@pytest.mark.parametrize("active", [1, 3, STREAMS])
def test_every_file_is_synced_before_the_journal_has_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, active: int
) -> None:
    recording = Recording(tmp_path)
    journal = f"_recorder/{JOURNAL}"
    for name in NAMES:
        recording.append(name)
    recording.writer.commit()
    done = watched(monkeypatch, recording.path)
    for _ in range(3):
        done.clear()
        for name in NAMES[:active]:
            recording.append(name)
        recording.writer.commit()
        assert recording.writer.durable == recording.writer.appended
        at = {item: k for k, item in enumerate(done)}  # the last time of each
        scratch = {f"_recorder/{name}" for name in TAILS}  # holds what may be lost
        files = {file for call, file in done if call == "write"} - {journal, *scratch}
        assert {Path(file).parts[0] for file in files} >= set(NAMES[:active])
        first = done.index(("write", journal))
        for file in files:
            assert at["write", file] < at["sync", file] < first, file
        assert at["write", journal] < at["sync", journal]
    recording.writer.close("clean")


@pytest.mark.parametrize("count", [0, 1, 2, SYNC_THREADS, SYNC_THREADS + 1, 3 * SYNC_THREADS + 2])
def test_each_of_any_number_of_files_is_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    disk = PosixDisk()
    files = [disk.create(tmp_path / f"{k:02d}") for k in range(count)]
    done = watched(monkeypatch, tmp_path)
    disk.sync_files(files)
    assert sorted(done) == [("sync", f"{k:02d}") for k in range(count)]
    for file in files:
        file.close()


@pytest.mark.parametrize("failing", range(SYNC_THREADS + 2))
def test_the_error_of_any_of_many_files_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    disk = PosixDisk()
    files = [disk.create(tmp_path / str(k)) for k in range(SYNC_THREADS + 2)]

    def sync(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().name == str(failing):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", sync)
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_files(files)
    for file in files:
        file.close()


ERRORS = (OSError(errno.EIO, "Input/output error"), StorageError("the disk is gone"))


def active(
    recording: Recording, notify: Callable[[], None], disk: PosixDisk | None = None
) -> ActiveSession:
    return ActiveSession(recording.writer, disk or PosixDisk(), recording.clock, 1_000_000, notify)


class Failing:
    """A session whose commits fail from the third on, and what its sync thread reports."""

    def __init__(self, root: Path, error: Exception, where: str) -> None:
        self.recording = Recording(root, ["a"])
        self.disk = PosixDisk()
        self.current = active(self.recording, self.notified, self.disk)
        self.error, self._where = error, where
        self.committed = self.failed = self.asked = 0

    def notified(self) -> None:
        self.committed += self.current.committed.is_set()
        self.failed += self.current.failure is not None
        self.current.committed.clear()

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        writer, disk = self.recording.writer, self.disk
        real = writer.commit if self._where == "commit" else disk.free_bytes

        def failing(*args: Any) -> Any:
            self.asked += 1
            assert self.asked < 10, "an error is the end"
            if self.asked >= 3:
                raise self.error
            return real(*args)

        owner = writer if self._where == "commit" else disk
        monkeypatch.setattr(owner, self._where, failing)
        self.current._sync()


@pytest.mark.parametrize("where", ["commit", "free_bytes"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_the_sync_thread_ends_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, where: str
) -> None:
    """Nothing is told to be durable from then on, and the session's owner is told why."""
    failing = Failing(tmp_path, error, where)
    failing.run(monkeypatch)
    assert list(failing.current.failures) == [error] and failing.failed == 1
    assert (failing.asked, failing.committed) == (3, 2)
    failing.recording.writer.abandon()


def test_who_stops_it_is_told_of_no_error(tmp_path: Path) -> None:
    recording = Recording(tmp_path, ["a"])
    reported: list[str] = []

    def notified() -> None:
        reported.append("failed" if current.failures else "committed")
        if len(reported) == 3:
            current.stop.set()

    current = active(recording, notified)
    current._sync()
    assert reported == ["committed"] * 3
    assert recording.clock.monotonic_ns() == 5_000_000_000 + 3 * 200_000_000
    assert current.commits.count == 3
    recording.writer.abandon()


def lengths(session: Path) -> dict[str, int]:
    return {str(p): p.stat().st_size for p in session.rglob("*") if p.is_file()}


@pytest.mark.parametrize("call", ["append", "commit"])
def test_after_an_error_nothing_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Channels differ in length from then on: a sample appended to them would be another one."""
    recording = Recording(tmp_path, ["a", "b"])
    for name in ("a", "b", "a", "b"):
        recording.append(name)
    recording.writer.commit()
    durable = dict(recording.writer.durable)

    def refuse(fd: int, buffers: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", refuse)
        with pytest.raises(OSError, match="No space left"):
            if call == "append":
                recording.append("a", 5000)
            else:
                recording.append("a")
                recording.writer.commit()
    before = lengths(recording.path)
    for name in ("b", "a", "b"):
        with pytest.raises(StorageError, match="an earlier error has ended its recording"):
            recording.append(name)
    for _ in range(2):
        with pytest.raises(StorageError, match="an earlier error has ended its recording"):
            recording.writer.commit()
    assert lengths(recording.path) == before
    assert recording.writer.durable == durable
    recording.writer.abandon()


def test_a_fuse_lets_through_until_something_fails(tmp_path: Path) -> None:
    fuse, done = Fuse(tmp_path), 0
    for _ in range(3):
        with fuse:
            done += 1
    with pytest.raises(KeyError), fuse:
        raise KeyError
    for _ in range(2):
        with pytest.raises(RecorderError, match="an earlier error"), fuse:
            done += 1
    assert done == 3


def test_commits_are_counted_with_their_durations() -> None:
    times = CommitTimes()
    for took_ns in (20, 70, 30):
        times.add(took_ns)
    assert (times.count, times.total_ns, times.last_ns, times.max_ns) == (3, 120, 30, 70)


def test_a_session_ends_with_its_latest_sample(tmp_path: Path) -> None:
    """Of a source that plays faster than time, that is later than now."""
    drive = Drive(tmp_path)
    for ahead_s in (0.0, 60.0):
        t_ns = drive.clock.monotonic_ns() + round(ahead_s * 1e9)
        item = message(SPECS["lidar"], [drive.sent["lidar"]], t_ns)
        item.epoch, item.number, item.seq = 7, drive.sent["lidar"], drive.sent["lidar"]
        drive.sent["lidar"] += 1
        drive.writer.append(item)
    drive.close()
    values = read_session_json(drive.path)
    assert values["end_ns"] - values["start_ns"] == t_ns - values["start_mono_ns"]


def test_an_event_of_earlier_has_its_own_time_and_none_before_the_session(tmp_path: Path) -> None:
    recording = Recording(tmp_path, ["a"])
    recording.append("a")
    recording.clock.advance(10.0)
    writer = recording.writer
    for text, age_ns in (("now", 0), ("earlier", 4_000_000_000), ("before", 600_000_000_000)):
        writer.event("mark", cause=text, age_ns=age_ns)
    writer.close(CLEAN)
    with Session(recording.path) as session:
        marks = {e["cause"]: e["t_ns"] for e in session.events() if e["type"] == "mark"}
        assert marks["now"] - marks["earlier"] == 4_000_000_000
        assert marks["before"] == session.start_ns
