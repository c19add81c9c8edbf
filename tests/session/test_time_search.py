"""Samples are found by time as in the whole array of stamps, whatever the window and the order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recorder.session import stream as stream_module
from recorder.session.reader import Session
from recorder.session.session_part import stream_part
from tests.session.build import build_session, imu_spec


@pytest.mark.parametrize("window", [1, 2, 7, 1000])
def test_samples_are_found_by_time(
    tmp_path: Path, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "SEARCH_STAMPS", window)
    builder = build_session(tmp_path / "s", imu_spec(), count=60)
    with Session(builder.path) as session:
        stream = session.streams["imu"]
        t_ns = stream.times()
        rng = np.random.default_rng(3)
        around = rng.integers(t_ns[0] - 10**7, t_ns[-1] + 10**7, 300)
        exact = np.concatenate([t_ns, t_ns - 1, t_ns + 1, [0, 2**62]])
        for wanted in [*np.sort(around).tolist(), *rng.permutation(exact).tolist()]:
            first = np.searchsorted(t_ns, wanted)
            assert stream.first_at(wanted) == first
            distances = np.abs(t_ns - wanted)
            nearest, distance = int(distances.argmin()), int(distances.min())
            assert stream.nearest(wanted) == stream.at(wanted) == nearest
            assert stream.nearest(wanted, distance) == nearest
            assert distance == 0 or stream.nearest(wanted, distance - 1) is None
            end = int(np.searchsorted(t_ns, wanted + 10**7))
            assert stream.between(wanted, wanted + 10**7) == range(first, end)
            assert stream.between(wanted, None) == range(first, 60)
            assert stream.between(None, wanted) == range(first)


def test_stamps_are_read_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = build_session(tmp_path / "s", imu_spec(), count=400)
    with Session(builder.path) as session:
        stream = session.streams["imu"]
        known, times, read = stream.times(), stream.times, list[int]()

        def counted(start: int = 0, stop: int | None = None) -> object:
            found = times(start, stop)
            read.append(len(found))
            return found

        monkeypatch.setattr(stream, "times", counted)
        monkeypatch.setattr(stream_module, "SEARCH_STAMPS", 80)
        for index, t_ns in enumerate(known.tolist()):
            assert stream.first_at(t_ns) == index
        assert stream.first_at(2**62) == stream.first_at(2**62) == 400
        assert max(read) == 80
        windows = read.count(80)
        assert windows <= 400 // 70 + 1  # a window begins a little before what was asked for
        assert len(read) - windows <= (windows + 1) * 10  # a bisection for each


def test_a_part_has_stamps_of_its_own(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "s", imu_spec(), count=60)
    with Session(builder.path) as session:
        stream = session.streams["imu"]
        t_ns = stream.times().tolist()
        assert stream.first_at(t_ns[30]) == 30
        part = stream_part(stream, 20, 40)
        assert [part.first_at(t) for t in (t_ns[0], t_ns[30], t_ns[50])] == [0, 10, 20]


def test_a_stream_without_a_sample(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "s", imu_spec(), count=0)
    with Session(builder.path) as session:
        stream = session.streams["imu"]
        assert stream.first_at(0) == 0 and stream.nearest(0) is None
        assert stream.between(0, 10) == range(0)
        with pytest.raises(IndexError, match="no sample"):
            stream.at(0)
