"""Datasets of several sessions, with a packer of its own: made, added to, gone on without one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from recorder.archives import staging
from recorder.archives.base import PackedFiles, Packer
from recorder.archives.context import PackingContext
from recorder.archives.finalize import ArchiveRequest, collect, finalize, packing
from recorder.cli import main
from recorder.common import syscalls
from recorder.common.errors import (
    ArchiveError,
    RecorderError,
    SessionError,
    StorageError,
    UsageError,
)
from tests.acceptance.command import contents
from tests.session.build import build_session, imu_spec


@dataclass
class CollectingPacker(Packer):
    """Datasets are one JSON file, ``NAME.set/all.json``: what it held, and who came when."""

    bad: dict[str, RecorderError] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)
    workers: list[object] = field(default_factory=list)
    name = "fake"
    collects = True

    def ticks(self, context: PackingContext) -> float:
        return 2

    def pack_all(
        self, contexts: Sequence[PackingContext], name: str, existing: Path | None
    ) -> PackedFiles:
        self.calls.append([context.session.name for context in contexts])
        self.workers += [context.workers for context in contexts]
        assert len({context.folder for context in contexts}) == 1
        folder = contexts[0].folder
        assert list(folder.iterdir()) == []
        rows: dict[str, int] = {}
        if existing is not None:
            rows = json.loads((existing / f"{name}.set/all.json").read_bytes())
        (folder / f"{name}.set").mkdir()
        for context in contexts:
            with context.locate_errors("imu", 1):
                (folder / f"{name}.set/half").write_bytes(b"half")
                context.advance(2)
                if error := self.bad.get(context.session.name):
                    raise error
            rows[f"{context.session.name} {context.session.start_ns}"] = len(self.calls)
            context.notes.add("is odd", "imu")
        (folder / f"{name}.set/half").unlink()
        (folder / f"{name}.set/all.json").write_text(json.dumps(rows))
        return PackedFiles((f"{name}.set",), (), {"sessions": len(rows)})


@pytest.fixture
def packer(monkeypatch: pytest.MonkeyPatch) -> CollectingPacker:
    fake = CollectingPacker()
    monkeypatch.setattr("recorder.archives.base.load_packer", lambda name: fake)
    monkeypatch.setattr(syscalls, "be_idle", lambda: None)
    return fake


def make(path: Path, state: str = "clean") -> Path:
    return build_session(path, imu_spec(), seconds=0.1, state=state).path


@pytest.fixture
def sessions(tmp_path: Path) -> list[Path]:
    return [make(tmp_path / name) for name in ("a", "b", "c")]


def rows(out: Path) -> dict[str, int]:
    """Which call brought each session into the dataset."""
    found = json.loads((out / f"fake/{out.name}.set/all.json").read_bytes())
    return {key.split()[0]: value for key, value in found.items()}


def test_sessions_become_one_dataset(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "far" / "summer"
    before = [contents(path) for path in sessions]
    shown: list[tuple[str, float, float]] = []
    (result,) = collect(
        sessions, [ArchiveRequest("fake")], out, progress=lambda *progress: shown.append(progress)
    )
    assert result.files == (out / "fake/summer.set",)
    assert (result.session, result.sessions) == (None, tuple(sessions))
    assert result.notes == ("a: imu: is odd", "b: imu: is odd", "c: imu: is odd")
    assert rows(out) == {"a": 1, "b": 1, "c": 1}
    assert shown[0] == ("fake", 0.0, 6.0)
    assert shown[-1] == ("fake", 6.0, 6.0)
    assert [contents(path) for path in sessions] == before
    assert [path.name for path in (out / "fake").iterdir()] == ["summer.set"]


def test_sessions_are_added_and_replaced(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "summer"
    list(collect(sessions[:2], [ArchiveRequest("fake")], out))
    (result,) = collect(sessions[1:], [ArchiveRequest("fake")], out)
    assert rows(out) == {"a": 1, "b": 2, "c": 2}
    assert result.summary == {"sessions": 3}


@pytest.mark.parametrize("name", ["summer", "summer.set", "summer.a.b"])
def test_an_older_dataset_is_known_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert packing.find_existing_archive(tmp_path, "summer") == tmp_path


@pytest.mark.parametrize(
    "name",
    ["summer2.set", "summer2", "summer_2.set", "summer-labels.set", ".summer.old", "late.summer"],
)
def test_a_neighbour_is_no_older_dataset(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path, name: str
) -> None:
    """A packer that is told of it would add to it, or refuse what it does not know."""
    place = tmp_path / "summer/fake"
    assert packing.find_existing_archive(place, "summer") is None
    place.mkdir(parents=True)
    (place / name).write_text("a neighbour")
    assert packing.find_existing_archive(place, "summer") is None
    list(collect(sessions[:1], [ArchiveRequest("fake")], tmp_path / "summer"))
    assert rows(tmp_path / "summer") == {"a": 1}
    assert (place / name).read_text() == "a neighbour"


def test_a_dataset_that_was_made_meanwhile_is_added_to(
    packer: CollectingPacker,
    sessions: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By another process, that was done when we got the lock of the place."""
    out, real = tmp_path / "summer", staging.staging

    def late(place: Path, name: str) -> contextlib.AbstractContextManager[Path]:
        monkeypatch.setattr(packing, "staging", real)
        list(collect(sessions[:1], [ArchiveRequest("fake")], out))
        return real(place, name)

    monkeypatch.setattr(packing, "staging", late)
    list(collect(sessions[1:], [ArchiveRequest("fake")], out))
    assert rows(out) == {"a": 1, "b": 2, "c": 2}


def test_one_session_has_an_archive_of_its_own_name(
    packer: CollectingPacker, sessions: list[Path]
) -> None:
    for _ in range(2):  # the second begins anew, too
        (result,) = finalize(sessions[0], [ArchiveRequest("fake")])
        assert result.files == (sessions[0] / "_archives/fake/a.set",)
        assert (result.session, result.summary) == (sessions[0], {"sessions": 1})


def test_all_are_looked_at_before_anything_is_packed(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path
) -> None:
    damaged = make(tmp_path / "open", "recording")
    with pytest.raises(SessionError, match="run `recorder recover"):
        list(collect([*sessions, damaged], [ArchiveRequest("fake")], tmp_path / "out"))
    assert not packer.calls
    assert not (tmp_path / "out").exists()


def test_all_are_locked_while_one_is_packed(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path
) -> None:
    def try_to_recover(*_: object) -> None:
        for path in sessions:
            fd = os.open(path / "_recorder/lock", os.O_RDONLY)
            try:
                with pytest.raises(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            finally:
                os.close(fd)

    list(collect(sessions, [ArchiveRequest("fake")], tmp_path / "out", progress=try_to_recover))
    assert packer.calls == [["a", "b", "c"]]


def test_a_session_at_fault_is_left_out(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path
) -> None:
    packer.bad["b"] = ArchiveError("bad frame")
    refused: list[str] = []
    (result,) = collect(
        sessions,
        [ArchiveRequest("fake")],
        tmp_path / "out",
        refused=lambda path, error: refused.append(f"{path.name}: {error}"),
    )
    assert refused == [f"b: {sessions[1]}: fake: imu, sample 1: bad frame"]
    assert packer.calls == [["a", "b", "c"], ["a", "c"]]
    assert result.sessions == (sessions[0], sessions[2])
    assert [path.name for path in result.files[0].iterdir()] == ["all.json"]


@pytest.mark.parametrize("error", [StorageError("disk full"), ArchiveError("bad frame")])
def test_what_fails_leaves_the_older_dataset(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path, error: RecorderError
) -> None:
    out = tmp_path / "out"
    list(collect(sessions[:1], [ArchiveRequest("fake")], out))
    packer.bad["b"] = error
    with pytest.raises(type(error), match=r"fake: imu, sample 1: "):
        list(collect(sessions[1:], [ArchiveRequest("fake")], out))
    assert rows(out) == {"a": 1}


def test_what_is_nobodys_fault_ends_it_all(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path
) -> None:
    packer.bad["b"] = StorageError("disk full")

    def refused(path: Path, error: RecorderError) -> None:
        raise AssertionError(path)

    with pytest.raises(StorageError, match=rf"{tmp_path}/out/fake: fake: imu, .*disk full"):
        list(collect(sessions, [ArchiveRequest("fake")], tmp_path / "out", refused=refused))


@pytest.mark.parametrize("name", ["-x", "a b", "x" * 101])
def test_a_folder_whose_name_no_dataset_can_have(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError, match="a dataset takes its folder's name"):
        list(collect(sessions, [ArchiveRequest("fake")], tmp_path / name))


def test_a_session_given_twice(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path
) -> None:
    again = sessions[0].parent / "b" / ".." / "a"
    with pytest.raises(UsageError, match="given twice"):
        list(collect([sessions[0], again], [ArchiveRequest("fake")], tmp_path / "out"))


def test_a_packer_has_what_it_says() -> None:
    with pytest.raises(TypeError, match="Broken has no pack_all"):

        class Broken(Packer):
            name = "broken"
            collects = True

            def ticks(self, context: PackingContext) -> float:
                return 1


def run(*args: object) -> int:
    return main(["finalize", *map(str, args), "--to", "fake"])


def test_the_command_makes_and_extends_a_dataset(
    packer: CollectingPacker,
    sessions: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "summer"
    assert run(*sessions[:2], "--out", out) == 0
    text = capsys.readouterr().out
    assert f"{sessions[0]}, {sessions[1]}: fake: " in text
    assert "note: b: imu: is odd" in text
    open_ = make(tmp_path / "open", "recording")
    packer.bad["b"] = ArchiveError("bad frame")
    assert run(*sessions[1:], open_, "--out", out, "--format", "json") == 1
    captured = capsys.readouterr()
    archive: dict[str, Any]
    (archive,) = json.loads(captured.out)["archives"]
    assert archive["sessions"] == [str(sessions[2])]
    assert "run `recorder recover" in captured.err
    assert "bad frame" in captured.err
    assert rows(out) == {"a": 1, "b": 1, "c": 3}


def test_the_archives_of_an_only_session_share_their_workers(
    packer: CollectingPacker, sessions: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "summer"
    assert run(sessions[0], "--out", out) == run(sessions[1], "--out", out) == 0
    assert rows(out) == {"a": 1, "b": 2}
    assert run(*sessions, "--out", out) == 0
    assert [workers is None for workers in packer.workers] == [False, False, True, True, True]


def test_the_command_goes_without_a_session_whose_calibration_is_wrong(
    packer: CollectingPacker,
    sessions: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (sessions[1] / "calibration.yaml").write_text("sensors: [")
    out = tmp_path / "summer"
    assert run(*sessions, "--out", out) == 1
    assert rows(out) == {"a": 1, "c": 1}
    assert run(*sessions) == 1
    assert capsys.readouterr().err.count("calibration.yaml:1: bad YAML") == 2


def test_the_command_fails_with_its_only_session(
    packer: CollectingPacker,
    sessions: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    packer.bad = {path.name: ArchiveError("bad frame") for path in sessions}
    assert run(sessions[0], "--out", tmp_path / "out") == 1
    assert run(*sessions, "--out", tmp_path / "out") == 1
    assert capsys.readouterr().err.count("bad frame") == 4
    assert not (tmp_path / "out/fake/out.set").exists()
    assert run(*sessions, "--out", tmp_path / "o u t") == 2
    assert run(*sessions, "--out", tmp_path / "out", "--calibration", "none.yaml") == 2


def test_sigterm_ends_the_command_as_an_interrupt_does(
    packer: CollectingPacker,
    sessions: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "summer"
    assert run(sessions[0], "--out", out) == 0

    def unexpected(*_: object) -> None:
        raise AssertionError("the command did not see to it")

    def ticks(_: PackingContext) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return 1

    monkeypatch.setattr(packer, "ticks", ticks)
    previous = signal.signal(signal.SIGTERM, unexpected)
    try:
        assert run(sessions[1], "--out", out) == 1
        assert signal.getsignal(signal.SIGTERM) is unexpected
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert "interrupted" in capsys.readouterr().err
    assert rows(out) == {"a": 1}
    assert [path.name for path in (out / "fake").iterdir()] == ["summer.set"]
