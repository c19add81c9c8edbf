"""Tags of files and streams (VRS, DescriptionRecord.cpp, TagsRecord.h).

They are stored in the description record and in TAGS records.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recorder.common.errors import FormatError
from recorder.formats.vrs.elements import Cursor, encode_text, pack_text, string
from recorder.formats.vrs.headers import StreamId
from recorder.formats.vrs.layout import DataLayout, StringMap

NAME_TAG = "VRS_Original_Recordable_Name"
FLAVOR_TAG = "VRS_Recordable_Flavor"
SERIAL_TAG = "VRS_Serial_Number"
_U32 = struct.Struct("<I")
_STREAM = struct.Struct("<iH")


class TagsRecord(DataLayout):
    """Data of a TAGS record: the tags of a stream that was added after the description."""

    vrs_tags = StringMap(string, "vrs_tags")
    user_tags = StringMap(string, "user_tags")


@dataclass(slots=True)
class StreamTags:
    """Tags of one stream: `vrs` are the format's own, `user` are free."""

    vrs: dict[str, str] = field(default_factory=dict)
    user: dict[str, str] = field(default_factory=dict)


def pack_description(streams: Mapping[StreamId, StreamTags], tags: Mapping[str, str]) -> bytes:
    """Pack the data of the description record.

    Args:
        streams: the streams known so far.
        tags: tags of the file.
    """
    parts = [_U32.pack(len(streams))]
    for stream in sorted(streams):
        parts.append(_STREAM.pack(*stream))
        parts += (_pack_map(streams[stream].user), _pack_map(streams[stream].vrs))
    parts.append(_pack_map(tags))
    return b"".join(parts)


def _pack_map(tags: Mapping[str, str]) -> bytes:
    parts = [_U32.pack(len(tags))]
    for key, value in sorted((encode_text(k), v) for k, v in tags.items()):
        parts += (_U32.pack(len(key)), key, pack_text(value))
    return b"".join(parts)


def unpack_description(
    data: bytes, version: int, where: object
) -> tuple[dict[StreamId, StreamTags], dict[str, str]]:
    """Unpack stream tags and file tags of a description record, version 2 or the older 1.

    Raises:
        FormatError: the data end too early, or have another version; starts with `where`.
    """
    cursor = Cursor(data, f"{where}: description record")
    streams: dict[StreamId, StreamTags] = {}
    if version not in (1, 2):
        raise FormatError(f"{where}: description record of unknown version {version}")
    for _ in range(cursor.count(10)):
        stream = StreamId.from_stored(*_STREAM.unpack(cursor.take(_STREAM.size)))
        tags = streams.setdefault(stream, StreamTags())
        if version == 1:
            described = _parse_json_object(cursor.text())
            tags.user = _filter_texts(described.get("tags"))
            tags.vrs[NAME_TAG] = str(described.get("name", ""))
        else:
            tags.user = _unpack_map(cursor)
            tags.vrs = _unpack_map(cursor)
        upgrade(tags)
    file_tags = (
        _filter_texts(_parse_json_object(cursor.text())) if version == 1 else _unpack_map(cursor)
    )
    return streams, file_tags


def upgrade(tags: StreamTags) -> None:
    """Remove the instance from the stream's name: old files have ``Camera #2``."""
    if NAME_TAG in tags.vrs:
        tags.vrs[NAME_TAG] = re.sub(r"(?<=.) #[0-9]*\Z", "", tags.vrs[NAME_TAG])


def _unpack_map(cursor: Cursor) -> dict[str, str]:
    return {cursor.text(): cursor.text() for _ in range(cursor.count(8))}


def _parse_json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _filter_texts(value: Any) -> dict[str, str]:
    items = value.items() if isinstance(value, dict) else ()
    return {k: v for k, v in items if isinstance(v, str)}
