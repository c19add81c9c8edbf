"""Frames: which samples they have, in order and by index, in memory that does not grow."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recorder
from recorder.api.session import Frames
from recorder.codecs import CHANNEL_FORMATS
from tests.session.build import Builder, camera_spec, imu_spec, radar_spec

PERIOD_NS = 50_000_000


def exact(path: Path, frames: int = 6, seed: int = 1) -> Builder:
    """A camera at 20 Hz, a radar a little late, and an IMU at 100 Hz, all on the same grid."""
    builder = Builder(path)
    camera = builder.add(replace(camera_spec(), rate_hz=20.0), count=frames, seed=seed)
    radar = builder.add(radar_spec(), count=frames - 1, seed=seed)
    imu = builder.add(imu_spec(), count=frames * 5, seed=seed)
    start_ns = int(camera.t_ns[0])
    rewrite(builder, "camera", start_ns + np.arange(frames) * PERIOD_NS)
    rewrite(builder, "radar", start_ns + np.arange(len(radar.t_ns)) * PERIOD_NS + 4_000_000)
    rewrite(builder, "imu", start_ns + (np.arange(len(imu.t_ns)) - 5) * 10_000_000)
    builder.close()
    return builder


def rewrite(builder: Builder, name: str, t_ns: Any) -> None:
    made = builder.streams[name]
    mono = np.fromfile(builder.path / name / "t_mono", "<u8").astype(np.int64)
    shifted = mono - made.t_ns + t_ns
    shifted.astype("<u8").tofile(builder.path / name / "t_mono")
    (t_ns / 1e9).astype("<f8").tofile(builder.path / name / "ts")
    made.t_ns = t_ns


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return exact(tmp_path_factory.mktemp("api") / "exact")


@pytest.fixture
def session(built: Builder) -> Iterator[recorder.Session]:
    with recorder.open(built.path) as opened:
        yield opened


def test_frames_have_the_stamps_of_their_stream(built: Builder, session: recorder.Session) -> None:
    frames = list(session.synchronized("camera"))
    assert [frame.t_ns for frame in frames] == built.streams["camera"].t_ns.tolist()
    assert [frame.index for frame in frames] == list(range(len(frames)))
    assert [frame.camera.index for frame in frames] == list(range(len(frames)))
    assert [frame["camera"].t_ns for frame in frames] == [frame.t_ns for frame in frames]


@pytest.mark.parametrize(("tolerance", "found"), [(0.004, True), (0.003999999, False), (0, False)])
def test_a_frames_sample_is_within_the_tolerance(
    session: recorder.Session, tolerance: float, found: bool
) -> None:
    """The radar's samples end 4 ms after the pictures; the last picture has none of its own."""
    frames = list(session.synchronized("camera", radar=tolerance))
    near = [None if frame.radar is None else frame.radar.index for frame in frames]
    assert near == ([0, 1, 2, 3, 4, None] if found else [None] * 6)
    assert near == [None if f.radar is None else f["radar"].index for f in frames]


def test_the_nearest_sample_may_be_earlier(session: recorder.Session) -> None:
    frames = list(session.synchronized("camera", radar=0.1))
    assert [frame.radar.index for frame in frames] == [0, 1, 2, 3, 4, 4]


def test_windows_are_exact_at_their_edges(built: Builder, session: recorder.Session) -> None:
    """A window has the sample at the frame's time, and not the one at its own start."""
    t_ns = built.streams["imu"].t_ns
    frames = list(session.synchronized("camera", imu=0.05))
    for frame in frames:
        inside = (t_ns > frame.t_ns - PERIOD_NS) & (t_ns <= frame.t_ns)
        assert np.array_equal(frame.imu.t_ns, t_ns[inside])
        assert len(frame.imu) == 5 or frame.t_ns > t_ns[-1]
        assert np.array_equal(frame.imu.acc, built.streams["imu"].data["acc"][inside])
    # So that windows as long as the frames' period have each sample once.
    joined = np.concatenate([frame.imu.t_ns for frame in frames])
    assert len(set(joined.tolist())) == len(joined)
    for seconds, count in ((0.05 + 1e-9, 6), (0.04, 4), (0.0, 0)):
        frame = next(session.synchronized("camera", imu=seconds))
        assert len(frame.imu) == count


def test_points_of_a_frame_are_moved_to_its_time(drive_path: Path) -> None:
    with recorder.open(drive_path) as session:
        lidar = session["lidar"]
        frames = [f for f in session.synchronized("camera", lidar=0.1) if f.lidar is not None]
        for frame in frames:
            index = frame.lidar.index
            expected = lidar.points(index, at_ns=frame.t_ns)
            assert np.array_equal(frame.lidar.points(), expected)
        (early,) = [frame for frame in frames if abs(frame.lidar.t_ns - frame.t_ns) > 50_000_000]
        own = lidar.points(early.lidar.index)
        assert np.abs(own - early.lidar.points()).max() > 0.1
        assert np.array_equal(own, lidar[early.lidar.index].points("rig"))


def test_numbers_of_seconds_are_checked_at_once(session: recorder.Session) -> None:
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="imu: needs seconds"):
            session.synchronized("camera", imu=wrong)


def test_memory_does_not_grow(session: recorder.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture is decoded unasked, or kept; stamps are read in windows."""
    from recorder.session import stream

    whole: list[str] = []
    monkeypatch.setattr(stream.Stream, "t_ns", property(lambda s: whole.append(s.name)))
    decoded = []
    decode = CHANNEL_FORMATS["mjpg"]
    assert decode is not None
    picture = recorder.Stream.picture

    def counted(self: recorder.Stream, index: int) -> Any:
        decoded.append(index)
        return picture(self, index)

    monkeypatch.setattr(recorder.Stream, "picture", counted)
    frames = list(session.synchronized("camera", radar=0.01, imu=0.1))
    assert decoded == [] and whole == []
    assert frames[1].camera.rgb is not frames[1].camera.rgb
    assert decoded == [1, 1]


def test_frames_of_several_sessions(built: Builder, tmp_path: Path) -> None:
    other = exact(tmp_path / "other", 3, seed=2)
    frames = recorder.frames([built.path, str(other.path)], "camera", radar=0.01, imu=0.05)
    assert len(frames) == 9
    assert [f.session.path.name for f in frames] == ["exact"] * 6 + ["other"] * 3
    assert [f.index for f in frames] == [*range(6), *range(3)]
    assert frames[-1].index == 2 and frames[-9].index == 0
    with recorder.open(other.path) as session:
        for k, frame in enumerate(session.synchronized("camera", radar=0.01, imu=0.05)):
            found = frames[6 + k]
            assert found.t_ns == frame.t_ns
            assert np.array_equal(found.camera.rgb, frame.camera.rgb)
            assert np.array_equal(found.imu.acc, frame.imu.acc)
            assert (found.radar is None) == (frame.radar is None)
    for beyond in (9, -10):
        with pytest.raises(IndexError, match=f"frame {beyond} of 9"):
            frames[beyond]
    assert len(recorder.frames(built.path, "camera")) == 6
    assert len(recorder.frames([], "camera")) == 0
    assert "9 of 'camera' in 2 sessions" in repr(frames)
    with pytest.raises(KeyError, match="did you mean 'camera'"):
        recorder.frames([built.path], "cam")
    with pytest.raises(recorder.SessionError, match="no such session"):
        recorder.frames([tmp_path / "no"], "camera")


def fetch(frames: Frames, indices: list[int], queue: Any) -> None:
    """What a worker of a DataLoader does."""
    queue.put([(i, frames[i].t_ns, frames[i].camera.rgb) for i in indices])


def test_workers_read_frames_after_spawn(built: Builder, tmp_path: Path) -> None:
    other = exact(tmp_path / "other", 3, seed=2)
    frames = recorder.frames([built.path, other.path], "camera", imu=0.05)
    assert frames[7].index == 1  # opens a session, which is not pickled
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=fetch, args=(frames, [8, 0, 5], queue))
    process.start()
    found = queue.get()
    process.join()
    assert process.exitcode == 0
    assert [index for index, _, _ in found] == [8, 0, 5]
    for index, t_ns, rgb in found:
        assert t_ns == frames[index].t_ns and np.array_equal(rgb, frames[index].camera.rgb)


def test_few_sessions_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recorder.api.session._MOST_OPEN", 2)
    paths = [exact(tmp_path / f"s{k}", 2, seed=k).path for k in range(4)]
    frames = recorder.frames(paths, "camera")
    first = frames[0]
    assert [frames[2 * k].session.path.name for k in range(4)] == ["s0", "s1", "s2", "s3"]
    assert list(frames._plans) == [2, 3]
    _ = frames[4], frames[0]
    assert list(frames._plans) == [2, 0], "the session that was used last stays open"
    assert first.camera.rgb.shape == (24, 32, 3)  # its session stays open for it
    assert len(pickle.loads(pickle.dumps(frames))._plans) == 0
