"""Clouds as five drivers send them, with what each point is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.formats.ros2.codec import CdrWriter, encode_message
from recorder.formats.ros2.definitions import POINT_CLOUD
from recorder.formats.ros2.messages import Header, PointCloud2, PointField

STAMP_NS = 1_700_000_000_123_456_789
FRAME = "lidar_link"
DATATYPES = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 8}
LIVOX = "livox_ros_driver2/msg/CustomMsg"
LIVOX_DEFINITION = """\
std_msgs/Header header
uint64 timebase
uint32 point_num
uint8 lidar_id
uint8[3] rsvd
CustomPoint[] points
================================================================================
MSG: livox_ros_driver2/CustomPoint
uint32 offset_time
float32 x
float32 y
float32 z
uint8 reflectivity
uint8 tag
uint8 line
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""


@dataclass
class Sent:
    """A cloud.

    Attributes:
        data: the message in CDR.
        points: the fields as they were written, an array [points].
        t_ns: of each point, epoch ns; None: the cloud has none.
        type_name: of the message.
        height: rows.
    """

    data: bytes
    points: npt.NDArray[Any]
    t_ns: npt.NDArray[np.int64] | None
    type_name: str = POINT_CLOUD
    height: int = 1


def dtype(step: int, fields: Mapping[str, tuple[int, str]]) -> np.dtype[Any]:
    """A point by offsets and types."""
    return np.dtype(
        {
            "names": list(fields),
            "offsets": [offset for offset, _ in fields.values()],
            "formats": ["<" + kind for _, kind in fields.values()],
            "itemsize": step,
        }
    )


def fields_of(points: npt.NDArray[Any]) -> tuple[PointField, ...]:
    found = []
    for name in points.dtype.names or ():
        kind, offset = points.dtype.fields[name][:2]  # type: ignore[index]
        count = int(np.prod(kind.shape))
        found.append(PointField(name, offset, DATATYPES[kind.base.str[1:]], count))
    return tuple(found)


def encode_cloud(points: npt.NDArray[Any], stamp_ns: int = STAMP_NS, **more: Any) -> bytes:
    """A PointCloud2 of an array [points]; `more` replaces fields of the message."""
    height = more.pop("height", 1)
    step, width = points.dtype.itemsize, len(points) // height if height else 0
    values = {
        "header": Header(stamp_ns, FRAME), "height": height, "width": width,
        "fields": fields_of(points), "is_bigendian": False, "point_step": step,
        "row_step": width * step, "data": points.tobytes(), "is_dense": False,
    }  # fmt: skip
    return b"".join(encode_message(POINT_CLOUD, PointCloud2(**(values | more))))


def fill(points: npt.NDArray[Any], rng: np.random.Generator) -> None:
    """Positions, also NaN, intensity and rings."""
    for name in ("x", "y", "z"):
        points[name] = rng.normal(scale=30, size=len(points))
        points[name][::11] = np.nan
    points["intensity"] = rng.integers(0, 256, len(points))


def ouster(rng: np.random.Generator, columns: int = 64, stamp_ns: int = STAMP_NS) -> Sent:
    """Organised; ns since the stamp."""
    kinds = {"x": (0, "f4"), "y": (4, "f4"), "z": (8, "f4"), "intensity": (16, "f4"),
             "t": (20, "u4"), "reflectivity": (24, "u2"), "ring": (26, "u2"),
             "ambient": (28, "u2"), "range": (32, "u4")}  # fmt: skip
    beams = 16
    points = np.zeros(beams * columns, dtype(48, kinds))
    fill(points, rng)
    points["t"] = np.tile(np.arange(columns) * 97_656, beams)
    points["ring"] = np.repeat(np.arange(beams), columns)
    points["range"] = rng.integers(0, 1 << 20, len(points))
    data = encode_cloud(points, stamp_ns, height=beams)
    return Sent(data, points, stamp_ns + points["t"].astype(np.int64), height=beams)


def velodyne(rng: np.random.Generator, count: int = 900, stamp_ns: int = STAMP_NS) -> Sent:
    """Seconds before the stamp, which is the end of the sweep."""
    kinds = {"x": (0, "f4"), "y": (4, "f4"), "z": (8, "f4"), "intensity": (12, "f4"),
             "ring": (16, "u2"), "time": (18, "f4")}  # fmt: skip
    points = np.zeros(count, dtype(22, kinds))
    fill(points, rng)
    points["ring"] = np.arange(count) % 16
    points["time"] = np.linspace(-0.1, 0, count)
    t_ns = stamp_ns + np.rint(points["time"].astype(np.float64) * 1e9).astype(np.int64)
    return Sent(encode_cloud(points, stamp_ns), points, t_ns)


def hesai(rng: np.random.Generator, count: int = 800, stamp_ns: int = STAMP_NS) -> Sent:
    """Seconds since 1970."""
    kinds = {"x": (0, "f4"), "y": (4, "f4"), "z": (8, "f4"), "intensity": (16, "f4"),
             "timestamp": (24, "f8"), "ring": (32, "u2")}  # fmt: skip
    points = np.zeros(count, dtype(48, kinds))
    fill(points, rng)
    points["ring"] = np.arange(count) % 40
    t_ns = stamp_ns + np.arange(count, dtype=np.int64) * 120_000
    points["timestamp"] = t_ns / 1e9
    return Sent(encode_cloud(points, stamp_ns), points, t_ns)


def robosense(rng: np.random.Generator, count: int = 800, stamp_ns: int = STAMP_NS) -> Sent:
    """Seconds since 1970, odd offsets, organised by columns; the stamp is the last point's."""
    kinds = {"x": (0, "f4"), "y": (4, "f4"), "z": (8, "f4"), "intensity": (12, "u1"),
             "ring": (13, "u2"), "timestamp": (15, "f8")}  # fmt: skip
    points = np.zeros(count, dtype(23, kinds))
    fill(points, rng)
    points["ring"] = np.arange(count) % 32
    t_ns = stamp_ns - 100_000_000 + np.arange(1, count + 1, dtype=np.int64) * (100_000_000 // count)
    points["timestamp"] = t_ns / 1e9
    return Sent(encode_cloud(points, stamp_ns, height=4), points, t_ns, height=4)


def livox_cloud(rng: np.random.Generator, count: int = 700, stamp_ns: int = STAMP_NS) -> Sent:
    """Nanoseconds since 1970 as f8."""
    kinds = {"x": (0, "f4"), "y": (4, "f4"), "z": (8, "f4"), "intensity": (12, "f4"),
             "tag": (16, "u1"), "line": (17, "u1"), "timestamp": (18, "f8")}  # fmt: skip
    points = np.zeros(count, dtype(26, kinds))
    fill(points, rng)
    points["line"] = np.arange(count) % 4
    t_ns = stamp_ns + np.arange(count, dtype=np.int64) * 140_000
    points["timestamp"] = t_ns
    return Sent(encode_cloud(points, stamp_ns), points, t_ns)


def livox(
    rng: np.random.Generator, count: int = 700, stamp_ns: int = STAMP_NS, ahead_ns: int = 0
) -> Sent:
    """CustomMsg: nanoseconds since the time base."""
    kinds = {"offset_time": (0, "u4"), "x": (4, "f4"), "y": (8, "f4"), "z": (12, "f4"),
             "intensity": (16, "u1"), "tag": (17, "u1"), "line": (18, "u1")}  # fmt: skip
    points = np.zeros(count, dtype(20, kinds))
    fill(points, rng)
    points["offset_time"] = np.arange(count) * 140_000
    points["line"] = np.arange(count) % 4
    points["tag"] = 16
    writer = CdrWriter()
    writer.put("iI", *divmod(stamp_ns, 1_000_000_000))
    writer.string(FRAME)
    writer.put("QI4B", stamp_ns + ahead_ns, count, 1, 0, 0, 0)
    writer.put("I", count)
    data = b"".join(writer.finish()) + points.tobytes()[:-1]
    t_ns = stamp_ns + ahead_ns + points["offset_time"].astype(np.int64)
    return Sent(data, points, t_ns, LIVOX)


DRIVERS: Mapping[str, Callable[..., Sent]] = {
    "ouster": ouster, "velodyne": velodyne, "hesai": hesai, "robosense": robosense,
    "livox_cloud": livox_cloud, "livox": livox,
}  # fmt: skip
