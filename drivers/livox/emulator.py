"""An emulated Livox lidar: its commands, points, IMU and messages of its state, over UDP."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Final

from drivers.kit.emulator import LOOPBACK, Due, EmulatedSource, free_ports
from drivers.kit.lidar.emulator import PacketEmulator, PacketScene
from drivers.livox import commands as c
from drivers.livox.packets import IMU, is_packet, make_imu_packet, read_header
from drivers.livox.simulated import LivoxScene
from recorder.common.errors import FormatError

_TYPES: Final = {model: kind for kind, model in c.DEVICES.items()} | {"HAP": 10}
_IMU_NS: Final = 5_000_000
_READ_ONLY: Final = 0x8000
SERIAL_NUMBER: Final = "3GGDJ6K00200101"


class LivoxEmulator(PacketEmulator):
    """Emulated lidar of the simulated world.

    It sends to the hosts that commands have set, once its work mode is normal.  It measures points
    in mm only; another data type is refused.
    """

    def start(self) -> EmulatedSource:
        options = self.sensor.options
        self._model, ports = options["model"], free_ports(4)
        self._ports = dict(zip(("command", "points", "imu", "state"), ports, strict=True))
        self._values = {
            c.POINT_TYPE: b"\1",
            c.POINT_HOST: bytes(8),
            c.IMU_HOST: bytes(8),
            c.STATE_HOST: bytes(8),
            c.WORK_MODE: b"\2",
            c.IMU_SEND: b"\0",
            c.SERIAL: SERIAL_NUMBER.encode().ljust(16, b"\0"),
            c.PRODUCT: self._model.encode().ljust(64, b"\0"),
            c.APP_VERSION: bytes((13, 18, 2, 37)),
            c.WORK_STATE: b"\2",
            c.CORE_TEMPERATURE: struct.pack("<i", 4_250),
            c.TIME_OFFSET: bytes(8),
            c.SYNC_TYPE: b"\1",
            c.FIRMWARE_TYPE: b"\1",
            c.HMS_CODE: bytes(32),
        }
        self._commands = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._commands.setblocking(False)
        self._commands.bind((LOOPBACK, self._ports["command"]))
        self._imu_number = self._pushed = 0
        self.open_sockets()
        return EmulatedSource(
            f"livox://{LOOPBACK}:{self._ports['command']}",
            {
                "model": self._model,
                "lidar_port": self._ports["points"],
                "imu_port": self._ports["imu"],
                "state_port": self._ports["state"],
            },
        )

    def stop(self) -> None:
        self._commands.close()
        super().stop()

    def step(self, now_ns: int) -> int:
        while (request := self._receive()) is not None:
            datagram, sender = request
            try:
                command = c.decode_command(datagram)
            except FormatError:
                continue
            if not command.is_answer:
                answer = c.Command(command.id, command.number, True, True, self._answer(command))
                self._commands.sendto(answer.encode(), sender)
        return min(super().step(now_ns), now_ns + _IMU_NS)

    def make_scene(self) -> PacketScene:
        return LivoxScene(self.config())

    def list_side_packets(self, index: int) -> Sequence[Due]:
        told = {key: value for key, value in self._values.items() if key >= _READ_ONLY}
        state = c.Command(c.PUSH, index + 1, False, True, c.encode_values(told))
        due = [(0, state.encode())]
        for at_ns in range(0, 100_000_000, _IMU_NS):
            due.append((at_ns, make_imu_packet(self._imu_number, self._imu_number * _IMU_NS)))
            self._imu_number += 1
        return due

    def choose_port(self, packet: bytes) -> int | None:
        if self._values[c.WORK_MODE] != bytes([c.NORMAL]):
            return None
        if not is_packet(packet):
            key = c.STATE_HOST if packet[:1] == b"\xaa" else c.POINT_HOST
        elif read_header(packet)["data_type"] == IMU:
            if self._values[c.IMU_SEND] != b"\1":
                return None
            key = c.IMU_HOST
        else:
            key = c.POINT_HOST
        return int.from_bytes(self._values[key][4:6], "little") or None

    def _receive(self) -> tuple[bytes, tuple[str, int]] | None:
        try:
            return self._commands.recvfrom(2048)
        except BlockingIOError:
            return None

    def _answer(self, command: c.Command) -> bytes:
        if command.id == c.SEARCH:
            kind, port = _TYPES[self._model], self._ports["command"]
            return c.encode_device(kind, SERIAL_NUMBER, LOOPBACK, port)
        try:
            if command.id == c.SET:
                return self._set(c.decode_values(command.data))
            if command.id == c.GET:
                count = struct.unpack_from("<H", command.data)[0]
                keys = struct.unpack_from(f"<{count}H", command.data, 4)
                found = {key: self._values[key] for key in keys if key in self._values}
                values = c.encode_values(found)
                return b"\0" + values[:2] + values[4:]
        except (FormatError, struct.error):
            return struct.pack("<BH", 1, 0)
        return b"\1"

    def _set(self, values: dict[int, bytes]) -> bytes:
        for key, value in values.items():
            known = self._values.get(key, b"")
            right = key < _READ_ONLY and len(value) == len(known)
            if not right or (key == c.POINT_TYPE and value != b"\1"):
                return struct.pack("<BH", 3, key)
            self._values[key] = value
        self._values[c.WORK_STATE] = self._values[c.WORK_MODE]
        return struct.pack("<BH", 0, 0)
