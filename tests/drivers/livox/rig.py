"""Livox lidars that measure noise, as packets, captures and messages."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.decoder import Packets
from drivers.livox.commands import PUSH, Command, encode_values
from drivers.livox.packets import CARTESIAN, POINT, LivoxDecoder, make_packet
from recorder.formats.pcap.writer import PcapWriter
from tests.drivers.kit.lidar.lidars import hold_up
from tests.drivers.kit.lidar.packet_messages import HOST, SENSOR

START_NS = 1_700_000_000_000_000_000
INTERVAL_NS = 480_000
POINTS_PORT, IMU_PORT, STATE_PORT = 56301, 56401, 56201


@dataclass
class Lidar:
    """A lidar; `resets`: its packets' numbers begin again with each sweep."""

    data_type: int = CARTESIAN
    resets: bool = True
    seed: int = 1

    @property
    def decoder(self) -> LivoxDecoder:
        return LivoxDecoder("Mid-360", make_packet(self.data_type), 10.0)

    def values(self, count: int) -> np.ndarray:
        dice = np.random.default_rng(self.seed)
        layout = POINT[self.data_type]
        raw = dice.integers(0, 256, count * 96 * layout.itemsize).astype("u1")
        return raw.view(layout).reshape(count, 96)

    def packets(self, count: int, first: int = 0) -> Packets:
        number = np.arange(first, first + count)
        times = START_NS + number * INTERVAL_NS
        numbers = number % 65_536
        if self.resets:
            sweep = (times - START_NS) // 100_000_000
            begin = -(-sweep * 100_000_000 // INTERVAL_NS)
            numbers = number - begin
        return self.decoder.encode(self.values(count), times, numbers)


def imu_packet(number: int, acc: tuple[float, float, float] = (0.0, 0.0, 1.0)) -> bytes:
    """A packet of the IMU, by Livox-SDK2's livox_lidar_def.h; an IMU measures with 200 Hz."""
    t_ns = START_NS + number * 5_000_000
    head = struct.pack("<BHHHHBBB12xIQ", 0, 60, 0, 1, number % 65_536, 0, 0, 1, 0, t_ns)
    return head + struct.pack("<6f", 0.1, 0.2, 0.3, *acc)


def push_packet(**values: bytes) -> bytes:
    """A message of the device's state: values by keys such as ``k8006``."""
    data = encode_values({int(key[1:], 16): value for key, value in values.items()})
    return Command(PUSH, 1, False, True, data).encode()


def arrivals(packets: Packets) -> list[tuple[int, int, bytes]]:
    """Times, ports and payloads of packets, with the IMU's between them."""
    sent = [
        (START_NS + (k + 1) * INTERVAL_NS, POINTS_PORT, p.tobytes()) for k, p in enumerate(packets)
    ]
    count = len(packets) * INTERVAL_NS // 5_000_000
    sent += [(START_NS + k * 5_000_000, IMU_PORT, imu_packet(k)) for k in range(count)]
    return sorted(sent, key=lambda each: each[0])


def write_device(path: Path, sent: list[tuple[int, int, bytes]]) -> Path:
    with path.open("wb") as file:
        writer = PcapWriter(file)
        for t_ns, port, payload in sent:
            writer.write(t_ns, SENSOR, port - 1, HOST, port, payload)
    return path


def count_points(item: Any) -> int:
    return int(item.data["grid"][0, 1])


def arrive(
    dice: random.Random, order: npt.NDArray[np.int64], interval_ns: int
) -> npt.NDArray[np.int64]:
    """When packets arrive that were sent in that order, and that a network may hold up."""
    return hold_up(dice, np.maximum.accumulate(START_NS + order * interval_ns))
