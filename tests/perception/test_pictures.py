"""Pictures for screens of several sizes."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from drivers.camera.model_output import make_raw_values
from recorder.codecs.jpeg import encode_jpeg
from recorder.codecs.raw_pixels import Levels, RawPixels
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError
from recorder.perception.camera.pictures import screen_jpeg

HEIGHT, WIDTH = 180, 320
CHANNEL = ChannelSpec("video.avi", "mjpg", "u1", (HEIGHT, WIDTH, 3))
RAW = ChannelSpec("image.srggb10", "raw", "u2", (HEIGHT, WIDTH))


def picture(height: int = HEIGHT, width: int = WIDTH) -> bytes:
    """Smooth, and different in each corner and colour."""
    down, right = np.mgrid[0:height, 0:width] / [[[height]], [[width]]]
    image = np.stack([255 * down, 255 * right, 255 * (1 - down) * right], axis=-1)
    encoded = encode_jpeg(image.astype(np.uint8), 95)
    assert encoded is not None
    return bytes(encoded)


@pytest.mark.parametrize("width", [0, WIDTH, WIDTH + 1, 10_000])
def test_a_picture_that_fits_is_as_recorded(width: int) -> None:
    jpeg = picture()
    shown, size = screen_jpeg(CHANNEL, jpeg, width, "camera")
    assert shown == jpeg and size == (HEIGHT, WIDTH)


@pytest.mark.parametrize(
    ("width", "reduced"),
    [(300, 320), (220, 160), (160, 160), (120, 160), (110, 80), (80, 80), (40, 40), (1, 40)],
)
def test_a_smaller_screen_gets_the_nearest_size(width: int, reduced: int) -> None:
    jpeg = picture()
    shown, size = screen_jpeg(CHANNEL, jpeg, width, "camera")
    image = cv2.imdecode(np.frombuffer(shown, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    assert image.shape == (*size, 3) and size == (-(-HEIGHT * reduced // WIDTH), reduced)
    full = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert full is not None
    expected = cv2.resize(full, size[::-1], interpolation=cv2.INTER_AREA)
    assert np.abs(image.astype(int) - expected).mean() < 3


@pytest.mark.parametrize("width", [0, 100])
def test_damaged_pictures_are_named(width: int) -> None:
    jpeg = picture()
    for damaged in (b"", b"nothing", jpeg[:-2], jpeg[:100], picture(HEIGHT, WIDTH - 16)):
        with pytest.raises(FormatError, match=r"^camera: "):
            screen_jpeg(CHANNEL, damaged, width, "camera")


@pytest.mark.parametrize(("width", "size"), [(0, (180, 320)), (100, (45, 80)), (1, (23, 40))])
def test_raw_pictures_are_shown_between_their_levels(width: int, size: tuple[int, int]) -> None:
    settings = {"black_level": 64, "white_level": 1000, "white_balance": [1.9, 1.5]}
    levels = Levels.from_settings(RAW.pixels or RawPixels(10), settings)
    original = cv2.imdecode(np.frombuffer(picture(), np.uint8), cv2.IMREAD_COLOR)
    assert original is not None
    values = make_raw_values(np.asarray(original, np.uint8), levels).tobytes()
    shown, got = screen_jpeg(RAW, values, width, "camera", settings)
    image = cv2.imdecode(np.frombuffer(shown, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    assert image.shape == (*size, 3) and got == size
    expected = cv2.resize(original, size[::-1], interpolation=cv2.INTER_AREA)
    assert np.abs(image.astype(int) - expected).mean() < 3


def test_raw_pictures_of_another_size_are_named() -> None:
    with pytest.raises(FormatError, match=r"^camera: image\.srggb10: 5 bytes of a picture"):
        screen_jpeg(RAW, b"12345", 0, "camera")


def test_only_pictures_are_pictures() -> None:
    assert CHANNEL.picture
    assert RAW.picture
    assert not ChannelSpec("rng", "lzmaf", "u2", (HEIGHT, WIDTH)).picture
