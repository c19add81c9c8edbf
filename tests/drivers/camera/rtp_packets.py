"""RTP packets: FFmpeg's own, and single ones written by hand."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any

import av

from tests.drivers.camera.http_rig import small_camera

FPS = 20
_OPTIONS: dict[str, dict[str, str]] = {
    # Pictures of two slices, parameters in the stream.
    "libx264": {"tune": "zerolatency", "g": "10", "x264-params": "slices=2:log-level=none"},
    "libx265": {"x265-params": "log-level=none:keyint=10:min-keyint=10:bframes=0:repeat-headers=1"},
    "mjpeg": {"huffman": "default"},
}
_ENCODERS = {"h264": "libx264", "h265": "libx265", "jpeg": "mjpeg"}


def rtp(
    sequence: int, timestamp: int, payload: bytes, *, marker: bool = False, kind: int = 96,
    ssrc: int = 5,
) -> bytes:  # fmt: skip
    second = kind | (128 if marker else 0)
    return struct.pack(">BBHII", 0x80, second, sequence, timestamp, ssrc) + payload


@dataclass(frozen=True)
class Data:
    data: bytes


@dataclass(frozen=True)
class Encoded:
    """A video as FFmpeg packed it.

    Attributes:
        written: RTP and RTCP packets in order.
        units: the encoder's output, a picture each.
    """

    written: tuple[bytes, ...]
    units: tuple[Data, ...]


@functools.cache
def encode(codec: str, count: int) -> Encoded:
    """Pictures 0 to count - 1 of `small_camera`, 20 a second."""

    class Sink:
        def __init__(self) -> None:
            self.written: list[bytes] = []

        def write(self, data: Any) -> int:
            self.written.append(bytes(data))
            return len(data)

    sink, units = Sink(), []
    # No network: FFmpeg writes each packet to the sink.
    container = av.open(sink, "w", format="rtp", options={"packetsize": "500"})
    name = _ENCODERS[codec]
    stream = container.add_stream(name, rate=FPS, options=_OPTIONS[name])
    stream.width, stream.height = 160, 120
    stream.pix_fmt = "yuvj420p" if codec == "jpeg" else "yuv420p"
    stream.codec_context.thread_count = 1  # or JPEGs have restarts, which FFmpeg's packets omit
    for index in [*range(count), None]:
        picture = None
        if index is not None:
            picture = av.VideoFrame.from_ndarray(small_camera().frame(index), format="bgr24")
        for packet in stream.encode(picture):
            units.append(Data(bytes(packet)))
            container.mux(packet)
    container.close()
    return Encoded(tuple(sink.written), tuple(units))


def packets(encoded: Encoded) -> list[bytes]:
    """The RTP packets alone."""
    return [data for data in encoded.written if not 192 <= data[1] <= 223]
