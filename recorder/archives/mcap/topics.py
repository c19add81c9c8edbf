"""Interface between a profile and the packer: topics, and messages in order of log time."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from recorder.archives.context import PackingContext
from recorder.common.errors import UsageError, need_extra
from recorder.common.files import Buffer
from recorder.formats.mcap import Schema
from recorder.session.stream import Stream

LOSSES = "/recorder/losses"
MARKS = "/recorder/marks"
EVENTS = "/recorder/events"


@dataclass(frozen=True)
class Topic:
    """Topic of the archive.

    Attributes:
        name: name, such as ``/camera/image``.
        schema: schema of the messages.
        compress: False for JPEG and other data that do not compress.
        metadata: metadata of the channel, such as ``offered_qos_profiles`` of ROS 2.
        message_encoding: encoding of the messages; "": the usual one of the schema.
    """

    name: str
    schema: Schema
    compress: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    message_encoding: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """Message of the archive.

    Attributes:
        topic: name of its topic.
        log_ns: capture stamp, epoch ns.
        publish_ns: time of recording, epoch ns; None: the packer finds the time at which the
            session's journal has the samples of the feed's stream up to `log_ns`.
        sequence: number of the sample in its stream, or of the message.
        parts: consecutive parts of the message; they must not change afterwards.
    """

    topic: str
    log_ns: int
    publish_ns: int | None
    sequence: int
    parts: Sequence[Buffer]

    def __reduce__(self) -> tuple[Any, ...]:
        parts = [
            part if isinstance(part, bytes) else pickle.PickleBuffer(part) for part in self.parts
        ]
        return Entry, (self.topic, self.log_ns, self.publish_ns, self.sequence, parts)


@dataclass(frozen=True, slots=True)
class Product:
    """Result of a worker for one sample.

    Attributes:
        entries: messages of the sample, ordered by log time.
        is_incomplete: whether the frame of a radar lacks packets.
        step: sample before which each chirp of a radar's frame is misaligned; None if aligned.
    """

    entries: list[Entry]
    is_incomplete: bool = False
    step: int | None = None


Make = Callable[[Sequence[int]], list[Product]]
"""Function of indices of samples that returns the product of each."""


@dataclass(frozen=True)
class Feed:
    """Feed of messages: one pass over a stream, or over poses, labels or events.

    Attributes:
        stream: name of the session's stream; "" for entries of no stream.
        topics: topics of the entries.
        entries: starts the pass: messages with log times that do not fall.  The packer closes the
            iterator, also early.
        name: names the feed in errors and in the report; the stream's name if it is empty.
        make: makes the messages of samples in a worker; None: `entries` makes them itself.
    """

    stream: str
    topics: Sequence[Topic]
    entries: Callable[[], Generator[Entry]]
    name: str = ""
    make: Make | None = None


@dataclass(frozen=True)
class WrittenFile:
    """A finished MCAP file.

    Attributes:
        path: path of the file.
        topics: topics of the file, in the order of their channels.
        counts: number of messages by topic.
        start_ns, end_ns: log times of the first and the last message, epoch ns; 0 without any.
    """

    path: Path
    topics: Sequence[Topic]
    counts: Mapping[str, int]
    start_ns: int
    end_ns: int


class Profile(Protocol):
    """Profile of one ecosystem's messages: ``PROFILE`` of the modules `foxglove` and `ros2`.

    Attributes:
        name: value of the option ``profile``.
        header: profile in the header of the MCAP file: "" or ``ros2``.
        log: topic of the session's events.
    """

    name: str
    header: str
    log: Topic

    def feeds(self, context: PackingContext) -> list[Feed]:
        """Return all feeds of a session except events, losses and marks.

        Data that are left out are noted (`PackingContext.notes`).

        Raises:
            FormatError: a file of a stream is wrong; within `PackingContext.locate_errors`.
        """

    def stream_feeds(self, context: PackingContext, stream: Stream) -> list[Feed]:
        """Return the feeds of a stream with samples; at most one of them has `Feed.make`.

        Raises:
            FormatError: a file of the stream is wrong.
        """

    def event(self, event: Mapping[str, Any]) -> Entry:
        """Return an event of the session that has a time as a message of `log`."""

    def json_topic(self, name: str, schema: Schema) -> Topic:
        """Return a topic of JSON texts, such as `LOSSES`; `schema` is a JSON schema."""

    def json_parts(self, text: str) -> Sequence[Buffer]:
        """Return a JSON text as a message of such a topic."""

    def path(self, context: PackingContext) -> Path:
        """Return the path of the MCAP file below `PackingContext.folder`; make its folder."""

    def finish(self, context: PackingContext, written: WrittenFile) -> str:
        """Write and sync the files beside the MCAP file; return the name to publish."""


PROFILES: Final = ("foxglove", "ros2")
_NEEDED: Final = {"foxglove": ("mcap", "foxglove"), "ros2": ("mcap",)}


def load_profile(name: str) -> Profile:
    """Return a profile by its name.

    Raises:
        UsageError: a package that it needs is not installed.
    """
    try:
        for module in _NEEDED[name]:
            importlib.import_module(module)
        profile: Profile = importlib.import_module(f"recorder.archives.mcap.{name}").PROFILE
    except ModuleNotFoundError as error:
        if (error.name or "recorder").startswith("recorder"):
            raise
        text = f"mcap.profile: {name} {need_extra('archives')}: no {error.name}"
        raise UsageError(text) from None
    return profile
