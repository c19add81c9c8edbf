"""Messages that the recorder supports in recordings of other software.

These are messages of ROS 2 (CDR), of Foxglove (protobuf), and the JSON of small streams in the
recorder's own archives and live views. All are decoded to the dataclasses of
`recorder.formats.ros2`, whatever their encoding was, so that a driver knows one message of each
kind.

The numbers of Foxglove's fields are those of the schemas that foxglove-sdk 0.30 embeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.formats.bags.protobuf import ProtobufReader
from recorder.formats.ros2.codec import decode_message
from recorder.formats.ros2.definitions import (
    CAMERA_INFO,
    CAN_FRAME,
    COMPRESSED_IMAGE,
    FD_FRAME,
    IMAGE,
    IMU,
    STRING,
    TRANSFORMS,
)
from recorder.formats.ros2.messages import (
    CameraInfo,
    CompressedImage,
    Header,
    Image,
    Imu,
    TransformStamped,
)

_SECOND: Final = 1_000_000_000
_NAN3: Final = (math.nan,) * 3
_AXES: Final = ("acc", "avel", "rot", "mag")
_COUNTS: Final = ("count", "estimate")

Floats = tuple[float, ...]


class Kind(StrEnum):
    """Kinds of a topic's messages."""

    PICTURES = "pictures"
    IMU = "imu"
    POSITIONS = "positions"
    CAN_FRAMES = "CAN frames"
    PACKETS = "packets"
    TEXT = "text"
    TRANSFORMS = "transforms"
    CAMERA_MODEL = "camera model"
    LOSSES = "losses"


@dataclass(frozen=True, slots=True)
class Inertial:
    """One measurement of an IMU.

    Attributes:
        stamp_ns: epoch ns.
        frame_id: frame of the axes; "": unknown.
        acc: m/s^2 [3], gravity included; NaN: not measured.
        avel: rad/s [3]; NaN: not measured.
        quat: orientation, real part first [4]; NaN: not measured; None: no field for it.
        rot: roll, pitch, yaw in rad [3]; None: not measured, or in `quat` only.
        mag: magnetic field [3]; None: not measured.
        t_dev_ns: the device's own time; None: unknown.
    """

    stamp_ns: int
    frame_id: str
    acc: Floats
    avel: Floats
    quat: Floats | None = None
    rot: Floats | None = None
    mag: Floats | None = None
    t_dev_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss that this recorder counted, as its archives store it.

    Attributes:
        stream: stream that lost samples.
        cause: cause of the loss.
        count: number of lost samples; None if unknown, and `estimate` may then be set.
        estimate: estimated number of lost samples.
    """

    stream: str
    cause: str
    count: int | None
    estimate: int | None


def timestamp(message: ProtobufReader) -> int:
    """Read a google.protobuf.Timestamp as ns."""
    return message.integer(1) * _SECOND + message.integer(2)


def decode_foxglove_compressed_image(data: Buffer) -> CompressedImage:
    """Decode a ``foxglove.CompressedImage``."""
    image = ProtobufReader(data, "foxglove.CompressedImage")
    header = Header(timestamp(image.message(1)), image.text(4))
    return CompressedImage(header, image.text(3), image.blob(2))


def decode_foxglove_raw_image(data: Buffer) -> Image:
    """Decode a ``foxglove.RawImage``."""
    image = ProtobufReader(data, "foxglove.RawImage")
    header = Header(timestamp(image.message(1)), image.text(7))
    size = image.fixed32(3), image.fixed32(2)
    return Image(header, *size, image.text(4), 0, image.fixed32(5), image.blob(6))


def decode_foxglove_calibration(data: Buffer) -> CameraInfo:
    """Decode a ``foxglove.CameraCalibration``."""
    info = ProtobufReader(data, "foxglove.CameraCalibration")
    header = Header(timestamp(info.message(1)), info.text(9))
    k, r, p = (info.doubles(number) for number in (6, 7, 8))
    if len(k) != 9:
        raise FormatError(f"foxglove.CameraCalibration: K has {len(k)} numbers, not 9")
    height, width = info.fixed32(3), info.fixed32(2)
    return CameraInfo(header, height, width, info.text(4), info.doubles(5), k, r, p)


def decode_foxglove_transforms(data: Buffer) -> tuple[TransformStamped, ...]:
    """Decode a ``foxglove.FrameTransforms``."""
    what = "foxglove.FrameTransforms"
    return tuple(map(_read_transform, ProtobufReader(data, what).messages(1)))


def decode_foxglove_transform(data: Buffer) -> tuple[TransformStamped, ...]:
    """Decode a ``foxglove.FrameTransform``, as a tuple of one."""
    return (_read_transform(ProtobufReader(data, "foxglove.FrameTransform")),)


def _read_transform(each: ProtobufReader) -> TransformStamped:
    place, turn = each.message(4), each.message(5)
    return TransformStamped(
        Header(timestamp(each.message(1)), each.text(2)),
        each.text(3),
        tuple(place.double(n) for n in (1, 2, 3)),
        tuple(turn.double(n) for n in (1, 2, 3, 4)),
    )


def decode_ros2_imu(data: Buffer) -> Inertial:
    """Decode a ``sensor_msgs/msg/Imu``.

    Values that the message marks as not measured, by -1 as the first element of their covariance,
    are NaN, and so is an orientation of 0.
    """
    imu: Imu = decode_message(IMU, data)
    x, y, z, w = imu.orientation
    absent = imu.orientation_covariance[0] == -1 or not any(imu.orientation)
    return Inertial(
        imu.header.stamp_ns,
        imu.header.frame_id,
        _NAN3 if imu.linear_acceleration_covariance[0] == -1 else imu.linear_acceleration,
        _NAN3 if imu.angular_velocity_covariance[0] == -1 else imu.angular_velocity,
        (math.nan,) * 4 if absent else (w, x, y, z),
    )


def decode_json_imu(data: Buffer) -> Inertial:
    """Decode a sample of an IMU's stream in the JSON of this recorder's archives and live views.

    ``{"timestamp": {"sec", "nsec"}, "acc": [3], "avel": [3]}``, and where they are measured
    ``rot``, ``mag``, ``quat`` and ``t_dev``; null is a value that is not finite.
    """
    what = "JSON of an IMU"
    try:
        values = json.loads(bytes(data))
        stamp = values["timestamp"]
        stamp_ns = whole(stamp["sec"]) * _SECOND + whole(stamp["nsec"])
        found = {name: number_row(values, name, 3) for name in _AXES if name in values}
        quat = number_row(values, "quat", 4) if "quat" in values else None
        t_dev_ns = whole(values["t_dev"]) if "t_dev" in values else None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise FormatError(f"{what}: {type(error).__name__}: {str(error)[:80]}") from None
    if missing := {"acc", "avel"} - found.keys():
        raise FormatError(f"{what}: has no {min(missing)}")
    return Inertial(stamp_ns, "", quat=quat, t_dev_ns=t_dev_ns, **found)


def decode_loss(data: Buffer) -> Loss:
    """Decode a loss in JSON, of the topic ``/recorder/losses``."""
    try:
        values = json.loads(bytes(data))
        counts = [None if values.get(n) is None else whole(values[n]) for n in _COUNTS]
        if any(count is not None and count < 0 for count in counts):
            raise ValueError("a negative number of samples")
        return Loss(str(values["stream"] or ""), str(values["cause"] or "unknown"), *counts)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"JSON of a loss: {type(error).__name__}: {str(error)[:80]}") from None


def decode_ros2_loss(data: Buffer) -> Loss:
    """Decode a loss in JSON in a ``std_msgs/msg/String``."""
    return decode_loss(decode_message(STRING, data).encode())


def whole(value: Any) -> int:
    """Return a JSON value that is an int64; raise ValueError for any other."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value!r:.40} is not a whole number of 64 bits")
    return value


def number_row(values: Mapping[str, Any], name: str, length: int) -> Floats:
    """Return a JSON list of numbers, null as NaN; raise ValueError for any other value."""
    row = values[name]
    if not isinstance(row, list) or len(row) != length:
        raise ValueError(f"{name} is not a list of {length} numbers")
    return tuple(math.nan if value is None else float(value) for value in row)


Decode = Callable[[Buffer], Any]

_ROS2: Final = {
    COMPRESSED_IMAGE: Kind.PICTURES,
    IMAGE: Kind.PICTURES,
    "ouster_sensor_msgs/msg/PacketMsg": Kind.PACKETS,
    "ouster_ros/msg/PacketMsg": Kind.PACKETS,
    CAN_FRAME: Kind.CAN_FRAMES,
    FD_FRAME: Kind.CAN_FRAMES,
    STRING: Kind.TEXT,
    TRANSFORMS: Kind.TRANSFORMS,
    CAMERA_INFO: Kind.CAMERA_MODEL,
}
DECODERS: Final[Mapping[tuple[str, str], tuple[Kind, Decode]]] = {
    **{("cdr", name): (kind, partial(decode_message, name)) for name, kind in _ROS2.items()},
    ("cdr", IMU): (Kind.IMU, decode_ros2_imu),
    ("json", "recorder.Loss"): (Kind.LOSSES, decode_loss),
    ("protobuf", "foxglove.CompressedImage"): (Kind.PICTURES, decode_foxglove_compressed_image),
    ("protobuf", "foxglove.RawImage"): (Kind.PICTURES, decode_foxglove_raw_image),
    ("protobuf", "foxglove.FrameTransforms"): (Kind.TRANSFORMS, decode_foxglove_transforms),
    ("protobuf", "foxglove.FrameTransform"): (Kind.TRANSFORMS, decode_foxglove_transform),
    ("protobuf", "foxglove.CameraCalibration"): (Kind.CAMERA_MODEL, decode_foxglove_calibration),
}
"""Kind and decoder of messages, by message encoding and name of the schema."""
