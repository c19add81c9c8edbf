"""MCAP files read by the reader of the format's own project, and decoded by their schemas."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from mcap.reader import make_reader

_OPEN = ("recorder.Loss", "recorder.Mark")
"""Schemas of events, which have further keys."""


@dataclass(frozen=True)
class Logged:
    """A message with what its records have."""

    log_ns: int
    publish_ns: int
    sequence: int
    data: bytes
    value: Any


@dataclass(frozen=True)
class Read:
    """A file: messages by topic in the order of log times, schemas and metadata of channels."""

    messages: dict[str, list[Logged]]
    schemas: dict[str, str]
    metadata: dict[str, dict[str, str]]


def read(path: Path) -> Read:
    """All messages, CRCs checked; each is decoded by the schema in the file."""
    kinds: dict[int, Any] = {}
    messages: dict[str, list[Logged]] = defaultdict(list)
    schemas, metadata = {}, {}
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None and summary.statistics is not None
        for channel in summary.channels.values():
            schema = summary.schemas[channel.schema_id]
            schemas[channel.topic], metadata[channel.topic] = schema.name, channel.metadata
            kinds[channel.id] = _decoder(channel.message_encoding, schema)
        for _, channel, message in reader.iter_messages():
            value = kinds[channel.id](message.data)
            messages[channel.topic].append(
                Logged(
                    message.log_time, message.publish_time, message.sequence, message.data, value
                )
            )
        counts = {
            summary.channels[number].topic: count
            for number, count in summary.statistics.channel_message_counts.items()
        }
    assert {t: n for t, n in counts.items() if n} == {t: len(m) for t, m in messages.items()}
    return Read(dict(messages), schemas, metadata)


def _decoder(encoding: str, schema: Any) -> Any:
    if encoding == "json":
        assert schema.encoding == "jsonschema"
        properties = json.loads(schema.data)["properties"]

        def decode_json(data: bytes) -> Any:
            values = json.loads(data)
            assert values.keys() <= properties.keys() or schema.name in _OPEN
            return values

        return decode_json
    assert encoding == schema.encoding == "protobuf"
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(schema.data)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))

    def decode(data: bytes) -> Any:
        message = kind()
        message.ParseFromString(data)
        return message

    return decode
