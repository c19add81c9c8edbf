"""Feeds of a stream's samples as messages of topics."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from operator import attrgetter

import numpy as np

from recorder.archives.context import PackingContext
from recorder.archives.mcap.topics import Entry, Feed, Topic
from recorder.archives.sample_workers import read_ahead
from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.files import Buffer
from recorder.session.playback import is_small
from recorder.session.replay import messages, sample_message
from recorder.session.stream import Stream

Payload = Buffer | Sequence[Buffer]
"""Bytes of a message, or its consecutive parts."""
Encode = Callable[[Message, int], Iterable[tuple[int, Payload]]]
"""Function of a data message and the offset from ``t_mono`` to epoch ns.

It returns log times and messages.  A log time is the stamp of the sample that the message is made
of.  Several threads call the function concurrently for large samples, in any order.
"""


_Topics = Sequence[tuple[Topic, Encode]]


def sample_feed(context: PackingContext, stream: Stream, spec: StreamSpec, topics: _Topics) -> Feed:
    """Return the feed of a stream, which encodes each sample for all topics.

    Large samples are prepared ahead, in threads.

    Args:
        context: the session's context.
        stream: a stream with times.
        spec: its declaration, as `recorder.session.replay.playable_spec` makes it.
        topics: the topics with their encoders.
    """

    def entries() -> Generator[Entry]:
        return (_batches if is_small(stream) else _ahead)(context, stream, spec, topics)

    return Feed(stream.name, [topic for topic, _ in topics], entries)


def sample_entries(stream: Stream, index: int, spec: StreamSpec, topics: _Topics) -> list[Entry]:
    """Return the messages of a large sample; arguments as for `sample_feed`."""
    return _entries(sample_message(stream, index, spec), topics)


def _entries(message: Message, topics: _Topics) -> list[Entry]:
    """Return the messages of all topics, ordered by log time."""
    made: list[Entry] = []
    stamps = np.atleast_1d(message.t_mono_ns).tolist()
    numbers = {t_ns: number for number, t_ns in enumerate(stamps, message.seq)}
    for topic, encode in topics:
        for log_ns, payload in encode(message, 0):
            parts: Sequence[Buffer] = (
                [payload] if isinstance(payload, (bytes, bytearray, memoryview)) else payload
            )
            made.append(Entry(topic.name, log_ns, None, numbers.get(log_ns, message.seq), parts))
    if len(topics) > 1:
        made.sort(key=attrgetter("log_ns"))
    return made


def _batches(
    context: PackingContext, stream: Stream, spec: StreamSpec, topics: _Topics
) -> Generator[Entry]:
    at = 0
    feed = messages(context.session, stream.name, spec)
    while True:
        with context.locate_errors(stream.name, at):
            message = next(feed, None)
            if message is None:
                return
            entries = _entries(message, topics)
        at += message.count or 0
        yield from entries


def _ahead(
    context: PackingContext, stream: Stream, spec: StreamSpec, topics: _Topics
) -> Generator[Entry]:
    def make(index: int) -> list[Entry]:
        return sample_entries(stream, index, spec, topics)

    with read_ahead(make, len(stream)) as samples:
        for index, sample in enumerate(samples):
            with context.locate_errors(stream.name, index):
                entries = sample.result()
            yield from entries
