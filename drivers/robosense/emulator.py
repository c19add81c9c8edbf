"""An emulated RoboSense lidar: its packets, and what it tells of itself, over UDP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from drivers.kit.emulator import LOOPBACK, Due, EmulatedSource, free_ports
from drivers.kit.lidar.emulator import PacketEmulator, PacketScene
from drivers.kit.lidar.simulated import START_NS, SpinningScene
from drivers.robosense.description import is_description
from drivers.robosense.driver import RobosenseFamily
from drivers.robosense.imu import is_imu, make_imu
from drivers.robosense.models import WITH_IMU
from recorder.codecs.beams import BEAMS, Beams

_IMU_A_SWEEP: Final = 20
IMU_NS: Final = 5_000_000


class RobosenseEmulator(PacketEmulator):
    """Emulated lidar of the simulated world; it tells of itself with every sweep."""

    def start(self) -> EmulatedSource:
        self._ports = free_ports(3)
        self.open_sockets()
        options: dict[str, Any] = {"difop_port": self._ports[1], "model": self._model}
        if self._model in WITH_IMU:
            options["imu_port"] = self._ports[2]
        return EmulatedSource(f"udp:{LOOPBACK}:{self._ports[0]}", options)

    def make_scene(self) -> PacketScene:
        family = RobosenseFamily(self.config())
        self._model = self.sensor.options["model"] or family.models[0]
        packet = family.make_blank_packet(self._model)
        self._description = family.device_packet
        decoder = family.make_decoder(packet)
        (spec,) = family.start(packet, live=False).specs(finite=False)
        beams = Beams.of_text(spec.files[BEAMS], self.sensor.name)
        self._scene = SpinningScene(self.config(), decoder, beams)
        return self._scene

    def list_side_packets(self, index: int) -> Sequence[Due]:
        told: Due = 0, self._description
        if self._model not in WITH_IMU:
            return [told]
        since = [k * IMU_NS for k in range(_IMU_A_SWEEP)]
        first, begin_ns = index * _IMU_A_SWEEP, START_NS + index * self._scene.period_ns
        return [
            told,
            *((t_ns, make_imu(first + k, begin_ns + t_ns)) for k, t_ns in enumerate(since)),
        ]

    def choose_port(self, packet: bytes) -> int | None:
        return self._ports[2 if is_imu(packet) else is_description(packet)]
