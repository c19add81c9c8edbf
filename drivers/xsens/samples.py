"""Conversion of an MTi's messages to its stream: samples, channels, times, losses.

Logs, the simulated device and serial ports all use this module.  No I/O and no clock.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers.kit.serial_time import MinDelayClock
from drivers.xsens.commands import Output, Outputs, make_outputs, sample_rate
from drivers.xsens.mtdata2 import Coordinates, MtData2, data_name, decode_mtdata2
from drivers.xsens.packets import MID_MTDATA2, XbusMessage
from drivers.xsens.positions import SUFFIX, Position, PositionRate, Positions, gnss_stream
from drivers.xsens.sample_clock import TICK_NS, Gap, Placed, SampleClock
from recorder.bus.messages import CHANGED
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ConfigError, DeviceError, ProtocolError

_U32 = 1 << 32
_LAST_NS: Final = (1 << 63) - 1
_REPORT_NS: Final = 60_000_000_000
_MOST_IDS: Final = 64  # limit of the stored rows of identifiers; broken rows must not use memory

_ACC = ChannelSpec("acc", "raw", "f4", (3,), "acceleration, gravity included", "m/s^2")
_AVEL = ChannelSpec("avel", "raw", "f4", (3,), "rate of turn", "rad/s")
_MAG = ChannelSpec("mag", "raw", "f4", (3,), "magnetic field, about 1 where calibrated", "a.u.")
_NAN3 = (float("nan"),) * 3
_NAN4 = (float("nan"),) * 4

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of all messages of a stream.

    Attributes:
        rotation: ``all``: every inertial message has an orientation; ``some``; ``none``.
        quaternion, magnetic: whether messages hold a quaternion, a magnetic field.
        frame: local frame of the orientation, such as ``ENU``; empty without an orientation.
        settings: further properties for the configuration record.
        period_ns: mean interval of samples on the device's clock; None without such a clock.
    """

    rotation: str
    quaternion: bool
    magnetic: bool
    frame: str
    settings: Mapping[str, Any]
    period_ns: float | None

    @property
    def names(self) -> tuple[str, ...]:
        """Channel names, in the order of `row`."""
        more = (("quat", self.quaternion), ("mag", self.magnetic))
        return ("acc", "avel", "rot", *(name for name, there in more if there))

    def stream(self, name: str, rate_hz: float, finite: bool) -> StreamSpec:
        """Return the stream's declaration; unmeasured ``rot``, ``quat``, ``mag`` are NaN."""
        frame = f" {self.frame}" if self.frame else ""
        text = (
            f"roll, pitch, yaw; sensor to local frame{frame}"
            + {
                "all": "",
                "some": "; NaN where not measured",
                "none": "; NaN: not measured",
            }[self.rotation]
        )
        channels = [_ACC, _AVEL, ChannelSpec("rot", "raw", "f4", (3,), text, "rad")]
        if self.quaternion:
            text = f"orientation, real part first; sensor to local frame{frame}"
            channels.append(ChannelSpec("quat", "raw", "f4", (4,), text))
        if self.magnetic:
            channels.append(_MAG)
        return StreamSpec(
            name=name,
            channels=tuple(channels),
            rate_hz=rate_hz,
            device_clock=True,
            finite=finite,
            description="inertial measurement unit (Xsens MTi)",
            settings=dict(self.settings),
        )

    def takes(self, values: MtData2) -> bool:
        """Return whether a message is a sample of the stream."""
        return is_inertial(values) and (self.rotation != "all" or values.has_orientation)

    def row(self, values: MtData2) -> Row:
        """Return a sample's values, one for each of `names`."""
        row = [values.acceleration, values.rate_of_turn, values.rotation or _NAN3]
        if self.quaternion:
            row.append(values.quaternion or _NAN4)
        if self.magnetic:
            row.append(values.magnetic_field or _NAN3)
        return tuple(row)

    def arrays(self, rows: Iterable[Row]) -> dict[str, npt.NDArray[Any]]:
        """Convert rows to one float32 array [n, 3 or 4] per channel."""
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf
            columns = zip(*rows, strict=True)
            return {n: np.array(c, "<f4") for n, c in zip(self.names, columns, strict=True)}

    @classmethod
    def from_messages(cls, found: Sequence[MtData2]) -> Facts:
        """Derive the properties of a log from its first inertial messages, at least one."""
        oriented = [k for k, values in enumerate(found) if values.has_orientation]
        rotation = "none"
        if oriented:
            rotation = "all" if len(oriented) == len(found) - oriented[0] else "some"
        typical = found[oriented[0]] if oriented else found[0]
        period_ns = _period_ns(found)
        settings: dict[str, Any] = {
            "coordinates": _frame(typical),
            "orientation": rotation,
            "data_ids": [f"0x{data_id:04x}" for data_id in typical.data_ids],
            "data": [data_name(data_id) for data_id in typical.data_ids],
        }
        if period_ns is not None:
            settings["device_rate_hz"] = round(1e9 / period_ns, 3)
        return cls(
            rotation,
            any(values.quaternion is not None for values in found),
            any(values.magnetic_field is not None for values in found),
            _frame(typical),
            settings,
            period_ns,
        )

    @classmethod
    def from_outputs(cls, outputs: Sequence[Output], settings: Mapping[str, Any]) -> Facts | None:
        """Derive the properties from an output configuration; None if it makes no samples."""
        rates = {data_name(output.data_id): output.rate_hz for output in outputs}
        rate_hz = sample_rate(outputs)
        inertial_hz = rates.get("acceleration", 0)
        if not inertial_hz or rates.get("rate_of_turn") != inertial_hz:
            return None
        kinds = [o for o in outputs if o.data_type in (0x2010, 0x2020, 0x2030)]
        # Every sample has an orientation if its rate is at least as high, and in step.
        fast = any(o.rate_hz >= inertial_hz and rate_hz % o.rate_hz == 0 for o in kinds)
        frame = _frame(MtData2(data_ids=tuple(o.data_id for o in kinds[:1])))
        rotation = ("all" if fast else "some") if kinds else "none"
        reported = {
            "coordinates": frame,
            "orientation": rotation,
            "outputs": [str(output) for output in outputs],
            "device_rate_hz": float(inertial_hz),
        }
        return cls(
            rotation,
            "quaternion" in rates,
            "magnetic_field" in rates,
            frame,
            {**settings, **reported},
            1e9 / inertial_hz,
        )


def is_inertial(values: MtData2) -> bool:
    """Return whether a message has the values of every sample: acceleration and rate of turn."""
    return values.acceleration is not None and values.rate_of_turn is not None


def _frame(values: MtData2) -> str:
    return "" if values.coordinates is None else values.coordinates.name


def _period_ns(found: Sequence[MtData2]) -> float | None:
    """Return the mean interval between adjacent samples on the device's clock, without gaps."""
    ticks = [v.sample_time_fine for v in found if v.sample_time_fine is not None]
    steps = [(b - a) % _U32 for a, b in pairwise(ticks)]
    steps = [step for step in steps if 0 < step < _U32 // 2]
    if not steps:
        return None
    usual = statistics.median(steps)
    return statistics.fmean(s for s in steps if usual / 1.5 < s < usual * 1.5) * TICK_NS


def describe_content(messages: Iterable[XbusMessage]) -> str:
    """Describe the content of a log that holds no samples."""
    others: Counter[int] = Counter()
    names: set[str] = set()
    for message in messages:
        others[message.mid] += 1
        if message.mid == MID_MTDATA2:
            names.update(map(data_name, decode_mtdata2(message.data).data_ids))
    wanted = "no MTData2 message with acceleration and rate of turn"
    if names:
        return f"{wanted}; its MTData2 messages hold {', '.join(sorted(names))}"
    if others:
        kinds = ", ".join(f"{n} of MID 0x{mid:02x}" for mid, n in sorted(others.items()))
        return f"{wanted}; its Xbus messages are {kinds}"
    return f"{wanted}, nor any other Xbus message"


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive samples: `t_ns`, `t_dev_ns` int64 [n], `data` [n, ...] by channel.

    `suffix` is that of the stream's name: empty for the inertial samples.
    """

    t_ns: npt.NDArray[np.int64]
    t_dev_ns: npt.NDArray[np.int64]
    data: dict[str, npt.NDArray[Any]]
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Samples that are missing before the sample at `t_ns`; `cause` is the cause of the loss.

    `misfit` is the reason why samples of a log do not have the declared form.
    """

    t_ns: int
    gap: Gap
    suffix: str = ""
    misfit: str = ""

    @property
    def cause(self) -> str:
        return CHANGED if self.misfit else "corrupt" if self.gap.corrupt else "device"

    @property
    def detail(self) -> dict[str, int | str]:
        """Details of the loss, without zero values."""
        names = ("duration_ns", "messages", "skipped_bytes", "incomplete")
        detail = {name: value for name in names if (value := getattr(self.gap, name))}
        return {"reason": self.misfit, **detail} if self.misfit else detail


@dataclass(frozen=True, slots=True)
class Note:
    """A change to record as a state."""

    t_ns: int
    values: dict[str, Any]


Event = Batch | Missing | Note


class MtiAssembler:
    """Assembler of messages to batches of samples, which reports gaps between the samples.

    Usage::

        assembler = MtiAssembler(facts, 10, clock, "imu: file:mti.bin")
        for message in messages:
            assembler.add(message)
        assembler.flush()            # makes full batches; finish() also makes the last, partial one
        for event in assembler.take():
            ...

    Args:
        facts: of the stream.
        batch: samples per batch.
        clock: finds gaps; gives the samples' times if `host` is None.
        where: the source, for messages.
        host: maps device times to host times; `add` then needs arrivals.
        positions: makes rows of positions; None: positions are not recorded.
    """

    def __init__(
        self,
        facts: Facts,
        batch: int,
        clock: SampleClock,
        where: str,
        host: MinDelayClock | None = None,
        positions: Positions | None = None,
    ) -> None:
        self._positions = positions
        self._placed: deque[Position] = deque()  # that wait for the samples before them
        self._skipped = 0
        self._sample: tuple[int, int, int | None] | None = None
        self._facts = facts
        self._batch = batch
        self._clock = clock
        self._where = where
        self._host = host
        self._t_ns: int | None = None
        self._reported_ns: int | None = None
        self._repeated = 0
        self._misfit = ""  # why samples since the last one do not fit the stream
        self._known_ids: set[tuple[int, ...]] = set()
        self._rows: list[Row] = []
        self._times: list[tuple[int, int]] = []
        self._events: list[Event] = []

    @property
    def held(self) -> int:
        """Number of samples in the partial batch."""
        return len(self._rows)

    def take(self) -> list[Event]:
        """Return the events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def add(self, message: XbusMessage, arrival_ns: int = 0) -> bool:
        """Process the next message; return whether it is a sample.

        Args:
            message: of any kind.
            arrival_ns: host time by which the message's measurement was complete.
        """
        self._clock.record_skipped(message.skipped)
        self._skipped += message.skipped
        if message.mid != MID_MTDATA2:
            return False
        values = decode_mtdata2(message.data)
        if self._clock.is_stale(values.packet_counter, values.sample_time_fine):
            self._repeated += 1
            return False
        self._clock.record_message(values.packet_counter)
        is_sample = self._facts.takes(values) and self._is_known(values)
        if is_sample:
            self._add_sample(message, values, arrival_ns)
        else:
            self._clock.record_other(incomplete=is_inertial(values))
        if self._positions is not None:
            row = self._positions.add(values, self._skipped, self._sample)
            self._skipped = 0
            if row is not None:
                self._placed.append(row)
        return is_sample

    def _add_sample(self, message: XbusMessage, values: MtData2, arrival_ns: int) -> None:
        incomplete = self._clock.incomplete
        placed = self._clock.place_sample(values.sample_time_fine, message.size)
        t_ns = self._place(placed, arrival_ns)
        if self._t_ns is None and incomplete:
            self._note(t_ns, {"messages_without_orientation": incomplete})
        self._t_ns = t_ns
        if placed.gap is not None:
            self._lose(t_ns, placed.gap)
        if placed.clock_step_ns is not None:
            self._note(t_ns, {"device_clock_step_ns": placed.clock_step_ns})
        if self._repeated:
            self._note(t_ns, {"messages_repeated_or_late": self._repeated})
            self._repeated = 0
        self._times.append((t_ns, placed.t_dev_ns))
        self._rows.append(self._facts.row(values))
        self._sample = t_ns, placed.t_dev_ns, values.sample_time_fine

    def _release_positions(self, until_ns: int) -> None:
        """Pass on the positions up to the samples that were passed on: in order of time."""
        while self._placed and self._placed[0].t_ns <= until_ns:
            row = self._placed.popleft()
            if row.lost:
                gap = Gap(
                    count=row.lost, estimate=None, corrupt=row.skipped_bytes > 0,
                    duration_ns=row.duration_ns, messages=row.messages,
                    skipped_bytes=row.skipped_bytes, incomplete=0,
                )  # fmt: skip
                self._events.append(Missing(row.t_ns, gap, SUFFIX))
            t_ns, t_dev_ns = row.stamps
            self._events.append(Batch(t_ns, t_dev_ns, row.data, SUFFIX))

    def finish(self, skipped: int) -> None:
        """End the stream, with `skipped` bytes after the last good message."""
        self.flush(everything=True)
        if self._misfit:
            count = self._clock.incomplete
            self._lose(self._t_ns or 0, Gap(count, None, False, 0, None, 0, count))
        gap = self._clock.end(skipped)
        if gap is not None:
            self._lose(self._t_ns or 0, gap)

    def flush(self, everything: bool = False) -> None:
        """Make batches of the pending samples; a partial batch is kept."""
        count = len(self._rows)
        if not everything:
            count = count // self._batch * self._batch
        times = np.array(self._times[:count], np.int64)
        data = self._facts.arrays(self._rows[:count]) if count else {}
        del self._rows[:count], self._times[:count]
        for start in range(0, count, self._batch):
            part = slice(start, start + self._batch)
            columns = {name: array[part] for name, array in data.items()}
            batch = Batch(times[part, 0].copy(), times[part, 1].copy(), columns)
            self._events.append(batch)
            self._release_positions(int(batch.t_ns[-1]))
        if not self._rows:
            self._release_positions(_LAST_NS)

    def _place(self, placed: Placed, arrival_ns: int) -> int:
        """Return the sample's time: the host's time if there is a host clock."""
        if self._host is None:
            return placed.t_ns
        if placed.clock_step_ns is not None:
            self._host.restart()
        t_ns = self._host.host_ns(placed.t_dev_ns, arrival_ns)
        if self._reported_ns is None:
            self._reported_ns = (
                t_ns - _REPORT_NS + 10_000_000_000
            )  # first report after it has settled
        elif t_ns - self._reported_ns >= _REPORT_NS:
            self._reported_ns = t_ns
            reported = {
                "drift_ppm": round(self._host.drift * 1e6, 2),
                "mean_lateness_us": round(self._host.lateness_ns / 1e3),
                "restarts": self._host.restarts,
            }
            self._note(t_ns, {"host_clock": reported})
        return t_ns

    def _note(self, t_ns: int, values: dict[str, Any]) -> None:
        self.flush(everything=True)
        self._events.append(Note(t_ns, values))

    def _lose(self, t_ns: int, gap: Gap) -> None:
        self.flush(everything=True)
        self._events.append(Missing(t_ns, gap, misfit=self._misfit))
        self._misfit = ""

    def _is_known(self, values: MtData2) -> bool:
        """Return whether the orientation is in the declared frame, as required.

        A device keeps its configuration: another frame in its message means that this is one of the
        few broken messages that pass an 8-bit checksum.  A log may be of two configurations.
        """
        if values.data_ids in self._known_ids:
            return True
        if values.has_orientation and _frame(values) != self._facts.frame:
            if self._host is None and not self._misfit:
                self._misfit = (
                    f"{self._where}: orientation changes from the local frame "
                    f"{self._facts.frame!r} to {_frame(values)!r} at packet counter "
                    f"{values.packet_counter}"
                )
            return False
        if len(self._known_ids) < _MOST_IDS:
            self._known_ids.add(values.data_ids)
        return True


def choose_outputs(sensor: SensorConfig) -> Outputs:
    """Return the output configuration for the options; ConfigError names the option."""
    options = sensor.options
    frame = Coordinates[options["coordinates"]]
    try:
        return make_outputs(max(1, round(options["rate"])), options["outputs"], frame)
    except ProtocolError as error:
        raise ConfigError(str(error), key=f"{sensor.name}.outputs") from None


def derive_facts(outputs: Outputs, settings: Mapping[str, Any], where: str) -> Facts:
    """Return the stream of an output configuration; DeviceError if it makes no samples."""
    facts = Facts.from_outputs(outputs, settings)
    if facts is None:
        there = ", ".join(map(str, outputs)) or "nothing"
        raise DeviceError(
            f"{where}: the device sends {there}, but not both acceleration and rate of turn"
        )
    return facts


def add_positions(
    sensor: SensorConfig, imu: StreamSpec, rate: PositionRate | None
) -> tuple[list[StreamSpec], Positions | None]:
    """Return the declarations of a device, and the maker of its positions' rows, if any.

    Args:
        sensor: its option ``gnss`` may be off.
        imu: the declaration of the samples.
        rate: of the positions; None without positions.
    """
    if rate is None or not sensor.options["gnss"]:
        return [imu], None
    spec = gnss_stream(sensor.name, rate.hz, imu.finite, imu.settings)
    return [imu, spec], Positions(rate, imu.rate_hz or rate.hz)


def batch_size(sensor: SensorConfig, period_ns: float) -> int:
    """Return the number of samples per batch."""
    return max(1, round(float(sensor.options["batch_ms"]) * 1e6 / period_ns))


def make_item(name: str, event: Event) -> Item:
    """Convert the assembler's event to an item of the kit."""
    match event:
        case Batch():
            return Sample(name + event.suffix, event.t_ns, event.data, event.t_dev_ns)
        case Missing(t_ns, gap):
            return Lost(
                name + event.suffix, t_ns, event.cause, gap.count, gap.estimate, event.detail
            )
        case _:
            return State(name, event.t_ns, event.values)
