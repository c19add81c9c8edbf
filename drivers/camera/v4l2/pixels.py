"""The layout of a V4L2 device's pictures in their planes, and their conversion to images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.camera.pictures import Image
from drivers.camera.raw_pictures import COPIED_FORMAT, RAW_FORMATS, RawFormat, unpack_pixels
from drivers.camera.v4l2.abi import PixelFormat, PlanesFormat, fourcc, fourcc_name
from recorder.common.errors import SourceError

JPEG_FORMATS = ("MJPG", "JPEG")

_BYTES_PER_PIXEL: Final = {"YUYV": 2, "UYVY": 2, "BGR3": 3, "RGB3": 3}
_RAW_NAMES: Final = {fourcc(form.code): name for name, form in RAW_FORMATS.items()}


def format_name(code: int) -> str:
    """Return the name of a pixel format's code, as in ``PIXEL_FORMATS``."""
    return _RAW_NAMES.get(code) or fourcc_name(code)


def format_code(name: str) -> int:
    """Return the code of a format of `PIXEL_FORMATS`."""
    return fourcc(RAW_FORMATS[name].code if name in RAW_FORMATS else name)


@dataclass(frozen=True, slots=True)
class PlaneLayout:
    """Layout of one plane in memory.

    Attributes:
        stride: bytes from row to row.
        rows: number of rows.
        row_bytes: bytes of a row without its padding.
    """

    stride: int
    rows: int
    row_bytes: int

    @property
    def size(self) -> int:
        """Minimum bytes of the plane."""
        return self.stride * self.rows


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of pictures in memory; without `planes` for compressed formats.

    Attributes:
        name: one of `PIXEL_FORMATS`.
        width, height: in pixels.
        planes: layout of each plane.
    """

    name: str
    width: int
    height: int
    planes: tuple[PlaneLayout, ...] = ()

    @property
    def raw(self) -> RawFormat | None:
        """The format of raw pictures."""
        return RAW_FORMATS.get(self.name)

    @property
    def size(self) -> int:
        """Minimum bytes per picture."""
        return sum(plane.size for plane in self.planes)

    def fits(self, planes: Sequence[bytes]) -> bool:
        """Return whether every plane has all its rows."""
        return all(len(data) >= p.size for data, p in zip(planes, self.planes, strict=True))


def find_layout(where: str, name: str, pixels: PixelFormat | PlanesFormat) -> Layout:
    """Return the layout that the kernel's driver granted; SourceError if it is not supported."""
    width, height = pixels.width, pixels.height
    if isinstance(pixels, PlanesFormat):
        granted = [plane.bytesperline for plane in pixels.plane_fmt[: pixels.num_planes]]
    else:
        granted = [pixels.bytesperline]
    # Rows and bytes of a row of each plane; NM12 and YM12 have the chroma in planes of their own.
    raw = RAW_FORMATS.get(name)
    row = raw.row_bytes(width) if raw else width * _BYTES_PER_PIXEL.get(name, 1)
    luma, halves = (height, row), (height // 2, width // 2)
    planes = {
        "NV12": [(height + height // 2, width)],
        "YU12": [(height + height // 2, width)],
        "NM12": [luma, (height // 2, width)],
        "YM12": [luma, halves, halves],
    }.get(name, [luma])
    if len(granted) != len(planes):
        raise SourceError(f"{where}: {name} in {len(granted)} planes instead of {len(planes)}")
    if name in (*JPEG_FORMATS, COPIED_FORMAT):
        return Layout(name, width, height)
    laid = [
        PlaneLayout(max(stride, row_bytes), rows, row_bytes)
        for stride, (rows, row_bytes) in zip(granted, planes, strict=True)
    ]
    halved = name in ("NV12", "YU12", "NM12", "YM12")
    cut = (halved and (width % 2 or height % 2)) or (raw and width % raw.group)
    if cut or (name == "YU12" and laid[0].stride != width):
        raise SourceError(f"{where}: {name} of {width}x{height}, {laid[0].stride} bytes a row")
    return Layout(name, width, height, tuple(laid))


def decode_planes(planes: Sequence[bytes], layout: Layout) -> Image:
    """Decode a picture of an uncompressed format.

    Args:
        planes: the picture's planes, which fit the layout.
        layout: the layout.

    Returns:
        u1 [height, width, 3], BGR; of a raw format its values, u1 or u2 [height, width].
    """
    import cv2

    parts = [_strip_padding(data, plane) for data, plane in zip(planes, layout.planes, strict=True)]
    if layout.raw is not None:
        return unpack_pixels(parts[0].reshape(layout.height, -1), layout.raw)
    flat = parts[0] if len(parts) == 1 else np.concatenate(parts)
    shape = -1, layout.width, _BYTES_PER_PIXEL.get(layout.name, 1)
    pixels = flat.reshape(shape if shape[2] > 1 else shape[:2])
    convert: dict[str, Callable[[], npt.NDArray[Any]]] = {
        "YUYV": lambda: cv2.cvtColor(pixels, cv2.COLOR_YUV2BGR_YUY2),
        "UYVY": lambda: cv2.cvtColor(pixels, cv2.COLOR_YUV2BGR_UYVY),
        "NV12": lambda: cv2.cvtColor(pixels, cv2.COLOR_YUV2BGR_NV12),
        "NM12": lambda: cv2.cvtColor(pixels, cv2.COLOR_YUV2BGR_NV12),
        "YU12": lambda: cv2.cvtColor(pixels, cv2.COLOR_YUV2BGR_I420),
        "YM12": lambda: cv2.cvtColor(pixels, cv2.COLOR_YUV2BGR_I420),
        "RGB3": lambda: cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR),
        "GREY": lambda: cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR),
        "BGR3": pixels.copy,
    }
    return np.asarray(convert[layout.name](), np.uint8)


def _strip_padding(data: bytes, plane: PlaneLayout) -> npt.NDArray[np.uint8]:
    """Return the rows of a plane without padding, u1 [rows * row_bytes], contiguous."""
    rows = np.frombuffer(data, np.uint8, plane.size).reshape(plane.rows, plane.stride)
    return np.ascontiguousarray(rows[:, : plane.row_bytes]).reshape(-1)
