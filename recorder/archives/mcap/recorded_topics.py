"""Messages of recorded topics, which are packed as they came, under the names that they had.

Where another feed has a topic of such a name (``/tf``, ``/rosout``), that topic is put below
``/recorder``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from recorder.archives.context import PackingContext
from recorder.archives.mcap.topics import Entry, Feed, Topic
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.formats.mcap import TYPE_HASH
from recorder.formats.recorded_topic import (
    MESSAGE,
    NUMBER,
    SOURCE_TIME,
    RecordedTopic,
    find_topic,
)
from recorder.session.replay import messages
from recorder.session.stream import Stream

BELOW: Final = "/recorder"
_SEQUENCE: Final = 0xFFFF_FFFF  # MCAP has u32


def topic_feed(
    context: PackingContext,
    stream: Stream,
    spec: StreamSpec,
    topic: RecordedTopic,
    encodings: Sequence[str] = (),
) -> Feed | None:
    """Return the feed of a stream of messages; None, with a note, if it cannot be packed.

    Args:
        context: the session's context.
        stream: the stream.
        spec: its declaration, as `recorder.session.replay.playable_spec` makes it.
        topic: its topic.
        encodings: of messages that the profile can hold; empty: any.
    """
    if encodings and topic.message_encoding not in encodings:
        text = f"left out: messages of {topic.name} in {topic.message_encoding}"
        context.notes.add(f"{text}, not in {' or '.join(encodings)}", stream.name)
        return None
    type_hash = {TYPE_HASH: topic.type_hash} if topic.type_hash else {}
    packed = Topic(
        topic.name,
        topic.schema,
        metadata={**topic.metadata, **type_hash},
        message_encoding=topic.message_encoding,
    )
    at = {channel.name: k for k, channel in enumerate(spec.channels)}

    def entries() -> Generator[Entry]:
        index = 0
        found = messages(context.session, stream.name, spec)
        while True:
            with context.locate_errors(stream.name, index):
                if (message := next(found, None)) is None:
                    return
            times = np.atleast_1d(message.t_mono_ns).tolist()
            numbers, sources = (
                np.frombuffer(message.frames[at[name]], "<u8").tolist()
                for name in (NUMBER, SOURCE_TIME)
            )
            joined, end = memoryview(message.frames[at[MESSAGE]]).cast("B"), 0
            for t_ns, number, source_ns, size in zip(
                times, numbers, sources, message.sizes[0], strict=True
            ):
                part, end = joined[end : end + size], end + size
                yield Entry(topic.name, t_ns, source_ns or t_ns, number & _SEQUENCE, [part])
            index += len(times)

    return Feed(stream.name, [packed], entries)


def name_topics(context: PackingContext, feeds: Sequence[Feed]) -> list[dict[str, Topic]]:
    """Return for each feed its topics as they are declared, by the names in its entries.

    A topic that has the name of a recorded topic of another feed is put below `BELOW`, with a note.
    """
    recorded: dict[str, str] = {}
    streams: set[str] = set()
    for stream in context.streams:
        try:
            topic = find_topic(stream.spec)
        except FormatError:  # its feed has reported it
            continue
        if topic is not None:
            streams.add(stream.name)
            recorded.setdefault(topic.name, stream.name)
    named: list[dict[str, Topic]] = []
    for feed in feeds:
        topics: dict[str, Topic] = {}
        for each in feed.topics:
            owner, name = recorded.get(each.name, feed.stream), each.name
            if owner != feed.stream:
                below = f"{BELOW}/{feed.stream}" if feed.stream in streams else BELOW
                name = f"{below}{name}"
                context.notes.add(f"is packed as {name}: {owner} has the recorded one", each.name)
            topics[each.name] = replace(each, name=name)
        named.append(topics)
    return named
