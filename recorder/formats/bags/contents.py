"""Content of a recording that the recorder can play, and its time base.

`find_content` returns the kind of a topic's messages, or raises the reason why they are not
supported. `origin_ns` is the recording's beginning: all sensors that play from one recording count
from it. The times of messages are in `recorder.formats.bags.timing`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from recorder.common.errors import FormatError
from recorder.formats.bags.bag import Bag
from recorder.formats.bags.messages import (
    DECODERS,
    Decode,
    Kind,
    decode_json_imu,
    decode_json_position,
    decode_ros2_loss,
)
from recorder.formats.bags.timing import first_ns

if TYPE_CHECKING:
    from recorder.formats.mcap import McapMessage, McapTopic

LOSSES: Final = "/recorder/losses"
"""Topic of this recorder's archives with the losses that it counted."""

_STAMPED: Final = frozenset(
    {
        *(Kind.PICTURES, Kind.IMU, Kind.POSITIONS),
        *(Kind.CAN_FRAMES, Kind.CLOUDS, Kind.LIDAR_PACKETS),
    }
)


class UnknownTopicError(FormatError):
    """Error of a topic whose messages are not supported; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Content:
    """Kind and decoder of a topic's messages.

    Attributes:
        kind: kind of the messages.
        decode: function from a message's data to its dataclass; raises FormatError for other data.
    """

    kind: Kind
    decode: Decode


def find_content(topic: McapTopic) -> Content:
    """Return the kind and the decoder of a topic's messages.

    Raises:
        UnknownTopicError: the messages are not supported; names the reason.
    """
    encoding, schema = topic.message_encoding, topic.schema_name
    if (topic.topic, encoding, schema) == (LOSSES, "cdr", "std_msgs/msg/String"):
        return Content(Kind.LOSSES, decode_ros2_loss)
    if (found := DECODERS.get((encoding, schema))) is not None:
        return Content(*found)
    if encoding == "json" and topic.schema_encoding == "jsonschema":
        channels = _read_properties(topic.schema_data)
        if {"timestamp", "acc", "avel"} <= channels:
            return Content(Kind.IMU, decode_json_imu)
        if {"timestamp", "pos", "fix"} <= channels:
            return Content(Kind.POSITIONS, decode_json_position)
    encodings = sorted({known for known, name in DECODERS if name == schema})
    if encodings:
        text = f"{schema} is read in {' or '.join(encodings)} only, not in {encoding!r:.40}"
    elif encoding == "ros1":
        text = f"{schema!r:.100}: messages of ROS 1 are not read"
    else:
        text = f"no driver plays {schema or 'messages without a schema'!r:.100} ({encoding!r:.40})"
    raise UnknownTopicError(text)


def _read_properties(schema: bytes) -> set[str]:
    """Return the properties of a JSON schema: the channels of a stream of this recorder."""
    import json

    try:
        return set(json.loads(schema)["properties"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return set()


def origin_ns(bag: Bag, topics: Collection[str] | None = None) -> int:
    """Return the earliest time of the messages that drivers play, epoch ns.

    Args:
        bag: the recording.
        topics: topics that are played; None: all.

    Raises:
        FormatError: there is no message with a time.
    """
    if not any(topic.count for topic in bag.topics.values()):
        raise FormatError(f"{bag.path}: has no message")
    decoders: dict[str, Decode | None] = {}
    starts: list[int] = []
    for name, topic in bag.topics.items():
        if not topic.count or (topics is not None and name not in topics):
            continue
        has_others = True  # which are played by their log times
        with contextlib.suppress(UnknownTopicError):
            content = find_content(topic)
            if content.kind in _STAMPED:
                decoders[name], has_others = content.decode, False
        if has_others and bag.start_ns is not None:
            starts.append(bag.start_ns)
    if decoders or not starts:
        starts.append(first_ns(bag, decoders))
    return min(starts)


def find_first_message(bag: Bag, topic: str) -> McapMessage | None:
    """Return the first message of a topic without a fault, else the first; None without one."""
    first = None
    for message in bag.messages([topic]):
        if not message.fault:
            return message
        first = first or message
    return first


def find_topics(bag: Bag, kind: Kind) -> dict[str, Content]:
    """Return the content of each topic of a kind; topics without a message are left out."""
    found = {}
    for name, topic in bag.topics.items():
        try:
            content = find_content(topic)
        except UnknownTopicError:
            continue
        if content.kind is kind and topic.count != 0:
            found[name] = content
    return found


def is_copy(bag: Bag, topic: str, others: Collection[str]) -> bool:
    """Return whether another topic has the same positions with more details.

    The recorder's archives have ``/NAME/fix`` (LocationFix) beside ``/NAME`` (JSON of all
    channels).
    """
    other = topic.removesuffix("/fix")
    return other != topic and other in others and bag.topics[other].message_encoding == "json"


def choose_topic(
    bag: Bag, kind: Kind, wanted: str, sensor: str, chosen: Callable[[str], bool] = lambda _: True
) -> tuple[str, Content]:
    """Choose the topic of a kind that a source selects.

    Args:
        bag: the recording.
        kind: kind of the topic.
        wanted: the topic, with or without the first ``/``; "": the only one, or else the only one
            whose first name is the sensor's.
        sensor: the sensor's name.
        chosen: returns whether a topic of the kind is considered.

    Raises:
        FormatError: there is no such topic, or there are several; names the topics that exist.
    """
    fitting = {name: c for name, c in find_topics(bag, kind).items() if chosen(name)}
    known = f"its topics with {kind}: {', '.join(sorted(fitting)) or 'none'}"
    if wanted:
        name = wanted if wanted in bag.topics or wanted.startswith("/") else f"/{wanted}"
        if name in fitting:
            return name, fitting[name]
        if name not in bag.topics:
            raise FormatError(f"has no topic {name!r:.200}; {known}")
        if bag.topics[name].count == 0:
            raise FormatError(f"topic {name!r:.200} has no message; {known}")
        try:
            reason = f"holds {find_content(bag.topics[name]).kind}"
        except UnknownTopicError as error:
            reason = str(error)
        raise FormatError(f"topic {name!r:.200}: {reason}; {known}")
    if not fitting:
        raise FormatError(f"has no topic with {kind}")
    for name in [name for name in fitting if is_copy(bag, name, fitting)]:
        del fitting[name]
    found = list(fitting)
    if len(found) > 1:
        found = [name for name in found if name.strip("/").partition("/")[0] == sensor]
    if len(found) != 1:
        raise FormatError(f"select a topic, as in #{min(fitting)}; {known}")
    return found[0], fitting[found[0]]
