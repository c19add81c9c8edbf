"""What the real recordings hold, found out without our own parsers."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
STANDARD_GRAVITY = 9.80665


def mtdata2_messages(log: bytes) -> Iterator[dict[int, bytes]]:
    """Good MTData2 messages of a serial log: data identifier to data (MT low-level protocol)."""
    at = 0
    while (at := log.find(b"\xfa\xff\x36", at)) >= 0 and at + 4 < len(log):
        size = log[at + 3]
        whole = log[at + 1 : at + 5 + size]
        if len(whole) != size + 4 or sum(whole) % 256:
            at += 1
            continue
        packets, k = {}, 3
        while k < len(whole) - 1:
            identifier, length = struct.unpack_from(">HB", whole, k)
            packets[identifier] = whole[k + 3 : k + 3 + length]
            k += 3 + length
        yield packets
        at += 5 + size


def imu_values(log: bytes) -> tuple[Floats, Floats, Floats]:
    """acc, avel, rot (roll, pitch, yaw in rad), each float32 [n, 3], of a float32 ENU log."""
    acc, avel, rot = [], [], []
    for packets in mtdata2_messages(log):
        if 0x4020 in packets:
            acc.append(struct.unpack(">3f", packets[0x4020]))
            avel.append(struct.unpack(">3f", packets[0x8020]))
            rot.append(_euler(*struct.unpack(">4f", packets[0x2010])))
    return np.array(acc, np.float32), np.array(avel, np.float32), np.array(rot, np.float32)


def _euler(w: float, x: float, y: float, z: float) -> tuple[float, float, float]:
    return (
        math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)),
        math.asin(2 * (w * y - z * x)),
        math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)),
    )


def ouster_imu_values(pcap: bytes) -> tuple[npt.NDArray[np.uint64], Floats, Floats]:
    """Times of the gyroscope in ns, acc in m/s^2, avel in rad/s of a pcap's IMU packets."""
    order = "<" if pcap[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at, times, acc, avel = 24, [], [], []
    while at < len(pcap):
        (size,) = struct.unpack_from(order + "I", pcap, at + 8)
        packet = pcap[at + 16 : at + 16 + size]
        at += 16 + size
        # A legacy IMU packet is 48 bytes of UDP payload: 8 + 48 in the header's length.
        if struct.unpack(">H", packet[-52:-50]) != (56,):
            continue
        _, _, t_ns, *values = struct.unpack("<3Q6f", packet[-48:])
        times.append(t_ns)
        acc.append([v * STANDARD_GRAVITY for v in values[:3]])
        avel.append([math.radians(v) for v in values[3:]])
    return np.array(times, np.uint64), np.array(acc, np.float32), np.array(avel, np.float32)
