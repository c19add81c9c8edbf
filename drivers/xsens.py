"""Xsens MTi inertial measurement units: logs of their serial byte stream, and a simulated one.

The stream has the sensor's name and roverd's three IMU channels, ``acc``, ``avel`` and ``rot``;
where the log has them, ``quat`` (the orientation as the device gave it, without the singularity
of Euler angles) and ``mag`` come with them.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from drivers._kit.driver import Driver, EndOfSource, Item, Lost, Sample, SensorConfig, State
from drivers._kit.runner import main
from drivers._protocols.mtdata2 import MtData2, data_name, decode_mtdata2
from drivers._protocols.mti_clock import TICK_NS, Gap, SampleClock
from drivers._protocols.xbus import MID_MTDATA2, XbusMessage, XbusParser
from drivers.sim.imu import SimulatedImu
from drivers.sim.rig import SIM_IMU_OPTIONS, simulated_imu
from recorder.contract.errors import RecorderError, SourceError, StreamChangedError
from recorder.contract.options import Option, OptionTable
from recorder.contract.streams import ChannelSpec, StreamSpec

_CHUNK = 1 << 16
_SCANNED = 1000  # inertial messages that tell what a log holds
_SIM_BATCHES = 100
_U32 = 1 << 32

_ACC = ChannelSpec("acc", "raw", "f4", (3,), "acceleration, gravity included", "m/s^2")
_AVEL = ChannelSpec("avel", "raw", "f4", (3,), "rate of turn", "rad/s")
_MAG = ChannelSpec("mag", "raw", "f4", (3,), "magnetic field, about 1 where calibrated", "a.u.")


class XsensDriver(Driver):
    """Xsens MTi inertial measurement units (MTData2).

    A sample is an MTData2 message with acceleration and rate of turn and, where the log has an
    orientation in every such message, an orientation (a device that has just started sends a
    message without one: it is told in a `State`).  Where the log has orientations in some of
    them only, or none, ``rot`` is NaN where there is none.  All other messages, those of the
    GNSS receiver for instance, are no samples.

    ``t_dev`` and the source stamps are SampleTimeFine, unwrapped; without it, samples follow
    each other at `rate`, gaps of the packet counter included.  A gap of the packet counter is
    `Lost`: cause ``corrupt`` where the log has broken bytes there, else ``device``.
    """

    options: ClassVar[OptionTable] = {
        "rate": Option("float", 100.0, "nominal sample rate in Hz", minimum=1.0, maximum=2000.0),
        "batch_ms": Option(
            "float", 10.0, "stream time in one batch of samples, in ms", minimum=0.0, maximum=1000.0
        ),
        **SIM_IMU_OPTIONS,
    }
    vrs_kind = "imu"
    schemes: ClassVar[dict[str, str]] = {
        "vrs": "PATH[#STREAM]: an IMU's stream of a VRS file",
        "file": "a log of an MTi's serial byte stream, with MTData2 messages",
        "sim": "an IMU on the vehicle of the simulated world, endless",
    }

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._source: _LogSource | _SimSource | None = None

    def open(self) -> Sequence[StreamSpec]:
        self.close()
        make = _SimSource if self.sensor.scheme == "sim" else _LogSource
        self._source = make(self.sensor)
        return [self._source.spec]

    def read(self) -> Item | None:
        if self._source is None:
            raise SourceError(f"{self.sensor.name}: read() before open()")
        return self._source.read()

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = None


class _SimSource:
    """Batches of the simulated IMU, made many at a time."""

    def __init__(self, sensor: SensorConfig) -> None:
        rate_hz = float(sensor.options["rate"])
        self._imu: SimulatedImu = simulated_imu(sensor.name, sensor.options, rate_hz)
        self._batch = _batch_size(sensor, 1e9 / rate_hz)
        self._made = self._imu.samples(0, 0)
        self._first = self._next = 0
        settings = {
            "simulated": True,
            "coordinates": "ENU",
            "scene": sensor.options["scene"],
            "seed": sensor.options["seed"],
        }
        self.spec = _stream(sensor, False, (), settings, "all")

    def read(self) -> Item:
        if self._next == self._first + len(self._made.t_ns):
            self._first = self._next
            self._made = self._imu.samples(self._first, self._batch * _SIM_BATCHES)
        made = self._made
        part = slice(self._next - self._first, self._next - self._first + self._batch)
        self._next += self._batch
        data = {"acc": made.acc[part], "avel": made.avel[part], "rot": made.rot[part]}
        return Sample(self.spec.name, made.t_ns[part], data, made.t_dev_ns[part])

    def close(self) -> None:
        pass


class _LogSource:
    """A byte log, read in chunks: memory does not grow with the log."""

    def __init__(self, sensor: SensorConfig) -> None:
        path = sensor.path
        where = f"{sensor.name}: {sensor.scheme}:{path}"
        try:
            facts = _scan(path, where)
            self._file: BinaryIO = path.open("rb", buffering=0)
        except OSError as error:
            raise SourceError(f"{where}: {error.strerror or error}") from None
        self.spec = facts.stream(sensor)
        self._where = where
        self._parser = XbusParser()
        self._items: deque[Item] = deque()
        self._assembler = _Assembler(sensor, facts, where, self._items)
        self._end: Exception | None = None

    def read(self) -> Item:
        while not self._items:
            if self._end is not None:
                raise self._end
            try:
                self._read_chunk()
            except (RecorderError, EndOfSource) as end:
                self._assembler.flush(everything=True)  # what came before it is good
                self._end = end
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


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the first messages of a log say about all of it.

    Attributes:
        rotation: ``all``: every inertial message has an orientation; ``some``; ``none``.
        extra: further channels of the stream.
        frame: local frame of the orientation, such as ``ENU``; empty without one.
        settings: what is worth knowing, for the configuration record.
        period_ns: mean interval of samples on the device's clock; None without such a clock.
    """

    rotation: str
    extra: tuple[ChannelSpec, ...]
    frame: str
    settings: dict[str, Any]
    period_ns: float | None

    def stream(self, sensor: SensorConfig) -> StreamSpec:
        return _stream(sensor, True, self.extra, self.settings, self.rotation)

    def takes(self, values: MtData2) -> bool:
        """Whether a message is a sample of the stream."""
        return _inertial(values) and (self.rotation != "all" or values.has_orientation)


def _inertial(values: MtData2) -> bool:
    return values.acceleration is not None and values.rate_of_turn is not None


def _frame(values: MtData2) -> str:
    return "" if values.coordinates is None else values.coordinates.name


def _stream(
    sensor: SensorConfig,
    finite: bool,
    extra: tuple[ChannelSpec, ...],
    settings: dict[str, Any],
    rotation: str,
) -> StreamSpec:
    text = "roll, pitch, yaw; sensor to local frame"
    if frame := settings.get("coordinates"):
        text += f" {frame}"
    text += {"all": "", "some": "; NaN where not measured", "none": "; NaN: not measured"}[rotation]
    return StreamSpec(
        name=sensor.name,
        channels=(_ACC, _AVEL, ChannelSpec("rot", "raw", "f4", (3,), text, "rad"), *extra),
        rate_hz=sensor.options["rate"],
        device_clock=True,
        finite=finite,
        description="inertial measurement unit (Xsens MTi)",
        settings=settings,
    )


def _batch_size(sensor: SensorConfig, period_ns: float) -> int:
    return max(1, round(float(sensor.options["batch_ms"]) * 1e6 / period_ns))


def _log_messages(path: Path) -> Iterator[XbusMessage]:
    parser = XbusParser()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            yield from parser.feed(chunk)
    yield from parser.finish()


def _scan(path: Path, where: str) -> _Facts:
    """Read the log up to its first `_SCANNED` inertial messages.

    Raises:
        SourceError: there is not one; says what there is instead.
        OSError: the file cannot be read.
    """
    found: list[MtData2] = []
    others: Counter[int] = Counter()
    names: set[str] = set()
    for message in _log_messages(path):
        values = decode_mtdata2(message.data) if message.mid == MID_MTDATA2 else None
        if values is None or not _inertial(values):
            others[message.mid] += 1
            names.update(map(data_name, () if values is None else values.data_ids))
            continue
        found.append(values)
        if len(found) == _SCANNED:
            break
    if not found:
        raise SourceError(f"{where}: {_nothing_found(others, names)}")
    oriented = [k for k, values in enumerate(found) if values.has_orientation]
    rotation = "none"
    if oriented:
        rotation = "all" if len(oriented) == len(found) - oriented[0] else "some"
    typical = found[oriented[0]] if oriented else found[0]
    frame = _frame(typical)
    extra = []
    if any(values.quaternion is not None for values in found):
        text = f"orientation, real part first; sensor to local frame {frame}"
        extra.append(ChannelSpec("quat", "raw", "f4", (4,), text))
    if any(values.magnetic_field is not None for values in found):
        extra.append(_MAG)
    period_ns = _period_ns(found)
    settings: dict[str, Any] = {
        "coordinates": frame,
        "orientation": rotation,
        "data_ids": [f"0x{data_id:04x}" for data_id in typical.data_ids],
        "data": [data_name(data_id) for data_id in typical.data_ids],
    }
    if period_ns is not None:
        settings["device_rate_hz"] = round(1e9 / period_ns, 3)
    return _Facts(rotation, tuple(extra), frame, settings, period_ns)


def _nothing_found(others: Counter[int], names: set[str]) -> str:
    wanted = "no MTData2 message with acceleration and rate of turn"
    if names:
        return f"{wanted}; its MTData2 messages hold {', '.join(sorted(names))}"
    if others:
        kinds = ", ".join(f"{n} of MID 0x{mid:02x}" for mid, n in sorted(others.items()))
        return f"{wanted}; its Xbus messages are {kinds}"
    return f"{wanted}, nor any other Xbus message"


def _period_ns(found: Sequence[MtData2]) -> float | None:
    """Mean interval between neighbouring samples on the device's clock, gaps left out."""
    ticks = [v.sample_time_fine for v in found if v.sample_time_fine is not None]
    steps = [(b - a) % _U32 for a, b in pairwise(ticks)]
    steps = [step for step in steps if 0 < step < _U32 // 2]
    if not steps:
        return None
    usual = statistics.median(steps)
    return statistics.fmean(s for s in steps if usual / 1.5 < s < usual * 1.5) * TICK_NS


class _Assembler:
    """Makes items of messages and appends them to `items`, samples in batches.

    Usage::

        for message in messages:
            assembler.add(message)
        assembler.flush()            # batches that are full; finish() gives the rest too
    """

    def __init__(self, sensor: SensorConfig, facts: _Facts, where: str, items: deque[Item]) -> None:
        self._name = sensor.name
        self._where = where
        self._facts = facts
        self._items = items
        period_ns = facts.period_ns or 1e9 / float(sensor.options["rate"])
        self._batch = _batch_size(sensor, period_ns)
        self._clock = SampleClock(period_ns)
        self._t_ns: int | None = None
        self._names = ("acc", "avel", "rot", *(channel.name for channel in facts.extra))
        self._known_ids: set[tuple[int, ...]] = set()
        self._rows: list[tuple[Any, ...]] = []

    def add(self, message: XbusMessage) -> None:
        """Take the next message.

        Raises:
            StreamChangedError: its orientation is in another frame than the stream's.
        """
        self._clock.skipped(message.skipped)
        if message.mid != MID_MTDATA2:
            return
        values = decode_mtdata2(message.data)
        self._clock.message(values.packet_counter)
        if not self._facts.takes(values):
            self._clock.other(incomplete=_inertial(values))
            return
        if values.data_ids not in self._known_ids:
            self._check(values)
        incomplete = self._clock.incomplete
        placed = self._clock.sample(values.sample_time_fine, message.size)
        if self._t_ns is None and incomplete:
            told = {"messages_without_orientation": incomplete}
            self._items.append(State(self._name, placed.t_ns, told))
        self._t_ns = placed.t_ns
        if placed.gap is not None:
            self._lose(placed.gap)
        if placed.clock_step_ns is not None:
            self.flush(everything=True)
            told = {"device_clock_step_ns": placed.clock_step_ns}
            self._items.append(State(self._name, placed.t_ns, told))
        row = [
            placed.t_ns,
            placed.t_dev_ns,
            values.acceleration,
            values.rate_of_turn,
            values.rotation or _NAN3,
        ]
        if "quat" in self._names:
            row.append(values.quaternion or _NAN4)
        if "mag" in self._names:
            row.append(values.magnetic_field or _NAN3)
        self._rows.append(tuple(row))

    def finish(self, skipped: int) -> None:
        """The log has ended, with `skipped` bytes after the last good message."""
        self.flush(everything=True)
        gap = self._clock.tail(skipped)
        if gap is not None:
            self._lose(gap)

    def flush(self, everything: bool = False) -> None:
        """Give out the samples at hand, in batches; what does not fill one stays."""
        rows = self._rows
        count = len(rows) if everything else len(rows) // self._batch * self._batch
        if not count:
            return
        t_ns, t_dev_ns, *columns = zip(*rows[:count], strict=True)
        del rows[:count]
        times, device_times = np.array(t_ns, np.int64), np.array(t_dev_ns, np.int64)
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf
            data = {n: np.array(c, "<f4") for n, c in zip(self._names, columns, strict=True)}
        for start in range(0, count, self._batch):
            part = slice(start, start + self._batch)
            batch = {name: array[part] for name, array in data.items()}
            self._items.append(Sample(self._name, times[part], batch, device_times[part]))

    def _lose(self, gap: Gap) -> None:
        self.flush(everything=True)
        detail = {
            key: value
            for key in ("duration_ns", "messages", "skipped_bytes", "incomplete")
            if (value := getattr(gap, key))
        }
        cause = "corrupt" if gap.corrupt else "device"
        lost = Lost(self._name, self._t_ns or 0, cause, gap.count, gap.estimate, detail)
        self._items.append(lost)

    def _check(self, values: MtData2) -> None:
        """A row of identifiers not seen before: is the orientation in the declared frame?"""
        if values.has_orientation and _frame(values) != self._facts.frame:
            raise StreamChangedError(
                f"{self._where}: orientation changes from the local frame {self._facts.frame!r} "
                f"to {_frame(values)!r} at packet counter {values.packet_counter}"
            )
        self._known_ids.add(values.data_ids)


_NAN3 = (float("nan"),) * 3
_NAN4 = (float("nan"),) * 4


if __name__ == "__main__":
    main(XsensDriver)
