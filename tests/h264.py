"""H.264 that FFmpeg's encoder x264 made of the simulated camera, for tests."""

from __future__ import annotations

import functools
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

SIZE = (96, 64)
_QUIET = "log-level=none:scenecut=0"
GROUP = 5  # pictures from keyframe to keyframe


def picture(index: int, size: tuple[int, int] = SIZE) -> npt.NDArray[np.uint8]:
    """Picture `index`, BGR: a gradient that moves, and its number as grey levels."""
    width, height = size
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    image = np.stack([x + 7 * index, y + 3 * index, x + y], axis=-1).astype(np.uint8)
    image[:16, :16] = 16 * (index % 14) + 20
    return image


def number_of(rgb: npt.NDArray[Any]) -> int:
    """The number (mod 14) of a decoded picture."""
    return round((float(rgb[4:12, 4:12].mean()) - 20) / 16)


def encode(
    count: int,
    size: tuple[int, int] = SIZE,
    *,
    pix_fmt: str = "yuv420p",
    preset: str = "ultrafast",
    x264: str = _QUIET,
) -> list[bytes]:
    """Access units of pictures 0 to count - 1; keyframes have parameter sets."""
    return list(_encoded(count, size, pix_fmt, preset, x264))


@functools.cache
def _encoded(
    count: int, size: tuple[int, int], pix_fmt: str, preset: str, x264: str
) -> tuple[bytes, ...]:
    context: Any = av.CodecContext.create("libx264", "w")
    context.width, context.height = size
    context.pix_fmt = pix_fmt
    context.framerate, context.time_base = 20, Fraction(1, 20)
    context.thread_count = 1
    tuning = {"preset": preset, "tune": "zerolatency", "g": str(GROUP), "bf": "0"}
    context.options = {**tuning, "x264-params": x264}
    units = []
    for index in [*range(count), None]:
        frame = None
        if index is not None:
            frame = av.VideoFrame.from_ndarray(picture(index, size), format="bgr24")
            frame.pts = index
        units += [bytes(packet) for packet in context.encode(frame)]
    return tuple(units)


def write_file(
    path: Path, count: int, size: tuple[int, int] = SIZE, rate: int = 20, *, b_frames: int = 0
) -> Path:
    """A video file of pictures 0 to count - 1; the container is the name's ending's."""
    x264 = f"{_QUIET}:b-adapt=0:bframes={b_frames}"
    options = {"x264-params": x264, "g": str(GROUP), "bf": str(b_frames)}
    settings = {"movflags": "faststart"} if path.suffix in (".mp4", ".mov") else {}
    with av.open(str(path), "w", options=settings) as container:
        stream: Any = container.add_stream("libx264", rate=rate, options=options)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for index in range(count):
            frame = av.VideoFrame.from_ndarray(picture(index, size), format="bgr24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def demuxed(path: Path) -> list[bytes]:
    """The access units as FFmpeg's demuxer and its filter ``h264_mp4toannexb`` give them."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        filters = av.bitstream.BitStreamFilterContext("h264_mp4toannexb", stream)
        return [
            bytes(made)
            for packet in container.demux(stream)
            if packet.size
            for made in filters.filter(packet)
        ]


def decoded(path: Path) -> list[npt.NDArray[np.uint8]]:
    """The pictures of a file as FFmpeg decodes it, RGB."""
    with av.open(str(path)) as container:
        return [
            np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
            for frame in container.decode(video=0)
        ]
