"""CRC-32/MPEG-2 of many packets at a time.

::

    sound = find_sound(packets, 12, 1040)        # of bytes 12 to 1039, stored behind them

Source: Hesai, "QT128C2X User Manual", section "Point Cloud Data Packet": the CRC of the body is
CRC-32/MPEG-2.  It is zlib's CRC of the bytes with their bits reversed, itself with reversed bits.
"""

from __future__ import annotations

import functools
import math
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

CRC_BYTES: Final = 4
_REVERSED: Final = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], 1)[:, ::-1])
_TABLE: Final = _REVERSED.tobytes()
_FEW: Final = 9
"""Packets that are checked one by one."""

Packets = npt.NDArray[np.uint8]


def compute(values: Packets) -> npt.NDArray[np.uint32]:
    """Return the CRC of each row, u4 [rows], of u1 [rows, bytes]."""
    found = np.array([zlib.crc32(row.tobytes().translate(_TABLE)) for row in values], "<u4")
    turned = _REVERSED[(~found).view(np.uint8)].reshape(-1, CRC_BYTES)
    return np.ascontiguousarray(turned[:, ::-1]).view("<u4")[:, 0]


def find_sound(packets: Packets, begin: int, end: int) -> npt.NDArray[Any]:
    """Return whether the CRC fits, bool [packets].

    Of sums (exclusive or) of an odd number of packets the CRC is the sum of the packets' CRCs.  So
    the sums of the rows and columns of a grid of packets are checked, and each packet only where
    one of the sums does not fit.

    Args:
        packets: u1 [packets, bytes].
        begin: of the bytes that the CRC is of.
        end: of these bytes; the CRC lies there, little-endian.
    """
    size, count = packets.shape[1], len(packets)
    if count > _FEW:
        across, down = _shape_grid(count)
        grid = packets[: across * down].reshape(down, across, size)[..., begin : end + CRC_BYTES]
        rest = packets[across * down :, begin : end + CRC_BYTES]
        sums = [np.bitwise_xor.reduce(grid, axis) for axis in (0, 1)]
        if _fits(np.concatenate([*sums, rest])).all():
            return np.ones(count, np.bool_)
    return _fits(packets[:, begin : end + CRC_BYTES])


@functools.cache
def _shape_grid(count: int) -> tuple[int, int]:
    """Return the odd width and height of the grid that leaves the fewest sums and packets."""
    shapes = [
        (across, (count // across - 1) | 1) for across in range(3, 2 * math.isqrt(count) + 1, 2)
    ]
    return min(shapes, key=lambda each: sum(each) + count - each[0] * each[1])


def _fits(values: Packets) -> npt.NDArray[Any]:
    stored = np.ascontiguousarray(values[:, -CRC_BYTES:]).view("<u4")[:, 0]
    return np.asarray(compute(values[:, :-CRC_BYTES]) == stored)
