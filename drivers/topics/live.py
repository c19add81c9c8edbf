"""Live topics of ROS 2 and Zenoh, each a stream from the moment at which it appears."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drivers.kit.driver import Item, Lost, NewStream, Sample, SensorConfig, State
from drivers.kit.topics.definitions import find_definition
from drivers.kit.topics.middleware import Arrival, Publisher, Topic
from drivers.kit.topics.reception import Loss, PublishersChanged, Reception
from drivers.kit.topics.source import TopicConnection
from drivers.topics.selection import (
    RateLimit,
    Selection,
    describe_ignored,
    is_service,
    name_stream,
)
from drivers.topics.stream import Messages
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import DeviceError
from recorder.formats.recorded_topic import RecordedTopic, topic_spec
from recorder.formats.ros2.bag import qos
from recorder.formats.ros2.definitions import ENCODING

_FIRST_S: Final = 4.0  # longest wait for a first topic
_SETTLE_S: Final = 0.5  # for the other topics that are there already
_READ_S: Final = 0.1
_LOOK_S: Final = 0.05
_DESCRIBED_NS: Final = 2_000_000_000  # longest wait for a type's definition
_HELD_BYTES: Final = 8_000_000  # of messages that wait for the definition
_GONE_NS: Final = 5_000_000_000  # without any publisher, the device is lost
_DEPTH: Final = 10  # in the policies for players; discovery does not tell it
_REPORT_NS: Final = 5_000_000_000
_MOST_PUBLISHERS: Final = 0xFFFF

Event = Arrival | Loss | PublishersChanged


@dataclass(slots=True)
class _Received:
    """A topic that is received.

    Attributes:
        stream: name of its stream.
        spec: its declaration; None: its type's definition is awaited.
        since_ns: when it appeared.
        waiting: events before the declaration, and `held` their bytes.
        numbers: of its publishers, by their ids.
        last_ns: time of its latest item.
        latched: the last message of each publisher that keeps it for late subscribers, with its
            arrival, by the publisher's id.
    """

    stream: str
    limit: RateLimit
    since_ns: int
    spec: StreamSpec | None = None
    waiting: list[Event] = field(default_factory=list)
    held: int = 0
    batch: Messages = field(default_factory=Messages)
    numbers: dict[bytes, int] = field(default_factory=dict)
    publishers: tuple[Publisher, ...] = ()
    last_ns: int = 0
    latched: dict[bytes, tuple[int, Arrival]] = field(default_factory=dict)
    skipped: int = 0
    is_counted: bool | None = None


class LiveTopics:
    """Source of live topics; the connection and what has arrived outlive `close`.

    Args:
        sensor: the sensor's entry, of scheme ``ros2`` or ``zenoh``.
        selection: of its topics.

    Raises:
        SourceError: the address is wrong.
    """

    def __init__(self, sensor: SensorConfig, selection: Selection) -> None:
        self._sensor, self._selection = sensor, selection
        self._connection = TopicConnection(sensor, self._takes)
        only = self._connection.address.topic
        self._only = only
        self._names = [only] if only else selection.names
        self._topics: dict[str, _Received] = {}
        self._streams: dict[str, str] = {}
        self._absent: list[str] | None = None
        self._refused: dict[str, str] = {}
        self._ignored = ""
        self._gone_ns: int | None = None
        self._reported_ns = 0

    def _takes(self, topic: str) -> bool:
        return topic == self._only if self._only else self._selection.takes(topic)

    @property
    def warnings(self) -> list[str]:
        """Likely reasons for lost messages."""
        return self._connection.warnings

    def join(self) -> None:
        """Connect, unless that is done.

        Raises:
            SourceError: the middleware's packages are missing.
            DeviceError: it cannot be joined or reached.
        """
        self._connection.join()

    def open(self) -> list[StreamSpec]:
        """Wait for a first topic; declare all that are known.

        Raises:
            DeviceError: no topic to record has a publisher.
        """
        reception, place = self._connection.join(), self._connection.place
        until_s = time.monotonic() + _FIRST_S
        while not any(topic.publishers for topic in reception.topics().values()):
            for name, error in reception.refused.items():
                if name in self._names:
                    raise DeviceError(f"{place}: {error}")
            if time.monotonic() > until_s:
                known = ", ".join(sorted(self._connection.look())[:20]) or "none"
                raise DeviceError(f"{place}: no topic to record is there; topics here: {known}")
            time.sleep(0.02)
        if not self._topics:
            time.sleep(_SETTLE_S)
        self._gone_ns = None
        self._find_topics(reception)
        there = [name for name in reception.topics() if name in self._topics]
        while True:
            # Nodes, which describe their types, are known later than their topics.
            topics = {**reception.topics(), **self._connection.look()}
            awaited = [n for n in there if self._declare(self._topics[n], topics[n]) is None]
            if not awaited:
                break
            time.sleep(_LOOK_S)
        return [each.spec for each in self._topics.values() if each.spec is not None]

    def _find_topics(self, reception: Reception) -> None:
        """Take topics that have appeared."""
        now_ns = time.monotonic_ns()
        for name in sorted(reception.topics().keys() - self._topics.keys()):
            stream = name_stream(self._sensor.name, name, self._streams)
            self._streams[stream] = name
            limit = RateLimit(self._selection.least_interval_ns(name))
            self._topics[name] = _Received(stream, limit, now_ns)

    def _declare(self, received: _Received, topic: Topic) -> StreamSpec | None:
        """Return a topic's declaration; None while its type's definition is awaited."""
        middleware = self._connection.middleware
        if received.spec is not None or middleware is None:
            return received.spec
        text = middleware.describe_type(topic)
        waited_ns = time.monotonic_ns() - received.since_ns
        if text is None and waited_ns < _DESCRIBED_NS and received.held < _HELD_BYTES:
            return None
        text = text or find_definition(topic.type_name, topic.type_hash)
        received.spec = self._make_spec(received.stream, topic, text)
        return received.spec

    def _make_spec(self, stream: str, topic: Topic, text: str | None) -> StreamSpec:
        publishers = topic.publishers.values()
        offered = qos(
            _DEPTH,
            latched=any(each.has_cache for each in publishers),
            reliable=all(each.is_reliable for each in publishers),
        )
        about = RecordedTopic(
            topic.name,
            topic.type_name,
            schema_encoding=ENCODING if text else "",
            definition=(text or "").encode(),
            type_hash=topic.type_hash,
            metadata={"offered_qos_profiles": offered},
        )
        settings: dict[str, Any] = {"topic": topic.name, "type": topic.type_name}
        return topic_spec(stream, about, bytes_per_sample=1000, finite=False, settings=settings)

    def items(self) -> Iterator[Item | NewStream | None]:
        """Yield what arrives, None while nothing does.

        Raises:
            DeviceError: the connection is lost, or no topic had a publisher for 5 s.
        """
        reception = self._connection.join()
        while True:
            events = self._connection.take(_READ_S)
            self._find_topics(reception)
            for event in events:
                received = self._topics[event.topic]
                received.waiting.append(event)
                if isinstance(event, Arrival) and event.data is not None:
                    received.held += len(event.data)
            yielded = False
            for received in self._topics.values():
                if received.spec is None:
                    topic = reception.topic(self._streams[received.stream])
                    if topic is None or (spec := self._declare(received, topic)) is None:
                        continue
                    yield NewStream(spec)
                for item in self._convert(reception, received):
                    yielded = True
                    yield item
            yield from self._report(reception)
            if not yielded:
                self._check_presence(reception)
                yield None

    def _convert(self, reception: Reception, received: _Received) -> Iterator[Item]:
        """Yield the items of what a topic's stream waits for."""
        waiting, received.waiting, received.held = received.waiting, [], 0
        for event in waiting:
            received.last_ns = t_ns = max(received.last_ns, event.t_mono_ns)
            if isinstance(event, Arrival):
                yield from self._take(reception, received, event)
                continue
            if received.batch:
                yield received.batch.take(received.stream)
            if isinstance(event, Loss):
                missing = event.missing
                detail = {"publisher": missing.publisher.hex(), "first_number": missing.first}
                yield Lost(received.stream, t_ns, missing.cause, missing.count, detail=detail)
            else:
                received.publishers = event.publishers
                there = {each.id for each in event.publishers}
                received.latched = {k: m for k, m in received.latched.items() if k in there}
                yield self._list_publishers(received)
        if received.batch:
            yield received.batch.take(received.stream)

    def _take(self, reception: Reception, received: _Received, event: Arrival) -> Iterator[Item]:
        """Put a message into the batch; before it, report news of its publisher."""
        name = event.topic
        if received.is_counted is not (counted := reception.is_counted(name)):
            received.is_counted = counted
            text = "counted" if counted else "unknown: the messages have no numbers or no publisher"
            yield State(received.stream, received.last_ns, {"losses": text}, lasting=True)
        if event.publisher and event.publisher not in received.numbers:
            self._number(received, event.publisher)
            yield self._list_publishers(received)
        if not received.limit.passes(received.last_ns):
            return
        topic = reception.topic(name)
        about = None if topic is None else topic.publishers.get(event.publisher)
        if about is not None and about.has_cache:
            received.latched[event.publisher] = received.last_ns, event
        _put(received.batch, received.last_ns, event, received.numbers)
        if received.batch.is_full:
            yield received.batch.take(received.stream)

    def repeat(self, t_ns: int) -> list[Sample]:
        """Return the last messages of transient-local publishers before a time, with that time.

        Those of one topic are 1 ns apart.
        """
        samples = []
        for received in self._topics.values():
            latched = [event for since_ns, event in received.latched.values() if since_ns < t_ns]
            if received.spec is not None and latched:
                batch = Messages()
                for place, event in enumerate(latched):
                    _put(batch, t_ns + place, event, received.numbers)
                samples.append(batch.take(received.stream))
        return samples

    def _number(self, received: _Received, publisher: bytes) -> None:
        number = len(received.numbers) + 1
        received.numbers.setdefault(publisher, number if number <= _MOST_PUBLISHERS else 0)

    def _list_publishers(self, received: _Received) -> State:
        """Return the state of a topic's publishers with their numbers."""
        for publisher in received.publishers:
            self._number(received, publisher.id)
        there = {each.id: each for each in received.publishers}
        values = [
            {
                "publisher": number,
                "id": each.hex(),
                "node": there[each].node if each in there else "",
                "qos": there[each].qos if each in there else "",
                "present": each in there,
            }
            for each, number in received.numbers.items()
        ]
        return State(received.stream, received.last_ns, {"publishers": values}, lasting=True)

    def _report(self, reception: Reception) -> Iterator[State]:
        """Report skipped messages, absent topics, and topics that cannot be received."""
        now_ns = time.monotonic_ns()
        declared = [each for each in self._topics.values() if each.spec is not None]
        if now_ns - self._reported_ns < _REPORT_NS or not declared:
            return
        self._reported_ns = now_ns
        for each in declared:
            if each.skipped != each.limit.skipped:
                each.skipped = each.limit.skipped
                yield State(each.stream, now_ns, {"skipped_by_max_rate": each.skipped})
        absent = sorted(set(self._names) - reception.topics().keys())
        refused = {name: str(error) for name, error in reception.refused.items()}
        for name, text in refused.items():
            if name not in self._refused:
                print(f"{self._sensor.name}: {text}", file=sys.stderr, flush=True)
        if (absent, refused) != (self._absent or [], self._refused):
            missing = [name_stream(self._sensor.name, name, self._streams) for name in absent]
            values = {
                "absent_topics": absent,
                "absent_streams": missing,
                "refused_topics": refused,
            }
            yield State(declared[0].stream, now_ns, values, lasting=True)
        self._absent, self._refused = absent, refused
        ignored = describe_ignored([name for name in self._connection.look() if is_service(name)])
        if ignored != self._ignored and not self._only:
            self._ignored = ignored
            print(f"{self._sensor.name}: {ignored}", file=sys.stderr, flush=True)

    def _check_presence(self, reception: Reception) -> None:
        """Raise DeviceError if no topic has had a publisher for some time."""
        if any(topic.publishers for topic in reception.topics().values()):
            self._gone_ns = None
            return
        now_ns = time.monotonic_ns()
        self._gone_ns = self._gone_ns or now_ns
        if now_ns - self._gone_ns > _GONE_NS:
            raise DeviceError(f"{self._connection.place}: no topic has a publisher any more")

    def close(self) -> None:
        """Release nothing: the connection stays for the next `open`."""


def _put(batch: Messages, t_ns: int, event: Arrival, numbers: Mapping[bytes, int]) -> None:
    assert event.data is not None
    publisher = numbers.get(event.publisher, 0)
    batch.put(t_ns, bytes(event.data), event.number or 0, publisher, event.source_ns)
