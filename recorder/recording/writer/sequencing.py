"""Sequence check of a stream's messages: the writer's half of the data plane.

This state machine uses no sockets and no files; the drivers' half is `drivers.kit.send_ring`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from recorder.bus.messages import End, Lost, SampleState
from recorder.bus.wire import Kind, Message
from recorder.common.errors import ProtocolError
from recorder.common.struct_codec import check_json, decode_values

_OF_EVENTS = frozenset(
    ("kind", "t_ns", "type", "stream", "first_seq", "last_seq", "count", "epoch", "merged")
)
"""Keys of a loss event that a driver's own details must not use."""


def check_report(message: Message) -> None:
    """Check that a state, lost or end message can be stored in the session's logs.

    Raises:
        ProtocolError: a value is not JSON, or a key is reserved for events.
    """
    where = f"{message.stream}: {message.kind} message {message.number}"
    values = message.values
    if not isinstance(message.t_mono_ns, int):
        raise ProtocolError(f"{where} has several times")
    try:
        check_json(values)
    except ValueError as error:
        raise ProtocolError(f"{where}: {error}") from None
    if message.kind is Kind.LOST and (taken := _OF_EVENTS & values.keys()):
        raise ProtocolError(f"{where}: a detail must not be named {min(taken)!r}")
    kinds: dict[Kind, type] = {Kind.LOST: Lost, Kind.END: End, Kind.STATE: SampleState}
    decode_values(values, kinds[message.kind], where)


class Verdict(Enum):
    """Decision about a numbered message."""

    ACCEPT = "accept"
    DUPLICATE = "duplicate"  # received before: ignore
    HOLE = "hole"  # an earlier message is missing: send the driver its position
    WAITING = "waiting"  # after a hole that was reported to the driver: ignore


@dataclass(slots=True)
class Position:
    """Position of one stream.

    Attributes:
        epoch: epoch of the driver's latest start; 0 before the first message.
        number: number of the next expected message.
        seq: sequence number of the next expected sample.
        ended: end reason of the stream in this epoch; None before the end.
        past: earlier epochs, whose late messages are ignored.
    """

    epoch: int = 0
    number: int = 0
    seq: int = 0
    ended: str | None = None
    past: set[int] = field(default_factory=set)
    _reported: bool = False

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Position:
        """Create the position at which a stream continues, from `SessionWriter.positions`."""
        past = set(state["past"])
        return cls(state["epoch"], state["number"], state["seq"], state["ended"], past)

    def judge(self, message: Message) -> Verdict:
        """Decide about a message: only the expected one is accepted.

        Raises:
            ProtocolError: the message number is right but the sample number is not.
        """
        if message.epoch != self.epoch:
            if message.epoch in self.past:
                return Verdict.DUPLICATE
            if message.number:
                return self._hole()
            if self.epoch:
                self.past.add(self.epoch)
            self.epoch, self.number, self.seq, self.ended = message.epoch, 0, 0, None
        if message.number < self.number:
            return Verdict.DUPLICATE
        if message.number > self.number:
            return self._hole()
        if message.seq != self.seq:
            raise ProtocolError(
                f"{message.stream}: message {message.number} begins with sample {message.seq}, "
                f"but {self.seq} comes next"
            )
        self._reported = False
        self.number += 1
        if message.kind in (Kind.DATA, Kind.LOST):
            self.seq = message.next_seq
        elif message.kind is Kind.END:
            self.ended = str(message.values.get("reason", "ended"))
        return Verdict.ACCEPT

    def _hole(self) -> Verdict:
        if self._reported:
            return Verdict.WAITING
        self._reported = True
        return Verdict.HOLE
