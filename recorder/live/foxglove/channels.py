"""What a channel is, and the channels of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from foxglove.messages import Timestamp

from recorder.contract.wire import Message
from recorder.live.foxglove.protocol import Schema

Encoded = list[tuple[int, bytes]]
"""Messages of a channel: log time (epoch ns) and payload."""
EncodeSamples = Callable[[Message, int], Encoded]
"""From a data message, and what is added to ``t_mono`` for epoch ns; called in a worker thread."""
EncodeTime = Callable[[int], Encoded]
"""What is due at a time, epoch ns; called in a worker thread, for one viewer."""

STATIC_NS: Final = 1_000_000_000
"""Interval at which what does not change is sent again."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel that is offered to viewers.  It has one of three sources.

    Attributes:
        topic: its name.
        schema: schema of its messages, which are ``json`` where the schema is a JSON schema.
        stream: source: a stream, encoded by `encode`.
        encode: encodes a data message of the stream.
        every: all data messages are sent, as far as the viewer takes them; else the newest.
        most_hz: largest rate of data messages that are encoded; None without a limit.
        timed: source: time; makes a function for one viewer.
        log: source: events.
    """

    topic: str
    schema: Schema
    stream: str | None = None
    encode: EncodeSamples | None = None
    every: bool = False
    most_hz: float | None = None
    timed: Callable[[], EncodeTime] | None = None
    log: bool = False

    @property
    def encoding(self) -> str:
        """Encoding of the messages."""
        return "json" if self.schema.encoding == "jsonschema" else self.schema.encoding


def schema_of(message: Any) -> Schema:
    """Schema of a message type of `foxglove.messages`."""
    found = message.get_schema()
    return Schema(found.name, found.encoding, bytes(found.data))


def times_ns(message: Message, offset_ns: int) -> list[int]:
    """Stamps of a data message's samples, epoch ns."""
    return [int(t_ns) + offset_ns for t_ns in np.atleast_1d(message.t_mono_ns)]


def stamp(t_ns: int) -> Timestamp:
    """A time, epoch ns, as the messages carry it."""
    return Timestamp(t_ns // 1_000_000_000, t_ns % 1_000_000_000)


def repeat(make: Callable[[int], bytes]) -> Callable[[], EncodeTime]:
    """A timed source of one message that does not change but for its stamp."""

    def start() -> EncodeTime:
        last: int | None = None

        def due(t_ns: int) -> Encoded:
            nonlocal last
            if last is not None and 0 <= t_ns - last < STATIC_NS:
                return []
            last = t_ns
            return [(t_ns, make(t_ns))]

        return due

    return start
