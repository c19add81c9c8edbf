"""Recorded Ouster sensors: captures (pcap) and OSF files."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from drivers.kit.driver import Item, Lost, SensorConfig, State
from drivers.ouster.frames import frame_fields
from drivers.ouster.intake import AssemblingSource
from drivers.ouster.packets import ClockStep, Misfit
from drivers.ouster.sdk import SDK_ERRORS, load_info, load_sdk, one_line, open_capture
from drivers.ouster.stream import Sensor, last_ns
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, SourceError
from recorder.formats.pcap.datagrams import CORRUPT, CaptureNotes, LostDatagram

_HEAD: Final = 64  # packets among which the first right checksum is looked for
T = TypeVar("T")


class PacketSource(AssemblingSource, ABC):
    """Source of recorded packets; memory does not grow with the recording's length."""

    def __init__(self, config: SensorConfig) -> None:
        self._config = config
        self._ended = False

    @abstractmethod
    def _packets(self) -> Iterator[Any]:
        """Yield ouster-sdk's packets with their host stamps, and the events to report.

        The events are `Misfit`, `ClockStep`, `Lost` and `LostDatagram`.
        """

    def _notes(self) -> CaptureNotes:
        """Return the notes to report at the end."""
        return CaptureNotes()

    @abstractmethod
    def _fault(self, text: str) -> SourceError:
        """Return an error of the recording."""

    def _sweep(self, frame: Any, t_ns: int) -> Iterator[Item]:
        self._sensor.ending = self._ended and self._assembly.at_last
        yield from super()._sweep(frame, t_ns)

    def items(self) -> Iterator[Item]:
        fault: Exception | None = None
        name, core, last_packet_ns = self._sensor.name, self._core, 0
        lost: Counter[str] = Counter()  # packets since the last one that is usable
        try:
            for packet in self._find_proof(self._packets()):
                match packet:
                    case LostDatagram():
                        self._sensor.partial[packet.cause] += 1
                        lost[packet.cause] += 1
                    case Lost():
                        yield from self._assembly.hold(packet, packet.t_ns)
                    case Misfit():
                        detail = {"packet_bytes": packet.size, "expected_bytes": packet.expected}
                        report = Lost(name, packet.t_ns, "corrupt", None, detail=detail)
                        yield from self._assembly.hold(report, packet.t_ns)
                    case ClockStep():
                        step = {"host_clock_step_ns": packet.step_ns}
                        yield State(name, packet.t_ns, step)
                    case _:
                        damaged = self._sensor.corrupt
                        lidar = isinstance(packet, core.LidarPacket)
                        if self._intake.is_usable(packet):
                            # Its frame id shows the losses before it: these need no estimate.
                            if lidar:
                                lost.clear()
                            last_packet_ns = int(packet.host_timestamp)
                            yield from self._intake.take(packet)
                        elif lidar and self._sensor.corrupt > damaged:
                            lost[CORRUPT] += 1
        except (FormatError, OSError, RuntimeError) as error:
            fault = error  # raised after the complete items before it are returned
        self._ended = True
        yield from self._assembly.finish()
        yield from self._missing_end(lost, last_packet_ns)
        yield from self._sensor.finish()
        notes = self._notes()
        if values := notes.values():
            yield State(name, last_packet_ns, values)
        for text in notes.warnings():
            print(self._fault(text), file=sys.stderr, flush=True)
        if fault is not None:
            raise self._fault(one_line(fault)) from None

    def _find_proof(self, packets: Iterator[Any]) -> Iterator[Any]:
        """Look for a packet with a right checksum before the first packet is used.

        A damaged packet at the beginning is found only then; see `Checksums`.
        """
        head: list[Any] = []
        fault: Exception | None = None
        kinds = self._core.LidarPacket, self._core.ImuPacket
        try:
            for packet in packets:
                head.append(packet)
                if len(head) == _HEAD or (
                    isinstance(packet, kinds) and self._intake.proves(packet)
                ):
                    break
        except (FormatError, OSError, RuntimeError) as error:
            fault = error
        yield from head
        if fault is not None:
            raise fault
        yield from packets

    def _missing_end(self, lost: Counter[str], t_ns: int) -> Iterator[Lost]:
        """Report whole sweeps that are missing at the end: no later frame id shows them."""
        if sweeps := lost.total() // max(1, self._sensor.packets_per_sweep):
            cause = max(lost, key=lost.__getitem__)
            detail = {f"packets_{each}": count for each, count in lost.items()}
            yield Lost(self._sensor.name, t_ns, cause, None, estimate=sweeps, detail=detail)


class PcapSource(PacketSource):
    """Source that reads a capture packet by packet."""

    _file: Any = None

    def open(self) -> Sequence[StreamSpec]:
        core = load_sdk()
        self._path = path = self._config.path
        options = self._config.options
        metadata = Path(options["metadata"] or path.with_suffix(".json"))
        if not metadata.is_file():
            raise SourceError(
                f"{self._config.name}: pcap:{path} needs the sensor's metadata (option "
                f"`metadata`); {metadata}: no such file"
            )
        info, text = load_info(core, metadata)
        specs = self._declare(core, info, text, str(metadata))
        self._file, self._capture = open_capture(core, info, options, path)
        return specs

    def _packets(self) -> Iterator[Any]:
        return self._capture.read(self._file)

    def _notes(self) -> CaptureNotes:
        return self._capture.notes

    def _fault(self, text: str) -> SourceError:
        return SourceError(f"{self._path}: {text}")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class OsfSource:
    """Source that reads a file of ouster-sdk: decoded frames, with their metadata."""

    def __init__(self, config: SensorConfig) -> None:
        self._config = config
        self._messages: Iterable[Any] = ()
        self._complaints: list[str] = []

    def open(self) -> Sequence[StreamSpec]:
        core = load_sdk()
        from ouster.sdk import osf

        self._path = path = self._config.path
        self._complaints = complaints = []
        try:
            reader = osf.Reader(str(path), error_handler=lambda _, text: complaints.append(text))
            sensors = reader.meta_store.find(osf.LidarSensor)
            stream_id, info, text = self._choose(
                {
                    int(stream): sensors[meta.sensor_meta_id].info
                    for stream, meta in reader.meta_store.find(osf.LidarFrameStream).items()
                    if meta.sensor_meta_id in sensors
                }
            )
            if self._config.options["metadata"]:
                info, text = load_info(core, Path(self._config.options["metadata"]))
            first = next((m.decode() for m in reader.messages([stream_id])), None)
            if first is None:
                raise SourceError(f"{path}: holds no sweep; {self._fault()}")
            if (first.h, first.w) != (info.h, info.w):
                raise SourceError(
                    f"{path}: its sweeps have {first.h} x {first.w} points, but the sensor's "
                    f"metadata declares {info.h} x {info.w}"
                )
            self._sensor = Sensor(core, self._config, info, frame_fields(core, first))
            self._messages = reader.messages([stream_id])
        except SDK_ERRORS as error:
            raise SourceError(f"{path}: is not an OSF file: {one_line(error)}") from None
        self._with_imu = first.has_field("IMU_ACC") and first.has_field("IMU_TIMESTAMP")
        return self._sensor.specs(text, self._with_imu, finite=True)

    def items(self) -> Iterator[Item]:
        fields = [*self._sensor.recorded, *(_OSF_IMU if self._with_imu else ())]
        try:
            for message, is_last in mark_last(self._messages):
                self._sensor.ending = is_last
                frame = message.decode(fields)
                device_ns = int(frame.timestamp.max())
                t_ns = int(frame.packet_timestamp.max()) or int(message.ts) or device_ns
                later = []
                for item in self._imu(frame, t_ns - device_ns) if self._with_imu else ():
                    if last_ns(item) <= t_ns:
                        yield item
                    else:
                        later.append(item)
                yield from self._sensor.sweep(frame, t_ns)
                yield from later
        except (FormatError, *SDK_ERRORS) as error:
            raise SourceError(f"{self._path}: {one_line(error)}") from None
        yield from self._sensor.finish()
        if self._complaints:
            raise SourceError(f"{self._path}: {self._fault()}")

    def close(self) -> None:
        self._messages = ()

    def _choose(self, streams: Mapping[int, Any]) -> tuple[int, Any, str]:
        serial = self._config.options["serial"]
        if not streams:
            raise SourceError(f"{self._path}: holds no lidar; {self._fault()}")
        fitting = {k: v for k, v in streams.items() if serial is None or v.sn == serial}
        if len(fitting) != 1:
            there = ", ".join(str(info.sn) for info in streams.values())
            asked = "select one with option `serial`" if serial is None else f"none is {serial}"
            raise SourceError(f"{self._path}: holds the sensors {there}; {asked}")
        stream_id, info = fitting.popitem()
        return stream_id, info, ""

    def _fault(self) -> str:
        text = " ".join(self._complaints[0].split()) if self._complaints else "it is empty"
        return f"ouster-sdk reports: {text}" if self._complaints else text

    def _imu(self, frame: Any, host_minus_device_ns: int) -> Iterator[Item]:
        acc, avel, t_dev_ns, status, packets = (frame.field(name) for name in _OSF_IMU)
        size = len(t_dev_ns) // max(1, len(packets))
        for k, t_ns in enumerate(packets):
            part = slice(k * size, (k + 1) * size)
            t_ns = int(t_ns) or int(t_dev_ns[part][-1]) + host_minus_device_ns
            values = t_dev_ns[part], acc[part], avel[part], status[part]
            yield from self._sensor.imu(t_ns, *values)


def mark_last(items: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """Yield each item, and whether it is the last one, or the last before an error."""
    waiting: list[T] = []
    try:
        for item in items:
            yield from [(before, False) for before in waiting]
            waiting = [item]
    except SDK_ERRORS:
        yield from [(last, True) for last in waiting]
        raise
    yield from [(last, True) for last in waiting]


_OSF_IMU = ("IMU_ACC", "IMU_GYRO", "IMU_TIMESTAMP", "IMU_STATUS", "IMU_PACKET_TIMESTAMP")
