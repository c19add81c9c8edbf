"""Interface of middlewares that carry live topics, and the queue of what has arrived.

A middleware receives on a thread of its own, which only appends to an `ArrivalQueue`; the driver
takes what has arrived, in order.  What does not fit into the queue is refused at its end, so that
each refused message is counted by its number.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from recorder.common.errors import DeviceError
from recorder.common.files import Buffer

HANDOVER_NS: Final = 2_000_000_000
"""Time in which publishers find a subscription that replaces another; both receive then."""
_OVERHEAD_BYTES: Final = 200  # of an arrival in the queue


class TopicError(DeviceError):
    """Error of one topic, while others may be received.

    Args:
        topic: its name.
        text: the reason.
    """

    def __init__(self, topic: str, text: str) -> None:
        super().__init__(f"{topic}: {text}")
        self.topic = topic


@dataclass(frozen=True, slots=True)
class Publisher:
    """A publisher that discovery found.

    Attributes:
        id: its id, 16 bytes in ROS 2.
        node: its node with the namespace; "": unknown.
        is_reliable: whether lost messages are sent again.
        has_cache: whether it sends earlier messages to late subscribers (transient local).
        qos: its policies, for people.
    """

    id: bytes
    node: str = ""
    is_reliable: bool = True
    has_cache: bool = False
    qos: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that discovery found.

    Attributes:
        name: with the first slash.
        type_name: such as ``sensor_msgs/msg/Image``.
        type_hash: hash of the type's definition, ``RIHS01_...``; "": the middleware does not say.
        publishers: by id.
    """

    name: str
    type_name: str
    type_hash: str = ""
    publishers: Mapping[bytes, Publisher] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that arrived.

    Attributes:
        topic: name of the topic.
        t_mono_ns: time of arrival, CLOCK_MONOTONIC.
        data: CDR with its encapsulation; None: refused, since the queue was full.
        publisher: the publisher's id; b"": the middleware does not say.
        number: the publisher's number of the message, from 1; None: the middleware does not say.
        source_ns: time at which it was published, by the publisher's clock, epoch ns; 0: unknown.
    """

    topic: str
    t_mono_ns: int
    data: Buffer | None
    publisher: bytes = b""
    number: int | None = None
    source_ns: int = 0


class ArrivalQueue:
    """Queue of arrivals, bounded in bytes.

    Args:
        limit_bytes: bytes of messages that wait; a larger message is taken if none waits.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._arrivals: deque[Arrival] = deque()
        self._bytes = 0
        self._has_some = threading.Condition()

    def put(self, arrival: Arrival) -> None:
        """Append an arrival, without its data if they do not fit; called by any thread."""
        size = _OVERHEAD_BYTES + (0 if arrival.data is None else len(arrival.data))
        with self._has_some:
            if self._bytes and self._bytes + size > self._limit_bytes:
                arrival = Arrival(
                    arrival.topic, arrival.t_mono_ns, None, arrival.publisher, arrival.number
                )
                size = 0
            self._bytes += size
            self._arrivals.append(arrival)
            self._has_some.notify()

    def take(self, timeout_s: float) -> list[Arrival]:
        """Remove and return all arrivals; wait for a first one at most `timeout_s`."""
        with self._has_some:
            if not self._arrivals:
                self._has_some.wait(timeout_s)
            arrivals = list(self._arrivals)
            self._arrivals.clear()
            self._bytes = 0
        return arrivals


class Middleware(Protocol):
    """A connection to one domain, which discovers topics and receives those that are subscribed.

    Attributes:
        counts_losses: whether arrivals have numbers and publishers.
    """

    counts_losses: bool

    def discover(self) -> Mapping[str, Topic]:
        """Return the topics that have a publisher now, by name.

        Raises:
            TopicError: a topic cannot be received; the next call returns the topics.
            DeviceError: the connection is lost.
        """

    def subscribe(self, topic: Topic, depth: int) -> None:
        """Receive a topic from now on; a topic that is received already is subscribed again.

        Args:
            topic: as discovered.
            depth: messages that the middleware keeps for a reader that is late.

        Raises:
            DeviceError: the topic cannot be received; the text says why.
        """

    def describe_type(self, topic: Topic) -> str | None:
        """Return the definition of a topic's type as ``ros2msg`` text; None: not known yet."""

    def close(self) -> None:
        """End the connection."""
