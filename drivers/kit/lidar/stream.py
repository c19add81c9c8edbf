"""The stream of a spinning lidar: packets become sweeps, losses and states.

::

    stream = SweepStream(sensor, decoder, beams, live=True)
    specs = stream.specs(finite=False)
    for item in stream.take(packets, t_ns, epoch_ns):
        ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State, incomplete
from drivers.kit.lidar.columns import Columns
from drivers.kit.lidar.decoder import PacketDecoder, Packets
from drivers.kit.lidar.order import Ordered, PacketOrder
from drivers.kit.lidar.sweeps import Sweep, SweepAssembly, fill_channels
from recorder.codecs.beams import BEAMS, Beams
from recorder.codecs.streams import ChannelSpec, StreamSpec

SPARE: Final = 1.03
"""Columns of a turn vary by 2 percent with the motor's speed."""
_CLOCK_STEP_NS: Final = 200_000_000
_NEAR: Final = 3.0
"""Columns by which the edges of the field of view vary from turn to turn."""

Times = npt.NDArray[np.int64]


class SweepStream:
    """Converter of one lidar's packets to items.

    Args:
        sensor: the sensor's entry, with the option ``cut_deg``.
        decoder: of its packets.
        beams: the description of its beams.
        live: the sensor is a device: missing packets were lost in the network.

    Attributes:
        corrupt: packets that could not be decoded since the last sweep.
    """

    def __init__(
        self, sensor: SensorConfig, decoder: PacketDecoder, beams: Beams, *, live: bool
    ) -> None:
        self._sensor, self._decoder, self._beams = sensor, decoder, beams
        self._cause = "network" if live else "device"
        self._per_turn = 1e9 / (decoder.column_ns * (decoder.rate_hz or 10.0))
        self._step = decoder.turn / self._per_turn
        self._width = math.ceil(self._per_turn * SPARE)
        cut = round(sensor.options["cut_deg"] * decoder.turn / 360) % decoder.turn
        self._assembly = SweepAssembly(decoder.turn, cut, self._step)
        self._order = PacketOrder(decoder.number_bits) if decoder.number_bits else None
        self._views: list[tuple[int, int]] = []  # gaps of the field of view: last and next azimuth
        self._last: tuple[int, int] | None = None  # azimuth and time of the last column
        self._last_epoch_ns = self._last_dev_ns = 0
        self.corrupt = self._packets_missing = 0
        self._state: dict[str, Any] = {}

    @property
    def packet_bytes(self) -> int:
        """Length of the packets."""
        return self._decoder.packet_bytes

    def specs(self, *, finite: bool) -> list[StreamSpec]:
        """Return the declaration of the stream."""
        decoder = self._decoder
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
        return [
            StreamSpec(
                self._sensor.name,
                tuple(specs),
                rate_hz=round(decoder.rate_hz, 1) or None,
                device_clock=True,
                finite=finite,
                description=f"{decoder.vendor} {decoder.model}, one sample a sweep, staggered",
                files={BEAMS: self._beams.to_text()},
                settings={
                    "vendor": decoder.vendor,
                    "model": decoder.model,
                    "returns": list(decoder.returns),
                    "channels": decoder.channels,
                },
            )
        ]

    def take(self, packets: Packets, t_ns: Times, epoch_ns: Times) -> Iterator[Item]:
        """Convert packets of the right length.

        Args:
            packets: u1 [packets, packet_bytes].
            t_ns: i8 [packets], stamps for the items.
            epoch_ns: i8 [packets], the host's time of each, epoch ns.
        """
        sound = self._decoder.find_sound(packets)
        if not sound.all():
            self.corrupt += int(np.count_nonzero(~sound))
            packets, t_ns, epoch_ns = packets[sound], t_ns[sound], epoch_ns[sound]
        if not len(packets):
            return
        offset = int(epoch_ns[0] - t_ns[0])
        if self._order is None:
            ordered = Ordered(packets, t_ns, np.zeros(len(packets), np.int64))
        else:
            ordered = self._order.take(packets, t_ns, self._decoder.read_numbers(packets))
        yield from self._convert(ordered, offset)

    def finish(self) -> Iterator[Item]:
        """Give what waits, and the last sweep."""
        if self._order is not None:
            yield from self._convert(self._order.finish(self._decoder.packet_bytes), 0)
        for sweep in self._assembly.finish():
            yield from self._give(sweep)

    def _convert(self, ordered: Ordered, offset: int) -> Iterator[Item]:
        if not len(ordered):
            return
        decoder = self._decoder
        columns = decoder.decode(ordered.packets, ordered.t_ns + offset)
        per_packet = len(columns.azimuth) // len(ordered)
        columns = replace(columns, host_ns=np.repeat(ordered.t_ns, per_packet))
        if self._order is None:
            missing = self._find_gaps(columns)
        else:
            missing = np.zeros(len(columns.azimuth), np.int64)
            missing[::per_packet] = ordered.missing * per_packet
        for sweep in self._assembly.take(columns, missing):
            yield from self._give(sweep)
        state = decoder.read_state(ordered.packets)
        if state != self._state:
            self._state = state
            yield State(self._sensor.name, int(ordered.t_ns[-1]), dict(state), lasting=True)

    def _find_gaps(self, columns: Columns) -> Times:
        """Return the number of columns missing before each one, by azimuth and time.

        The time tells whole turns; a step of the device's clock does not agree with the azimuth.
        """
        turn, step_ns = self._decoder.turn, self._decoder.column_ns
        azimuth, t_ns = columns.azimuth.astype(np.int64), columns.t_ns
        first = self._last or (int(azimuth[0]) - round(self._step), int(t_ns[0]) - round(step_ns))
        turned = (np.diff(azimuth, prepend=first[0]) % turn) / self._step
        passed = np.diff(t_ns, prepend=first[1]) / step_ns
        by_time = np.rint(passed)
        differs = (by_time - turned + self._per_turn / 2) % self._per_turn - self._per_turn / 2
        agrees = (passed > 0) & (np.abs(differs) < np.maximum(2, 0.05 * turned))
        missing = np.where(agrees, by_time, np.rint(turned)).astype(np.int64) - 1
        self._last = int(azimuth[-1]), int(t_ns[-1])
        for at in np.flatnonzero(missing > 1).tolist():
            edges = int(azimuth[at - 1]) if at else first[0], int(azimuth[at])
            if at % self._decoder.columns:  # inside a packet: nothing was lost
                self._learn_view(edges)
            if self._ends_view(edges):
                missing[at] -= round((edges[1] - edges[0]) % turn / self._step) - 1
        return np.maximum(missing, 0)

    def _learn_view(self, edges: tuple[int, int]) -> None:
        if not self._ends_view(edges):
            self._views.append(edges)

    def _ends_view(self, edges: tuple[int, int]) -> bool:
        """Return whether a gap lies between two parts of the set field of view."""
        turn, near = self._decoder.turn, _NEAR * self._step
        return any(
            all(
                abs((edge - known + turn // 2) % turn - turn // 2) <= near
                for edge, known in zip(edges, view, strict=True)
            )
            for view in self._views
        )

    def _give(self, sweep: Sweep) -> Iterator[Item]:
        name, columns = self._sensor.name, sweep.columns
        assert columns.host_ns is not None
        t_ns, device_ns = int(columns.host_ns.max()), int(columns.t_ns.max())
        if sweep.lost_before:
            yield Lost(name, t_ns, self._cause, sweep.lost_before)
        data, beyond = fill_channels(columns, self._width)
        yield Sample(name, np.array([t_ns], np.int64), data, np.array([device_ns], np.int64))
        report: dict[str, Any] = {}
        if missing := sweep.missing + beyond:
            report = {"columns_missing": missing, **incomplete(self._cause, missing)}
        if beyond:
            report["columns_beyond_width"] = beyond
        if self.corrupt:
            report["packets_corrupt"], self.corrupt = self.corrupt, 0
        if self._order is not None:
            for key in ("repeated", "late", "restarts"):
                if count := getattr(self._order, key):
                    report[f"packets_{key}"] = count
                    setattr(self._order, key, 0)
        if report:
            yield State(name, t_ns, report)
