"""The stream of a solid-state lidar: packets become clouds of points with the device's integers.

::

    stream = CloudPacketStream(sensor, decoder, live=True)
    specs = stream.specs(finite=False)
    for item in stream.take(packets, t_ns, epoch_ns):
        ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.clouds import GRID, cloud_channels
from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State, incomplete
from drivers.kit.lidar.clock import DRIFT, ClockWatch
from drivers.kit.lidar.decoder import Packets
from drivers.kit.lidar.order import Ordered, TimeOrder
from drivers.kit.lidar.raw_packets import pack_packets, packets_channel
from recorder.codecs.beams import PACKETS
from recorder.codecs.points import Column, pack_points, points_dtype
from recorder.codecs.streams import StreamSpec

TIMES: Final = Column("t_offset", "u4", unit="ns", desc="time after the sweep's begin")
_NEAR: Final = 2
"""Packets by which numbers and times of packets may differ."""
_LATEST: Final = np.iinfo(np.uint32).max

Times = npt.NDArray[np.int64]
Points = npt.NDArray[Any]


class CloudDecoder(ABC):
    """Decoder of the packets of one solid-state lidar.

    Attributes:
        vendor, model: of the device.
        packet_bytes: length of the packets.
        columns: columns of the points, without their times.
        interval_ns: of packets.
        period_ns: of sweeps.
        number_base: number of a sweep's first packet.
        number_span: number after which the packets' numbers begin again at 0.
        settings: further settings, for configuration records.
    """

    vendor: str
    model: str
    packet_bytes: int
    columns: tuple[Column, ...]
    interval_ns: float
    period_ns: int
    number_base: int
    number_span: int
    settings: dict[str, Any]

    @abstractmethod
    def find_sound(self, packets: Packets) -> npt.NDArray[np.bool_]:
        """Return which packets can be decoded."""

    @abstractmethod
    def read_times(self, packets: Packets) -> Times:
        """Return the packets' times, i8 [packets], ns since 1970 by the device's clock."""

    @abstractmethod
    def read_numbers(self, packets: Packets) -> Times:
        """Return the packets' numbers in their sweep, i8 [packets]."""

    @abstractmethod
    def decode(self, packets: Packets) -> tuple[Points, Times]:
        """Decode packets.

        Returns:
            points, structured [packets, points], with the fields of `columns`, and their times
            after their packets', i8 [packets, points], ns.
        """

    @abstractmethod
    def read_state(self, packets: Packets) -> dict[str, Any]:
        """Return what the newest packet tells of the device; JSON types."""


@dataclass(slots=True)
class _Sweep:
    """Packets of the present sweep.

    Attributes:
        begin_ns: device time of its begin, also where its first packets are missing.
        missing: packets that are missing in it.
        arrived_ns: arrival of the packets.
        lost: sweeps, and packets of them, that are missing before it.
    """

    begin_ns: float
    missing: int = 0
    lost: tuple[int, int] = (0, 0)
    packets: list[Packets] = field(default_factory=list)
    arrived_ns: list[Times] = field(default_factory=list)
    arrival_ns: int = 0


class CloudPacketStream:
    """Converter of one lidar's packets to items; a sample is a sweep.

    A sweep ends where the packets' numbers begin again, or after the sweeps' period if they do not.
    Missing packets are counted by the numbers, and where these begin again by the device's time.

    Args:
        sensor: the sensor's entry, with the option ``packets``.
        decoder: of its packets.
        live: the sensor is a device: missing packets were lost in the network.
    """

    def __init__(self, sensor: SensorConfig, decoder: CloudDecoder, *, live: bool) -> None:
        self._sensor, self._decoder = sensor, decoder
        self._cause = "network" if live else "device"
        self._order = TimeOrder(decoder.interval_ns)
        self._clock = ClockWatch()
        columns = (*decoder.columns, TIMES)
        self._dtype, self._keeps = points_dtype(columns), bool(sensor.options.get("packets"))
        kept = [packets_channel(decoder.packet_bytes)] if self._keeps else []
        self._channels = (*cloud_channels(columns), *kept)
        self._sweep: _Sweep | None = None
        self._last: tuple[int, int, int] | None = None  # number, device time, arrival
        self._least_delay_ns = 0.0  # from a packet's device time to its arrival, two clocks
        self._resets = False
        self._corrupt = self._offset_ns = 0
        self._state: dict[str, Any] = {}

    @property
    def packet_bytes(self) -> int:
        """Length of the packets."""
        return self._decoder.packet_bytes

    def specs(self, *, finite: bool) -> list[StreamSpec]:
        """Return the declaration of the stream."""
        decoder = self._decoder
        per_sweep = decoder.period_ns / decoder.interval_ns
        size = per_sweep * self._points_of_packet() * self._dtype.itemsize
        size += per_sweep * decoder.packet_bytes * self._keeps
        return [
            StreamSpec(
                self._sensor.name,
                self._channels,
                rate_hz=round(1e9 / decoder.period_ns, 3),
                device_clock=True,
                finite=finite,
                description=f"{decoder.vendor} {decoder.model}, one sample a sweep",
                settings={"vendor": decoder.vendor, "model": decoder.model, **decoder.settings},
                bytes_per_sample=round(size / 2),
            )
        ]

    def _points_of_packet(self) -> int:
        values, _ = self._decoder.decode(np.zeros((1, self.packet_bytes), np.uint8))
        return int(values.shape[1])

    def take(self, packets: Packets, t_ns: Times, epoch_ns: Times) -> Iterator[Item]:
        """Convert packets of the right length.

        Args:
            packets: u1 [packets, packet_bytes].
            t_ns: i8 [packets], stamps for the items.
            epoch_ns: i8 [packets], the host's time of each, epoch ns.
        """
        sound = self._decoder.find_sound(packets)
        if not sound.all():
            self._corrupt += int(np.count_nonzero(~sound))
            packets, t_ns, epoch_ns = packets[sound], t_ns[sound], epoch_ns[sound]
        if len(packets):
            self._offset_ns = int(epoch_ns[0] - t_ns[0])
            times = self._decoder.read_times(packets)
            yield from self._convert(self._order.take(packets, t_ns, times))

    def take_other(self, packet: bytes) -> Iterator[Item]:  # noqa: ARG002  of any other form
        """Count a packet of another length, which cannot be decoded."""
        self._corrupt += 1
        yield from ()

    def finish(self) -> Iterator[Item]:
        """Give what waits, and the last sweep."""
        yield from self._convert(self._order.finish(self.packet_bytes))
        if self._sweep is not None:
            sweep, self._sweep = self._sweep, None
            yield from self._give(sweep)

    def _convert(self, ordered: Ordered) -> Iterator[Item]:
        if not len(ordered):
            return
        decoder, name = self._decoder, self._sensor.name
        times, numbers = decoder.read_times(ordered.packets), decoder.read_numbers(ordered.packets)
        t_ns = int(ordered.t_ns[-1])
        if clock := self._clock.take(t_ns + self._offset_ns, int(times[-1])):
            yield State(name, t_ns, clock, lasting=True)
        begin = 0
        for at in self._find_breaks(times, numbers):
            self._add(ordered, times, numbers, begin, at)
            begin = at
            yield from self._break(int(numbers[at]), int(times[at]), int(ordered.t_ns[at]))
        self._add(ordered, times, numbers, begin, len(times))
        state = decoder.read_state(ordered.packets)
        if state != self._state:
            self._state = state
            yield State(name, t_ns, dict(state), lasting=True)

    def _find_breaks(self, times: Times, numbers: Times) -> list[int]:
        """Return the packets before which others are missing, or a sweep begins."""
        first = self._last[0] if self._last is not None else int(numbers[0]) - 2
        breaks = (np.diff(numbers, prepend=first) % self._decoder.number_span) != 1
        if not self._resets:  # a sweep ends by the time
            begin_ns = self._sweep.begin_ns if self._sweep is not None else float(times[0])
            index = np.floor((times - begin_ns) / self._decoder.period_ns)
            breaks |= np.diff(index, prepend=0.0) != 0
        return np.flatnonzero(breaks).tolist()

    def _add(self, ordered: Ordered, times: Times, numbers: Times, begin: int, end: int) -> None:
        if begin < end:
            assert self._sweep is not None
            self._sweep.packets.append(ordered.packets[begin:end].copy())
            self._sweep.arrived_ns.append(ordered.t_ns[begin:end])
            self._sweep.arrival_ns = int(ordered.t_ns[end - 1])
            delay_ns = int((ordered.t_ns[begin:end] - times[begin:end]).min())
            since_ns = self._sweep.arrival_ns - self._last[2] if self._last is not None else 0
            self._least_delay_ns = min(delay_ns, self._least_delay_ns + DRIFT * since_ns)
            self._last = int(numbers[end - 1]), int(times[end - 1]), self._sweep.arrival_ns

    def _break(self, number: int, time_ns: int, arrival_ns: int) -> Iterator[Item]:
        """Count what is missing before a packet, and end the sweep if it begins another."""
        decoder, sweep = self._decoder, self._sweep
        interval_ns, period_ns = decoder.interval_ns, decoder.period_ns
        position = number - decoder.number_base
        delay_ns = arrival_ns - time_ns
        if sweep is None or self._last is None:
            self._sweep, self._least_delay_ns = _Sweep(time_ns), delay_ns
            return
        before, before_ns, before_arrival_ns = self._last
        step = (number - before) % decoder.number_span
        passed = (time_ns - before_ns) / interval_ns
        waited_ns = arrival_ns - before_arrival_ns
        # The device's clock may step: a network holds packets up, but none comes before it was
        # sent.  A capture may have no stamps.
        earlier_ns = self._least_delay_ns - DRIFT * waited_ns - delay_ns
        stepped = passed <= 0 or (
            waited_ns > 0 and earlier_ns > max(period_ns / 2, 3 * _NEAR * interval_ns)
        )
        if stepped:
            self._least_delay_ns = delay_ns
        follows = abs(step - passed) <= _NEAR or (stepped and number > before)
        reset = number < before and not follows
        self._resets |= reset
        if follows:
            missing = step - 1
        elif stepped:
            missing = max(0, position)
        else:
            missing = max(round(passed) - 1, 0)
        begins = reset or (stepped and not follows)
        if self._resets:
            head = min(max(0, position), missing)
            begin_ns = time_ns - max(0, position) * interval_ns
            sweeps = max(1, round((begin_ns - sweep.begin_ns) / period_ns)) if not stepped else 1
            begins |= not follows and begin_ns - sweep.begin_ns > period_ns / 2
        else:
            sweeps = int((time_ns - sweep.begin_ns) // period_ns) if not stepped else 1
            begins |= sweeps > 0 or stepped
            begin_ns = sweep.begin_ns + sweeps * period_ns if not stepped else time_ns
            head = min(missing, int((time_ns - begin_ns) / interval_ns))
        if not begins:
            sweep.missing += missing
            return
        rest = missing - head
        tail = rest
        if sweeps > 1:
            tail = min(
                rest, max(0, round((sweep.begin_ns + period_ns - before_ns) / interval_ns) - 1)
            )
        sweep.missing += tail
        yield from self._give(sweep)
        self._sweep = _Sweep(begin_ns, head, (sweeps - 1, rest - tail))

    def _give(self, sweep: _Sweep) -> Iterator[Item]:
        decoder, name = self._decoder, self._sensor.name
        packets = np.concatenate(sweep.packets)
        values, since_ns = decoder.decode(packets)
        times = (decoder.read_times(packets)[:, None] + since_ns).ravel()
        begin_ns = int(times.min())
        points, flat = np.empty(len(times), self._dtype), values.reshape(-1)
        for column in decoder.columns:
            points[column.name] = flat[column.name]
        points[TIMES.name] = np.minimum(times - begin_ns, _LATEST)
        t_ns = sweep.arrival_ns
        lost, lost_packets = sweep.lost
        if lost:
            detail = {"packets_missing": lost_packets}
            yield Lost(name, t_ns, self._cause, lost, detail=detail)
        data: dict[str, Any] = {
            self._channels[0].name: [pack_points(points)],
            GRID: np.array([[1, len(points)]], "<u4"),
        }
        if self._keeps:
            arrived_ns, new = np.concatenate(sweep.arrived_ns), np.zeros(len(packets), np.bool_)
            epoch_ns = t_ns + self._offset_ns
            data[PACKETS] = [pack_packets([packets], arrived_ns, new, t_ns, epoch_ns)]
        device_ns = np.array([int(times.max())], np.int64)
        yield Sample(name, np.array([t_ns], np.int64), data, device_ns)
        report: dict[str, Any] = {}
        missing = sweep.missing + (0 if lost else lost_packets)
        if missing:
            report = {"packets_missing": missing, **incomplete(self._cause, missing)}
        if self._corrupt:
            report["packets_corrupt"], self._corrupt = self._corrupt, 0
        for key in ("repeated", "late"):
            if count := getattr(self._order, key):
                report[f"packets_{key}"] = count
                setattr(self._order, key, 0)
        if report:
            yield State(name, t_ns, report)
