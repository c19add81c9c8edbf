"""An emulated RoboSense lidar: its packets, and what it tells of itself, over UDP."""

from __future__ import annotations

from collections.abc import Sequence

from drivers.kit.emulator import LOOPBACK, Due, EmulatedSource, free_ports
from drivers.kit.lidar.emulator import PacketEmulator, PacketScene
from drivers.kit.lidar.simulated import SpinningScene
from drivers.robosense.description import is_description
from drivers.robosense.driver import RobosenseFamily
from recorder.codecs.beams import BEAMS, Beams


class RobosenseEmulator(PacketEmulator):
    """Emulated lidar of the simulated world; it tells of itself with every sweep."""

    def start(self) -> EmulatedSource:
        self._ports = free_ports(2)
        self.open_sockets()
        options = {"difop_port": self._ports[1], "model": self._model}
        return EmulatedSource(f"udp:{LOOPBACK}:{self._ports[0]}", options)

    def make_scene(self) -> PacketScene:
        family = RobosenseFamily(self.config())
        self._model = self.sensor.options["model"] or family.models[0]
        packet = family.make_blank_packet(self._model)
        self._description = family.device_packet
        decoder = family.make_decoder(packet)
        (spec,) = family.start(packet, live=False).specs(finite=False)
        beams = Beams.of_text(spec.files[BEAMS], self.sensor.name)
        return SpinningScene(self.config(), decoder, beams)

    def list_side_packets(self, index: int) -> Sequence[Due]:  # noqa: ARG002  always the same
        return [(0, self._description)]

    def choose_port(self, packet: bytes) -> int | None:
        return self._ports[is_description(packet)]
