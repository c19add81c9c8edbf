"""Pictures of a report, encoded within a number of bytes, and colour maps for values."""

from __future__ import annotations

import base64
import math
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError

Picture = npt.NDArray[np.uint8]
"""A picture, u1 [height, width, 3], BGR."""

_GOOD, _POOR = 70, 30  # qualities
_LEAST: Final = 16  # pixels of a picture's longer side

_ANCHORS: Final = (
    *((68, 1, 84), (71, 44, 122), (59, 81, 139), (44, 113, 142), (33, 144, 141)),
    *((39, 173, 129), (92, 200, 99), (170, 220, 50), (253, 231, 37)),
)
"""RGB of the colour map viridis at nine equal steps: brightness rises with the value, so that the
picture can be read without colours (matplotlib, colormaps/_listed)."""


def _make_table() -> Picture:
    steps = np.linspace(0, 255, len(_ANCHORS))
    rgb = np.array(_ANCHORS, np.float64)
    table = np.stack([np.interp(np.arange(256), steps, rgb[:, c]) for c in (2, 1, 0)], axis=1)
    return np.asarray(np.rint(table), np.uint8)


TABLE: Final = _make_table()
"""Colour table, u1 [256, 3], BGR."""
BACKGROUND: Final = np.array((19, 14, 11), np.uint8)
"""Background of points, BGR."""


def apply_colours(values: npt.NDArray[Any], low: float, high: float) -> Picture:
    """Map values [...] to colours [..., 3], from `low` to `high`."""
    scaled = (values.astype(np.float32) - low) * (255.0 / ((high - low) or 1.0))
    picture: Picture = TABLE[np.clip(np.nan_to_num(scaled), 0, 255).astype(np.uint8)]
    return picture


def shrink_picture(picture: Picture, longest: int) -> Picture:
    """Shrink a picture so that its longer side has at most `longest` pixels."""
    height, width = picture.shape[:2]
    factor = longest / max(height, width)
    if factor >= 1:
        return picture
    size = max(1, round(width * factor)), max(1, round(height * factor))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)


def data_uri(picture: Picture, most_bytes: int) -> tuple[str, int]:
    """Encode a picture as a ``data:`` address; also return its encoded size in bytes.

    The quality falls, then the size, until the encoded picture has at most `most_bytes`.

    Raises:
        FormatError: the picture cannot be encoded.
    """
    data = _encode(picture, _GOOD)
    if len(data) > most_bytes:
        data = _encode(picture, _POOR)
    while len(data) > most_bytes and (longest := max(picture.shape[:2])) > _LEAST:
        shrunk = longest * min(0.9, 0.9 * math.sqrt(most_bytes / len(data)))
        picture = shrink_picture(picture, max(_LEAST, int(shrunk)))
        data = _encode(picture, _POOR)
    return f"data:image/webp;base64,{base64.b64encode(data).decode()}", len(data)


def _encode(picture: Picture, quality: int) -> bytes:
    good, encoded = cv2.imencode(".webp", picture, [cv2.IMWRITE_WEBP_QUALITY, quality])
    if not good:
        raise FormatError(f"{list(picture.shape)} pixels cannot be encoded as WebP")
    return encoded.tobytes()
