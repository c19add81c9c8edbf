"""Messages that the recorder supports in recordings of other software.

These are messages of ROS 2 (CDR), of Foxglove (protobuf), and the JSON of small streams in the
recorder's own archives and live views. All are decoded to the dataclasses of
`recorder.formats.ros2`, whatever their encoding was, so that a driver knows one message of each
kind.

The numbers of Foxglove's fields are those of the schemas that foxglove-sdk 0.30 embeds.

Positions are latitude and longitude in degrees and height above the WGS 84 ellipsoid in m.  The
messages' covariances are of east, north, up (sensor_msgs/NavSatFix, foxglove.LocationFix); a
`Position` has north, east, down.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Final

from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.formats.ros2.clouds import LIVOX_CLOUDS, decode_cloud, decode_livox
from recorder.formats.ros2.codec import decode_message
from recorder.formats.ros2.definitions import (
    CAMERA_INFO,
    CAN_FRAME,
    COMPRESSED_IMAGE,
    COMPRESSED_VIDEO,
    FD_FRAME,
    IMAGE,
    IMU,
    NAV_SAT_FIX,
    NEBULA_PACKETS,
    ODOMETRY,
    PANDAR_SCAN,
    POINT_CLOUD,
    POSE,
    POSE_WITH_COVARIANCE,
    ROBOSENSE_INFO,
    ROBOSENSE_SCAN,
    RSLIDAR_OLD_PACKET,
    RSLIDAR_OLD_SCAN,
    RSLIDAR_PACKET,
    STRING,
    TRANSFORMS,
    UDP_PACKET,
    VELODYNE_SCAN,
)
from recorder.formats.ros2.messages import (
    CameraInfo,
    CompressedImage,
    CompressedVideo,
    Header,
    Image,
    Imu,
    NavSatFix,
    PacketScan,
    PandarPacket,
    RobosenseInfo,
    RslidarPacket,
    StampedPacket,
    TransformStamped,
    UdpPacket,
)

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_NAMES: Final = {_VARINT: "varint", _FIXED64: "fixed64", _BYTES: "bytes", _FIXED32: "fixed32"}
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_LONGEST: Final = 10  # bytes of a varint

Value = int | memoryview


class ProtobufReader:
    """Reader of a message's fields by number.

    An absent field has its type's zero. If a field occurs twice, the last one counts.

    Args:
        data: the message's bytes.
        what: name of the message in errors.

    Raises:
        FormatError: from every method; names the field and its fault.
    """

    def __init__(self, data: Buffer, what: str) -> None:
        self._view = memoryview(data)
        self._what = what
        self._fields: dict[int, list[tuple[int, Value]]] = {}
        at = 0
        while at < len(self._view):
            key, at = self._varint(at)
            number, kind = key >> 3, key & 7
            value: Value
            if kind == _VARINT:
                value, at = self._varint(at)
            elif kind in _FIXED:
                value, at = self._bytes(at, _FIXED[kind])
            elif kind == _BYTES:
                size, at = self._varint(at)
                value, at = self._bytes(at, size)
            else:
                raise FormatError(f"{what}: byte {at}: field {number} has the wire type {kind}")
            self._fields.setdefault(number, []).append((kind, value))

    def blob(self, number: int) -> memoryview:
        """Return the bytes of a field, not copied."""
        value = self._last(number, _BYTES)
        return value if isinstance(value, memoryview) else memoryview(b"")

    def text(self, number: int) -> str:
        """Return a text field."""
        try:
            return str(self.blob(number), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{self._what}: field {number}: not UTF-8: {error.reason}") from None

    def integer(self, number: int) -> int:
        """Return an int32 or int64 field, or an unsigned one of less than 64 bits."""
        value = self._last(number, _VARINT)
        if not isinstance(value, int):
            return 0
        return value - (1 << 64) if value >> 63 else value

    def fixed32(self, number: int) -> int:
        """Return a fixed32 field."""
        value = self._last(number, _FIXED32)
        return int.from_bytes(value, "little") if isinstance(value, memoryview) else 0

    def double(self, number: int) -> float:
        """Return a double field."""
        value = self._last(number, _FIXED64)
        return float(struct.unpack("<d", value)[0]) if isinstance(value, memoryview) else 0.0

    def doubles(self, number: int) -> tuple[float, ...]:
        """Return a field with doubles, packed or one by one."""
        data = bytearray()
        for kind, value in self._fields.get(number, ()):
            if kind not in (_BYTES, _FIXED64) or not isinstance(value, memoryview):
                raise self._misfit(number, kind, "a list of doubles")
            if len(value) % 8:
                raise FormatError(f"{self._what}: field {number}: {len(value)} bytes of doubles")
            data += value
        return struct.unpack(f"<{len(data) // 8}d", data)

    def message(self, number: int) -> ProtobufReader:
        """Return a message field; empty if it is absent."""
        return ProtobufReader(self.blob(number), f"{self._what}: field {number}")

    def messages(self, number: int) -> list[ProtobufReader]:
        """Return a field with messages."""
        found = []
        for kind, value in self._fields.get(number, ()):
            if kind != _BYTES or not isinstance(value, memoryview):
                raise self._misfit(number, kind, "a list of messages")
            found.append(ProtobufReader(value, f"{self._what}: field {number}"))
        return found

    def _last(self, number: int, wanted: int) -> Value | None:
        if not (values := self._fields.get(number)):
            return None
        kind, value = values[-1]
        if kind != wanted:
            raise self._misfit(number, kind, _NAMES[wanted])
        return value

    def _misfit(self, number: int, kind: int, wanted: str) -> FormatError:
        return FormatError(f"{self._what}: field {number} is {_NAMES[kind]}, not {wanted}")

    def _varint(self, at: int) -> tuple[int, int]:
        value = 0
        for place in range(_LONGEST):
            if at + place >= len(self._view):
                raise FormatError(f"{self._what}: ends in the number at byte {at}")
            byte = self._view[at + place]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at + place + 1
        raise FormatError(f"{self._what}: the number at byte {at} has more than {_LONGEST} bytes")

    def _bytes(self, at: int, size: int) -> tuple[memoryview, int]:
        left = len(self._view) - at
        if size > left:
            raise FormatError(f"{self._what}: byte {at}: {size} bytes are needed, {left} are left")
        return self._view[at : at + size], at + size


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
    CLOUDS = "point clouds"
    PACKETS = "packets"
    LIDAR_PACKETS = "packets of a lidar"
    TEXT = "text"
    TRANSFORMS = "transforms"
    POSES = "poses"
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


def decode_foxglove_compressed_video(data: Buffer) -> CompressedVideo:
    """Decode a ``foxglove.CompressedVideo``."""
    video = ProtobufReader(data, "foxglove.CompressedVideo")
    stamp_ns = timestamp(video.message(1))
    return CompressedVideo(stamp_ns, video.text(2), video.blob(3), video.text(4))


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

_NAN9: Final = (math.nan,) * 9
_ROWS: Final = {"pos": 3, "vel": 3, "cov": 9}
_BYTE_CHANNELS: Final = frozenset({"fix", "sats", "quality"})
_STATUS_NO_FIX: Final = -1
_NO_FIX, _FIX_2D, _FIX_3D = 0, 2, 3


@dataclass(frozen=True, slots=True)
class Position:
    """One position.

    Attributes:
        stamp_ns: epoch ns.
        frame_id: frame of the antenna; "": unknown.
        pos: latitude, longitude in deg, height in m [3]; NaN: unknown.
        fix: 0 none, 2 without a height, 3 with a height; the recorder's own streams may have other
            values.
        vel: north, east, down in m/s [3]; NaN: unknown; None: no field for it.
        cov: covariance of north, east, down in m^2 [9], row by row; NaN: unknown; None: no field
            for it.
        more: further channels of the recorder's own streams: ``sats``, ``quality``, ``utc``.
        t_dev_ns: the device's own time; None: unknown.
    """

    stamp_ns: int
    frame_id: str
    pos: Floats
    fix: int
    vel: Floats | None = None
    cov: Floats | None = None
    more: Mapping[str, int] = field(default_factory=dict)
    t_dev_ns: int | None = None


def decode_ros2_position(data: Buffer) -> Position:
    """Decode a ``sensor_msgs/msg/NavSatFix``.

    The status -1 means no fix. Publishers that set no status send -2 (since ROS 2 Rolling), which
    says nothing about the position.
    """
    fix: NavSatFix = decode_message(NAV_SAT_FIX, data)
    known = fix.position_covariance_type != 0
    pos = _NAN3 if fix.status == _STATUS_NO_FIX else (fix.latitude, fix.longitude, fix.altitude)
    cov = _convert_to_ned(fix.position_covariance) if known else _NAN9
    return Position(fix.header.stamp_ns, fix.header.frame_id, pos, _find_fix(pos), cov=cov)


def decode_foxglove_position(data: Buffer) -> Position:
    """Decode a ``foxglove.LocationFix``; its velocity is east, north, up."""
    what = "foxglove.LocationFix"
    fix = ProtobufReader(data, what)
    pos = fix.double(1), fix.double(2), fix.double(3)
    covariance = fix.doubles(4)
    if fix.integer(5) and len(covariance) != 9:
        raise FormatError(f"{what}: position_covariance has {len(covariance)} numbers, not 9")
    cov = _convert_to_ned(covariance) if fix.integer(5) else _NAN9
    vel: Floats = _NAN3
    if fix.messages(11):
        east, north, up = (fix.message(11).double(number) for number in (1, 2, 3))
        vel = north, east, -up
    return Position(timestamp(fix.message(6)), fix.text(7), pos, _find_fix(pos), vel, cov)


def decode_json_position(data: Buffer) -> Position:
    """Decode a sample of a position stream in the JSON of this recorder's archives and live views.

    ``{"timestamp": {"sec", "nsec"}, "pos": [3], "fix"}``, and where they are recorded ``vel``,
    ``cov``, ``sats``, ``quality``, ``utc``, ``t_dev``; null is a value that is not finite.
    """
    what = "JSON of a position"
    try:
        values = json.loads(bytes(data))
        stamp = values["timestamp"]
        stamp_ns = whole(stamp["sec"]) * _SECOND + whole(stamp["nsec"])
        rows = {n: number_row(values, n, size) for n, size in _ROWS.items() if n in values}
        numbers = {name: whole(values[name]) for name in (*_BYTE_CHANNELS, "utc") if name in values}
        for name in _BYTE_CHANNELS & numbers.keys():
            if not 0 <= numbers[name] <= 255:
                raise ValueError(f"{name} is not a number from 0 to 255")
        pos, fix = rows.pop("pos"), numbers.pop("fix")
        t_dev_ns = whole(values["t_dev"]) if "t_dev" in values else None
    except KeyError as error:
        raise FormatError(f"{what}: has no {error.args[0]}") from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{what}: {type(error).__name__}: {str(error)[:80]}") from None
    vel, cov = rows.get("vel"), rows.get("cov")
    return Position(stamp_ns, "", pos, fix, vel, cov, numbers, t_dev_ns)


def _find_fix(pos: Floats) -> int:
    if not (math.isfinite(pos[0]) and math.isfinite(pos[1])):
        return _NO_FIX
    return _FIX_3D if math.isfinite(pos[2]) else _FIX_2D


def _convert_to_ned(enu: Sequence[float]) -> Floats:
    """Convert a covariance [9] of east, north, up to north, east, down."""
    ee, en, eu, ne, nn, nu, ue, un, uu = enu
    return nn, ne, -nu, en, ee, -eu, -un, -ue, uu


def decode_lidar_packets(type_name: str, data: Buffer) -> PacketScan:
    """Decode a message with packets of a lidar, of one of the types in `LIDAR_PACKETS`.

    The packets have the sizes that they had on the network.
    """
    message: Any = decode_message(type_name, data)
    match message:
        case PacketScan(header, packets):
            cut = [_cut(p) if isinstance(p, PandarPacket) else p for p in packets]
            return PacketScan(header, cut)
        case RobosenseInfo(_, packet) | (StampedPacket() as packet):
            return PacketScan(Header(packet.stamp_ns, ""), (packet,))
        case RslidarPacket() | UdpPacket():
            return PacketScan(
                message.header, (StampedPacket(message.header.stamp_ns, message.data),)
            )
    raise FormatError(f"{type_name}: has no packets of a lidar")


def _cut(packet: PandarPacket) -> StampedPacket:
    if packet.size > len(packet.data):
        raise FormatError(f"{PANDAR_SCAN}: a packet of {packet.size} bytes in {len(packet.data)}")
    return StampedPacket(packet.stamp_ns, packet.data[: packet.size])


LIDAR_PACKETS: Final = (
    *(PANDAR_SCAN, VELODYNE_SCAN, NEBULA_PACKETS, ROBOSENSE_SCAN, ROBOSENSE_INFO),
    *(RSLIDAR_PACKET, RSLIDAR_OLD_SCAN, RSLIDAR_OLD_PACKET, UDP_PACKET),
)
"""Types of messages with packets of a lidar."""
ABOUT_DEVICE: Final = ("difop", "info_packets", "imu_packets")
"""Endings of topics with packets that devices send beside those with ranges."""
_ROS2: Final = {
    COMPRESSED_IMAGE: Kind.PICTURES,
    COMPRESSED_VIDEO: Kind.PICTURES,
    IMAGE: Kind.PICTURES,
    "ouster_sensor_msgs/msg/PacketMsg": Kind.PACKETS,
    "ouster_ros/msg/PacketMsg": Kind.PACKETS,
    CAN_FRAME: Kind.CAN_FRAMES,
    FD_FRAME: Kind.CAN_FRAMES,
    STRING: Kind.TEXT,
    TRANSFORMS: Kind.TRANSFORMS,
    ODOMETRY: Kind.POSES,
    POSE: Kind.POSES,
    POSE_WITH_COVARIANCE: Kind.POSES,
    CAMERA_INFO: Kind.CAMERA_MODEL,
}
DECODERS: Final[Mapping[tuple[str, str], tuple[Kind, Decode]]] = {
    **{("cdr", name): (kind, partial(decode_message, name)) for name, kind in _ROS2.items()},
    ("cdr", POINT_CLOUD): (Kind.CLOUDS, decode_cloud),
    **{
        ("cdr", name): (Kind.LIDAR_PACKETS, partial(decode_lidar_packets, name))
        for name in LIDAR_PACKETS
    },
    **{("cdr", name): (Kind.CLOUDS, partial(decode_livox, name)) for name in LIVOX_CLOUDS},
    ("cdr", IMU): (Kind.IMU, decode_ros2_imu),
    ("cdr", NAV_SAT_FIX): (Kind.POSITIONS, decode_ros2_position),
    ("json", "recorder.Loss"): (Kind.LOSSES, decode_loss),
    ("protobuf", "foxglove.CompressedImage"): (Kind.PICTURES, decode_foxglove_compressed_image),
    ("protobuf", "foxglove.CompressedVideo"): (Kind.PICTURES, decode_foxglove_compressed_video),
    ("protobuf", "foxglove.RawImage"): (Kind.PICTURES, decode_foxglove_raw_image),
    ("protobuf", "foxglove.FrameTransforms"): (Kind.TRANSFORMS, decode_foxglove_transforms),
    ("protobuf", "foxglove.FrameTransform"): (Kind.TRANSFORMS, decode_foxglove_transform),
    ("protobuf", "foxglove.CameraCalibration"): (Kind.CAMERA_MODEL, decode_foxglove_calibration),
    ("protobuf", "foxglove.LocationFix"): (Kind.POSITIONS, decode_foxglove_position),
}
"""Kind and decoder of messages, by message encoding and name of the schema."""
