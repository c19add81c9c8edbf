"""Channels that are offered to viewers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from recorder.processing.foxglove.channels import Encoded, SampleChannel
from recorder.processing.foxglove.schema import Schema

EncodeTime = Callable[[int], Encoded]
"""What is due at a time, epoch ns; called in a worker thread, for one viewer."""

STATIC_NS: Final = 1_000_000_000
"""Interval at which what does not change is sent again."""


@dataclass(frozen=True, slots=True)
class TimedChannel:
    """A channel whose messages depend on the time alone.

    Attributes:
        topic, schema: name, and schema of the messages.
        timed: makes the source for one viewer.
    """

    topic: str
    schema: Schema
    timed: Callable[[], EncodeTime]


@dataclass(frozen=True, slots=True)
class LogChannel:
    """A channel of the events, as they are reported."""

    topic: str
    schema: Schema


Channel = SampleChannel | TimedChannel | LogChannel


def repeat(make: Callable[[int], bytes]) -> Callable[[], EncodeTime]:
    """A timed source of one message that does not change but for its stamp."""

    def start() -> EncodeTime:
        last: int | None = None

        def due(t_ns: int) -> Encoded:
            nonlocal last
            if last is not None and 0 <= t_ns - last < STATIC_NS:
                return []
            last = t_ns
            return [(t_ns, [make(t_ns)])]

        return due

    return start
