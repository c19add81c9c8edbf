"""Streams that hold the messages of a topic as they came, and ``topic.json``, which describes them.

A sample is a message: ``message`` (its bytes), ``number`` and ``publisher`` (which message of which
publisher it is), ``t_source`` (when it was published).  ``topic.json`` has the topic's name, and
its type with the definition, so that a reader of the session needs no package of message types.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError
from recorder.formats.mcap import Schema
from recorder.formats.ros2.definitions import ENCODING, definition

TOPIC_FILE: Final = "topic.json"
MESSAGE, NUMBER, PUBLISHER, SOURCE_TIME = "message", "number", "publisher", "t_source"
MOST_BYTES: Final = 1 << 26
"""Longest message, bytes; a reader that decodes a sample to an array needs this much memory."""
CDR: Final = "cdr"
_BINARY: Final = "definition_base64"


@dataclass(frozen=True, slots=True)
class RecordedTopic:
    """Description of a topic and of its messages.

    Attributes:
        name: of the topic, such as ``/tf``.
        type_name: such as ``tf2_msgs/msg/TFMessage``; "": unknown.
        message_encoding: ``cdr`` (ROS 2), ``ros1``, ``protobuf``, ``json`` ...
        schema_encoding: of the definition: ``ros2msg``, ``ros2idl``, ``protobuf`` ...; "": none.
        definition: of the type, and of the types that it uses; empty: unknown.
        type_hash: hash of the definition (REP-2011), ``RIHS01_...``; "": unknown.
        metadata: more of the topic, such as ``offered_qos_profiles`` of rosbag2.
    """

    name: str
    type_name: str
    message_encoding: str = CDR
    schema_encoding: str = ""
    definition: bytes = field(default=b"", repr=False)
    type_hash: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The schema of the messages: as recorded, else the definition that the recorder knows."""
        if not self.definition and self.message_encoding == CDR:
            with contextlib.suppress(KeyError):
                return Schema(self.type_name, ENCODING, definition(self.type_name))
        return Schema(self.type_name, self.schema_encoding, self.definition)

    def to_json(self) -> str:
        """Return the content of ``topic.json``."""
        values: dict[str, Any] = {
            "topic": self.name,
            "type": self.type_name,
            "type_hash": self.type_hash,
            "message_encoding": self.message_encoding,
            "schema_encoding": self.schema_encoding,
            "metadata": dict(self.metadata),
        }
        try:
            values["definition"] = self.definition.decode()
        except UnicodeDecodeError:  # protobuf
            values[_BINARY] = base64.b64encode(self.definition).decode()
        return json.dumps(values, indent=1)

    @classmethod
    def parse(cls, text: str) -> RecordedTopic:
        """Parse ``topic.json``.

        Raises:
            FormatError: it is no description of a topic; names the key.
        """
        try:
            values = json.loads(text)
            binary = values.get(_BINARY)
            definition = (
                str(values["definition"]).encode()
                if binary is None
                else base64.b64decode(binary, validate=True)
            )
            keys = ("topic", "type", "message_encoding", "schema_encoding")
            name, type_name, encoding, schema = (str(values[key]) for key in keys)
            metadata = {str(key): str(each) for key, each in values["metadata"].items()}
            type_hash = str(values["type_hash"])
        except KeyError as error:
            raise FormatError(f"{TOPIC_FILE}: has no {error.args[0]!r}") from None
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(f"{TOPIC_FILE}: is no description of a topic: {error}") from None
        return cls(name, type_name, encoding, schema, definition, type_hash, metadata)


def topic_spec(
    stream: str,
    topic: RecordedTopic,
    *,
    bytes_per_sample: int,
    finite: bool,
    settings: Mapping[str, Any],
) -> StreamSpec:
    """Return the declaration of a topic's stream.

    Args:
        stream: its name.
        topic: description of the topic.
        bytes_per_sample: expected size of a message.
        finite: whether the source ends by itself.
        settings: of the source.
    """
    return StreamSpec(
        stream,
        (
            ChannelSpec(MESSAGE, "bytes", "u1", (MOST_BYTES,), "message as it came"),
            ChannelSpec(NUMBER, "raw", "u8", (), "its publisher's number of it; 0: unknown"),
            ChannelSpec(PUBLISHER, "raw", "u2", (), "publisher, by the states; 0: unknown"),
            ChannelSpec(
                SOURCE_TIME, "raw", "u8", (),
                "time at which it was published; 0: unknown", "ns", device_time=True,
            ),
        ),
        bytes_per_sample=max(1, bytes_per_sample),
        finite=finite,
        description=f"messages of {topic.name} ({topic.type_name or 'type unknown'})",
        files={TOPIC_FILE: topic.to_json()},
        settings=settings,
        sporadic=True,
    )  # fmt: skip


def find_topic(spec: StreamSpec | None) -> RecordedTopic | None:
    """Return the topic of a stream of messages; None: the stream is of another kind.

    Raises:
        FormatError: the stream's ``topic.json`` is wrong.
    """
    if spec is None or TOPIC_FILE not in spec.files:
        return None
    wanted = {MESSAGE: "bytes", NUMBER: "raw", PUBLISHER: "raw", SOURCE_TIME: "raw"}
    if {channel.name: channel.format for channel in spec.channels} != wanted:
        return None
    return RecordedTopic.parse(spec.files[TOPIC_FILE])
