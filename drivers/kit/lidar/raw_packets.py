"""The packets of a lidar beside what they become: the channel ``packets.bin`` of a sweep.

A sweep has the packets that hold its columns, in the order of their decoding.  The packet in which
the cut lies is in two sweeps, marked in the second, so that the sweeps of any part of a recording
can be made again (`drivers.kit.lidar.recorded`).  ::

    packets = PacketLog(packet_bytes=1080)
    packets.add(ordered.packets, ordered.t_ns, columns=512)
    frame = packets.take(1980, stamp_ns, epoch_ns)           # of the sweep that ended
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from recorder.codecs.beams import PACKETS
from recorder.codecs.points import Column, pack_planes, points_dtype
from recorder.codecs.streams import ChannelSpec

DEVICE, DEVICE_PACKET = "device.json", "packet"
"""File beside the channels with the packet, in hex, in which the device describes itself."""
PACKET, AGE, STAMP, AGAIN = "packet", "age_ns", "stamp_ns", "again"
_TIME_BYTES: Final = 8
_MOST: Final = 1 << 14
"""Packets of a sweep at most."""

Packets = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]


def packet_columns(packet_bytes: int) -> tuple[Column, ...]:
    """Return the columns of the channel."""
    return (
        Column(PACKET, "u1", (packet_bytes,), "", "payload of the datagram"),
        Column(AGE, "i8", (), "ns", "time from its arrival to the sweep's stamp"),
        Column(STAMP, "i8", (), "ns", "the sweep's stamp by the host's clock, since 1970"),
        Column(AGAIN, "u1", (), "", "1: the sweep before has it, too"),
    )


def packets_channel(packet_bytes: int) -> ChannelSpec:
    """Return the channel of a stream whose sweeps have their packets."""
    columns = packet_columns(packet_bytes)
    shape = _MOST, points_dtype(columns).itemsize
    text = "packets of the sweep, as they came"
    return ChannelSpec(PACKETS, "points", "u1", shape, text, columns=columns)


def pack_packets(
    parts: Sequence[Packets],
    arrived_ns: Times,
    again: npt.NDArray[np.bool_],
    t_ns: int,
    epoch_ns: int,
) -> bytes:
    """Pack the packets of a sweep to a frame of the channel.

    Args:
        parts: u1 [packets, size] each, in order; at least one.
        arrived_ns: i8 [packets], arrival.
        again: [packets], whether the sweep before has a packet, too.
        t_ns: the sweep's stamp, on the time base of the arrivals.
        epoch_ns: the same by the host's clock, epoch ns.
    """
    size, count = parts[0].shape[1], len(arrived_ns)
    planes = np.empty((size + 2 * _TIME_BYTES + 1, count), np.uint8)
    at = 0
    for part in parts:  # each is copied once, to its place
        if len(part):
            cv2.transpose(np.ascontiguousarray(part), dst=planes[:size, at : at + len(part)])
            at += len(part)
    age = (t_ns - arrived_ns).astype("<i8").view(np.uint8).reshape(-1, _TIME_BYTES)
    planes[size : size + _TIME_BYTES] = age.T
    stamp = np.frombuffer(epoch_ns.to_bytes(_TIME_BYTES, "little", signed=True), np.uint8)
    planes[size + _TIME_BYTES : -1] = stamp[:, None]
    planes[-1] = again
    return pack_planes([planes])


@dataclass(slots=True)
class _Batch:
    """Packets that were decoded together, and what they became.

    Attributes:
        packets: u1 [packets, size].
        t_ns: i8 [packets], arrival.
        first: number of the first packet, counted from the stream's begin.
        columns: number of columns.
        begin: number of the first column.
        spare: packets before the one by the columns' share in which a column may begin.
    """

    packets: Packets
    t_ns: Times
    first: int
    columns: int
    begin: int
    spare: int


class PacketLog:
    """Packets until their sweep has ended.

    Args:
        packet_bytes: length of the packets.
    """

    def __init__(self, packet_bytes: int) -> None:
        self._size = packet_bytes
        self._batches: deque[_Batch] = deque()
        self._packets = self._columns = 0  # that came
        self._given_packets = self._given_columns = 0

    def add(self, packets: Packets, t_ns: Times, columns: int, *, spare: int = 0) -> None:
        """Add packets that were decoded together, in order.

        Args:
            packets: u1 [packets, size]; are not copied.
            t_ns: i8 [packets], arrival.
            columns: number of columns that they became, and that were not given before.
            spare: packets by which a column may begin earlier than by its share of them.
        """
        batch = _Batch(packets, t_ns, self._packets, columns, self._columns, spare)
        self._batches.append(batch)
        self._packets += len(packets)
        self._columns += columns

    def take(self, columns: int, t_ns: int, epoch_ns: int) -> bytes:
        """Return the packed packets of the next sweep.

        Args:
            columns: number of its columns.
            t_ns: its stamp.
            epoch_ns: its stamp as the decoder got it, epoch ns.
        """
        begin, end = self._given_columns, self._given_columns + columns
        first, last = self._find(begin, first=True), self._find(end - 1, first=False)
        packets, times = [np.empty((0, self._size), np.uint8)], [np.empty(0, np.int64)]
        for batch in self._batches:
            part = slice(max(0, first - batch.first), max(0, last + 1 - batch.first))
            packets.append(batch.packets[part])
            times.append(batch.t_ns[part])
        arrived = np.concatenate(times)
        again = np.arange(first, first + len(arrived)) < self._given_packets
        self._given_columns, self._given_packets = end, max(last + 1, self._given_packets)
        while len(self._batches) > 1 and self._batches[1].begin <= end:
            if self._batches[0].spare and self._batches[1].begin == end:
                break
            self._batches.popleft()
        return pack_packets(packets, arrived, again, t_ns, epoch_ns)

    def _find(self, column: int, *, first: bool) -> int:
        """Return the number of a column's packet."""
        found = self._batches[0]
        for batch in self._batches:
            if batch.begin <= column and batch.columns:
                found = batch
        share = (column - found.begin) * len(found.packets) // max(1, found.columns)
        number = found.first + share
        return max(self._batches[0].first, number - found.spare) if first else number
