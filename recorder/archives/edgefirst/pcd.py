"""PCD files: point clouds with named fields (Point Cloud Library, "The PCD file format", 0.7).

::

    data = encode_pcd(points, viewpoint=T_sensor_rig)     # points: structured array [n]
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives import ArchiveError
from recorder.archives.edgefirst.direct import joined
from recorder.processing.geometry import Floats, quaternion_of_rotation

_TYPES = {"f": "F", "i": "I", "u": "U"}

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


def encode_pcd(points: npt.NDArray[Any], viewpoint: Floats | None = None) -> memoryview:
    """Encode a binary, unorganized PCD, in an `aligned_buffer`.

    Args:
        points: structured array [n] of scalar fields, little endian, packed.
        viewpoint: f8 [4, 4], maps points to the vehicle's frame; None: the identity.

    Raises:
        ArchiveError: PCD has no type for a field.
    """
    assert points.dtype.names is not None
    kinds = [points.dtype[name] for name in points.dtype.names]
    for name, kind in zip(points.dtype.names, kinds, strict=True):
        if kind.kind not in _TYPES or kind.shape:
            raise ArchiveError(f"PCD: field {name} has type {kind}")
    pose = np.eye(4) if viewpoint is None else viewpoint
    header = "\n".join(
        [
            "# .PCD v0.7 - Point Cloud Data file format",
            "VERSION 0.7",
            f"FIELDS {' '.join(points.dtype.names)}",
            f"SIZE {' '.join(str(kind.itemsize) for kind in kinds)}",
            f"TYPE {' '.join(_TYPES[kind.kind] for kind in kinds)}",
            f"COUNT {' '.join('1' for _ in kinds)}",
            f"WIDTH {len(points)}",
            "HEIGHT 1",
            f"VIEWPOINT {_place(np.asarray(pose, np.float64).tobytes())}",
            f"POINTS {len(points)}",
            "DATA binary\n",
        ]
    )
    return joined(header.encode(), np.ascontiguousarray(points).view(np.uint8).data)


@functools.lru_cache(maxsize=16)
def _place(pose: bytes) -> str:
    """A viewpoint (f8 [4, 4]) as text; cached, because a sensor's files share one viewpoint."""
    matrix = np.frombuffer(pose, np.float64).reshape(4, 4)
    x, y, z, w = quaternion_of_rotation(matrix[:3, :3]).tolist()
    return " ".join(f"{value:.9g}" for value in (*matrix[:3, 3].tolist(), w, x, y, z))
