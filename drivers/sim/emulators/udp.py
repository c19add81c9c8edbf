"""An emulated sensor that sends datagrams: a capture, or the simulated sender, onto a socket.

A capture's datagrams are sent with the capture's timing, once or in a loop.  Several destination
ports of a capture become one: the driver's option ``port`` chooses among them.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from drivers._devices.udp import address_and_port
from drivers._protocols.capture import read_datagrams
from drivers.sim.datagrams import SimulatedSender
from drivers.sim.emulators.base import EmulatedSource, Emulator
from drivers.sim.emulators.faults import PacketFaults
from recorder.contract.errors import DeviceError, FormatError, SourceError

_HOST: Final = "127.0.0.1"
_START_NS: Final = 500_000_000  # from the start to the first datagram
_STEP_NS: Final = 10_000_000  # of the simulated sender's batches
_LOOP_NS: Final = 100_000_000  # from a capture's last datagram to its first one again
_SILENT: Final = ("stall", "unplug", "reboot")
_BUFFER_BYTES: Final = 8 << 20

_Due = tuple[int, bytes]  # ns since the first datagram, and the datagram


class UdpEmulator(Emulator):
    """Sends datagrams to the port that is recorded, or to the address of the option ``to``.

    Faults of packets are injected.  During a stall, an absence or a restart, the datagrams are not
    sent.  The device has no clock that could jump.
    """

    _socket: socket.socket | None = None
    _first_ns: int | None = None

    def start(self) -> EmulatedSource:
        if self.sensor.scheme not in ("sim", "file"):
            raise SourceError(f"{self.sensor.scheme}: is no source that can be emulated")
        self._faults = PacketFaults(self.faults, self.seed)
        self._to = self._destination()
        self._feed = self._read()
        self._next = next(self._feed, None)
        if self._next is None:
            raise SourceError(
                f"{self.sensor.scheme}:{self.sensor.address}: has no datagram to send"
            )
        family = socket.AF_INET6 if ":" in self._to[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        host = f"[{self._to[0]}]" if family == socket.AF_INET6 else self._to[0]
        rate = self.sensor.options["rate"]
        if self.sensor.scheme == "sim":
            rate = SimulatedSender(self.sensor.options).rate_hz
        options = {} if rate is None else {"rate": rate}
        return EmulatedSource(f"udp:{host}:{self._to[1]}", options)

    def step(self, now_ns: int) -> int:
        if self._first_ns is None:
            self._first_ns = now_ns + _START_NS
        while self._next is not None:
            at_ns, data = self._next
            due_ns = self._first_ns + at_ns
            if due_ns > now_ns:
                return due_ns
            self.late_ns = now_ns - due_ns
            self._next = next(self._feed, None)
            self._send(at_ns / 1e9, data)
        if not self.finished:
            for data in self._faults.flush():
                self._put(data)
        self.finished = True
        return now_ns + _STEP_NS

    def stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _destination(self) -> tuple[str, int]:
        text = self.sensor.options["to"]
        if text is None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind((_HOST, 0))
                return _HOST, int(free.getsockname()[1])
        try:
            host, port = address_and_port(text, "HOST:PORT")
        except SourceError as error:
            raise SourceError(f"to: {text!r} {error}") from None
        return host or _HOST, port

    def _send(self, t_s: float, data: bytes) -> None:
        for fault in self.faults:
            if fault.kind in _SILENT and fault.during(t_s):
                self.injected[fault.kind] += 1
                return
        for packet in self._faults.apply(t_s, data) if data else [data]:
            self._put(packet)
        self.injected.update(self._faults.injected)
        self._faults.injected.clear()

    def _put(self, packet: bytes) -> None:
        assert self._socket is not None
        # Nobody listens before the recorder does; a real sensor sends all the same.
        with contextlib.suppress(ConnectionRefusedError):
            try:
                self._socket.sendto(packet, self._to)
            except OSError as error:
                where = f"{self._to[0]}:{self._to[1]}"
                raise DeviceError(f"UDP {where}: cannot be sent to: {error.strerror}") from None

    def _read(self) -> Iterator[_Due]:
        if self.sensor.scheme == "sim":
            yield from self._simulated()  # without end
        shift_ns = 0
        while True:
            first_ns: int | None = None
            at_ns = 0
            for t_ns, data in self._captured():
                first_ns = t_ns if first_ns is None else first_ns
                # A capture's stamps may step back; the order of its datagrams is kept.
                at_ns = max(at_ns, t_ns - first_ns)
                yield shift_ns + at_ns, data
            if first_ns is None or not self.sensor.loop:
                return
            shift_ns += at_ns + _LOOP_NS

    def _simulated(self) -> Iterator[_Due]:
        sender = SimulatedSender(self.sensor.options)
        count, start = max(1, int(sender.rate_hz * _STEP_NS / 1e9)), 0
        while True:
            times = sender.times_ns(start, start + count).tolist()
            yield from zip(times, sender.datagrams(start, start + count), strict=True)
            start += count

    def _captured(self) -> Iterator[_Due]:
        path, port = Path(self.sensor.address), self.sensor.options["port"]
        try:
            with path.open("rb") as file:
                for datagram in read_datagrams(file):
                    if port is None or datagram.port == port:
                        yield datagram.t_ns, datagram.payload
        except OSError as error:
            raise SourceError(f"file:{path}: {error.strerror}") from None
        except FormatError as error:
            if self._first_ns is None:
                raise SourceError(f"file:{path}: {error}") from None
            # The capture is truncated here.
