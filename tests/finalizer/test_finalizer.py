"""The finalizer with packers of its own: what is packed, put into place, replaced and removed."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from recorder import finalizer
from recorder.archives import ArchiveError, base, staging
from recorder.archives.base import Job, Packed, Packer
from recorder.contract.errors import (
    ConfigError,
    SessionError,
    StorageError,
    UsageError,
)
from recorder.contract.options import Option
from recorder.finalizer import ARCHIVES, Step, finalize, verify
from tests.acceptance.command import contents
from tests.session.build import Builder, camera_spec, imu_spec


@dataclass
class FakePacker(Packer):
    """Writes a file and a folder, or fails as it is told."""

    content: bytes = b"one"
    fail: Exception | None = None
    seen: list[Mapping[str, Any]] = field(default_factory=list)
    name = "fake"
    options = {"speed": Option("int", 3, "of packing", minimum=1)}

    def ticks(self, job: Job) -> float:
        return len(job.session.streams["camera"])

    def pack(self, job: Job) -> Packed:
        self.seen.append(job.options)
        assert list(job.folder.iterdir()) == []
        name = job.session.name
        (job.folder / f"{name}.bin").write_bytes(self.content)
        (job.folder / f"{name}.d").mkdir()
        (job.folder / f"{name}.d" / "part").write_bytes(self.content)
        for index in range(len(job.session.streams["camera"])):
            with job.at("camera", index):
                job.advance(1)
                if self.fail is not None and index == 2:
                    raise self.fail
        job.notes.say("is odd", "camera")
        job.notes.say("is odd", "camera")
        return Packed((f"{name}.d", f"{name}.bin"), (f"{name}.older",), {"frames": {"camera": 6}})


@pytest.fixture
def packer(monkeypatch: pytest.MonkeyPatch) -> FakePacker:
    fake = FakePacker()
    monkeypatch.setattr(finalizer, "load_packer", lambda name: fake)
    return fake


@pytest.fixture
def session(tmp_path: Path) -> Path:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.2)
    return builder.close()


def in_place(session: Path) -> dict[str, bytes]:
    folder = session / ARCHIVES / "fake"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_an_archive_comes_into_place(packer: FakePacker, session: Path) -> None:
    before = contents(session)
    shown: list[tuple[str, float, float]] = []
    (result,) = finalize(session, [Step("fake")], progress=lambda *told: shown.append(told))
    assert in_place(session) == {"drive.bin": b"one", "drive.d/part": b"one"}
    assert [path.name for path in result.files] == ["drive.d", "drive.bin"]
    assert (result.bytes, result.notes) == (6, ("camera: is odd",))
    assert [shown[0], shown[-1]] == [("fake", 0.0, 6.0), ("fake", 6.0, 6.0)]
    assert packer.seen == [{"speed": 3}]
    after = contents(session)
    assert {k: v for k, v in after.items() if not k.startswith(ARCHIVES)} == before


def test_an_older_archive_is_replaced(packer: FakePacker, session: Path) -> None:
    list(finalize(session, [Step("fake")]))
    folder = session / ARCHIVES / "fake"
    (folder / "drive.older").write_bytes(b"of another kind")
    (folder / "labels.bin").write_bytes(b"somebody's own")
    packer.content = b"two"
    list(finalize(session, [Step("fake")]))
    assert in_place(session) == {
        "drive.bin": b"two",
        "drive.d/part": b"two",
        "labels.bin": b"somebody's own",
    }


def test_what_an_interrupted_run_left_is_removed(packer: FakePacker, session: Path) -> None:
    left = session / ARCHIVES / "fake" / ".drive.part"
    (left / "drive.d").mkdir(parents=True)
    (left / "half").write_bytes(b"half")
    list(finalize(session, [Step("fake")]))
    assert in_place(session) == {"drive.bin": b"one", "drive.d/part": b"one"}
    assert not left.exists()


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ArchiveError("bad frame"), ArchiveError, "drive: fake: camera, sample 2: bad frame"),
        (OSError(errno.ENOSPC, "full"), StorageError, "drive: fake: camera, sample 2: full"),
    ],
)
def test_a_failure_says_where_and_leaves_the_old_one(
    packer: FakePacker, session: Path, error: Exception, kind: type[Exception], words: str
) -> None:
    list(finalize(session, [Step("fake")]))
    packer.content, packer.fail = b"two", error
    with pytest.raises(kind, match=words):
        list(finalize(session, [Step("fake")]))
    assert in_place(session) == {"drive.bin": b"one", "drive.d/part": b"one"}
    assert not (session / ARCHIVES / "fake/.drive.part").exists()


def test_an_interrupt_leaves_nothing(packer: FakePacker, session: Path) -> None:
    packer.fail = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        list(finalize(session, [Step("fake")]))
    assert in_place(session) == {}


class Renames:
    """Counts the steps by which archives come into place, and fails at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: int, *, dead: bool) -> None:
        self._calls, self._failing, self._dead = 0, failing, dead
        self._exchange, self._rename = staging.exchange, Path.rename
        monkeypatch.setattr(staging, "exchange", self.exchange)
        monkeypatch.setattr(Path, "rename", lambda path, target: self.rename(path, target))

    def exchange(self, one: Path, other: Path) -> None:
        self._count(other)
        self._exchange(one, other)

    def rename(self, path: Path, target: Path) -> None:
        self._count(target)
        self._rename(path, target)

    def _count(self, target: Path) -> None:
        self._calls += 1
        if self._calls == self._failing or (self._dead and self._calls > self._failing):
            raise OSError(errno.EIO, "Input/output error", str(target))


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_renames_that_fail_are_taken_back(
    packer: FakePacker, session: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    list(finalize(session, [Step("fake")]))
    packer.content = b"two"
    Renames(monkeypatch, failing, dead=False)
    with pytest.raises(StorageError, match=r"fake: .*Input/output error"):
        list(finalize(session, [Step("fake")]))
    assert in_place(session) == {"drive.bin": b"one", "drive.d/part": b"one"}


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_kill_between_renames_leaves_no_mixture(
    packer: FakePacker, session: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The file that names the others never stands beside some that are not its own."""
    list(finalize(session, [Step("fake")]))
    packer.content = b"two"
    Renames(monkeypatch, failing, dead=True)  # nothing is taken back, as after a kill
    with pytest.raises(StorageError):
        list(finalize(session, [Step("fake")]))
    left = in_place(session)
    assert "drive.bin" not in left or set(left.values()) == {b"one"}
    monkeypatch.undo()
    monkeypatch.setattr(finalizer, "load_packer", lambda name: packer)
    list(finalize(session, [Step("fake")]))
    assert in_place(session) == {"drive.bin": b"two", "drive.d/part": b"two"}


def test_an_exchange_where_the_system_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recorder.archives.staging.ctypes.CDLL", lambda *_, **__: object())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    staging.exchange(tmp_path / "a", tmp_path / "b")
    assert [(tmp_path / name / "x").read_text() for name in ("a", "b")] == ["b", "a"]


def test_out_takes_the_place_of_the_sessions_own_folder(
    packer: FakePacker, session: Path, tmp_path: Path
) -> None:
    out = tmp_path / "far" / "away"
    (result,) = finalize(session, [Step("fake")], out=out)
    assert result.files[-1] == out / "fake/drive.bin"
    assert not (session / ARCHIVES).exists()


@pytest.mark.parametrize("state", ["recording", "sealed"])
def test_unclosed_sessions_are_refused(tmp_path: Path, state: str, packer: FakePacker) -> None:
    builder = Builder(tmp_path / "open")
    builder.add(imu_spec(), 0.1)
    with pytest.raises(SessionError, match="run `recorder recover"):
        list(finalize(builder.close(state), [Step("fake")]))
    assert not packer.seen


def test_live_sessions_are_refused(packer: FakePacker, session: Path) -> None:
    fd = os.open(session / "_recorder/lock", os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(SessionError, match="is being recorded or recovered"):
            list(finalize(session, [Step("fake")]))
    finally:
        os.close(fd)


def test_damaged_sessions_are_refused(packer: FakePacker, session: Path) -> None:
    with (session / "camera/video.avi").open("r+b") as file:
        file.truncate(4000)
    with pytest.raises(SessionError, match=r"is damaged, not packed: .*video.avi"):
        list(finalize(session, [Step("fake")]))


def test_two_packers_of_one_archive(packer: FakePacker, session: Path) -> None:
    folder = session / ARCHIVES / "fake" / ".drive.part"
    folder.mkdir(parents=True)
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(SessionError, match="another process packs"):
            list(finalize(session, [Step("fake")]))
    finally:
        os.close(fd)


def test_no_such_session(packer: FakePacker, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no such session folder"):
        list(finalize(tmp_path / "none", [Step("fake")]))


def test_archives_are_found_by_name() -> None:
    assert "ncore" in base.available()
    with pytest.raises(UsageError, match=r"no archive 'ncor' \(did you mean 'ncore'\?\)"):
        base.load_packer("ncor")


@pytest.mark.parametrize("options", [{"sped": 3}, {"speed": "fast"}, {"speed": 0}])
def test_options_are_checked_first(
    packer: FakePacker, session: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"fake\.spee?d"):
        list(finalize(session, [Step("fake", options)]))


def test_verify_lets_odd_times_of_plain_traces_pass(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "plain", plain=True)
    builder.add(imu_spec(), 0.1)
    path = builder.close()
    ts = bytearray((path / "imu/ts").read_bytes())
    ts[8:16] = ts[0:8]
    (path / "imu/ts").write_bytes(ts)
    (odd,) = verify(path)
    assert odd.startswith("imu: ")
