"""The simulated vehicle's bus as a source."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy.typing as npt

from drivers.can.model import SimulatedBus
from drivers.can.stream import Decoding, frame_sample, frame_stream
from drivers.kit.driver import Item, Sample, SensorConfig
from drivers.kit.sample_batches import DeferredData
from recorder.codecs.streams import StreamSpec

_SIM_BATCH_NS: Final = 20_000_000


class SimulatedSource:
    """The simulated vehicle's bus, endless; frames are made on access."""

    def __init__(self, sensor: SensorConfig, decoding: Decoding) -> None:
        self._sensor, self._decoding = sensor, decoding
        self._bus = SimulatedBus(sensor.options)

    def open(self) -> list[StreamSpec]:
        """Declare the streams."""
        bus, settings = self._bus, {"simulated": True} | self._decoding.settings
        streams = self._decoding.streams()
        return [frame_stream(self._sensor, bus.width, bus.rate_hz, settings), *streams]

    def items(self) -> Iterator[Item]:
        """Yield batches of frames, without end."""
        start_ns = 0
        while True:
            stop_ns = start_ns + _SIM_BATCH_NS
            if self._decoding.active:
                frames = self._bus.frames(start_ns, stop_ns)
                yield frame_sample(self._sensor.name, frames)
                yield from self._decoding.samples(frames)
            else:
                t_ns, _, _ = self._bus.times(start_ns, stop_ns)
                data = DeferredData[npt.NDArray[Any]](partial(self._make_data, start_ns, stop_ns))
                yield Sample(self._sensor.name, t_ns, data)
            start_ns = stop_ns

    def _make_data(self, start_ns: int, stop_ns: int) -> dict[str, npt.NDArray[Any]]:
        return dict(self._bus.frames(start_ns, stop_ns).channels())

    def close(self) -> None:
        """Do nothing: the source holds no resources."""
