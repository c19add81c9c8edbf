"""What comes after recording: the queue of finalizers, and retention."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from recorder.common.clock import SignalEvent
from recorder.common.errors import SessionError, StorageError, UsageError
from recorder.config.settings import RetentionSettings
from recorder.recording.postprocessing.finalizing import Chore, Finalizing, finalize_pending
from recorder.recording.postprocessing.retention import Candidate, choose, delete, keep, sweep
from recorder.recording.postprocessing.steps import MOST_TRIES, find_due, record_result, skip
from recorder.recording.root_lock import RootLock
from recorder.session.outputs import SessionSummary, summary_element
from tests.config.configs import load
from tests.manual_clock import ManualClock
from tests.recording.daemon.fakes import CONFIG as DAEMON
from tests.recording.daemon.fakes import FakeChore, Said, make_session

NCORE = frozenset({"ncore"})
DAY_NS = 86_400 * 10**9
NOW_NS = 20_000 * DAY_NS
CONFIG = "finalize: [ncore]\n"
REPORTED = "finalize: [ncore]\nreport: true\n"
BOTH = "finalize: [ncore, {later: {a: 1}}]\n"
NONE = "version: 1\n"


def session(root: Path, name: str = "a", state: str = "clean", config: str = CONFIG) -> Path:
    path = make_session(root / name, state)
    (path / "config.yaml").write_text(config)
    return path


def steps(path: Path, available: frozenset[str] = NCORE) -> list[str]:
    due = find_due(path, available)
    assert due is not None
    return [step.name for step in due.steps]


def test_what_is_due_is_told_by_the_session_alone(tmp_path: Path) -> None:
    path = session(tmp_path, state="recording", config=BOTH)
    assert steps(path) == ["recover", "checksums", "ncore"]
    make_session(path, "recovered", sensors={"imu": {"source": "sim"}})
    assert steps(path) == ["truth", "checksums", "ncore"]
    record_result(path, "truth", None)
    (path / "_recorder/checksums.csv").touch()
    assert steps(path) == ["ncore"]
    (path / "_archives/ncore").mkdir(parents=True)
    (path / "_archives/ncore/.a.part").touch()
    assert steps(path) == ["ncore"]  # in the making is not made
    (path / "_archives/ncore/a.zarr.itar").touch()
    assert steps(path) == []
    due = find_due(path, frozenset({"ncore", "later"}))
    assert due is not None and due.steps[0].archives == {"later": {"a": 1}}
    assert due.steps[0].command(path)[3:] == [
        "--to",
        "later",
        "--option",
        "later.a=1",
        "--format",
        "json",
    ]


def test_the_daemons_config_names_what_redacts(tmp_path: Path) -> None:
    path, config = (
        session(tmp_path, config=f"{BOTH}\nredact: {{camera: {{command: [evil]}}}}\n"),
        tmp_path / "rig.yaml",
    )
    (path / "_recorder/checksums.csv").touch()
    for redact, more in ((None, []), (config, ["--redact", str(config)])):
        commands: list[Sequence[str]] = []

        def spawn(command: Sequence[str]) -> FakeChore:
            commands.append(command)  # noqa: B023
            return FakeChore(command)

        queue = Finalizing(tmp_path, ManualClock(), Said().say, NCORE, spawn, redact)
        queue.turn(None)
        (command,) = commands
        assert command[:5] == ["recorder", "finalize", str(path), "--to", "ncore"]
        assert [word for word in command if "redact" in word or word == str(config)] == more
        assert not any("evil" in word for word in command)


def test_rows_are_packed_after_all_else_and_keep_no_session(tmp_path: Path) -> None:
    path = session(tmp_path, config=REPORTED)
    make_session(path, streams={"lidar": {"settings": {"xz_stored": ["rng"]}}, "imu": {}})
    assert steps(path) == ["checksums", "ncore", "report", "rows"]
    due = find_due(path, NCORE)
    assert due is not None
    assert due.steps[-1].command(path) == ["recorder.integrity.deferred_compression", str(path)]
    for step in ("checksums", "ncore", "report"):
        assert not find_due(path, NCORE).deletable or step == "report"  # type: ignore[union-attr]
        record_result(path, step, None)
    assert steps(path) == ["rows"]
    record_result(path, "rows", None)
    assert steps(path) == []


def report(path: Path, state: str) -> None:
    """A report of a session in that state."""
    element = summary_element(SessionSummary(state, "PASS", (), 1, 0, 0))
    (path / "report.html").write_text(f"<head>{element}</head>")


def pack(path: Path) -> None:
    (path / "_archives/ncore").mkdir(parents=True)
    (path / "_archives/ncore/a.zarr.itar").touch()


def test_a_report_comes_last_and_again_behind_an_archive(tmp_path: Path) -> None:
    path = session(tmp_path, state="recording", config=REPORTED)
    assert steps(path) == ["recover", "checksums", "ncore", "report"]
    report(path, "recording")  # somebody wanted to see the open session
    make_session(path, "recovered")
    (path / "_recorder/checksums.csv").touch()
    assert steps(path) == ["ncore", "report"]
    report(path, "recovered")
    assert steps(path) == ["ncore", "report"], "the report lacks the archive"
    pack(path)
    assert steps(path) == [], "`recorder run` has made it"
    (path / "report.html").unlink()
    due = find_due(path, NCORE)
    assert due is not None and [s.name for s in due.steps] == ["report"]
    assert due.steps[0].command(path) == ["recorder", "report", str(path), "--index"]
    record_result(path, "report", None)
    assert steps(path) == [], "made once, a report that somebody deletes stays deleted"


@pytest.mark.parametrize("text", ["report: false\n", "report: 'true'\n", "report: 1\n", NONE])
def test_who_asked_for_no_report_gets_none(tmp_path: Path, text: str) -> None:
    assert steps(session(tmp_path, config=text)) == ["checksums"]
    path = session(tmp_path, "b", config=REPORTED)
    skip(path)
    assert steps(path) == ["checksums"]


def test_a_session_in_use_is_left_alone(tmp_path: Path) -> None:
    path = session(tmp_path, state="recording")
    fd = os.open(path / "_recorder/lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert find_due(path, NCORE) is None
    os.close(fd)
    assert find_due(path, NCORE) is not None


def test_who_asked_for_no_archives_gets_none(tmp_path: Path) -> None:
    path = session(tmp_path)
    skip(path)
    assert steps(path) == ["checksums"]


@pytest.mark.parametrize("text", ["", "]", "finalize: 5", "finalize: [5, {a: 1, b: 2}]"])
def test_a_config_that_cannot_be_read_asks_for_nothing(tmp_path: Path, text: str) -> None:
    assert steps(session(tmp_path, config=text)) == ["checksums"]
    (tmp_path / "a/_recorder/session.json").write_text("{")
    assert steps(tmp_path / "a") == []


class Rig:
    def __init__(self, root: Path, available: frozenset[str] = NCORE) -> None:
        self.root = root
        self.clock = ManualClock()
        self.lines = Said()
        self.chores: list[FakeChore] = []
        self.queue = Finalizing(root, self.clock, self.lines.say, available, self.spawn)

    def spawn(self, command: Sequence[str]) -> FakeChore:
        self.chores.append(FakeChore(command))
        return self.chores[-1]

    @classmethod
    def begun(cls, path: Path, *archives: str) -> Rig:
        """The first chore of a session that has its checksums."""
        (path / "_recorder/checksums.csv").touch()
        rig = cls(path.parent, frozenset(archives) or NCORE)
        rig.turn()
        return rig

    def fail(self) -> None:
        """Let the chore that runs fail as often as it is tried."""
        for _ in range(MOST_TRIES):
            self.finish(1)
            self.turn(700)

    def turn(self, seconds: float = 0.1, live: str | None = None) -> None:
        self.clock.advance(seconds)
        self.queue.turn(live)

    def finish(self, code: int = 0) -> list[str]:
        """End the chore that runs; its command."""
        chore = self.chores[-1]
        assert chore.code is None
        path = Path(chore.command[2] if chore.command[0] == "recorder" else chore.command[1])
        if code == 0 and "checksums" in chore.command[0]:
            (path / "_recorder/checksums.csv").touch()
        if code == 0 and "--to" in chore.command:
            for name in chore.command[4].split(","):
                (path / "_archives" / name).mkdir(parents=True)
                (path / "_archives" / name / "x").touch()
        chore.code = code
        self.turn()
        return chore.command


def test_one_process_at_a_time_and_every_session_in_turn(tmp_path: Path) -> None:
    for name in ("a", "b"):
        session(tmp_path, name)
    rig = Rig(tmp_path)
    for number in range(1, 5):
        rig.turn()
        assert len(rig.chores) == number
        assert rig.queue.status()["current"] is not None
        rig.turn()
        rig.finish()
    assert len(rig.chores) == 4 and rig.queue.status() == {
        "current": None,
        "queue": [],
        "failed": {},
    }
    rig.turn(1000)
    assert len(rig.chores) == 4
    session(tmp_path, "c")
    rig.turn(0.1)
    assert len(rig.chores) == 4  # nobody has looked yet
    rig.queue.hurry()
    rig.turn(0.1)
    assert len(rig.chores) == 5


def test_the_live_session_is_not_touched(tmp_path: Path) -> None:
    path = session(tmp_path, state="recording")
    rig = Rig(tmp_path)
    rig.turn(100, live=str(path))
    assert rig.chores == []
    rig.turn(100)
    assert rig.chores[0].command == ["recorder", "recover", str(path)]


def test_what_was_interrupted_is_done_again_by_the_next_daemon(tmp_path: Path) -> None:
    session(tmp_path)
    rig = Rig(tmp_path)
    rig.turn()
    rig.finish()
    rig.queue.stop()
    assert rig.chores[-1].ended and len(rig.chores) == 2
    again = Rig(tmp_path)
    again.turn()
    assert again.chores[0].command == rig.chores[1].command
    again.finish()
    assert again.queue.status()["queue"] == []


def test_what_fails_is_tried_a_few_times_then_told(tmp_path: Path) -> None:
    path = session(tmp_path)
    rig = Rig(tmp_path)
    rig.turn()
    rig.finish()
    rig.fail()
    assert len(rig.chores) == 1 + MOST_TRIES
    assert rig.queue.status()["failed"] == {"a": {"ncore": "it broke"}}
    assert rig.queue.is_unfinished(path)
    reported = json.loads((path / "_recorder/finalize.json").read_text())
    assert reported["steps"]["ncore"] == {"done": False, "tries": 3, "error": "it broke"}
    later = Rig(tmp_path)  # a reboot does not begin it all again
    later.turn(1000)
    assert later.chores == [] and later.queue.status()["failed"]


def test_archives_are_packed_together_and_one_by_one_after_a_failure(tmp_path: Path) -> None:
    path = session(tmp_path, config="finalize: [ncore, {later: {a: 1}}, mcap]\nreport: true\n")
    rig = Rig.begun(path, "ncore", "later", "mcap")
    assert rig.chores[-1].command == [
        "recorder", "finalize", str(path), "--to", "ncore,later,mcap", "--option", "later.a=1",
        "--format", "json",
    ]  # fmt: skip
    assert rig.queue.status()["current"] == {"session": "a", "step": "ncore,later,mcap"}
    pack(path)
    rig.finish(1)
    rig.turn(70)
    assert rig.chores[-1].command[3:5] == ["--to", "later"]
    rig.finish()
    assert rig.chores[-1].command[3:5] == ["--to", "mcap"]
    rig.fail()
    assert rig.queue.status()["failed"] == {"a": {"mcap": "it broke"}}
    told = json.loads((path / "_recorder/finalize.json").read_text())["steps"]
    assert [told[name]["done"] for name in ("ncore", "later", "mcap")] == [True, True, False]
    assert told["mcap"]["tries"] == MOST_TRIES
    assert rig.chores[-1].command[:2] == ["recorder", "report"]


def test_archives_that_are_packed_together_are_counted_and_done(tmp_path: Path) -> None:
    path = session(tmp_path, config="finalize: [ncore, mcap]\n")
    rig = Rig.begun(path, "ncore", "mcap")
    rig.finish()
    assert rig.queue.finished == 2
    assert rig.queue.idle
    told = json.loads((path / "_recorder/finalize.json").read_text())["steps"]
    assert told == {"ncore": {"done": True}, "mcap": {"done": True}}


def test_a_report_that_fails_is_tried_a_few_times_and_keeps_no_session(tmp_path: Path) -> None:
    path = session(tmp_path, config=REPORTED)
    rig = Rig.begun(path)
    assert rig.queue.is_unfinished(path), "its archive is due"
    rig.finish()
    for _ in range(MOST_TRIES):
        assert rig.chores[-1].command[:2] == ["recorder", "report"]
        assert not rig.queue.is_unfinished(path), "retention does not wait for a report"
        rig.finish(1)
        rig.turn(700)
    assert len(rig.chores) == 1 + MOST_TRIES
    assert rig.queue.status()["failed"] == {"a": {"report": "it broke"}}
    assert not rig.queue.is_unfinished(path)


def test_an_archive_that_fails_for_good_is_followed_by_the_report(tmp_path: Path) -> None:
    path = session(tmp_path, config=REPORTED)
    rig = Rig.begun(path)
    rig.fail()
    report(path, "clean")
    rig.finish()
    assert rig.queue.status()["failed"] == {"a": {"ncore": "it broke"}}
    assert rig.queue.status()["queue"] == [] and rig.queue.is_unfinished(path)


def test_a_session_that_is_deleted_during_its_report_is_forgotten(tmp_path: Path) -> None:
    path = session(tmp_path, config="report: true\n")
    rig = Rig.begun(path)
    assert delete(path)
    rig.finish(1)
    rig.turn()
    assert len(rig.chores) == 1 and rig.lines == [] and rig.queue.idle


def test_a_recovery_that_lost_data_has_worked(tmp_path: Path) -> None:
    path = session(tmp_path, state="recording")
    rig = Rig(tmp_path)
    rig.turn()
    make_session(path, "recovered")
    rig.finish(3)
    assert "checksums" in rig.chores[-1].command[0]


def test_a_chore_is_a_process_whose_last_words_are_known(tmp_path: Path) -> None:
    chore = Chore(["recorder", "recover", str(tmp_path / "none")])
    while (code := chore.poll()) is None:
        os.sched_yield()
    assert (code, "none" in chore.problem()) == (1, True)
    chore.end()


GB = 1_000_000_000


def candidate(name: str, days: float, gb: float = 1.0, deletable: bool = True) -> Candidate:
    return Candidate(Path(name), NOW_NS - round(days * DAY_NS), round(gb * GB), deletable)


def chosen(sessions: list[Candidate], gb: float | None, days: float | None) -> list[str]:
    picked = choose(sessions, RetentionSettings(gb, days), NOW_NS)
    return [session.path.name for session in picked]


def test_the_oldest_go_first_and_what_may_not_go_counts() -> None:
    sessions = [candidate("c", 1), candidate("a", 9), candidate("kept", 8, 5, False)]
    sessions.append(candidate("b", 3))
    assert chosen(sessions, None, None) == []
    assert chosen(sessions, 8.0, None) == []
    assert chosen(sessions, 7.5, None) == ["a"]
    assert chosen(sessions, 6.0, None) == ["a", "b"]
    assert chosen(sessions, 0.0, None) == ["a", "b", "c"]
    assert chosen(sessions, None, 2.0) == ["a", "b"]
    assert chosen(sessions, 7.5, 2.0) == ["a", "b"]


def test_what_is_live_unfinished_kept_or_nobodys_stays(tmp_path: Path) -> None:
    done = "version: 1\n"
    for name in ("live", "kept", "old", "unpacked"):
        path = session(tmp_path, name, config=CONFIG if name == "unpacked" else done)
        (path / "_recorder/checksums.csv").touch()
    session(tmp_path, "crashed", "recording", done)
    (tmp_path / "trace/imu").mkdir(parents=True)  # of another recorder
    (tmp_path / "trace/imu/meta.json").write_text("{}")
    (tmp_path / "damaged/_recorder").mkdir(parents=True)
    (tmp_path / "damaged/_recorder/session.json").write_text("{")
    (tmp_path / ".recorder/deleted/earlier/imu").mkdir(parents=True)
    keep(tmp_path / "kept")
    queue = Rig(tmp_path).queue
    lines = Said()
    everything = RetentionSettings(gb=0.0, days=None)
    live = str(tmp_path / "live")
    gone = sweep(tmp_path, everything, 2 * 10**18, live, queue.is_unfinished, lines.say)
    assert gone == ["old"] and "old" in lines[0]
    assert list((tmp_path / ".recorder/deleted").iterdir()) == []
    left = sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".")
    assert left == ["crashed", "damaged", "kept", "live", "trace", "unpacked"]


def test_nothing_goes_where_nothing_was_asked_for(tmp_path: Path) -> None:
    session(tmp_path, config="")
    nothing = RetentionSettings(None, None)
    assert sweep(tmp_path, nothing, 2 * 10**18, None, lambda path: False, Said().say) == []
    assert (tmp_path / "a").exists()


def test_the_index_of_the_reports_forgets_what_was_deleted(tmp_path: Path) -> None:
    for name in ("old", "kept"):
        session(tmp_path, name, config="")
    keep(tmp_path / "kept")
    index, lines = tmp_path / "index.html", Said()
    index.write_text("old, kept")
    everything = RetentionSettings(0.0, None)
    assert sweep(tmp_path, everything, None, None, lambda path: False, lines.say) == ["old"]
    text = index.read_text()
    assert "kept" in text and ">old<" not in text and "old, kept" not in text
    assert len(lines) == 1


def test_a_session_that_somebody_reads_stays(tmp_path: Path) -> None:
    path = session(tmp_path)
    fd = os.open(path / "_recorder/lock", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)  # as the finalizer does
    assert delete(path) is False and path.exists()
    os.close(fd)
    assert delete(path) is True and not path.exists()


def test_a_session_that_cannot_be_deleted_is_told_and_the_next_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (session(tmp_path, name, config=NONE) / "_recorder/checksums.csv").touch()
    rename = Path.rename

    def refused(self: Path, target: Path) -> Path:
        if self.name == "a":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(StorageError, match="a: cannot be deleted: Operation not permitted"):
        delete(tmp_path / "a")
    lines, everything = Said(), RetentionSettings(gb=0.0, days=None)
    gone = sweep(tmp_path, everything, 2 * 10**18, None, lambda path: False, lines.say)
    assert gone == ["b"] and not (tmp_path / "b").exists() and (tmp_path / "a").exists()
    (fault,) = [line for line, level in lines.levels.items() if level == "error"]
    assert "cannot be deleted" in fault
    monkeypatch.undo()
    assert delete(tmp_path / "a"), "its lock was let go of"


def test_keeping_is_of_sessions_only_and_told_once(tmp_path: Path) -> None:
    path = session(tmp_path)
    assert [keep(path), keep(path), keep(path, release=True), keep(path, release=True)] == [
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(SessionError, match="no session"):
        keep(tmp_path)


def test_what_is_pending_is_done_while_no_daemon_runs(tmp_path: Path) -> None:
    config = load(tmp_path, DAEMON)
    for name in "abcdefgh":
        session(config.session.root, name, config=NONE)
    clock, stop, lines = ManualClock(), SignalEvent(), Said()

    def spawn(command: Sequence[str]) -> FakeChore:
        chore = FakeChore(command)
        (Path(command[-1]) / "_recorder/checksums.csv").touch()
        chore.code = 1 if command[-1].endswith("/c") else 0
        if chore.code:
            (Path(command[-1]) / "_recorder/checksums.csv").unlink()
        return chore

    done = finalize_pending(config, clock, lines.say, stop, spawn)
    assert done == {"finished": 7, "failed": {"c": {"checksums": "it broke"}}, "queue": []}
    lock = RootLock(config.session.root)
    lock.take()
    with pytest.raises(UsageError, match="another daemon"):
        finalize_pending(config, clock, lines.say, stop, spawn)
    lock.release()
    session(config.session.root, "i", config=NONE)
    stop.set()
    assert finalize_pending(config, clock, lines.say, stop, spawn)["finished"] == 0


def test_nothing_is_done_through_a_link_that_leads_out_of_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    theirs = session(tmp_path / "elsewhere", "theirs", state="recording")
    (root / "link").symlink_to(theirs)
    rig = Rig(root)
    for _ in range(3):
        rig.queue.hurry()
        rig.turn()
    assert rig.chores == [] and rig.queue.idle
    assert rig.lines == [
        f"{root}/link: is a symbolic link to {theirs}, outside of {root}; left alone"
    ]
    assert rig.lines.levels[rig.lines[0]] == "warning"
    assert not (theirs / "_recorder/finalize.json").exists()
