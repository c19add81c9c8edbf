"""Decoder of the packets of RoboSense's solid-state M1, vectorised over packets, and its inverse.

Source: RoboSense's rs_driver (decoder_RSM1.hpp).  All integers are big-endian.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.cloud_stream import CloudDecoder
from drivers.kit.lidar.decoder import Packets
from recorder.codecs.points import Column
from recorder.common.errors import FormatError

NAME: Final = "M1"
PACKET_BYTES: Final = 1210
PACKETS: Final = 630
"""Packets of a sweep, for each return."""
PERIOD_NS: Final = 100_000_000
_ID: Final = bytes.fromhex("55aa5aa5")
_BLOCKS: Final = 25
_LASERS: Final = 5
POINTS: Final = _BLOCKS * _LASERS
"""Points of a packet."""
_DUAL: Final = 0
_COLD_C: Final = 80

_POINT: Final = np.dtype(
    [
        *(("range", ">u2"), ("pitch", ">u2"), ("yaw", ">u2")),
        *(("reflectivity", "u1"), ("attribute", "u1"), ("elongation", "u1")),
    ]
)
_BLOCK: Final = np.dtype([("micros", "u1"), ("return", "u1"), ("points", _POINT, (_LASERS,))])
_PACKET: Final = np.dtype(
    [
        ("id", "V4"),
        ("number", ">u2"),
        ("version", ">u2"),
        ("mode", "u1"),
        ("time_mode", "u1"),
        ("seconds", "u1", (6,)),
        ("micros", ">u4"),
        ("reserved", "V10"),
        ("type", "u1"),
        ("temperature", "u1"),
        ("blocks", _BLOCK, (_BLOCKS,)),
        ("tail", "V3"),
    ]
)
COLUMNS: Final = (
    Column("range", "u2", unit="5 mm", desc="distance; 0: no return"),
    Column("pitch", "u2", unit="0.01 deg", desc="angle above the x-y plane, from 32768"),
    Column("yaw", "u2", unit="0.01 deg", desc="angle from the x axis to the y axis, from 32768"),
    Column("reflectivity", "u1"),
    Column("attribute", "u1"),
    Column("elongation", "u1"),
    Column("return", "u1", desc="which return, as the packet numbers it"),
    Column("ring", "u2", desc="which of the five lasers"),
)
_POINTS: Final = np.dtype([(c.name, "<" + c.type) for c in COLUMNS])


def is_packet(payload: bytes) -> bool:
    """Return whether a datagram is an M1's with points."""
    return len(payload) == PACKET_BYTES and payload.startswith(_ID)


class M1Decoder(CloudDecoder):
    """Decoder and encoder of the packets of one M1.

    Args:
        packet: its first packet, which tells the return mode.

    Raises:
        FormatError: it is no packet of an M1.
    """

    vendor, model = "RoboSense", NAME
    packet_bytes, columns = PACKET_BYTES, COLUMNS
    period_ns = PERIOD_NS
    number_base = 1
    number_span = 1 << 16

    def __init__(self, packet: bytes) -> None:
        if not is_packet(packet):
            raise FormatError(f"a packet of {len(packet)} bytes is not of an {NAME}")
        self._packet = packet
        self._mode = int(np.frombuffer(packet, _PACKET)["mode"][0])
        returns = 2 if self._mode == _DUAL else 1
        self.interval_ns = PERIOD_NS / (PACKETS * returns)
        self.settings = {"returns": returns, "points_per_packet": POINTS}

    def find_sound(self, packets: Packets) -> npt.NDArray[np.bool_]:
        found = _view(packets)
        begins = (packets[:, : len(_ID)] == np.frombuffer(_ID, np.uint8)).all(axis=1)
        right = begins & (found["mode"] == self._mode) & (found["number"] > 0)
        return np.asarray(right & (found["micros"] < 1_000_000), bool)

    def read_times(self, packets: Packets) -> npt.NDArray[np.int64]:
        found = _view(packets)
        weights = 256 ** np.arange(4, -1, -1, dtype=np.int64)
        seconds = found["seconds"][:, 1:].astype(np.int64) @ weights
        nanos = (seconds * 1_000_000 + found["micros"].astype(np.int64)) * 1000
        return np.asarray(nanos, np.int64)

    def read_numbers(self, packets: Packets) -> npt.NDArray[np.int64]:
        return np.asarray(_view(packets)["number"], np.int64)

    def decode(self, packets: Packets) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        blocks = _view(packets)["blocks"]
        shape = len(packets), _BLOCKS, _LASERS
        points = np.empty(shape, _POINTS)
        for name in _POINT.names or ():
            points[name] = blocks["points"][name]
        points["return"] = blocks["return"][:, :, None]
        points["ring"] = np.arange(_LASERS)
        since_ns = np.broadcast_to(blocks["micros"].astype(np.int64)[:, :, None] * 1000, shape)
        return points.reshape(len(packets), POINTS), since_ns.reshape(len(packets), POINTS)

    def encode(
        self,
        points: npt.NDArray[Any],
        since_ns: npt.NDArray[np.int64],
        times: npt.NDArray[np.int64],
        numbers: Any,
    ) -> Packets:
        """Return packets of points [packets, points]; the inverse of `decode`.

        All that points do not have is the first packet's.
        """
        shape = len(points), _BLOCKS, _LASERS
        made = np.repeat(np.frombuffer(self._packet, _PACKET), len(points))
        blocks, values = made["blocks"], points.reshape(shape)
        for name in _POINT.names or ():
            blocks["points"][name] = values[name]
        blocks["return"] = values["return"][:, :, 0]
        blocks["micros"] = since_ns.reshape(shape)[:, :, 0] // 1000
        made["number"] = numbers
        seconds, made["micros"] = np.divmod(times // 1000, 1_000_000)
        made["seconds"][:, 1:] = seconds[:, None] >> np.arange(32, -8, -8) & 0xFF
        return made.view(np.uint8).reshape(len(points), PACKET_BYTES)

    def read_state(self, packets: Packets) -> dict[str, Any]:
        newest = _view(packets[-1:])[0]
        return {
            "temperature_c": int(newest["temperature"]) - _COLD_C,
            "return_mode": int(newest["mode"]),
            "time_mode": int(newest["time_mode"]),
        }


def _view(packets: Packets) -> npt.NDArray[Any]:
    return np.ascontiguousarray(packets).view(_PACKET)[:, 0]


def make_packet(mode: int = 4) -> bytes:
    """Return a packet without returns, such as `M1Decoder` takes as the first one."""
    packet = np.zeros(1, _PACKET)
    packet["mode"], packet["number"], packet["temperature"] = mode, 1, _COLD_C + 20
    return _ID + packet.tobytes()[len(_ID) :]
