"""Topics whose messages come from a stream's samples: their schemas and payloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from foxglove.messages import Timestamp

from recorder.bus.wire import Message
from recorder.common.files import Buffer, buffer_size
from recorder.formats.mcap import Schema as Schema

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


def schema_of(message: Any) -> Schema:
    """Return the schema of a message type of `foxglove.messages`."""
    found = message.get_schema()
    return Schema(found.name, found.encoding, bytes(found.data))


Encoded = list[tuple[int, Parts]]
"""Messages of a topic: log time (epoch ns), and consecutive parts of the payload."""
EncodeSamples = Callable[[Message, int], Encoded]
"""A function of a data message and the offset of ``t_mono`` to epoch ns; safe for threads."""


@dataclass(frozen=True, slots=True)
class SampleChannel:
    """A topic whose messages come from a stream's samples.

    Attributes:
        topic: its name.
        schema: schema of its messages.
        stream: name of the stream.
        encode: encodes a data message of the stream.
        every: each sample of a data message becomes messages; else only the newest sample.
        most_hz: for live viewers, the largest rate of data messages that are encoded; None without
            a limit.
        encoding: of the messages of a recorded topic, which keeps its name; "": the schema's usual
            one, of a topic of the recorder.
    """

    topic: str
    schema: Schema
    stream: str
    encode: EncodeSamples
    every: bool = False
    most_hz: float | None = None
    encoding: str = ""


def times_ns(message: Message, offset_ns: int) -> list[int]:
    """Return the stamps of a data message's samples, epoch ns."""
    return [int(t_ns) + offset_ns for t_ns in np.atleast_1d(message.t_mono_ns)]


def stamp(t_ns: int) -> Timestamp:
    """Convert a time, epoch ns, to a message's timestamp."""
    return Timestamp(t_ns // 1_000_000_000, t_ns % 1_000_000_000)
