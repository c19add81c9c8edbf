"""Messages of ROS 2 that sensors send: sensor_msgs, tf2_msgs, rcl_interfaces, std_msgs, Ouster's.

A message is a frozen dataclass with the fields of its definition, in their order; `encode_X` gives
its parts in CDR, `decode_X` the message.  Large payloads are buffers that neither direction copies.
Sequences and arrays of numbers are tuples.  Stamps are int64 nanoseconds since 1970.

Every `decode_X` raises `FormatError` for bytes that are not such a message, and every `encode_X`
for values that the message cannot hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from recorder.contract.errors import FormatError
from recorder.contract.wire import Buffer
from recorder.formats.ros2.cdr import CdrReader, CdrWriter

_SECOND: Final = 1_000_000_000

Floats = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """``std_msgs/msg/Header``: when, and in which frame.

    Attributes:
        stamp_ns: nanoseconds since 1970; the seconds are int32.
        frame_id: frame of the data (REP-105).
    """

    stamp_ns: int
    frame_id: str


@dataclass(frozen=True, slots=True)
class CompressedImage:
    """``sensor_msgs/msg/CompressedImage``; `format` is ``jpeg`` or ``png``."""

    header: Header
    format: str
    data: Buffer


@dataclass(frozen=True, slots=True)
class Image:
    """``sensor_msgs/msg/Image``; `encoding` such as ``16UC1``, `step` bytes of a row."""

    header: Header
    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class RegionOfInterest:
    """``sensor_msgs/msg/RegionOfInterest``; all zero: the whole image."""

    x_offset: int = 0
    y_offset: int = 0
    height: int = 0
    width: int = 0
    do_rectify: bool = False


@dataclass(frozen=True, slots=True)
class CameraInfo:
    """``sensor_msgs/msg/CameraInfo``: intrinsics.

    Attributes:
        distortion_model: ``plumb_bob``, ``rational_polynomial`` or ``equidistant``.
        d: distortion parameters of the model.
        k: camera matrix [3 x 3], row by row.
        r: rectification matrix [3 x 3], row by row.
        p: projection matrix [3 x 4], row by row.
    """

    header: Header
    height: int
    width: int
    distortion_model: str
    d: Floats
    k: Floats
    r: Floats
    p: Floats
    binning_x: int = 0
    binning_y: int = 0
    roi: RegionOfInterest = RegionOfInterest()


@dataclass(frozen=True, slots=True)
class PointField:
    """``sensor_msgs/msg/PointField``; `datatype` 1 to 8: i1, u1, i2, u2, i4, u4, f4, f8."""

    name: str
    offset: int
    datatype: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class PointCloud2:
    """``sensor_msgs/msg/PointCloud2``; `point_step` bytes of a point, `row_step` of a row."""

    header: Header
    height: int
    width: int
    fields: tuple[PointField, ...]
    is_bigendian: bool
    point_step: int
    row_step: int
    data: Buffer
    is_dense: bool


@dataclass(frozen=True, slots=True)
class Imu:
    """``sensor_msgs/msg/Imu``.

    Attributes:
        orientation: x, y, z, w.
        orientation_covariance: [3 x 3] in rad^2; all zero: not known; first element -1: the message
            has no orientation.  The other covariances likewise.
        angular_velocity: rad/s.
        linear_acceleration: m/s^2.
    """

    header: Header
    orientation: Floats
    orientation_covariance: Floats
    angular_velocity: Floats
    angular_velocity_covariance: Floats
    linear_acceleration: Floats
    linear_acceleration_covariance: Floats


@dataclass(frozen=True, slots=True)
class NavSatFix:
    """``sensor_msgs/msg/NavSatFix``.

    Attributes:
        status: of NavSatStatus: -2 unknown, -1 no fix, 0 fix, 1 and 2 with augmentation.
        service: bits of NavSatStatus: 1 GPS, 2 GLONASS, 4 Compass, 8 Galileo.
        latitude: degrees north.
        longitude: degrees east.
        altitude: m above the WGS 84 ellipsoid; NaN: unknown.
        position_covariance: [3 x 3] east, north, up in m^2.
        position_covariance_type: 0 unknown, 1 approximated, 2 diagonal known, 3 known.
    """

    header: Header
    status: int
    service: int
    latitude: float
    longitude: float
    altitude: float
    position_covariance: Floats
    position_covariance_type: int


@dataclass(frozen=True, slots=True)
class TransformStamped:
    """``geometry_msgs/msg/TransformStamped``: the pose of a child frame in `header.frame_id`.

    Attributes:
        translation: x, y, z in m.
        rotation: quaternion x, y, z, w.
    """

    header: Header
    child_frame_id: str
    translation: Floats
    rotation: Floats


@dataclass(frozen=True, slots=True)
class Log:
    """``rcl_interfaces/msg/Log``; `level` 10 debug, 20 info, 30 warning, 40 error, 50 fatal."""

    stamp_ns: int
    level: int
    name: str
    msg: str
    file: str = ""
    function: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Dimension:
    """``std_msgs/msg/MultiArrayDimension``; `stride` is the elements of this and all inner ones."""

    label: str
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Int16MultiArray:
    """``std_msgs/msg/Int16MultiArray``: an array i2 with named dimensions, the outermost first."""

    dim: tuple[Dimension, ...]
    data: Buffer = field(repr=False)
    data_offset: int = 0


def put_stamp(writer: CdrWriter, stamp_ns: int) -> None:
    """Append a ``builtin_interfaces/msg/Time``."""
    seconds, nanoseconds = divmod(stamp_ns, _SECOND)
    if not -(1 << 31) <= seconds < 1 << 31:
        raise FormatError(f"{stamp_ns} ns: ROS 2 has int32 seconds, until 2038")
    writer.put("iI", seconds, nanoseconds)


def take_stamp(reader: CdrReader) -> int:
    """Read a ``builtin_interfaces/msg/Time`` or ``Duration`` as ns."""
    seconds, nanoseconds = reader.take("iI")
    if nanoseconds >= _SECOND:
        raise reader.error(f"a time with {nanoseconds} ns in a second")
    return int(seconds) * _SECOND + int(nanoseconds)


def put_header(writer: CdrWriter, header: Header) -> None:
    """Append a ``std_msgs/msg/Header``."""
    put_stamp(writer, header.stamp_ns)
    writer.string(header.frame_id)


def take_header(reader: CdrReader) -> Header:
    """Read a ``std_msgs/msg/Header``."""
    return Header(take_stamp(reader), reader.string())


def encode_compressed_image(image: CompressedImage) -> list[Buffer]:
    """A ``sensor_msgs/msg/CompressedImage`` in CDR."""
    writer = CdrWriter()
    put_header(writer, image.header)
    writer.string(image.format)
    writer.blob(image.data)
    return writer.finish()


def decode_compressed_image(data: Buffer) -> CompressedImage:
    """A ``sensor_msgs/msg/CompressedImage`` from CDR."""
    reader = CdrReader(data, "sensor_msgs/msg/CompressedImage")
    image = CompressedImage(take_header(reader), reader.string(), reader.blob())
    reader.finish()
    return image


def encode_image(image: Image) -> list[Buffer]:
    """A ``sensor_msgs/msg/Image`` in CDR."""
    writer = CdrWriter()
    put_header(writer, image.header)
    writer.put("II", image.height, image.width)
    writer.string(image.encoding)
    writer.put("BI", image.is_bigendian, image.step)
    writer.blob(image.data)
    return writer.finish()


def decode_image(data: Buffer) -> Image:
    """A ``sensor_msgs/msg/Image`` from CDR."""
    reader = CdrReader(data, "sensor_msgs/msg/Image")
    header, (height, width), encoding = take_header(reader), reader.take("II"), reader.string()
    bigendian, step = reader.take("BI")
    image = Image(header, height, width, encoding, bigendian, step, reader.blob())
    reader.finish()
    return image


def encode_camera_info(info: CameraInfo) -> list[Buffer]:
    """A ``sensor_msgs/msg/CameraInfo`` in CDR."""
    writer = CdrWriter()
    put_header(writer, info.header)
    writer.put("II", info.height, info.width)
    writer.string(info.distortion_model)
    writer.put(f"I{len(info.d)}d" if info.d else "I", len(info.d), *info.d)
    writer.put("9d9d12d", *info.k, *info.r, *info.p)
    roi = info.roi
    writer.put("II4I?", info.binning_x, info.binning_y, roi.x_offset, roi.y_offset, roi.height,
               roi.width, roi.do_rectify)  # fmt: skip
    return writer.finish()


def decode_camera_info(data: Buffer) -> CameraInfo:
    """A ``sensor_msgs/msg/CameraInfo`` from CDR."""
    reader = CdrReader(data, "sensor_msgs/msg/CameraInfo")
    header, (height, width), model = take_header(reader), reader.take("II"), reader.string()
    count = reader.count(8)
    d = reader.take(f"{count}d") if count else ()
    matrices = reader.take("30d")
    binning_x, binning_y, *roi = reader.take("II4I?")
    reader.finish()
    k, r, p = matrices[:9], matrices[9:18], matrices[18:]
    return CameraInfo(
        header, height, width, model, d, k, r, p, binning_x, binning_y, RegionOfInterest(*roi)
    )


def encode_point_cloud(cloud: PointCloud2) -> list[Buffer]:
    """A ``sensor_msgs/msg/PointCloud2`` in CDR."""
    writer = CdrWriter()
    put_header(writer, cloud.header)
    writer.put("III", cloud.height, cloud.width, len(cloud.fields))
    for each in cloud.fields:
        writer.string(each.name)
        writer.put("IBI", each.offset, each.datatype, each.count)
    writer.put("?II", cloud.is_bigendian, cloud.point_step, cloud.row_step)
    writer.blob(cloud.data)
    writer.put("?", cloud.is_dense)
    return writer.finish()


def decode_point_cloud(data: Buffer) -> PointCloud2:
    """A ``sensor_msgs/msg/PointCloud2`` from CDR."""
    reader = CdrReader(data, "sensor_msgs/msg/PointCloud2")
    header, (height, width) = take_header(reader), reader.take("II")
    fields = tuple(
        PointField(reader.string(), *reader.take("IBI")) for _ in range(reader.count(13))
    )
    (bigendian, step, row_step), points = reader.take("?II"), reader.blob()
    (dense,) = reader.take("?")
    reader.finish()
    return PointCloud2(header, height, width, fields, bigendian, step, row_step, points, dense)


def encode_imu(imu: Imu) -> list[Buffer]:
    """A ``sensor_msgs/msg/Imu`` in CDR."""
    writer = CdrWriter()
    put_header(writer, imu.header)
    writer.put("4d9d3d9d3d9d", *imu.orientation, *imu.orientation_covariance,
               *imu.angular_velocity, *imu.angular_velocity_covariance,
               *imu.linear_acceleration, *imu.linear_acceleration_covariance)  # fmt: skip
    return writer.finish()


def decode_imu(data: Buffer) -> Imu:
    """A ``sensor_msgs/msg/Imu`` from CDR."""
    reader = CdrReader(data, "sensor_msgs/msg/Imu")
    header, v = take_header(reader), reader.take("37d")
    reader.finish()
    return Imu(header, v[:4], v[4:13], v[13:16], v[16:25], v[25:28], v[28:])


def encode_nav_sat_fix(fix: NavSatFix) -> list[Buffer]:
    """A ``sensor_msgs/msg/NavSatFix`` in CDR."""
    writer = CdrWriter()
    put_header(writer, fix.header)
    writer.put("bH3d9dB", fix.status, fix.service, fix.latitude, fix.longitude, fix.altitude,
               *fix.position_covariance, fix.position_covariance_type)  # fmt: skip
    return writer.finish()


def decode_nav_sat_fix(data: Buffer) -> NavSatFix:
    """A ``sensor_msgs/msg/NavSatFix`` from CDR."""
    reader = CdrReader(data, "sensor_msgs/msg/NavSatFix")
    header, (status, service, latitude, longitude, altitude, *covariance, kind) = (
        take_header(reader),
        reader.take("bH3d9dB"),
    )
    reader.finish()
    return NavSatFix(
        header, status, service, latitude, longitude, altitude, tuple(covariance), kind
    )


def encode_transforms(transforms: tuple[TransformStamped, ...]) -> list[Buffer]:
    """A ``tf2_msgs/msg/TFMessage`` in CDR."""
    writer = CdrWriter()
    writer.put("I", len(transforms))
    for each in transforms:
        put_header(writer, each.header)
        writer.string(each.child_frame_id)
        writer.put("3d4d", *each.translation, *each.rotation)
    return writer.finish()


def decode_transforms(data: Buffer) -> tuple[TransformStamped, ...]:
    """A ``tf2_msgs/msg/TFMessage`` from CDR."""
    reader = CdrReader(data, "tf2_msgs/msg/TFMessage")
    transforms = []
    for _ in range(reader.count(72)):
        header, child, v = take_header(reader), reader.string(), reader.take("7d")
        transforms.append(TransformStamped(header, child, v[:3], v[3:]))
    reader.finish()
    return tuple(transforms)


def encode_log(log: Log) -> list[Buffer]:
    """A ``rcl_interfaces/msg/Log`` in CDR."""
    writer = CdrWriter()
    put_stamp(writer, log.stamp_ns)
    writer.put("B", log.level)
    for text in (log.name, log.msg, log.file, log.function):
        writer.string(text)
    writer.put("I", log.line)
    return writer.finish()


def decode_log(data: Buffer) -> Log:
    """A ``rcl_interfaces/msg/Log`` from CDR."""
    reader = CdrReader(data, "rcl_interfaces/msg/Log")
    stamp_ns, (level,) = take_stamp(reader), reader.take("B")
    name, msg, file, function = (reader.string() for _ in range(4))
    (line,) = reader.take("I")
    reader.finish()
    return Log(stamp_ns, level, name, msg, file, function, line)


def encode_string(text: str) -> list[Buffer]:
    """A ``std_msgs/msg/String`` in CDR."""
    writer = CdrWriter()
    writer.string(text)
    return writer.finish()


def decode_string(data: Buffer) -> str:
    """A ``std_msgs/msg/String`` from CDR."""
    reader = CdrReader(data, "std_msgs/msg/String")
    text = reader.string()
    reader.finish()
    return text


def encode_int16_array(array: Int16MultiArray) -> list[Buffer]:
    """A ``std_msgs/msg/Int16MultiArray`` in CDR."""
    writer = CdrWriter()
    writer.put("I", len(array.dim))
    for each in array.dim:
        writer.string(each.label)
        writer.put("II", each.size, each.stride)
    writer.put("I", array.data_offset)
    writer.blob(array.data, alignment=2)
    return writer.finish()


def decode_int16_array(data: Buffer) -> Int16MultiArray:
    """A ``std_msgs/msg/Int16MultiArray`` from CDR."""
    reader = CdrReader(data, "std_msgs/msg/Int16MultiArray")
    dim = tuple(Dimension(reader.string(), *reader.take("II")) for _ in range(reader.count(12)))
    (offset,) = reader.take("I")
    array = Int16MultiArray(dim, reader.blob(alignment=2), offset)
    reader.finish()
    return array


def encode_packet(packet: Buffer) -> list[Buffer]:
    """A ``PacketMsg`` of Ouster's driver in CDR: one UDP packet of the sensor."""
    writer = CdrWriter()
    writer.blob(packet)
    return writer.finish()


def decode_packet(data: Buffer) -> memoryview:
    """A ``PacketMsg`` of Ouster's driver from CDR: one UDP packet of the sensor."""
    reader = CdrReader(data, "ouster_sensor_msgs/msg/PacketMsg")
    packet = reader.blob()
    reader.finish()
    return packet
