"""Packets of the IMU of an Airy, with its time, and scales that each packet tells.

Source: RoboSense's rs_driver, ``decoder_RSAIRY.hpp``.  All integers are big-endian.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from drivers.kit.lidar.imu import GRAVITY_M_S2, ImuSample
from recorder.common.errors import FormatError

IMU_BYTES: Final = 51
IMU_ID: Final = bytes.fromhex("aa555a05")
NUMBER_SPAN: Final = 1 << 32
_FULL: Final = 32768.0
_MOST_SCALE: Final = 3
_PACKET: Final = np.dtype(
    {
        "names": ["seconds", "micros", "acc", "gyro", "acc_scale", "gyro_scale", "number"],
        "formats": [("u1", 6), ">u4", (">i4", 3), (">i4", 3), "u1", "u1", ">u4"],
        "offsets": [4, 10, 14, 26, 43, 44, 45],
        "itemsize": IMU_BYTES,
    }
)


def is_imu(payload: bytes) -> bool:
    """Return whether a datagram is a packet of an Airy's IMU."""
    return len(payload) == IMU_BYTES and payload.startswith(IMU_ID)


def read_imu(payload: bytes) -> ImuSample:
    """Read a packet of the IMU.

    Raises:
        FormatError: the packet has unknown scales.
    """
    packet = np.frombuffer(payload, _PACKET)[0]
    scales = int(packet["acc_scale"]), int(packet["gyro_scale"])
    if max(scales) > _MOST_SCALE:
        raise FormatError(f"a packet of the IMU has the unknown scales {scales[0]}, {scales[1]}")
    acc_g, gyro_deg_s = (2 << scales[0]) / _FULL, (250 << scales[1]) / _FULL
    seconds = int.from_bytes(packet["seconds"][-5:].tobytes(), "big")
    return ImuSample(
        int(packet["number"]),
        seconds * 1_000_000_000 + int(packet["micros"]) * 1000,
        (packet["acc"] * (acc_g * GRAVITY_M_S2)).astype("<f4"),
        np.radians(packet["gyro"] * gyro_deg_s).astype("<f4"),
    )


def make_imu(number: int, t_ns: int) -> bytes:
    """Return a packet of an IMU at rest, that measures up to 4 g and 500 deg/s."""
    data = np.zeros(1, _PACKET)
    seconds, rest = divmod(t_ns, 1_000_000_000)
    data["seconds"], data["micros"] = list(seconds.to_bytes(6, "big")), rest // 1000
    data["acc"], data["number"] = (0, 0, round(_FULL / 4)), number % NUMBER_SPAN
    data["acc_scale"] = data["gyro_scale"] = 1
    return IMU_ID + data.tobytes()[len(IMU_ID) :]
