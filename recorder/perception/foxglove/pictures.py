"""Topics of cameras: pictures, and the camera's model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from foxglove.messages import CameraCalibration, CompressedImage, CompressedVideo, RawImage

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.perception.calibration import SensorCalibration
from recorder.perception.camera.pictures import screen_jpeg
from recorder.perception.encoded import EncodedSamples
from recorder.perception.foxglove.channels import (
    Encoded,
    Parts,
    SampleChannel,
    Schema,
    schema_of,
    stamp,
    times_ns,
    with_bytes,
)
from recorder.perception.frames import image_channel

_RAW_HZ: Final = 10.0
_COMPRESSED_DATA: Final = 2  # field of CompressedImage
_VIDEO_DATA: Final = 3  # field of CompressedVideo
_RAW_DATA: Final = 6  # field of RawImage
_RAW_ENCODINGS: Final = {"u1": "mono8", "<u2": "mono16", "<i2": "16SC1", "<f4": "32FC1"}
_PINHOLE: Final = ("k1", "k2", "p1", "p2", "k3")
_RATIONAL: Final = (*_PINHOLE, "k4", "k5", "k6")
_FISHEYE: Final = ("k1", "k2", "k3", "k4")
_FOCUS: Final = ("fx", "fy", "cx", "cy")


def picture_channel(spec: StreamSpec) -> SampleChannel:
    """Return the topic ``/NAME/image``: a camera's pictures.

    Recorded JPEGs are passed on unchanged; raw pictures become JPEGs, shown between their levels.
    """
    name = image_channel(spec)
    assert name is not None
    channel, samples = spec.channel(name), EncodedSamples(spec)
    where = f"{spec.name}: {name}"

    def encode(message: Message, offset_ns: int) -> Encoded:
        samples.check(message)
        t_ns = times_ns(message, offset_ns)[-1]
        picture = samples.newest(message, name)
        jpeg, _ = screen_jpeg(channel, picture, 0, where, spec.settings)
        image = CompressedImage(timestamp=stamp(t_ns), frame_id=spec.name, format="jpeg")
        return [(t_ns, with_bytes(image.encode(), _COMPRESSED_DATA, jpeg))]

    most_hz = None if channel.pixels is None else _RAW_HZ
    topic, schema = f"/{spec.name}/image", schema_of(CompressedImage)
    return SampleChannel(topic, schema, spec.name, encode, most_hz=most_hz)


def video_channel(spec: StreamSpec) -> SampleChannel:
    """Return the topic ``/NAME/video``: a camera's access units, as recorded.

    CompressedVideo requires the recorded form: Annex B, a picture a message, keyframes with their
    parameter sets, no B-frames.
    """
    name = image_channel(spec)
    assert name is not None
    samples, codec = EncodedSamples(spec), spec.channel(name).format

    def encode(message: Message, offset_ns: int) -> Encoded:
        samples.check(message)
        t_ns = times_ns(message, offset_ns)[-1]
        video = CompressedVideo(timestamp=stamp(t_ns), frame_id=spec.name, format=codec)
        return [(t_ns, with_bytes(video.encode(), _VIDEO_DATA, samples.newest(message, name)))]

    return SampleChannel(f"/{spec.name}/video", schema_of(CompressedVideo), spec.name, encode)


def raw_picture_channel(spec: StreamSpec) -> SampleChannel:
    """Return the topic ``/NAME/image``: the values of a camera's raw pictures, as recorded.

    Foxglove names Bayer patterns of 8 bits only: Bayer pictures of more bits are ``mono16``.
    """
    name = image_channel(spec)
    assert name is not None
    channel, samples = spec.channel(name), EncodedSamples(spec)
    pixels = channel.pixels
    assert pixels is not None
    bayer = bool(pixels.pattern) and pixels.bits == 8
    encoding = f"bayer_{pixels.pattern.lower()}8" if bayer else None

    def encode(message: Message, offset_ns: int) -> Encoded:
        samples.check(message)
        t_ns = times_ns(message, offset_ns)[-1]
        return [(t_ns, raw_image(t_ns, spec.name, samples.decoded(message, name), encoding))]

    return SampleChannel(f"/{spec.name}/image", schema_of(RawImage), spec.name, encode)


def raw_image(
    t_ns: int, frame: str, values: npt.NDArray[Any], encoding: str | None = None
) -> Parts:
    """Encode a RawImage of an array [height, width], which must not change afterwards.

    Args:
        t_ns: its time, epoch ns.
        frame: its frame.
        values: u1, u2, i2 or f4.
        encoding: as RawImage and ``sensor_msgs/image_encodings.hpp`` name it; None: by the dtype,
            ``mono8``, ``mono16``, ``16SC1`` or ``32FC1``.
    """
    values = np.ascontiguousarray(values)
    height, width = values.shape
    image = RawImage(
        timestamp=stamp(t_ns),
        frame_id=frame,
        width=width,
        height=height,
        encoding=encoding or _RAW_ENCODINGS[values.dtype.str.lstrip("|")],
        step=width * values.itemsize,
    )
    return with_bytes(image.encode(), _RAW_DATA, values.reshape(-1).view(np.uint8).data)


def calibration_of(
    spec: StreamSpec, calibration: SensorCalibration
) -> tuple[str, Schema, Callable[[int], bytes]] | None:
    """Return ``/NAME/calibration``, its schema, and an encoder of its message for a time, epoch ns.

    Returns:
        None where `camera_model` knows no model.
    """
    name = image_channel(spec)
    assert name is not None
    height, width = spec.channel(name).shape[:2]
    model = camera_model(calibration, (width, height))
    if model is None:
        return None

    def encode(t_ns: int) -> bytes:
        return CameraCalibration(timestamp=stamp(t_ns), frame_id=spec.name, **model).encode()

    return f"/{spec.name}/calibration", schema_of(CameraCalibration), encode


def camera_model(
    calibration: SensorCalibration, resolution: tuple[int, int]
) -> dict[str, Any] | None:
    """Return the fields of a CameraCalibration.

    OpenCV's pinhole model is ``plumb_bob``, or ``rational_polynomial`` with `k4` to `k6`; OpenCV's
    fisheye model is ``kannala_brandt``.

    Returns:
        None where the camera has no model, the model is for another resolution, or the model or a
        parameter other than zero has no counterpart.
    """
    if calibration.resolution != resolution:
        return None
    values = {key: value for key, value in calibration.parameters.items() if value}
    if calibration.model == "opencv-pinhole":
        rational = any(key in values for key in ("k4", "k5", "k6"))
        name = "rational_polynomial" if rational else "plumb_bob"
        terms: tuple[str, ...] = _RATIONAL if rational else _PINHOLE
    elif calibration.model == "opencv-fisheye":
        name, terms = "kannala_brandt", _FISHEYE
    else:
        return None
    if not values.keys() <= {*_FOCUS, *terms} or not _is_usable(values):
        return None
    fx, fy = float(values["fx"]), float(values["fy"])
    cx, cy = float(values.get("cx", 0.0)), float(values.get("cy", 0.0))
    return {
        "width": resolution[0],
        "height": resolution[1],
        "distortion_model": name,
        "D": [float(values.get(key, 0.0)) for key in terms],
        "K": [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
        "R": [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        "P": [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
    }


def _is_usable(values: Mapping[str, Any]) -> bool:
    """Return whether the values are numbers, with focal lengths."""
    numbers = all(type(value) in (int, float) for value in values.values())
    return numbers and {"fx", "fy"} <= values.keys()
