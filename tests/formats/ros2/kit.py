"""Messages of rosbags, made by its own field definitions, and as ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import definition
from recorder.formats.ros2.messages import CLASSES

STORE = get_typestore(Stores.ROS2_HUMBLE)
_LIDARS = (
    *("pandar_msgs/msg/PandarScan", "velodyne_msgs/msg/VelodyneScan"),
    *("nebula_msgs/msg/NebulaPackets", "robosense_msgs/msg/RobosenseScan"),
    *("robosense_msgs/msg/RobosenseInfoPacket", "rslidar_msgs/msg/RslidarScan"),
    "rslidar_msg/msg/RslidarPacket",
)
for _name in (
    "can_msgs/msg/Frame",
    "udp_msgs/msg/UdpPacket",
    "ouster_sensor_msgs/msg/PacketMsg",
    "ouster_ros/msg/PacketMsg",
    *_LIDARS,
):
    STORE.register(get_types_from_msg(definition(_name).decode(), _name))

NAMES = (
    "sensor_msgs/msg/CompressedImage",
    "sensor_msgs/msg/Image",
    "sensor_msgs/msg/CameraInfo",
    "sensor_msgs/msg/PointCloud2",
    "sensor_msgs/msg/Imu",
    "sensor_msgs/msg/NavSatFix",
    "tf2_msgs/msg/TFMessage",
    "geometry_msgs/msg/PoseStamped",
    "geometry_msgs/msg/PoseWithCovarianceStamped",
    "nav_msgs/msg/Odometry",
    "rcl_interfaces/msg/Log",
    "std_msgs/msg/String",
    "std_msgs/msg/Int16MultiArray",
    "visualization_msgs/msg/MarkerArray",
    "can_msgs/msg/Frame",
    "udp_msgs/msg/UdpPacket",
    "ouster_sensor_msgs/msg/PacketMsg",
    "ouster_ros/msg/PacketMsg",
    *_LIDARS,
)
_LIMITS = {
    f"{'u' * unsigned}int{bits}": (
        0 if unsigned else -(1 << (bits - 1)),
        (1 << bits) - 1 if unsigned else (1 << (bits - 1)) - 1,
    )
    for bits in (8, 16, 32, 64)
    for unsigned in (0, 1)
}
_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)
_TUPLES = {"Vector3": "xyz", "Point": "xyz", "Quaternion": "xyzw", "ColorRGBA": "rgba",
           "UVCoordinate": "uv"}  # fmt: skip


def rosbags_messages(name: str) -> st.SearchStrategy[Any]:
    """Messages of a type, as rosbags has them, without NaN."""
    if name in ("builtin_interfaces/msg/Time", "builtin_interfaces/msg/Duration"):
        fields = [
            st.integers(-(1 << 31), (1 << 31) - 1),
            st.integers(0, 999_999_999),
        ]
    else:
        fields = [_values(desc) for _, desc in STORE.FIELDDEFS[name][1]]
    kind = STORE.types[name]
    return st.tuples(*fields).map(lambda values: kind(*values))


def _values(desc: Any) -> st.SearchStrategy[Any]:
    kind, content = desc
    if kind == Nodetype.NAME:
        return rosbags_messages(content)
    if kind == Nodetype.BASE:
        base = content[0]
        if base == "string":
            return _TEXTS
        if base == "bool":
            return st.booleans()
        if base.startswith("float"):
            return st.floats(width=int(base[5:]), allow_nan=False)  # type: ignore[arg-type]
        return st.integers(*_LIMITS[base])
    inner, count = content
    if inner[0] != Nodetype.BASE:
        return st.lists(_values(inner), max_size=3)
    if kind == Nodetype.ARRAY:  # each element another value, of one draw
        if inner[1][0] == "uint8":
            return st.binary(min_size=count, max_size=count).map(
                lambda values: np.frombuffer(values, "u1")
            )
        return _values(inner).map(lambda first: np.arange(count, dtype="f8") + first)
    return st.lists(_values(inner), max_size=5).map(lambda values: np.array(values, inner[1][0]))


def ours(message: Any) -> Any:
    """A message of rosbags as ours; also its parts."""
    if isinstance(message, list):
        return tuple(map(ours, message))
    if isinstance(message, np.ndarray):
        plain = message.dtype in (np.uint8, np.int16)
        return message.tobytes() if plain else tuple(message.tolist())
    if not hasattr(message, "__msgtype__"):
        return message
    name = message.__msgtype__.split("/")[-1]
    if name in ("Time", "Duration"):
        return message.sec * 1_000_000_000 + message.nanosec
    if name in _TUPLES:
        return tuple(getattr(message, axis) for axis in _TUPLES[name])
    fields = [field for field, _ in STORE.FIELDDEFS[message.__msgtype__][1]]
    values = {each: ours(getattr(message, each)) for each in fields}
    match name:
        case "String" | "PacketMsg" | "MarkerArray" | "TFMessage":
            return next(iter(values.values()))
        case "PoseWithCovariance":
            return values.pop("pose") | values
        case "TwistWithCovariance":
            return values["twist"] | {"twist_covariance": values["covariance"]}
        case "Pose" | "Transform" | "Twist" | "MeshFile" | "NavSatStatus" | "MultiArrayLayout":
            return values
    for nested in ("pose", "twist", "transform", "status", "layout", "mesh_file"):
        if isinstance(values.get(nested), dict):
            values |= values.pop(nested)
    for old, new in (("stamp", "stamp_ns"), ("lifetime", "lifetime_ns"),
                     ("filename", "mesh_filename")):  # fmt: skip
        if old in values:
            values[new] = values.pop(old)
    if name == "Marker":
        values["mesh_data"] = values.pop("data")
    return CLASSES[message.__msgtype__.replace("/msg/", "/")](**values)


def encoded(name: str, message: Any) -> bytes:
    """One of our messages in CDR."""
    return b"".join(encode_message(name, message))
