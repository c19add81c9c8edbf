"""Pictures in messages of recordings: JPEGs as they are, everything else as pixels.

Names of raw encodings are those of ROS's sensor_msgs (``image_encodings.hpp``) and of Foxglove's
RawImage, which are the same where both have one.  Depth images (``16UC1``, ``32FC1``,
``compressedDepth``) are refused: a JPEG would lose their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.recorded_source import Pixels, decode_picture
from recorder.codecs.jpeg import jpeg_size
from recorder.common.errors import FormatError
from recorder.formats.ros2.messages import CompressedImage, Image

_JPEG: Final = b"\xff\xd8"
_LARGEST: Final = 65500  # pixels in each direction: OpenCV's limit for JPEGs


@dataclass(frozen=True, slots=True)
class _Raw:
    channels: int
    conversion: str = ""  # OpenCV's, to BGR; "": the first three channels are BGR already
    bits: int = 8


_BAYER: Final = {"rggb": "RGGB", "bggr": "BGGR", "gbrg": "GBRG", "grbg": "GRBG"}
_RAW: Final[Mapping[str, _Raw]] = {
    "rgb8": _Raw(3, "COLOR_RGB2BGR"),
    "rgba8": _Raw(4, "COLOR_RGBA2BGR"),
    "bgr8": _Raw(3),
    "8uc3": _Raw(3),
    "bgra8": _Raw(4),
    "8uc4": _Raw(4),
    "mono8": _Raw(1, "COLOR_GRAY2BGR"),
    "8uc1": _Raw(1, "COLOR_GRAY2BGR"),
    "mono16": _Raw(1, "COLOR_GRAY2BGR", bits=16),
    "rgb16": _Raw(3, "COLOR_RGB2BGR", bits=16),
    "bgr16": _Raw(3, bits=16),
    "yuv422": _Raw(2, "COLOR_YUV2BGR_UYVY"),
    "uyvy": _Raw(2, "COLOR_YUV2BGR_UYVY"),
    "yuv422_yuy2": _Raw(2, "COLOR_YUV2BGR_YUYV"),
    "yuyv": _Raw(2, "COLOR_YUV2BGR_YUYV"),
    **{f"bayer_{name}8": _Raw(1, f"COLOR_Bayer{cv}2BGR") for name, cv in _BAYER.items()},
    **{f"bayer_{name}16": _Raw(1, f"COLOR_Bayer{cv}2BGR", 16) for name, cv in _BAYER.items()},
}


def extract_picture(message: CompressedImage | Image) -> bytes | Pixels:
    """Return a message's picture: the unchanged JPEG, or pixels, u1 [height, width, 3], BGR.

    Raises:
        FormatError: the picture is damaged, or its encoding is not known.
    """
    if isinstance(message, Image):
        return _raw(message)
    data = bytes(message.data)
    if data[:2] == _JPEG:
        if jpeg_size(data) is None:
            raise FormatError(f"a JPEG of {len(data)} bytes without a frame header")
        return data
    if "compressedDepth" in message.format:
        raise FormatError(f"{message.format!r:.80} is a depth image, not a picture")
    decoded = decode_picture(data)
    if decoded is None:
        raise FormatError(f"{len(data)} bytes of {message.format!r:.80} that do not decode")
    return decoded


def is_encoded_here(message: CompressedImage | Image) -> bool:
    """Return whether the kit encodes the picture: it is not a JPEG."""
    return isinstance(message, Image) or bytes(message.data[:2]) != _JPEG


def _raw(image: Image) -> Pixels:
    form = _RAW.get(image.encoding.lower())
    if form is None:
        raise FormatError(f"cannot make a picture of the encoding {image.encoding!r:.40}")
    height, width = image.height, image.width
    if not (0 < height <= _LARGEST and 0 < width <= _LARGEST):
        raise FormatError(f"a picture of {width} x {height} pixels")
    size = form.bits // 8
    row = width * form.channels * size
    view = np.frombuffer(image.data, np.uint8)
    if image.step < row or len(view) < image.step * (height - 1) + row:
        raise FormatError(
            f"{len(view)} bytes in rows of {image.step} for {width} x {height} pixels of "
            f"{image.encoding}"
        )
    if len(view) < image.step * height:  # the last row may lack its padding
        view = np.pad(view, (0, image.step * height - len(view)))
    rows = view[: image.step * height].reshape(height, image.step)[:, :row]
    values: npt.NDArray[Any] = np.ascontiguousarray(rows)
    if size == 2:
        values = (values.view(">u2" if image.is_bigendian else "<u2") >> 8).astype(np.uint8)
    values = values.reshape(height, width, form.channels)
    if not form.conversion:
        return np.ascontiguousarray(values[..., :3])
    if form.conversion.startswith("COLOR_YUV") and width % 2:
        raise FormatError(f"{image.encoding} with an odd width of {width} pixels")
    if form.conversion.startswith("COLOR_Bayer") and min(height, width) < 2:
        raise FormatError(f"{image.encoding} of {width} x {height} pixels")
    import cv2

    return np.asarray(cv2.cvtColor(values, getattr(cv2, form.conversion)), np.uint8)
