"""Options of raw pictures, and what a stream's settings report of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from recorder.contract.config.options import Option, OptionTable
from recorder.contract.errors import FormatError, SourceError
from recorder.contract.raw_pixels import Levels, RawPixels

RAW_OPTIONS: Final[OptionTable] = {
    "black_level": Option("int", None, "raw: value of black (default: 0)", minimum=0),
    "white_level": Option("int", None, "raw: value of white (default: the largest)", minimum=1),
    "white_balance": Option(
        "list", None, "raw Bayer: factors of red and blue when shown (default: 1, 1)", items="float"
    ),
}


def raw_settings(
    name: str, options: Mapping[str, Any], pixels: RawPixels | None
) -> Mapping[str, Any]:
    """Return what is known of a stream's raw pictures; nothing if its pictures are not raw.

    Args:
        name: the sensor's name, for messages.
        options: the sensor's checked options.
        pixels: what the values of raw pictures are.

    Raises:
        SourceError: the levels do not fit the values, or the pictures are not raw.
    """
    stated = {key: options[key] for key in RAW_OPTIONS if options[key] is not None}
    if pixels is None:
        for key in stated:
            raise SourceError(f"{name}: {key}: only a raw pixel_format has this option")
        return {}
    try:
        Levels.of_settings(pixels, options)
    except FormatError as error:
        raise SourceError(f"{name}: {error}") from None
    pattern = {"bayer_pattern": pixels.pattern} if pixels.pattern else {}
    return {"bits_per_pixel": pixels.bits, **pattern, **stated}
