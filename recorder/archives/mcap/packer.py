"""Packer of a session as an MCAP file (profile ``foxglove``) or a ROS 2 bag (profile ``ros2``).

Messages are in the order of their log times, which are the stamps of the samples.  docs/mcap.md
describes topics, schemas and records.
"""

from __future__ import annotations

import contextlib
import heapq
import struct
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import recorder
from recorder.archives.base import PackedFiles, Packer
from recorder.archives.context import PackingContext, sample_ticks
from recorder.archives.mcap.recorded_topics import name_topics
from recorder.archives.mcap.session_records import (
    attach_files,
    event_feed,
    kept_event_feed,
    kept_events,
    metadata_records,
)
from recorder.archives.mcap.topics import (
    PROFILES,
    Entry,
    Feed,
    Profile,
    Topic,
    WrittenFile,
    load_profile,
)
from recorder.archives.sample_workers import tune_for_packing
from recorder.archives.shared_options import RADAR_OPTIONS
from recorder.common.errors import ArchiveError, SessionError
from recorder.common.files import PosixDisk
from recorder.config.options import Option, OptionTable
from recorder.formats.mcap.writer import McapWriter
from recorder.perception.camera.camera_pictures import JPEG_QUALITY
from recorder.session.event_clips import KeptEvent
from recorder.session.journal.journal import CommitTimes

LIDAR = ("points", "points_and_ranges", "ranges", "none")
POINTS = ("destaggered", "staggered")
RAW_PICTURES = ("values", "jpeg")
_LATEST_NS = 1 << 63  # readers of other languages have signed times


class McapPacker(Packer):
    """Packer of a session as one MCAP file."""

    worker_modules = ("recorder.archives.mcap.foxglove", "recorder.archives.mcap.ros2")
    options: ClassVar[OptionTable] = {
        "profile": Option("str", "foxglove", "schemas of the messages", choices=PROFILES),
        "lidar": Option("str", "points", "what is packed of sweeps", choices=LIDAR),
        "points": Option(
            "str", "destaggered", "order of the points: as an image, or as measured",
            choices=POINTS,
        ),
        "raw_pictures": Option(
            "str", "values", "raw pictures: their values, or JPEGs of what the live view shows",
            choices=RAW_PICTURES,
        ),
        "jpeg_quality": JPEG_QUALITY,
        "iq": Option("bool", False, "raw IQ of radars, with its chirp"),
        "maps": Option("bool", False, "range-Doppler maps of radars as images"),
        **RADAR_OPTIONS,
    }  # fmt: skip

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super().check(options)
        load_profile(checked["profile"])
        return checked

    def ticks(self, context: PackingContext) -> float:
        return sum(len(s) * sample_ticks(s) for s in context.streams if s.has_times)

    def pack(self, context: PackingContext) -> PackedFiles:
        tune_for_packing()
        return _SessionPacker(context, load_profile(context.options["profile"])).pack()


PACKER = McapPacker()


def find_feeds(
    context: PackingContext, profile: Profile, events: Sequence[KeptEvent]
) -> list[Feed]:
    """Return the feeds of a session's messages, with its events.

    Args:
        context: the session's context.
        profile: of the messages.
        events: the kept events that are packed.

    Raises:
        SessionError: the session has no stream to pack.
    """
    feeds = profile.feeds(context)
    if not feeds:
        raise SessionError(f"{context.session.path}: has no stream to pack")
    feeds.append(event_feed(context, profile))
    if events:
        feeds.append(kept_event_feed(profile, context, events))
    return feeds


class _SessionPacker:
    """Packer of one session."""

    def __init__(self, context: PackingContext, profile: Profile) -> None:
        self._context, self._profile = context, profile
        self._commits = CommitTimes(context.session.whole.path, context.session.whole.header)

    def pack(self) -> PackedFiles:
        context, profile = self._context, self._profile
        context.notes.add_absent()
        lost = context.notes.add_losses()
        context.notes.add_recovery()
        events = kept_events(context)
        feeds = find_feeds(context, profile, events)
        named = name_topics(context, feeds)
        topics = [topic for each in named for topic in each.values()]
        disk = PosixDisk()
        library = f"recorder {recorder.__version__}"
        path = profile.path(context)
        with McapWriter(path, disk, profile=profile.header, library=library) as writer:
            attached = attach_files(context, writer, max(0, context.session.start_ns or 0))
            for name, values in metadata_records(context, profile.name, lost, events).items():
                writer.metadata(name, values)
            channels = _declare(writer, topics)
            numbers = [{n: channels[t.name] for n, t in each.items()} for each in named]
            self._write(writer, feeds, numbers)
            writer.finish()
            disk.sync_files([writer.file])
            counts = {topic: writer.counts[number] for topic, number in channels.items()}
        written = WrittenFile(path, topics, counts, *writer.interval_ns)
        summary = {
            "messages": {topic: count for topic, count in counts.items() if count},
            "attachments": attached,
            "chunks": writer.chunk_count,
        }
        return PackedFiles((profile.finish(context, written),), (), summary)

    def _write(
        self, writer: McapWriter, feeds: Sequence[Feed], channels: Sequence[Mapping[str, int]]
    ) -> None:
        """Write the messages of all feeds in order of their log times.

        Args:
            writer: of the file.
            feeds: all feeds.
            channels: of each feed, by the topics of its entries.
        """
        passes = Counter(feed.stream for feed in feeds)
        for stream in self._context.streams:
            if stream.has_times and not passes[stream.name]:
                self._context.advance(len(stream) * sample_ticks(stream))
        with contextlib.ExitStack() as stack:
            merged = heapq.merge(
                *(
                    stack.enter_context(
                        contextlib.closing(self._pass(feed, passes[feed.stream], numbers))
                    )
                    for feed, numbers in zip(feeds, channels, strict=True)
                ),
                key=itemgetter(0),
            )
            for log_ns, publish_ns, channel, entry in merged:
                writer.write(channel, entry.sequence, log_ns, publish_ns, entry.parts)

    def _pass(
        self, feed: Feed, passes: int, channels: Mapping[str, int]
    ) -> Generator[tuple[int, int, int, Entry]]:
        """Yield a feed's messages with log time, publish time and channel.

        Progress is the share of a stream's duration that has passed, over all its passes.
        """
        context, name = self._context, feed.name or feed.stream
        stream = context.session.streams.get(feed.stream)
        ticks = 0.0 if stream is None else len(stream) * sample_ticks(stream) / passes
        begin_ns, span_ns = 0, 1
        if stream is not None and len(stream):
            begin_ns, end_ns = (int(stream.times(k, k + 1)[0]) for k in (0, len(stream) - 1))
            span_ns = max(1, end_ns - begin_ns)
        done = 0.0
        last_ns, backward = -1, 0
        with contextlib.closing(feed.entries()) as entries:
            while (entry := self._next(entries, name)) is not None:
                log_ns, publish_ns = entry.log_ns, entry.publish_ns
                if not 0 <= log_ns < _LATEST_NS:
                    with context.locate_errors(name):
                        raise ArchiveError(f"{log_ns} ns is no time of MCAP")
                if publish_ns is None:
                    publish_ns = self._commits.of(feed.stream, log_ns)
                published_ns = log_ns if publish_ns is None else publish_ns
                yield log_ns, published_ns, channels[entry.topic], entry
                backward += log_ns < last_ns
                last_ns = log_ns
                share = min(1.0, max(done, (log_ns - begin_ns) / span_ns))
                if share > done:
                    context.advance(ticks * (share - done))
                    done = share
        if backward:
            context.notes.add(f"{backward} messages with backward times", name)
        context.advance(ticks * (1.0 - done))

    def _next(self, entries: Iterator[Entry], name: str) -> Entry | None:
        """Return the next entry of a feed; None at its end."""
        try:
            return next(entries, None)
        except (OverflowError, struct.error) as error:  # a stamp before 1970, or beyond 32 bits
            with self._context.locate_errors(name):
                raise ArchiveError(f"a time or number that no message can hold: {error}") from error


def _declare(writer: McapWriter, topics: Sequence[Topic]) -> dict[str, int]:
    """Declare all topics; return their channels."""
    channels: dict[str, int] = {}
    for topic in topics:
        if topic.name in channels:
            raise ArchiveError(f"{topic.name}: two feeds have this topic")
        schema = writer.schema(topic.schema.name, topic.schema.encoding, topic.schema.data)
        channels[topic.name] = writer.channel(
            topic.name,
            schema,
            topic.message_encoding or topic.schema.message_encoding,
            topic.metadata,
            compress=topic.compress,
        )
    return channels
