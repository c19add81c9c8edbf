"""Source of datagrams from the network, stamped by the kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Sample, SensorConfig, State
from drivers.kit.socket_source import TELL_NS, SocketSource
from drivers.kit.udp_socket import Batch, UdpReceiver, is_multicast, make_cap_warning, parse_address
from drivers.udp.stream import datagram_stream, parse_sender
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import DeviceError, SourceError

_READ_S: Final = 0.2


class LiveSource(SocketSource):
    """Datagrams from the network.

    Args:
        sensor: the sensor's entry, of scheme ``udp``.
    """

    _batch, _gather_s = 256, 0.01
    _receiver: UdpReceiver

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._only = parse_sender(sensor)
        self._others = 0
        try:
            address, port = parse_address(self._address, "udp:HOST:PORT")
            self._receiver = UdpReceiver(
                address,
                port,
                self._asked_bytes,
                _READ_S,
                batch=self._batch,
                interface=sensor.options["interface"],
            )
        except (DeviceError, SourceError) as error:
            raise type(error)(f"{self._where}: {error}") from None
        warning = make_cap_warning(self._receiver, sensor.name)
        self.warnings = [] if warning is None else [warning]

    def open(self) -> list[StreamSpec]:
        """Wait for a first datagram and declare the stream; DeviceError if none arrives."""
        self._await_first()
        return [datagram_stream(self._sensor, self._settings(), self._sensor.options["rate"])]

    def _settings(self) -> dict[str, Any]:
        return {"address": self._receiver.address, "port": self._receiver.port}

    @property
    def receives(self) -> Sequence[tuple[str, int]]:
        """Address and port at which no other program can receive."""
        address = self._receiver.address
        return () if is_multicast(address) else ((address, self._receiver.port),)

    def _reports(self, now_ns: int) -> Iterator[Item]:
        if self._others and now_ns - self._told_ns > TELL_NS:
            yield State(self._sensor.name, now_ns, {"datagrams_of_others": self._others})
            self._others, self._told_ns = 0, now_ns

    def _take(self, batch: Batch, times: npt.NDArray[np.int64]) -> None:
        sources, ports = batch.sources()
        kept = np.ones(len(batch), bool)
        if self._only is not None:
            kept = (sources == np.frombuffer(self._only, np.uint8)).all(axis=1)
            self._others += int(np.count_nonzero(~kept))
        if kept.any():
            self._heard_ns = time.monotonic_ns()
        for begin, end in self._split_at_losses(batch, times):
            chosen = np.flatnonzero(kept[begin:end]) + begin
            if len(chosen):
                self._queue.append(self._sample(batch, chosen, times, sources, ports))

    def _sample(
        self,
        batch: Batch,
        chosen: npt.NDArray[np.intp],
        times: npt.NDArray[np.int64],
        sources: npt.NDArray[np.uint8],
        ports: npt.NDArray[np.uint16],
    ) -> Sample:
        rows, sizes = batch.data, batch.sizes.tolist()
        return Sample(
            self._sensor.name,
            times[chosen],
            {
                "payload": [rows[k, : sizes[k]].tobytes() for k in chosen.tolist()],
                "source": sources[chosen],
                "source_port": ports[chosen].astype("<u2"),
                "port": np.full(len(chosen), self._receiver.port, "<u2"),
            },
        )

    def _explain_silence(self) -> str:
        port = self._receiver.port
        if self._only is None:
            return f"no datagram arrives at UDP port {port}"
        sender = self._sensor.options["sender"]
        return f"no datagram from {sender} arrives at UDP port {port}" + (
            f", {self._others} from others do" if self._others else ""
        )
