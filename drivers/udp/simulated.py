"""The simulated sender as a source."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Sample, SensorConfig
from drivers.kit.sample_batches import DeferredData
from drivers.udp.model import SIM_PORT, SimulatedSender
from drivers.udp.stream import datagram_stream, map_address
from recorder.codecs.streams import StreamSpec

_BATCH: Final = 256
_SIM_BATCH_S: Final = 0.01


class SimulatedSource:
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
        here = np.frombuffer(map_address(bytes((127, 0, 0, 1))), np.uint8)
        return {
            "payload": self._sender.datagrams(start, stop),
            "source": np.tile(here, (count, 1)),
            "source_port": np.full(count, SIM_PORT, "<u2"),
            "port": np.full(count, SIM_PORT, "<u2"),
        }

    def close(self) -> None:
        """Do nothing: the source holds no resources."""
