"""Packets of a spinning lidar from a network capture."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from drivers.kit.driver import Item, NewStream, State
from drivers.kit.lidar.family import Family, PacketStream
from drivers.kit.lidar.form import FormChangedError
from drivers.kit.lidar.stream import FIRST, SweepStream
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.formats.pcap.datagrams import (
    CaptureNotes,
    Datagram,
    LostDatagram,
    SkippedPacket,
    read_capture,
)
from recorder.formats.pcap.records import DroppedPackets

_BATCH: Final = 64
_LOOKED_AT: Final = 20_000
"""Datagrams among which the device's description is looked for."""


class CaptureSource:
    """Source of the packets of one lidar in a capture (pcap, pcapng).

    The first datagram that is a packet of the family, to the option `port` if it is given, decides
    which sender and port are read.

    Args:
        family: the vendor's family.
    """

    def __init__(self, family: Family) -> None:
        self._family, self._sensor = family, family.sensor
        self._stream: PacketStream
        try:
            self._file = self._sensor.path.open("rb")
        except OSError as error:
            raise self._sensor.fault(error) from None

    def open(self) -> Sequence[StreamSpec]:
        """Find the first packet and declare the stream; SourceError if there is none."""
        wanted, others = self._sensor.options["port"], Counter[int]()
        self._file.seek(0)
        fault: FormatError | None = None
        first: Datagram | None = None
        before: list[Datagram] = []
        firsts: list[bytes] = []
        looked_at = 0
        try:
            for item in read_capture(self._file):
                if not isinstance(item, Datagram):
                    continue
                looked_at += 1
                if first is not None:
                    if (item.source, item.port) == (first.source, first.port):
                        firsts.append(item.payload)
                    asks = self._family.awaits_side_packets()
                    if asks and item.source == first.source and item.port != first.port:
                        self._family.take_side_packet(item.payload)
                elif wanted in (None, item.port) and self._family.is_packet(item.payload):
                    first, firsts = item, [item.payload]
                    for each in before:
                        if each.source == first.source:
                            self._family.take_side_packet(each.payload)
                else:
                    others[item.port] += 1
                    before += [item] if len(before) < _LOOKED_AT else []
                enough = looked_at > _LOOKED_AT or not self._family.awaits_side_packets()
                if enough and (len(firsts) >= FIRST or (firsts and looked_at > _LOOKED_AT)):
                    break
        except FormatError as error:
            fault = error
        if first is not None:
            self._stream = self._family.start(first.payload, live=False)
            if isinstance(self._stream, SweepStream):
                self._stream.measure_payloads(firsts)
            self._key = first.source, first.port
            return self._stream.specs(finite=True)
        seen = ", ".join(f"{port} ({count})" for port, count in others.most_common(8))
        text = f"; its datagrams go to the ports {seen}" if seen else "; it has no datagram"
        why = f"; {fault or self._family.fault}" if fault or self._family.fault else ""
        raise self._sensor.fault(f"has no packet of {' or '.join(self._family.models)}{text}{why}")

    def items(self) -> Iterator[Item | NewStream]:
        """Yield sweeps; SourceError at damage, after the sweeps before it."""
        self._file.seek(0)
        batch: list[Datagram] = []
        notes, losses, last_ns = CaptureNotes(), Counter[str](), 0
        fault: FormatError | None = None
        size = self._stream.packet_bytes
        try:
            for item in read_capture(self._file):
                if isinstance(item, SkippedPacket | DroppedPackets):
                    notes.take(item)
                elif isinstance(item, LostDatagram):
                    if item.source == self._key[0] and item.port in (None, self._key[1]):
                        losses[item.cause] += 1
                elif (item.source, item.port) == self._key:
                    if len(item.payload) != size:
                        whole, batch = batch, []
                        yield from self._convert(whole)
                        yield from self._stream.take_other(item.payload)
                        continue
                    last_ns = item.t_ns or last_ns
                    notes.unstamped += not item.stamped
                    batch.append(item)
                    if len(batch) == _BATCH:
                        whole, batch = batch, []
                        yield from self._convert(whole)
                elif item.source == self._key[0]:
                    last_ns = item.t_ns or last_ns
                    yield from self._family.convert_side_packet(item.payload, last_ns) or ()
        except FormatError as error:
            fault = error
        try:
            yield from self._convert(batch)
        except FormChangedError as error:
            fault = error
        yield from self._stream.finish()
        values = notes.values() | {f"packets_{cause}": n for cause, n in losses.items()}
        if values:
            yield State(self._sensor.name, last_ns, values)
        for text in notes.warnings():
            print(self._sensor.fault(text), file=sys.stderr, flush=True)
        if fault is not None:
            raise self._sensor.fault(fault)

    def _convert(self, batch: Sequence[Datagram]) -> Iterator[Item | NewStream]:
        if not batch:
            return
        packets = np.frombuffer(b"".join(each.payload for each in batch), np.uint8)
        times = np.maximum.accumulate(np.array([each.t_ns for each in batch], np.int64))
        yield from self._stream.take(packets.reshape(len(batch), -1), times, times)

    def close(self) -> None:
        self._file.close()
