"""Reception of live topics by a driver: subscription, account of losses, and publishers.

Usage::

    reception = Reception(middleware, queue, ["/camera"], depth=None)
    while True:
        for item in reception.take(0.1):        # Arrival, Missing or PublishersChanged
            ...

A thread looks for the topics, so that a topic is received within 0.1 s of its appearance also while
the driver waits for its next attempt to open the device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from drivers.kit.topics.account import Fate, Missing, TopicAccount
from drivers.kit.topics.middleware import (
    HANDOVER_NS,
    Arrival,
    ArrivalQueue,
    Middleware,
    Publisher,
    Topic,
    TopicError,
)
from recorder.common.errors import DeviceError

DEPTH: Final = 60
"""Messages that the middleware keeps for the driver, until a topic's rate is known."""
OVERFLOW: Final = "overflow"
"""Cause of the loss of a message that did not fit into the driver's queue."""
SETTLING_NS: Final = 10_000_000_000
"""Time after joining within which publishers that are discovered count as old: announcements may be
lost, and are repeated every 3 s."""
_SEARCH_S: Final = 0.1
_DISCOVERY_NS: Final = 1_000_000_000
_KEPT_S: Final = 2.0  # of the measured rate
_REORDERED_NS: Final = 250_000_000  # longest wait of a message for those before it, in a handover


@dataclass(frozen=True, slots=True)
class PublishersChanged:
    """Publishers of a topic that are there now."""

    topic: str
    t_mono_ns: int
    publishers: tuple[Publisher, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages of a topic that are missing, with the time at which that is known."""

    topic: str
    t_mono_ns: int
    missing: Missing


@dataclass(slots=True)
class _State:
    """A subscribed topic."""

    topic: Topic
    qos: tuple[bool, bool]
    depth: int
    counted_ns: int
    account: TopicAccount = field(default_factory=lambda: TopicAccount(hold_ns=0))
    listed: set[bytes] = field(default_factory=set)  # by discovery, and not gone
    gone: set[bytes] = field(default_factory=set)
    announced: Mapping[bytes, Publisher] | None = None
    arrived: int = 0  # since `counted_ns`
    handover_ns: int = -1  # until when two subscriptions receive
    held: list[tuple[bytes, Arrival]] = field(default_factory=list)  # and of which publisher
    is_counted: bool = True


class Reception:
    """Subscriptions of a driver to topics.

    Args:
        middleware: connected.
        queue: into which the middleware puts what arrives.
        names: of the topics, with the first slash; or returns whether a topic of a name is received
            when it appears.
        depth: as the option; None: two seconds of the measured rate, at least `DEPTH`.
        now_ns: CLOCK_MONOTONIC.

    Attributes:
        refused: why a topic cannot be received, by name.
    """

    def __init__(
        self,
        middleware: Middleware,
        queue: ArrivalQueue,
        names: Sequence[str] | Callable[[str], bool],
        depth: int | None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._middleware, self._queue = middleware, queue
        self._takes = names if callable(names) else frozenset(names).__contains__
        self._most = None if callable(names) else len(frozenset(names))
        self._depth, self._now_ns = depth, now_ns
        self._states: dict[str, _State] = {}
        self._seen_ns: dict[bytes, int] = {}  # when a publisher was discovered
        self._joined_ns = self._looked_ns = now_ns()
        self._problem: DeviceError | None = None
        self.refused: dict[str, DeviceError] = {}
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._search, name="topics", daemon=True)

    def start(self) -> None:
        """Start to look for the topics."""
        self._thread.start()

    def _search(self) -> None:
        while len(self._states) != self._most and not self._is_closing.wait(_SEARCH_S):
            try:
                self.look()
            except DeviceError as error:
                self._problem = error
                return

    def look(self) -> Mapping[str, Topic]:
        """Discover topics, subscribe those that are there, and return all topics.

        Raises:
            DeviceError: the connection is lost.
        """
        with self._lock:
            found = self._discover()
            now_ns = self._now_ns()
            for name in filter(self._takes, found):
                for publisher in found[name].publishers:
                    self._seen_ns.setdefault(publisher, now_ns)
                self._subscribe(found[name])
        return found

    def _discover(self) -> Mapping[str, Topic]:
        """Discover topics; a topic that cannot be received ends no other one."""
        while True:
            try:
                return self._middleware.discover()
            except TopicError as error:
                if self._most == 1:
                    raise
                self.refused[error.topic] = error

    def _subscribe(self, topic: Topic) -> None:
        qos = (
            all(each.is_reliable for each in topic.publishers.values()),
            all(each.has_cache for each in topic.publishers.values()),
        )
        state = self._states.get(topic.name)
        depth = self._depth or (DEPTH if state is None else state.depth)
        if state is not None and (state.qos, state.depth) == (qos, depth):
            return
        if state is None:  # a message may arrive before `subscribe` returns
            self._states[topic.name] = _State(topic, qos, depth, self._now_ns())
        try:
            self._middleware.subscribe(topic, depth)
        except DeviceError as error:
            if state is None:
                del self._states[topic.name]
            self.refused[topic.name] = error
            return
        self.refused.pop(topic.name, None)
        if state is not None:
            state.qos = qos
            state.handover_ns = self._now_ns() + HANDOVER_NS

    def topics(self) -> Mapping[str, Topic]:
        """Return the topics that are received, by name."""
        return {name: state.topic for name, state in list(self._states.items())}

    def topic(self, name: str) -> Topic | None:
        """Return a topic that is received; None before it is there."""
        state = self._states.get(name)
        return None if state is None else state.topic

    def take(self, timeout_s: float) -> Iterator[Arrival | Loss | PublishersChanged]:
        """Return what has arrived, and what is known to be missing, in order.

        Raises:
            DeviceError: the connection is lost.
        """
        if self._problem is not None:
            raise self._problem
        arrivals = self._queue.take(timeout_s)
        for arrival in arrivals:
            yield from self._receive(arrival)
        now_ns = self._now_ns()
        for state in list(self._states.values()):
            if state.held and now_ns > state.handover_ns:
                yield from self._release(state, everything=True)
        if now_ns - self._looked_ns >= _DISCOVERY_NS:
            self._looked_ns = now_ns
            found = self.look()
            for arrival in self._queue.take(0):  # of publishers that are gone already
                yield from self._receive(arrival)
            yield from self._follow(found, now_ns)
            for state in list(self._states.values()):
                self._measure(state, now_ns)

    def _receive(self, arrival: Arrival) -> Iterator[Arrival | Loss]:
        state = self._states.get(arrival.topic)
        if state is None:
            return
        state.arrived += 1
        publisher = arrival.publisher
        if not publisher and len(state.topic.publishers) == 1:
            publisher = next(iter(state.topic.publishers))
        if arrival.number is None or not publisher:
            yield from self._receive_uncounted(state, arrival)
            return
        if publisher not in state.account.publishers:
            self._greet(self.look())
            if publisher not in state.account.publishers:  # discovery does not know it yet
                self._appear(state, publisher, has_cache=False)
        if arrival.t_mono_ns <= state.handover_ns:
            state.held.append((publisher, arrival))
            waited_ns = arrival.t_mono_ns - min(each.t_mono_ns for _, each in state.held)
            yield from self._release(state, everything=waited_ns > _REORDERED_NS)
        else:
            yield from self._release(state, everything=True)
            yield from self._receive_counted(state, publisher, arrival)

    def _release(self, state: _State, *, everything: bool) -> Iterator[Arrival | Loss]:
        """Take the held messages whose numbers are next, or all of them, by number.

        Two subscriptions receive the same messages, the newer one often earlier.
        """
        while state.held:
            state.held.sort(key=lambda each: each[1].number or 0)
            for place, (publisher, arrival) in enumerate(state.held):
                expected = state.account.find_next(publisher)
                if everything or expected is None or (arrival.number or 0) <= expected:
                    del state.held[place]
                    yield from self._receive_counted(state, publisher, arrival)
                    break
            else:
                return

    def _receive_counted(
        self, state: _State, publisher: bytes, arrival: Arrival
    ) -> Iterator[Arrival | Loss]:
        assert arrival.number is not None
        fate = state.account.take(publisher, arrival.number, arrival.t_mono_ns)
        for missing in state.account.count_missing(arrival.t_mono_ns):
            yield Loss(arrival.topic, arrival.t_mono_ns, missing)
        if fate is not Fate.RECORDED:
            return
        if arrival.data is None:
            missing = Missing(publisher, OVERFLOW, arrival.number, 1)
            yield Loss(arrival.topic, arrival.t_mono_ns, missing)
        else:
            yield arrival

    def _receive_uncounted(self, state: _State, arrival: Arrival) -> Iterator[Arrival | Loss]:
        state.is_counted = False
        if arrival.data is None:
            missing = Missing(arrival.publisher, OVERFLOW, 0, 1)
            yield Loss(arrival.topic, arrival.t_mono_ns, missing)
        else:
            yield arrival

    def is_counted(self, name: str) -> bool:
        """Return whether all messages of a topic had numbers and publishers."""
        state = self._states.get(name)
        return self._middleware.counts_losses and (state is None or state.is_counted)

    def _appear(self, state: _State, publisher: bytes, *, has_cache: bool) -> None:
        seen_ns = self._seen_ns.setdefault(publisher, self._now_ns())
        late = seen_ns - self._joined_ns > SETTLING_NS
        is_new = late and publisher not in state.gone
        state.account.appear(publisher, is_new=is_new, has_cache=has_cache)

    def _greet(self, found: Mapping[str, Topic]) -> None:
        """Take publishers that are new to the account."""
        for name, state in list(self._states.items()):
            topic = found.get(name)
            for publisher, about in () if topic is None else topic.publishers.items():
                if publisher not in state.account.publishers:
                    self._appear(state, publisher, has_cache=about.has_cache)
                state.listed.add(publisher)

    def _follow(
        self, found: Mapping[str, Topic], t_ns: int
    ) -> Iterator[Arrival | Loss | PublishersChanged]:
        """Compare the publishers with those that were there; all that arrived is taken."""
        self._greet(found)
        for name, state in list(self._states.items()):
            topic = found.get(name) or Topic(name, state.topic.type_name, state.topic.type_hash)
            if gone := state.listed - topic.publishers.keys():
                yield from self._release(state, everything=True)
            for publisher in gone:
                state.gone.add(publisher)
                for missing in state.account.leave(publisher, is_acknowledged=False):
                    yield Loss(name, t_ns, missing)
            state.topic, state.listed = topic, set(topic.publishers)
            if topic.publishers != state.announced:
                state.announced = topic.publishers
                yield PublishersChanged(name, t_ns, tuple(topic.publishers.values()))

    def _measure(self, state: _State, now_ns: int) -> None:
        passed_s = (now_ns - state.counted_ns) / 1e9
        if passed_s < _DISCOVERY_NS / 2e9:
            return
        wanted = int(_KEPT_S * state.arrived / passed_s)
        state.arrived, state.counted_ns = 0, now_ns
        if self._depth is None and wanted > state.depth and self._middleware.counts_losses:
            # Messages that both subscriptions receive are known by their numbers.
            with self._lock:
                self._middleware.subscribe(state.topic, 2 * wanted)
            state.depth = 2 * wanted
            state.handover_ns = self._now_ns() + HANDOVER_NS

    def close(self) -> None:
        """End the search and the connection."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join(2)
        self._middleware.close()
