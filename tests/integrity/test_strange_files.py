"""What is in a session that no reader should open, and what hides there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.integrity.proof import Trust
from recorder.integrity.verify import verify
from tests.integrity.vehicle import Vehicle, faults


def test_what_is_no_file_is_not_opened(vehicle: Vehicle) -> None:
    """A pipe would be read forever, a link shows what is elsewhere."""
    for name, seed in (("acc", 1), ("meta.json", 2), ("_recorder/commits", 3), ("lock", 4)):
        session = vehicle.record(f"pipe_{seed}", seed)
        found = list(session.rglob(name.rpartition("/")[2]))
        path = next((p for p in found if str(p).endswith(name)), session / "_recorder" / name)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        text = f"{path}: is a device, a pipe or a socket, not a file"
        assert verify(session, Trust([vehicle.public])).faults == [text]
    found_below = verify(vehicle.root, Trust([vehicle.public]))
    assert found_below.faults == [] and found_below.first_fault is not None


def test_a_link_is_found(vehicle: Vehicle, tmp_path: Path) -> None:
    session = vehicle.record("drive")
    list(finalize(session, [ArchiveRequest("vrs")]))
    for name in ("imu/acc", "imu", "_recorder/session.json", "_archives/vrs", "_archives"):
        path = session / name
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
        text = f"{path}: is a symbolic link; the recorder makes none"
        assert text in faults(vehicle, session), name
        path.unlink()
        (tmp_path / "moved").rename(path)
    (session / "_archives/other").symlink_to(tmp_path)
    assert len(faults(vehicle, session)) == 1


def test_a_file_that_is_larger_than_memory_is_not_read(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    for name in ("config.yaml", "imu/meta.json", "_recorder/session.json"):
        before = (session / name).read_bytes()
        os.truncate(session / name, 1 << 37)
        text = f"{session / name}: {1 << 37} bytes: too large for such a file"
        assert faults(vehicle, session) == [text]
        (session / name).write_bytes(before)
    assert faults(vehicle, session) == []


def test_an_empty_folder_is_found(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    for name in ("more", "imu/more", "_recorder/more"):
        (session / name).mkdir()
        text = f"{session / name}: is an empty folder; the recorder makes none"
        assert faults(vehicle, session) == [text]
        (session / name).rmdir()
    for name in ("_archives", "_pose", "_recorder/upload"):
        (session / name).mkdir()
    assert faults(vehicle, session) == []


def test_a_folder_that_cannot_be_listed_is_found(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it would else be unseen."""
    session = vehicle.record("drive")
    hidden = session / "imu"
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path) == hidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert faults(vehicle, session) == [f"{hidden}: cannot be read: Permission denied"]
