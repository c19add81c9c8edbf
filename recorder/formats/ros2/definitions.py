"""Message definitions of ROS 2 as MCAP stores them (encoding ``ros2msg``).

Fields, constants and defaults are those of ros2/common_interfaces (geometry_msgs, nav_msgs,
sensor_msgs, std_msgs, visualization_msgs), ros2/rcl_interfaces, ros2/geometry2,
ouster-lidar/ouster-ros, tier4/nebula (pandar_msgs, nebula_msgs, robosense_msgs),
ros-drivers/velodyne, RoboSense-LiDAR/rslidar_msg and foxglove/foxglove-sdk as of ROS 2 Humble to
Jazzy, without their comments.  The layout of the text is that of rosbag2
(``local_message_definition_source.cpp``): the definition, then each definition that it needs once,
depth first, after a line of 80 ``=`` and a line ``MSG: package/Name``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

ENCODING: Final = "ros2msg"
CAMERA_INFO: Final = "sensor_msgs/msg/CameraInfo"
CAN_FRAME: Final = "can_msgs/msg/Frame"
CLOCK: Final = "rosgraph_msgs/msg/Clock"
COMPRESSED_IMAGE: Final = "sensor_msgs/msg/CompressedImage"
COMPRESSED_VIDEO: Final = "foxglove_msgs/msg/CompressedVideo"
FD_FRAME: Final = "ros2_socketcan_msgs/msg/FdFrame"
IMAGE: Final = "sensor_msgs/msg/Image"
IMU: Final = "sensor_msgs/msg/Imu"
INT16_ARRAY: Final = "std_msgs/msg/Int16MultiArray"
LOG: Final = "rcl_interfaces/msg/Log"
MARKERS: Final = "visualization_msgs/msg/MarkerArray"
NAV_SAT_FIX: Final = "sensor_msgs/msg/NavSatFix"
NEBULA_PACKETS: Final = "nebula_msgs/msg/NebulaPackets"
ODOMETRY: Final = "nav_msgs/msg/Odometry"
PANDAR_SCAN: Final = "pandar_msgs/msg/PandarScan"
POINT_CLOUD: Final = "sensor_msgs/msg/PointCloud2"
POSE: Final = "geometry_msgs/msg/PoseStamped"
POSE_WITH_COVARIANCE: Final = "geometry_msgs/msg/PoseWithCovarianceStamped"
ROBOSENSE_INFO: Final = "robosense_msgs/msg/RobosenseInfoPacket"
ROBOSENSE_SCAN: Final = "robosense_msgs/msg/RobosenseScan"
RSLIDAR_OLD_PACKET: Final = "rslidar_msgs/msg/RslidarPacket"
RSLIDAR_OLD_SCAN: Final = "rslidar_msgs/msg/RslidarScan"
RSLIDAR_PACKET: Final = "rslidar_msg/msg/RslidarPacket"
STRING: Final = "std_msgs/msg/String"
TRANSFORMS: Final = "tf2_msgs/msg/TFMessage"
UDP_PACKET: Final = "udp_msgs/msg/UdpPacket"
VELODYNE_SCAN: Final = "velodyne_msgs/msg/VelodyneScan"
_RULE: Final = "=" * 80
_FIELD: Final = re.compile(r"^([\w/]+)(?:\[(\d*)(?:<=\d+)?(\]))? \w+(?![\w=])", re.MULTILINE)

_TEXTS: Final = {
    "builtin_interfaces/Time": "int32 sec\nuint32 nanosec",
    "builtin_interfaces/Duration": "int32 sec\nuint32 nanosec",
    "rosgraph_msgs/Clock": "builtin_interfaces/Time clock",
    "std_msgs/Header": "builtin_interfaces/Time stamp\nstring frame_id",
    "std_msgs/String": "string data",
    "std_msgs/ColorRGBA": "float32 r\nfloat32 g\nfloat32 b\nfloat32 a",
    "std_msgs/MultiArrayDimension": "string label\nuint32 size\nuint32 stride",
    "std_msgs/MultiArrayLayout": "MultiArrayDimension[] dim\nuint32 data_offset",
    "std_msgs/Int16MultiArray": "MultiArrayLayout layout\nint16[] data",
    "geometry_msgs/Point": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/Vector3": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/Quaternion": "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1",
    "geometry_msgs/Pose": "Point position\nQuaternion orientation",
    "geometry_msgs/Transform": "Vector3 translation\nQuaternion rotation",
    "geometry_msgs/TransformStamped": """\
std_msgs/Header header
string child_frame_id
Transform transform""",
    "geometry_msgs/PoseStamped": "std_msgs/Header header\nPose pose",
    "geometry_msgs/PoseWithCovariance": "Pose pose\nfloat64[36] covariance",
    "geometry_msgs/PoseWithCovarianceStamped": "std_msgs/Header header\nPoseWithCovariance pose",
    "geometry_msgs/Twist": "Vector3 linear\nVector3 angular",
    "geometry_msgs/TwistWithCovariance": "Twist twist\nfloat64[36] covariance",
    "nav_msgs/Odometry": """\
std_msgs/Header header
string child_frame_id
geometry_msgs/PoseWithCovariance pose
geometry_msgs/TwistWithCovariance twist""",
    "tf2_msgs/TFMessage": "geometry_msgs/TransformStamped[] transforms",
    "sensor_msgs/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data",
    "foxglove_msgs/CompressedVideo": """\
builtin_interfaces/Time timestamp
string frame_id
uint8[] data
string format""",
    "sensor_msgs/Image": """\
std_msgs/Header header
uint32 height
uint32 width
string encoding
uint8 is_bigendian
uint32 step
uint8[] data""",
    "sensor_msgs/RegionOfInterest": """\
uint32 x_offset
uint32 y_offset
uint32 height
uint32 width
bool do_rectify""",
    "sensor_msgs/CameraInfo": """\
std_msgs/Header header
uint32 height
uint32 width
string distortion_model
float64[] d
float64[9] k
float64[9] r
float64[12] p
uint32 binning_x
uint32 binning_y
RegionOfInterest roi""",
    "sensor_msgs/PointField": """\
uint8 INT8=1
uint8 UINT8=2
uint8 INT16=3
uint8 UINT16=4
uint8 INT32=5
uint8 UINT32=6
uint8 FLOAT32=7
uint8 FLOAT64=8
string name
uint32 offset
uint8 datatype
uint32 count""",
    "sensor_msgs/PointCloud2": """\
std_msgs/Header header
uint32 height
uint32 width
PointField[] fields
bool is_bigendian
uint32 point_step
uint32 row_step
uint8[] data
bool is_dense""",
    "sensor_msgs/Imu": """\
std_msgs/Header header
geometry_msgs/Quaternion orientation
float64[9] orientation_covariance
geometry_msgs/Vector3 angular_velocity
float64[9] angular_velocity_covariance
geometry_msgs/Vector3 linear_acceleration
float64[9] linear_acceleration_covariance""",
    "sensor_msgs/NavSatStatus": """\
int8 STATUS_UNKNOWN=-2
int8 STATUS_NO_FIX=-1
int8 STATUS_FIX=0
int8 STATUS_SBAS_FIX=1
int8 STATUS_GBAS_FIX=2
int8 status -2
uint16 SERVICE_UNKNOWN=0
uint16 SERVICE_GPS=1
uint16 SERVICE_GLONASS=2
uint16 SERVICE_COMPASS=4
uint16 SERVICE_GALILEO=8
uint16 service""",
    "sensor_msgs/NavSatFix": """\
std_msgs/Header header
NavSatStatus status
float64 latitude
float64 longitude
float64 altitude
float64[9] position_covariance
uint8 COVARIANCE_TYPE_UNKNOWN=0
uint8 COVARIANCE_TYPE_APPROXIMATED=1
uint8 COVARIANCE_TYPE_DIAGONAL_KNOWN=2
uint8 COVARIANCE_TYPE_KNOWN=3
uint8 position_covariance_type""",
    "rcl_interfaces/Log": """\
uint8 DEBUG=10
uint8 INFO=20
uint8 WARN=30
uint8 ERROR=40
uint8 FATAL=50
builtin_interfaces/Time stamp
uint8 level
string name
string msg
string file
string function
uint32 line""",
    "visualization_msgs/UVCoordinate": "float32 u\nfloat32 v",
    "visualization_msgs/MeshFile": "string filename\nuint8[] data",
    "visualization_msgs/Marker": """\
int32 ARROW=0
int32 CUBE=1
int32 SPHERE=2
int32 CYLINDER=3
int32 LINE_STRIP=4
int32 LINE_LIST=5
int32 CUBE_LIST=6
int32 SPHERE_LIST=7
int32 POINTS=8
int32 TEXT_VIEW_FACING=9
int32 MESH_RESOURCE=10
int32 TRIANGLE_LIST=11
int32 ADD=0
int32 MODIFY=0
int32 DELETE=2
int32 DELETEALL=3
std_msgs/Header header
string ns
int32 id
int32 type
int32 action
geometry_msgs/Pose pose
geometry_msgs/Vector3 scale
std_msgs/ColorRGBA color
builtin_interfaces/Duration lifetime
bool frame_locked
geometry_msgs/Point[] points
std_msgs/ColorRGBA[] colors
string texture_resource
sensor_msgs/CompressedImage texture
UVCoordinate[] uv_coordinates
string text
string mesh_resource
MeshFile mesh_file
bool mesh_use_embedded_materials""",
    "visualization_msgs/MarkerArray": "Marker[] markers",
    "udp_msgs/UdpPacket": """\
std_msgs/Header header
string address
uint16 src_port
uint8[] data""",
    "can_msgs/Frame": """\
std_msgs/Header header
uint32 id
bool is_rtr
bool is_extended
bool is_error
uint8 dlc
uint8[8] data""",
    "ros2_socketcan_msgs/FdFrame": """\
std_msgs/Header header
uint32 id
bool is_extended
bool is_error
uint8 len
uint8[<=64] data""",
    "pandar_msgs/PandarPacket": """\
builtin_interfaces/Time stamp
uint8[1500] data
uint32 size""",
    "pandar_msgs/PandarScan": "std_msgs/Header header\nPandarPacket[] packets",
    "velodyne_msgs/VelodynePacket": "builtin_interfaces/Time stamp\nuint8[1206] data",
    "velodyne_msgs/VelodyneScan": "std_msgs/Header header\nVelodynePacket[] packets",
    "nebula_msgs/NebulaPacket": "builtin_interfaces/Time stamp\nuint8[] data",
    "nebula_msgs/NebulaPackets": "std_msgs/Header header\nNebulaPacket[] packets",
    "robosense_msgs/RobosensePacket": "builtin_interfaces/Time stamp\nuint8[1248] data",
    "robosense_msgs/RobosenseScan": "std_msgs/Header header\nRobosensePacket[] packets",
    "robosense_msgs/RobosenseInfoPacket": "string lidar_model\nRobosensePacket packet",
    "rslidar_msgs/RslidarPacket": "builtin_interfaces/Time stamp\nuint8[1248] data",
    "rslidar_msgs/RslidarScan": "std_msgs/Header header\nRslidarPacket[] packets",
    "rslidar_msg/RslidarPacket": """\
std_msgs/Header header
uint8 is_difop
uint8 is_frame_begin
uint8[] data""",
    "ouster_sensor_msgs/PacketMsg": "uint8[] buf",
    "ouster_ros/PacketMsg": "uint8[] buf",
}

TYPES: Final = frozenset(f"{name.replace('/', '/msg/')}" for name in _TEXTS)
"""Types that have a definition, such as ``sensor_msgs/msg/Imu``."""


def definition(type_name: str) -> bytes:
    """Return the concatenated definition of a type, UTF-8.

    Args:
        type_name: type such as ``sensor_msgs/msg/Imu``.

    Raises:
        KeyError: the type has no definition here.
    """
    name = type_name.replace("/msg/", "/")
    texts = [_TEXTS[name] + "\n"]
    texts += [f"{_RULE}\nMSG: {each}\n{_TEXTS[each]}\n" for each in _needed(name, {name: None})]
    return "\n".join(texts).encode()


def parse_fields(name: str) -> Iterator[tuple[str, bool, int]]:
    """Yield the fields of a type such as ``sensor_msgs/Imu``, in order.

    Yields:
        Type, whether it is a sequence, and the length of an array, else 0.
    """
    for kind, length, is_list in _FIELD.findall(_TEXTS[name]):
        nested = f"{name.split('/')[0]}/{kind}"
        full = nested if nested in _TEXTS else kind
        yield full, bool(is_list) and not length, int(length or 0)


def _needed(name: str, seen: dict[str, None]) -> list[str]:
    """List the types that a type needs and that are not in `seen`, depth first, by name."""
    found = []
    for kind in sorted({kind for kind, _, _ in parse_fields(name)} & _TEXTS.keys()):
        if kind not in seen:
            seen[kind] = None
            found += [kind, *_needed(kind, seen)]
    return found
