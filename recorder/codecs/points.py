"""Sweeps of any number of points, packed: the channel format ``points``.

A point is a record of *columns*, one after another, little-endian and without padding: of 22 bytes
for ``xyz`` f4 [3], ``intensity`` f4, ``ring`` u2, ``t_offset`` u4. A packed sweep is one frame of
Zstandard (RFC 8878) with its content's size and a checksum.  The content is the columns, one after
another, each byte-shuffled over the bytes of a row: first byte 0 of all points, then byte 1, and so
on.  It is therefore the transpose of the records, u1 [bytes of a point, points].

::

    columns = (Column("xyz", "f4", (3,), "m"), Column("ring", "u2"))
    points = np.zeros(1000, points_dtype(columns))
    points["xyz"] = ...
    frame = pack_points(points)
    unpack_points(frame, points_dtype(columns), "lidar: sample 7")["xyz"]   # f4 [1000, 3]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.shuffling import compress, decompress, read_content_size, transpose
from recorder.common.errors import FormatError, ProtocolError
from recorder.common.files import Buffer

MOST_POINTS: Final = 1 << 22
"""Most points of a sweep, 4.2 million: a lidar of 128 beams sends at most 1 million."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DTYPES: Final = frozenset({"u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"})

Planes = npt.NDArray[np.uint8]
"""Bytes of points by their place in a point, u1 [bytes of a point, points]."""


@dataclass(frozen=True, slots=True)
class Column:
    """Declaration of one column of the points.

    Attributes:
        name: name such as ``xyz``.
        type: little-endian numpy type in roverd's size notation, such as ``f4``.
        shape: shape of a point's value; ``()`` for a scalar.
        unit: unit of the values, such as ``m``; empty without a unit.
        desc: one line for users.

    Raises:
        ProtocolError: a value is not allowed.
    """

    name: str
    type: str
    shape: tuple[int, ...] = ()
    unit: str = ""
    desc: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ProtocolError(f"column {self.name!r}: not a name that a column may have")
        if self.type not in _DTYPES:
            raise ProtocolError(f"column {self.name!r}: type {self.type!r} is unknown")
        if any(not isinstance(n, int) or not 1 <= n <= 65535 for n in self.shape):
            raise ProtocolError(f"column {self.name!r}: shape {self.shape} needs whole sizes > 0")

    def to_meta(self) -> dict[str, Any]:
        """Convert the column to a plain mapping for msgpack and JSON."""
        values = {"name": self.name, "type": self.type, "shape": list(self.shape)}
        return values | {"unit": self.unit, "desc": self.desc}

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> Column:
        """Convert a mapping of `to_meta` to a column; ProtocolError if it is invalid."""
        try:
            return cls(**{**meta, "shape": tuple(meta["shape"])})
        except (TypeError, KeyError) as error:
            raise ProtocolError(f"not a column's declaration: {error}") from None


def points_dtype(columns: Sequence[Column]) -> np.dtype[Any]:
    """Return the dtype of a point: a field for each column, without padding.

    Raises:
        ProtocolError: two columns have the same name, or there is no column.
    """
    if len({column.name for column in columns}) != len(columns) or not columns:
        raise ProtocolError("the columns of points need different names, and at least one")
    return np.dtype([(c.name, "<" + c.type, c.shape) for c in columns])


def make_columns(metas: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return declared columns; ProtocolError if one is invalid."""
    return tuple(map(Column.from_meta, metas))


def pack_points(points: npt.NDArray[Any]) -> bytes:
    """Pack the points of a sweep: an array [points] of the dtype of `points_dtype`."""
    records = np.ascontiguousarray(points).view(np.uint8)
    return pack_planes([transpose(records.reshape(len(points), points.dtype.itemsize))])


def pack_planes(planes: Sequence[Planes]) -> bytes:
    """Pack the points of a sweep that are transposed already, in consecutive parts."""
    return compress(planes[0] if len(planes) == 1 else np.concatenate(planes))


def unpack_points(frame: Buffer, dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    """Return the points of a packed sweep: an array [points] of `dtype`, fresh and writable.

    Raises:
        FormatError: the frame is damaged, or its points are of another size; begins with `where`.
    """
    records = unpack_records(frame, dtype.itemsize, where)
    return records.reshape(-1).view(dtype)


def unpack_records(frame: Buffer, point_bytes: int, where: str) -> npt.NDArray[np.uint8]:
    """Return the points of a packed sweep as bytes, u1 [points, point_bytes]: `unpack_points`."""
    points = count_points(frame, point_bytes, where)
    return transpose(decompress(frame, where).reshape(point_bytes, points))


def count_points(frame: Buffer, point_bytes: int, where: str) -> int:
    """Return the number of points of a packed sweep by the frame's header.

    Raises:
        FormatError: the buffer is no frame, or its size is none of such points.
    """
    try:
        content = read_content_size(frame)
    except FormatError as error:
        raise FormatError(f"{where}: is no packed sweep: {error}") from None
    points, rest = divmod(content, point_bytes)
    if content < 0 or rest or points > MOST_POINTS:
        raise FormatError(f"{where}: {content} bytes are no points of {point_bytes} bytes each")
    return points
