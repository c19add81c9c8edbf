"""An emulated CAN bus: a log, or the simulated vehicle, onto an interface or a stand-in.

A stand-in is a UDP port of this machine: each datagram is the kernel's structure of a frame.  A
log's frames are sent with the log's timing, once or in a loop; its error messages are sent to a
stand-in only, because an interface makes its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from drivers.can.connection import open_can_socket, parse_stand_in
from drivers.can.frames import ERROR, Frame, Logged, pack_frame
from drivers.can.logs import read_log
from drivers.can.simulated import DATABASE, SimulatedBus
from drivers.kit.emulator import (
    LOOPBACK,
    STEP_NS,
    Due,
    EmulatedSource,
    SendingEmulator,
    datagram_socket,
    free_ports,
)
from recorder.common.errors import DeviceError, FormatError, SourceError


class CanEmulator(SendingEmulator):
    """Emulated bus whose frames go to the recorded address, or to that of the option ``to``."""

    _is_interface = False

    def start(self) -> EmulatedSource:
        options = self.sensor.options
        self._begin("frame")
        address = options["to"] or f"{LOOPBACK}:{free_ports()[0]}"
        try:
            place = parse_stand_in(address)
        except SourceError as error:
            raise SourceError(f"to: {address!r} {error}") from None
        self._is_interface = place is None
        if place is None:
            self._open(open_can_socket(address, fd=True))
        else:
            made = datagram_socket(place[0])
            made.connect(place)
            self._open(made)
        passed = {name: options[name] for name in ("dbc", "signals") if options[name]}
        if self.sensor.scheme == "sim":
            passed |= {
                "rate": SimulatedBus(options, self.sensor.name).rate_hz,
                "fd": bool(options["fd"]),
            }
            if options["signals"] and not options["dbc"]:
                passed["dbc"] = str(DATABASE)
        return EmulatedSource(f"can:{address}", passed)

    def _put(self, packet: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.send(packet)
        except ConnectionRefusedError:
            pass  # a bus has frames also where nothing listens
        except OSError as error:
            raise DeviceError(f"a frame cannot be sent: {error.strerror}") from None

    def _simulate(self) -> Iterator[Due]:
        bus, start_ns = SimulatedBus(self.sensor.options, self.sensor.name), 0
        while True:
            frames = bus.frames(start_ns, start_ns + STEP_NS)
            rows = zip(
                frames.t_ns.tolist(),
                frames.id.tolist(),
                frames.length.tolist(),
                frames.flags.tolist(),
                frames.data,
                strict=True,
            )
            for t_ns, number, length, flags, data in rows:
                yield t_ns, pack_frame(Frame(t_ns, number, data[:length].tobytes(), flags))
            start_ns += STEP_NS

    def _play_recording(self) -> Iterator[Due]:
        path, wanted = Path(self.sensor.address), self.sensor.options["channel"]
        try:
            for logged in read_log(path):
                if not isinstance(logged, Logged) or wanted not in (None, logged.channel):
                    continue
                if not (self._is_interface and logged.frame.id & ERROR):
                    yield logged.frame.t_ns, pack_frame(logged.frame)
        except (OSError, FormatError) as error:
            if self._first_ns is None:
                text = getattr(error, "strerror", None) or error
                raise SourceError(f"file:{path}: {text}") from None
            # The log is damaged here.
