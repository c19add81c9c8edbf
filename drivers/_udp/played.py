"""Datagrams of captures, and of the simulated sender."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers._kit.driver import Item, Sample, SensorConfig
from drivers._kit.recorded_source import SHORT_BATCH_NS
from drivers._protocols.capture import Datagram, read_datagrams
from drivers._udp.stream import datagram_stream, mapped, sender_of
from drivers.sim.datagrams import SIM_PORT, SimulatedSender
from drivers.sim.deferred_data import DeferredData
from recorder.contract.errors import FormatError
from recorder.contract.streams import StreamSpec

_BATCH: Final = 256
_SIM_BATCH_S: Final = 0.01
_PORTS_SHOWN: Final = 8


class CaptureSource:
    """Datagrams of a capture (pcap, pcapng), with the capture's stamps.

    Args:
        sensor: the sensor's entry, of scheme ``file``.

    Raises:
        SourceError: the file is missing.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        self._sensor, self._only = sensor, sender_of(sensor)
        try:
            self._file = sensor.path.open("rb")
        except OSError as error:
            raise sensor.fault(error) from None

    def open(self) -> list[StreamSpec]:
        """Find the first datagram and declare the stream.

        Raises:
            SourceError: the file is no capture, or has no datagram to record.
        """
        try:
            first = self._first()
            self._file.seek(0)
        except OSError as error:
            raise self._sensor.fault(error) from None
        address = str(ipaddress.ip_address(first.destination))
        settings = {"address": address, "port": first.port}
        return [datagram_stream(self._sensor, settings, self._sensor.options["rate"])]

    def _first(self) -> Datagram:
        """Return the first datagram to record; the rest of a capture may be damaged."""
        ports: set[int] = set()
        try:
            for datagram in read_datagrams(self._file):
                if self._wanted(datagram):
                    return datagram
                ports.add(datagram.port)
        except FormatError as error:
            raise self._sensor.fault(error) from None
        if not ports:
            raise self._sensor.fault("has no UDP datagram")
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
            f"has no UDP datagram {' '.join(wanted)}; its datagrams go to the ports {shown}"
        )

    def _wanted(self, datagram: Datagram) -> bool:
        port = self._sensor.options["port"]
        if port is not None and datagram.port != port:
            return False
        return self._only is None or mapped(datagram.source) == self._only

    def items(self) -> Iterator[Item]:
        """Yield batches of datagrams; SourceError at damage, after the datagrams before it."""
        batch: list[Datagram] = []
        longest_ns = SHORT_BATCH_NS if self._sensor.pace == "realtime" else 1 << 62
        fault: FormatError | None = None
        found = read_datagrams(self._file)
        while True:
            try:
                datagram = next(found, None)
            except FormatError as error:
                datagram, fault = None, error
            ends = datagram is None or len(batch) == _BATCH
            if batch and (ends or not 0 <= datagram.t_ns - batch[0].t_ns <= longest_ns):  # type: ignore[union-attr]
                yield self._sample_of(batch)
                batch = []
            if datagram is None:
                break
            if self._wanted(datagram):
                batch.append(datagram)
        if fault is not None:
            raise self._sensor.fault(fault)

    def _sample_of(self, batch: Sequence[Datagram]) -> Sample:
        sources = b"".join(mapped(datagram.source) for datagram in batch)
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


class SimSource:
    """The simulated sender, endless; data are made on access."""

    def __init__(self, sensor: SensorConfig) -> None:
        self._sensor = sensor
        self._sender = SimulatedSender(sensor.options)

    def open(self) -> list[StreamSpec]:
        """Declare the stream."""
        settings = {"address": "127.0.0.1", "port": SIM_PORT}
        return [datagram_stream(self._sensor, settings, self._sender.rate_hz)]

    def items(self) -> Iterator[Item]:
        """Yield batches of datagrams, without end."""
        sender = self._sender
        count = max(1, min(_BATCH, int(sender.rate_hz * _SIM_BATCH_S)))
        start = 0
        while True:
            stop = start + count
            data = DeferredData[Any](partial(self._sent, start, stop))
            yield Sample(self._sensor.name, sender.times_ns(start, stop), data)
            start = stop

    def _sent(self, start: int, stop: int) -> dict[str, npt.NDArray[Any] | list[bytes]]:
        count = stop - start
        here = np.frombuffer(mapped(bytes((127, 0, 0, 1))), np.uint8)
        return {
            "payload": self._sender.datagrams(start, stop),
            "source": np.tile(here, (count, 1)),
            "source_port": np.full(count, SIM_PORT, "<u2"),
            "port": np.full(count, SIM_PORT, "<u2"),
        }

    def close(self) -> None:
        """Do nothing: the source holds no resources."""
