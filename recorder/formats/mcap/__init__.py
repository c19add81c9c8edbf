"""MCAP files: a log of timestamped messages on topics, with an index (mcap.dev/spec).

`writer` and `reader` need the package ``mcap`` (extra ``archives``): import them late.  The
schemas, the corrections of log times and the order of blocks below need nothing.
"""

from __future__ import annotations

import heapq
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recorder.common.errors import FormatError

OPEN_BYTES = 128 << 20
"""Bytes of overlapping blocks that are in memory at once.

Messages of blocks that overlap further are yielded later than their log times.
"""

TYPE_HASH = "topic_type_hash"
"""Key of a channel's metadata in bags of rosbag2: the hash of its type (REP-2011)."""

Each = TypeVar("Each")

_CONSTANT = re.compile(r"^\S+\s+\w+\s*=")
_IDL_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEPENDENCY = re.compile(r"^=+\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Schema:
    """Schema of a topic's messages.

    Attributes:
        name: name of the type, such as ``foxglove.PointCloud`` or ``sensor_msgs/msg/Imu``.
        encoding: ``protobuf`` (data: a FileDescriptorSet), ``jsonschema``, ``ros2msg`` ...
        data: the schema; empty with an empty encoding for messages without a schema.
    """

    name: str
    encoding: str
    data: bytes

    @property
    def message_encoding(self) -> str:
        """Encoding of the messages that we write with the schema."""
        return {"jsonschema": "json", "ros2msg": "cdr"}.get(self.encoding, self.encoding)


def layout(encoding: str, data: bytes) -> Any:
    """Return the part of a schema that decides how messages are decoded.

    Equal results mean equal decoding. Comments, white space, constants and default values do not
    count, nor does the order of nested definitions (``ros2msg``, ``ros2idl``, ``jsonschema``).
    Fields of protobuf are identified by their numbers, which later versions of a message keep.
    """
    if encoding == "protobuf":
        return None
    text = data.decode(errors="surrogateescape")
    if encoding in ("ros2msg", "ros1msg"):
        first, *others = _DEPENDENCY.split(text)
        return _fields(first), frozenset(map(_fields, others))
    if encoding == "ros2idl":
        return _IDL_COMMENT.sub(" ", text).split()
    if encoding == "jsonschema":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return data


def _fields(text: str) -> tuple[tuple[str, ...], ...]:
    """Return type and name of each field of a definition, and the line ``MSG: NAME`` before."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(tuple(line.split()[:2]) for line in lines if line and not _CONSTANT.match(line))


@dataclass(frozen=True, slots=True)
class LogOrder:
    """Corrections of a file's log times, so that messages can be put in order.

    Attributes:
        starts_ns: earliest corrected log time by block.
        shifts: by channel, places (`pack_place`) and the correction of log times from each on.
    """

    starts_ns: Sequence[int]
    shifts: Mapping[int, tuple[Sequence[int], Sequence[int]]] = field(default_factory=dict)

    def shift_ns(self, channel: int, block: int, offset: int) -> int:
        """Return the correction of a message's log time."""
        if (found := self.shifts.get(channel)) is None:
            return 0
        places, shifts = found
        at = bisect_right(places, pack_place(block, offset))
        return shifts[at - 1] if at else 0


def pack_place(block: int, offset: int) -> int:
    """Return the place of a message in its file; a block has at most 1 GiB of records."""
    return block << 31 | offset


def merge_blocks(
    blocks: Iterable[int],
    starts_ns: Sequence[int],
    read: Callable[[int], tuple[list[tuple[int, Each]], int]],
) -> Iterator[Each]:
    """Yield what blocks hold in order of its times; each block is read when its turn may have come.

    Args:
        blocks: numbers of blocks.
        starts_ns: earliest time by block.
        read: returns what a block holds, each with its time in order of the times, and the bytes
            that this takes in memory.
    """
    waiting = sorted(blocks, key=starts_ns.__getitem__)
    waiting.reverse()
    queue: list[tuple[int, int, int]] = []  # time, block, place in it
    opened: dict[int, tuple[list[tuple[int, Each]], int]] = {}
    held = 0
    while waiting or queue:
        while waiting and (
            not queue or (starts_ns[waiting[-1]] <= queue[0][0] and held < OPEN_BYTES)
        ):
            block = waiting.pop()
            found, size = read(block)
            if found:
                opened[block] = found, size
                held += size
                heapq.heappush(queue, (found[0][0], block, 0))
        if not queue:
            return
        _, block, place = queue[0]
        found, size = opened[block]
        yield found[place][1]
        if place + 1 < len(found):
            heapq.heapreplace(queue, (found[place + 1][0], block, place + 1))
        else:
            heapq.heappop(queue)
            del opened[block]
            held -= size


@dataclass(frozen=True, slots=True)
class McapTopic:
    """Topic of a file.

    Attributes:
        topic: name of the topic.
        schema_name, schema_encoding, schema_data: fields of its schema; empty without a schema.
        message_encoding: ``protobuf``, ``cdr``, ``json`` ...
        count: number of its messages.
        metadata: metadata of its channel.
    """

    topic: str
    schema_name: str
    schema_encoding: str
    schema_data: bytes = field(repr=False)
    message_encoding: str
    count: int
    metadata: Mapping[str, str]

    def is_decoded_as(self, other: McapTopic) -> bool:
        """Return whether messages of both topics are decoded in the same way.

        A topic without a definition is compared by the names of its schema and encoding only.
        """
        if (self.schema_name, self.message_encoding) != (other.schema_name, other.message_encoding):
            return False
        if not self.schema_data or not other.schema_data:
            return True
        return self.schema_encoding == other.schema_encoding and (
            self.schema_data == other.schema_data
            or layout(self.schema_encoding, self.schema_data)
            == layout(other.schema_encoding, other.schema_data)
        )


@dataclass(frozen=True, slots=True)
class McapMessage:
    """Message of a file.

    Attributes:
        topic: name of its topic.
        sequence: number of the message, as its publisher counted.
        log_ns, publish_ns: times at which it was recorded and published.
        data: content of the message.
        shift_ns: correction of the log time, because the clock was set back.
        fault: reason why the message cannot be read; it then has no data.
        count: number of messages with that fault, of the same topic, at the time of the first;
            None: unknown.
    """

    topic: str
    sequence: int
    log_ns: int
    publish_ns: int
    data: bytes = field(repr=False)
    shift_ns: int = 0
    fault: str = ""
    count: int | None = 1

    def read_data(self) -> bytes:
        """Return the data; raise FormatError for a message with a fault."""
        if self.fault:
            raise FormatError(self.fault)
        return self.data

    @property
    def time_ns(self) -> int:
        """Log time without the steps of the recording's clock."""
        return self.log_ns + self.shift_ns
