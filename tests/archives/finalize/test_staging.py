"""How archives come into place: on any file system, and in which order of syncs and renames."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recorder.archives import staging
from recorder.archives.base import PackedFiles
from recorder.archives.context import PackingContext
from recorder.common.errors import ArchiveError, RecorderError, StorageError
from recorder.common.files import PosixDisk
from recorder.perception.calibration import Calibration


@pytest.fixture(params=["file", "folder"])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """Two files or folders that change places, ``a/x`` and ``x``; nothing does it in one step."""
    monkeypatch.setattr("recorder.common.syscalls.ctypes.CDLL", lambda *_, **__: object())
    (tmp_path / "a").mkdir()
    paths = tmp_path / "a/x", tmp_path / "x"
    for path, text in zip(paths, ("new", "old"), strict=True):
        if request.param == "folder":
            path.mkdir()
        (path / "part" if request.param == "folder" else path).write_text(text)
    return paths


def texts(*paths: Path) -> list[str]:
    return [(path / "part" if path.is_dir() else path).read_text() for path in paths]


def test_an_exchange_where_the_system_has_none(pair: tuple[Path, Path]) -> None:
    staging.exchange(*pair)
    assert texts(*pair) == ["old", "new"]
    assert len(list(pair[0].parent.iterdir())) == 1


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_an_exchange_by_renames_that_fails_is_taken_back(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, failing: int, behind: bool
) -> None:
    calls = 0

    def failed(real: Callable[[Path, Path], object]) -> Callable[[Path, Path], None]:
        def call(one: Path, other: Path) -> None:
            nonlocal calls
            calls += 1
            if behind or calls != failing:
                real(one, other)
            if calls == failing:
                raise OSError(errno.EIO, "Input/output error")

        return call

    for name in ("hardlink_to", "rename", "replace"):
        monkeypatch.setattr(Path, name, failed(getattr(Path, name)))
    whole = (["new", "old"], ["old", "new"])
    try:
        staging.exchange(*pair)
    except OSError:
        assert texts(*pair) in whole if behind else texts(*pair) == whole[0]
    else:  # without hard links it goes, too
        assert texts(*pair) == whole[1]


def test_a_file_is_never_missing_while_it_is_exchanged(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill would leave what is there then."""
    seen: list[bool] = []
    real = Path.replace

    def replace(one: Path, other: Path) -> None:
        seen.append(pair[1].exists())
        real(one, other)

    is_file = pair[1].is_file()
    monkeypatch.setattr(Path, "replace", replace)
    staging.exchange(*pair)
    assert seen == [is_file]


def test_syncs_stand_between_what_must_not_change_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut, too, nothing names what is not there, or not its own."""
    done: list[str] = []

    def reported(what: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            done.append(f"{what} {arguments[-1].name}")
            return real(*arguments, **named)

        return call

    with staging.staging(tmp_path, "x") as folder:
        for parent in (tmp_path, folder):
            (parent / "data").write_text(parent.name)
            (parent / "index").write_text(parent.name)
        (tmp_path / "stale").touch()
        monkeypatch.setattr(PosixDisk, "sync_folder", reported("sync", PosixDisk.sync_folder))
        monkeypatch.setattr(staging, "exchange", reported("exchange", staging.exchange))
        monkeypatch.setattr(Path, "rename", reported("rename", Path.rename))
        monkeypatch.setattr(Path, "unlink", reported("unlink", Path.unlink))
        staging.publish(folder, tmp_path, PackedFiles(("data", "index"), ("stale",)))
    place = tmp_path.name
    assert done[:9] == [
        "sync .x.part",
        "rename index.old",
        f"sync {place}",
        "exchange data",
        f"sync {place}",
        "rename index",
        f"sync {place}",
        "unlink stale",
        f"sync {place}",
    ]
    assert (tmp_path / "data").read_text() == (tmp_path / "index").read_text() == ".x.part"


def test_linked_files_count_once(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/one").write_bytes(b"12345")
    (tmp_path / "d/e/again").hardlink_to(tmp_path / "d/one")
    (tmp_path / "d/e/other").write_bytes(b"12345")
    assert staging.measure_size(tmp_path / "d") == 10
    assert staging.measure_size(tmp_path / "d/one") == 5


@pytest.mark.parametrize(
    ("error", "kind", "at_fault"),
    [
        (ArchiveError("bad"), ArchiveError, True),
        (OSError(errno.EIO, "bad"), StorageError, False),
        (StorageError("bad"), StorageError, False),
    ],
)
def test_errors_get_the_innermost_place(
    error: Exception, kind: type[RecorderError], at_fault: bool
) -> None:
    session: Any = SimpleNamespace(streams={})
    context = PackingContext(session, Path(), {}, Calibration())
    with (
        pytest.raises(kind, match=r"^imu, sample 3: bad$"),
        context.locate_errors("outer"),
        context.locate_errors("imu", 3),
    ):
        raise error
    assert context.at_fault == at_fault
