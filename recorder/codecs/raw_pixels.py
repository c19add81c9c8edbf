"""Raw pictures of image sensors: monochrome or Bayer, 8 to 16 bits per pixel.

Such a picture is a channel of the format ``raw``, u1 or u2 [height, width], a value per pixel. The
channel's name contains the pixel format: ``image.y12``, ``image.srggb10``. The settings of its
stream have the black and white levels, if these are known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError

PATTERNS = ("RGGB", "GRBG", "GBRG", "BGGR")
"""Colours of the first two pixels of the first row, then of the second row."""

_CHANNEL = re.compile(r"image\.(?:y|s(rggb|grbg|gbrg|bggr))(8|10|12|14|16)")


@dataclass(frozen=True, slots=True)
class RawPixels:
    """Pixel format of a raw picture.

    Attributes:
        bits: significant bits of a value; the bits above them are 0.
        pattern: one of `PATTERNS`; empty for a monochrome sensor.
    """

    bits: int
    pattern: str = ""

    @property
    def name(self) -> str:
        """V4L2's name of the format without packing: ``Y12``, ``SRGGB10``."""
        return (f"S{self.pattern}" if self.pattern else "Y") + str(self.bits)

    @property
    def channel(self) -> str:
        """Name of the pictures' channel."""
        return f"image.{self.name.lower()}"

    @property
    def dtype(self) -> str:
        """Type of the values, as in `recorder.codecs.streams.ChannelSpec`."""
        return "u1" if self.bits == 8 else "u2"

    @property
    def places(self) -> tuple[tuple[slice, slice, str], ...]:
        """Rows and columns of each colour (``R``, ``G``, ``B``); all are ``Y`` if monochrome."""
        if not self.pattern:
            return ((slice(None), slice(None), "Y"),)
        return tuple(
            (slice(at // 2, None, 2), slice(at % 2, None, 2), colour)
            for at, colour in enumerate(self.pattern)
        )


def raw_pixels(channel: str, entry: Mapping[str, Any]) -> RawPixels | None:
    """Return a channel's pixel format by its name; None if it has no raw pictures.

    Args:
        channel: the channel's name.
        entry: its entry of ``meta.json``: format, type, shape.
    """
    match = _CHANNEL.fullmatch(channel)
    if match is None or entry["format"] != "raw" or len(entry["shape"]) != 2:
        return None
    pixels = RawPixels(int(match[2]), (match[1] or "").upper())
    return pixels if np.dtype(entry["type"]) == np.dtype(pixels.dtype) else None


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels and factors with which a raw picture is shown in 8 bits.

    Values of Bayer sensors are linear light: the curve of sRGB (IEC 61966-2-1) is applied. Values
    of monochrome sensors are scaled linearly.

    Attributes:
        pixels: pixel format.
        black: value of black.
        white: value of white.
        red, blue: factors of red and blue light, relative to green.

    Raises:
        FormatError: the values are not 0 <= black < white < 2**bits, or a factor is not positive.
    """

    pixels: RawPixels
    black: int
    white: int
    red: float = 1.0
    blue: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.black < self.white < 1 << self.pixels.bits:
            raise FormatError(
                f"black_level {self.black} and white_level {self.white} of {self.pixels.name}: "
                f"needs 0 <= black_level < white_level < {1 << self.pixels.bits}"
            )
        if not (self.red > 0 and self.blue > 0):
            raise FormatError(f"white_balance: {self.red:g}, {self.blue:g}: needs factors > 0")

    @classmethod
    def from_settings(cls, pixels: RawPixels, settings: Mapping[str, Any]) -> Levels:
        """Make the levels of a stream's settings or options; default: all values of the bits."""
        black, white = settings.get("black_level"), settings.get("white_level")
        balance = settings.get("white_balance") or (1.0, 1.0)
        if len(balance) != 2:
            raise FormatError(f"white_balance: {len(balance)} numbers instead of red and blue")
        most = (1 << pixels.bits) - 1
        return cls(pixels, black or 0, most if white is None else white, *map(float, balance))

    def shown(self, colour: str) -> npt.NDArray[np.uint8]:
        """Return the 8-bit value of each value of a colour, u1 [256 or 65536]."""
        values = np.arange(1 << 8 * np.dtype(self.pixels.dtype).itemsize)
        light = (values - self.black) / (self.white - self.black) * self._factor(colour)
        light = np.clip(light, 0.0, 1.0)
        if colour != "Y":
            bright = 1.055 * light ** (1 / 2.4) - 0.055
            light = np.where(light <= 0.0031308, light * 12.92, bright)
        return np.rint(light * 255).astype(np.uint8)

    def values(self, colour: str) -> npt.NDArray[Any]:
        """Return the value of each 8-bit value, u1 or u2 [256]; the inverse of `shown`."""
        light = np.arange(256) / 255
        if colour != "Y":
            light = np.where(light <= 0.04045, light / 12.92, ((light + 0.055) / 1.055) ** 2.4)
        values = self.black + light / self._factor(colour) * (self.white - self.black)
        return np.rint(np.minimum(values, self.white)).astype("<" + self.pixels.dtype)

    def _factor(self, colour: str) -> float:
        return {"R": self.red, "B": self.blue}.get(colour, 1.0)
