"""The stream of a spinning lidar: packets become sweeps, losses and states.

::

    stream = SweepStream(sensor, decoder, beams, live=True)
    specs = stream.specs(finite=False)
    for item in stream.take(packets, t_ns, epoch_ns):
        ...
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Encoded, Item, Lost, Sample, SensorConfig, State, incomplete
from drivers.kit.lidar.clock import ClockWatch
from drivers.kit.lidar.decoder import PacketDecoder, Packets
from drivers.kit.lidar.form import FormChangedError, FormWatch
from drivers.kit.lidar.gaps import AzimuthGaps
from drivers.kit.lidar.order import Ordered, PacketOrder, TimeOrder
from drivers.kit.lidar.raw_packets import (
    DEVICE,
    DEVICE_PACKET,
    PacketLog,
    packets_channel,
)
from drivers.kit.lidar.sweeps import Sweep, SweepAssembly, fill_channels
from recorder.codecs.beams import BEAMS, PACKETS, Beams
from recorder.codecs.streams import ChannelSpec, StreamSpec

SPARE: Final = 1.03
"""Columns of a turn vary by 2 percent with the motor's speed."""
_RATE: Final = 0.1
"""Share by which the turns in a second vary from the set speed without being another one."""
_RATES_HZ: Final = (1.0, 100.0)
_ENOUGH: Final = 2
"""Sweeps in a row that are too wide: the speed has changed."""

CORRUPT: Final = "corrupt"
"""Cause of the loss of packets whose checksum is wrong."""

FIRST: Final = 40
"""Packets of a device by which the columns of a turn are measured."""
_LEAST_STEPS: Final = 6
_FAST: Final = 3.0
"""Columns that are so many times further apart than most have others missing between them."""
_OTHER: Final = 0.15
"""Share by which the measured columns of a turn differ from the table's, and are taken."""
COLUMNS_PER_TURN: Final = "columns_per_turn"
"""Setting of a stream."""

Times = npt.NDArray[np.int64]


class SweepStream:
    """Converter of one lidar's packets to items.

    Args:
        sensor: the sensor's entry, with the options ``cut_deg`` and ``packets``.
        decoder: of its packets.
        beams: the description of its beams.
        live: the sensor is a device: missing packets were lost in the network.
        form: watch of packets that the decoder cannot decode; None: they are only counted.
        device_packet: packet in which the device describes itself; empty: the decoder needs none.

    Attributes:
        corrupt: packets that could not be decoded since the last sweep.
        damaged: those of them whose checksum is wrong, and which no sweep has been found to lack.
    """

    def __init__(
        self,
        sensor: SensorConfig,
        decoder: PacketDecoder,
        beams: Beams,
        *,
        live: bool,
        form: FormWatch | None = None,
        device_packet: bytes = b"",
    ) -> None:
        self._sensor, self._decoder, self._beams = sensor, decoder, beams
        self._cause = "network" if live else "device"
        self._mirrors = len(beams.mirrors.begins) if beams.mirrors is not None else 1
        self._set_columns(1e9 / (decoder.column_ns * (decoder.rate_hz or 10.0)))
        self._first: list[tuple[Packets, Times, Times]] | None = [] if live else None
        self._log = PacketLog(decoder.packet_bytes) if sensor.options["packets"] else None
        self._device_packet = device_packet
        self._form, self._clock = form, ClockWatch()
        self._began_ns: int | None = None  # device time of the last sweep's first column
        self._turn_hz = decoder.rate_hz or 10.0
        self._told_hz = self._turned_hz = self._rate_hz = self._turn_hz * self._mirrors
        self._wide = 0  # sweeps in a row that are too wide
        self._offset_ns = 0
        self._declared = False
        self.corrupt = self.damaged = self._packets_missing = 0
        self._state: dict[str, Any] = {}

    def _set_columns(self, per_turn: float) -> None:
        """Set the number of columns of a turn."""
        decoder = self._decoder
        self._per_turn, self._step = per_turn, decoder.turn / per_turn
        self._width = math.ceil(per_turn / self._mirrors * SPARE)
        cut = round(self._sensor.options["cut_deg"] * decoder.turn / 360) % decoder.turn
        begins = () if self._beams.mirrors is None else self._beams.mirrors.begins
        self._assembly = SweepAssembly(decoder.turn, cut, self._step, begins, self._beams.column_ns)
        self._order: PacketOrder | TimeOrder
        self._gaps: AzimuthGaps | None = None
        if decoder.number_bits:
            self._order = PacketOrder(decoder.number_bits)
        else:
            column_ns = self._beams.column_ns
            self._order = TimeOrder(column_ns * decoder.columns, decoder.clock_span_ns)
            self._gaps = AzimuthGaps(decoder.turn, self._step, column_ns, decoder.columns)

    def measure(self, packets: Packets) -> None:
        """Measure the columns of a turn, of which some models have more than by the table.

        Args:
            packets: u1 [packets, packet_bytes], the device's first ones in order, about `FIRST`.
        """
        packets = packets[self._decoder.find_sound(packets)]
        columns = self._decoder.decode(packets, np.zeros(len(packets), np.int64))
        azimuth: Times = columns.azimuth.astype(np.int64)
        steps: Times = np.asarray(np.diff(azimuth) % np.int64(self._decoder.turn))
        steps = steps[(steps > 0) & (steps < _FAST * np.median(steps))] if len(steps) else steps
        if len(steps) < _LEAST_STEPS:
            return
        per_turn = self._decoder.turn / float(steps.mean())
        if abs(per_turn / self._per_turn - 1) > _OTHER:
            self.set_columns(round(per_turn))

    def measure_payloads(self, payloads: Sequence[bytes]) -> None:
        """Measure by payloads, of which those of the right length count: `measure`."""
        size = self.packet_bytes
        own = b"".join(each for each in payloads if len(each) == size)
        if own:
            self.measure(np.frombuffer(own, np.uint8).reshape(-1, size))

    def set_columns(self, per_turn: float) -> None:
        """Set the columns of a turn where they are not those of the model's table."""
        if per_turn == self._per_turn:
            return
        column_ns = 1e9 / (self._turn_hz * per_turn)
        self._beams = msgspec.structs.replace(self._beams, column_ns=column_ns)
        self._set_columns(per_turn)

    @property
    def packet_bytes(self) -> int:
        """Length of the packets."""
        return self._decoder.packet_bytes

    def specs(self, *, finite: bool) -> list[StreamSpec]:
        """Return the declaration of the stream, which does not change from then on."""
        decoder, self._declared = self._decoder, True
        shape, unit = (decoder.channels, self._width), f"{decoder.unit_mm:g} mm"
        specs = []
        for number, name in enumerate(decoder.returns, 1):
            mark = "" if number == 1 else str(number)
            text = f"{name} return, staggered"
            specs.append(ChannelSpec(f"rng{mark}", "zstdf", "u2", shape, f"range, {text}", unit))
            specs.append(ChannelSpec(f"rfl{mark}", "zstdf", "u1", shape, f"reflectivity, {text}"))
            if decoder.confidence:
                specs.append(
                    ChannelSpec(f"conf{mark}", "zstdf", "u1", shape, f"confidence, {text}")
                )
        turn = f"1/{decoder.turn} turn"
        text = "device time of each column, before its channels' firing times; 0: no column"
        if len(decoder.states) > 1:
            what = "which firing times of beams.json hold"
            specs.append(ChannelSpec("state", "raw", "u1", shape[1:], what))
        specs.append(ChannelSpec("azimuth", "raw", "u4", shape[1:], "azimuth of each column", turn))
        specs.append(ChannelSpec("t_col", "raw", "u8", shape[1:], text, "ns", device_time=True))
        files = {BEAMS: self._beams.to_text()}
        size = sum(channel.sample_bytes for channel in specs)
        if self._log is not None:
            specs.append(packets_channel(decoder.packet_bytes))
            packets = math.ceil(self._per_turn / self._mirrors / decoder.columns)
            size += packets * decoder.packet_bytes
            if self._device_packet:
                files[DEVICE] = json.dumps({DEVICE_PACKET: self._device_packet.hex()})
        return [
            StreamSpec(
                self._sensor.name,
                tuple(specs),
                bytes_per_sample=size // 2,
                rate_hz=round(decoder.rate_hz * self._mirrors, 1) or None,
                device_clock=True,
                finite=finite,
                description=f"{decoder.vendor} {decoder.model}, one sample a sweep, staggered",
                files=files,
                settings={
                    "vendor": decoder.vendor,
                    "model": decoder.model,
                    "returns": list(decoder.returns),
                    "channels": decoder.channels,
                    "clock": decoder.clock,
                    COLUMNS_PER_TURN: self._per_turn,
                },
            )
        ]

    def take(self, packets: Packets, t_ns: Times, epoch_ns: Times) -> Iterator[Item]:
        """Convert packets of the right length.

        Args:
            packets: u1 [packets, packet_bytes].
            t_ns: i8 [packets], stamps for the items.
            epoch_ns: i8 [packets], the host's time of each, epoch ns.

        Raises:
            FormChangedError: the device has changed the form of its packets, or its speed, so that
                the stream has another form; all before that is given.
        """
        if self._first is not None and not self._declared:
            self._first.append((packets, t_ns, epoch_ns))
            if sum(len(each[1]) for each in self._first) < FIRST:
                return
        if self._first:
            packets, t_ns, epoch_ns = self._join_first((packets, t_ns, epoch_ns))
        sound = self._decoder.find_sound(packets)
        intact = self._decoder.find_intact(packets)
        if not intact.all():
            self.damaged += int(np.count_nonzero(sound & ~intact))
            sound &= intact
        change = ""
        if not sound.all():
            change = self._see_others(packets, sound)
            packets, t_ns, epoch_ns = packets[sound], t_ns[sound], epoch_ns[sound]
        elif self._form is not None:
            self._form.see_own()
        if len(packets):
            self._offset_ns = int(epoch_ns[0] - t_ns[0])
            if isinstance(self._order, PacketOrder):
                numbers = self._decoder.read_numbers(packets)
                ordered = self._order.take(packets, t_ns, numbers)
            else:
                ordered = self._order.take(packets, t_ns, self._decoder.read_times(packets))
            yield from self._convert(ordered)
        if change:
            yield from self._end(change)

    def take_other(self, packet: bytes) -> Iterator[Item]:
        """Take a packet of another length, which cannot be decoded; raises as `take`."""
        self.corrupt += 1
        if self._form is not None and (change := self._form.see_other(packet)):
            yield from self._end(change)

    def finish(self) -> Iterator[Item]:
        """Give what waits, and the last sweep."""
        if self._first and not self._declared:
            self._declared = True
            (packets, t_ns, epoch_ns), self._first = self._first[-1], self._first[:-1]
            yield from self.take(packets, t_ns, epoch_ns)
        yield from self._convert(self._order.finish(self._decoder.packet_bytes))
        for sweep in self._assembly.finish():
            yield from self._give(sweep)

    def _join_first(self, newest: tuple[Packets, Times, Times]) -> tuple[Packets, Times, Times]:
        """Return the first packets, which waited until the columns of a turn were known."""
        assert self._first is not None
        if self._first[-1][0] is not newest[0]:
            self._first.append(newest)
        joined = [np.concatenate(each) for each in zip(*self._first, strict=True)]
        self._first = None
        if not self._declared:
            self.measure(joined[0])
        return joined[0], joined[1], joined[2]

    def _see_others(self, packets: Packets, sound: npt.NDArray[np.bool_]) -> str:
        """Count packets that cannot be decoded; return the change of their form, if it is sure."""
        change = ""
        for at in np.flatnonzero(~sound).tolist():
            self.corrupt += 1
            if self._form is not None:
                if at and sound[at - 1]:
                    self._form.see_own()
                change = change or self._form.see_other(packets[at].tobytes())
        if self._form is not None and sound[-1]:
            self._form.see_own()
        return change

    def _end(self, change: str) -> Iterator[Item]:
        yield from self.finish()
        raise FormChangedError(change)

    def _convert(self, ordered: Ordered) -> Iterator[Item]:
        if not len(ordered):
            return
        decoder, name = self._decoder, self._sensor.name
        columns = decoder.decode(ordered.packets, ordered.t_ns + self._offset_ns)
        per_packet = len(columns.azimuth) // len(ordered)
        host_ns = np.repeat(ordered.t_ns, per_packet)
        columns_span = columns.host_ns is not None  # they begin in one packet and end in the next
        if columns.host_ns is not None:
            host_ns = columns.host_ns - self._offset_ns
        columns = replace(columns, host_ns=host_ns)
        if self._log is not None:
            self._log.add(ordered.packets, ordered.t_ns, len(host_ns), spare=int(columns_span))
        if not len(host_ns):
            return
        if self._gaps is not None:
            missing = self._gaps.find(columns)
        else:
            missing = np.zeros(len(columns.azimuth), np.int64)
            missing[::per_packet] = ordered.missing * per_packet
        self._packets_missing += round(int(missing.sum()) / max(1, per_packet))
        t_ns = int(ordered.t_ns[-1])
        if clock := self._clock.take(t_ns + self._offset_ns, int(columns.t_ns[-1])):
            yield State(name, t_ns, clock, lasting=True)
        for sweep in self._assembly.take(columns, missing):
            yield from self._give(sweep)
        state = decoder.read_state(ordered.packets)
        if state != self._state:
            self._state = state
            yield State(name, t_ns, dict(state), lasting=True)

    def _give(self, sweep: Sweep) -> Iterator[Item]:
        name = self._sensor.name
        t_ns, device_ns = int(sweep.join("host_ns").max()), int(sweep.join("t_ns").max())
        cause = CORRUPT if self.damaged else self._cause
        if sweep.lost_before:
            detail = {"packets_missing": self._packets_missing}
            yield Lost(name, t_ns, cause, sweep.lost_before, detail=detail)
        images, beyond = fill_channels(sweep.parts, self._width)
        data: dict[str, npt.NDArray[Any] | Encoded] = {**images}
        if self._log is not None:
            data[PACKETS] = [self._log.take(len(sweep), t_ns, t_ns + self._offset_ns)]
        yield Sample(name, np.array([t_ns], np.int64), data, np.array([device_ns], np.int64))
        report: dict[str, Any] = {}
        if missing := sweep.missing + beyond:
            report = {"columns_missing": missing, **incomplete(cause, missing)}
        if beyond:
            report["columns_beyond_width"] = beyond
        if self._packets_missing:  # in this sweep or before it
            report["packets_missing"], self._packets_missing = self._packets_missing, 0
        if self.corrupt:
            report["packets_corrupt"], self.corrupt = self.corrupt, 0
        if self.damaged and (missing or sweep.lost_before):  # by these packets
            report["packets_crc_wrong"], self.damaged = self.damaged, 0
        for key in ("repeated", "late", "restarts"):
            if count := getattr(self._order, key):
                report[f"packets_{key}"] = count
                setattr(self._order, key, 0)
        if report:
            yield State(name, t_ns, report)
        yield from self._check_rate(sweep, t_ns)
        self._wide = self._wide + 1 if beyond else 0
        if self._wide == _ENOUGH:
            rate_hz = 1e9 / (self._beams.column_ns * len(sweep))
            raise FormChangedError(
                f"the device turns at {rate_hz:.1f} Hz from here on, before at "
                f"{self._rate_hz:.1f} Hz: its sweeps have more columns than the stream"
            )

    def _check_rate(self, sweep: Sweep, t_ns: int) -> Iterator[Item]:
        """Report another speed once two turns have it."""
        began_ns, self._began_ns = self._began_ns, int(sweep.parts[0].t_ns[0])
        if began_ns is None or sweep.missing or sweep.lost_before or self._began_ns <= began_ns:
            return
        rate_hz = 1e9 / (self._began_ns - began_ns)
        if not _RATES_HZ[0] <= rate_hz <= _RATES_HZ[1]:
            return  # by damaged times
        before_hz, self._turned_hz = self._turned_hz, rate_hz
        if abs(rate_hz / self._told_hz - 1) > _RATE > abs(rate_hz / before_hz - 1):
            self._told_hz = round(rate_hz, 1)
            yield State(self._sensor.name, t_ns, {"rate_hz": self._told_hz}, lasting=True)
