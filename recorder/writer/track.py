"""How far one stream of a session has come, in terms of messages."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from recorder.contract.wire import Kind, Message
from recorder.writer.stream_store import StreamStore

_POSITION = ("epoch", "number", "seq", "ended", "past", "lost", "unknown_losses")


class Track:
    """One stream's state in the session: what was appended, in terms of messages."""

    def __init__(self, store: StreamStore) -> None:
        self.store = store
        self.epoch = 0
        self.number = 0
        self.seq = 0
        self.ended: str | None = None
        self.past: list[int] = []
        self.lost: dict[str, int] = {}
        self.unknown_losses = 0
        self.epochs: list[tuple[int, int]] = []
        self.held: list[Message] = []

    def position(self) -> dict[str, Any]:
        """What a commit record says of the stream."""
        position = {key: copy.copy(getattr(self, key)) for key in _POSITION}
        return position | {"samples": self.store.samples, "last_ns": self.store.last_ns}

    def restore(self, position: Mapping[str, Any]) -> None:
        """Go on from a commit record's position."""
        for key in _POSITION:
            if key in position:
                setattr(self, key, position[key])


def may_begin(held: list[Message]) -> bool:
    """Whether a stream may have its folder: a second sample is there, or none will come."""
    samples = sum(m.count or 0 for m in held if m.kind is Kind.DATA)
    return samples > 1 or held[-1].kind is Kind.END


def last_time(message: Message) -> int:
    """CLOCK_MONOTONIC of a message's last sample, or of the message itself, in ns."""
    times = message.t_mono_ns
    return times if isinstance(times, int) else int(times[-1])
