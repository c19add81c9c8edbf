"""The simulated IMU as a source: the parser for real devices parses its bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

from drivers.kit.driver import Item, Sample, SensorConfig
from drivers.kit.sample_batches import DeferredData, select_samples
from drivers.world import world_settings
from drivers.world.imu import make_imu
from drivers.xsens.commands import make_gnss_outputs
from drivers.xsens.device_types import MODELS
from drivers.xsens.model import ImuPackets
from drivers.xsens.mtdata2 import MtData2, decode_mtdata2
from drivers.xsens.packets import XbusParser
from drivers.xsens.positions import Position, Positions, find_output_rate
from drivers.xsens.samples import (
    add_positions,
    batch_size,
    choose_outputs,
    derive_facts,
    is_inertial,
)

_SIM_BATCHES = 100


class SimulatedSource:
    """Batches of the simulated IMU: stamps at once, bytes and their parsing on access."""

    def __init__(self, sensor: SensorConfig) -> None:
        rate_hz = float(sensor.options["rate"])
        imu = make_imu(sensor.name, sensor.options, rate_hz)
        model, outputs = MODELS[sensor.options["model"]], choose_outputs(sensor)
        if model.pvt_hz and sensor.options["gnss"]:
            more = make_gnss_outputs(max(1, round(rate_hz)), sensor.options["gnss_rate"])
            outputs = tuple(sorted((*outputs, *more)))
        self._packets = ImuPackets(imu, outputs, model)
        self._batch = batch_size(sensor, 1e9 / rate_hz)
        settings = world_settings(sensor.options) | {"simulated": True}
        self._facts = derive_facts(self._packets.outputs, settings, sensor.name)
        spec = self._facts.stream(sensor.name, rate_hz, finite=False)
        rate = find_output_rate(self._packets.outputs)
        self.specs, self._positions = add_positions(sensor, spec, rate)
        self._placed: deque[Position] = deque()
        self._last_ns = -1
        self._next = 0
        self._first = 0
        self._stamps = imu.stamps(0, 0)
        self._data = DeferredData[npt.NDArray[Any]](dict)

    def read(self) -> Item:
        if self._placed and self._placed[0].t_ns <= self._last_ns:
            row = self._placed.popleft()
            t_ns, t_dev_ns = row.stamps
            return Sample(self.specs[1].name, t_ns, row.data, t_dev_ns)
        if self._next == self._first + len(self._stamps[0]):
            first, count = self._next, self._batch * _SIM_BATCHES
            self._first, self._stamps = first, self._packets.imu.stamps(first, count)
            if self._positions is None:
                self._data = DeferredData(lambda: self._arrays(self._decode(first, count)))
            else:
                decoded = self._decode(first, count)
                self._place(self._positions, decoded)
                self._data = DeferredData(lambda: self._arrays(filter(is_inertial, decoded)))
        start = self._next - self._first
        part = slice(start, start + self._batch)
        self._next += self._batch
        t_ns, t_dev_ns = self._stamps
        self._last_ns = int(t_ns[part][-1])
        return Sample(
            self.specs[0].name, t_ns[part], select_samples(self._data, part), t_dev_ns[part]
        )

    def _decode(self, first: int, count: int) -> list[MtData2]:
        """Generate the bytes of a port and parse them with the parser of all other sources."""
        stream = b"".join(self._packets.messages(first, count))
        return [decode_mtdata2(message.data) for message in XbusParser().feed(stream)]

    def _arrays(self, decoded: Iterable[MtData2]) -> dict[str, npt.NDArray[Any]]:
        return self._facts.arrays(map(self._facts.row, decoded))

    def _place(self, positions: Positions, decoded: list[MtData2]) -> None:
        """Make the positions of the present samples."""
        stamps = zip(*(part.tolist() for part in self._stamps), strict=True)
        sample = None
        for values in decoded:
            if is_inertial(values):
                sample = (*next(stamps), values.sample_time_fine)
            if (row := positions.add(values, 0, sample)) is not None:
                self._placed.append(row)

    def close(self) -> None:
        pass
