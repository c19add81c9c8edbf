"""The real recordings in ../shared/data as a session, held against what others decode of them."""

from __future__ import annotations

import time
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.acceptance.command import (
    PROJECT,
    assert_nothing_lost,
    assert_sound,
    column,
    contents,
    header,
    here,
    relative_ns,
    streams_of,
)
from tests.acceptance.conftest import Recorded
from tests.drivers.ouster.rig import sdk_frames

COUNTS = {
    "camera": 221,
    "imu": 4746,
    "imu_g710_1": 95,
    "imu_g710_1_gnss": 76,
    "imu_g710_2": 95,
    "imu_g710_2_gnss": 88,
    "imu_gnss": 190,
    "lidar": 3,
    "lidar_dual": 1,
    "lidar_dual_imu": 10,
    "lidar_imu": 30,
}
LIDARS = {
    "lidar": ("OS-1-128_v2.3.0_1024x10_lb_n3.pcap", "OS-1-128_v2.3.0_1024x10.json"),
    "lidar_dual": ("OS-0-32-U1_v2.2.0_1024x10.pcap", "OS-0-32-U1_v2.2.0_1024x10.json"),
}

pytestmark = pytest.mark.campaign(weight=4)


def test_the_run_ends_by_itself_with_everything(recordings: Recorded) -> None:
    session, ran = recordings
    assert (ran.code, ran.complaints) == (0, [])
    assert {name: s["samples"] for name, s in ran.result["streams"].items()} == COUNTS
    assert {s["ended"] for s in ran.result["streams"].values()} == {"eof"}
    assert (ran.result["faults"], ran.result["sealed"]) == ([], None)
    assert streams_of(session) == sorted(COUNTS)
    assert_nothing_lost(session)
    assert_sound(session)


def test_times_are_those_of_the_sources(recordings: Recorded) -> None:
    session, _ = recordings
    head = header(session)
    for stream in COUNTS:
        ts, mono = column(session, stream, "ts"), relative_ns(session, stream)
        assert (np.diff(mono) > 0).all() and (np.diff(ts) > 0).all()
        exact = mono + head["start_ns"]
        assert np.abs(ts - exact / 1e9).max() < 1e-6  # float64 has 238 ns here
        assert mono[-1] + head["start_ns"] <= head["end_ns"]
    np.testing.assert_array_equal(relative_ns(session, "camera"), np.arange(221) * 40_000_000)
    np.testing.assert_array_equal(relative_ns(session, "imu"), np.arange(4746) * 10_000_000)


@pytest.mark.campaign(weight=6)  # OpenCV decodes sixteen frames to seek one
def test_opencv_seeks_any_frame(recordings: Recorded, shared_data: Path) -> None:
    session, _ = recordings
    movie = cv2.VideoCapture(str(session / "camera/video.avi"))
    assert movie.get(cv2.CAP_PROP_FRAME_COUNT) == 221
    assert movie.get(cv2.CAP_PROP_FPS) == 25.0
    source = cv2.VideoCapture(str(shared_data / "camera/solidWhiteRight.mp4"))
    frames = []
    for index in range(221):
        good, frame = movie.read()
        found, original = source.read()
        assert good and found
        # JPEG at quality 90 stays this close; neighbours on the road do not.
        assert cv2.norm(frame, original, cv2.NORM_L1) / frame.size < 2.5, index
        frames.append(frame)
    assert not movie.read()[0] and not source.read()[0]
    for index in np.random.default_rng(221).permutation(221).tolist():
        movie.set(cv2.CAP_PROP_POS_FRAMES, index)
        assert np.array_equal(movie.read()[1], frames[index]), index
    movie.release()
    source.release()


@pytest.mark.parametrize("stream", LIDARS)
def test_sweeps_equal_the_sdks(recordings: Recorded, shared_data: Path, stream: str) -> None:
    session, _ = recordings
    pcap, metadata = (shared_data / "ouster" / name for name in LIDARS[stream])
    frames = sdk_frames(pcap, metadata)
    assert len(frames) == COUNTS[stream]
    returns = [("RANGE", "rng", "REFLECTIVITY", "rfl")]
    if stream == "lidar_dual":
        returns.append(("RANGE2", "rng2", "REFLECTIVITY2", "rfl2"))
    for field, rng, reflectivity, rfl in returns:
        near = column(session, stream, rng)
        ranges = near + column(session, stream, f"{rng}_far")
        expected = np.stack([frame.field(field) for frame in frames])
        np.testing.assert_array_equal(ranges, expected)
        np.testing.assert_array_equal(near, np.minimum(expected, 65535))
        np.testing.assert_array_equal(
            column(session, stream, rfl), np.stack([frame.field(reflectivity) for frame in frames])
        )
    np.testing.assert_array_equal(
        column(session, stream, "nir"), np.stack([frame.field("NEAR_IR") for frame in frames])
    )
    np.testing.assert_array_equal(
        column(session, stream, "t_col"), np.stack([frame.timestamp for frame in frames])
    )


def test_a_replay_has_the_same_payload_and_relative_times(
    recordings: Recorded, replayed: Recorded
) -> None:
    (session, _), (again, ran) = recordings, replayed
    assert (ran.code, ran.complaints) == (0, [])
    counts = {name: s["samples"] for name, s in ran.result["streams"].items()}
    assert counts.items() <= COUNTS.items() and len(counts) == 5
    for stream in counts:
        before, after = contents(session / stream), contents(again / stream)
        assert before.keys() == after.keys()
        different = {name for name in before if before[name] != after[name]}
        assert different == {"ts", "t_mono"}, stream  # everything else, to the last byte
        # Counted from the start of each session: equal within a stream and across streams.
        np.testing.assert_array_equal(relative_ns(again, stream), relative_ns(session, stream))
    assert_nothing_lost(again)
    assert_sound(again)


@pytest.mark.campaign(weight=4)
def test_the_shipped_config_in_real_time(shared_data: Path, tmp_path: Path) -> None:
    if shared_data != (PROJECT.parent / "shared/data"):
        pytest.skip("configs/recordings.yaml looks for ../shared/data")
    begin = time.monotonic()
    config = PROJECT / "configs/recordings.yaml"
    ran = here("run", config, "--duration", 2, "--root", tmp_path, "--format", "json")
    assert time.monotonic() - begin > 1.9  # the last sample of two seconds is not there before
    assert (ran.code, ran.complaints) == (0, [])
    short = {"camera": 50, "imu": 200, "imu_gnss": 8}
    assert {n: s["samples"] for n, s in ran.result["streams"].items()} == COUNTS | short
    ends = {name: s["ended"] for name, s in ran.result["streams"].items()}
    assert ends["camera"] == ends["imu"] == "duration" and ends["lidar"] == "eof"
    session = Path(ran.result["session"])
    assert session.parent == tmp_path and session.name.startswith("recordings_")
    assert_nothing_lost(session)
