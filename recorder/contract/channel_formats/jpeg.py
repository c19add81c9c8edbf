"""``mjpg`` and ``jpg``: pictures as JPEGs (ITU-T T.81)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recorder.contract.channel_formats.base import (
    Buffer,
    ChannelFormat,
    ContentBlock,
    Decode,
    Encode,
    Framing,
)
from recorder.contract.errors import FormatError, StreamChangedError

if TYPE_CHECKING:
    from recorder.contract.streams import ChannelSpec, StreamSpec

DEFAULT_JPEG_QUALITY = 90


class Jpeg(ChannelFormat):
    """Every picture a JPEG, u1 [height, width, 3]: encoded from BGR, decoded to RGB."""

    framing = Framing.EACH
    holds = "u1 [height, width, 3]"
    picture = True

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        return dtype == np.uint8 and len(shape) == 3 and shape[2] == 3

    def content(self, channel: ChannelSpec) -> ContentBlock:
        height, width, _ = channel.shape
        return ContentBlock("image", "jpg", None, width, height)

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return _encode(values, DEFAULT_JPEG_QUALITY, self.name)

    def encoder(self, stream: StreamSpec, channel: ChannelSpec) -> Encode:  # noqa: ARG002
        quality = int(stream.settings.get("jpeg_quality", DEFAULT_JPEG_QUALITY))
        return lambda values: _encode(values, quality, stream.name)

    def decoder(self) -> Decode:
        return decode_jpeg

    def shape_fault(self, frame: bytes, shape: tuple[int, ...]) -> str | None:
        size = jpeg_size(frame)
        if size == shape[:2]:
            return None
        return f"a frame of {size and size[::-1]} where {shape[1::-1]} is declared"

    def hidden_fault(self, frame: bytes) -> str | None:
        # A JPEG that was cut decodes all the same, its lower part grey.
        return None if frame.rstrip(b"\0").endswith(b"\xff\xd9") else "the JPEG is cut short"


def _encode(images: npt.NDArray[Any], quality: int, where: str) -> list[Buffer]:
    frames: list[Buffer] = []
    for image in images:
        frame = encode_jpeg(image, quality)
        if frame is None:
            raise StreamChangedError(f"{where}: OpenCV cannot encode a frame as JPEG")
        frames.append(frame)
    return frames


def encode_jpeg(image: npt.NDArray[np.uint8], quality: int) -> memoryview | None:
    """An image as the JPEG that the recorder makes of it; None where OpenCV cannot.

    Emulated cameras and the kit's encoder both make their JPEGs here, so that the same picture is
    the same bytes wherever it was encoded.

    Args:
        image: [height, width, 3], BGR.
        quality: 1 to 100.
    """
    import cv2

    done, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        return None
    encoded: npt.NDArray[Any] = data
    return encoded.reshape(-1).data  # its own memory, nobody else's: no copy


def decode_jpeg(data: Buffer, out: npt.NDArray[Any], where: str) -> None:
    """Decode a JPEG into RGB.

    Args:
        data: the JPEG.
        out: u1 [height, width, 3], filled.
        where: what messages start with.

    Raises:
        FormatError: it does not decode, or its size is not that of `out`.
    """
    import cv2

    # A stored orientation is not applied: video players do not, and shapes must hold.
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if data else None
    if image is None:
        raise FormatError(f"{where}: {len(data)} bytes that do not decode as JPEG")
    if image.shape != out.shape:
        raise FormatError(f"{where}: is {image.shape}, the channel's shape is {out.shape}")
    cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=out)


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """(height, width) from a JPEG's frame header (ITU T.81, B.2.2); None where there is none."""
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 5 : at + 7]), int.from_bytes(data[at + 7 : at + 9])
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None
