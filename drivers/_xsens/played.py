"""The Xsens driver's sources without a device: byte logs and the simulated IMU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy.typing as npt

from drivers._kit.driver import EndOfSource, Item, Sample, SensorConfig
from drivers._protocols.mtdata2 import MtData2, decode_mtdata2
from drivers._protocols.mti_clock import SampleClock
from drivers._protocols.mti_gnss import (
    Position,
    PositionRate,
    Positions,
    rate_of_messages,
    rate_of_outputs,
)
from drivers._protocols.mti_stream import Facts, MtiAssembler, inertial, what_there_is
from drivers._protocols.xbus import MID_MTDATA2, XbusMessage, XbusParser
from drivers._protocols.xbus_commands import gnss_outputs
from drivers._xsens.common import batch_size, facts_of, item_of, wanted_of, with_positions
from drivers.sim.deferred_data import DeferredData, part_of
from drivers.sim.mti_models import MODELS
from drivers.sim.mti_packets import ImuPackets
from drivers.sim.rig import simulated_imu
from recorder.contract.errors import RecorderError, SourceError

_CHUNK = 1 << 16
_SCANNED = 1000  # inertial messages that determine the content of a log
_SIM_BATCHES = 100


class SimSource:
    """Batches of the simulated IMU: stamps at once, bytes and their parsing on access."""

    def __init__(self, sensor: SensorConfig) -> None:
        rate_hz = float(sensor.options["rate"])
        imu = simulated_imu(sensor.name, sensor.options, rate_hz)
        model, outputs = MODELS[sensor.options["model"]], wanted_of(sensor)
        if model.pvt_hz and sensor.options["gnss"]:
            more = gnss_outputs(max(1, round(rate_hz)), sensor.options["gnss_rate"])
            outputs = tuple(sorted((*outputs, *more)))
        self._packets = ImuPackets(imu, outputs, model)
        self._batch = batch_size(sensor, 1e9 / rate_hz)
        settings = {name: sensor.options[name] for name in ("scene", "seed")} | {"simulated": True}
        self._facts = facts_of(self._packets.outputs, settings, sensor.name)
        spec = self._facts.stream(sensor.name, rate_hz, finite=False)
        rate = rate_of_outputs(self._packets.outputs)
        self.specs, self._positions = with_positions(sensor, spec, rate)
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
                self._data = DeferredData(lambda: self._arrays(self._decoded(first, count)))
            else:
                decoded = self._decoded(first, count)
                self._place(self._positions, decoded)
                self._data = DeferredData(lambda: self._arrays(filter(inertial, decoded)))
        start = self._next - self._first
        part = slice(start, start + self._batch)
        self._next += self._batch
        t_ns, t_dev_ns = self._stamps
        self._last_ns = int(t_ns[part][-1])
        return Sample(self.specs[0].name, t_ns[part], part_of(self._data, part), t_dev_ns[part])

    def _decoded(self, first: int, count: int) -> list[MtData2]:
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
            if inertial(values):
                sample = (*next(stamps), values.sample_time_fine)
            if (row := positions.add(values, 0, sample)) is not None:
                self._placed.append(row)

    def close(self) -> None:
        pass


class LogSource:
    """Reads a byte log in chunks: memory does not grow with the log."""

    def __init__(self, sensor: SensorConfig) -> None:
        path = sensor.path
        where = f"{sensor.name}: {sensor.scheme}:{path}"
        try:
            facts, rate = _scan(path, where, float(sensor.options["rate"]))
            self._file: BinaryIO = path.open("rb", buffering=0)
        except OSError as error:
            raise SourceError(f"{where}: {error.strerror or error}") from None
        rate_hz = float(sensor.options["rate"])
        period_ns = facts.period_ns or 1e9 / rate_hz
        spec = facts.stream(sensor.name, rate_hz, finite=True)
        self.specs, positions = with_positions(sensor, spec, rate)
        self._where = where
        self._parser = XbusParser()
        self._items: deque[Item] = deque()
        self._assembler = MtiAssembler(
            facts, batch_size(sensor, period_ns), SampleClock(period_ns), where, None, positions
        )
        self._end: Exception | None = None

    def read(self) -> Item:
        while not self._items:
            if self._end is not None:
                raise self._end
            try:
                self._read_chunk()
            except (RecorderError, EndOfSource) as end:
                self._assembler.flush(everything=True)  # samples before the error are valid
                self._end = end
            self._items.extend(
                item_of(self.specs[0].name, event) for event in self._assembler.take()
            )
        return self._items.popleft()

    def _read_chunk(self) -> None:
        try:
            chunk = self._file.read(_CHUNK)
        except OSError as error:
            raise SourceError(f"{self._where}: {error.strerror or error}") from None
        for message in self._parser.feed(chunk) if chunk else self._parser.finish():
            self._assembler.add(message)
        if not chunk:
            self._assembler.finish(self._parser.skipped)
            raise EndOfSource
        self._assembler.flush()

    def close(self) -> None:
        self._file.close()


def _log_messages(path: Path) -> Iterator[XbusMessage]:
    parser = XbusParser()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            yield from parser.feed(chunk)
    yield from parser.finish()


def _scan(path: Path, where: str, rate_hz: float) -> tuple[Facts, PositionRate | None]:
    """Read the log up to its first `_SCANNED` inertial messages.

    Returns:
        what all messages have in common; the rate of positions, if there are any.

    Raises:
        SourceError: the log has no such message; the error names its content.
        OSError: the file cannot be read.
    """
    messages = (message for message in _log_messages(path) if message.mid == MID_MTDATA2)
    found: list[MtData2] = []
    receiver = False
    for values in map(decode_mtdata2, (message.data for message in messages)):
        receiver |= values.gnss_pvt is not None
        if inertial(values):
            found.append(values)
            if len(found) == _SCANNED:
                break
    if not found:
        raise SourceError(f"{where}: {what_there_is(_log_messages(path))}")
    facts = Facts.of_messages(found)
    sample_hz = 1e9 / facts.period_ns if facts.period_ns else rate_hz
    return facts, rate_of_messages(found, sample_hz, receiver)
