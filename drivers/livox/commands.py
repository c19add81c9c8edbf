"""Commands of Livox's second SDK: requests, their answers, and what devices tell of themselves.

Source: Livox-SDK2 (sdk_protocol.cpp, livox_lidar_def.h, define.h).  A command is a header of 24
bytes, with checksums of itself and of the data behind it.  Parameters are a list of keys, lengths
and values.  All integers are little-endian.
"""

from __future__ import annotations

import binascii
import socket
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from recorder.common.errors import FormatError

SEARCH, SET, GET, PUSH = 0x0000, 0x0100, 0x0101, 0x0102
"""Commands: look for devices; set and get parameters; a device's own message of its state."""
DISCOVERY_PORT: Final = 56000
POINT_TYPE, POINT_SEND, STATE_HOST, POINT_HOST, IMU_HOST = 0x0000, 0x0003, 0x0005, 0x0006, 0x0007
WORK_MODE, IMU_SEND = 0x001A, 0x001C
SERIAL, PRODUCT, APP_VERSION, WORK_STATE, CORE_TEMPERATURE = 0x8000, 0x8001, 0x8002, 0x8006, 0x8007
TIME_OFFSET, SYNC_TYPE, FIRMWARE_TYPE, HMS_CODE = 0x800B, 0x800C, 0x8010, 0x8011
NAMES: Final = {
    POINT_TYPE: "data type", POINT_SEND: "sending of points", STATE_HOST: "host of states",
    POINT_HOST: "host of points", IMU_HOST: "host of the IMU", WORK_MODE: "work mode",
    IMU_SEND: "sending of the IMU",
}  # fmt: skip
"""Names of the settings."""
NORMAL: Final = 1
"""Work mode in which the lidar measures."""
WORK_STATES: Final = {
    1: "normal", 2: "wake up", 3: "sleep", 4: "error", 5: "self-test", 6: "motor starting",
    7: "motor stopping", 8: "upgrade",
}  # fmt: skip
SYNC_TYPES: Final = {0: "none", 1: "PTP", 2: "GPS"}
DEVICES: Final = {9: "Mid-360", 10: "HAP", 15: "HAP"}
"""Models by device type."""

_HEADER: Final = struct.Struct("<BBHIHBB6x")
_CHECKS: Final = struct.Struct("<HI")
_HEAD: Final = _HEADER.size + _CHECKS.size
_START: Final = 0xAA
_ANSWER: Final = 1
_DEVICE: Final = struct.Struct("<BB16s4sH")


@dataclass(frozen=True, slots=True)
class Command:
    """A command or its answer.

    Attributes:
        id: which command.
        number: of the request; its answer has the same.
        is_answer: it is an answer.
        of_device: the device has sent it.
        data: what follows the header.
    """

    id: int
    number: int
    is_answer: bool
    of_device: bool
    data: bytes = b""

    def encode(self) -> bytes:
        """Return the datagram."""
        size = _HEAD + len(self.data)
        head = _HEADER.pack(
            _START, 0, size, self.number & 0xFFFF, self.id, self.is_answer, self.of_device
        )
        check = zlib.crc32(self.data) if self.data else 0
        return head + _CHECKS.pack(binascii.crc_hqx(head, 0xFFFF), check) + self.data


def decode_command(datagram: bytes) -> Command:
    """Decode a datagram.

    Raises:
        FormatError: it is no command, or it is damaged.
    """
    if len(datagram) < _HEAD:
        raise FormatError(f"a command of {len(datagram)} bytes is shorter than its header")
    start, version, size, number, command, kind, sender = _HEADER.unpack_from(datagram)
    if start != _START or version or size != len(datagram):
        raise FormatError(f"a datagram that begins with {datagram[:4].hex(' ')} is no command")
    check, data_check = _CHECKS.unpack_from(datagram, _HEADER.size)
    data = datagram[_HEAD:]
    if check != binascii.crc_hqx(datagram[: _HEADER.size], 0xFFFF):
        raise FormatError("a command with a wrong checksum of its header")
    if data_check != (zlib.crc32(data) if data else 0):
        raise FormatError("a command with a wrong checksum of its data")
    return Command(command, number, kind == _ANSWER, sender == 1, data)


def encode_values(values: Mapping[int, bytes]) -> bytes:
    """Return a list of parameters, as `SET` and `PUSH` have them."""
    parts = [struct.pack("<HH", len(values), 0)]
    parts += [struct.pack("<HH", key, len(value)) + value for key, value in values.items()]
    return b"".join(parts)


def decode_values(data: bytes) -> dict[int, bytes]:
    """Return the parameters of a list, by key.

    Raises:
        FormatError: the list ends in a value.
    """
    if len(data) < 4:
        raise FormatError(f"a list of parameters of {len(data)} bytes")
    (count, _), at, values = struct.unpack_from("<HH", data), 4, dict[int, bytes]()
    for _ in range(count):
        if at + 4 > len(data):
            raise FormatError(f"a list of {count} parameters ends behind {len(values)}")
        key, size = struct.unpack_from("<HH", data, at)
        if at + 4 + size > len(data):
            raise FormatError(f"the parameter {key:#06x} has {size} bytes, too few are there")
        values[key] = data[at + 4 : at + 4 + size]
        at += 4 + size
    return values


def encode_host(address: str, port: int, device_port: int) -> bytes:
    """Return where a device sends something: address and port of the host, and its own port."""
    return socket.inet_aton(address) + struct.pack("<HH", port, device_port)


def encode_device(device_type: int, serial: str, address: str, port: int) -> bytes:
    """Return a device's answer to a search."""
    return _DEVICE.pack(0, device_type, serial.encode(), socket.inet_aton(address), port)


def decode_device(data: bytes) -> tuple[int, str, str, int]:
    """Return device type, serial number, address and port of an answer to a search.

    Raises:
        FormatError: it is no such answer.
    """
    if len(data) != _DEVICE.size:
        raise FormatError(f"an answer to a search of {len(data)} bytes")
    _, kind, serial, address, port = _DEVICE.unpack(data)
    return kind, _read_text(serial), socket.inet_ntoa(address), port


def read_state(values: Mapping[int, bytes]) -> dict[str, Any]:
    """Return what a device tells of itself, in words; JSON types."""
    state: dict[str, Any] = {}
    for key, name in ((SERIAL, "serial"), (PRODUCT, "product")):
        if key in values:
            state[name] = _read_text(values[key])
    if APP_VERSION in values:
        state["firmware"] = ".".join(str(byte) for byte in values[APP_VERSION])
    for key, name, names in (
        (WORK_STATE, "work_state", WORK_STATES),
        (SYNC_TYPE, "time_sync", SYNC_TYPES),
    ):
        if key in values:
            number = int.from_bytes(values[key], "little")
            state[name] = names.get(number, f"number {number}")
    if CORE_TEMPERATURE in values:  # 0.01 deg C
        state["core_c"] = round(
            int.from_bytes(values[CORE_TEMPERATURE], "little", signed=True) / 100
        )
    if TIME_OFFSET in values:
        offset_ns = int.from_bytes(values[TIME_OFFSET], "little", signed=True)
        state["time_offset_us"] = round(offset_ns / 1000)
    if HMS_CODE in values:
        raw = values[HMS_CODE]
        codes = [int.from_bytes(raw[k : k + 4], "little") for k in range(0, len(raw), 4)]
        state["hms_codes"] = [code for code in codes if code]
    return state


def _read_text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", "replace")
