"""The path of a packet, from the network or from a recording, to the sensor's items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drivers.kit.driver import Item, SensorConfig
from drivers.ouster.frames import Assembly, imu_rate_hz, packet_fields
from drivers.ouster.packets import Checksums, Repeats
from drivers.ouster.sdk import SDK_ERRORS, one_line
from drivers.ouster.stream import Sensor, last_ns
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError


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


class AssemblingSource:
    """Base of the sources that assemble a sensor's packets, of the network or of a recording."""

    _config: SensorConfig

    def _declare(
        self, core: Any, info: Any, text: str, where: str, *, live: bool = False
    ) -> list[StreamSpec]:
        """Prepare the sensor with this metadata and return its streams.

        Args:
            core: the module ouster.sdk.core.
            info: its SensorInfo, made from `text`.
            text: the metadata.
            where: names the metadata in errors.
            live: the sensor is a device.
        """
        self._core = core
        try:
            fields = packet_fields(core, info)
            self._sensor = Sensor(core, self._config, info, fields, live=live)
            recorded = {name: fields[name] for name in self._sensor.recorded}
            self._assembly: Assembly[Item] = Assembly(
                core, info, recorded, self._sweep, self._restarted
            )
            self._intake = Intake(core, info, self._sensor, self._assembly)
        except SDK_ERRORS as error:
            raise SourceError(f"{where}: unusable metadata: {one_line(error)}") from None
        return self._sensor.specs(text, imu_rate_hz(info) is not None, finite=not live)

    def _sweep(self, frame: Any, t_ns: int) -> Iterator[Item]:
        return self._sensor.sweep(frame, t_ns)

    def _restarted(self, t_ns: int, init_id: int) -> Iterator[Item]:
        return self._sensor.restarted(t_ns, init_id)
