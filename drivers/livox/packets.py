"""Decoder of Livox's packets of Mid-360 and HAP, vectorised over packets: points with their times.

Source: Livox-SDK2 (livox_lidar_def.h).  No recording was tried.  All integers are little-endian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError

HEADER: Final = np.dtype(
    [
        ("version", "u1"),
        ("length", "<u2"),
        ("interval", "<u2"),  # of the packet, 0.1 us
        ("points", "<u2"),
        ("number", "<u2"),
        ("frame", "u1"),
        ("data_type", "u1"),
        ("time_type", "u1"),
        ("reserved", "V12"),
        ("crc32", "<u4"),
        ("t_ns", "<u8"),
    ]
)
IMU, CARTESIAN, CARTESIAN_CM, SPHERICAL = 0, 1, 2, 3
POINT: Final = {
    IMU: np.dtype([("avel", "<f4", (3,)), ("acc", "<f4", (3,))]),
    CARTESIAN: np.dtype([("xyz", "<i4", (3,)), ("reflectivity", "u1"), ("tag", "u1")]),
    CARTESIAN_CM: np.dtype([("xyz", "<i2", (3,)), ("reflectivity", "u1"), ("tag", "u1")]),
    SPHERICAL: np.dtype(
        [
            ("depth", "<u4"),
            ("theta", "<u2"),
            ("phi", "<u2"),
            ("reflectivity", "u1"),
            ("tag", "u1"),
        ]
    ),
}
"""Layout of a point, or an IMU's sample, by the packet's data type.

``xyz`` is in mm, of `CARTESIAN_CM` in 10 mm; ``depth`` in mm, angles in 0.01 deg; ``avel`` is in
rad/s, ``acc`` in g.
"""
CLOCKS: Final = {0: "none", 1: "PTP", 2: "GPS"}


@dataclass(frozen=True, slots=True)
class Points:
    """Points of consecutive packets, with the device's integers.

    Attributes:
        values: structured, [points], as `POINT`.
        t_ns: i8 [points], by the device's clock.
        packet: i8 [points], index of each point's packet.
    """

    values: npt.NDArray[Any]
    t_ns: npt.NDArray[np.int64]
    packet: npt.NDArray[np.int64]


def read_header(packet: bytes) -> Any:
    """Return a packet's header, a row of `HEADER`.

    Raises:
        FormatError: it is no such packet.
    """
    if len(packet) < HEADER.itemsize:
        raise FormatError(f"a packet of {len(packet)} bytes is shorter than Livox's header")
    header = np.frombuffer(packet, HEADER, 1)[0]
    layout = POINT.get(int(header["data_type"]))
    if layout is None:
        raise FormatError(f"a packet of the unknown data type {header['data_type']}")
    size = HEADER.itemsize + int(header["points"]) * layout.itemsize
    if not header["points"] or len(packet) < size or int(header["length"]) != len(packet):
        raise FormatError(
            f"a packet of {len(packet)} bytes whose header tells of {header['length']} bytes and "
            f"{header['points']} points"
        )
    return header


def decode(packets: npt.NDArray[np.uint8]) -> Points:
    """Decode packets of one data type with the same number of points.

    Args:
        packets: u1 [packets, size], whose headers are right.
    """
    data = np.ascontiguousarray(packets)
    headers = data[:, : HEADER.itemsize].copy().view(HEADER)[:, 0]
    layout = POINT[int(headers["data_type"][0])]
    count = int(headers["points"][0])
    end = HEADER.itemsize + count * layout.itemsize
    values = data[:, HEADER.itemsize : end].copy().view(layout)
    steps = headers["interval"].astype(np.int64)[:, None] * 100 * np.arange(count) // count
    t_ns = headers["t_ns"].astype(np.int64)[:, None] + steps
    return Points(values.ravel(), t_ns.ravel(), np.repeat(np.arange(len(packets)), count))
