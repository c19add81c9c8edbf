"""Protobuf messages with a large field of bytes, encoded without a copy of these bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from recorder.common.files import Buffer, buffer_size

Parts = Sequence[Buffer]
"""Consecutive parts of an encoded message."""

_BYTES_OF_FIXED: Final = {1: 8, 5: 4}
_VARINT, _LENGTH_DELIMITED = 0, 2


def with_bytes(encoded: bytes, field: int, data: Buffer) -> list[Buffer]:
    """Return a protobuf message with one more field of bytes, as the SDK encodes the whole message.

    Fields are in the order of their numbers, and an empty field is left out (Protocol Buffers
    Documentation, "Encoding", and what prost makes of proto3).

    Args:
        encoded: the message without the field; its fields are in the order of their numbers.
        field: the field's number, at most 15.
        data: its value.

    Returns:
        consecutive parts of the message; `data` is one of them.
    """
    length = buffer_size(data)
    if not length:
        return [encoded]
    at = 0
    while at < len(encoded) and encoded[at] >> 3 < field:
        at = _find_field_end(encoded, at)
    head = encoded[:at] + bytes([field << 3 | _LENGTH_DELIMITED]) + _encode_varint(length)
    return [head, data, encoded[at:]] if at < len(encoded) else [head, data]


def _find_field_end(encoded: bytes, at: int) -> int:
    """Return the end of the field that begins at a place; its number is at most 15."""
    kind = encoded[at] & 7
    if kind in _BYTES_OF_FIXED:
        return at + 1 + _BYTES_OF_FIXED[kind]
    value, end = 0, at + 1
    for shift in range(0, 64, 7):
        byte = encoded[end]
        value |= (byte & 0x7F) << shift
        end += 1
        if byte < 0x80:
            break
    return end if kind == _VARINT else end + value


def _encode_varint(value: int) -> bytes:
    """Encode an unsigned number in groups of seven bits, the lowest first."""
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
