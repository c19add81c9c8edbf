"""The path of a packet, from the network or from a recording, to the sensor's items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drivers.kit.driver import Item
from drivers.ouster.frames import Assembly
from drivers.ouster.packets import Checksums, Repeats
from drivers.ouster.stream import Sensor, last_ns


class Intake:
    """Check and assembly of packets; damaged and repeated packets are counted and left out.

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo.
        sensor: counts the packets that are left out.
        assembly: of the sensor.
    """

    def __init__(self, core: Any, info: Any, sensor: Sensor, assembly: Assembly[Item]) -> None:
        self._core, self._sensor, self._assembly = core, sensor, assembly
        layout = core.PacketFormat(info)
        self._repeats = Repeats(core, layout)
        self._checksums = Checksums(core, layout, info.format.udp_profile_imu.name)
        self._batched = info.format.udp_profile_lidar.name != "OFF"
        self._legacy_imu = info.format.udp_profile_imu.name == "LEGACY"

    def proves(self, packet: Any) -> bool:
        """Return whether a packet shows that the firmware sends checksums; enable their check."""
        return self._checksums.proves(packet)

    def is_usable(self, packet: Any) -> bool:
        """Return whether a packet is undamaged and not a repetition; the others are counted."""
        if not self._checksums.is_good(packet):
            self._sensor.corrupt += 1
            return False
        if isinstance(packet, self._core.LidarPacket) and self._repeats.is_repeated(packet):
            self._sensor.repeated += 1
            return False
        return True

    def take(self, packet: Any) -> Iterator[Item]:
        """Make the items that a usable packet completes; it has its `host_timestamp`."""
        imu = isinstance(packet, self._core.ImuPacket)
        try:
            if self._batched and not (imu and self._legacy_imu):
                yield from self._assembly.take(packet)
            if imu:
                for item in self._sensor.imu_packet(packet):
                    yield from self._assembly.hold(item, last_ns(item))
        except (RuntimeError, ValueError, IndexError):  # a damaged packet without a checksum
            self._sensor.corrupt += 1
            yield from self._assembly.give_up()
