"""Pictures for screens: as recorded, or reduced to the screen's width.

A JPEG is decoded at 1/2, 1/4 or 1/8 of its size at a fraction of the cost of its full size (the
inverse cosine transform of fewer coefficients, libjpeg's ``scale_denom``).  Raw pictures are scaled
between their levels; of video, only keyframes are shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from recorder.codecs import CHANNEL_FORMATS
from recorder.codecs.jpeg import encode_jpeg
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.perception.camera.camera_pictures import picture_maker

_QUALITY = 75
_REDUCED = {
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


def screen_jpeg(
    channel: ChannelSpec,
    picture: Buffer,
    width: int,
    where: str,
    settings: Mapping[str, Any] | None = None,
) -> tuple[Buffer, tuple[int, int]]:
    """Return a recorded picture as a JPEG for a screen.

    Args:
        channel: the picture's channel, a picture (`ChannelSpec.picture`).
        picture: the encoded sample.
        width: of the screen in pixels; 0: any.  Of the sizes 1/1, 1/2, 1/4 and 1/8, the picture
            gets the one whose width has the smallest ratio to it; it is never enlarged.
        where: what messages start with.
        settings: the stream's, which may have the levels of raw pictures.

    Returns:
        the JPEG, and its height and width.

    Raises:
        FormatError: the picture is damaged, or is not as large as the channel declares.
    """
    factor = _choose_reduction(channel.shape[1], width)
    if channel.pixels is not None or CHANNEL_FORMATS[channel.format].keyed:
        return _encode_other(channel, picture, factor, where, settings or {})
    return _reduce_jpeg(channel, picture, factor, where)


def _choose_reduction(full: int, wanted: int) -> int:
    """Return the reduction 1, 2, 4 or 8 that brings a full width nearest to the wanted one."""
    if not 0 < wanted < full:
        return 1
    return int(min(8, 2 ** round(math.log2(full / wanted))))


def _reduce_jpeg(
    channel: ChannelSpec, picture: Buffer, factor: int, where: str
) -> tuple[Buffer, tuple[int, int]]:
    found, data = CHANNEL_FORMATS[channel.format], bytes(picture)
    if fault := found.shape_fault(data, channel.shape) or found.hidden_fault(data):
        raise FormatError(f"{where}: {fault}")
    if factor == 1:
        return picture, (channel.shape[0], channel.shape[1])
    flags = _REDUCED[factor] | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise FormatError(f"{where}: does not decode as JPEG: {error.err}") from None
    jpeg = None if image is None else encode_jpeg(np.asarray(image, np.uint8), _QUALITY)
    if image is None or jpeg is None:
        raise FormatError(f"{where}: {len(data)} bytes that do not decode as JPEG")
    return jpeg, (image.shape[0], image.shape[1])


def _encode_other(
    channel: ChannelSpec, picture: Buffer, factor: int, where: str, settings: Mapping[str, Any]
) -> tuple[Buffer, tuple[int, int]]:
    try:
        image = picture_maker(channel.name, channel.meta(), settings)(picture)
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from None
    if factor > 1:
        height, width = (-(-size // factor) for size in channel.shape[:2])
        image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA))
    jpeg = encode_jpeg(image, _QUALITY)
    if jpeg is None:
        raise FormatError(f"{where}: {list(image.shape)} pixels cannot be encoded as JPEG")
    return jpeg, (image.shape[0], image.shape[1])
