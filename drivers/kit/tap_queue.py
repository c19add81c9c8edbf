"""Queue of a driver's tap: the latest messages, with small ones joined."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec

SMALL_BYTES = 4096
"""Data messages below this size wait for others, and are sent with them."""
_RUNS = 8  # live views get the latest
_MOST = 64  # small messages in a run


class TapQueue:
    """Queue of messages for a tap.  The caller protects it with a lock.

    Args:
        specs: the driver's streams.
    """

    def __init__(self, specs: Iterable[StreamSpec]) -> None:
        self._joinable = frozenset(spec.name for spec in specs if spec.joinable)
        self._runs: deque[list[Message]] = deque(maxlen=_RUNS)

    def __bool__(self) -> bool:
        return bool(self._runs)

    def put(self, message: Message) -> None:
        """Queue a message after it was offered to the ring, which numbers it."""
        if message.stream in self._joinable and _small(message):
            message = replace(message)  # the ring may join further samples to its own
            last = next((r for r in reversed(self._runs) if r[0].stream == message.stream), None)
            if last is not None and len(last) < _MOST and _continues(last[-1], message):
                last.append(message)
                return
        self._runs.append([message])

    def take(self) -> list[Message]:
        """Remove and return the waiting messages; small messages of a stream become one."""
        messages = []
        for message, *others in self._runs:
            if others:
                message.join(*others)
            messages.append(message)
        self._runs.clear()
        return messages


def _small(message: Message) -> bool:
    return message.kind is Kind.DATA and message.nbytes < SMALL_BYTES


def _continues(last: Message, message: Message) -> bool:
    """Return whether samples follow the last message's; without an epoch they have no numbers."""
    numbered = not message.epoch or last.next_seq == message.seq
    return _small(last) and last.epoch == message.epoch and numbered
