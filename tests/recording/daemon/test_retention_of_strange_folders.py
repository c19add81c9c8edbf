"""Retention meets folders that nobody meant it to: it deletes nothing that it should not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.config.settings import RetentionSettings
from recorder.recording.host.disk import mounted_below
from recorder.recording.postprocessing import retention
from recorder.recording.postprocessing.retention import choose, delete, keep, sweep
from recorder.recording.postprocessing.steps import Due, find_due, record_result
from recorder.session.outputs import UploadedTo, compute_stamp, write_uploaded
from tests.recording.daemon.fakes import CONFIG, Said, Vehicle, make_session, vehicle

EVERYTHING = RetentionSettings(gb=0.0, days=None)
NOTHING_DUE = "version: 1\n"


def session(root: Path, name: str, config: str = NOTHING_DUE, **values: Any) -> Path:
    path = make_session(root / name, **values)
    (path / "config.yaml").write_text(config)
    (path / "_recorder/checksums.csv").touch()
    return path


def packed(path: Path) -> bool:
    """Whether something is still due of a session, for `sweep`."""
    due = find_due(path, frozenset({"ncore"}))
    return due is None or due.unfinished


def swept(root: Path, settings: RetentionSettings = EVERYTHING, now_ns: int = 2 * 10**18) -> str:
    return " ".join(sweep(root, settings, now_ns, None, packed, Said().say))


def test_links_are_nobodys_to_delete(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    session(elsewhere, "far")
    session(root, "own")
    (root / "far").symlink_to(elsewhere / "far")
    (root / "half").mkdir()
    (root / "half/notes.txt").touch()
    (root / "half/_recorder").symlink_to(elsewhere / "far/_recorder")
    (root / "inside").symlink_to("own")
    (root / "own/cam").symlink_to(elsewhere)
    assert swept(root) == "own"
    assert (elsewhere / "far/_recorder/session.json").exists()
    assert (root / "far").is_symlink() and (root / "half/notes.txt").exists()
    for link in ("far", "half"):
        assert delete(root / link) is False


def test_what_lies_beside_sessions_stays(tmp_path: Path) -> None:
    for name in (".photos.deleted", "photos", ".git", "lost+found", ".drive.tmp", ".recorder/own"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / ".recorder/deleted/earlier/imu").mkdir(parents=True)  # a deletion that was cut off
    (tmp_path / ".recorder/deleted/link").symlink_to(tmp_path / "photos")
    before = sorted(tmp_path.rglob("file"))
    assert swept(tmp_path) == ""
    assert sorted(tmp_path.rglob("file")) == before and len(before) == 6
    assert not (tmp_path / ".recorder/deleted/earlier").exists()


def test_a_session_with_something_mounted_in_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session(tmp_path, "a")
    monkeypatch.setattr(retention, "mounted_below", lambda path: [path / "_archives"])
    assert swept(tmp_path) == ""
    monkeypatch.undo()
    assert swept(tmp_path) == "a"


def test_a_session_with_folders_deeper_than_calls_stays_and_hinders_nobody(tmp_path: Path) -> None:
    deep = session(tmp_path, "deep")
    session(tmp_path, "own")
    for _ in range(sys.getrecursionlimit() + 100):
        deep /= "d"
        deep.mkdir()
    try:
        assert swept(tmp_path) == "own"
        assert (tmp_path / "deep/_recorder/session.json").exists()
    finally:
        while deep.name == "d":  # what removes the test's folder calls itself for each
            deep.rmdir()
            deep = deep.parent


def test_what_is_mounted_below_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    mounts = tmp_path / "mountinfo"
    escaped = str(folder).replace(" ", "\\040")
    lines = [
        f"1 1 0:1 / {place} rw - ext4 x rw" for place in ("/", escaped + "/x/y", escaped + "c")
    ]
    mounts.write_text("\n".join(lines))
    assert mounted_below(folder, mounts) == [folder / "x/y"]


def test_archives_that_this_installation_lacks_are_still_owed(tmp_path: Path) -> None:
    path = session(tmp_path, "a", "finalize: [other, {ncore: {}}]\n")
    (path / "_archives/ncore").mkdir(parents=True)
    (path / "_archives/ncore/x").touch()
    due = find_due(path, frozenset({"ncore"}))
    assert due is not None and due.steps == () and "no such archive" in due.failed["other"]
    assert swept(tmp_path) == ""
    (path / "_archives/other").mkdir()
    (path / "_archives/other/x").touch()
    assert swept(tmp_path) == "a"


def test_a_config_that_cannot_be_read_may_ask_for_anything(tmp_path: Path) -> None:
    path = session(tmp_path, "a", "finalize: [")
    assert swept(tmp_path) == ""
    path.joinpath("config.yaml").unlink()
    assert swept(tmp_path) == ""


def test_a_clock_that_was_not_set_makes_nothing_old(tmp_path: Path) -> None:
    """A vehicle boots in 1970, records, and then learns what time it is."""
    early = session(tmp_path, "early", start_ns=10**9, end_ns=2 * 10**9)
    now_ns = (early / "_recorder/session.json").stat().st_mtime_ns
    assert swept(tmp_path, RetentionSettings(gb=None, days=1.0), now_ns + 10**9) == ""
    settings = RetentionSettings(gb=None, days=1.0)
    assert choose([retention.Candidate(early, 10**9, 0, True)], settings, now_ns) == []


def test_a_session_that_is_kept_at_the_last_moment_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session(tmp_path, "a")
    rename = Path.rename

    def race(self: Path, target: Path) -> Path:
        if self == path:
            keep(path)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", race)
    assert delete(path) is False
    assert (path / "config.yaml").exists() and retention.is_kept(path)


def test_a_disk_that_does_not_tell_keeps_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session(tmp_path, "a")

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "lstat", broken)
    assert retention.is_kept(path)
    assert swept(tmp_path) == ""
    assert swept(tmp_path / "gone") == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["state", "sensors", "end_ns", "steps", "ncore", "tries", "skip"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("spoilt")
    session(root, "a", "finalize: [ncore]\n")
    return root


@given(JSON, JSON)
def test_whatever_a_sessions_files_hold_the_daemon_lives_and_deletes_nothing(
    spoilt: Path, header: Any, reported: Any
) -> None:
    path = spoilt / "a"
    if isinstance(header, dict):
        header["version"] = 1
    (path / "_recorder/session.json").write_text(json.dumps(header))
    (path / "_recorder/finalize.json").write_text(json.dumps(reported))
    due = find_due(path, frozenset({"ncore"}))
    assert isinstance(due, Due)
    record_result(path, "ncore", "it broke")
    if not (isinstance(reported, dict) and reported.get("skip")):
        assert swept(spoilt) == ""
    else:
        retention.candidates(spoilt, None, packed)


def test_by_a_clock_that_nobody_keeps_right_no_session_gets_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A calendar that jumps ahead must not cost a drive."""
    synchronized = False
    monkeypatch.setattr("recorder.recording.daemon.daemon.is_synchronized", lambda: synchronized)
    with vehicle(tmp_path, CONFIG + "retention: {days: 30}\n") as rig:
        rig.clock.step_realtime(200_000_000)
        old = make_session(rig.root / "old", end_ns=1_700_000_000_000_000_000)
        (old / "config.yaml").write_text("version: 1\n")
        (old / "_recorder/checksums.csv").touch()
        rig.daemon()
        rig.run(700)
        assert old.exists()
        assert [line for line in rig.lines if "retention" in line] == [
            "retention: the clock is not synchronized; no session is deleted for its age"
        ]
        join_sweeper(rig)  # while it runs, no other begins
        synchronized = True
        rig.run(700)
        join_sweeper(rig)
        assert not old.exists()


def test_where_there_is_a_store_only_what_was_read_back_is_deleted(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    text = f"{CONFIG}retention: {{gb: 0}}\nupload: {{url: '{url}'}}\n"
    with vehicle(tmp_path, text) as rig:
        kept = [session(rig.root, name) for name in ("never", "elsewhere", "unread", "changed")]
        gone = session(rig.root, "safe")
        uploads = ((kept[1], url + "2", True), (kept[2], url, False), (kept[3], url, True))
        for path, where, read_back in (*uploads, (gone, url, True)):
            write_uploaded(path, UploadedTo(where, "0", read_back, compute_stamp(path)))
        (kept[3] / "notes.txt").write_text("of somebody who looked at it later")
        rig.daemon()
        rig.run(700)
        join_sweeper(rig)
        assert not gone.exists() and all(path.exists() for path in kept)


def join_sweeper(rig: Vehicle) -> None:
    sweeper = rig.running._sweeper
    assert sweeper is not None
    sweeper.join(60)
