"""The simulated lidar's UDP packets, sweep by sweep, in the format of a real Ouster.

ouster-sdk packs them.  The simulated source reads them through the driver's own parser, and the
emulated device sends them over the network.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.ouster.frames import imu_rate_hz, packet_fields
from drivers.ouster.model import START_NS, LidarScene
from drivers.world import GRAVITY_M_S2

_IMU_LEGACY: Final = struct.Struct("<QQQ6f")  # three stamps in ns, then g and deg/s
_STANDARD_GRAVITY_M_S2: Final = 9.80665
assert abs(GRAVITY_M_S2 - _STANDARD_GRAVITY_M_S2) < 0.1


@dataclass(frozen=True, slots=True)
class SentPacket:
    """A packet with its completion time `t_ns` on the device's clock; `imu`: an IMU packet."""

    t_ns: int
    imu: bool
    data: bytes


class LidarPackets:
    """Packets of one simulated sensor.

    >>> packets = LidarPackets(core, info, LidarScene(core, info, world))
    >>> [len(p.data) for p in packets.lidar(0)][:2]
    [8448, 8448]

    A sweep's packets never depend on the packets before them.

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo, also the scene's.
        scene: the sensor's measurements.

    Attributes:
        imu_hz: rate of the IMU's measurements; None for a profile without an IMU.
        in_frames: the IMU's packets are numbered by sweep and belong to sweeps.
    """

    def __init__(self, core: Any, info: Any, scene: LidarScene) -> None:
        self._core, self._info, self._scene = core, info, scene
        self._layout = core.PacketFormat(info)
        fields = packet_fields(core, info)
        self._types = [
            core.FieldType(name, np.dtype(fields[name][0]), fields[name][1])
            for name in scene.fields
        ]
        self.imu_hz = imu_rate_hz(info)
        self.in_frames = info.format.udp_profile_imu.name == "ACCEL32_GYRO32_NMEA"
        self._per_packet = int(info.format.columns_per_packet)
        self._per_imu_packet = int(info.format.imu_measurements_per_packet) or 1
        self._id_span = int(self._layout.max_frame_id) + 1

    def imu_range(self, index: int) -> tuple[int, int]:
        """Return the first IMU sample measured during a sweep, and the number of samples."""
        if self.imu_hz is None:
            return 0, 0
        first = self._scene.imu_count(self._scene.end_time(index - 1), self.imu_hz) if index else 0
        return first, self._scene.imu_count(self._scene.end_time(index), self.imu_hz) - first

    def lidar(
        self,
        index: int,
        frame_id: int | None = None,
        init_id: int = 0,
        shift_ns: int = 0,
        alert_flags: int = 0,
    ) -> list[SentPacket]:
        """Return a sweep's packets, including the IMU packets that are numbered with it.

        Args:
            index: of the sweep.
            frame_id: its number on the device; default: the index.
            init_id: the device's initialization id.
            shift_ns: offset of the device's clock from the world's time.
            alert_flags: of all its packets.
        """
        core, scene = self._core, self._scene
        types = list(self._types)
        if self.in_frames:
            types += [t for t in core.get_field_types(self._info) if t.name.startswith("IMU_")]
        frame = core.LidarFrame(self._info, types)
        for name, values in scene.sweep(index).items():
            frame.field(name)[:] = values
        measured = scene.rays.columns
        times = scene.column_times(index)
        times[measured] += np.uint64(shift_ns % (1 << 64))
        frame.frame_id = (index if frame_id is None else frame_id) % self._id_span
        frame.timestamp[:] = times
        frame.measurement_id[:] = np.arange(scene.columns)
        frame.alert_flags[:] = alert_flags
        frame.status[:] = 0
        frame.status[measured] = 1
        frame.packet_timestamp[:] = times.reshape(-1, self._per_packet).max(axis=1)
        if self.in_frames:
            self._number_imu(frame, index, shift_ns)
        made = core.frame_to_packets(frame, self._layout, init_id, int(self._info.sn))
        packets = [
            SentPacket(
                int(p.host_timestamp) - shift_ns, isinstance(p, core.ImuPacket), p.buf.tobytes()
            )
            for p in made
            if isinstance(p, core.LidarPacket | core.ImuPacket)
        ]
        return sorted(packets, key=lambda packet: packet.t_ns)

    def _number_imu(self, frame: Any, index: int, shift_ns: int) -> None:
        """Write a sweep's IMU measurements into its frame."""
        first, count = self.imu_range(index)
        assert self.imu_hz is not None
        values = self._scene.imu(first, count, self.imu_hz)
        times = self._scene.imu_times(first, count, self.imu_hz) + shift_ns
        frame.field("IMU_ACC")[:], frame.field("IMU_GYRO")[:] = values["acc"], values["avel"]
        frame.field("IMU_TIMESTAMP")[:] = times
        frame.field("IMU_MEASUREMENT_ID")[:] = np.arange(count) * (self._scene.columns // count)
        frame.field("IMU_STATUS")[:] = 1
        last = times.reshape(-1, self._per_imu_packet)[:, -1]
        frame.field("IMU_PACKET_TIMESTAMP")[:] = last

    def imu(self, index: int, shift_ns: int = 0) -> list[SentPacket]:
        """Return a sweep's IMU packets that are not numbered with it (profile LEGACY)."""
        if self.imu_hz is None or self.in_frames:
            return []
        first, count = self.imu_range(index)
        values = self._scene.imu(first, count, self.imu_hz)
        times = self._scene.imu_times(first, count, self.imu_hz).tolist()
        acc = values["acc"].astype(np.float64) / _STANDARD_GRAVITY_M_S2
        avel = np.rad2deg(values["avel"].astype(np.float64))
        packets = []
        for t_ns, a, w in zip(times, acc.tolist(), avel.tolist(), strict=True):
            stamp = t_ns + shift_ns
            packets.append(SentPacket(t_ns, True, _IMU_LEGACY.pack(stamp, stamp, stamp, *a, *w)))
        return packets

    def sweep(
        self,
        index: int,
        frame_id: int | None = None,
        init_id: int = 0,
        shift_ns: int = 0,
        alert_flags: int = 0,
    ) -> list[SentPacket]:
        """Return all packets of a sweep in the order of their completion; see `lidar`.

        The clock is never below zero, even after a large backward shift.
        """
        shift_ns = max(shift_ns, 1 - START_NS - index * self._scene.period_ns)
        packets = self.imu(index, shift_ns)
        if self._scene.fields:
            packets += self.lidar(index, frame_id, init_id, shift_ns, alert_flags)
        return sorted(packets, key=lambda packet: packet.t_ns)


def sdk_packets(core: Any, layout: Any, packets: Iterable[SentPacket]) -> Iterator[Any]:
    """Convert packets to ouster-sdk's packets, stamped with the device's times."""
    for packet in packets:
        made = (core.ImuPacket if packet.imu else core.LidarPacket)(layout)
        made.buf[:] = np.frombuffer(packet.data, np.uint8)
        made.host_timestamp = packet.t_ns
        yield made


Floats = npt.NDArray[np.float32]


def imu_values(core: Any, layout: Any, packets: Iterable[SentPacket]) -> dict[str, Floats]:
    """Return the measurements of IMU packets: ``acc`` and ``avel``, f4 [n, 3]."""
    parsed = [(p.accel(), p.gyro()) for p in sdk_packets(core, layout, packets)]
    acc = [np.asarray(a, "<f4") for a, _ in parsed] or [np.empty((0, 3), "<f4")]
    avel = [np.asarray(w, "<f4") for _, w in parsed] or [np.empty((0, 3), "<f4")]
    return {"acc": np.concatenate(acc), "avel": np.concatenate(avel)}
