"""Schema of a topic, and the part of it that decides decoding."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

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
