"""Emulated lidars of vendors: a control server, and packets over UDP, on loopback.

A vendor's folder has the server (`LidarServer`) and the forms of packets.  The packets are those of
a capture, or of a lidar that turns evenly in an empty room.
"""

from __future__ import annotations

import socketserver
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import SensorConfig
from drivers.kit.emulator import Due, EmulatedSource, SendingEmulator, datagram_socket
from drivers.kit.emulator_faults import Fault
from drivers.kit.lidar.calibration import read_default
from drivers.kit.lidar.columns import Columns
from drivers.kit.lidar.decoder import PacketDecoder, PacketEncoder
from drivers.kit.lidar.family import Family
from recorder.common.errors import ConfigError, SourceError
from recorder.config.settings import SensorEntry
from recorder.formats.pcap.datagrams import Datagram, read_capture

START_NS: Final = 1_767_225_600_000_000_000
"""Time of the emulated lidar's clock at its first packet: 2026-01-01, UTC."""
_POLL_S: Final = 0.02
_BLOCK: Final = 16
"""Packets that are made at a time."""
_ROOM_M: Final = ((12.0, -9.0), (7.0, -5.0), (2.5, -1.5))
"""Walls of the room, along x, y and z."""


class LidarServer:
    """The state that requests of a control read and change, and the thread that answers them.

    Args:
        settings: the initial settings, by the driver's options.

    Attributes:
        lock: held while any other attribute is read or changed.
        settings: the present ones.
        refused: names of the settings that the lidar refuses to change.
        port: the server's TCP port; constant over `stop` and `start`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.lock = threading.RLock()
        self.settings = dict(settings)
        self.refused: set[str] = set()
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
    in an empty room, with the speed and the returns that are set; a capture's (``pcap:``) packets
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
        form: Form | None = None
        decoder: Any = None
        number, at_ns, azimuth = 0, 0.0, 0.0
        while True:
            wanted = self._form() if hasattr(self, "server") else self.first_form
            if wanted != form:
                form = wanted
                decoder = self.family.make_decoder(self._make_packet(form))
                room = _Room(self.family, decoder)
            assert form is not None
            count = _BLOCK * decoder.columns
            turned = decoder.turn * decoder.column_ns * form.rpm / 60e9
            t_ns = at_ns + np.arange(count) * decoder.column_ns
            azimuths = (azimuth + np.arange(count) * turned) % decoder.turn
            shift_ns = round(1e9 * sum(self._jumps(at_ns / 1e9)))
            columns = room.look(azimuths, np.rint(START_NS + shift_ns + t_ns).astype(np.int64))
            encoder: PacketEncoder = decoder
            packets = encoder.encode(columns, number)
            done_ns = t_ns[decoder.columns - 1 :: decoder.columns]
            sent = 0
            for packet, due_ns in zip(packets, done_ns.tolist(), strict=True):
                yield round(due_ns), packet.tobytes()
                sent += 1
                if hasattr(self, "server") and self._form() != form:
                    break
            number += sent
            at_ns += sent * decoder.columns * decoder.column_ns
            azimuth = float(azimuth + sent * decoder.columns * turned)

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


class _Room:
    """An empty room, as a lidar in it measures it."""

    def __init__(self, family: Family, decoder: PacketDecoder) -> None:
        angles = read_default(family.table, decoder.model)
        count = decoder.channels
        elevation = np.radians(angles.elevation_deg or np.linspace(-15, 15, count))
        self._offset = np.radians(angles.azimuth_deg or np.zeros(count))
        self._level, self._up, self._decoder = np.cos(elevation), np.sin(elevation), decoder
        self._zero = family.zero

    def look(self, azimuth: npt.NDArray[np.float64], t_ns: npt.NDArray[np.int64]) -> Columns:
        """Return the columns at azimuths and times."""
        decoder = self._decoder
        angle = azimuth[:, None] * (2 * np.pi / decoder.turn) + self._offset
        ahead, across = self._level * np.cos(angle), self._level * np.sin(angle)
        x, y = (ahead, -across) if self._zero == "x" else (across, ahead)
        range_m = np.full(x.shape, np.inf)
        for direction, (front, back) in zip(
            (x, y, np.broadcast_to(self._up, x.shape)), _ROOM_M, strict=True
        ):
            wall = np.where(direction > 0, front, back)
            with np.errstate(divide="ignore"):
                range_m = np.minimum(range_m, np.where(direction == 0, np.inf, wall / direction))
        ranges = np.rint(range_m * 1000 / decoder.unit_mm).astype("<u2")
        shape = len(decoder.returns), *ranges.shape
        state = None
        if len(decoder.states) > 1:
            state = np.zeros(len(azimuth), np.uint8)
        return Columns(
            azimuth=azimuth.astype("<u4"),
            t_ns=t_ns,
            ranges=np.broadcast_to(ranges, shape),
            reflectivity=np.broadcast_to(np.full(ranges.shape, 40, np.uint8), shape),
            confidence=np.zeros(shape, np.uint8) if decoder.confidence else None,
            state=state,
        )
