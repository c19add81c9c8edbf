"""Topics of a recording: an MCAP file, a file of SQLite, or a ROS 2 bag."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers.kit.mcap_source import clock_steps, open_bag
from drivers.kit.recorded_source import SHORT_BATCH_NS
from drivers.topics.selection import (
    RateLimit,
    Selection,
    describe_ignored,
    is_service,
    name_stream,
)
from drivers.topics.stream import Messages
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, SourceError
from recorder.formats.bags.bag import Bag, Cut
from recorder.formats.bags.contents import origin_ns
from recorder.formats.bags.timing import Timed, Timing, order_messages
from recorder.formats.mcap import TYPE_HASH, McapTopic
from recorder.formats.recorded_topic import RecordedTopic, topic_spec

_BATCH_NS: Final = {"realtime": SHORT_BATCH_NS, "max": 1_000_000_000}
_BATCH_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _Played:
    """A topic that is played, and its messages that go into the next sample."""

    stream: str
    limit: RateLimit
    batch: Messages = field(default_factory=Messages)


class BagTopics:
    """Source of a recording's topics.

    Args:
        sensor: the sensor's entry, of scheme ``bag`` or ``mcap``.
        selection: of its topics.

    Attributes:
        clock_steps, origin_ns: see `Driver`; the origin is the same for all sensors that play the
            recording.
        warnings: topics that are not recorded, and why.

    Raises:
        SourceError: the file is missing, or is no recording.
    """

    def __init__(self, sensor: SensorConfig, selection: Selection) -> None:
        self._sensor, self._selection = sensor, selection
        self._bag, self._only = open_bag(sensor)
        self.clock_steps = clock_steps(self._bag)
        self._last_ns = 0
        self._topics: dict[str, _Played] = {}
        self.warnings = self._find_warnings(self._bag)

    def _find_warnings(self, bag: Bag) -> list[str]:
        ignored = describe_ignored([name for name in bag.topics if is_service(name)])
        found = [ignored] if ignored and not self._only else []
        return [*found, *(text for text in bag.conflicts if self._takes(text.partition(":")[0]))]

    def _takes(self, topic: str) -> bool:
        return topic == self._only if self._only else self._selection.takes(topic)

    def open(self) -> list[StreamSpec]:
        """Declare a stream for each chosen topic that has messages.

        Raises:
            SourceError: no topic is chosen, or one that is asked for by its name is not there.
        """
        bag = self._bag
        if self._only and not self._only.startswith("/") and self._only not in bag.topics:
            self._only = f"/{self._only}"
        known = ", ".join(sorted(bag.topics)) or "none"
        for name in [self._only] if self._only else self._selection.names:
            if name not in bag.topics:
                raise self._sensor.fault(f"has no topic {name!r:.200}; its topics: {known}")
        chosen = [n for n in sorted(bag.topics) if self._takes(n) and bag.topics[n].count]
        if not chosen:
            raise self._sensor.fault(f"has no topic to record; its topics: {known}")
        streams: dict[str, str] = {}
        for name in chosen:
            stream = name_stream(self._sensor.name, name, streams)
            streams[stream] = name
            limit = RateLimit(self._selection.least_interval_ns(name))
            self._topics[name] = _Played(stream, limit)
        return [self._declare(bag.topics[topic], stream) for stream, topic in streams.items()]

    @cached_property
    def origin_ns(self) -> int:
        """The earliest time of the recording's messages, epoch ns; an import does not need it.

        Raises:
            SourceError: the recording cannot be read, or no message has a time.
        """
        try:
            return origin_ns(self._bag)
        except (OSError, FormatError) as error:
            raise self._sensor.fault(error) from None

    def _declare(self, topic: McapTopic, stream: str) -> StreamSpec:
        about = RecordedTopic(
            topic.topic,
            topic.schema_name,
            topic.message_encoding,
            topic.schema_encoding,
            topic.schema_data,
            topic.metadata.get(TYPE_HASH, ""),
            topic.metadata,
        )
        settings = {"topic": topic.topic, "type": topic.schema_name, "messages": topic.count}
        size = self._measure(topic.topic)
        return topic_spec(stream, about, bytes_per_sample=size, finite=True, settings=settings)

    def _measure(self, topic: str) -> int:
        """Return the size of a topic's first message."""
        with (
            contextlib.closing(self._bag.messages([topic])) as messages,
            contextlib.suppress(FormatError, OSError),  # is reported when it is played
        ):
            for message in messages:
                return len(message.data)
        return 0

    def items(self) -> Iterator[Item]:
        """Yield messages in order of their times; SourceError at damage, after those before it."""
        bag = self._bag
        longest_ns = _BATCH_NS[self._sensor.pace]
        until_ns, held = 0, 0
        fault: SourceError | None = None
        messages = order_messages(bag, Timing(bag, dict.fromkeys(self._topics)))
        try:
            for timed in messages:
                if isinstance(timed, Cut):
                    yield from self._flush()
                    yield from self._lose_all(timed)
                    continue
                message, played = timed.message, self._topics[timed.message.topic]
                if (lost := self._find_loss(played, timed)) is not None:
                    yield from self._flush()
                    yield lost
                    continue
                assert timed.t_ns is not None
                if timed.t_ns >= until_ns or held >= _BATCH_BYTES or played.batch.is_full:
                    yield from self._flush()
                    until_ns, held = timed.t_ns + longest_ns, 0
                self._last_ns = max(self._last_ns, timed.t_ns)
                if played.limit.passes(self._last_ns):
                    held += len(message.data)
                    number, source_ns = message.sequence, message.publish_ns
                    played.batch.put(self._last_ns, message.data, number, 0, source_ns)
        except (FormatError, OSError) as error:
            fault = self._sensor.fault(error)
        finally:
            messages.close()
        yield from self._flush()
        for played in self._topics.values():
            if played.limit.skipped:
                skipped = {"skipped_by_max_rate": played.limit.skipped}
                yield State(played.stream, self._last_ns, skipped)
        if fault is not None:
            raise fault

    def _find_loss(self, played: _Played, timed: Timed) -> Lost | None:
        message = timed.message
        if message.fault:
            cause, reason = "corrupt", message.fault
        elif timed.t_ns is None:
            cause, reason = "time", "the message has no time: its log time is 0"
        else:
            return None
        detail = {"reason": reason, "log_ns": message.log_ns}
        t_ns = self._last_ns or timed.t_ns or self.origin_ns or 0
        return Lost(played.stream, t_ns, cause, message.count, detail=detail)

    def _lose_all(self, cut: Cut) -> Iterator[Lost]:
        """Report that each topic may have lost messages where a file ends early."""
        for played in self._topics.values():
            t_ns, detail = self._last_ns or cut.time_ns, {"reason": cut.reason}
            yield Lost(played.stream, t_ns, "truncated", None, detail=detail)

    def _flush(self) -> Iterator[Sample]:
        full = [played for played in self._topics.values() if played.batch]
        full.sort(key=lambda played: played.batch.first_ns)
        for played in full:
            yield played.batch.take(played.stream)

    def close(self) -> None:
        self._bag.close()
