"""Access units to pictures by FFmpeg's decoders: order, stamps, and units without a picture."""

from __future__ import annotations

from itertools import pairwise

import av
import numpy as np
import pytest

from drivers.camera.decoder import VideoDecoder
from drivers.camera.pictures import Missing, Shot
from drivers.camera.rtsp.messages import Media
from drivers.camera.rtsp.rtp import AccessUnit
from tests.drivers.camera.http_rig import small_camera
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.camera.rtp_packets import encode

MEDIA = {codec: Media(codec, 96, 90_000, "", "", None, b"") for codec in ("h264", "h265")}


def units(datas: list[bytes]) -> list[AccessUnit]:
    return [AccessUnit(1000 * k, 4500 * k, data, False) for k, data in enumerate(datas)]


def run(decoder: VideoDecoder, sent: list[AccessUnit]) -> list[Shot]:
    return [shot for unit in sent for shot in decoder.decode(unit)] + decoder.drain()


def numbers(shots: list[Shot]) -> list[int | None]:
    return [
        None if isinstance(s.picture, Missing) else read_frame_number(np.asarray(s.picture))
        for s in shots
    ]


def test_pictures_that_are_sent_in_another_order() -> None:
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt, context.framerate = 160, 120, "yuv420p", 20
    context.options = {"bf": "2", "g": "12", "b_strategy": "0", "x264-params": "log-level=none"}
    packets = []
    for index in range(24):
        frame = av.VideoFrame.from_ndarray(small_camera().frame(index), format="bgr24")
        frame.pts = index
        packets += context.encode(frame)
    packets += context.encode(None)
    shown = [packet.pts for packet in packets]
    assert shown != sorted(shown)
    shots = run(VideoDecoder(MEDIA["h264"]), units([bytes(packet) for packet in packets]))
    assert numbers(shots) == list(range(24))
    assert [shot.t_ns for shot in shots] == [1000 * k for k in range(24)]


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_a_unit_without_a_picture_is_missing_in_its_place(codec: str) -> None:
    datas = [unit.data for unit in encode(codec, 25).units]
    datas[9] = b"\0\0\0\1" + (b"\x41" if codec == "h264" else b"\x02\x01") + b"\xff" * 9
    decoder = VideoDecoder(MEDIA[codec])
    shots = run(decoder, units(datas))
    assert numbers(shots) == [*range(9), None, *range(10, 25)]
    assert [shot.t_ns for shot in shots] == [1000 * k for k in range(25)]
    again = run(decoder, units(datas[10:]))  # after a loss: a key begins anew
    assert numbers(again) == list(range(10, 25))


def test_units_without_any_picture_do_not_gather() -> None:
    decoder = VideoDecoder(MEDIA["h264"])
    shots = run(decoder, units([b"\0\0\0\1\x41\xff"] * 500))
    assert numbers(shots) == [None] * 500
    assert all(b.t_ns > a.t_ns for a, b in pairwise(shots))
    assert not decoder._arrivals and not decoder._inside
