"""The layout of a V4L2 device's pictures in a buffer, and their conversion to images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers._devices.pictures import Image
from drivers._devices.v4l2_abi import PixelFormat
from recorder.contract.errors import SourceError

PIXEL_FORMATS: Final = (
    "MJPG", "JPEG", "YUYV", "UYVY", "NV12", "YU12", "BGR3", "RGB3", "GREY",
)  # fmt: skip
"""Supported formats, best first."""

JPEG_FORMATS = ("MJPG", "JPEG")


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of pictures in a buffer."""

    name: str
    width: int
    height: int
    stride: int  # bytes per row; 0 for compressed formats
    size: int  # minimum bytes per picture; 0 for compressed formats


def layout_of(where: str, name: str, pixels: PixelFormat) -> Layout:
    """Return the layout that the kernel's driver granted; SourceError if it is not supported."""
    width, height = pixels.width, pixels.height
    if name in JPEG_FORMATS:
        return Layout(name, width, height, 0, 0)
    per_pixel = {"YUYV": 2, "UYVY": 2, "BGR3": 3, "RGB3": 3}.get(name, 1)
    stride = max(pixels.bytesperline, width * per_pixel)
    rows = height
    if name in ("NV12", "YU12"):
        rows += height // 2
        if width % 2 or height % 2 or (name == "YU12" and stride != width):
            raise SourceError(f"{where}: {name} of {width}x{height}, {stride} bytes a row")
    return Layout(name, width, height, stride, rows * stride)


def decoded(data: bytes, layout: Layout) -> Image:
    """Decode a picture of an uncompressed format: u1 [height, width, 3], BGR, in its own memory."""
    import cv2

    rows = layout.size // layout.stride
    flat = np.frombuffer(data, np.uint8, layout.size).reshape(rows, layout.stride)
    width = layout.width
    convert: dict[str, Callable[[], npt.NDArray[Any]]] = {
        "YUYV": lambda: cv2.cvtColor(_pixels(flat, width, 2), cv2.COLOR_YUV2BGR_YUY2),
        "UYVY": lambda: cv2.cvtColor(_pixels(flat, width, 2), cv2.COLOR_YUV2BGR_UYVY),
        "NV12": lambda: cv2.cvtColor(_pixels(flat, width, 1), cv2.COLOR_YUV2BGR_NV12),
        "YU12": lambda: cv2.cvtColor(_pixels(flat, width, 1), cv2.COLOR_YUV2BGR_I420),
        "RGB3": lambda: cv2.cvtColor(_pixels(flat, width, 3), cv2.COLOR_RGB2BGR),
        "GREY": lambda: cv2.cvtColor(_pixels(flat, width, 1), cv2.COLOR_GRAY2BGR),
        "BGR3": lambda: _pixels(flat, width, 3).copy(),
    }
    return np.asarray(convert[layout.name](), np.uint8)


def _pixels(rows: npt.NDArray[np.uint8], width: int, channels: int) -> npt.NDArray[np.uint8]:
    """Return rows without padding, [rows, width] or [rows, width, channels], contiguous."""
    taken = np.ascontiguousarray(rows[:, : width * channels])
    return taken if channels == 1 else taken.reshape(len(rows), width, channels)
