"""Clouds of the rig load's sweeps, as drivers of lidars publish them: PointCloud2.

>>> clouds = make_clouds(frames, LAYOUTS["ouster"])
>>> stamp_cloud(clouds[0], t_ns)    # in place, without encoding it again
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.frames import BEAMS, COLUMNS, LIDAR_JSON, load_frames
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import POINT_CLOUD
from recorder.formats.ros2.messages import Header, PointCloud2, PointField

FRAME: Final = "os_sensor"
LAYOUTS: Final = {
    "packed": np.dtype(
        [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2"),
         ("t", "<u4")]
    ),
    "xyzirt": np.dtype(
        {
            "names": ["x", "y", "z", "intensity", "ring", "t"],
            "formats": ["<f4", "<f4", "<f4", "<f4", "<u2", "<u4"],
            "offsets": [0, 4, 8, 16, 20, 24],
            "itemsize": 32,
        }
    ),
    "ouster": np.dtype(
        {
            "names": [
                "x", "y", "z", "intensity", "t", "reflectivity", "ring", "ambient", "range",
            ],
            "formats": ["<f4", "<f4", "<f4", "<f4", "<u4", "<u2", "<u2", "<u2", "<u4"],
            "offsets": [0, 4, 8, 16, 20, 24, 26, 28, 32],
            "itemsize": 48,
        }
    ),
}  # fmt: skip
"""Layouts of a point: without padding, and the two of ouster_ros (``point_type`` ``original`` and
``xyzirt``), which PCL pads to 16 bytes."""
_DATATYPES: Final = {"<f4": 7, "<u2": 4, "<u4": 6}  # of PointField
_STAMP: Final = struct.Struct("<iI")
_STAMP_AT: Final = 4  # behind the encapsulation


def make_clouds(
    frames: Path, layout: np.dtype[Any], points: int = BEAMS * COLUMNS
) -> list[bytearray]:
    """Make the messages of all sweeps in a layout, in CDR; a point without a return is 0, 0, 0.

    Args:
        frames: the folder of `benchmarks.frames.make_frames`.
        layout: one of `LAYOUTS`.
        points: of a cloud; fewer than a sweep has are its first ones, in no order.
    """
    fields = load_frames(frames, "lidar")
    info = (frames / LIDAR_JSON).read_text()
    return [_make_cloud(fields, k, info, layout, points) for k in range(len(fields["RANGE"]))]


def _make_cloud(
    fields: dict[str, npt.NDArray[Any]], sweep: int, info: str, layout: np.dtype[Any], count: int
) -> bytearray:
    from ouster.sdk import core

    positions = core.XYZLut(core.SensorInfo(info))(fields["RANGE"][sweep])
    times = fields["t_col"][sweep].astype(np.int64)
    values = {axis: positions[:, :, at] for at, axis in enumerate("xyz")} | {
        "intensity": fields["REFLECTIVITY"][sweep],
        "reflectivity": fields["REFLECTIVITY"][sweep],
        "ambient": fields["NEAR_IR"][sweep],
        "range": fields["RANGE"][sweep],
        "ring": np.arange(BEAMS)[:, None],
        "t": np.maximum(times - times[times > 0].min(), 0),
    }
    names = layout.names or ()
    points = np.frombuffer(bytearray(BEAMS * COLUMNS * layout.itemsize), layout)
    points = points.reshape(BEAMS, COLUMNS)
    for name in names:
        points[name] = values[name]
    rows, columns = (BEAMS, COLUMNS) if count == points.size else (1, count)
    described = [
        PointField(name, layout.fields[name][1], _DATATYPES[layout[name].str])  # type: ignore[index]
        for name in names
    ]
    step = layout.itemsize
    data = points.data.cast("B")[: rows * columns * step]
    cloud = PointCloud2(
        Header(0, FRAME), rows, columns, tuple(described), False, step, step * columns, data, True
    )
    return bytearray(b"".join(encode_message(POINT_CLOUD, cloud)))


def stamp_cloud(cloud: bytearray, t_ns: int) -> None:
    """Set the stamp in a message's header."""
    _STAMP.pack_into(cloud, _STAMP_AT, *divmod(t_ns, 1_000_000_000))
