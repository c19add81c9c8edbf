"""Cameras: their models, and images of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from foxglove.messages import RawImage

from recorder.perception.calibration import SensorCalibration
from recorder.perception.foxglove.channels import stamp
from recorder.perception.foxglove.pictures import camera_model, raw_image

_PLAIN = {"fx": 1.0, "fy": 2.0, "cx": 3.0, "cy": 4.0}


@pytest.mark.parametrize(
    ("model", "parameters", "wanted"),
    [
        ("opencv-pinhole", {"k1": 0.1, "p2": 0.2, "k3": 0.3}, ("plumb_bob", [0.1, 0, 0, 0.2, 0.3])),
        ("opencv-pinhole", {"k6": 0.6}, ("rational_polynomial", [0, 0, 0, 0, 0, 0, 0, 0.6])),
        ("opencv-pinhole", {"s1": 0.0}, ("plumb_bob", [0.0] * 5)),
        ("opencv-fisheye", {"k4": 0.4}, ("kannala_brandt", [0, 0, 0, 0.4])),
        ("opencv-pinhole", {"s1": 0.1}, None),  # thin prism: Foxglove has none
        ("opencv-fisheye", {"p1": 0.1}, None),
        ("opencv-pinhole", {"fx": "1"}, None),
        ("opencv-pinhole", {"fx": 0.0}, None),
        ("ftheta", {}, None),
        (None, {}, None),
    ],
)
def test_models_of_cameras_are_named_as_foxglove_knows_them_or_left_out(
    model: str | None, parameters: dict[str, Any], wanted: tuple[str, list[float]] | None
) -> None:
    calibration = SensorCalibration(None, model, {**_PLAIN, **parameters}, (64, 48))
    found = camera_model(calibration, (64, 48))
    assert (None if found is None else (found["distortion_model"], found["D"])) == wanted
    assert camera_model(calibration, (32, 24)) is None  # a model is for one resolution


@pytest.mark.parametrize(
    ("dtype", "given", "encoding"),
    [("u1", None, "mono8"), ("<u2", None, "mono16"), ("<i2", None, "16SC1"), ("<f4", None, "32FC1"),
     ("u1", "bayer_rggb8", "bayer_rggb8")],
)  # fmt: skip
@pytest.mark.parametrize("view", [np.s_[:, :], np.s_[:, ::2], np.s_[::-1, 1:]])
def test_images_have_the_bytes_of_the_sdk(
    dtype: str, given: str | None, encoding: str, view: Any
) -> None:
    values = np.arange(60).reshape(6, 10).astype(dtype)[view]
    height, width = values.shape
    wanted = RawImage(
        timestamp=stamp(7),
        frame_id="camera",
        width=width,
        height=height,
        encoding=encoding,
        step=width * values.itemsize,
        data=values.tobytes(),
    )
    assert b"".join(raw_image(7, "camera", values, given)) == wanted.encode()
