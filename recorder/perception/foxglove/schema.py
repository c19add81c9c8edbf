"""Schemas of Foxglove's messages."""

from __future__ import annotations

from typing import Any

from recorder.formats.mcap import Schema as Schema


def schema_of(message: Any) -> Schema:
    """Return the schema of a message type of `foxglove.messages`."""
    found = message.get_schema()
    return Schema(found.name, found.encoding, bytes(found.data))


def message_encoding(schema: Schema) -> str:
    """Return the encoding of the messages of a schema."""
    return "json" if schema.encoding == "jsonschema" else schema.encoding
