"""Files of a session that are missing."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from recorder.common import page_cache
from recorder.common.files import PosixDisk
from recorder.recording.writer.recovery import recover
from recorder.session.validation import validate
from tests.manual_clock import ManualClock
from tests.recording.writer.digested import Drive
from tests.recording.writer.test_digested_session import counts, killed


@pytest.mark.parametrize(
    "name", ["config.yaml", "calibration.yaml", "lidar/meta.json", "_recorder/session.json"]
)
def test_metadata_that_is_missing_is_an_error(tmp_path: Path, name: str) -> None:
    drive = Drive(tmp_path)
    drive.second()
    drive.close()
    assert validate(drive.path).sound
    (drive.path / name).unlink()
    report = validate(drive.path)
    assert not report.sound
    assert any(name in problem.message for problem in report.problems)


def test_recovery_writes_metadata_again_that_somebody_removed(tmp_path: Path) -> None:
    drive = killed(tmp_path)
    path = drive.path / "lidar" / "meta.json"
    before = path.read_bytes()
    path.unlink()
    report = recover(drive.path, PosixDisk(), ManualClock(9_000_000_000))
    assert report.streams["lidar"].kept == drive.sent["lidar"]
    assert path.read_bytes() == before
    assert counts(drive.path) == drive.sent


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on a disk, where pages can be dropped."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        if page_cache._in_memory(Path(folder).stat().st_dev):
            pytest.skip("/var/tmp is no disk")
        yield Path(folder)


def test_recovery_believes_files_that_somebody_has_mapped(on_disk: Path) -> None:
    """Their pages stay in the cache as long as a reader has them."""
    drive = killed(on_disk)
    path = drive.path / "lidar/raw"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:1]
        page_cache.read_range(path, 0, 1)
        assert page_cache._is_resident(file.fileno(), 0, path.stat().st_size)
        report = recover(drive.path, PosixDisk(), ManualClock(9_000_000_000))
    assert report.streams["lidar"].damaged is None
    assert counts(drive.path) == drive.sent


def test_what_is_read_around_the_cache_is_read_from_the_device(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = on_disk / "data"
    path.write_bytes(bytes(range(256)) * 64)
    real, flags = os.open, list[int]()

    def opened(name: str, how: int, *more: int) -> int:
        flags.append(how)
        return real(name, how, *more)

    with path.open("rb") as file:
        os.fsync(file.fileno())
        monkeypatch.setattr(os, "open", opened)
        assert page_cache._read_direct(file.fileno(), 4096, 8192) == path.read_bytes()[4096:12288]
    assert flags[0] & os.O_DIRECT and flags[0] & os.O_ACCMODE == os.O_RDONLY
