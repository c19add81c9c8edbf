"""The common part of sources that receive a device's messages from a socket, in batches."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, NewStream, SensorConfig, State
from drivers.kit.udp_socket import Batch, SocketReceiver
from recorder.common.errors import DeviceError

_FIRST_S: Final = 1.5  # longest wait for a first message
TELL_NS: Final = 1_000_000_000
"""Shortest interval between two reports of counts."""


class SocketSource(ABC):
    """Source of the messages that a socket receives, stamped by the kernel.

    Messages that the kernel dropped because the socket's buffer was full are `Lost`, cause
    ``overflow``, before the next message that arrived.

    Args:
        sensor: the sensor's entry, with the options ``socket_buffer_mb`` and ``timeout_s``.

    Attributes:
        warnings: possible causes of lost messages.
    """

    _receiver: SocketReceiver
    _batch: int  # largest number of messages per call
    _gather_s: float  # pause in which the kernel stores messages; a call for many costs less

    def __init__(self, sensor: SensorConfig) -> None:
        self._sensor = sensor
        self._where = f"{sensor.name}: {sensor.scheme}:{sensor.address}"
        self._address = sensor.address.removeprefix("//").rstrip("/")
        self._asked_bytes = round(sensor.options["socket_buffer_mb"] * 1e6)
        self._timeout_ns = round(sensor.options["timeout_s"] * 1e9)
        self.warnings: list[str] = []
        self._queue: deque[Item | NewStream] = deque()
        self._dropped = self._last_ns = 0
        self._told_ns = self._heard_ns = time.monotonic_ns()
        self._gather = False

    @abstractmethod
    def _take(self, batch: Batch, times: npt.NDArray[np.int64]) -> None:
        """Queue the items of a batch, whose stamps never decrease."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return the socket's settings for the first state."""

    @abstractmethod
    def _reports(self, now_ns: int) -> Iterator[Item]:
        """Yield the counts that are due, at most every `TELL_NS`."""

    @abstractmethod
    def _explain_silence(self) -> str:
        """Return the reason why no message arrives."""

    def _await_first(self) -> None:
        """Wait for a first message; DeviceError if none arrives."""
        deadline_ns = time.monotonic_ns() + round(_FIRST_S * 1e9)
        while self._timeout_ns and not self._queue:
            if time.monotonic_ns() > deadline_ns:
                raise DeviceError(f"{self._where}: {self._explain_silence()}")
            self._receive()

    def items(self) -> Iterator[Item | NewStream | None]:
        """Yield items, or None while there are none."""
        opened = self._settings() | {
            "socket_buffer_bytes": self._receiver.granted_bytes,
            "socket_buffer_bytes_asked": self._receiver.asked_bytes,
        }
        yield State(self._sensor.name, time.monotonic_ns(), opened, lasting=True)
        while True:
            if not self._queue:
                self._receive()
            while self._queue:
                yield self._queue.popleft()
            now_ns = time.monotonic_ns()
            if self._timeout_ns and now_ns - self._heard_ns > self._timeout_ns:
                raise DeviceError(f"{self._where}: {self._explain_silence()}")
            yield from self._reports(now_ns)
            yield None

    def close(self) -> None:
        self._receiver.close()

    def _receive(self) -> None:
        if self._gather:
            time.sleep(self._gather_s)
        batch = self._receiver.receive()
        self._gather = 0 < len(batch) < self._batch
        if len(batch):
            times = np.maximum(np.maximum.accumulate(batch.t_ns), self._last_ns)
            self._last_ns = int(times[-1])
            self._take(batch, times)

    def _split_at_losses(
        self, batch: Batch, times: npt.NDArray[np.int64]
    ) -> Iterator[tuple[int, int]]:
        """Yield begin and end of the rows between losses; queue each loss after its turn."""
        begin = 0
        steps = np.flatnonzero(np.diff(batch.dropped, prepend=self._dropped))
        for at in [*steps.tolist(), len(batch)]:
            yield begin, at
            if at < len(batch):
                count = int(batch.dropped[at]) - self._dropped
                self._dropped += count
                self._queue.append(Lost(self._sensor.name, int(times[at]), "overflow", count))
            begin = at
