"""MCAP files: a log of timestamped messages on topics, with an index (mcap.dev/spec).

`writer` and `reader` need the package ``mcap`` (extra ``archives``): import them late.  The
schemas and corrections of log times below need nothing.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
