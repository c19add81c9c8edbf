"""Source of datagrams from the network, stamped by the kernel."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers.kit.udp_socket import Batch, UdpReceiver, is_multicast, make_cap_warning, parse_address
from drivers.udp.stream import datagram_stream, parse_sender
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import DeviceError, SourceError

_BATCH: Final = 256
_GATHER_S: Final = 0.01
_READ_S: Final = 0.2
_FIRST_S: Final = 1.5  # longest wait for a first datagram
_TELL_NS: Final = 1_000_000_000  # shortest interval between two reports of others' datagrams


class LiveSource:
    """Datagrams from the network.

    Args:
        sensor: the sensor's entry, of scheme ``udp``.

    Attributes:
        warnings: possible causes of lost datagrams.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        options = sensor.options
        self._sensor, self._only = sensor, parse_sender(sensor)
        self._where = f"{sensor.name}: udp:{sensor.address}"
        text = sensor.address.removeprefix("//").rstrip("/")
        try:
            address, port = parse_address(text, "udp:HOST:PORT")
            asked = round(options["socket_buffer_mb"] * 1e6)
            self._receiver = UdpReceiver(
                address, port, asked, _READ_S, batch=_BATCH, interface=options["interface"]
            )
        except (DeviceError, SourceError) as error:
            raise type(error)(f"{self._where}: {error}") from None
        warning = make_cap_warning(self._receiver, sensor.name)
        self.warnings = [] if warning is None else [warning]
        self._timeout_ns = round(options["timeout_s"] * 1e9)
        self._queue: deque[Item] = deque()
        self._dropped = self._others = 0
        self._last_ns = 0
        self._told_ns = self._heard_ns = time.monotonic_ns()
        self._gather = False

    def open(self) -> list[StreamSpec]:
        """Wait for a first datagram and declare the stream; DeviceError if none arrives."""
        deadline_ns = time.monotonic_ns() + round(_FIRST_S * 1e9)
        while self._timeout_ns and not self._queue:
            if time.monotonic_ns() > deadline_ns:
                raise DeviceError(f"{self._where}: {self._explain_silence()}")
            self._receive()
        settings = {"address": self._receiver.address, "port": self._receiver.port}
        return [datagram_stream(self._sensor, settings, self._sensor.options["rate"])]

    @property
    def receives(self) -> Sequence[tuple[str, int]]:
        """Address and port at which no other program can receive."""
        address = self._receiver.address
        return () if is_multicast(address) else ((address, self._receiver.port),)

    def items(self) -> Iterator[Item | None]:
        """Yield items, or None while there are none."""
        receiver, name = self._receiver, self._sensor.name
        opened = {
            "address": receiver.address,
            "port": receiver.port,
            "socket_buffer_bytes": receiver.granted_bytes,
            "socket_buffer_bytes_asked": receiver.asked_bytes,
        }
        yield State(name, time.monotonic_ns(), opened, lasting=True)
        while True:
            if not self._queue:
                self._receive()
            while self._queue:
                yield self._queue.popleft()
            now_ns = time.monotonic_ns()
            if self._timeout_ns and now_ns - self._heard_ns > self._timeout_ns:
                raise DeviceError(f"{self._where}: {self._explain_silence()}")
            if self._others and now_ns - self._told_ns > _TELL_NS:
                yield State(name, now_ns, {"datagrams_of_others": self._others})
                self._others, self._told_ns = 0, now_ns
            yield None

    def close(self) -> None:
        self._receiver.close()

    def _receive(self) -> None:
        if self._gather:
            # The kernel stores and stamps datagrams meanwhile; a call for many costs less.
            time.sleep(_GATHER_S)
        batch = self._receiver.receive()
        self._gather = 0 < len(batch) < _BATCH
        if not len(batch):
            return
        sources, ports = batch.sources()
        times = np.maximum(np.maximum.accumulate(batch.t_ns), self._last_ns)
        self._last_ns = int(times[-1])
        kept = np.ones(len(batch), bool)
        if self._only is not None:
            kept = (sources == np.frombuffer(self._only, np.uint8)).all(axis=1)
            self._others += int(np.count_nonzero(~kept))
        if kept.any():
            self._heard_ns = time.monotonic_ns()
        # A loss belongs before the first datagram whose count has it.
        steps = np.flatnonzero(np.diff(batch.dropped, prepend=self._dropped))
        begin = 0
        for at in [*steps.tolist(), len(batch)]:
            chosen = np.flatnonzero(kept[begin:at]) + begin
            if len(chosen):
                self._queue.append(self._sample(batch, chosen, times, sources, ports))
            if at < len(batch):
                count = int(batch.dropped[at]) - self._dropped
                self._dropped += count
                lost = Lost(self._sensor.name, int(times[at]), "overflow", count)
                self._queue.append(lost)
            begin = at

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
