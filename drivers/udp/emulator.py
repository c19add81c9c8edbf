"""An emulated sensor that sends datagrams: a capture, or the simulated sender, onto a socket.

A capture's datagrams are sent with the capture's timing, once or in a loop.  Several destination
ports of a capture become one: the driver's option ``port`` chooses among them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from drivers.kit.emulator import (
    LOOPBACK,
    STEP_NS,
    Due,
    EmulatedSource,
    SendingEmulator,
    datagram_socket,
    free_ports,
)
from drivers.kit.udp_socket import parse_address
from drivers.udp.simulated import SimulatedSender
from recorder.common.errors import DeviceError, FormatError, SourceError
from recorder.formats.pcap.datagrams import read_datagrams


class UdpEmulator(SendingEmulator):
    """Emulated sender of datagrams to the recorded port, or to the address of the option ``to``."""

    def start(self) -> EmulatedSource:
        host, port = self._to = self._destination()
        self._begin("datagram")
        self._open(datagram_socket(host))
        rate = self.sensor.options["rate"]
        if self.sensor.scheme == "sim":
            rate = SimulatedSender(self.sensor.options).rate_hz
        options = {} if rate is None else {"rate": rate}
        return EmulatedSource(f"udp:{f'[{host}]' if ':' in host else host}:{port}", options)

    def _destination(self) -> tuple[str, int]:
        text = self.sensor.options["to"]
        if text is None:
            return LOOPBACK, free_ports()[0]
        try:
            host, port = parse_address(text, "HOST:PORT")
        except SourceError as error:
            raise SourceError(f"to: {text!r} {error}") from None
        return host or LOOPBACK, port

    def _put(self, packet: bytes) -> None:
        assert self._socket is not None
        # A sensor sends also where nothing listens.
        with contextlib.suppress(ConnectionRefusedError):
            try:
                self._socket.sendto(packet, self._to)
            except OSError as error:
                where = f"{self._to[0]}:{self._to[1]}"
                raise DeviceError(f"UDP {where}: cannot be sent to: {error.strerror}") from None

    def _simulate(self) -> Iterator[Due]:
        sender = SimulatedSender(self.sensor.options)
        count, start = max(1, int(sender.rate_hz * STEP_NS / 1e9)), 0
        while True:
            times = sender.times_ns(start, start + count).tolist()
            yield from zip(times, sender.datagrams(start, start + count), strict=True)
            start += count

    def _play_recording(self) -> Iterator[Due]:
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
