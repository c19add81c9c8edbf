"""Samples are found by time as in the whole array of stamps, whatever the window and the order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recorder.session.reader import Session
from recorder.session.time_search import TimeSearch
from tests.session.build import Builder, imu_spec


@pytest.mark.parametrize("window", [1, 2, 7, 1000])
def test_samples_are_found_by_time(tmp_path: Path, window: int) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(imu_spec(), count=60)
    builder.close()
    with Session(builder.path) as session:
        stream = session.streams["imu"]
        search, t_ns = TimeSearch(stream, window), stream.t_ns.copy()
        rng = np.random.default_rng(3)
        around = rng.integers(t_ns[0] - 10**7, t_ns[-1] + 10**7, 300)
        exact = np.concatenate([t_ns, t_ns - 1, t_ns + 1, [0, 2**62]])
        for wanted in [*np.sort(around).tolist(), *rng.permutation(exact).tolist()]:
            assert search.first_at(wanted) == np.searchsorted(t_ns, wanted)
            assert search.nearest(wanted) == stream.at(wanted)
            distance = abs(int(t_ns[stream.at(wanted)]) - wanted)
            assert search.nearest(wanted, distance) == stream.at(wanted)
            assert distance == 0 or search.nearest(wanted, distance - 1) is None
            assert search.between(wanted, wanted + 10**7) == stream.between(wanted, wanted + 10**7)


def test_stamps_are_read_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(imu_spec(), count=400)
    builder.close()
    with Session(builder.path) as session:
        stream = session.streams["imu"]
        known, times, read = stream.times(), stream.times, list[int]()

        def counted(start: int = 0, stop: int | None = None) -> object:
            found = times(start, stop)
            read.append(len(found))
            return found

        monkeypatch.setattr(stream, "times", counted)
        search = TimeSearch(stream, 80)
        for index, t_ns in enumerate(known.tolist()):
            assert search.first_at(t_ns) == index
        assert search.first_at(2**62) == search.first_at(2**62) == 400
        assert max(read) == 80
        windows = read.count(80)
        assert windows <= 400 // 70 + 1  # a window begins a little before what was asked for
        assert len(read) - windows <= windows * 10  # a bisection for each


def test_a_stream_without_a_sample(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(imu_spec(), count=0)
    builder.close()
    with Session(builder.path) as session:
        search = TimeSearch(session.streams["imu"])
        assert search.first_at(0) == 0 and search.nearest(0) is None
        assert search.between(0, 10) == range(0)
