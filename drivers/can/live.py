"""Source of a CAN interface's frames, stamped by the kernel."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from drivers.can.connection import (
    CanReceiver,
    find_interface_fault,
    is_fd_interface,
    parse_stand_in,
)
from drivers.can.errors import BusErrors
from drivers.can.frames import CLASSIC_BYTES, ERROR, FD_BYTES, Frames
from drivers.can.stream import Decoding, frame_sample, frame_stream
from drivers.kit.driver import Item, Lost, SensorConfig, State
from drivers.kit.udp_socket import Batch
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import DeviceError, SourceError

_BATCH: Final = 1024
_GATHER_S: Final = 0.02
_GATHER_DECODED_S: Final = 0.04  # decoding a batch costs about the same, whatever its size
_GATHER_SMALL_S: Final = 0.005  # with a small buffer
_READ_S: Final = 0.2
_FIRST_S: Final = 1.5  # longest wait for a first frame
_TELL_NS: Final = 1_000_000_000  # shortest interval between two reports of counts


class LiveSource:
    """Source of the frames of an interface or of a stand-in.

    Args:
        sensor: the sensor's entry, of scheme ``can``.
        decoding: of its signals.

    Attributes:
        warnings: possible causes of lost frames.

    Raises:
        SourceError: the address has a wrong form.
        DeviceError: the interface is missing or down, or the socket fails.
    """

    def __init__(self, sensor: SensorConfig, decoding: Decoding) -> None:
        self._sensor, self._decoding = sensor, decoding
        self._where = f"{sensor.name}: can:{sensor.address}"
        address, options = sensor.address.removeprefix("//").rstrip("/"), sensor.options
        asked = round(options["socket_buffer_mb"] * 1e6)
        try:
            self._interface = address if parse_stand_in(address) is None else None
            fd = options["fd"]
            if fd is None:
                fd = self._interface is None or is_fd_interface(self._interface)
            width = FD_BYTES if fd else CLASSIC_BYTES
            self._receiver = CanReceiver(
                address, width=width, buffer_bytes=asked, timeout_s=_READ_S, batch=_BATCH
            )
        except (DeviceError, SourceError) as error:
            raise type(error)(f"{self._where}: {error}") from None
        self.warnings = self._warnings()
        self._gather_s = _GATHER_DECODED_S if decoding.active else _GATHER_S
        if self.warnings:
            self._gather_s = min(self._gather_s, _GATHER_SMALL_S)
        self._timeout_ns = round(options["timeout_s"] * 1e9)
        self._queue: deque[Item] = deque()
        self._errors = BusErrors()
        self._dropped = 0
        self._last_ns = 0
        self._told_ns = self._heard_ns = time.monotonic_ns()
        self._gather = False

    def _warnings(self) -> list[str]:
        granted, asked = self._receiver.granted_bytes, self._receiver.asked_bytes
        if granted >= asked:
            return []
        return [
            f"{self._sensor.name}: the kernel gives {self._sensor.address} a receive buffer of "
            f"{granted / 1e6:.1f} MB instead of {asked / 1e6:.1f} MB, so frames are lost if this "
            f"machine is busy for a moment; raise the limit net.core.rmem_max: "
            f"sudo sysctl -w net.core.rmem_max={asked}"
        ]

    def open(self) -> list[StreamSpec]:
        """Wait for a first frame and declare the streams; DeviceError if none arrives."""
        streams = self._decoding.streams()
        deadline_ns = time.monotonic_ns() + round(_FIRST_S * 1e9)
        while self._timeout_ns and not self._queue:
            if time.monotonic_ns() > deadline_ns:
                raise DeviceError(f"{self._where}: {self._explain_silence()}")
            self._receive()
        settings = {"address": self._sensor.address} | self._decoding.settings
        rate_hz = self._sensor.options["rate"]
        return [frame_stream(self._sensor, self._receiver.width, rate_hz, settings), *streams]

    def items(self) -> Iterator[Item | None]:
        """Yield items, or None while there are none."""
        name = self._sensor.name
        opened = {
            "address": self._sensor.address,
            "fd": self._receiver.width > CLASSIC_BYTES,
            "socket_buffer_bytes": self._receiver.granted_bytes,
            "socket_buffer_bytes_asked": self._receiver.asked_bytes,
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
            if now_ns - self._told_ns > _TELL_NS:
                self._told_ns = now_ns
                yield from self._reports(now_ns)
            yield None

    def _reports(self, t_ns: int) -> Iterator[Item]:
        counts: dict[str, Any] | None = self._errors.report()
        if counts is not None:
            yield State(self._sensor.name, t_ns, counts)
        if (short := self._decoding.report(t_ns)) is not None:
            yield short

    def close(self) -> None:
        self._receiver.close()

    def _receive(self) -> None:
        if self._gather:
            # The kernel stores and stamps frames meanwhile; a call for many costs less.
            time.sleep(self._gather_s)
        try:
            batch = self._receiver.receive()
        except DeviceError as error:
            raise DeviceError(f"{self._where}: {self._fault() or error}") from None
        self._gather = 0 < len(batch) < _BATCH
        if not len(batch):
            return
        self._heard_ns = time.monotonic_ns()
        times = np.maximum(np.maximum.accumulate(batch.t_ns), self._last_ns)
        self._last_ns = int(times[-1])
        frames, rows = self._receiver.frames(batch)
        self._take(batch, Frames(times[rows], frames.id, frames.length, frames.flags, frames.data),
                   rows, times)  # fmt: skip

    def _take(
        self,
        batch: Batch,
        frames: Frames,
        rows: np.ndarray[tuple[int], np.dtype[np.intp]],
        times: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> None:
        """Queue the frames; losses come before the first frame whose count includes them."""
        name = self._sensor.name
        begin = 0
        steps = np.flatnonzero(np.diff(batch.dropped, prepend=self._dropped))
        for at in [*steps.tolist(), len(batch)]:
            end = int(np.searchsorted(rows, at))
            if end > begin:
                self._queue.append(frame_sample(name, frames.part(slice(begin, end))))
            if at < len(batch):
                count = int(batch.dropped[at]) - self._dropped
                self._dropped += count
                self._queue.append(Lost(name, int(times[at]), "overflow", count))
            begin = end
        if malformed := len(batch) - len(rows):
            self._queue.append(Lost(name, int(times[-1]), "corrupt", malformed))
        for k in np.flatnonzero(frames.id & ERROR).tolist():
            self._error(int(frames.t_ns[k]), int(frames.id[k]), frames.data[k].tobytes())
        self._queue.extend(self._decoding.samples(frames))

    def _error(self, t_ns: int, frame_id: int, data: bytes) -> None:
        name = self._sensor.name
        if self._errors.feed(frame_id, data):
            detail = {"reason": "the controller's receive buffer was full"}
            self._queue.append(Lost(name, t_ns, "device", None, detail=detail))
        if (state := self._errors.take_changed_state()) is not None:
            self._queue.append(State(name, t_ns, state, lasting=True))

    def _fault(self) -> str | None:
        return None if self._interface is None else find_interface_fault(self._interface)

    def _explain_silence(self) -> str:
        if self._interface is not None and self._errors.state == "bus-off":
            return (
                f"the interface is bus-off: sudo ip link set {self._interface} type can restart, "
                f"or restart-ms 100 when it is set up"
            )
        return self._fault() or "no frame arrives"
