"""Pictures of all cameras with 8 bits: JPEGs, and raw pictures of every pattern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from drivers.camera.model_output import make_raw_values
from recorder.codecs.jpeg import encode_jpeg
from recorder.codecs.raw_pixels import PATTERNS, Levels, RawPixels
from recorder.common.errors import FormatError
from recorder.perception.camera.camera_pictures import Pictures, picture_maker
from recorder.perception.frames import image_channel, kind_of
from recorder.session.reader import Session
from tests.drivers.camera.rig import PICTURES, Image
from tests.session.build import Builder, camera_spec, raw_camera_spec

SETTINGS = {"black_level": 64, "white_level": 1000, "white_balance": [1.9, 1.5]}


def difference(picture: Image, original: Image) -> float:
    return float(np.abs(picture.astype(int) - original).mean())


def shown(values: npt.NDArray[Any], pixels: RawPixels, settings: dict[str, Any]) -> Image:
    entry = {"format": "raw", "type": pixels.dtype, "shape": list(values.shape)}
    return picture_maker(pixels.channel, entry, settings)(values.tobytes())


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("bits", [10, 16])
def test_a_bayer_picture_has_its_colours(pattern: str, bits: int) -> None:
    pixels = RawPixels(bits, pattern)
    original = cv2.GaussianBlur(PICTURES.frame(3), (0, 0), 2.0)  # interpolation keeps it
    values = make_raw_values(original, Levels.from_settings(pixels, SETTINGS))
    picture = shown(values, pixels, SETTINGS)
    assert (picture.dtype, picture.shape) == (np.dtype(np.uint8), original.shape)
    assert difference(picture, original) < 3
    wrong = shown(values, RawPixels(bits, pattern[::-1]), SETTINGS)
    assert difference(wrong, original) > 6


def test_flat_colours_are_exact() -> None:
    """Red, green and blue of each place in the pattern, away from the borders of the colours."""
    pixels = RawPixels(12, "GRBG")
    flat = np.full((16, 16, 3), (200, 120, 40), np.uint8)
    picture = shown(make_raw_values(flat, Levels.from_settings(pixels, {})), pixels, {})
    assert difference(picture, flat) < 1


def test_monochrome_values_are_shown_in_proportion() -> None:
    values = np.array([[0, 100, 600], [1100, 4095, 65535]], "<u2")
    settings = {"black_level": 100, "white_level": 1100}
    picture = shown(values, RawPixels(12), settings)
    assert picture[..., 0].tolist() == [[0, 0, 128], [255, 255, 255]]
    assert (picture == picture[..., :1]).all()


def test_a_jpeg_is_decoded_as_recorded() -> None:
    original = PICTURES.frame(1)
    data = encode_jpeg(original, 95)
    assert data is not None
    entry = {"format": "mjpg", "type": "u1", "shape": list(original.shape)}
    show = picture_maker("video.avi", entry, {})
    assert difference(show(data), original) < 3
    for damaged in (b"", bytes(data)[:1], b"no JPEG"):
        with pytest.raises(FormatError, match=r"video\.avi: \d bytes that do not decode"):
            show(damaged)


def test_values_of_another_size_are_refused() -> None:
    with pytest.raises(FormatError, match=r"image\.y10: 5 bytes of a picture of \[2, 3\]"):
        entry = {"format": "raw", "type": "u2", "shape": [2, 3]}
        picture_maker("image.y10", entry, {})(b"12345")


def test_levels_that_cannot_be_are_refused() -> None:
    with pytest.raises(FormatError, match="white_level 70000"):
        shown(np.zeros((2, 2), "<u2"), RawPixels(16), {"white_level": 70_000})


def test_streams_with_raw_pictures_are_cameras(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    put = builder.add(raw_camera_spec(), 0.2)
    jpegs = builder.add(camera_spec("front"), 0.2)
    with Session(builder.close()) as session:
        raw = session.streams["camera"]
        assert (kind_of(raw), image_channel(raw)) == ("camera", "image.srggb10")
        pictures = Pictures(raw)
        assert pictures.pixels == RawPixels(10, "RGGB")
        assert pictures.size == put.data["image.srggb10"].shape[:0:-1]
        expected = shown(put.data["image.srggb10"][2], pictures.pixels, dict(put.spec.settings))
        np.testing.assert_array_equal(pictures.picture(2), expected)
        assert pictures.jpeg(2) == bytes(encode_jpeg(expected, 90) or b"")
        assert "SRGGB10, 10 bits" in pictures.remark()
        recorded = Pictures(session.streams["front"])
        assert recorded.pixels is None
        assert recorded.remark() == ""
        assert recorded.jpeg(1) == session.streams["front"].channels["video.avi"].encoded(1)
        assert recorded.picture(1).shape == jpegs.data["video.avi"].shape[1:]
