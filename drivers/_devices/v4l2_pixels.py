"""How a V4L2 device's pictures lie in a buffer, and how they become images."""

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
"""What can be recorded, best first."""

JPEG_FORMATS = ("MJPG", "JPEG")


@dataclass(frozen=True, slots=True)
class Layout:
    """How pictures lie in a buffer."""

    name: str
    width: int
    height: int
    stride: int  # bytes a row; 0 of compressed ones
    size: int  # bytes of a picture, at least; 0 of compressed ones


def layout_of(where: str, name: str, pixels: PixelFormat) -> Layout:
    """The layout that a driver granted; SourceError for one that is not taken apart here."""
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
    """A picture of an uncompressed format: u1 [height, width, 3], BGR, with memory of its own."""
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
    """Rows without their padding, [rows, width] or [rows, width, channels], contiguous."""
    taken = np.ascontiguousarray(rows[:, : width * channels])
    return taken if channels == 1 else taken.reshape(len(rows), width, channels)
