"""Codec of PCD files: point clouds with named fields (Point Cloud Library, PCD format 0.7).

::

    data = encode_pcd(points)                    # points: structured array [n]
    points, viewpoint = decode_pcd(data, "a.pcd")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError

_TYPES = {"f": "F", "i": "I", "u": "U"}
_KINDS = {ours: kind for kind, ours in _TYPES.items()}
_KEYS = ("FIELDS", "SIZE", "TYPE", "POINTS", "DATA")
_LONGEST_HEADER = 1 << 16
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


def decode_pcd(data: bytes, where: str) -> tuple[npt.NDArray[Any], tuple[float, ...]]:
    """Decode a PCD, binary or ASCII.

    Args:
        data: the file.
        where: its name, for messages.

    Returns:
        points, structured [n], fields of several values with that shape; and the viewpoint: x, y,
        z and the quaternion w, x, y, z.

    Raises:
        FormatError: the file is damaged, or compressed.
    """
    lines: dict[str, list[str]] = {}
    at = 0
    while "DATA" not in lines:
        end = data.find(b"\n", at, _LONGEST_HEADER)
        if end < 0:
            raise FormatError(f"{where}: is no PCD: its header has no end")
        key, *values = data[at:end].decode("ascii", "replace").split() or ["#"]
        lines.setdefault(key.upper(), values)
        at = end + 1
    if missing := [key for key in _KEYS if not lines.get(key)]:
        raise FormatError(f"{where}: is no PCD: its header has no {missing[0]}")
    try:
        dtype, count = _parse_fields(lines), int(lines["POINTS"][0])
        place = tuple(map(float, lines.get("VIEWPOINT", ()))) or _AT_ORIGIN
        if count < 0 or len(place) != len(_AT_ORIGIN):
            raise ValueError
    except (ValueError, KeyError, TypeError, IndexError):
        raise FormatError(f"{where}: is no PCD: its header is damaged") from None
    match lines["DATA"][0].lower():
        case "binary":
            if len(data) - at < count * dtype.itemsize:
                raise FormatError(f"{where}: is cut: it has no {count} points")
            return np.frombuffer(data, dtype, count, at), place
        case "ascii":
            return _parse_text(data[at:], dtype, count, where), place
    raise FormatError(f"{where}: DATA {lines['DATA'][0]} is not read")


def _parse_fields(lines: Mapping[str, Sequence[str]]) -> np.dtype[Any]:
    counts = lines.get("COUNT") or ["1"] * len(lines["FIELDS"])
    fields = []
    for name, size, kind, count in zip(
        lines["FIELDS"], lines["SIZE"], lines["TYPE"], counts, strict=True
    ):
        shape = () if int(count) == 1 else (int(count),)
        fields.append((name, f"<{_KINDS[kind.upper()]}{int(size)}", shape))
    return np.dtype(fields)


def _parse_text(data: bytes, dtype: np.dtype[Any], count: int, where: str) -> npt.NDArray[Any]:
    rows = data.split()
    width = sum(int(np.prod(dtype[name].shape, dtype=int)) for name in dtype.names or ())
    if count * width != len(rows):
        raise FormatError(f"{where}: is cut, or no table of {count} points")
    points = np.empty(count, dtype)
    try:
        values = np.array(rows, np.float64).reshape(count, width)
    except ValueError:
        raise FormatError(f"{where}: has a value that is no number") from None
    start = 0
    for name in dtype.names or ():
        stop = start + int(np.prod(dtype[name].shape, dtype=int))
        points[name] = values[:, start:stop].reshape(count, *dtype[name].shape)
        start = stop
    return points
