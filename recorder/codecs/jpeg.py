"""JPEG encoding and decoding of pictures (ITU-T T.81)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError


def encode_jpeg(image: npt.NDArray[np.uint8], quality: int) -> memoryview | None:
    """Encode an image as JPEG; return None where OpenCV cannot.

    Emulated cameras and the drivers' encoder both call this function, so that the same picture
    always becomes the same bytes.

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
    return encoded.reshape(-1).data  # a view of memory that only this array uses: no copy


def decode_jpeg(data: bytes | bytearray | memoryview, out: npt.NDArray[Any], where: str) -> None:
    """Decode a JPEG into RGB.

    Args:
        data: the JPEG.
        out: u1 [height, width, 3], filled.
        where: start of error messages.

    Raises:
        FormatError: the JPEG does not decode, or its size is not that of `out`.
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
    """Return (height, width) from a JPEG's frame header (ITU T.81, B.2.2); None without one."""
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
