"""Packets of lidars as captures and as messages of ROS drivers, serialized by rosbags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recorder.formats.pcap.writer import MAPPED, PcapWriter
from recorder.formats.ros2.definitions import (
    NEBULA_PACKETS,
    PANDAR_SCAN,
    ROBOSENSE_INFO,
    ROBOSENSE_SCAN,
    RSLIDAR_OLD_PACKET,
    RSLIDAR_OLD_SCAN,
    RSLIDAR_PACKET,
    VELODYNE_SCAN,
)
from tests.formats.bags.kit import STORE, Sent, cdr, header, ros_time

SENSOR, HOST = MAPPED + bytes((192, 168, 1, 201)), MAPPED + bytes((192, 168, 1, 102))
ITEMS = {
    PANDAR_SCAN: "pandar_msgs/msg/PandarPacket",
    VELODYNE_SCAN: "velodyne_msgs/msg/VelodynePacket",
    NEBULA_PACKETS: "nebula_msgs/msg/NebulaPacket",
    ROBOSENSE_SCAN: "robosense_msgs/msg/RobosensePacket",
    RSLIDAR_OLD_SCAN: "rslidar_msgs/msg/RslidarPacket",
}
Packets = Sequence[tuple[int, bytes]]
"""Arrival, epoch ns, and payload."""


def write_capture(
    path: Path, packets: Iterable[tuple[int, bytes]], port: int = 2368, source: bytes = SENSOR
) -> Path:
    """A capture of one lidar; a payload with a port of its own is a tuple of both."""
    with path.open("wb") as file:
        writer = PcapWriter(file)
        for t_ns, payload in packets:
            writer.write(t_ns, source, port, HOST, port, payload)
    return path


def scan_message(topic: str, kind: str, packets: Packets, log_ns: int | None = None) -> Sent:
    """A message with the packets of a turn; its log time is the last packet's arrival."""
    log_ns = packets[-1][0] if log_ns is None else log_ns
    stamp = header(packets[0][0], "lidar")
    if kind == RSLIDAR_PACKET:
        ((_, payload),) = packets
        data = np.frombuffer(payload, np.uint8)
        is_difop = payload[:2] == b"\xa5\xff"
        return cdr(
            topic, kind, log_ns, header=stamp, is_difop=is_difop, is_frame_begin=0, data=data
        )
    if kind == RSLIDAR_OLD_PACKET:
        ((t_ns, payload),) = packets
        data = np.frombuffer(payload, np.uint8)
        return cdr(topic, kind, log_ns, stamp=ros_time(t_ns), data=data)
    if kind == ROBOSENSE_INFO:
        ((t_ns, payload),) = packets
        packet = _make_packet("robosense_msgs/msg/RobosensePacket", t_ns, payload)
        return cdr(topic, kind, log_ns, lidar_model="Helios", packet=packet)
    items = [_make_packet(ITEMS[kind], t_ns, payload) for t_ns, payload in packets]
    return cdr(topic, kind, log_ns, header=stamp, packets=items)


def _make_packet(name: str, t_ns: int, payload: bytes) -> Any:
    data = np.frombuffer(payload, np.uint8)
    if "Pandar" in name:
        padded = np.zeros(1500, np.uint8)
        padded[: len(data)] = data
        return STORE.types[name](ros_time(t_ns), padded, len(data))
    return STORE.types[name](ros_time(t_ns), data)
