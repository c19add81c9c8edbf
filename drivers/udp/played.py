"""Source that plays the datagrams of captures."""

from __future__ import annotations

import ipaddress
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers.kit.recorded_source import SHORT_BATCH_NS
from drivers.udp.stream import datagram_stream, map_address, parse_sender
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

_BATCH: Final = 256
_PORTS_SHOWN: Final = 8


class CaptureSource:
    """Datagrams of a capture (pcap, pcapng), with the capture's stamps.

    A datagram of which the capture holds only a part is `Lost`.  A datagram without a stamp gets
    the stamp before it.  A `State` at the end, and a warning, have the `CaptureNotes`.

    Args:
        sensor: the sensor's entry, of scheme ``file``.

    Raises:
        SourceError: the file is missing.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        self._sensor, self._only = sensor, parse_sender(sensor)
        self._senders: set[bytes] = set()  # of the datagrams to record
        self._first_ns = 0
        try:
            self._file = sensor.path.open("rb")
        except OSError as error:
            raise sensor.fault(error) from None

    def open(self) -> list[StreamSpec]:
        """Find the first datagram and declare the stream.

        Raises:
            SourceError: the file is no capture, has no datagram to record, or no stamps.
        """
        try:
            first = self._first()
            self._file.seek(0)
        except OSError as error:
            raise self._sensor.fault(error) from None
        address = str(ipaddress.ip_address(first.destination))
        settings = {"address": address, "port": first.port}
        return [datagram_stream(self._sensor, settings, self._sensor.options["rate"])]

    def _first(self) -> Datagram | LostDatagram:
        """Return the first datagram to record; the rest of a capture may be damaged."""
        ports: set[int] = set()
        notes = CaptureNotes()
        first: Datagram | LostDatagram | None = None
        try:
            for item in read_capture(self._file):
                if isinstance(item, SkippedPacket | DroppedPackets):
                    notes.take(item)
                elif self._is_wanted(item):
                    first = first or item
                    if item.t_ns:
                        self._first_ns = item.t_ns
                        return first
                elif item.port is not None:
                    ports.add(item.port)
        except FormatError as error:
            if first is None:
                raise self._sensor.fault(error) from None
        if first is not None:
            raise self._sensor.fault(
                "its datagrams have no stamps, so that their times are not known; capture again "
                "with a tool that stores stamps"
            )
        unread = "".join(f"; {text}" for text in notes.warnings())
        if not ports:
            raise self._sensor.fault(f"has no UDP datagram{unread}")
        shown = ", ".join(map(str, sorted(ports)[:_PORTS_SHOWN]))
        shown += ", ..." if len(ports) > _PORTS_SHOWN else ""
        wanted = [
            f"{text} {value}"
            for text, value in (
                ("to port", self._sensor.options["port"]),
                ("from", self._sensor.options["sender"]),
            )
            if value is not None
        ]
        raise self._sensor.fault(
            f"has no UDP datagram {' '.join(wanted)}; its datagrams go to the ports {shown}{unread}"
        )

    def _is_wanted(self, item: Datagram | LostDatagram) -> bool:
        port = self._sensor.options["port"]
        if self._only is not None and map_address(item.source) != self._only:
            return False
        if item.port is None:  # with a port to choose: a loss of a sender that sends to this port
            return port is None or item.source in self._senders
        if port is not None and item.port != port:
            return False
        self._senders.add(item.source)
        return True

    def items(self) -> Iterator[Item]:
        """Yield batches of datagrams; SourceError at damage, after the datagrams before it."""
        batch: list[Datagram] = []
        losses: Counter[str] = Counter()
        notes = CaptureNotes()
        longest_ns = SHORT_BATCH_NS if self._sensor.pace == "realtime" else 1 << 62
        last_ns = self._first_ns
        fault: FormatError | None = None
        try:
            for item in read_capture(self._file):
                if isinstance(item, SkippedPacket | DroppedPackets):
                    notes.take(item)
                    continue
                if not self._is_wanted(item):
                    continue
                if isinstance(item, LostDatagram):
                    if batch:
                        yield self._make_sample(batch)
                        batch = []
                    losses[item.cause] += 1
                    continue
                if not item.stamped:
                    item = replace(item, t_ns=last_ns)
                    notes.unstamped += 1
                if losses:
                    yield from self._lost(losses, item.t_ns)
                if batch and (
                    len(batch) == _BATCH or not 0 <= item.t_ns - batch[0].t_ns <= longest_ns
                ):
                    yield self._make_sample(batch)
                    batch = []
                last_ns = item.t_ns
                batch.append(item)
        except FormatError as error:
            fault = error
        if batch:
            yield self._make_sample(batch)
        yield from self._lost(losses, last_ns)
        if values := notes.values():
            yield State(self._sensor.name, last_ns, values)
        for text in notes.warnings():
            print(self._sensor.fault(text), file=sys.stderr, flush=True)
        if fault is not None:
            raise self._sensor.fault(fault)

    def _lost(self, losses: Counter[str], t_ns: int) -> Iterator[Lost]:
        """Report and clear losses, which lie before a datagram with the stamp `t_ns`."""
        for cause, count in losses.items():
            yield Lost(self._sensor.name, t_ns, cause, count)
        losses.clear()

    def _make_sample(self, batch: Sequence[Datagram]) -> Sample:
        sources = b"".join(map_address(datagram.source) for datagram in batch)
        return Sample(
            self._sensor.name,
            np.array([datagram.t_ns for datagram in batch], np.int64),
            {
                "payload": [datagram.payload for datagram in batch],
                "source": np.frombuffer(sources, np.uint8).reshape(-1, 16),
                "source_port": np.array([datagram.source_port for datagram in batch], "<u2"),
                "port": np.array([datagram.port for datagram in batch], "<u2"),
            },
        )

    def close(self) -> None:
        self._file.close()
