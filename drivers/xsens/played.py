"""Source that plays logs of an MTi's bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from drivers.kit.driver import EndOfSource, Item, SensorConfig
from drivers.xsens.mtdata2 import MtData2, decode_mtdata2
from drivers.xsens.packets import MID_MTDATA2, XbusMessage, XbusParser
from drivers.xsens.positions import PositionRate, estimate_message_rate
from drivers.xsens.sample_clock import SampleClock
from drivers.xsens.samples import (
    Facts,
    MtiAssembler,
    add_positions,
    batch_size,
    describe_content,
    is_inertial,
    make_item,
)
from recorder.common.errors import RecorderError, SourceError

_CHUNK = 1 << 16
_SCANNED = 1000  # inertial messages that determine the content of a log


class LogSource:
    """Source that reads a byte log in chunks: memory does not grow with the log."""

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
        self.specs, positions = add_positions(sensor, spec, rate)
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
                make_item(self.specs[0].name, event) for event in self._assembler.take()
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
        the properties of all messages; the rate of positions, if there are any.

    Raises:
        SourceError: the log has no such message; the error names its content.
        OSError: the file cannot be read.
    """
    messages = (message for message in _log_messages(path) if message.mid == MID_MTDATA2)
    found: list[MtData2] = []
    receiver = False
    for values in map(decode_mtdata2, (message.data for message in messages)):
        receiver |= values.gnss_pvt is not None
        if is_inertial(values):
            found.append(values)
            if len(found) == _SCANNED:
                break
    if not found:
        raise SourceError(f"{where}: {describe_content(_log_messages(path))}")
    facts = Facts.from_messages(found)
    sample_hz = 1e9 / facts.period_ns if facts.period_ns else rate_hz
    return facts, estimate_message_rate(found, sample_hz, receiver)
