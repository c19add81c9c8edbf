"""The names of raw pictures' channels, and the levels between which they are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recorder.codecs.raw_pixels import PATTERNS, Levels, RawPixels, raw_pixels
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError

ALL = [RawPixels(bits, pattern) for bits in (8, 10, 12, 14, 16) for pattern in ("", *PATTERNS)]


def entry(dtype: str, *shape: int, format_: str = "raw") -> dict[str, Any]:
    return {"format": format_, "type": dtype, "shape": list(shape)}


@pytest.mark.parametrize("pixels", ALL, ids=lambda pixels: pixels.name)
def test_the_channels_name_has_the_format(pixels: RawPixels) -> None:
    spec = ChannelSpec(pixels.channel, "raw", pixels.dtype, (4, 6))
    assert spec.pixels == pixels
    assert spec.picture
    assert raw_pixels(spec.name, spec.meta()) == pixels


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("image.y12", entry("u1", 4, 6)),
        ("image.srggb8", entry("u2", 4, 6)),
        ("image.y12", entry("u2", 4, 6, 1)),
        ("image.y12", entry("u2", 4, 6, format_="lzmaf")),
        ("image.y11", entry("u2", 4, 6)),
        ("image.srgbg10", entry("u2", 4, 6)),
        ("rng", entry("u2", 4, 6)),
    ],
)
def test_other_channels_are_no_raw_pictures(name: str, told: dict[str, Any]) -> None:
    assert raw_pixels(name, told) is None


def test_the_places_of_a_pattern() -> None:
    colours = np.empty((4, 4), "U1")
    for rows, columns, colour in RawPixels(10, "GRBG").places:
        colours[rows, columns] = colour
    assert ["".join(row) for row in colours] == ["GRGR", "BGBG"] * 2
    ((rows, columns, colour),) = RawPixels(12).places
    colours[rows, columns] = colour
    assert set(colours.flat) == {"Y"}


@pytest.mark.parametrize("pixels", ALL, ids=lambda pixels: pixels.name)
@pytest.mark.parametrize("balance", [(1.0, 1.0), (1.9, 1.4)])
def test_levels_and_their_inverse(pixels: RawPixels, balance: tuple[float, float]) -> None:
    most = (1 << pixels.bits) - 1
    levels = Levels(pixels, most // 16, most - most // 32, *balance)
    for colour in {colour for *_, colour in pixels.places}:
        shown, values = levels.shown(colour), levels.values(colour)
        assert shown.shape == (256 if pixels.bits == 8 else 65536,)
        assert (np.diff(shown.astype(int)) >= 0).all()
        assert shown[: levels.black + 1].max() == 0
        assert shown[levels.white] == 255
        assert values.dtype == np.dtype("<" + pixels.dtype)
        assert values.max() <= levels.white
        if pixels.bits >= 14:  # fewer bits have fewer than 256 values in the dark
            assert np.abs(shown[values].astype(int) - np.arange(256)).max() <= 1


def test_values_of_a_bayer_sensor_are_light() -> None:
    """sRGB (IEC 61966-2-1): a fifth of the light is the value 124; monochrome is in proportion."""
    assert Levels(RawPixels(16, "RGGB"), 0, 65535).shown("G")[13107] == 124
    assert Levels(RawPixels(16), 0, 65535).shown("Y")[13107] == 51


def test_levels_of_settings() -> None:
    pixels = RawPixels(10, "RGGB")
    assert Levels.from_settings(pixels, {"fps": 30}) == Levels(pixels, 0, 1023)
    stated = {"black_level": 64, "white_level": 1000, "white_balance": [2, 1.5]}
    assert Levels.from_settings(pixels, stated) == Levels(pixels, 64, 1000, 2.0, 1.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"white_level": 1024}, "black_level 0 and white_level 1024 of Y10: needs 0 <= .* < 1024"),
        ({"black_level": 64, "white_level": 64}, "black_level 64 and white_level 64"),
        ({"white_balance": [1.0]}, "white_balance: 1 numbers instead of red and blue"),
        ({"white_balance": [0.0, 1.0]}, "white_balance: 0, 1: needs factors > 0"),
    ],
)
def test_levels_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Levels.from_settings(RawPixels(10), settings)
