"""A camera's pictures with 8 bits, for every recorded format.

Raw pictures (`recorder.codecs.raw_pixels`) are demosaiced and scaled between their levels. Video
is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.codecs import CHANNEL_FORMATS, DEFAULT_JPEG_QUALITY
from recorder.codecs.jpeg import encode_jpeg
from recorder.codecs.raw_pixels import Levels, RawPixels, raw_pixels
from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.config.options import Option
from recorder.perception.frames import image_channel
from recorder.session.stream import Stream

Picture = npt.NDArray[np.uint8]
"""u1 [height, width, 3], BGR."""
Show = Callable[[Buffer], Picture]
JPEG_QUALITY = Option(
    "int", None, "quality of JPEGs made of video or raw pictures (default: the camera's setting)",
    minimum=1, maximum=100,
)  # fmt: skip
"""The option ``jpeg_quality`` of archives."""

# A stored orientation is not applied: labels and lens models are of the recorded pixels.
_AS_RECORDED = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
_DEMOSAIC = {
    "RGGB": cv2.COLOR_BayerRGGB2BGR,
    "GRBG": cv2.COLOR_BayerGRBG2BGR,
    "GBRG": cv2.COLOR_BayerGBRG2BGR,
    "BGGR": cv2.COLOR_BayerBGGR2BGR,
    "": cv2.COLOR_GRAY2BGR,
}


def picture_maker(channel: str, entry: Mapping[str, Any], settings: Mapping[str, Any]) -> Show:
    """Return a function from an encoded sample of a camera's channel to its picture.

    ::

        channel = spec.channel(image_channel(spec))
        show = picture_maker(channel.name, channel.meta(), spec.settings)
        picture = show(sample)                      # u1 [height, width, 3], BGR

    Several threads may use the function.  Of a video it decodes keyframes only.

    Args:
        channel: name of the channel with the pictures.
        entry: its entry of ``meta.json``: format, type, shape.
        settings: the stream's; may have the levels of raw pictures.

    Raises:
        FormatError: the levels are invalid; when the function is called: the sample is damaged.
    """
    pixels = raw_pixels(channel, entry)
    if pixels is None and CHANNEL_FORMATS[entry["format"]].keyed:
        return _create_keyframe_decoder(channel, entry)
    if pixels is None:
        return lambda data: _decode_jpeg(data, channel)
    tables = _compute_tables(Levels.from_settings(pixels, settings))
    shape, dtype = tuple(entry["shape"]), np.dtype("<" + pixels.dtype)

    def show(data: Buffer) -> Picture:
        values = np.frombuffer(data, np.uint8)
        if values.nbytes != shape[0] * shape[1] * dtype.itemsize:
            raise FormatError(f"{channel}: {values.nbytes} bytes of a picture of {list(shape)}")
        values = values.view(dtype).reshape(shape)
        mosaic = np.empty(shape, np.uint8)
        for rows, columns, table in tables:
            mosaic[rows, columns] = table.take(values[rows, columns])
        return np.asarray(cv2.cvtColor(mosaic, _DEMOSAIC[pixels.pattern]), np.uint8)

    return show


def _create_keyframe_decoder(channel: str, entry: Mapping[str, Any]) -> Show:
    decode, shape = CHANNEL_FORMATS[entry["format"]].decoder(), tuple(entry["shape"])

    def show(data: Buffer) -> Picture:
        rgb = np.empty(shape, np.uint8)
        decode(data, rgb, channel)
        return _to_bgr(rgb)

    return show


def _to_bgr(rgb: npt.NDArray[Any]) -> Picture:
    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), np.uint8)


@lru_cache(16)
def _compute_tables(levels: Levels) -> list[tuple[slice, slice, npt.NDArray[np.uint8]]]:
    """Return tables from raw values to 8-bit values, with the rows and columns they apply to."""
    return [(rows, columns, levels.shown(c)) for rows, columns, c in levels.pixels.places]


class Pictures:
    """A recorded camera's pictures.

    ::

        pictures = Pictures(stream)
        pictures.jpeg(17)       # as recorded; of raw pictures and of video encoded
        pictures.picture(17)    # u1 [height, width, 3], BGR

    Several threads may read pictures at once.

    Args:
        stream: a stream whose kind is ``camera``.
        quality: of JPEGs that are encoded here, 1 to 100; None: the camera's setting.

    Attributes:
        size: (width, height) in pixels.
        pixels: format of the values of raw pictures; None if JPEGs or video are recorded.
        encodes: `jpeg` encodes pictures, since no JPEGs are recorded.
        quality: of JPEGs that are encoded here.

    Raises:
        FormatError: the levels in the stream's settings are invalid.
    """

    def __init__(self, stream: Stream, quality: int | None = None) -> None:
        channel = image_channel(stream)
        assert channel is not None
        entry = stream.meta[channel]
        settings: Mapping[str, Any] = stream.spec.settings if stream.spec is not None else {}
        self._stream, self._channel = stream, channel
        self._show = picture_maker(channel, entry, settings)
        self.quality = int(quality or settings.get("jpeg_quality", DEFAULT_JPEG_QUALITY))
        self._video = CHANNEL_FORMATS[entry["format"]].keyed
        height, width = entry["shape"][:2]
        self.size: tuple[int, int] = (width, height)
        self.pixels: RawPixels | None = raw_pixels(channel, entry)
        self.encodes = self._video or self.pixels is not None

    def picture(self, index: int) -> Picture:
        """Return a sample as a picture with 8 bits, u1 [height, width, 3], BGR.

        Raises:
            FormatError: the sample is damaged.
        """
        if self._video:
            return _to_bgr(self._stream.channels[self._channel][index])
        return self._show(self._read_encoded(index))

    def jpeg(self, index: int) -> bytes:
        """Return a sample as a JPEG; a recorded JPEG is unchanged.

        Raises:
            FormatError: the sample is damaged, or cannot be encoded.
        """
        if not self.encodes:
            return self._read_encoded(index)
        encoded = encode_jpeg(self.picture(index), self.quality)
        if encoded is None:
            raise FormatError(f"{self._channel}: {self.size} pixels cannot be encoded as JPEG")
        return bytes(encoded)

    def values(self, index: int) -> npt.NDArray[Any]:
        """Return a raw picture's values as recorded, u1 or u2 [height, width]; see `pixels`.

        Raises:
            FormatError: the sample is damaged.
        """
        assert self.pixels is not None
        data = np.frombuffer(self._read_encoded(index), "<" + self.pixels.dtype)
        width, height = self.size
        if len(data) != width * height:
            raise FormatError(f"{self._channel}: {data.nbytes} bytes of {width}x{height} pixels")
        return data.reshape(height, width)

    def remark(self) -> str:
        """Describe what JPEGs of raw pictures or video lose; empty for recorded JPEGs."""
        if self._video:
            return (
                f"{self._channel}: decoded and packed as JPEGs of quality {self.quality}; "
                "the session, VRS and MCAP (foxglove) keep the video"
            )
        if self.pixels is None:
            return ""
        colours = "demosaiced" if self.pixels.pattern else "monochrome"
        return (
            f"pictures have the sensor's values ({self.pixels.name}, {self.pixels.bits} bits): "
            f"packed with 8 bits, {colours}; the session and VRS keep the values"
        )

    def _read_encoded(self, index: int) -> bytes:
        return self._stream.channels[self._channel].encoded(index)


def _decode_jpeg(data: Buffer, where: str) -> Picture:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), _AS_RECORDED) if len(data) else None
    if image is None:
        raise FormatError(f"{where}: {len(data)} bytes that do not decode as JPEG")
    return np.asarray(image, np.uint8)
