"""Wire format from a replay to the process that publishes its topics.

The replay writes a line of JSON with the topics (`Offer`), and then messages, each a `HEAD` and
its bytes.  The process answers with two lines of JSON: `Opened` when it has the publishers and
their subscribers, and `Published` at the end of its input.  A line `Failed` ends it at any time.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

HEAD: Final = struct.Struct("<II")
"""Before each message: place of its topic in the offer, and size of the message in bytes."""


class OfferedTopic(msgspec.Struct, frozen=True):
    """A topic to publish.

    Attributes:
        name: with the first slash.
        type_name: such as ``sensor_msgs/msg/Image``.
        type_hash: ``RIHS01_...``; "": unknown.
        definition: of the type and of those that it uses, ``ros2msg``; "": unknown.
        depth: number of messages that the publisher keeps.
        is_reliable: whether lost messages are sent again.
        is_latched: whether late subscribers get the kept messages (transient local).
    """

    name: str
    type_name: str
    type_hash: str = ""
    definition: str = ""
    depth: int = 10
    is_reliable: bool = True
    is_latched: bool = False


class Offer(msgspec.Struct, frozen=True):
    """Topics to publish.

    Attributes:
        topics: the topics.
        awaited: names of topics that must have a subscriber before the first message.
    """

    topics: list[OfferedTopic]
    awaited: list[str] = []


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The publishers are there.

    Attributes:
        refused: by topic, why it cannot be published.
    """

    refused: dict[str, str]


class Published(msgspec.Struct, frozen=True, tag="published"):
    """The end of the input has come.

    Attributes:
        published: number of published messages by topic.
        failed: number of messages by topic that were not published.
        reasons: by topic, why messages were not, or would not have been, published.
    """

    published: dict[str, int]
    failed: dict[str, int]
    reasons: dict[str, str]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The process cannot publish; the text says why."""

    text: str


Answer = Opened | Published | Failed
