"""What a session lost, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.archives.context import Job
from recorder.processing.calibration import Calibration
from recorder.session.reader import Session
from tests.session.build import Builder, camera_spec, imu_spec


@pytest.mark.parametrize(
    ("crashes", "sentence"),
    [
        (0, "lost samples: 4 (buffer), 2 (disk)"),
        (1, "lost samples: 4 (buffer), 2 (disk), an interval that nobody counted"),
        (3, "lost samples: 4 (buffer), 2 (disk), 3 intervals that nobody counted"),
    ],
)
def test_causes_are_added_up(tmp_path: Path, crashes: int, sentence: str) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), seq=[0, 1, 6, 9])
    builder.add(imu_spec(), 0.1)
    builder.lose("camera", 2, 3)
    builder.lose("camera", 4, 5)
    builder.lose("camera", 7, 8, "disk")
    for _ in range(crashes):
        builder.lose("camera", 10, None, "crash", count=None)
    with Session(builder.close()) as session:
        job = Job(session, tmp_path, {}, Calibration())
        lost = job.notes.add_losses()
    counted = {"buffer": 4, "disk": 2}
    assert lost == {"camera": {"counted": counted, "uncounted_intervals": crashes}}
    assert job.notes.lines == [f"camera: {sentence}"]
