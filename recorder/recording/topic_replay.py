"""The replay of a session as topics of ROS 2, with ``/clock``.

The messages are those of the MCAP archive's profile ``ros2``.  A process of its own publishes them
(`drivers.kit.topics.publish`): the recorder imports neither drivers nor a middleware.
"""

from __future__ import annotations

import contextlib
import heapq
import select
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from recorder.archives.context import PackingContext
from recorder.archives.mcap.packer import PACKER, find_feeds
from recorder.archives.mcap.recorded_topics import name_topics
from recorder.archives.mcap.ros2_names import ros_topic
from recorder.archives.mcap.session_records import first_ns, kept_events
from recorder.archives.mcap.topics import Feed, Topic, load_profile
from recorder.bus.offered_topics import (
    HEAD,
    Answer,
    Failed,
    Offer,
    OfferedTopic,
    Opened,
    Published,
)
from recorder.common.clock import Clock
from recorder.common.errors import DeviceError, UsageError
from recorder.common.files import Buffer
from recorder.common.struct_codec import prepare_type
from recorder.formats.mcap import TYPE_HASH
from recorder.formats.ros2.bag import parse_qos
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import CLOCK, ENCODING
from recorder.perception.calibration import session_calibration
from recorder.session.reader import Session
from recorder.session.replay import Pace, wait_until

SCHEMES: Final = ("ros2", "zenoh")
CLOCK_TOPIC: Final = "/clock"
_PERIOD_NS: Final = 10_000_000  # of /clock, on this computer
_STATIC_TOPIC: Final = (
    "/tf_static"  # always transient local, also where the recording does not say so
)
_POLL_MS: Final = 100
_KEPT: Final = 100  # messages for subscribers that are late

Parts = Sequence[Buffer]
"""Consecutive parts of a message."""


class Sink(Protocol):
    """The publisher of a replay's messages."""

    def send(self, place: int, parts: Parts) -> None:
        """Publish a message of the topic at this place of the replay's topics."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A feed, and the places of its topics by the names in its entries."""

    feed: Feed
    places: Mapping[str, int]


class TopicReplay:
    """The replay of a session as topics.

    ::

        replay = TopicReplay(session, speed=2.0)
        with TopicPublisher("ros2:0", replay.topics, (), stop) as publisher:
            replay.run(publisher, SystemClock(), stop)

    Args:
        session: opened with virtual sensors.
        speed: recorded seconds per second.

    Attributes:
        topics: the topics; one of them is ``/clock``, unless that was recorded.
        notes: what of the session is not replayed, and other irregularities.

    Raises:
        UsageError: a package that the conversion needs is not installed.
        SessionError: the session has no sample.
        ArchiveError: a stream is damaged.
    """

    def __init__(self, session: Session, *, speed: float = 1.0) -> None:
        options = PACKER.check({"profile": "ros2"})
        self._context = PackingContext(session, Path(), options, session_calibration(session.path))
        self._speed = speed
        profile = load_profile("ros2")
        feeds = find_feeds(self._context, profile, kept_events(self._context))
        topics: list[Topic] = []
        self._feeds: list[_Named] = []
        for feed, named in zip(feeds, name_topics(self._context, feeds), strict=True):
            places = {name: len(topics) + place for place, name in enumerate(named)}
            self._feeds.append(_Named(feed, places))
            topics += named.values()
        self._clock_place: int | None = None
        if all(topic.name != CLOCK_TOPIC for topic in topics):
            self._clock_place = len(topics)
            topics.append(ros_topic(CLOCK_TOPIC, CLOCK))
        self.topics = [_offer(topic) for topic in topics]
        self.notes = self._context.notes.lines

    def run(self, sink: Sink, clock: Clock, stop: threading.Event, *, loop: bool = False) -> None:
        """Publish until the session's end, or until `stop` is set; then close the session's files.

        Raises:
            ArchiveError: a stream is damaged.
            DeviceError: the topics cannot be published any more.
        """
        with contextlib.closing(self._context):
            while not stop.is_set():
                self._run_once(sink, clock, stop)
                if not loop:
                    return

    def _run_once(self, sink: Sink, clock: Clock, stop: threading.Event) -> None:
        start_ns = first_ns(self._context)
        pace = Pace(start_ns, clock.monotonic_ns(), self._speed)
        step_ns = max(1, round(_PERIOD_NS * self._speed))
        with contextlib.closing(self._merge()) as messages:
            for t_ns, place, parts in self._add_clock(messages, start_ns, step_ns):
                if not wait_until(pace.due_ns(t_ns), clock, stop):
                    return
                sink.send(place, parts)

    def _merge(self) -> Generator[tuple[int, int, Parts]]:
        """Yield time in epoch ns, place of the topic, and message of all feeds, in order."""
        with contextlib.ExitStack() as stack:
            passes = [stack.enter_context(contextlib.closing(_play(each))) for each in self._feeds]
            yield from heapq.merge(*passes, key=itemgetter(0))

    def _add_clock(
        self, messages: Iterator[tuple[int, int, Parts]], tick_ns: int, step_ns: int
    ) -> Iterator[tuple[int, int, Parts]]:
        """Put messages of ``/clock`` before the others; its time is never behind theirs."""
        place = self._clock_place
        for message in messages:
            while place is not None and tick_ns <= message[0]:
                yield tick_ns, place, encode_message(CLOCK, tick_ns)
                tick_ns += step_ns
            yield message


def _play(named: _Named) -> Generator[tuple[int, int, Parts]]:
    with contextlib.closing(named.feed.entries()) as entries:
        for entry in entries:
            yield entry.log_ns, named.places[entry.topic], entry.parts


def _offer(topic: Topic) -> OfferedTopic:
    qos, schema = parse_qos(topic.metadata.get("offered_qos_profiles", "")), topic.schema
    is_latched = qos.is_latched or topic.name == _STATIC_TOPIC
    depth = qos.depth if qos.is_latched else max(qos.depth, _KEPT)
    return OfferedTopic(
        topic.name,
        schema.name,
        topic.metadata.get(TYPE_HASH, ""),
        schema.data.decode("utf-8", "replace") if schema.encoding == ENCODING else "",
        depth,
        qos.is_reliable,
        is_latched,
    )


class TopicPublisher:
    """The process that publishes topics; ended by the end of the ``with`` block.

    Args:
        target: ``ros2:DOMAIN`` or ``zenoh:[LOCATOR/]DOMAIN``.
        topics: the topics.
        awaited: names of topics that must have a subscriber before the first message; without any,
            a second passes, in which subscribers find the publishers.
        stop: ends the wait for subscribers.

    Attributes:
        refused: by topic, why it is not published.

    Raises:
        UsageError: the target has a wrong form, or an awaited topic is not among the topics.
        DeviceError: the middleware is missing or not reached; the text says why.
    """

    def __init__(
        self,
        target: str,
        topics: Sequence[OfferedTopic],
        awaited: Sequence[str],
        stop: threading.Event,
    ) -> None:
        if target.partition(":")[0] not in SCHEMES or "#" in target:
            raise UsageError(f"--to: {target!r:.100} is not ros2:DOMAIN or zenoh:[LOCATOR/]DOMAIN")
        if unknown := sorted(set(awaited) - {topic.name for topic in topics}):
            known = ", ".join(topic.name for topic in topics)
            raise UsageError(f"--await: no topic {', '.join(unknown)}; topics: {known}")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "drivers.kit.topics.publish", target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the replay, which ends this process
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self.refused: Mapping[str, str] = {}
        try:
            with contextlib.suppress(BrokenPipeError):  # its answer says why
                self._input.write(msgspec.json.encode(Offer([*topics], [*awaited])) + b"\n")
                self._input.flush()
            answer = self._read_answer(stop)
        except BaseException:
            self._kill()
            raise
        if isinstance(answer, Opened):
            self.refused = answer.refused

    def _read_answer(self, stop: threading.Event | None = None) -> Answer | None:
        """Return the next answer; None if `stop` was set before.

        Raises:
            DeviceError: the process cannot publish.
        """
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        while stop is not None and not poll.poll(_POLL_MS):
            if stop.is_set():
                return None
        line = self._output.readline()
        if not line:
            raise DeviceError("--to: the process that publishes has ended without a word")
        answer: Answer = msgspec.json.decode(line, type=prepare_type(Answer))
        if isinstance(answer, Failed):
            raise DeviceError(f"--to: {answer.text}")
        return answer

    def send(self, place: int, parts: Parts) -> None:
        views = [memoryview(part) for part in parts]
        try:
            self._input.write(HEAD.pack(place, sum(view.nbytes for view in views)))
            for view in views:
                self._input.write(view)
            self._input.flush()
        except BrokenPipeError:
            self._read_answer()
            raise DeviceError("--to: the process that publishes has ended") from None

    def finish(self) -> Published:
        """Wait until all messages are published; return their numbers.

        Raises:
            DeviceError: the process has failed.
        """
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        answer = self._read_answer()
        assert isinstance(answer, Published)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
