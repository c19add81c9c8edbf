"""Maps of positions: no line leads over an outage."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from recorder.session.reader import Session
from recorder.viewers.report.tracks import _draw_map, _read_evenly
from tests.session.build import imu_session


def test_points_after_an_outage_are_known_by_their_times(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "gap", 2.0)
    for name, dtype, pause in (("ts", "<f8", 3.0), ("t_mono", "<u8", 3_000_000_000)):
        times = np.fromfile(builder.path / "imu" / name, dtype)
        times[150:] += np.array(pause).astype(dtype)
        times.tofile(builder.path / "imu" / name)
    with Session(builder.close()) as session:
        values, after = _read_evenly(session.streams["imu"], "acc")
    assert len(values) == len(after) == 200
    assert np.flatnonzero(after).tolist() == [150]


def test_a_track_is_broken_at_an_outage_and_where_there_is_no_position() -> None:
    points = np.array([[0, 0], [1, 0], [2, 0], [np.nan, 0], [4, 0], [5, 0]], np.float64)
    after = np.array([False, False, True, False, False, False])
    drawn = str(_draw_map("gnss", points, ("east", "north"), "", after))
    (path,) = re.findall(r' d="(M[^"]*L[^"]*)" class="s s0"', drawn)
    assert [piece.count("L") for piece in path.split("M")[1:]] == [1, 0, 1]
