"""Options that a kind of source does not have, and what the error says."""

from __future__ import annotations

from typing import Any

import pytest

from drivers.camera.driver import CameraDriver
from drivers.kit.driver import SensorConfig
from recorder.common.errors import SourceError
from recorder.config.options import check_options

ADDRESSES = {"file": "/nowhere.mp4", "v4l2": "/dev/video99", "sim": ""}
NETWORK = ("http", "https", "rtsp")
GAIN = (
    "gain: only the simulated camera has this option; set a v4l2: camera's controls by name, as in "
    "controls: {gain: 20}"
)
CASES: list[tuple[tuple[str, ...], dict[str, Any], str]] = [
    (("v4l2", *NETWORK), {"gain": 2.0}, GAIN),
    (("v4l2", *NETWORK), {"gain": 0.0}, GAIN),
    (NETWORK, {"gain": 2.0, "controls": {"a": 1}}, GAIN),
    (NETWORK, {"controls": {"a": 1}}, "controls: only a v4l2: camera has this option"),
    (("file", "sim"), {"controls": {"a": 1}}, "controls: only a v4l2: camera has controls"),
    (("file", "sim"), {"latency_ms": -3.0}, "latency_ms: only a live camera has latency"),
    (
        ("file", *NETWORK),
        {"pixel_format": "MJPG"},
        "pixel_format: only a v4l2: or sim: camera has this option",
    ),
    (
        ("http", "https"),
        {"codec": "copy"},
        "codec: copy records H.264 of the sources file:, rtsp:, sim:, v4l2: only",
    ),
    (
        ("file", "sim", "v4l2", *NETWORK),
        {"pixel_format": "H264"},
        "pixel_format: H264 is recorded only with codec: copy",
    ),
    (
        ("file", "rtsp", "sim", "v4l2"),
        {"codec": "copy", "pixel_format": "MJPG"},
        "pixel_format: codec: copy records H264 only",
    ),
    (
        ("file", "rtsp"),
        {"codec": "copy", "height": 64},
        "width, height: codec: copy does not resize pictures",
    ),
    (
        ("sim",),
        {"black_level": 3, "width": 64, "height": 48},
        "black_level: only a raw pixel_format has this option",
    ),
]


@pytest.mark.parametrize(
    ("scheme", "given", "text"),
    [(scheme, given, text) for schemes, given, text in CASES for scheme in schemes],
)
def test_an_option_that_a_source_lacks_is_an_error(
    scheme: str, given: dict[str, Any], text: str
) -> None:
    options = check_options(CameraDriver.options, given)
    address = ADDRESSES.get(scheme, "//127.0.0.1:9/x")
    with pytest.raises(SourceError) as error:
        CameraDriver(SensorConfig("front", scheme, address, options)).open()
    assert str(error.value) == f"front: {text}"
