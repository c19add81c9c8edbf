"""Decoder of the packets of Livox Mid-360 and HAP, vectorised over packets, and its inverse.

Source: Livox-SDK2 (livox_lidar_def.h).  No recording was tried.  All integers are little-endian.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.cloud_stream import CloudDecoder
from drivers.kit.lidar.decoder import Packets
from drivers.kit.lidar.imu import GRAVITY_M_S2, ImuSample
from recorder.codecs.points import Column
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
CLOCKS: Final = {0: "the sensor's own", 1: "PTP", 2: "GPS"}
COLUMNS: Final = {
    CARTESIAN: (
        Column("xyz", "i4", (3,), "mm", "position in the lidar's frame"),
        Column("reflectivity", "u1"),
        Column("tag", "u1", desc="Livox's confidence in the point"),
    ),
    CARTESIAN_CM: (
        Column("xyz", "i2", (3,), "10 mm", "position in the lidar's frame"),
        Column("reflectivity", "u1"),
        Column("tag", "u1", desc="Livox's confidence in the point"),
    ),
    SPHERICAL: (
        Column("depth", "u4", unit="mm", desc="distance; 0: no return"),
        Column("theta", "u2", unit="0.01 deg", desc="angle from the z axis"),
        Column("phi", "u2", unit="0.01 deg", desc="angle from the x axis to the y axis"),
        Column("reflectivity", "u1"),
        Column("tag", "u1", desc="Livox's confidence in the point"),
    ),
}
"""Columns of the points by the packets' data type."""
POINTS: Final = 96
"""Points of a packet of Mid-360 and HAP."""
NUMBER_SPAN: Final = 1 << 16
"""Packets' numbers begin again there."""


def read_header(packet: bytes) -> Any:
    """Return a packet's header, a row of `HEADER`.

    Raises:
        FormatError: it is no such packet.
    """
    size = len(packet)
    if size < HEADER.itemsize:
        raise FormatError(f"a packet of {size} bytes is shorter than Livox's header")
    header = np.frombuffer(packet, HEADER, 1)[0]
    layout = POINT.get(int(header["data_type"]))
    if layout is None:
        raise FormatError(f"a packet of the unknown data type {header['data_type']}")
    count, length = int(header["points"]), int(header["length"])
    if not count or size != HEADER.itemsize + count * layout.itemsize or length != size:
        raise FormatError(
            f"a packet of {size} bytes whose header is of {length} bytes and {count} points"
        )
    return header


def is_packet(payload: bytes) -> bool:
    """Return whether a datagram is one of Livox's, with points or of its IMU."""
    try:
        read_header(payload)
    except FormatError:
        return False
    return True


class LivoxDecoder(CloudDecoder):
    """Decoder and encoder of the packets of one Mid-360 or HAP.

    Args:
        model: of the device, which its packets do not tell.
        packet: its first packet with points.
        rate_hz: sweeps in a second.

    Raises:
        FormatError: it is no packet with points.
    """

    vendor = "Livox"
    number_base = 0
    number_span = NUMBER_SPAN

    def __init__(self, model: str, packet: bytes, rate_hz: float) -> None:
        header = read_header(packet)
        self._type, self._count = int(header["data_type"]), int(header["points"])
        if self._type not in COLUMNS:
            raise FormatError("a packet of a Livox's IMU, not of its points")
        self.model, self.packet_bytes, self.columns = model, len(packet), COLUMNS[self._type]
        self.interval_ns = 100.0 * int(header["interval"]) or 480_000.0
        self.period_ns = round(1e9 / rate_hz)
        self.settings = {"data_type": self._type, "points_per_packet": self._count}
        # A packet's time is its first point's; a point has the same share of the interval.
        shares = np.arange(self._count) * self.interval_ns / self._count
        self._since_ns = shares.astype(np.int64)

    def find_sound(self, packets: Packets) -> npt.NDArray[np.bool_]:
        headers = _read_headers(packets)
        right = (headers["data_type"] == self._type) & (headers["points"] == self._count)
        return np.asarray(right & (headers["length"] == packets.shape[1]), bool)

    def read_times(self, packets: Packets) -> npt.NDArray[np.int64]:
        return np.asarray(_read_headers(packets)["t_ns"] & _LATEST_NS, np.int64)

    def read_numbers(self, packets: Packets) -> npt.NDArray[np.int64]:
        return np.asarray(_read_headers(packets)["number"], np.int64)

    def decode(self, packets: Packets) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        data = np.ascontiguousarray(packets[:, HEADER.itemsize :])
        values = data.view(POINT[self._type]).reshape(len(packets), self._count)
        return values, np.broadcast_to(self._since_ns, values.shape)

    def encode(
        self, values: npt.NDArray[Any], times: npt.NDArray[np.int64], numbers: Any
    ) -> Packets:
        """Return packets of points, structured [packets, points]; the inverse of `decode`."""
        headers = np.zeros(len(values), HEADER)
        headers["length"], headers["points"] = self.packet_bytes, self._count
        headers["interval"] = round(self.interval_ns / 100)
        headers["number"], headers["data_type"] = numbers, self._type
        headers["time_type"], headers["t_ns"] = 1, times
        packets = np.empty((len(values), self.packet_bytes), np.uint8)
        packets[:, : HEADER.itemsize] = headers.view(np.uint8).reshape(len(values), -1)
        packed = np.ascontiguousarray(values.astype(POINT[self._type]))
        packets[:, HEADER.itemsize :] = packed.view(np.uint8).reshape(len(values), -1)
        return packets

    def read_state(self, packets: Packets) -> dict[str, Any]:
        kind = int(_read_headers(packets[-1:])["time_type"][0])
        return {"clock": CLOCKS.get(kind, f"type {kind}")}


_LATEST_NS: Final = np.uint64((1 << 63) - 1)


def _read_headers(packets: Packets) -> npt.NDArray[Any]:
    return np.ascontiguousarray(packets[:, : HEADER.itemsize]).view(HEADER)[:, 0]


def make_packet(data_type: int = CARTESIAN, interval_ns: int = 480_000) -> bytes:
    """Return a packet without returns, such as `LivoxDecoder` takes as the first one."""
    count = 1 if data_type == IMU else POINTS
    size = HEADER.itemsize + count * POINT[data_type].itemsize
    header = np.zeros(1, HEADER)
    header["length"], header["points"], header["data_type"] = size, count, data_type
    header["interval"] = interval_ns // 100
    return header.tobytes() + bytes(size - HEADER.itemsize)


def make_imu_packet(number: int, t_ns: int) -> bytes:
    """Return a packet of an IMU at rest, with the axes of the lidar."""
    packet = bytearray(make_packet(IMU))
    header = np.frombuffer(packet, HEADER, 1)
    header["number"], header["t_ns"], header["time_type"] = number % NUMBER_SPAN, t_ns, 1
    np.frombuffer(packet, POINT[IMU], 1, HEADER.itemsize)["acc"] = 0.0, 0.0, 1.0
    return bytes(packet)


def decode_imu(payload: bytes) -> ImuSample:
    """Read a packet of the IMU.

    Raises:
        FormatError: it is no packet of the IMU.
    """
    header = read_header(payload)
    if header["data_type"] != IMU:
        raise FormatError("a packet of points, not of the IMU")
    values = np.frombuffer(payload, POINT[IMU], 1, HEADER.itemsize)[0]
    with np.errstate(over="ignore"):  # a damaged packet has any numbers
        acc = (values["acc"].astype(np.float64) * GRAVITY_M_S2).astype("<f4")
    t_ns = int(header["t_ns"] & _LATEST_NS)
    return ImuSample(int(header["number"]), t_ns, acc, values["avel"].astype("<f4"))
