"""Packets of a lidar that sends those of its state, or of its IMU, to ports of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.control import Control
from drivers.kit.lidar.family import Family
from drivers.kit.lidar.form import FormChangedError
from drivers.kit.lidar.live import LiveSource
from drivers.kit.udp_socket import Batch, UdpReceiver, is_multicast
from recorder.common.errors import DeviceError

_BUFFER_BYTES: Final = 1 << 20
_PACKET_BYTES: Final = 1500
_BATCH: Final = 64
_WAIT_NS: Final = 1_200_000_000
"""Time for which packets with ranges wait for what the device tells of itself."""


class SidePortSource(LiveSource):
    """Source of the packets with ranges at one port, and of others at further ports.

    Args:
        family, control: see `LiveSource`.
        ports: UDP ports of the further packets.
    """

    def __init__(self, family: Family, control: Control | None, ports: Sequence[int]) -> None:
        super().__init__(family, control)
        self._until_ns = time.monotonic_ns() + _WAIT_NS
        self._sides: list[UdpReceiver] = []
        device = family.device
        interface = self._sensor.options["interface"] or (device.here if device else "")
        try:
            for port in ports:
                self._sides.append(
                    UdpReceiver(
                        *(self._receiver.address, port, _BUFFER_BYTES, 0.0),
                        packet_bytes=_PACKET_BYTES,
                        batch=_BATCH,
                        interface=interface,
                    )
                )
        except DeviceError as error:
            self.close()
            raise DeviceError(f"{self._where}: {error}") from None

    @property
    def receives(self) -> Sequence[tuple[str, int]]:
        """Addresses and ports at which no other program can receive."""
        sides = [(each.address, each.port) for each in self._sides]
        return [*super().receives, *(each for each in sides if not is_multicast(each[0]))]

    def close(self) -> None:
        for each in self._sides:
            each.close()
        super().close()

    def _receive(self) -> None:
        for each in self._sides:
            batch = each.receive(0.0)
            for at in range(len(batch)):
                self._take_side_packet(batch, at)
        super()._receive()

    def _take(self, batch: Batch, times: npt.NDArray[np.int64]) -> None:
        waits = self._stream is None and time.monotonic_ns() < self._until_ns
        if not (waits and self._family.awaits_side_packets()):
            super()._take(batch, times)

    def _take_side_packet(self, batch: Batch, at: int) -> None:
        payload = batch.data[at, : batch.sizes[at]].tobytes()
        device = self._family.device
        if self._stream is None:
            if device is None or batch.source(at) == device.packed:
                self._family.take_side_packet(payload)
            return
        if not (batch.sources()[0][at] == self._device).all():
            self._others += 1
            return
        try:
            items = self._family.convert_side_packet(payload, int(batch.t_ns[at]))
        except FormChangedError as error:
            self._change = DeviceError(f"{self._where}: {error}")
            return
        self._others += items is None
        self._queue.extend(items or ())
