"""L5Kit datasets as archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.common.errors import FormatError, StorageError
from tests.acceptance.command import contents
from tests.archives.contract import ArchiveContract, fill_up
from tests.archives.l5kit.rig import write_boxes
from tests.session.build import START_NS


class TestL5kit(ArchiveContract):
    archive = "l5kit"

    def test_progress_comes_to_its_end(self, session: Path) -> None:
        """A frame at a time, which two sweeps do not show."""
        reported: list[tuple[float, float]] = []
        steps = [ArchiveRequest("l5kit", {"lidar": "imu"})]
        list(finalize(session, steps, progress=lambda _, *at: reported.append(at)))
        assert reported == [(k, 20) for k in range(21)]

    def test_a_failure_names_the_stream_and_leaves_the_older_one(self, session: Path) -> None:
        """Boxes are what is read besides times."""
        (path,) = self.pack(session).files
        before = contents(path.parent)
        write_boxes(session, [{"t_ns": START_NS + 100_000_000}, {"t_ns": "late"}])
        with pytest.raises(FormatError, match=r"drive: l5kit: _cuboids/hand.jsonl: .*:3: t_ns"):
            self.pack(session)
        assert contents(path.parent) == before

    def test_a_full_disk_leaves_the_older_one(
        self, session: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (path,) = self.pack(session).files
        before = contents(path.parent)
        for left in (0, 1000, 5000):
            fill_up(monkeypatch, left)
            with pytest.raises(StorageError, match=r"l5kit: .*No space left"):
                self.pack(session)
            monkeypatch.undo()
            assert contents(path.parent) == before
        self.pack(session)
