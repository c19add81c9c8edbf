"""What a JPEG's markers say."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.camera.pictures import parse_jpeg
from recorder.codecs.jpeg import encode_jpeg
from recorder.common.errors import ProtocolError
from tests.campaigns import Selector
from tests.drivers.camera.rig import HEIGHT, PICTURES, WIDTH, jpeg

# JPEG


PROGRESSIVE = bytes(
    cv2.imencode(".jpg", PICTURES.frame(5), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].data
)
RESTARTS = bytes(
    cv2.imencode(".jpg", PICTURES.frame(5), [cv2.IMWRITE_JPEG_RST_INTERVAL, 4])[1].data
)
GREY = bytes(cv2.imencode(".jpg", PICTURES.frame(5)[..., 0])[1].data)


@pytest.mark.parametrize(
    ("data", "components", "process"),
    [(jpeg(5), 3, 0xC0), (PROGRESSIVE, 3, 0xC2), (RESTARTS, 3, 0xC0), (GREY, 1, 0xC0)],
    ids=["baseline", "progressive", "restarts", "grey"],
)
def test_parse_jpeg(data: bytes, components: int, process: int) -> None:
    for tail in (b"", bytes(100), b"\xff\xd9", data):
        header = parse_jpeg(data + tail)
        assert (header.width, header.height) == (WIDTH, HEIGHT)
        assert (header.components, header.process) == (components, process)
        assert header.length == len(data)


@pytest.mark.parametrize("data", [jpeg(5), PROGRESSIVE, RESTARTS], ids=["b", "p", "r"])
def test_a_jpeg_cut_anywhere_is_refused(data: bytes, select: Selector) -> None:
    for length in select(range(len(data)), 200):
        with pytest.raises(ProtocolError):
            parse_jpeg(data[:length])


@given(st.binary(max_size=300), st.integers(0, 700), st.integers(1, 255))
def test_parse_jpeg_survives_anything(noise: bytes, at: int, flip: int) -> None:
    mutated = bytearray(RESTARTS)
    mutated[at] ^= flip
    for data in (noise, b"\xff\xd8" + noise, bytes(mutated), bytes(mutated[: at + 40]) + noise):
        try:
            header = parse_jpeg(data)
        except ProtocolError:
            continue
        assert 0 < header.length <= len(data)
        assert data[header.length - 2 : header.length] == b"\xff\xd9"


def test_a_jpeg_without_huffman_tables() -> None:
    """Many USB cameras leave the usual tables out (AVI1); readers know them."""
    data = jpeg(5)
    bare, at = bytearray(data[:2]), 2
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] != 0xC4:
            bare += data[at:end]
        at = end
    bare += data[at:]
    assert parse_jpeg(bytes(bare)).length == len(bare) < len(data)
    shown = [cv2.imdecode(np.frombuffer(d, np.uint8), cv2.IMREAD_COLOR) for d in (bare, data)]
    assert shown[0] is not None
    np.testing.assert_array_equal(np.asarray(shown[0]), np.asarray(shown[1]))


def test_a_jpeg_as_the_recorder_makes_it() -> None:
    image = PICTURES.frame(3)
    made = encode_jpeg(image, 83)
    assert made is not None
    parameters = [cv2.IMWRITE_JPEG_QUALITY, 83]
    assert bytes(made) == bytes(cv2.imencode(".jpg", image, parameters)[1].data)
