"""Raw pictures as V4L2 devices deliver them: values of 8 to 16 bits, some formats packed.

Values of 10 to 16 bits have two bytes each, the low byte first.  Packed values (names that end in
P) come in groups: a byte with the high 8 bits of each value, then their low bits, the first value's
lowest.  Source: the Linux kernel's documentation of V4L2's image formats, pages "Luma-Only
Formats" (pixfmt-yuv-luma), and of Bayer formats pixfmt-srggb8, pixfmt-srggb10, pixfmt-srggb10p,
pixfmt-srggb12, pixfmt-srggb12p, pixfmt-srggb14, pixfmt-srggb14p and pixfmt-srggb16; the codes are
those of ``linux/videodev2.h``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.raw_pixels import PATTERNS, RawPixels

Rows = npt.NDArray[np.uint8]

_GROUPS: Final = {10: (4, 1), 12: (2, 1), 14: (4, 3)}
"""Values of a group, and bytes of their low bits, by the bits of a value."""

_BLOCK: Final = 65536
"""Groups that are unpacked together, in memory that the allocator uses again."""

_CODES: Final = {  # in the order of PATTERNS
    (8, False): ("RGGB", "GRBG", "GBRG", "BA81"),
    (10, False): ("RG10", "BA10", "GB10", "BG10"),
    (12, False): ("RG12", "BA12", "GB12", "BG12"),
    (14, False): ("RG14", "GR14", "GB14", "BG14"),
    (16, False): ("RG16", "GR16", "GB16", "BYR2"),
    (10, True): ("pRAA", "pgAA", "pGAA", "pBAA"),
    (12, True): ("pRCC", "pgCC", "pGCC", "pBCC"),
    (14, True): ("pREE", "pgEE", "pGEE", "pBEE"),
}


@dataclass(frozen=True, slots=True)
class RawFormat:
    """A format of raw pictures.

    Attributes:
        code: the four characters of the format's code.
        pixels: format of its values.
        packed: low bits of several values share bytes.
    """

    code: str
    pixels: RawPixels
    packed: bool = False

    @property
    def name(self) -> str:
        """The kernel's name without ``V4L2_PIX_FMT_``: ``SRGGB10P``."""
        return self.pixels.name + "P" * self.packed

    @property
    def group(self) -> int:
        """Number of values that are packed together; a row's width is a multiple of it."""
        return _GROUPS[self.pixels.bits][0] if self.packed else 1

    def row_bytes(self, width: int) -> int:
        """Return the bytes of a row of pixels."""
        if self.packed:
            return width * self.pixels.bits // 8
        return width * np.dtype(self.pixels.dtype).itemsize


RAW_FORMATS: Final[Mapping[str, RawFormat]] = {
    found.name: found
    for bits, packed in sorted(_CODES, key=lambda key: (-key[0], key[1]))  # the deepest first
    for found in (
        *(
            RawFormat(code, RawPixels(bits, pattern), packed)
            for pattern, code in zip(PATTERNS, _CODES[bits, packed], strict=True)
        ),
        *([RawFormat(f"Y{bits}" + "P" * packed, RawPixels(bits), packed)] if bits > 8 else ()),
    )
}
"""Raw formats by name, as in ``pixel_format``."""

PIXEL_FORMATS: Final = (
    "MJPG", "JPEG", "YUYV", "UYVY", "NV12", "NM12", "YU12", "YM12", "BGR3", "RGB3", "GREY",
    *RAW_FORMATS, "H264",
)  # fmt: skip
"""Supported formats, best first: by their codes, raw formats by the kernel's names."""
COPIED_FORMAT = "H264"
"""Compressed video, which is recorded as it is (``codec: copy``) and not decoded."""


def unpack_pixels(rows: Rows, form: RawFormat) -> npt.NDArray[Any]:
    """Return the values of a picture, one by one.

    Args:
        rows: u1 [height, bytes of a row], contiguous; the width is a multiple of `form.group`.
        form: their format.

    Returns:
        u1 or u2 [height, width]; the memory of `rows` if they are not packed.
    """
    bits = form.pixels.bits
    if not form.packed:
        return rows.view("<" + form.pixels.dtype)
    count, low_bytes = _GROUPS[bits]
    groups = rows.reshape(-1, count + low_bytes)
    values = np.empty((len(groups), count), "<u2")
    for at in range(0, len(groups), _BLOCK):
        block, out = groups[at : at + _BLOCK], values[at : at + _BLOCK]
        low: npt.NDArray[Any] = np.ascontiguousarray(block[:, count])
        if low_bytes > 1:
            low = low.astype("<u4")
            for k in range(1, low_bytes):
                low |= block[:, count + k].astype("<u4") << (8 * k)
        for k in range(count):
            value = block[:, k].astype("<u2")
            value <<= bits - 8
            value |= (low >> (k * (bits - 8))) & ((1 << bits - 8) - 1)
            out[:, k] = value
    return values.reshape(len(rows), -1)
