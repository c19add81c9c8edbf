"""Commands of Xsens MTi devices: states, identity, baud rate, output configuration.

No I/O and no clock.  Identifiers and layouts are those of Xsens' "MT Low Level Communication
Protocol Documentation" (MT0101P).  A command's acknowledgement has the command's identifier plus
one; a device that cannot execute the command answers with an Error message (0x42) instead.  A
device is in measurement state, where it sends MTData2, or in config state, where it accepts
commands.

The output configuration is a list of data identifiers, each with a rate in Hz.  Time stamps and
status are sent with every message, whatever their configured rate; the rate 0xFFFF means this.

>>> make_outputs(100, ["euler_angles"]) == (
...     Output(0x1020), Output(0x1060), Output(0x2030, 100), Output(0x4020, 100),
...     Output(0x8020, 100))
True
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from drivers.xsens.mtdata2 import DATA_TYPES, Coordinates, Precision, data_name
from drivers.xsens.packets import MID_MTDATA2
from recorder.common.errors import ProtocolError


class Mid(IntEnum):
    """Message identifiers of commands; an acknowledgement's identifier is one higher."""

    REQ_DID = 0x00
    REQ_FW_REV = 0x12
    GOTO_MEASUREMENT = 0x10
    SET_BAUDRATE = 0x18
    REQ_PRODUCT_CODE = 0x1C
    REQ_HARDWARE_VERSION = 0x1E
    GOTO_CONFIG = 0x30
    MTDATA2 = MID_MTDATA2
    WAKE_UP = 0x3E
    WAKE_UP_ACK = 0x3F
    RESET = 0x40
    ERROR = 0x42
    SET_OUTPUT_CONFIGURATION = 0xC0


EVERY_MESSAGE: Final = 0xFFFF
"""Rate of outputs that are sent with every message."""

WAKE_UP_NS: Final = 500_000_000
"""Time after WakeUp during which a device accepts WakeUpAck, which takes it to config state."""

BITS_PER_BYTE: Final = 10
"""Bits on the line: a start bit, eight data bits, a stop bit."""

BAUDRATES: Final[dict[int, int]] = {
    0x0D: 4_000_000,
    0x0E: 3_500_000,
    0x0C: 2_000_000,
    0x0A: 921_600,
    0x80: 921_600,
    0x00: 460_800,
    0x01: 230_400,
    0x02: 115_200,
    0x04: 57_600,
    0x05: 38_400,
    0x07: 19_200,
    0x09: 9_600,
    0x0B: 4_800,
}
"""Baud rates by their SetBaudrate code."""

USUAL_BAUDRATES: Final = (
    115_200, 921_600, 460_800, 2_000_000, 230_400, 57_600, 38_400, 19_200, 9_600, 4_000_000,
    3_500_000, 4_800,
)  # fmt: skip
"""Baud rates in the order of the search; the first is the factory setting."""

PVT_HZ: Final = 4
"""Rate of GnssPvtData, which comes in messages of its own, whatever its configured rate."""

_PVT = 0x7010
_EVERY_MESSAGE_TYPES = frozenset({0x1010, 0x1020, 0x1030, 0x1060, 0x1070, 0xE010, 0xE020})
_TYPE_MASK, _FORMAT_MASK = 0xFFF0, 0x000F
_OUTPUT_LIMIT = 32
_ALWAYS = ("packet_counter", "sample_time_fine")
_MEASURED = ("acceleration", "rate_of_turn")
OPTIONAL_OUTPUTS: Final = ("euler_angles", "quaternion", "rotation_matrix", "magnetic_field")
"""Optional outputs of a sample besides acceleration and rate of turn."""

ERRORS: Final[dict[int, str]] = {
    0x03: "the sampling period is invalid",
    0x04: "the message is invalid or not implemented",
    0x1E: "timer overflow",
    0x20: "the baud rate is invalid",
    0x21: "a parameter is invalid",
    0x28: "the device has an error",
    0x29: "more data than the line can carry",
    0x32: "the stored settings are invalid",
    0x35: "the output configuration is invalid",
}
"""Meaning of the first byte of an Error message."""


class Output(NamedTuple):
    """One entry of an output configuration: a data identifier and its rate in Hz."""

    data_id: int
    rate_hz: int = EVERY_MESSAGE

    @property
    def data_type(self) -> int:
        """The identifier without encoding and coordinates."""
        return self.data_id & _TYPE_MASK

    @property
    def comes_always(self) -> bool:
        """True if the output is sent with every message: time stamps and status."""
        return self.data_type in _EVERY_MESSAGE_TYPES

    def __str__(self) -> str:
        rate = "" if self.comes_always else f"@{self.rate_hz}"
        return f"{data_name(self.data_id)}(0x{self.data_id:04x}){rate}"


Outputs = tuple[Output, ...]


def encode_outputs(outputs: Sequence[Output]) -> bytes:
    """Encode the data field of SetOutputConfiguration.

    Raises:
        ProtocolError: more than 32 outputs, or an output that exceeds its fields' range.
    """
    if len(outputs) > _OUTPUT_LIMIT:
        raise ProtocolError(f"output configuration: {len(outputs)} outputs, at most 32")
    try:
        return b"".join(struct.pack(">HH", *output) for output in outputs)
    except struct.error as error:
        raise ProtocolError(f"output configuration: {error}") from None


def decode_outputs(data: bytes) -> Outputs:
    """Decode output configurations; entries without a data identifier (0) are omitted.

    Raises:
        ProtocolError: the last entry is incomplete.
    """
    if len(data) % 4:
        raise ProtocolError(
            f"output configuration: {len(data)} bytes are not a whole number of entries"
        )
    return tuple(Output(*entry) for entry in struct.iter_unpack(">HH", data) if entry[0])


def make_outputs(
    rate_hz: int, names: Sequence[str], coordinates: Coordinates = Coordinates.ENU
) -> Outputs:
    """Return the output configuration for samples: all float32, in order of the identifiers.

    Args:
        rate_hz: of the samples.
        names: the optional outputs, from `OPTIONAL_OUTPUTS`.
        coordinates: local frame of the orientation.

    Raises:
        ProtocolError: a name is not in `OPTIONAL_OUTPUTS`.
    """
    outputs = [Output(DATA_TYPES[name]) for name in _ALWAYS]
    for name in (*_MEASURED, *dict.fromkeys(names)):
        if name not in (*OPTIONAL_OUTPUTS, *_MEASURED):
            known = ", ".join(OPTIONAL_OUTPUTS)
            raise ProtocolError(f"{name!r} is not one of {known}")
        data_id = DATA_TYPES[name]
        if data_id >> 12 == 2:
            data_id |= coordinates
        outputs.append(Output(data_id, rate_hz))
    return tuple(sorted(set(outputs)))


def make_gnss_outputs(rate_hz: int, position_hz: int) -> Outputs:
    """Return the outputs of a GNSS/INS device's positions, to be added to those of samples.

    The encoding FP16.32 resolves 0.03 mm of latitude; float32 only 0.4 m.  Velocities are in ENU,
    which every firmware has.

    Args:
        rate_hz: of the samples.
        position_hz: highest rate of positions; the rate is a divisor of the samples'.
    """
    every_hz = max(hz for hz in range(1, rate_hz + 1) if rate_hz % hz == 0 and hz <= position_hz)
    positions = ("latitude_longitude", "altitude_ellipsoid", "velocity")
    return (
        *(Output(DATA_TYPES[name]) for name in ("utc_time", "status_word")),
        *(Output(DATA_TYPES[name] | Precision.FP16_32, every_hz) for name in positions),
        Output(_PVT, PVT_HZ),
    )


def has_receiver(product: str, outputs: Sequence[Output]) -> bool:
    """Return whether a device has a satellite receiver, by its product code and outputs."""
    return bool(_WITH_RECEIVER.match(product)) or any(
        o.data_type in (_PVT, DATA_TYPES["latitude_longitude"]) for o in outputs
    )


_WITH_RECEIVER = re.compile(r"MTi-(G-|[78](?!\d)|[68][78]0(?!\d))", re.IGNORECASE)


def are_same_outputs(one: Sequence[Output], other: Sequence[Output]) -> bool:
    """Return whether two configurations give the same messages, whatever their order."""

    def meaning(outputs: Sequence[Output]) -> list[Output]:
        any_rate = [o.comes_always or o.data_type == _PVT for o in outputs]
        pairs = zip(outputs, any_rate, strict=True)
        return sorted(Output(o.data_id) if free else o for o, free in pairs)

    return meaning(one) == meaning(other)


def bytes_per_second(outputs: Sequence[Output]) -> float:
    """Return the bytes per second of these outputs on the line."""
    rate_hz = sample_rate(outputs)
    receiver_hz = PVT_HZ if any(o.data_type == _PVT for o in outputs) else 0
    each = 0.0
    for o in outputs:
        hz = min(o.rate_hz, rate_hz)
        if o.comes_always:
            hz = rate_hz + receiver_hz
        elif o.data_type == _PVT:
            hz = receiver_hz
        each += (3 + (_SIZES.get(o.data_type, 0) << _count_doubled(o))) * hz
    return each + 5 * (rate_hz + receiver_hz)


def sample_rate(outputs: Sequence[Output]) -> int:
    """Return the rate of the messages in Hz, which is the fastest output's; 0 without outputs."""
    measured = [o for o in outputs if not o.comes_always and o.data_type != _PVT]
    return max((o.rate_hz for o in measured), default=0)


_SIZES = {
    0x1010: 12, 0x1020: 2, 0x1030: 4, 0x1060: 4, 0x1070: 4, 0xE010: 1, 0xE020: 4, 0x0810: 4,
    0x2010: 16, 0x2020: 36, 0x2030: 12, 0x3010: 4, 0x4010: 12, 0x4020: 12, 0x4030: 12,
    0x4040: 12, 0x5020: 4, 0x5030: 12, 0x5040: 8, 0x7010: 94, 0x8020: 12, 0x8030: 16,
    0x8040: 12, 0xC020: 12, 0xD010: 12,
}  # fmt: skip


def _count_doubled(output: Output) -> int:
    """Return 1 if numbers have eight bytes (six for FP16.32: the upper bound is sufficient)."""
    return int(not output.comes_always and output.data_id & 3 >= 2)


class Identity(NamedTuple):
    """A device's identity; texts for settings and people."""

    device_id: str
    product: str
    firmware: str

    def __str__(self) -> str:
        return f"{self.product or 'device'} {self.device_id}, firmware {self.firmware}"


def device_id(data: bytes) -> str:
    """Decode DeviceID (0x01): four bytes, eight from the 600 series on; else ProtocolError."""
    if len(data) not in (4, 8):
        raise ProtocolError(f"DeviceID: {len(data)} bytes instead of 4 or 8")
    return data.hex().upper()


def firmware_revision(data: bytes) -> str:
    """Decode FirmwareRev (0x13): major, minor, revision; newer devices add build, repository (u4).

    Raises:
        ProtocolError: the data are shorter.
    """
    if len(data) < 3:
        raise ProtocolError(f"FirmwareRev: {len(data)} bytes instead of 3 or 11")
    text = ".".join(str(part) for part in data[:3])
    if len(data) >= 7:
        text += f" build {int.from_bytes(data[3:7], 'big')}"
    return text


def product_code(data: bytes) -> str:
    """Decode ProductCode (0x1D): padded text."""
    return data.decode("ascii", "replace").strip("\0 ")


def error_text(data: bytes) -> str:
    """Return the meaning of an Error message."""
    if not data:
        return "error without a code"
    return ERRORS.get(data[0], "see the protocol's table") + f" (code 0x{data[0]:02x})"


def baudrate_code(baudrate: int) -> int:
    """Return the SetBaudrate code of a baud rate; ProtocolError for an unsupported rate."""
    for code, rate in BAUDRATES.items():
        if rate == baudrate:
            return code
    raise ProtocolError(f"an MTi does not support {baudrate} baud")
