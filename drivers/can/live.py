"""Source of a CAN interface's frames, stamped by the kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.can.connection import (
    CanReceiver,
    find_interface_fault,
    is_fd_interface,
    parse_stand_in,
)
from drivers.can.errors import BusErrors
from drivers.can.frames import CLASSIC_BYTES, ERROR, FD_BYTES, Frame, Frames
from drivers.can.stream import Decoding, error_items, frame_sample, frame_stream
from drivers.kit.driver import Item, Lost, SensorConfig, State
from drivers.kit.socket_source import TELL_NS, SocketSource
from drivers.kit.udp_socket import Batch, make_cap_warning
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import DeviceError, SourceError

_GATHER_S: Final = 0.02
_GATHER_DECODED_S: Final = 0.04  # decoding a batch costs about the same, whatever its size
_GATHER_SMALL_S: Final = 0.005  # with a small buffer
_READ_S: Final = 0.2


class LiveSource(SocketSource):
    """Source of the frames of an interface or of a stand-in.

    Args:
        sensor: the sensor's entry, of scheme ``can``.
        decoding: of its signals.

    Raises:
        SourceError: the address has a wrong form.
        DeviceError: the interface is missing or down, or the socket fails.
    """

    _batch = 1024
    _receiver: CanReceiver

    def __init__(self, sensor: SensorConfig, decoding: Decoding) -> None:
        super().__init__(sensor)
        self._decoding = decoding
        address = self._address
        try:
            self._interface = address if parse_stand_in(address) is None else None
            fd = sensor.options["fd"]
            if fd is None:
                fd = self._interface is None or is_fd_interface(self._interface)
            self._receiver = CanReceiver(
                address,
                width=FD_BYTES if fd else CLASSIC_BYTES,
                buffer_bytes=self._asked_bytes,
                timeout_s=_READ_S,
                batch=self._batch,
            )
        except (DeviceError, SourceError) as error:
            raise type(error)(f"{self._where}: {error}") from None
        warning = make_cap_warning(self._receiver, sensor.name, sensor.address, "frames")
        self.warnings = [] if warning is None else [warning]
        self._gather_s = _GATHER_DECODED_S if decoding.active else _GATHER_S
        if self.warnings:
            self._gather_s = min(self._gather_s, _GATHER_SMALL_S)
        self._errors = BusErrors()

    def open(self) -> list[StreamSpec]:
        """Wait for a first frame and declare the streams; DeviceError if none arrives."""
        streams = self._decoding.streams()
        self._await_first()
        settings = {"address": self._sensor.address} | self._decoding.settings
        rate_hz = self._sensor.options["rate"]
        return [frame_stream(self._sensor, self._receiver.width, rate_hz, settings), *streams]

    def _settings(self) -> dict[str, Any]:
        return {"address": self._sensor.address, "fd": self._receiver.width > CLASSIC_BYTES}

    def _reports(self, now_ns: int) -> Iterator[Item]:
        if now_ns - self._told_ns > TELL_NS:
            self._told_ns = now_ns
            if (counts := self._errors.report()) is not None:
                yield State(self._sensor.name, now_ns, counts)
            if (short := self._decoding.report(now_ns)) is not None:
                yield short

    def _receive(self) -> None:
        try:
            super()._receive()
        except DeviceError as error:
            raise DeviceError(f"{self._where}: {self._fault() or error}") from None

    def _take(self, batch: Batch, times: npt.NDArray[np.int64]) -> None:
        self._heard_ns = time.monotonic_ns()
        name = self._sensor.name
        found, rows = self._receiver.frames(batch)
        frames = Frames(times[rows], found.id, found.length, found.flags, found.data)
        for begin, end in self._split_at_losses(batch, times):
            part = frames.part(slice(*np.searchsorted(rows, (begin, end)).tolist()))
            if len(part):
                self._queue.append(frame_sample(name, part))
        if malformed := len(batch) - len(rows):
            self._queue.append(Lost(name, int(times[-1]), "corrupt", malformed))
        for k in np.flatnonzero(frames.id & ERROR).tolist():
            frame = Frame(int(frames.t_ns[k]), int(frames.id[k]), frames.data[k].tobytes())
            self._queue.extend(error_items(self._errors, name, frame))
        self._queue.extend(self._decoding.samples(frames))

    def _fault(self) -> str | None:
        return None if self._interface is None else find_interface_fault(self._interface)

    def _explain_silence(self) -> str:
        if self._interface is not None and self._errors.state == "bus-off":
            return (
                f"the interface is bus-off: sudo ip link set {self._interface} type can restart, "
                f"or restart-ms 100 when it is set up"
            )
        return self._fault() or "no frame arrives"
