"""Packets of a spinning lidar from the network."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, State
from drivers.kit.lidar.control import Control, ControlWatch
from drivers.kit.lidar.family import Family, PacketStream
from drivers.kit.lidar.form import FormChangedError
from drivers.kit.socket_source import TELL_NS, SocketSource
from drivers.kit.udp_socket import Batch, UdpReceiver, is_multicast, make_cap_warning, parse_address
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import SystemClock, read_clocks
from recorder.common.errors import DeviceError, SourceError

_READ_S: Final = 0.2
_PACKET_BYTES: Final = 1500


def _select(
    data: npt.NDArray[np.uint8], rows: npt.NDArray[np.intp], size: int
) -> npt.NDArray[np.uint8]:
    """Return a copy of the first bytes of rows, which rise; all in a row take half of the time."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return data[first : last + 1, :size].copy()
    return data[rows, :size]


class LiveSource(SocketSource):
    """Source of the packets that arrive at an address of this machine.

    The first packet of the family decides which device's packets are recorded.

    Args:
        family: the vendor's family; its sensor has the options ``socket_buffer_mb``,
            ``timeout_s`` and ``interface``.
        control: brings the lidar up, which tells where it sends; None: the sensor's address is
            that of this machine at which to receive.
    """

    _batch, _gather_s = 2048, 0.03
    _receiver: UdpReceiver

    def __init__(self, family: Family, control: Control | None = None) -> None:
        super().__init__(family.sensor)
        self._family = family
        self._stream: PacketStream | None = None
        self._device = np.empty(0, np.uint8)
        self._others = 0
        self._change: DeviceError | None = None  # follows what is queued
        self._offset_ns = read_clocks(SystemClock()).offset_ns  # steps of the host are none here
        self._watch: ControlWatch | None = None
        self._opened: dict[str, Any] = {}
        interface = self._sensor.options["interface"]
        try:
            if control is None:
                address, port = parse_address(self._address, "udp:HOST:PORT")
            else:
                device = family.device = control.bring_up()
                address, port = device.receiving_address, device.port
                interface = interface or device.here
                self._opened = {"device": dict(device.identity), "settings": dict(device.settings)}
            self._receiver = UdpReceiver(
                address,
                port,
                self._asked_bytes,
                _READ_S,
                packet_bytes=_PACKET_BYTES,
                batch=self._batch,
                interface=interface,
            )
            if control is not None:
                self._watch = ControlWatch(control)
        except (DeviceError, SourceError) as error:
            raise type(error)(f"{self._where}: {error}") from None
        warning = make_cap_warning(self._receiver, self._sensor.name)
        self.warnings = [] if warning is None else [warning]

    def open(self) -> Sequence[StreamSpec]:
        """Wait for a first packet and declare the stream; DeviceError if none arrives."""
        self._await_first()
        if self._stream is None:
            raise DeviceError(f"{self._where}: {self._explain_silence()}")
        return self._stream.specs(finite=False)

    @property
    def receives(self) -> Sequence[tuple[str, int]]:
        """Address and port at which no other program can receive."""
        address = self._receiver.address
        return () if is_multicast(address) else ((address, self._receiver.port),)

    def _settings(self) -> dict[str, Any]:
        return {"address": self._receiver.address, "port": self._receiver.port, **self._opened}

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        super().close()

    def _reports(self, now_ns: int) -> Iterator[Item]:
        if self._change is not None:
            raise self._change
        for values in self._watch.news() if self._watch is not None else ():
            yield State(self._sensor.name, now_ns, values, lasting=True)
        if self._others and now_ns - self._told_ns > TELL_NS:
            yield State(self._sensor.name, now_ns, {"datagrams_of_others": self._others})
            self._others, self._told_ns = 0, now_ns

    def _take(self, batch: Batch, times: npt.NDArray[np.int64]) -> None:
        stream, begin, device = self._stream, 0, self._family.device
        if stream is None:
            for at in range(len(batch)):
                payload = batch.data[at, : batch.sizes[at]].tobytes()
                known = device is None or batch.source(at) == device.packed
                if known and self._family.is_packet(payload):
                    stream = self._stream = self._family.start(payload, live=True)
                    self._device, begin = batch.sources()[0][at].copy(), at
                    break
                self._others += 1
            if stream is None:
                return
        size = stream.packet_bytes
        ours = (batch.sources()[0][begin:] == self._device).all(axis=1)
        right = batch.sizes[begin:] == size
        self._others += int(np.count_nonzero(~ours))
        chosen = np.flatnonzero(ours & right) + begin
        try:
            if len(chosen):
                self._heard_ns = time.monotonic_ns()
                arrived = times[chosen]
                packets = _select(batch.data, chosen, size)
                self._queue.extend(stream.take(packets, arrived, arrived + self._offset_ns))
            for at in (np.flatnonzero(ours & ~right) + begin).tolist():
                payload = batch.data[at, : batch.sizes[at]].tobytes()
                self._queue.extend(stream.take_other(payload))
        except FormChangedError as error:
            self._change = DeviceError(f"{self._where}: {error}")
        if dropped := int(batch.dropped[-1]) - self._dropped:  # the stream counts what they held
            self._dropped += dropped
            state = {"packets_dropped_by_kernel": dropped}
            self._queue.append(State(self._sensor.name, int(times[-1]), state))

    def _explain_silence(self) -> str:
        port = self._receiver.port
        others = f", {self._others} other datagrams do" if self._others else ""
        models = self._family.sensor.options.get("model") or " or ".join(self._family.models)
        last = f"; {self._family.fault}" if others and self._family.fault else ""
        return f"no packet of {models} arrives at UDP port {port}{others}{last}"
