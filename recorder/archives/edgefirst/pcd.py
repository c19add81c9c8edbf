"""Points of lidars and radars as PCD files.

::

    data = encode_pcd(points, viewpoint=T_sensor_rig)     # points: structured array [n]
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.formats.pcd import pcd_header
from recorder.processing.geometry import Floats, quaternion_of_rotation

LIDAR = np.dtype([(name, "<f4") for name in ("x", "y", "z", "intensity")])
"""x, y, z in m; reflectivity as recorded, 0 to 255."""
RADAR = np.dtype(
    [
        (name, "<f4")
        for name in (
            "x", "y", "z", "speed", "power", "noise", "rcs",
            "speed_margin", "speed_method", "speed_period",
        )
    ]
)  # fmt: skip
"""x, y, z in m; radial speed in m/s, positive for a growing range; power, noise and rcs in dB;
the speed's margin in dB, method (`SpeedMethod`) and period in m/s."""


def encode_pcd(points: npt.NDArray[Any], viewpoint: Floats | None = None) -> bytes:
    """Encode a binary, unorganized PCD.

    Args:
        points: structured array [n] of scalar fields, little endian, packed.
        viewpoint: f8 [4, 4], maps points to the vehicle's frame; None: the identity.

    Raises:
        FormatError: PCD has no type for a field.
    """
    pose = np.eye(4) if viewpoint is None else viewpoint
    place = _place(np.asarray(pose, np.float64).tobytes())
    header = pcd_header(points.dtype, len(points), place)
    return b"".join([header, np.ascontiguousarray(points).view(np.uint8).data])


@functools.lru_cache(maxsize=16)
def _place(pose: bytes) -> tuple[float, ...]:
    """The viewpoint of a pose (f8 [4, 4]); cached, because a sensor's files share one viewpoint."""
    matrix = np.frombuffer(pose, np.float64).reshape(4, 4)
    x, y, z, w = quaternion_of_rotation(matrix[:3, :3]).tolist()
    return (*matrix[:3, 3].tolist(), w, x, y, z)
