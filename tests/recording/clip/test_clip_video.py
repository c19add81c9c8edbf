"""Clips of encoded video: they begin with a keyframe."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.recording.clip.writing import write_clip
from recorder.session.part import WHOLE
from recorder.session.reader import Session
from tests.recording.clip.cuts import part, samples, sound
from tests.session.build import START_NS, Builder, imu_spec, video_camera_spec


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = Builder(tmp_path_factory.mktemp("video") / "drive")
    builder.add(video_camera_spec(), count=30)  # 20 Hz, a keyframe every 0.25 s
    builder.add(imu_spec(), 1.5)
    return builder.close()


@pytest.mark.parametrize(
    ("begin", "end", "first", "behind"),
    [(0.55, 1.2, 10, 24), (0.75, 1.2, 15, 24), (0.94, 1.0, 15, 20), (None, 0.4, 0, 8)],
)
def test_video_begins_with_a_keyframe(
    video: Path, tmp_path: Path, begin: float | None, end: float, first: int, behind: int
) -> None:
    clip = write_clip([video], part(begin, end), tmp_path)
    sound(clip.session)
    with Session(clip.session) as session, Session(video) as source:
        camera, whole = session.streams["camera"], source.streams["camera"]
        wanted = range(first, behind)
        assert samples(clip.session, "camera", None, None) == [
            sample for k, sample in enumerate(samples(video, "camera", None, None)) if k in wanted
        ]
        for k in (0, len(camera) - 1):
            picture = camera.sample(k)["video.h264"]
            assert (picture == whole.sample(first + k)["video.h264"]).all()
        begin_ns = START_NS + round((begin or 0) * 1e9)
        lead_in = sum(t_ns < begin_ns for t_ns in camera.times().tolist())
        assert session.header is not None
        marked = session.header["origin"]["lead_in"]
        assert marked == ({"camera": lead_in} if lead_in else {})
        assert session.start_ns == (begin_ns if begin else source.start_ns)
        assert all(t_ns >= begin_ns for t_ns in session.streams["imu"].times().tolist())
    told = [note for note in clip.notes if "keyframe" in note]
    assert len(told) == bool(lead_in)


def test_a_clip_of_video_may_be_clipped_and_packed(video: Path, tmp_path: Path) -> None:
    clip = write_clip([video], part(0.55, 1.2), tmp_path)
    again = write_clip([clip.session], part(0.3, 0.5), tmp_path)
    sound(again.session)
    with Session(again.session) as session:
        assert len(session.streams["camera"]) > 0
    (result,) = finalize(clip.session, [ArchiveRequest("mcap", {})])
    assert result.files


def test_parts_of_a_recording_of_video_are_merged(video: Path, tmp_path: Path) -> None:
    halves = [
        write_clip([video], part(*interval), tmp_path)
        for interval in ((None, 0.751), (0.751, None))
    ]
    merged = write_clip([half.session for half in halves], WHOLE, tmp_path)
    sound(merged.session)
    assert samples(merged.session, "camera", None, None) == samples(video, "camera", None, None)
