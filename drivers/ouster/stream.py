"""The common part of all Ouster sources: streams, samples, and counts of missing data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State, incomplete
from drivers.ouster.frames import (
    LAYOUT,
    Fields,
    channel_arrays,
    channel_specs,
    imu_rate_hz,
    stream_specs,
)
from drivers.ouster.packets import ImuGaps
from drivers.ouster.packing import choose_packing
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError

CLOCK_STEP_NS: Final = 200_000_000
"""Longer than any delay of a sweep: a larger step means that the device's clock was set."""


_NEVER_NS: Final = np.uint64(1 << 62)
"""No device's clock reaches this value, and twice as much would overflow the contract's stamps."""

_PACKET_NS: Final = 10_000_000_000
"""Longest time of one packet's measurements."""


def last_ns(item: Item) -> int:
    """Return an item's last stamp."""
    return int(item.t_ns[-1]) if isinstance(item, Sample) else item.t_ns


def _latest(t_dev_ns: npt.NDArray[np.uint64]) -> int:
    """Return the latest device time; 0 where all are impossible."""
    return int(t_dev_ns[t_dev_ns <= _NEVER_NS].max(initial=0))


class Sensor:
    """Converter of a sensor's decoded frames and IMU packets to items.

    Args:
        core: the module ouster.sdk.core.
        config: the sensor's entry.
        info: its SensorInfo.
        fields: the fields of its frames.
        live: the sensor is a device: missing sweeps were lost in the network, and steps of its
            clock are reported.

    Attributes:
        repeated, corrupt: packets that the source discarded since the last sweep; reported with
            the next sweep.
        packets_per_sweep: lidar packets of a whole sweep.
        partial: packets that a capture holds only in part, since the last sweep, by their cause.
        ending: the source has ended, and the sweep that follows is its last.
    """

    def __init__(
        self, core: Any, config: SensorConfig, info: Any, fields: Fields, live: bool = False
    ) -> None:
        self.name = config.name
        self.info = info
        self.fields = fields
        self.extra: list[str] = config.options["extra"]
        self.last_id: int | None = None
        self.repeated = self.corrupt = 0
        self.partial: Counter[str] = Counter()
        self.ending = False
        self._unexplained: Counter[str] = Counter()  # discarded packets that no sweep lacks yet
        self._options = config.options
        self._live = live
        self._shape: tuple[int, int] = (info.h, info.w)
        self._columns_expected = int(info.format.valid_columns_per_frame())
        self.packets_per_sweep = int(info.format.lidar_packets_per_frame())
        self._id_span = int(core.PacketFormat(info).max_frame_id) + 1
        self._last_ns = self._last_dev_ns = self._imu_ns = 0
        self._condition = {"alert_flags": 0, "thermal_shutdown": 0, "shot_limiting": 0}
        self._period_ns = 1e9 / (info.format.fps or 10)
        self._imu_hz = imu_rate_hz(info) or 100.0
        self._gaps = ImuGaps(self._imu_hz)
        if unknown := [n for n in self.extra if n not in fields or n in LAYOUT]:
            known = ", ".join(sorted(set(fields) - set(LAYOUT))) or "none"
            raise SourceError(
                f"{self.name}: extra: {unknown[0]!r} is not a further field of this sensor's "
                f"profile {info.format.udp_profile_lidar.name}; the fields are: {known}"
            )
        self.recorded = [*(n for n in LAYOUT if n in fields), *self.extra] if fields else []

    def specs(self, text: str, with_imu: bool, finite: bool) -> list[StreamSpec]:
        """Return the streams; SourceError if there are none."""
        info = self.info
        channels = channel_specs(
            self.fields, int(info.h), int(info.w), self._options["compression"], self.extra
        )
        packing = choose_packing(self._options["packing"], channels, float(info.format.fps) or None)
        specs = stream_specs(
            self.name,
            self.info,
            text,
            self.fields,
            compression=self._options["compression"],
            extra=self.extra,
            imu=with_imu and self._options["imu"],
            finite=finite,
            settings=packing.settings,
            bytes_per_sample=packing.bytes_per_sample,
        )
        if not specs:
            raise SourceError(f"{self.name}: the sensor sends no lidar data, and imu is false")
        return specs

    def sweep(self, frame: Any, t_ns: int) -> Iterator[Item]:
        """Convert a decoded frame to a sample, and report missing data before and in it."""
        frame_id, previous_id = int(frame.frame_id), self.last_id
        arrived = self.partial + Counter(corrupt=self.corrupt)
        self._unexplained += arrived
        detail: dict[str, Any] = {"frame_id": frame_id}
        if previous_id is not None:
            ahead = (frame_id - previous_id) % self._id_span
            if 1 < ahead <= self._id_span // 2:  # a larger distance: the count was restarted
                gap = detail | {"previous_frame_id": previous_id}
                packets = gap["packets_missing"] = (ahead - 1) * self.packets_per_sweep
                yield Lost(self.name, t_ns, self._find_cause(packets), ahead - 1, detail=gap)
        self.last_id = frame_id
        valid = int(np.count_nonzero(frame.status & 1))
        if not valid:
            yield Lost(self.name, t_ns, "device", 1, detail=detail | {"columns_valid": 0})
            return
        data = channel_arrays(frame.field, self.fields, self._shape, self.extra)
        data["t_col"] = frame.timestamp[None]
        device_ns = _latest(frame.timestamp)
        yield Sample(self.name, np.array([t_ns], np.int64), data, np.array([device_ns], np.int64))
        missing: dict[str, Any] = {}
        packets = self._packets_missing(frame, previous_id is None)
        cause = self._find_cause(packets)
        self._unexplained &= arrived
        if valid < self._columns_expected:
            missing["columns_missing"] = self._columns_expected - valid
            missing["packets_missing"] = packets
            if holes := self._columns_missing(frame, previous_id is None):
                missing |= incomplete(cause, holes)
        missing |= self._take_discarded()
        if missing:
            yield State(self.name, t_ns, missing | detail)
        yield from self._changes(frame, t_ns, device_ns)

    def _take_discarded(self) -> dict[str, int]:
        """Return and reset the counts of the packets that were discarded."""
        found = {f"packets_{cause}": count for cause, count in self.partial.items()}
        if self.repeated or self.corrupt:
            found |= {"packets_repeated": self.repeated}
            found["packets_corrupt"] = self.corrupt + found.get("packets_corrupt", 0)
        self.repeated = self.corrupt = 0
        self.partial.clear()
        return found

    def _find_cause(self, packets: int) -> str:
        """Return the cause of missing packets: that of discarded packets if these explain most.

        A discarded packet of a sweep may have arrived before the previous sweep was complete.
        """
        found: Counter[str] = Counter()
        for cause, count in self._unexplained.most_common():
            found[cause] = min(count, packets - found.total())
        self._unexplained -= found
        if not packets:
            return "device"  # its packets have arrived: the sensor measured nothing there
        if 2 * found.total() > packets:
            return max(found, key=found.__getitem__)
        return "network" if self._live else "device"

    def _columns_missing(self, frame: Any, first: bool) -> int:
        """Count the columns that a sweep lacks; a source may begin and end within a sweep."""
        begin, end = (int(column) for column in self.info.format.column_window)
        width = (end - begin) % len(frame.status) + 1
        there = np.flatnonzero((np.roll(frame.status, -begin)[:width] & 1) != 0)
        since = int(there[0]) if first and len(there) else 0
        until = int(there[-1]) + 1 if self.ending and len(there) else width
        return until - since - len(there)

    def _packets_missing(self, frame: Any, first: bool) -> int:
        """Count the packets that a sweep lacks; a first sweep may begin late."""
        there = np.flatnonzero(frame.packet_timestamp)
        missing = self.packets_per_sweep - len(there)
        if first and len(there):
            begin = int(self.info.format.column_window[0])
            begin //= int(self.info.format.columns_per_packet)
            missing -= max(0, int(there[0]) - begin)
        return max(0, missing)

    def _changes(self, frame: Any, t_ns: int, device_ns: int) -> Iterator[Item]:
        """Report changes of the sensor's status, and steps of its clock."""
        now = {
            "alert_flags": int(frame.alert_flags.max()),
            "thermal_shutdown": int(frame.thermal_shutdown()),
            "shot_limiting": int(frame.shot_limiting()),
        }
        if now != self._condition:
            self._condition = now
            yield State(self.name, t_ns, dict(now), lasting=True)
        if self._live:
            step_ns = (device_ns - self._last_dev_ns) - (t_ns - self._last_ns)
            if self._last_ns and abs(step_ns) > CLOCK_STEP_NS:
                yield State(self.name, t_ns, {"device_clock_step_ns": step_ns})
        self._last_ns, self._last_dev_ns = t_ns, device_ns

    def restarted(self, t_ns: int, init_id: int) -> Iterator[Item]:
        """Report a restart of the sensor, which restarts its frame ids."""
        self.last_id = None
        self._gaps.restart()
        if self._last_ns and (absent := round((t_ns - self._last_ns) / self._period_ns)) > 0:
            detail = {"init_id": init_id}
            yield Lost(self.name, t_ns, "device", None, estimate=absent, detail=detail)
            if self._imu_ns:
                absent = round((t_ns - self._last_ns) * self._imu_hz / 1e9)
                name = self.name + "_imu"
                yield Lost(name, t_ns, "device", None, estimate=absent, detail=dict(detail))
        self._last_ns = 0
        yield State(self.name, t_ns, {"sensor_restarted": True, "init_id": init_id})

    def finish(self) -> Iterator[Item]:
        """Report the pending losses and counts at the end."""
        if self._last_ns and (discarded := self._take_discarded()):
            yield State(self.name, self._last_ns, discarded)
        if lost := self._gaps.lost(at_once=True):
            yield self._imu_lost(self._imu_ns, lost)

    def imu_packet(self, packet: Any) -> Iterator[Item]:
        """Make the items of an ImuPacket of ouster-sdk."""
        values = packet.timestamp(), packet.accel(), packet.gyro(), packet.status()
        return self.imu(int(packet.host_timestamp), *values)

    def imu(
        self,
        t_ns: int,
        t_dev_ns: npt.NDArray[np.uint64],
        acc: npt.NDArray[np.float32],
        avel: npt.NDArray[np.float32],
        status: npt.NDArray[np.uint16],
    ) -> Iterator[Item]:
        """Make the items of an IMU packet's measurements; none for a duplicate or unwanted packet.

        `t_ns` belongs to the last measurement; the device's clock places the earlier measurements.
        """
        if not self._options["imu"] or not len(t_dev_ns):
            return
        if (
            _latest(t_dev_ns) - int(t_dev_ns[0]) not in range(_PACKET_NS)
            or t_dev_ns[-1] > _NEVER_NS
        ):
            self.corrupt += 1
            return
        if not self._gaps.take(t_ns, int(t_dev_ns[0]), int(t_dev_ns[-1]), len(t_dev_ns)):
            self.repeated += self._live
            return
        self._imu_ns = t_ns
        if lost := self._gaps.lost():
            yield self._imu_lost(t_ns, lost)
        good = np.flatnonzero(status & 1)
        if not len(good):
            return
        device = t_dev_ns[good].astype(np.int64)
        data = {
            "acc": np.ascontiguousarray(acc[good], "<f4"),
            "avel": np.ascontiguousarray(avel[good], "<f4"),
        }
        yield Sample(self.name + "_imu", device - int(t_dev_ns[-1]) + t_ns, data, device)

    def _imu_lost(self, t_ns: int, count: int) -> Lost:
        cause = "network" if self._live else "device"
        return Lost(self.name + "_imu", t_ns, cause, count)
