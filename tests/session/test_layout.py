"""How a session's folder comes into being, and what stands in its way."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.common.errors import SessionError, StorageError, UsageError
from recorder.common.files import AppendFile, PosixDisk
from recorder.session.layout import (
    SessionPlan,
    create_session,
    free_bytes,
    private,
    read_session_json,
    write_session_json,
)

VALUES = {"version": 1, "name": "", "state": "recording"}


def plan(root: Path, name: str = "drive", **more: Any) -> SessionPlan:
    return SessionPlan(str(root), name, more.pop("exact_name", False), "version: 1\n", **more)


def create(given: SessionPlan, disk: PosixDisk | None = None) -> Path:
    begun: list[Path] = []

    def begin(folder: Path) -> None:
        begun.append(folder)
        (private(folder) / "commits").touch()

    path = create_session(disk or PosixDisk(), given, dict(VALUES), begin)
    assert len(begun) == 1 and begun[0] != path  # before the folder had its name
    return path


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_a_session_is_found_whole(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    path = create(plan(root, calibration_text="sensors: {}\n"))
    assert path == root / "drive" and names(root) == ["drive"]
    assert (path / "config.yaml").read_text() == "version: 1\n"
    values = read_session_json(path)
    assert (values["name"], values["state"]) == ("drive", "recording")
    digest = hashlib.sha256((path / "calibration.yaml").read_bytes()).hexdigest()
    assert values["calibration_sha256"] == digest
    assert private(path, "salvage").is_dir() and private(path, "commits").exists()
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in (path, path / "config.yaml")}
    umask = os.umask(0)
    os.umask(umask)
    assert modes == {path: 0o750 & ~umask, path / "config.yaml": 0o640 & ~umask}


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    found = [create(plan(tmp_path)).name for _ in range(3)]
    assert found == ["drive", "drive_2", "drive_3"]
    assert read_session_json(tmp_path / "drive_3")["name"] == "drive_3"
    (tmp_path / "drive_4").write_text("not a session, but in the way")
    assert create(plan(tmp_path)).name == "drive_5"


def test_a_longest_name_that_is_taken_stays_one_that_a_session_may_have(tmp_path: Path) -> None:
    long = "x" * 100
    first, second = create(plan(tmp_path, long)), create(plan(tmp_path, long))
    assert first.name == long and len(second.name) <= 100 and second.name.endswith("_2")


def test_a_name_that_the_user_asked_for_is_not_changed(tmp_path: Path) -> None:
    create(plan(tmp_path, exact_name=True))
    kept = (tmp_path / "drive" / "config.yaml").read_bytes()
    with pytest.raises(UsageError, match="drive: a session of that name exists"):
        create(plan(tmp_path, exact_name=True))
    assert names(tmp_path) == ["drive"]
    assert (tmp_path / "drive" / "config.yaml").read_bytes() == kept


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "ä", "x" * 101, "a b"])
def test_names_that_no_session_may_have(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    with pytest.raises(UsageError):
        create(plan(root, name))
    assert not root.exists()


def test_what_an_earlier_start_left_is_cleared_away(tmp_path: Path) -> None:
    stale = tmp_path / ".drive.tmp"
    (stale / "_recorder").mkdir(parents=True)
    (stale / "config.yaml").write_text("torn")
    path = create(plan(tmp_path))
    assert names(tmp_path) == ["drive"]
    assert (path / "config.yaml").read_text() == "version: 1\n"


def test_starts_of_one_name_at_once_get_sessions_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes when the first one has files in its temporary folder."""
    root = tmp_path / "sessions"
    second_waits, found, sleep = threading.Event(), dict[str, Path](), time.sleep

    def wait(_: float) -> None:
        second_waits.set()
        sleep(0.001)

    monkeypatch.setattr("recorder.session.layout.time.sleep", wait)

    def start(text: str, begin: Callable[[Path], None]) -> None:
        given = SessionPlan(str(root), "drive", False, text)
        found[text] = create_session(PosixDisk(), given, dict(VALUES), begin)

    def of_first(folder: Path) -> None:
        (private(folder) / "commits").write_text("first")
        second.start()
        while second.is_alive() and not second_waits.wait(0.01):
            pass

    second = threading.Thread(
        target=start,
        args=("second", lambda folder: (private(folder) / "commits").write_text("second") and None),
    )
    start("first", of_first)
    second.join()
    assert found == {"first": root / "drive", "second": root / "drive_2"}
    for text, path in found.items():
        assert private(path, "commits").read_text() == text
        assert (path / "config.yaml").read_text() == text
        assert read_session_json(path)["name"] == path.name
    assert names(root) == ["drive", "drive_2"]


def test_a_root_that_another_process_made_meanwhile_is_used(tmp_path: Path) -> None:
    class Late(PosixDisk):
        def make_folder(self, path: Path) -> None:
            if path == tmp_path / "root":
                PosixDisk.make_folder(self, path)
            PosixDisk.make_folder(self, path)

    assert create(plan(tmp_path / "root"), Late()) == tmp_path / "root/drive"


def test_a_start_does_not_wait_for_ever_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recorder.session.layout.time.sleep", lambda _: None)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(StorageError, match="another process has been creating a session there"):
        create(plan(tmp_path))
    os.close(held)
    assert names(tmp_path) == []


@pytest.mark.parametrize("below", ["", "sub", "sub/deeper"])
def test_a_root_that_is_a_file(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(StorageError, match="is not a folder") as caught:
        create(plan(file / below))
    assert str(file) in str(caught.value)
    assert file.read_text() == "kept"


class FailingDisk(PosixDisk):
    """Fails at the n-th operation, before or after it was carried out."""

    def __init__(self, fail_at: int, number: int, after: bool) -> None:
        self.left = fail_at
        self._number = number
        self._after = after

    def _count(self, operation: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left == 0 and not self._after:
            raise OSError(self._number, os.strerror(self._number))
        result = operation()
        if self.left == 0:
            raise OSError(self._number, os.strerror(self._number))
        return result

    def create(self, path: Path) -> AppendFile:
        file: AppendFile = self._count(lambda: PosixDisk.create(self, path))
        return file

    def write_file(self, path: Path, data: bytes) -> None:
        self._count(lambda: PosixDisk.write_file(self, path, data))

    def make_folder(self, path: Path) -> None:
        self._count(lambda: PosixDisk.make_folder(self, path))

    def rename(self, source: Path, target: Path) -> None:
        self._count(lambda: PosixDisk.rename(self, source, target))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.EROFS, "is on a read-only file system"),
        (errno.EACCES, "may not be written to by this user"),
        (errno.ENOSPC, "is full"),
        (errno.EDQUOT, "is full"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("after", [False, True])
def test_a_disk_that_fails_anywhere_is_one_clear_error_and_leaves_no_half_session(
    tmp_path: Path, number: int, text: str, after: bool
) -> None:
    root = tmp_path / "root"
    create(plan(root, "earlier"))
    for fail_at in range(1, 50):
        disk = FailingDisk(fail_at, number, after)
        try:
            create(plan(root, calibration_text="x"), disk)
        except StorageError as error:
            assert str(root) in str(error) and text in str(error)
            for name in names(root):  # a session with its name is a whole one
                assert not name.startswith("."), "rubbish is left"
                read_session_json(root / name)
        else:
            break
    assert 5 < fail_at < 49
    assert "earlier" in names(root)


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    disk = FailingDisk(1, errno.EROFS, False)
    with pytest.raises(StorageError, match=r"root: is on a read-only file system"):
        create(plan(tmp_path / "root"), disk)
    assert names(tmp_path) == []


def test_too_little_space_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"GB free, storage.min_free_gb asks for 1e\+06"):
        create(plan(tmp_path, min_free_gb=1e6))
    assert names(tmp_path) == []
    assert free_bytes(tmp_path / "not" / "yet") > 0


def test_session_json_is_replaced_whole(tmp_path: Path) -> None:
    path = create(plan(tmp_path))
    values = read_session_json(path)
    write_session_json(PosixDisk(), path, values | {"state": "clean"})
    assert read_session_json(path)["state"] == "clean"
    assert not list(private(path).glob("*.tmp"))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", "version 1"),
        (b"{}", "version 1"),
        (json.dumps({"version": 2}).encode(), "version 1"),
    ],
)
def test_a_session_json_that_is_none(tmp_path: Path, content: bytes, text: str) -> None:
    path = create(plan(tmp_path))
    private(path, "session.json").write_bytes(content)
    with pytest.raises(SessionError, match=text):
        read_session_json(path)


def test_folders_that_are_no_sessions(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="not a session of the recorder"):
        read_session_json(tmp_path)
    private(tmp_path, "session.json").mkdir(parents=True)
    with pytest.raises(SessionError, match="cannot be read"):
        read_session_json(tmp_path)
