"""FFmpeg's demuxer (through PyAV) and OpenCV's own on the AVI of a camera."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from recorder.codecs.storage import open_channel
from tests.acceptance.command import column, meta, relative_ns

av = pytest.importorskip("av", reason="needs PyAV, which is not installed")
pytestmark = pytest.mark.conformance


def test_every_packet_is_a_jpeg_of_ours(session: Path) -> None:
    count = len(column(session, "camera", "ts"))
    entry = meta(session, "camera")["video.avi"]
    with av.open(str(session / "camera/video.avi")) as movie:
        (stream,) = movie.streams
        assert (stream.codec_context.name, stream.frames) == ("mjpeg", count)
        height, width, _ = entry["shape"]
        assert (stream.codec_context.width, stream.codec_context.height) == (width, height)
        step = relative_ns(session, "camera")
        assert float(stream.average_rate) == pytest.approx(1e9 / np.median(np.diff(step)), rel=1e-3)
        packets = [packet for packet in movie.demux(stream) if packet.size]
    assert len(packets) == count
    assert all(packet.is_keyframe for packet in packets)
    assert [packet.pts for packet in packets] == list(range(count))
    data = (session / "camera/video.avi").read_bytes()
    for packet in packets:
        jpeg = bytes(packet)
        assert jpeg.startswith(b"\xff\xd8") and jpeg.rstrip(b"\0").endswith(b"\xff\xd9")
        assert jpeg in data
    with open_channel(session / "camera", "video.avi", entry) as ours:
        for k in (0, count // 2, count - 1):
            picture = cv2.imdecode(np.frombuffer(bytes(packets[k]), np.uint8), cv2.IMREAD_COLOR)
            assert picture is not None
            np.testing.assert_array_equal(ours[k], picture[..., ::-1])


def test_it_seeks(session: Path) -> None:
    count = len(column(session, "camera", "ts"))
    with av.open(str(session / "camera/video.avi")) as movie:
        stream = movie.streams.video[0]
        for k in np.random.default_rng(7).permutation(count)[:20].tolist():
            movie.seek(k, stream=stream)
            assert next(movie.demux(stream)).pts == k


@pytest.mark.parametrize("backend", [cv2.CAP_FFMPEG, cv2.CAP_OPENCV_MJPEG])
def test_opencvs_backends_agree(session: Path, backend: int) -> None:
    count = len(column(session, "camera", "ts"))
    movie = cv2.VideoCapture(str(session / "camera/video.avi"), backend)
    assert movie.isOpened() and movie.get(cv2.CAP_PROP_FRAME_COUNT) == count
    with open_channel(
        session / "camera", "video.avi", meta(session, "camera")["video.avi"]
    ) as ours:
        for k in (count - 1, 0, count // 3, count // 3 + 1):
            movie.set(cv2.CAP_PROP_POS_FRAMES, k)
            found, picture = movie.read()
            assert found
            # FFmpeg's decoder interpolates colours less smoothly: near, and nearer than others.
            seen = picture[..., ::-1].astype(int)
            near = range(max(0, k - 1), min(count, k + 2))
            apart = {n: float(np.abs(seen - ours[n]).mean()) for n in near}
            assert min(apart, key=lambda n: apart[n]) == k and apart[k] < 1.5, apart
    movie.release()
