"""MTData2 packets, the data of an Xsens MTi's measurement messages: to a dataclass and back.

No I/O and no clock.  Data identifiers, layouts and units are those of Xsens' "MT Low Level
Communication Protocol Documentation" (MT0101P), section MTData2.  The data is a sequence of
packets: data identifier (u2), size (u1), values; everything is big-endian.  An identifier's two low
bits are the encoding of real numbers (`Precision`), the next two the local frame (`Coordinates`).

>>> data = encode_mtdata2(MtData2(packet_counter=7, acceleration=(0.0, 0.0, 9.8125)))
>>> decode_mtdata2(data).acceleration
(0.0, 0.0, 9.8125)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from recorder.common.errors import ProtocolError

_PACKET_HEAD: Final = 3

Values = tuple[float, ...]
Integers = tuple[int, ...]


class Precision(IntEnum):
    """Encoding of real numbers: the two low bits of a data identifier."""

    FLOAT32 = 0
    FP12_20 = 1
    FP16_32 = 2
    FLOAT64 = 3


class Coordinates(IntEnum):
    """Axes of the local frame of orientations and velocities."""

    ENU = 0x0
    NED = 0x4
    NWU = 0x8


@dataclass(slots=True)
class MtData2:
    """One MTData2 message; absent values are None.

    Attributes:
        packet_counter: u2, counts every message that the device sends, and wraps.
        sample_time_fine: u4, ticks of 10 kHz, wraps.
        sample_time_coarse: u4, seconds.
        gnss_itow_ms: GPS time of week in ms.
        utc_time: UtcTime (0x1010), integers in the protocol's order: ns, year, month, ...
        gnss_pvt: GnssPvtData (0x7010), the receiver's integers in the protocol's order.
        status_byte, status_word: flags, see the protocol's table of StatusWord.
        quaternion: (q0, q1, q2, q3) with q0 the real part, sensor to local frame.
        rotation_matrix: sensor to local frame, nine values column by column.
        euler_angles: roll, pitch, yaw in degrees.
        acceleration: m/s^2, with gravity; `free_acceleration` without gravity, in the local frame;
            `acceleration_hr` at the sensor's own high rate.
        delta_v: m/s over the sampling interval; `delta_q` is the change of orientation over it.
        rate_of_turn, rate_of_turn_hr: rad/s.
        magnetic_field: arbitrary units, about 1 at the place of calibration.
        temperature: degrees Celsius.
        pressure: Pa.
        altitude_ellipsoid: m; `latitude_longitude` degrees; `position_ecef` m.
        velocity: m/s in the local frame.
        unknown: bytes of packets of unknown identifier or wrong size, by data identifier.
        data_ids: data identifiers of the packets, in order.
    """

    packet_counter: int | None = None
    sample_time_fine: int | None = None
    sample_time_coarse: int | None = None
    gnss_itow_ms: int | None = None
    utc_time: Integers | None = None
    status_byte: int | None = None
    status_word: int | None = None
    quaternion: Values | None = None
    rotation_matrix: Values | None = None
    euler_angles: Values | None = None
    acceleration: Values | None = None
    free_acceleration: Values | None = None
    acceleration_hr: Values | None = None
    delta_v: Values | None = None
    delta_q: Values | None = None
    rate_of_turn: Values | None = None
    rate_of_turn_hr: Values | None = None
    magnetic_field: Values | None = None
    temperature: float | None = None
    pressure: int | None = None
    altitude_ellipsoid: float | None = None
    latitude_longitude: Values | None = None
    position_ecef: Values | None = None
    velocity: Values | None = None
    gnss_pvt: Integers | None = None
    unknown: dict[int, bytes] = field(default_factory=dict)
    data_ids: tuple[int, ...] = ()

    @property
    def has_orientation(self) -> bool:
        """True if there is an orientation of any kind."""
        return not (self.euler_angles is self.quaternion is self.rotation_matrix is None)

    @property
    def rotation(self) -> Values | None:
        """Roll, pitch, yaw in radians, from any kind of orientation.

        The device's own Euler angles are preferred, so that a measured value is never replaced by
        a computed one.
        """
        if self.euler_angles is not None:
            roll, pitch, yaw = self.euler_angles
            return math.radians(roll), math.radians(pitch), math.radians(yaw)
        if self.quaternion is not None:
            return euler_from_quaternion(self.quaternion)
        if self.rotation_matrix is not None:
            return euler_from_matrix(self.rotation_matrix)
        return None

    @property
    def coordinates(self) -> Coordinates | None:
        """The local frame of the orientation; None without an orientation."""
        for data_id in self.data_ids:
            if data_id & _TYPE_MASK in _ORIENTATIONS:
                bits = data_id & _COORDINATES_MASK
                return Coordinates(bits) if bits in _COORDINATE_BITS else None
        return None


_TYPE_MASK = 0xFFF0
_COORDINATES_MASK = 0x000C
_COORDINATE_BITS = frozenset(Coordinates)
_ORIENTATIONS = frozenset({0x2010, 0x2020, 0x2030})

_REALS: dict[str, tuple[int, int]] = {
    # name: (data type, count); a single value is a number, several values are a tuple
    "quaternion": (0x2010, 4),
    "rotation_matrix": (0x2020, 9),
    "euler_angles": (0x2030, 3),
    "acceleration": (0x4020, 3),
    "free_acceleration": (0x4030, 3),
    "acceleration_hr": (0x4040, 3),
    "delta_v": (0x4010, 3),
    "delta_q": (0x8030, 4),
    "rate_of_turn": (0x8020, 3),
    "rate_of_turn_hr": (0x8040, 3),
    "magnetic_field": (0xC020, 3),
    "temperature": (0x0810, 1),
    "altitude_ellipsoid": (0x5020, 1),
    "latitude_longitude": (0x5040, 2),
    "position_ecef": (0x5030, 3),
    "velocity": (0xD010, 3),
}
_INTEGERS: dict[str, tuple[int, str]] = {
    "packet_counter": (0x1020, ">H"),
    "sample_time_fine": (0x1060, ">I"),
    "sample_time_coarse": (0x1070, ">I"),
    "gnss_itow_ms": (0x1030, ">I"),
    "status_byte": (0xE010, ">B"),
    "status_word": (0xE020, ">I"),
    "pressure": (0x3010, ">I"),
    "utc_time": (0x1010, ">IHBBBBBB"),
    "gnss_pvt": (0x7010, ">IHBBBBBBIiBBBBiiiiIIiiiiiIIIHHHHHHH"),
}
DATA_TYPES: dict[str, int] = {
    name: entry[0] for table in (_REALS, _INTEGERS) for name, entry in table.items()
}
"""Data type (an identifier without encoding and coordinates) of every field of `MtData2`."""

_NAMES = {data_type: name for name, data_type in DATA_TYPES.items()}


class _Codec(NamedTuple):
    name: str
    size: int
    unpack: Callable[[bytes, int], Any]
    pack: Callable[[Any], bytes]


def _real_codec(name: str, count: int, precision: Precision) -> _Codec:
    """Make the codec of `count` real numbers in one of the four encodings."""
    letter = {
        Precision.FLOAT32: "f",
        Precision.FP12_20: "i",
        Precision.FP16_32: "Ih",  # the 32 bits of the fraction come first, then the integer part
        Precision.FLOAT64: "d",
    }[precision]
    layout = struct.Struct(">" + letter * count)

    def unpack(data: bytes, pos: int) -> Any:
        raw = layout.unpack_from(data, pos)
        if precision is Precision.FP12_20:
            raw = tuple([value / 2**20 for value in raw])
        elif precision is Precision.FP16_32:
            parts = zip(raw[::2], raw[1::2], strict=True)
            raw = tuple([whole + fraction / 2**32 for fraction, whole in parts])
        return raw if count > 1 else raw[0]

    def pack(value: Any) -> bytes:
        numbers = value if count > 1 else (value,)
        if precision is Precision.FP12_20:
            return layout.pack(*[round(number * 2**20) for number in numbers])
        if precision is Precision.FP16_32:
            fixed = [round(number * 2**32) for number in numbers]
            return layout.pack(*[part for f in fixed for part in (f & 0xFFFFFFFF, f >> 32)])
        return layout.pack(*numbers)

    return _Codec(name, layout.size, unpack, pack)


def _integer_codec(name: str, form: str) -> _Codec:
    """Make the codec of one integer, or of several integers, which are a tuple."""
    layout = struct.Struct(form)
    if len(form) > 2:
        return _Codec(name, layout.size, layout.unpack_from, lambda value: layout.pack(*value))
    return _Codec(
        name, layout.size, lambda data, pos: layout.unpack_from(data, pos)[0], layout.pack
    )


def _make_codecs() -> dict[int, _Codec]:
    codecs = {}
    for precision in Precision:
        for name, (data_type, count) in _REALS.items():
            codec = _real_codec(name, count, precision)
            for coordinates in Coordinates:
                codecs[data_type | coordinates | precision] = codec
    for name, (data_type, form) in _INTEGERS.items():
        codecs[data_type] = _integer_codec(name, form)
    return codecs


_CODECS = _make_codecs()


def decode_mtdata2(data: bytes) -> MtData2:
    """Decode the data field of an MTData2 message; the inverse of `encode_mtdata2`.

    A packet of an unknown identifier, or of a wrong size for its identifier, is stored as bytes in
    `MtData2.unknown`.

    Raises:
        ProtocolError: the packets' sizes do not add up to the data's size.
    """
    values: dict[str, Any] = {}
    unknown: dict[int, bytes] = {}
    data_ids: list[int] = []
    pos, end = 0, len(data)
    while pos < end:
        stop = pos + _PACKET_HEAD + data[pos + 2] if pos + _PACKET_HEAD <= end else end + 1
        if stop > end:
            raise ProtocolError(f"MTData2: the packet at byte {pos} runs over the end at {end}")
        data_id = data[pos] << 8 | data[pos + 1]
        pos += _PACKET_HEAD
        codec = _CODECS.get(data_id)
        if codec is not None and codec.size == stop - pos:
            values[codec.name] = codec.unpack(data, pos)
        else:
            unknown[data_id] = data[pos:stop]
        data_ids.append(data_id)
        pos = stop
    return MtData2(unknown=unknown, data_ids=tuple(data_ids), **values)


def encode_mtdata2(
    values: MtData2,
    precision: Precision = Precision.FLOAT32,
    coordinates: Coordinates = Coordinates.ENU,
) -> bytes:
    """Encode the data field of an MTData2 message; `encode_message(MID_MTDATA2, ...)` wraps it.

    Args:
        values: the message.  Where `data_ids` is set, exactly these packets are encoded in this
            order, so that a decoded message encodes to the same bytes; otherwise every field that
            is set, in the order of the fields, then `unknown`.
        precision: encoding of real numbers, without `data_ids`.
        coordinates: local frame of orientation and velocity, without `data_ids`.

    Raises:
        ProtocolError: a value is missing or exceeds its encoding's range.
    """
    data_ids = values.data_ids or _data_ids(values, precision, coordinates)
    packets = []
    for data_id in data_ids:
        name = _CODECS[data_id].name if data_id in _CODECS else ""
        try:
            if data_id in values.unknown:
                body = values.unknown[data_id]
            else:
                body = _CODECS[data_id].pack(getattr(values, name))
            packets.append(struct.pack(">HB", data_id, len(body)) + body)
        except (struct.error, OverflowError, ValueError, TypeError, KeyError) as error:
            raise ProtocolError(f"MTData2: packet 0x{data_id:04x} {name}: {error}") from None
    return b"".join(packets)


def _data_ids(values: MtData2, precision: Precision, coordinates: Coordinates) -> tuple[int, ...]:
    data_ids = []
    for name in MtData2.__slots__:
        if name not in DATA_TYPES or getattr(values, name) is None:
            continue
        data_id = DATA_TYPES[name]
        if name in _REALS:
            data_id |= precision
            if data_id & _TYPE_MASK in _ORIENTATIONS or name == "velocity":
                data_id |= coordinates
        data_ids.append(data_id)
    return (*data_ids, *values.unknown)


def data_name(data_id: int) -> str:
    """Return this module's name of a data identifier, for messages to people."""
    return _NAMES.get(data_id & _TYPE_MASK, f"0x{data_id:04x}")


# --- orientation ------------------------------------------------------------------------------


def euler_from_quaternion(q: Values) -> Values:
    """Convert (q0, q1, q2, q3), sensor to local frame, to roll, pitch, yaw in radians.

    The definition is that of the MTi User Manual (MT0605P, orientation output modes): rotations
    about the local frame's fixed X, then Y, then Z; pitch within +-90 degrees.  In this form,
    rounding errors of the quaternion's norm (fixed point, float32) cancel, which matters where
    pitch is near 90 degrees.
    """
    q0, q1, q2, q3 = q
    a, b, c, d = q0 * q0, q1 * q1, q2 * q2, q3 * q3
    return (
        math.atan2(2.0 * (q2 * q3 + q0 * q1), a - b - c + d),
        -_arcsine(2.0 * (q1 * q3 - q0 * q2) / ((a + b + c + d) or math.nan)),
        math.atan2(2.0 * (q1 * q2 + q0 * q3), a + b - c - d),
    )


def euler_from_matrix(m: Values) -> Values:
    """Convert a rotation matrix, nine values column by column, to roll, pitch, yaw in radians."""
    return math.atan2(m[5], m[8]), -_arcsine(m[2]), math.atan2(m[1], m[0])


def _arcsine(sine: float) -> float:
    return math.asin(max(-1.0, min(1.0, sine))) if sine == sine else math.nan
