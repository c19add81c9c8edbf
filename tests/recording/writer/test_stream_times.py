"""Times on disk increase strictly, whatever a source's stamps do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import PosixDisk
from recorder.recording.writer.stream_files import StreamFiles
from recorder.session.layout import private

OFFSET_NS = 1_699_999_000_000_000_000
SPEC = StreamSpec("imu", (ChannelSpec("x", "raw", "u1"),))


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about durability, and fsync is slow."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def store(folder: Path) -> StreamFiles:
    private(folder).mkdir(parents=True)
    made = StreamFiles(PosixDisk(), folder, SPEC, OFFSET_NS)
    made.create(lambda: None)
    return made


def append(made: StreamFiles, seq: int, times: list[int]) -> None:
    made.append(
        Message(
            Kind.DATA,
            "imu",
            seq=seq,
            count=len(times),
            t_mono_ns=np.array(times, np.int64),
            frames=[bytes(len(times))],
        )
    )


@given(
    start=st.integers(10**6, 10**15),
    batches=st.lists(
        st.lists(
            st.sampled_from([-1000, -1, 0, 1, 50, 119, 120, 121, 239, 240, 256, 300, 5000]),
            min_size=1,
            max_size=8,
        ),
        max_size=5,
    ),
)
def test_close_equal_and_receding_stamps(
    tmp_path_factory: pytest.TempPathFactory, start: int, batches: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("s")
    made = store(folder)
    now = start
    given_times: list[int] = []
    for steps in batches:
        times = [now := now + step for step in steps]
        append(made, len(given_times), times)
        given_times += times
    made.close()
    ts = np.fromfile(folder / "imu" / "ts", "<f8")
    t_mono = np.fromfile(folder / "imu" / "t_mono", "<u8").astype(np.int64)
    assert len(ts) == len(t_mono) == len(given_times)
    assert (np.diff(ts) > 0).all()
    assert (np.diff(t_mono) > 0).all()
    np.testing.assert_array_equal(ts, (t_mono + OFFSET_NS).astype("<f8") / 1e9)
    moved = int((t_mono != given_times).sum())
    assert made.adjusted == moved
    # Each is moved by no more than it takes: behind the latest stamp before, at 240 to 480 ns each.
    if given_times:
        behind = np.maximum.accumulate(given_times)
        assert (t_mono - behind <= 500 * np.arange(1, len(given_times) + 1)).all()
        assert (t_mono >= given_times).all()


def test_stamps_that_increase_are_left_alone(tmp_path: Path) -> None:
    made = store(tmp_path)
    append(made, 0, [1_000, 2_000, 3_000])
    append(made, 3, [4_000])
    made.close()
    assert made.adjusted == 0
    assert np.fromfile(tmp_path / "imu" / "t_mono", "<u8").tolist() == [1000, 2000, 3000, 4000]
