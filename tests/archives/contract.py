"""What holds of every archive.  Its tests inherit it::

class TestVrs(ArchiveContract):
    archive = "vrs"
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from recorder.archives.finalize import ArchiveRequest, PackedArchive, finalize, prepare
from recorder.common.errors import (
    ArchiveError,
    ConfigError,
    FormatError,
    SessionError,
    StorageError,
)
from recorder.session.events import make_event
from tests.acceptance.command import contents
from tests.archives.ncore.packer_rig import lidar, still_imu
from tests.session.build import START_NS, Builder, build_session, camera_spec, radar_spec
from tests.support.changes import flip
from tests.sync_order import SyncOrder


def rig(path: Path) -> Builder:
    builder = Builder(path)
    for spec in (camera_spec(), lidar(), radar_spec(), still_imu()):
        builder.add(spec, 0.2)
    return builder


def recovered(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec(), seq=[0, 1, 2, 7, 8])
    builder.lose("camera", 3, 6)
    return builder.close("recovered")


def late_and_empty(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec(), 0.2, offset_ns=2_000_000_000)
    builder.add(still_imu(), 3.0)
    builder.add(radar_spec(), count=0)
    return builder.close()


def empty_imu(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec(), 0.2)
    builder.add(still_imu(), count=0)
    return builder.close()


def backward(path: Path) -> Path:
    path = build_session(path, camera_spec(), count=10, plain=True).path
    ts = np.fromfile(path / "camera/ts")
    ts[3], ts[6] = ts[2], ts[4] - 0.01
    ts.tofile(path / "camera/ts")
    return path


def without_folder(path: Path) -> Path:
    """The radar was declared, but not one sample of it came."""
    path = build_session(path, camera_spec(), seconds=0.2).path
    header = path / "_recorder/session.json"
    values = json.loads(header.read_text())
    values["streams"]["radar"] = radar_spec().to_wire()
    header.write_text(json.dumps(values))
    return path


def with_holes(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec(), 0.2)
    counts = {"count": 2, "parts": 5}
    builder.events.append(make_event("incomplete", START_NS, "camera", "network", **counts))
    return builder.close()


ODD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "incomplete samples": (with_holes, "incomplete samples: 2 samples lack 5 parts (network)"),
    "recovered with gaps": (recovered, "lost samples: 4 (buffer)"),
    "late and empty streams": (late_and_empty, "radar: no sample was recorded"),
    "an empty IMU": (empty_imu, "imu: no sample was recorded"),
    "a stream that never came": (without_folder, "radar: no sample was recorded"),
    "times that do not rise": (backward, "camera: "),
}


class ArchiveContract:
    """Packs through the finalizer."""

    archive: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    room: ClassVar[tuple[int, ...]] = (20_000,)
    """Bytes that a full disk takes; fewer than the archive has."""
    fault: ClassVar[str] = "drive.*radar"
    """Pattern of the error that a damaged session causes."""
    steps: ClassVar[int] = 5
    """The progress is reported in more steps than these."""
    needs_samples: ClassVar[bool] = True

    def pack(self, path: Path, **options: Any) -> PackedArchive:
        (result,) = finalize(path, [ArchiveRequest(self.archive, self.options | options)])
        return result

    @pytest.fixture
    def session(self, tmp_path: Path) -> Path:
        return rig(tmp_path / "drive").close()

    def test_originals_are_only_read(self, session: Path) -> None:
        before = contents(session)
        result = self.pack(session)
        after = contents(session)
        assert {k: v for k, v in after.items() if not k.startswith("_archives/")} == before
        place = session / "_archives" / self.archive
        assert {path.name for path in place.iterdir()} == {path.name for path in result.files}
        assert result.bytes > 0

    def test_progress_comes_to_its_end(self, session: Path) -> None:
        done, _ = self.progress(session)
        assert done[0] == 0
        assert len(set(done)) > self.steps

    def progress(self, path: Path, **options: Any) -> tuple[list[float], PackedArchive]:
        """Pack; the reported amounts of finished work, which end at the announced amount."""
        reported: list[tuple[float, float]] = []
        steps = [ArchiveRequest(self.archive, self.options | options)]
        (result,) = finalize(path, steps, progress=lambda _, *at: reported.append(at))
        done = [at for at, _ in reported]
        assert done == sorted(done)
        (total,) = {total for _, total in reported}
        assert done[-1] == pytest.approx(total, abs=1e-6)
        return done, result

    @pytest.mark.parametrize("name", ODD)
    def test_odd_sessions_are_packed_and_it_is_said_once(self, tmp_path: Path, name: str) -> None:
        make, sentence = ODD[name]
        _, result = self.progress(make(tmp_path / "odd"))
        assert sum(sentence in note for note in result.notes) >= 1, result.notes
        assert len(set(result.notes)) == len(result.notes)
        subjects = ("session", "camera", "lidar", "radar", "imu", "poses", "frames")
        assert all(note.split(": ")[0] in subjects for note in result.notes), result.notes

    def test_all_is_synced_before_it_comes_into_place(
        self, session: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first time, and when an older one is replaced."""
        self.check_syncs(session, monkeypatch)

    def check_syncs(self, session: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        order = SyncOrder(session.parent, monkeypatch)
        notes, inodes = [], []
        for _ in range(2):
            made = self.pack(session, **options)
            assert {*made.files} <= {*order.renamed}
            order.check()
            order.renamed.clear()
            notes.append(made.notes)
            inodes += [path.stat().st_ino for path in made.files]
        assert notes[0] == notes[1] and len({*inodes}) == len(inodes)

    def test_an_unknown_option_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=rf"{self.archive}\.no_such_option"):
            prepare([ArchiveRequest(self.archive, {"no_such_option": 1})])

    def test_a_session_without_samples_is_an_error(self, tmp_path: Path) -> None:
        path = build_session(tmp_path / "s", radar_spec(), count=0).path
        if not self.needs_samples:
            assert self.pack(path).notes
            return
        with pytest.raises(
            (ArchiveError, SessionError), match=r"/s: .*has no (sample|stream|pict)"
        ):
            self.pack(path)
        assert not list((path / "_archives" / self.archive).iterdir())

    def damage(self, session: Path) -> None:
        """Damage what the archive is packed of."""
        valid = session / "radar/valid"
        flip(valid, valid.stat().st_size // 2, 0xFF)

    def test_a_failure_names_the_stream_and_leaves_the_older_one(self, session: Path) -> None:
        files = self.pack(session).files
        before = {path: contents(path.parent) for path in files}
        self.damage(session)
        with pytest.raises((FormatError, SessionError), match=self.fault):
            self.pack(session)
        assert {path: contents(path.parent) for path in files} == before

    def test_a_full_disk_leaves_the_older_one(
        self, session: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = self.pack(session).files
        before = {path: contents(path.parent) for path in files}
        for left in self.room:
            fill_up(monkeypatch, left)
            with pytest.raises(StorageError, match=rf"{self.archive}: .*No space left"):
                self.pack(session)
            monkeypatch.undo()
            assert {path: contents(path.parent) for path in files} == before
        self.pack(session)


def fill_up(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    """Let the disk take so many bytes more."""
    free = [left]

    def wrapped(real: Callable[..., int]) -> Callable[..., int]:
        def write(fd: int, data: Any, *more: Any) -> int:
            buffers = data if isinstance(data, list) else [data]
            free[0] -= sum(memoryview(b).nbytes for b in buffers)
            if free[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, data, *more)

        return write

    for name in ("write", "writev", "pwrite", "pwritev"):
        monkeypatch.setattr(os, name, wrapped(getattr(os, name)))
