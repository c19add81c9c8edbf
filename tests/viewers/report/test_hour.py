"""Long sessions: a report reads what it shows, and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from recorder.codecs.storage.channel import ChannelReader
from recorder.common.clock import SystemClock
from recorder.common.files import PosixDisk
from recorder.recording.writer.recovery import recover
from recorder.session.reader import Session
from recorder.session.validation import validate
from recorder.viewers.report import write_report
from recorder.viewers.report.report_context import SENSOR_MOMENTS
from tests.viewers.report.hour import EVERY, long_session
from tests.viewers.report.reading import Page

SECONDS = 120


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    return long_session(folder, SECONDS, camera=(64, 48), mode="512x10")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts the samples that are read, by channel; some are counted twice."""
    counts: Counter[str] = Counter()

    def spied(kind: type[ChannelReader], name: str) -> None:
        real = vars(kind)[name]

        def spy(self: ChannelReader, *index: int) -> object:
            counts[self.name] += index[-1] - index[0] if len(index) == 2 else 1
            return real(self, *index)

        monkeypatch.setattr(kind, name, spy)

    for kind in _below(ChannelReader):  # type: ignore[type-abstract]
        for name in {"_read", "encoded"} & vars(kind).keys():
            spied(kind, name)
    yield counts


def _below(kind: type[ChannelReader]) -> set[type[ChannelReader]]:
    """All classes below one."""
    found = set(kind.__subclasses__())
    return found.union(*map(_below, found))


def test_a_killed_writer_leaves_a_session_to_recover(tmp_path: Path) -> None:
    path = long_session(tmp_path, 10, camera=(64, 48), mode="512x10", killed=True)
    with Session(path) as session:
        assert session.state == "recording"
    recover(path, PosixDisk(), SystemClock())
    with Session(path) as session:
        assert session.state == "recovered"
        assert len(session.streams["camera"]) == 300


def test_the_session_is_one_that_our_writer_leaves(long: Path) -> None:
    checked = validate(long)
    assert checked.sound and checked.problems == []
    with Session(long) as session:
        lengths = {name: len(stream) for name, stream in session.streams.items()}
        sweep = session.streams["lidar"].sample(3 * EVERY)
        assert lengths == {"camera": 3600, "lidar": 1200, "radar": 2400, "imu": 12_000}
        assert np.count_nonzero(sweep["rng"]) > 1000


def test_payloads_are_read_sparsely(long: Path, decoded: Counter[str]) -> None:
    page = Page(write_report(long))
    assert "PASS" in page.sections["verdict"]
    assert len(page.pictures) == sum(SENSOR_MOMENTS.values()) + 1
    assert len(page.source.encode()) < 1_000_000
    spots = 12  # of the check, for each channel
    assert 0 < decoded["rng"] <= 2 * (SENSOR_MOMENTS["lidar"] + spots)
    assert 0 < decoded["iq"] <= 2 * (SENSOR_MOMENTS["radar"] + spots)
    assert 0 < decoded["video.avi"] <= 2 * (SENSOR_MOMENTS["camera"] + spots)
    assert 0 < decoded["nir"] <= 2 * spots
    assert decoded["acc"] >= 12_000, "small samples are read in whole"


def test_moments_are_spread_over_the_session(long: Path) -> None:
    text = Page(write_report(long)).sections
    for k in range(SENSOR_MOMENTS["camera"]):
        middle = (k + 0.5) * SECONDS / SENSOR_MOMENTS["camera"]
        shown = (
            f"{middle:.1f} s" if middle < 59.95 else f"{int(middle) // 60}:{int(middle) % 60:02d}"
        )
        assert shown in text["cameras"]
    assert "halfway" in text["timeline"] or "halfway" in text["events"]
