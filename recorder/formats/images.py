"""Encoded images of datasets as a camera's channel: JPEGs as they are, grey PNGs with all bits.

::

    pictures = PictureChannel(image, "png", "drive.itar: cameras/front/frames/17")
    pictures.channel, pictures.lost
    data = pictures.convert(image, "png")        # of one sample
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.jpeg import jpeg_size
from recorder.codecs.raw_pixels import RawPixels
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError, StreamChangedError

VIDEO: Final = "video.avi"
QUALITY: Final = 95
_JPEG: Final = b"\xff\xd8"


class PictureChannel:
    """Conversion of a camera's images to samples.

    Args:
        image, kind: the first image, and its format (``jpeg``, ``png``).
        where: its place, for messages.
        raw: pixels of the sensor, of which a grey image has the values; None: not known.

    Attributes:
        channel: the pictures' channel.
        size: width and height.
        settings: settings of the stream.
        lost: what is lost of the pictures.

    Raises:
        FormatError: the image is none.
    """

    def __init__(self, image: bytes, kind: str, where: str, raw: RawPixels | None = None) -> None:
        self._where = where
        self.settings: dict[str, Any] = {"jpeg_quality": QUALITY, "passed_through": True}
        self.lost: list[str] = []
        if (shape := self._jpeg_shape(image)) is not None:
            self.channel = ChannelSpec(VIDEO, "mjpg", "u1", (*shape, 3), "pictures")
        else:
            pixels = self._decode(image, kind)
            shape = pixels.shape[:2]
            self.settings["passed_through"] = False
            if pixels.ndim == 2:
                if raw is None or np.dtype(raw.dtype) != pixels.dtype:
                    raw = RawPixels(8 if pixels.dtype == np.uint8 else 16)
                self.channel = ChannelSpec(raw.channel, "raw", raw.dtype, shape, "pictures")
            else:
                self.channel = ChannelSpec(VIDEO, "mjpg", "u1", (*shape, 3), "pictures")
                self.lost.append(f"its images are {kind or 'no JPEG'}: encoded as JPEG")
        self.size = shape[1], shape[0]

    @staticmethod
    def _jpeg_shape(image: bytes) -> tuple[int, int] | None:
        return jpeg_size(image) if image.startswith(_JPEG) else None

    def convert(self, image: bytes, kind: str) -> npt.NDArray[Any] | list[bytes]:
        """Return the channel's data of one sample.

        Raises:
            FormatError: the image is damaged.
            StreamChangedError: it has another size or other pixels than the first one.
        """
        jpeg, shape = self._jpeg_shape(image), self.channel.shape
        if jpeg is not None and self.channel.name == VIDEO:
            if jpeg != shape[:2]:
                raise StreamChangedError(
                    f"a picture of {jpeg[::-1]} where {shape[1::-1]} was first"
                )
            return [image]
        pixels = self._decode(image, kind)
        if pixels.shape != shape or pixels.dtype != self.channel.np_dtype:
            found = f"{pixels.dtype} {list(pixels.shape)}"
            raise StreamChangedError(f"a picture of {found} where {list(shape)} was first")
        return pixels[None]

    def _decode(self, image: bytes, kind: str) -> npt.NDArray[Any]:
        """Return the pixels: grey of 8 or 16 bits, or BGR of 8 bits."""
        import cv2

        data = np.frombuffer(image, np.uint8)
        pixels = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if image else None
        if pixels is None:
            raise FormatError(f"{self._where}: is no image that can be decoded ({kind or '?'})")
        if pixels.ndim == 3 or pixels.dtype not in (np.uint8, np.uint16):
            pixels = cv2.imdecode(data, cv2.IMREAD_COLOR)
        return np.asarray(pixels)
