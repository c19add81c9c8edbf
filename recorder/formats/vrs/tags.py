"""Tags of files and streams: the description record and TAGS records (VRS, DescriptionRecord.cpp,
TagsRecord.h).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recorder.contract.errors import FormatError
from recorder.formats.vrs.elements import decode_text, encode_text, string
from recorder.formats.vrs.headers import StreamId
from recorder.formats.vrs.layout import DataLayout, StringMap

NAME_TAG = "VRS_Original_Recordable_Name"
FLAVOR_TAG = "VRS_Recordable_Flavor"
SERIAL_TAG = "VRS_Serial_Number"
_U32 = struct.Struct("<I")
_STREAM = struct.Struct("<iH")


class TagsRecord(DataLayout):
    """Data of a TAGS record: the tags of a stream that came after the description."""

    vrs_tags = StringMap(string, "vrs_tags")
    user_tags = StringMap(string, "user_tags")


@dataclass(slots=True)
class StreamTags:
    """Tags of one stream: `vrs` are the format's own, `user` are free."""

    vrs: dict[str, str] = field(default_factory=dict)
    user: dict[str, str] = field(default_factory=dict)


def pack_description(streams: Mapping[StreamId, StreamTags], tags: Mapping[str, str]) -> bytes:
    """Data of the description record.

    Args:
        streams: the streams known so far.
        tags: of the file.
    """
    parts = [_U32.pack(len(streams))]
    for stream in sorted(streams):
        parts.append(_STREAM.pack(*stream))
        parts += (_pack_map(streams[stream].user), _pack_map(streams[stream].vrs))
    parts.append(_pack_map(tags))
    return b"".join(parts)


def _pack_map(tags: Mapping[str, str]) -> bytes:
    parts = [_U32.pack(len(tags))]
    for key, value in sorted((encode_text(k), encode_text(v)) for k, v in tags.items()):
        parts += (_U32.pack(len(key)), key, _U32.pack(len(value)), value)
    return b"".join(parts)


def unpack_description(
    data: bytes, version: int, where: object
) -> tuple[dict[StreamId, StreamTags], dict[str, str]]:
    """Stream tags and file tags of a description record's data, of version 2 or the older 1.

    Raises:
        FormatError: starts with `where`; the data end too early, or are of another version.
    """
    cursor = _Cursor(data, where)
    streams: dict[StreamId, StreamTags] = {}
    if version not in (1, 2):
        raise FormatError(f"{where}: description record of unknown version {version}")
    for _ in range(cursor.count(10)):
        stream = cursor.stream()
        tags = streams.setdefault(stream, StreamTags())
        if version == 1:
            described = _json_object(cursor.text())
            tags.user = _json_texts(described.get("tags"))
            tags.vrs[NAME_TAG] = str(described.get("name", ""))
        else:
            tags.user = cursor.map()
            tags.vrs = cursor.map()
        upgrade(tags)
    file_tags = _json_texts(_json_object(cursor.text())) if version == 1 else cursor.map()
    return streams, file_tags


def upgrade(tags: StreamTags) -> None:
    """Old files have the instance in the stream's name, ``Camera #2``; new ones have not."""
    if NAME_TAG in tags.vrs:
        tags.vrs[NAME_TAG] = re.sub(r"(?<=.) #[0-9]*\Z", "", tags.vrs[NAME_TAG])


class _Cursor:
    def __init__(self, data: bytes, where: object) -> None:
        self._data = data
        self._where = where
        self._at = 0

    def _take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise FormatError(
                f"{self._where}: description record ends at byte {len(self._data)}, "
                f"{size} are wanted at {self._at}"
            )
        self._at += size
        return part

    def number(self) -> int:
        value: int = _U32.unpack(self._take(4))[0]
        return value

    def count(self, least: int) -> int:
        """A number of things that have `least` bytes each; never more than could be there."""
        value = self.number()
        if value * least > len(self._data) - self._at:
            raise FormatError(f"{self._where}: description record with {value} entries is cut")
        return value

    def text(self) -> str:
        return decode_text(self._take(self.number()))

    def stream(self) -> StreamId:
        return StreamId.stored(*_STREAM.unpack(self._take(_STREAM.size)))

    def map(self) -> dict[str, str]:
        return {self.text(): self.text() for _ in range(self.count(8))}


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _json_texts(value: Any) -> dict[str, str]:
    items = value.items() if isinstance(value, dict) else ()
    return {k: v for k, v in items if isinstance(v, str)}
