"""Emulated lidars of vendors: a control server, and packets over UDP, on loopback.

A vendor's folder has the server (`LidarServer`) and the forms of packets.  The packets are those of
a capture, or of the simulated world.
"""

from __future__ import annotations

import socketserver
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from drivers.kit.driver import SensorConfig
from drivers.kit.emulator import Due, EmulatedSource, SendingEmulator, datagram_socket
from drivers.kit.emulator_faults import Fault
from drivers.kit.lidar.family import Family
from drivers.kit.lidar.simulated import START_NS, SpinningScene
from recorder.codecs.beams import BEAMS, Beams
from recorder.common.errors import ConfigError, SourceError
from recorder.config.settings import SensorEntry
from recorder.formats.pcap.datagrams import Datagram, read_capture

_POLL_S: Final = 0.02


class LidarServer:
    """The state that requests of a control read and change, and the thread that answers them.

    Args:
        settings: the initial settings, by the driver's options.

    Attributes:
        lock: held while any other attribute is read or changed.
        settings: the present ones.
        refused: names of the settings that the lidar refuses to change.
        ignored: names of the settings that it accepts and does not change.
        port: the server's TCP port; constant over `stop` and `start`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.lock = threading.RLock()
        self.settings = dict(settings)
        self.refused: set[str] = set()
        self.ignored: set[str] = set()
        self.port = 0
        self._server: socketserver.BaseServer | None = None

    def start(self) -> None:
        """Listen on loopback."""
        if self._server is not None:
            return
        self._server = server = self._listen(("127.0.0.1", self.port))
        self.port = int(server.server_address[1])
        self._thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,))
        self._thread.start()

    def stop(self) -> None:
        """Close the port, as if the lidar were absent; may be called twice."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    @abstractmethod
    def _listen(self, address: tuple[str, int]) -> socketserver.TCPServer:
        """Return a server that is bound to an address."""


@dataclass(frozen=True, slots=True)
class Form:
    """Form of the packets that an emulated lidar sends.

    Attributes:
        mode: return mode, as in the packets.
        rpm: speed.
    """

    mode: int
    rpm: int


class LidarEmulator(SendingEmulator):
    """A lidar: its control on a free TCP port of 127.0.0.1, its packets over UDP.

    The lidar sends no packet before its destination is set.  The simulated lidar (``sim:``) turns
    with the speed, and sends the returns, that are set; a capture's (``pcap:``) packets
    are sent as they are, from the moment at which the destination is set.
    """

    server: LidarServer
    modes: ClassVar[Mapping[str, int]]
    """Return modes as in the packets, by the option ``return_mode``."""
    default_model: ClassVar[str]
    default_mode: ClassVar[str]

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        super().__init__(sensor, faults, seed)
        if sensor.scheme not in ("sim", "pcap"):
            raise ConfigError(
                f"a lidar is emulated from sim: or pcap:, not from {sensor.scheme}:",
                key=f"{sensor.name}.source",
            )
        if sensor.scheme == "pcap" and any(fault.kind == "clock_jump" for fault in faults):
            raise ConfigError("the clock of a capture cannot jump", key=sensor.name)
        config = SensorConfig(sensor.name, sensor.scheme, sensor.address, dict(sensor.options))
        self.family = self._make_family(config)
        self.model = str(sensor.options["model"] or self.default_model)
        mode = self.modes[sensor.options["return_mode"] or self.default_mode]
        self._away = False
        self.first_form = Form(mode, sensor.options["rpm"] or 600)

    @abstractmethod
    def _make_family(self, sensor: SensorConfig) -> Family:
        """Return the vendor's family."""

    @abstractmethod
    def _make_server(self, return_mode: str) -> LidarServer:
        """Return the server of a lidar with this return mode at first."""

    @abstractmethod
    def _make_packet(self, form: Form) -> bytes:
        """Return a packet without measurements."""

    @abstractmethod
    def _source(self) -> EmulatedSource:
        """Return the source that records the lidar."""

    def start(self) -> EmulatedSource:
        self._feed = self._packets()
        self._next = next(self._feed, None)
        if self._next is None:
            where = f"{self.sensor.scheme}:{self.sensor.address}"
            raise SourceError(f"{where}: has no packet of {' or '.join(self.family.models)}")
        if self.sensor.scheme == "pcap":
            decoder: Any = self.family.make_decoder(self._next[1])
            self.model, self.first_form = (
                decoder.model,
                Form(decoder.mode, round(60 * decoder.rate_hz)),
            )
        names = (name for name, mode in self.modes.items() if mode == self.first_form.mode)
        self.server = self._make_server(next(names, self.default_mode))
        if self.sensor.scheme == "pcap":  # its packets are as they are
            self.server.refused = {"rpm", "return_mode"}
        self.server.start()
        self._open(datagram_socket("127.0.0.1"))
        return self._source()

    def step(self, now_ns: int) -> int:
        with self.server.lock:
            destined = bool(self.server.settings["udp_dest"])
        if self._first_ns is None and not destined:
            return now_ns + self._idle_ns
        if self._first_ns is not None:
            self._break_down((now_ns - self._first_ns) / 1e9)
        return super().step(now_ns)

    _idle_ns: Final = 10_000_000

    def stop(self) -> None:
        if hasattr(self, "server"):
            self.server.stop()
        super().stop()

    def _break_down(self, t_s: float) -> None:
        """Take the lidar off the network, and back, as faults say."""
        away = any(f.kind in ("unplug", "reboot") and f.is_active(t_s) for f in self.faults)
        if away != self._away:
            self._away = away
            (self.server.stop if away else self.server.start)()

    def _put(self, packet: bytes) -> None:
        assert self._socket is not None
        with self.server.lock:
            destination = self.server.settings["udp_dest"], self.server.settings["lidar_port"]
        try:
            self._socket.sendto(packet, destination)
        except OSError:
            self.injected["unsent"] += 1  # no receiver, or no valid address in the settings

    def _play_recording(self) -> Iterator[Due]:
        sender: tuple[bytes, int] | None = None
        with open(self.sensor.address, "rb") as file:  # noqa: PTH123
            for item in read_capture(file):
                if not isinstance(item, Datagram):
                    continue
                key = item.source, item.port
                if sender is None and self.family.is_packet(item.payload):
                    sender = key
                if sender == key:
                    yield item.t_ns, item.payload

    def _simulate(self) -> Iterator[Due]:
        form, at_ns = None, 0
        while True:
            wanted = self._form() if hasattr(self, "server") else self.first_form
            if wanted != form:
                form, scene = wanted, self._make_scene(wanted)
            shift_ns = round(1e9 * sum(self._jumps(at_ns / 1e9)))
            packets, ends_ns = scene.sweep(-(-at_ns // scene.period_ns), shift_ns)
            for packet, end_ns in zip(packets, ends_ns.tolist(), strict=True):
                at_ns = end_ns - START_NS
                yield at_ns, packet.tobytes()
                if hasattr(self, "server") and self._form() != form:
                    break

    def _make_scene(self, form: Form) -> SpinningScene:
        """Return the simulated world as the lidar sees it with a form of packets."""
        packet = self._make_packet(form)
        decoder = self.family.make_decoder(packet)
        decoder.rate_hz = form.rpm / 60
        (spec,) = self.family.start(packet, live=False).specs(finite=False)
        beams = Beams.of_text(spec.files[BEAMS], self.sensor.name)
        return SpinningScene(self.family.sensor, decoder, beams)

    def _form(self) -> Form:
        """Return the form of packets by the present settings."""
        with self.server.lock:
            settings = self.server.settings
            return Form(self.modes[settings["return_mode"]], settings["rpm"])

    def _jumps(self, t_s: float) -> Iterator[float]:
        for fault in self.faults:
            if fault.kind == "clock_jump" and t_s >= fault.at_s:
                self.injected["clock_jump"] = 1
                yield fault.value
