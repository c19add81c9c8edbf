"""An emulated DCA1000EVM: commands on one UDP socket, packets from another, on loopback."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.mmwave import packets as dca1000
from drivers.mmwave.packets import PACKET_BYTES
from drivers.mmwave.simulated import CardBuffer
from recorder.common.errors import DeviceError, ProtocolError

HOST: Final = "127.0.0.1"
CARD: Final = "127.0.0.2"

_VERSION: Final = 2 | 9 << 7  # 2.9
_BUSY_NS: Final = 20_000_000  # the card ignores commands this long after its configuration
_WIRE_NS: Final = PACKET_BYTES * 8  # time of a packet at 1 Gbit/s

Frame = npt.NDArray[np.int16]


class CaptureCard:
    """The card's sockets, its configuration, and packets that are not yet due.

    Args:
        name: the sensor's name, for messages.

    Attributes:
        config_port: of the card and, on the host's address, of the host's commands.
        data_port: of the host; destination of the packets.
        recording: a capture was started and not yet ended.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.config_port = self.data_port = 0
        self._commands: socket.socket | None = None
        self._data: socket.socket | None = None
        self._buffer = CardBuffer()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.power_off()

    def power_off(self) -> None:
        self.recording = self._configured = False
        self._delay_ns = 0
        self._deaf_until_ns = 0
        self._last_ns = 0
        self._waiting.clear()

    def open(self) -> None:
        """Bind the sockets, to their previous ports if there were any."""
        for _ in range(100):
            commands = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                commands.bind((CARD, self.config_port))
                port = int(commands.getsockname()[1])
                # The host's sockets use the same two port numbers on the host's address.
                if not self.config_port:
                    self.data_port = _free_port(0)
                    _free_port(port)
            except OSError as error:
                commands.close()
                if self.config_port:
                    where = f"{self._name}: UDP {CARD}:{self.config_port}"
                    raise DeviceError(f"{where}: {error.strerror}") from None
                continue
            commands.setblocking(False)
            self._commands, self.config_port = commands, port
            self._data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._data.bind((CARD, 0))
            return
        raise DeviceError(f"{self._name}: no UDP port is free on {HOST} and {CARD}")

    def close(self) -> None:
        for one in (self._commands, self._data):
            if one is not None:
                one.close()
        self._commands = self._data = None

    def answer(self, now_ns: int) -> list[int]:
        """Execute the requests; return their codes."""
        done = []
        while self._commands is not None:
            try:
                packet, sender = self._commands.recvfrom(2048)
            except (BlockingIOError, ConnectionRefusedError):
                break
            if now_ns < self._deaf_until_ns:
                continue
            try:
                command = dca1000.parse_command(packet)
            except ProtocolError:
                continue  # the real card ignores it too
            answer = dca1000.Answer(command.code, self._obey(command, now_ns))
            with contextlib.suppress(OSError):
                self._commands.sendto(answer.to_bytes(), sender)
            done.append(command.code)
        return done

    def discard(self) -> None:
        """Discard requests that arrived while the card was absent."""
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while self._commands is not None:
                self._commands.recv(2048)

    def _obey(self, command: dca1000.Command, now_ns: int) -> int:
        match command.code:
            case dca1000.SYSTEM_ALIVENESS | dca1000.RESET_AR_DEVICE | dca1000.CONFIG_EEPROM:
                return 0
            case dca1000.READ_FPGA_VERSION:
                return _VERSION
            case dca1000.RESET_FPGA:
                self.power_off()
                return 0
            case dca1000.CONFIG_FPGA if len(command.data) == 6:
                self._configured = True
                self._deaf_until_ns = now_ns + _BUSY_NS
                return 0
            case dca1000.CONFIG_RECORD if len(command.data) == 6:
                self._delay_ns = int.from_bytes(command.data[2:4], "little") * 8
                return 0
            case dca1000.START_RECORD if self._configured and not self.recording:
                self.recording = True
                self._buffer = CardBuffer()
                self._waiting.clear()
                return 0
            case dca1000.STOP_RECORD:
                self.recording = False
                self._waiting.clear()
                return 0
            case _:
                return 1

    @property
    def busy(self) -> bool:
        """True if packets are pending."""
        return bool(self._waiting)

    def push(self, frame: Frame, begin_ns: int, time_ns: int) -> None:
        """Add a frame that is measured from `begin_ns` for `time_ns`."""
        if not self.recording:
            return
        before = self._buffer.waiting
        packets = self._buffer.push(frame)
        ends = (np.arange(1, len(packets) + 1) * dca1000.PAYLOAD_BYTES - before) / frame.nbytes
        # A packet is sent after its last chirp, and not too soon after the previous packet.
        gap_ns = self._delay_ns + _WIRE_NS
        ready = begin_ns + np.rint(ends * time_ns).astype(np.int64)
        ready[:1] = np.maximum(ready[:1], self._last_ns + gap_ns)
        steps = np.arange(len(packets)) * gap_ns
        due = np.maximum.accumulate(ready - steps) + steps
        if len(due):
            self._last_ns = int(due[-1])
        raw = packets.tobytes()
        self._waiting += (
            (t_ns, raw[k * PACKET_BYTES : (k + 1) * PACKET_BYTES])
            for k, t_ns in enumerate(due.tolist())
        )

    def next_ns(self) -> int | None:
        """Return when the next packet is due; None without pending packets."""
        return self._waiting[0][0] if self._waiting else None

    def pop(self) -> bytes:
        """Remove and return the next packet."""
        return self._waiting.popleft()[1]

    def send(self, packet: bytes) -> None:
        if self._data is not None:
            with contextlib.suppress(OSError):  # no receiver or a full queue: lost, as on a wire
                self._data.sendto(packet, (HOST, self.data_port))


def _free_port(port: int) -> int:
    """Return a free UDP port on the host's address: `port`, or any; OSError if it is taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HOST, port))
        return int(probe.getsockname()[1])
