"""Drivers that have joined the writer, and their flow-control credit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from recorder.bus.messages import Join
from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec

WINDOW_BYTES = 32_000_000
"""Limit of the unacknowledged bytes of all drivers, which bounds the writer's memory."""


@dataclass(slots=True)
class Peer:
    """A driver that has joined.

    Only the receiving thread writes these attributes.

    Attributes:
        sensor: name of the driver's sensor.
        specs: the driver's streams by name.
        window_bytes, buffer_bytes: the driver's share of the window and of the rings.
        finish_sent: whether the driver was informed that the session ends.
        behind: whether the driver has yet to cross to the session that continues the previous one.
        since_ns: start of the driver's process, CLOCK_MONOTONIC; 0: unknown.
    """

    sensor: str
    specs: dict[str, StreamSpec]
    window_bytes: int = 0
    buffer_bytes: int = 0
    finish_sent: bool = False
    behind: bool = False
    since_ns: int = 0

    @classmethod
    def from_join(cls, message: Message) -> Peer:
        """Create the peer from a driver's `join` message.

        Raises:
            ProtocolError: the message does not declare a sensor and its streams.
        """
        join = Join.of(message)
        return cls(join.sensor, join.specs(), since_ns=join.since_ns)


@dataclass(slots=True)
class Credit:
    """Use of one driver's window in a session.

    Attributes:
        appended_bytes: bytes appended to the session.
        requested_bytes: appended bytes at the last request for an acknowledgement.
        acknowledged_bytes: appended bytes at the last acknowledgement.
    """

    appended_bytes: int = 0
    requested_bytes: int = 0
    acknowledged_bytes: int = 0


def share_out(peers: Collection[Peer], buffer_bytes: int) -> None:
    """Divide buffer and window: half evenly, half by expected bytes per second."""
    rates = [sum(s.bytes_per_second for s in peer.specs.values()) for peer in peers]
    for peer, rate in zip(peers, rates, strict=True):
        share = 0.5 / len(rates) + 0.5 * rate / sum(rates)
        peer.buffer_bytes = round(buffer_bytes * share)
        peer.window_bytes = round(min(WINDOW_BYTES, buffer_bytes) * share)
