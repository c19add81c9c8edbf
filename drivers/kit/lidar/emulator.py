"""Emulated lidars that send packets of the simulated world to this machine."""

from __future__ import annotations

import contextlib
import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import SensorConfig
from drivers.kit.emulator import LOOPBACK, Due, SendingEmulator, datagram_socket
from drivers.kit.lidar.decoder import Packets
from recorder.common.errors import SourceError


class PacketScene(Protocol):
    """Packets of a simulated lidar's sweeps, as `drivers.kit.lidar.simulated.SpinningScene`."""

    def sweep(self, index: int) -> tuple[Packets, npt.NDArray[np.int64]]: ...


class PacketEmulator(SendingEmulator):
    """Emulated lidar that sends its packets to ports of the loopback interface."""

    def config(self) -> SensorConfig:
        """Return the sensor as its driver gets it."""
        entry = self.sensor
        return SensorConfig(entry.name, entry.scheme, entry.address, entry.options)

    def open_sockets(self) -> None:
        """Begin with the first packet; SourceError for other sources than the simulation."""
        self._begin("packet")
        self._open(datagram_socket(LOOPBACK))

    @abstractmethod
    def choose_port(self, packet: bytes) -> int | None:
        """Return the port to which a packet goes; None: nowhere."""

    @abstractmethod
    def make_scene(self) -> PacketScene:
        """Return the packets with ranges; SourceError for wrong options."""

    @abstractmethod
    def list_side_packets(self, index: int) -> Sequence[Due]:
        """Return the other packets of a sweep, with their times after its begin."""

    def _put(self, packet: bytes) -> None:
        assert self._socket is not None
        port = self.choose_port(packet)
        if port is not None:
            with contextlib.suppress(ConnectionRefusedError):  # a lidar sends to nobody, too
                self._socket.sendto(packet, (LOOPBACK, port))

    def _simulate(self) -> Iterator[Due]:
        scene, first_ns = self.make_scene(), 0
        for index in itertools.count():
            packets, times = scene.sweep(index)
            first_ns = first_ns or int(times[0])
            begin_ns = int(times[0]) - first_ns
            due = [(begin_ns + t_ns, packet) for t_ns, packet in self.list_side_packets(index)]
            due += [
                (t_ns - first_ns, packet.tobytes())
                for t_ns, packet in zip(times.tolist(), packets, strict=True)
            ]
            yield from sorted(due, key=lambda each: each[0])

    def _play_recording(self) -> Iterator[Due]:
        raise SourceError(f"{self.sensor.name}: only sim: is emulated")
