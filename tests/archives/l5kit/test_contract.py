"""L5Kit datasets as archives."""

from __future__ import annotations

from pathlib import Path

from recorder.archives.finalize import ArchiveRequest, finalize
from tests.archives.contract import ArchiveContract
from tests.archives.l5kit.rig import write_boxes
from tests.session.build import START_NS


class TestL5kit(ArchiveContract):
    archive = "l5kit"
    room = (0, 1000, 5000)
    fault = r"drive: l5kit: _cuboids/hand.jsonl: .*:3: t_ns"

    def damage(self, session: Path) -> None:
        """Boxes are what is read besides times."""
        write_boxes(session, [{"t_ns": START_NS + 100_000_000}, {"t_ns": "late"}])

    def test_progress_comes_to_its_end(self, session: Path) -> None:
        """A frame at a time, which two sweeps do not show."""
        reported: list[tuple[float, float]] = []
        steps = [ArchiveRequest("l5kit", {"lidar": "imu"})]
        list(finalize(session, steps, progress=lambda _, *at: reported.append(at)))
        assert reported == [(k, 20) for k in range(21)]
