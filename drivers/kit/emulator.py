"""The interfaces of emulated devices; `drivers.sim.emulated_rig` runs the devices."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import socket
import tempfile
import tty
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from drivers.kit.emulator_faults import Fault, PacketFaults
from recorder.common.errors import DeviceError, SourceError
from recorder.config.settings import SensorEntry

LOOPBACK: Final = "127.0.0.1"
STEP_NS: Final = 10_000_000
_START_NS: Final = 500_000_000  # from the start to the first packet
_LOOP_NS: Final = 100_000_000  # from a recording's last packet to its first one again
_SILENT: Final = ("stall", "unplug", "reboot")
_BUFFER_BYTES: Final = 8 << 20

Due = tuple[int, bytes]
"""Time since the first packet in ns, and the packet."""


@dataclass(frozen=True)
class EmulatedSource:
    """The source for recording an emulated device.

    Attributes:
        source: a sensor's ``source`` in a config.
        options: the driver's options that follow from the device.
    """

    source: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Emulator(ABC):
    """One emulated device on loopback or a pty.

    ::

        emulator = OusterEmulator(entry, faults=[Fault("loss", rate=0.01)], seed=1)
        source = emulator.start()
        while not emulator.finished:
            due_ns = emulator.step(time.monotonic_ns())   # does the due work
            ...                                           # wait until due_ns
        emulator.stop()

    The device's output depends only on the times passed to `step`, so a test may invent them.

    Args:
        sensor: a config's entry whose source feeds the device: the simulated world, or a capture.
        faults: the faults to inject, in any order.
        seed: of the choice of packets that faults hit.

    Attributes:
        injected: number of injected faults, by kind, in packets (or in the kind's own unit).
        finished: a finite source was sent completely.
        late_ns: delay of the latest output: positive if this machine is too slow.
    """

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        self.sensor = sensor
        self.faults = tuple(faults)
        self.seed = seed
        self._packet_faults = PacketFaults(self.faults, seed)
        self.injected = self._packet_faults.injected
        self.finished = False
        self.late_ns = 0

    @abstractmethod
    def start(self) -> EmulatedSource:
        """Bind sockets or open ptys; the device is reachable when this returns.

        Raises:
            SourceError: the feeding source is missing or invalid.
            DeviceError: an address is in use.
        """

    @abstractmethod
    def step(self, now_ns: int) -> int:
        """Answer requests and send due data; return when the next data are due, in the same time.

        Args:
            now_ns: CLOCK_MONOTONIC, or a test's own time; never decreasing.
        """

    @abstractmethod
    def stop(self) -> None:
        """Release sockets and ptys; may be called twice."""


class SendingEmulator(Emulator):
    """A device that only sends: packets of a recording with its timing, or of the simulation.

    Faults of packets are injected.  During a stall, an absence or a restart, nothing is sent.  The
    device has no clock that could jump.  Subclasses bind `_socket` in `start`.
    """

    _socket: socket.socket | None = None
    _first_ns: int | None = None
    _next: Due | None = None

    def step(self, now_ns: int) -> int:
        if self._first_ns is None:
            self._first_ns = now_ns + _START_NS
        while self._next is not None:
            at_ns, packet = self._next
            due_ns = self._first_ns + at_ns
            if due_ns > now_ns:
                return due_ns
            self.late_ns = now_ns - due_ns
            self._next = next(self._feed, None)
            self._send(at_ns / 1e9, packet)
        if not self.finished:
            for packet in self._packet_faults.flush():
                self._put(packet)
        self.finished = True
        return now_ns + STEP_NS

    def stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @abstractmethod
    def _simulate(self) -> Iterator[Due]:
        """Yield the packets of the simulation, without end."""

    @abstractmethod
    def _play_recording(self) -> Iterator[Due]:
        """Yield the packets of the recording once, with the recording's stamps."""

    @abstractmethod
    def _put(self, packet: bytes) -> None:
        """Send a packet, even without a receiver.  Raises DeviceError."""

    def _begin(self, what: str) -> None:
        """Read the first packet.

        Args:
            what: name of a packet, for a message.

        Raises:
            SourceError: there is no packet, or the source cannot be emulated.
        """
        sensor = self.sensor
        if sensor.scheme not in ("sim", "file"):
            raise SourceError(f"{sensor.scheme}: is no source that can be emulated")
        self._feed = self._packets()
        self._next = next(self._feed, None)
        if self._next is None:
            raise SourceError(f"{sensor.scheme}:{sensor.address}: has no {what} to send")

    def _open(self, made: socket.socket) -> None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._socket = made

    def _send(self, t_s: float, packet: bytes) -> None:
        for fault in self.faults:
            if fault.kind in _SILENT and fault.is_active(t_s):
                self.injected[fault.kind] += 1
                return
        for sent in self._packet_faults.apply(t_s, packet) if packet else [packet]:
            self._put(sent)

    def _packets(self) -> Iterator[Due]:
        if self.sensor.scheme == "sim":
            yield from self._simulate()  # without end
        shift_ns = 0
        while True:
            first_ns: int | None = None
            at_ns = 0
            for t_ns, packet in self._play_recording():
                first_ns = t_ns if first_ns is None else first_ns
                # A recording's stamps may step back; the order of its packets is kept.
                at_ns = max(at_ns, t_ns - first_ns)
                yield shift_ns + at_ns, packet
            if first_ns is None or not self.sensor.loop:
                return
            shift_ns += at_ns + _LOOP_NS


def datagram_socket(host: str) -> socket.socket:
    """Return a UDP socket for a destination."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.socket(family, socket.SOCK_DGRAM)


def free_ports(count: int = 1) -> list[int]:
    """Return UDP ports of the loopback interface that nothing uses."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            free = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            free.bind((LOOPBACK, 0))
            ports.append(int(free.getsockname()[1]))
        return ports


class SerialPort:
    """The serial port of an emulated device, a pseudo-terminal behind a symbolic link.

    Args:
        name: of the sensor, for messages.
        link: the symbolic link's name, in a folder of its own.

    Attributes:
        ends: descriptors, the device's and the host's; None while it is not plugged in.
    """

    def __init__(self, name: str, link: str) -> None:
        self._name, self._link = name, link
        self._folder: Path | None = None
        self.ends: tuple[int, int] | None = None

    def plug_in(self) -> Path:
        """Open a pseudo-terminal and return its link; DeviceError if none is available."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="emulated-"))
        try:
            self.ends = device, host = pty.openpty()
        except OSError as error:
            raise DeviceError(f"{self._name}: no pseudo-terminal: {error}") from None
        tty.setraw(host)
        os.set_blocking(device, False)
        link = self._folder / self._link
        link.symlink_to(os.ttyname(host))
        return link

    def pull(self) -> None:
        """Close the pseudo-terminal; may be called twice."""
        if self._folder is not None:
            (self._folder / self._link).unlink(missing_ok=True)
        for end in self.ends or ():
            os.close(end)
        self.ends = None

    def read(self) -> bytes:
        """Return the bytes that the host has written."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.ends[0], 1 << 16) if self.ends is not None else b""
        return b""

    def write(self, data: bytes) -> None:
        """Write to the host; bytes that do not fit into its buffer are lost (no flow control)."""
        with contextlib.suppress(BlockingIOError):
            while data and self.ends is not None:
                data = data[os.write(self.ends[0], data) :]

    def remove(self) -> None:
        """Close the pseudo-terminal and remove its folder; may be called twice."""
        self.pull()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
