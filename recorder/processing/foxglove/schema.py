"""Schemas of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Schema:
    """Schema of a topic's messages, or of a service's requests or responses.

    Attributes:
        name: name of the type, such as ``foxglove.PointCloud``.
        encoding: ``protobuf`` (data: a FileDescriptorSet) or ``jsonschema``.
        data: the schema.
    """

    name: str
    encoding: str
    data: bytes

    @property
    def message_encoding(self) -> str:
        """Encoding of the messages."""
        return "json" if self.encoding == "jsonschema" else self.encoding


def schema_of(message: Any) -> Schema:
    """Schema of a message type of `foxglove.messages`."""
    found = message.get_schema()
    return Schema(found.name, found.encoding, bytes(found.data))
