"""Encoder of PCD files: point clouds with named fields (Point Cloud Library, PCD format 0.7).

::

    data = encode_pcd(points)                    # points: structured array [n]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError

_TYPES = {"f": "F", "i": "I", "u": "U"}
_AT_ORIGIN = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def encode_pcd(points: npt.NDArray[Any], comment: str = "") -> bytes:
    """Encode a binary, unorganized PCD.

    Args:
        points: structured array [n], as for `pcd_header`.
        comment: a line of ASCII for the header; empty: none.

    Raises:
        FormatError: PCD has no type for a field.
    """
    header = pcd_header(points.dtype, len(points))
    if comment:
        header = f"# {comment}\n".encode("ascii") + header
    return header + np.ascontiguousarray(points).tobytes()


def pcd_header(dtype: np.dtype[Any], count: int, viewpoint: Sequence[float] = _AT_ORIGIN) -> bytes:
    """Return the header of a binary, unorganized PCD; the points follow it, packed.

    Args:
        dtype: dtype of the points: scalar fields, little-endian, packed.
        count: number of points.
        viewpoint: x, y, z and the quaternion w, x, y, z of the sensor.

    Raises:
        FormatError: PCD has no type for a field.
    """
    assert dtype.names is not None
    kinds = [dtype[name] for name in dtype.names]
    for name, kind in zip(dtype.names, kinds, strict=True):
        if kind.kind not in _TYPES or kind.shape:
            raise FormatError(f"PCD: field {name} has type {kind}")
    lines = [
        "# .PCD v0.7 - Point Cloud Data file format",
        "VERSION 0.7",
        f"FIELDS {' '.join(dtype.names)}",
        f"SIZE {' '.join(str(kind.itemsize) for kind in kinds)}",
        f"TYPE {' '.join(_TYPES[kind.kind] for kind in kinds)}",
        f"COUNT {' '.join('1' for _ in kinds)}",
        f"WIDTH {count}",
        "HEIGHT 1",
        f"VIEWPOINT {' '.join(f'{value:.9g}' for value in viewpoint)}",
        f"POINTS {count}",
        "DATA binary\n",
    ]
    return "\n".join(lines).encode()
