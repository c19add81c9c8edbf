"""Classes of the ROS 2 messages that `recorder.formats.ros2.codec` encodes and decodes.

A message is a frozen dataclass with the fields of its definition, in their order. The codec's
module describes their values. Stamps are int64 nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.formats.ros2.definitions import FD_FRAME

Floats = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """``std_msgs/msg/Header``: time and frame of the data.

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
class CompressedVideo:
    """``foxglove_msgs/msg/CompressedVideo``: a picture; `format` is ``h264`` or ``h265``."""

    timestamp: int
    frame_id: str
    data: Buffer
    format: str

    @property
    def header(self) -> Header:
        """Time and frame, as other pictures have them."""
        return Header(self.timestamp, self.frame_id)


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
            has no orientation. The other covariances have the same rules.
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
class PoseStamped:
    """``geometry_msgs/msg/PoseStamped``: a pose in `header.frame_id`.

    Attributes:
        position: x, y, z in m.
        orientation: quaternion x, y, z, w.
    """

    header: Header
    position: Floats
    orientation: Floats


@dataclass(frozen=True, slots=True)
class PoseWithCovarianceStamped(PoseStamped):
    """``geometry_msgs/msg/PoseWithCovarianceStamped``; `covariance` [36] of x, y, z and turns."""

    covariance: Floats


@dataclass(frozen=True, slots=True)
class Odometry:
    """``nav_msgs/msg/Odometry``: the pose of `child_frame_id` in `header.frame_id`.

    Attributes:
        position: x, y, z in m.
        orientation: quaternion x, y, z, w.
        covariance: of the pose [36].
        linear, angular: velocity in the child's frame, m/s and rad/s [3].
        twist_covariance: of the velocity [36].
    """

    header: Header
    child_frame_id: str
    position: Floats
    orientation: Floats
    covariance: Floats
    linear: Floats
    angular: Floats
    twist_covariance: Floats


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
    data_offset: int
    data: Buffer = field(repr=False)


CUBE: Final = 1
ADD: Final = 0
DELETE_ALL: Final = 3


@dataclass(frozen=True, slots=True)
class Marker:
    """``visualization_msgs/msg/Marker``: a shape that viewers of ROS 2 draw.

    Attributes:
        type: `CUBE` and others of the definition.
        action: `ADD` or `DELETE_ALL`.
        position: x, y, z in m.
        orientation: quaternion x, y, z, w.
        scale: size in m.
        color: red, green, blue, alpha, 0 to 1.
        lifetime_ns: 0: until it is deleted.
        points: each x, y, z in m.
        colors: each red, green, blue, alpha.
        uv_coordinates: each u, v.
        mesh_filename: of the mesh in `mesh_data`.
    """

    header: Header
    ns: str = ""
    id: int = 0
    type: int = 0
    action: int = ADD
    position: Floats = (0.0, 0.0, 0.0)
    orientation: Floats = (0.0, 0.0, 0.0, 1.0)
    scale: Floats = (0.0, 0.0, 0.0)
    color: Floats = (0.0, 0.0, 0.0, 0.0)
    lifetime_ns: int = 0
    frame_locked: bool = False
    points: tuple[Floats, ...] = ()
    colors: tuple[Floats, ...] = ()
    texture_resource: str = ""
    texture: CompressedImage = CompressedImage(Header(0, ""), "", b"")
    uv_coordinates: tuple[Floats, ...] = ()
    text: str = ""
    mesh_resource: str = ""
    mesh_filename: str = ""
    mesh_data: Buffer = b""
    mesh_use_embedded_materials: bool = False


@dataclass(frozen=True, slots=True)
class CanFrame:
    """``can_msgs/msg/Frame``: a classic CAN frame; `data` are 8 bytes, of which `dlc` count."""

    header: Header
    id: int
    is_rtr: bool
    is_extended: bool
    is_error: bool
    dlc: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FdFrame:
    """``ros2_socketcan_msgs/msg/FdFrame``: a frame of CAN FD; `length` bytes of `data` count.

    Raises:
        FormatError: `data` has fewer bytes than `length`, or more than 64.
    """

    header: Header
    id: int
    is_extended: bool
    is_error: bool
    length: int
    data: Buffer

    def __post_init__(self) -> None:
        if not self.length <= len(self.data) <= 64:
            raise FormatError(f"{FD_FRAME}: length {self.length} with {len(self.data)} bytes")


@dataclass(frozen=True, slots=True)
class UdpPacket:
    """``udp_msgs/msg/UdpPacket``: a datagram; `address` and `src_port` are its sender's."""

    header: Header
    address: str
    src_port: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class StampedPacket:
    """A packet of a lidar, and when it arrived (``VelodynePacket``, ``NebulaPacket``)."""

    stamp_ns: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class PandarPacket:
    """``pandar_msgs/msg/PandarPacket``: `data` are 1500 bytes, of which `size` are the packet."""

    stamp_ns: int
    data: Buffer
    size: int


@dataclass(frozen=True, slots=True)
class PacketScan:
    """Packets of a lidar, in the order of their arrival."""

    header: Header
    packets: Sequence[StampedPacket | PandarPacket]


@dataclass(frozen=True, slots=True)
class RobosenseInfo:
    """``robosense_msgs/msg/RobosenseInfoPacket``: what a lidar of RoboSense tells of itself."""

    lidar_model: str
    packet: StampedPacket


@dataclass(frozen=True, slots=True)
class RslidarPacket:
    """``rslidar_msg/msg/RslidarPacket``: one packet, with ranges or of the device."""

    header: Header
    is_difop: int
    is_frame_begin: int
    data: Buffer


CLASSES: Final[Mapping[str, Any]] = {
    "std_msgs/Header": Header,
    "std_msgs/MultiArrayDimension": Dimension,
    "std_msgs/Int16MultiArray": Int16MultiArray,
    "geometry_msgs/TransformStamped": TransformStamped,
    "geometry_msgs/PoseStamped": PoseStamped,
    "geometry_msgs/PoseWithCovarianceStamped": PoseWithCovarianceStamped,
    "nav_msgs/Odometry": Odometry,
    "sensor_msgs/CompressedImage": CompressedImage,
    "foxglove_msgs/CompressedVideo": CompressedVideo,
    "sensor_msgs/Image": Image,
    "sensor_msgs/RegionOfInterest": RegionOfInterest,
    "sensor_msgs/CameraInfo": CameraInfo,
    "sensor_msgs/PointField": PointField,
    "sensor_msgs/PointCloud2": PointCloud2,
    "sensor_msgs/Imu": Imu,
    "sensor_msgs/NavSatFix": NavSatFix,
    "rcl_interfaces/Log": Log,
    "visualization_msgs/Marker": Marker,
    "can_msgs/Frame": CanFrame,
    "ros2_socketcan_msgs/FdFrame": FdFrame,
    "udp_msgs/UdpPacket": UdpPacket,
    "pandar_msgs/PandarPacket": PandarPacket,
    "pandar_msgs/PandarScan": PacketScan,
    "velodyne_msgs/VelodynePacket": StampedPacket,
    "velodyne_msgs/VelodyneScan": PacketScan,
    "nebula_msgs/NebulaPacket": StampedPacket,
    "nebula_msgs/NebulaPackets": PacketScan,
    "robosense_msgs/RobosensePacket": StampedPacket,
    "robosense_msgs/RobosenseScan": PacketScan,
    "robosense_msgs/RobosenseInfoPacket": RobosenseInfo,
    "rslidar_msgs/RslidarPacket": StampedPacket,
    "rslidar_msgs/RslidarScan": PacketScan,
    "rslidar_msg/RslidarPacket": RslidarPacket,
}
"""Classes by their type."""
