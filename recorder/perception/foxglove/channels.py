"""Topics whose messages come from a stream's samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from foxglove.messages import Timestamp

from recorder.bus.wire import Message
from recorder.perception.foxglove.payload import Parts
from recorder.perception.foxglove.schema import Schema

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
    """

    topic: str
    schema: Schema
    stream: str
    encode: EncodeSamples
    every: bool = False
    most_hz: float | None = None


def times_ns(message: Message, offset_ns: int) -> list[int]:
    """Return the stamps of a data message's samples, epoch ns."""
    return [int(t_ns) + offset_ns for t_ns in np.atleast_1d(message.t_mono_ns)]


def stamp(t_ns: int) -> Timestamp:
    """Convert a time, epoch ns, to a message's timestamp."""
    return Timestamp(t_ns // 1_000_000_000, t_ns % 1_000_000_000)
