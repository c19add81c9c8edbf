"""Selection of an Ouster's packets from datagrams, and counts of missing and duplicate packets.

ouster-sdk is passed as an argument, because it is heavy and only imported when a source is opened.
"""

from __future__ import annotations

import _lzma
import ctypes
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.formats.pcap.datagrams import (
    CaptureNotes,
    Datagram,
    LostDatagram,
    SkippedPacket,
    read_capture,
)
from recorder.formats.pcap.records import DroppedPackets

_PATIENCE: Final = 4  # packets after which a missing packet is lost
_STEP_NS: Final = 1_000_000_000  # a gap longer than the wait for it by this: the clock was set
_HOPELESS: Final = 1000  # measurements: longer pauses are not counted
_FRAMES: Final = 4  # number of latest frames whose packets may still arrive


@dataclass(slots=True)
class _Gap:
    """Missing measurements between two stamps (exclusive)."""

    after_ns: int
    before_ns: int
    missing: int
    age: int = 0
    came: set[int] = field(default_factory=set)  # late packets, by their first stamp


class ImuGaps:
    """Counter of the IMU's missing measurements, by the device's own times.

    Ouster's IMU packets of the profile LEGACY have no counter.  Their measurements have an even
    rate, so a gap's length gives the number of missing measurements.  A packet that was overtaken
    by others fills its gap; measurements still missing after four more packets are lost.

    >>> gaps = ImuGaps(100.0)
    >>> gaps.take(1_010_000_000, 5_010_000_000, 5_010_000_000, 1)
    True
    >>> gaps.lost()
    0

    Args:
        rate_hz: nominal rate of the measurements.
    """

    def __init__(self, rate_hz: float) -> None:
        self._period_ns = 1e9 / rate_hz
        self._gaps: list[_Gap] = []
        self._last_ns: int | None = None
        self._arrival_ns = 0

    def take(self, arrival_ns: int, first_ns: int, last_ns: int, count: int) -> bool:
        """Process a packet's device times; return False for a duplicate.

        Args:
            arrival_ns: of the packet, on the host's clock.
            first_ns, last_ns: device times of its first and last measurement.
            count: number of its measurements.
        """
        last = self._last_ns
        if last is not None and last_ns <= last:
            for gap in self._gaps:
                if gap.after_ns < first_ns and last_ns < gap.before_ns and gap.missing:
                    if first_ns in gap.came:
                        return False
                    gap.came.add(first_ns)
                    gap.missing = max(0, gap.missing - count)
                    return True
            # The clock went back by more than packets can overtake each other: it was set.
            if last - last_ns <= _PATIENCE * max(count, 1) * self._period_ns:
                return False
        for gap in self._gaps:
            gap.age += 1
        if last is not None and last_ns > last:
            missing = round((first_ns - last) / self._period_ns) - 1
            stepped = first_ns - last > arrival_ns - self._arrival_ns + _STEP_NS
            if 0 < missing <= _HOPELESS and not stepped:
                self._gaps.append(_Gap(last, first_ns, missing))
        self._last_ns, self._arrival_ns = last_ns, arrival_ns
        return True

    def lost(self, at_once: bool = False) -> int:
        """Return the newly lost measurements since the last call; `at_once`: of all gaps."""
        over = [gap for gap in self._gaps if at_once or gap.age >= _PATIENCE]
        self._gaps = [gap for gap in self._gaps if not (at_once or gap.age >= _PATIENCE)]
        return sum(gap.missing for gap in over)

    def restart(self) -> None:
        """Discard the state after a restart of the sensor, whose pause cannot be counted."""
        self._last_ns = None
        self._gaps.clear()


class Repeats:
    """Detector of duplicate lidar packets.

    Args:
        core: the module ouster.sdk.core.
        layout: the PacketFormat.
    """

    def __init__(self, core: Any, layout: Any) -> None:
        self._per_packet = int(layout.columns_per_packet)
        packet = core.LidarPacket(layout)
        packet.buf[:] = 0
        layout.set_col_measurement_id(packet, 0, 0xFFFF)
        self._column_at = int(np.flatnonzero(packet.buf)[0])  # offset of the column's id, u2
        self._seen: dict[tuple[int, int], int] = {}

    def is_repeated(self, packet: Any) -> bool:
        """Return whether the packet is a duplicate; store it."""
        key = (packet.init_id(), packet.frame_id())
        at, data = self._column_at, packet.buf
        column = int(data[at]) | int(data[at + 1]) << 8
        bit = 1 << (column // self._per_packet)
        seen = self._seen.get(key, 0)
        if seen & bit:
            return True
        self._seen[key] = seen | bit
        if len(self._seen) > _FRAMES:
            del self._seen[next(iter(self._seen))]
        return False


@dataclass(frozen=True, slots=True)
class Misfit:
    """Lidar packets of another size than expected: the sensor's settings have changed.

    Attributes:
        t_ns: stamp of the first such packet.
        size, expected: bytes.
    """

    t_ns: int
    size: int
    expected: int


@dataclass(frozen=True, slots=True)
class ClockStep:
    """Backward step of the capturing host's clock; the following stamps are shifted to continue.

    Attributes:
        t_ns: stamp at which they continue.
        step_ns: size of the step, negative.
    """

    t_ns: int
    step_ns: int


_STEP_BACK_NS = 100_000_000  # smaller backward steps are packets that overtook each other


class Sorter:
    """Converter of one sensor's datagrams to ouster-sdk's packets, which skips other datagrams.

    >>> sorter = Sorter(core, info, {7502}, {7503})
    >>> packet = sorter.packet(7502, payload)     # None: not in a format of this sensor
    >>> sorter.is_ours(packet, source)            # by serial number or address

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo.
        lidar_port, imu_port: destination UDP ports.

    Attributes:
        layout: the PacketFormat.
        address: the sensor's address, for packets without a serial number; b"": unknown.
    """

    def __init__(self, core: Any, info: Any, lidar_port: int, imu_port: int) -> None:
        self._core = core
        self.layout = core.PacketFormat(info)
        self.ports = (lidar_port, imu_port)
        self.address = b""
        self._lidar_size = int(self.layout.lidar_packet_size)
        self._imu_size = int(self.layout.imu_packet_size)
        zones = bool(info.format.zone_monitoring_enabled)
        self._zone_size = int(self.layout.zone_packet_size) if zones else -1
        self._serial = int(info.sn or 0)
        self._lidar_has_serial = self.layout.udp_profile_lidar.name != "LEGACY"
        self._imu_has_serial = info.format.udp_profile_imu.name != "LEGACY"

    def packet(self, port: int, payload: npt.NDArray[np.uint8]) -> Any:
        """Return a packet of the sensor's formats, by size and port; None for other datagrams."""
        size = len(payload)
        if size == self._lidar_size and port == self.ports[0]:
            packet = self._core.LidarPacket(self.layout)
        elif size == self._imu_size and port == self.ports[1]:
            packet = self._core.ImuPacket(self.layout)
        elif size == self._zone_size:
            packet = self._core.ZonePacket(self.layout)
        else:
            return None
        packet.buf[:] = payload
        return packet

    def is_ours(self, packet: Any, source: bytes | None) -> bool:
        """Check the serial number, or the address (if given) for profiles without a serial."""
        lidar = isinstance(packet, self._core.LidarPacket)
        has_serial = self._lidar_has_serial if lidar else self._imu_has_serial
        if has_serial and self._serial and (serial := packet.prod_sn()):
            return bool(serial == self._serial)
        return source is None or source == self.address


class Checksums:
    """Detector of damaged packets by their CRC-64, if the sensor's firmware sends one.

    All profiles except LEGACY have a footer for it, but older firmware writes another value there
    (2.3: a constant).  The checksum is therefore used from the first packet on for which it is
    correct.

    Args:
        core: the module ouster.sdk.core.
        layout: the PacketFormat.
        imu_profile: name of the IMU's profile.
    """

    def __init__(self, core: Any, layout: Any, imu_profile: str) -> None:
        self._core = core
        self._of_imu = imu_profile != "LEGACY"
        self._there = core.LidarPacket(layout).crc() is not None
        self._proved, self._doubts = False, 0

    def is_good(self, packet: Any) -> bool:
        """Return whether the packet is undamaged; True where this cannot be checked."""
        if not self._is_there(packet) or self.proves(packet):
            return True
        if self._proved:
            self._doubts += 1
            if self._doubts > _DOUBTS:  # more than any line damages: the match was a coincidence
                self._there = False
        return not (self._proved and self._there)

    def proves(self, packet: Any) -> bool:
        """Return whether the packet's checksum is right; damage is found from now on if it is."""
        right = bool(self._is_there(packet) and crc64(packet) == packet.crc())
        if right:
            self._proved, self._doubts = True, 0
        return right

    def _is_there(self, packet: Any) -> bool:
        return self._there and (self._of_imu or isinstance(packet, self._core.LidarPacket))


_DOUBTS: Final = 10_000


def _liblzma() -> Any:
    """Return the CRC-64 of Python's own liblzma, which takes 7 us; ouster-sdk's takes 80 us."""
    try:
        function = ctypes.CDLL(getattr(_lzma, "__file__", None)).lzma_crc64
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
    return function


_LZMA_CRC64: Final = _liblzma()


def crc64(packet: Any) -> int:
    """Return the CRC-64/XZ (ECMA-182, reflected) of a packet's bytes before its footer."""
    data = packet.buf
    if _LZMA_CRC64 is not None:
        return int(_LZMA_CRC64(data.__array_interface__["data"][0], len(data) - 8, 0))
    return int(packet.calculate_crc())


class SensorPackets:
    """One Ouster's packets in a capture, selected by size, port, and serial number or address.

    >>> packets = SensorPackets(core, info, 7502, 7503)
    >>> packets.find(file)
    >>> file.seek(0)
    >>> for packet in packets.read(file): ...

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo.
        lidar_port, imu_port: destination UDP ports.

    Attributes:
        notes: the notes to report after `read`.
    """

    def __init__(self, core: Any, info: Any, lidar_port: int, imu_port: int) -> None:
        self._core, self._info = core, info
        self._sorter = Sorter(core, info, lidar_port, imu_port)
        self._format = self._sorter.layout
        self._stamped = True
        self.notes = CaptureNotes()

    def find(self, file: BinaryIO) -> None:
        """Find the sensor's address and whether the capture has host stamps.

        Raises:
            FormatError: the sensor is not in the capture; the message lacks the file's name.
        """
        info, seen = self._info, Counter[str]()
        profile = info.format.udp_profile_lidar.name
        kind = self._core.ImuPacket if profile == "OFF" else self._core.LidarPacket
        for datagram in read_capture(file):
            packet = None
            if isinstance(datagram, DroppedPackets):
                continue
            if isinstance(datagram, SkippedPacket):
                seen[datagram.what] += 1
            elif isinstance(datagram, LostDatagram):
                seen[f"datagrams to port {datagram.port} only in part ({datagram.cause})"] += 1
            elif (packet := self._packet(datagram)) is None:
                seen[f"{len(datagram.payload)} bytes to port {datagram.port}"] += 1
            elif not self._sorter.is_ours(packet, None):
                seen[f"packets of serial {packet.prod_sn()}"] += 1
            elif isinstance(packet, kind) and isinstance(datagram, Datagram):
                self._sorter.address = datagram.source
                self._stamped = datagram.t_ns != 0
                return
            if len(seen) > 1000:
                seen = Counter(dict(seen.most_common(100)))
        there = "; ".join(f"{count} x {what}" for what, count in seen.most_common(3)) or "none"
        raise FormatError(
            f"holds no packet of this sensor ({info.prod_line}, serial {info.sn}, {profile}: "
            f"{self._format.lidar_packet_size} bytes to port {self._sorter.ports[0]}); "
            f"its UDP: {there}"
        )

    def read(self, file: BinaryIO) -> Iterator[Any]:
        """Yield ouster-sdk's packets with `host_timestamp` set, and the events to report.

        The events are `Misfit`, `ClockStep` and the sensor's `LostDatagram`; see also `notes`.  A
        capture without stamps is stamped with the device's own times.  Where single packets lack a
        stamp, they get the stamp before them.

        Raises:
            FormatError: as `read_capture`.
        """
        shift_ns = last_ns = 0
        misfits = False
        self.notes = CaptureNotes(device_clock=not self._stamped)
        for datagram in read_capture(file):
            if isinstance(datagram, SkippedPacket | DroppedPackets):
                self.notes.take(datagram)
                continue
            if isinstance(datagram, LostDatagram):
                if self._is_of_sensor(datagram):
                    yield datagram
                continue
            packet = self._packet(datagram)
            if packet is None:
                # A packet of another size from the lidar: the sensor's settings have changed.
                misfit = (
                    datagram.port == self._sorter.ports[0]
                    and datagram.source == self._sorter.address
                )
                misfit &= self._stamped or last_ns > 0  # else there is no stamp for the report
                if misfit and not misfits:
                    t_ns = datagram.t_ns + shift_ns if self._stamped else last_ns
                    size, expected = len(datagram.payload), int(self._format.lidar_packet_size)
                    yield Misfit(max(t_ns, last_ns), size, expected)
                misfits |= misfit
                continue
            if not self._sorter.is_ours(packet, datagram.source):
                continue
            if isinstance(packet, self._core.LidarPacket):
                misfits = False
            t_ns = datagram.t_ns + shift_ns if self._stamped else self._device_ns(packet)
            if self._stamped and not datagram.stamped:
                t_ns = last_ns
                self.notes.unstamped += 1
            # The host's clock was set back: later stamps continue from the last one.
            if self._stamped and t_ns < last_ns - _STEP_BACK_NS:
                yield ClockStep(last_ns, t_ns - last_ns)
                shift_ns += last_ns - t_ns
                t_ns = last_ns
            last_ns = max(last_ns, t_ns)
            packet.host_timestamp = t_ns
            yield packet

    def _is_of_sensor(self, lost: LostDatagram) -> bool:
        """Return whether a lost datagram was the lidar's; the IMU's gaps are counted by times."""
        return lost.source == self._sorter.address and lost.port in (None, self._sorter.ports[0])

    def _packet(self, datagram: Datagram) -> Any:
        return self._sorter.packet(datagram.port, np.frombuffer(datagram.payload, np.uint8))

    def _device_ns(self, packet: Any) -> int:
        if isinstance(packet, self._core.ImuPacket):
            return int(packet.timestamp()[-1])
        if isinstance(packet, self._core.LidarPacket):
            header = self._core.ColHeader.TIMESTAMP
            return int(self._format.packet_header(header, packet.buf).max())
        return 0
