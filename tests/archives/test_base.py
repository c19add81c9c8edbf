"""What a session lost, in words."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recorder.archives.context import PackingContext
from recorder.perception.calibration import Calibration
from recorder.session.reader import Session
from tests.session.build import Builder, camera_spec, imu_spec


@pytest.mark.parametrize(
    ("crashes", "sentence"),
    [
        (0, "lost samples: 4 (buffer), 2 (disk)"),
        (1, "lost samples: 4 (buffer), 2 (disk), an interval of unknown count"),
        (3, "lost samples: 4 (buffer), 2 (disk), 3 intervals of unknown count"),
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
        context = PackingContext(session, tmp_path, {}, Calibration())
        lost = context.notes.add_losses()
    counted = {"buffer": 4, "disk": 2}
    assert lost == {"camera": {"counted": counted, "uncounted_intervals": crashes}}
    assert context.notes.lines == [f"camera: {sentence}"]


def test_workers_get_the_times_of_samples_and_their_remarks_become_notes(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    made = builder.add(camera_spec(), seq=[0, 1, 2])
    given: dict[str, Any] = {}

    def submit(stream: str, factory: Any, indices: Any, **settings: Any) -> Any:
        given.update(settings)
        return SimpleNamespace(result=lambda: [stream, factory, indices])

    with Session(builder.close()) as session:
        workers: Any = SimpleNamespace(submit=submit)
        context = PackingContext(
            session, tmp_path, {}, Calibration(), ["imu: late"], workers=workers
        )
        factory: Any = len
        assert context.submit("camera", factory, [1, 2], group=2)() == ["camera", len, [1, 2]]
        assert [given["time_of"](index) for index in range(3)] == made.t_ns.tolist()
        given["remark"]("too dark")
    assert context.notes.lines == ["imu: late", "camera: too dark"]
