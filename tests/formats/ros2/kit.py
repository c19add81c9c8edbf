"""Messages of rosbags, made by its own field definitions, and as ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from recorder.formats.ros2 import markers, messages
from recorder.formats.ros2.definitions import definition

STORE = get_typestore(Stores.ROS2_HUMBLE)
for _name in ("ouster_sensor_msgs/msg/PacketMsg", "ouster_ros/msg/PacketMsg"):
    STORE.register(get_types_from_msg(definition(_name).decode(), _name))

Codec = tuple[Callable[[Any], list[Any]], Callable[[Any], Any]]
CODECS: Mapping[str, Codec] = {
    "sensor_msgs/msg/CompressedImage": (
        messages.encode_compressed_image,
        messages.decode_compressed_image,
    ),
    "sensor_msgs/msg/Image": (messages.encode_image, messages.decode_image),
    "sensor_msgs/msg/CameraInfo": (messages.encode_camera_info, messages.decode_camera_info),
    "sensor_msgs/msg/PointCloud2": (messages.encode_point_cloud, messages.decode_point_cloud),
    "sensor_msgs/msg/Imu": (messages.encode_imu, messages.decode_imu),
    "sensor_msgs/msg/NavSatFix": (messages.encode_nav_sat_fix, messages.decode_nav_sat_fix),
    "tf2_msgs/msg/TFMessage": (messages.encode_transforms, messages.decode_transforms),
    "rcl_interfaces/msg/Log": (messages.encode_log, messages.decode_log),
    "std_msgs/msg/String": (messages.encode_string, messages.decode_string),
    "std_msgs/msg/Int16MultiArray": (messages.encode_int16_array, messages.decode_int16_array),
    "visualization_msgs/msg/MarkerArray": (markers.encode_markers, markers.decode_markers),
    "ouster_sensor_msgs/msg/PacketMsg": (messages.encode_packet, messages.decode_packet),
    "ouster_ros/msg/PacketMsg": (messages.encode_packet, messages.decode_packet),
}

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
        case "Pose" | "Transform" | "MeshFile" | "NavSatStatus" | "MultiArrayLayout":
            return values if name != "MeshFile" else tuple(values.values())
        case "MultiArrayDimension":
            return messages.Dimension(**values)
    for nested in ("pose", "transform", "status", "layout"):
        if isinstance(values.get(nested), dict):
            values |= values.pop(nested)
    for old, new in (("stamp", "stamp_ns"), ("lifetime", "lifetime_ns")):
        if old in values:
            values[new] = values.pop(old)
    return getattr(markers if name == "Marker" else messages, name)(**values)


def encoded(name: str, message: Any) -> bytes:
    """One of our messages in CDR."""
    return b"".join(CODECS[name][0](message))
