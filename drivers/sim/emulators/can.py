"""An emulated CAN bus: a log, or the simulated vehicle, onto an interface or a stand-in.

A stand-in is a UDP port of this machine: each datagram is the kernel's structure of a frame.  A
log's frames are sent with the log's timing, once or in a loop; its error messages are sent to a
stand-in only, because an interface makes its own.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from drivers._devices.can import open_can_socket, stand_in
from drivers._protocols.can_frames import ERROR, Frame, Logged, pack_frame
from drivers._protocols.can_logs import read_log
from drivers.sim.can import DATABASE, SimulatedBus
from drivers.sim.emulators.base import EmulatedSource, Emulator
from drivers.sim.emulators.faults import PacketFaults
from recorder.contract.errors import DeviceError, FormatError, SourceError

_HOST: Final = "127.0.0.1"
_START_NS: Final = 500_000_000  # from the start to the first frame
_STEP_NS: Final = 10_000_000  # of the simulated bus
_LOOP_NS: Final = 100_000_000  # from a log's last frame to its first one again
_SILENT: Final = ("stall", "unplug", "reboot")
_BUFFER_BYTES: Final = 8 << 20


class CanEmulator(Emulator):
    """Sends frames to the address that is recorded, or to that of the option ``to``.

    Faults of packets are injected.  During a stall, an absence or a restart, nothing is sent.
    """

    _socket: socket.socket | None = None
    _first_ns: int | None = None

    def start(self) -> EmulatedSource:
        options = self.sensor.options
        if self.sensor.scheme not in ("sim", "file"):
            raise SourceError(f"{self.sensor.scheme}: is no source that can be emulated")
        self._faults = PacketFaults(self.faults, self.seed)
        self._feed = self._read()
        self._next = next(self._feed, None)
        if self._next is None:
            raise SourceError(f"{self.sensor.scheme}:{self.sensor.address}: has no frame to send")
        address = options["to"] or f"{_HOST}:{_free_port()}"
        try:
            place = stand_in(address)
        except SourceError as error:
            raise SourceError(f"to: {address!r} {error}") from None
        self._is_interface = place is None
        if place is None:
            self._socket = open_can_socket(address, fd=True)
        else:
            family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            self._socket.connect(place)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        passed = {name: options[name] for name in ("dbc", "signals") if options[name]}
        if self.sensor.scheme == "sim":
            passed |= {"rate": SimulatedBus(options).rate_hz, "fd": bool(options["fd"])}
            if options["signals"] and not options["dbc"]:
                passed["dbc"] = str(DATABASE)
        return EmulatedSource(f"can:{address}", passed)

    def step(self, now_ns: int) -> int:
        if self._first_ns is None:
            self._first_ns = now_ns + _START_NS
        while self._next is not None:
            due_ns = self._first_ns + self._next.t_ns
            if due_ns > now_ns:
                return due_ns
            self.late_ns = now_ns - due_ns
            frame, self._next = self._next, next(self._feed, None)
            self._send(frame)
        if not self.finished:
            for data in self._faults.flush():
                self._put(data)
        self.finished = True
        return now_ns + _STEP_NS

    def stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, frame: Frame) -> None:
        t_s = frame.t_ns / 1e9
        for fault in self.faults:
            if fault.kind in _SILENT and fault.during(t_s):
                self.injected[fault.kind] += 1
                return
        for packet in self._faults.apply(t_s, pack_frame(frame)):
            self._put(packet)
        self.injected.update(self._faults.injected)
        self._faults.injected.clear()

    def _put(self, packet: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.send(packet)
        except ConnectionRefusedError:
            pass  # nobody listens before the recorder does; a real bus has frames all the same
        except OSError as error:
            raise DeviceError(f"a frame cannot be sent: {error.strerror}") from None

    def _read(self) -> Iterator[Frame]:
        """Frames in order, with their times since the first one."""
        if self.sensor.scheme == "sim":
            yield from self._simulated()  # without end
        shift_ns = 0
        while True:
            first_ns: int | None = None
            at_ns = 0
            for frame in self._logged():
                first_ns = frame.t_ns if first_ns is None else first_ns
                # A log's stamps may step back; the order of its frames is kept.
                at_ns = max(at_ns, frame.t_ns - first_ns)
                yield frame._replace(t_ns=shift_ns + at_ns)
            if first_ns is None or not self.sensor.loop:
                return
            shift_ns += at_ns + _LOOP_NS

    def _simulated(self) -> Iterator[Frame]:
        bus, start_ns = SimulatedBus(self.sensor.options), 0
        while True:
            frames = bus.frames(start_ns, start_ns + _STEP_NS)
            rows = zip(
                frames.t_ns.tolist(),
                frames.id.tolist(),
                frames.length.tolist(),
                frames.flags.tolist(),
                frames.data,
                strict=True,
            )
            for t_ns, number, length, flags, data in rows:
                yield Frame(t_ns, number, data[:length].tobytes(), flags)
            start_ns += _STEP_NS

    def _logged(self) -> Iterator[Frame]:
        path, wanted = Path(self.sensor.address), self.sensor.options["channel"]
        try:
            for logged in read_log(path):
                if not isinstance(logged, Logged) or wanted not in (None, logged.channel):
                    continue
                if not (self._is_interface and logged.frame.id & ERROR):
                    yield logged.frame
        except (OSError, FormatError) as error:
            if self._first_ns is None:
                text = getattr(error, "strerror", None) or error
                raise SourceError(f"file:{path}: {text}") from None
            # The log is damaged here.

    _is_interface = False


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((_HOST, 0))
        return int(free.getsockname()[1])
