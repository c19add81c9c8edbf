"""Streams of a file: their types, their tags, and the content of their records.

Writers declare the content, readers read it from tags, which are stored in the description record
and in TAGS records (VRS, StreamId.h, DescriptionRecord.cpp, TagsRecord.h).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

from recorder.common.errors import FormatError
from recorder.formats.vrs.headers import RecordType, StreamId
from recorder.formats.vrs.layout import (
    VALUE,
    Cursor,
    DataLayout,
    LayoutSpec,
    Piece,
    StringMap,
    encode_text,
    pack_text,
    string,
    uint32,
)
from recorder.formats.vrs.media import NEXT_CONTENT_BLOCK_SIZE
from recorder.formats.vrs.record_format import (
    Content,
    LayoutContent,
    RecordFormat,
    find_formats,
    format_tag,
    layout_tag,
)


class RecordableType(IntEnum):
    """Types of the sensors of vehicles and wearers."""

    FORWARD_CAMERA = 200
    UPWARD_CAMERA = 201
    DOWNWARD_CAMERA = 202
    BACKWARD_CAMERA = 203
    SIDEWARD_CAMERA = 204
    OUTWARD_CAMERA = 205
    INWARD_CAMERA = 206
    DEPTH_CAMERA = 209
    IR_CAMERA = 210
    EYE_CAMERA = 211
    FACE_CAMERA = 212
    RGB_CAMERA = 214
    MONO_AUDIO = 230
    STEREO_AUDIO = 231
    AMBIENT_AUDIO = 232
    SENSOR_DATA = 240
    IMU_DATA = 241
    ACCELEROMETER_DATA = 242
    MAGNETOMETER_DATA = 243
    GYROSCOPE_DATA = 244
    LIDAR_DATA = 245
    TEMPERATURE_DATA = 246
    BAROMETER_DATA = 247
    RADAR_DATA = 254
    CALIBRATION_DATA = 260
    SETUP_DATA = 262
    DIAGNOSTIC_DATA = 263
    PERFORMANCE_DATA = 264
    SYNC_DATA = 280
    GPS_DATA = 281
    EVENT_DATA = 320
    COMMAND_DATA = 321
    POSE_DATA = 371
    MOTION_DATA = 372
    POINT_CLOUD_DATA = 376
    ANNOTATION_DATA = 400
    SAMPLE = 998
    UNIT_TEST = 999
    SLAM_CAMERA = 1201
    SLAM_IMU = 1202
    SLAM_MAGNETOMETER = 1203


_SMALL_WORDS = ("IMU", "IR", "RGB", "GPS")
_OLD = {1201: "Camera Data (SLAM)", 1202: "IMU Data (SLAM)", 1203: "Magnetometer Data (SLAM)"}


def recordable_name(type_id: int) -> str:
    """Return the name in readers: ``RGB Camera Class``; with its number for unknown types."""
    if type_id in _OLD:
        return _OLD[type_id]
    try:
        words = RecordableType(type_id).name.split("_")
    except ValueError:
        return f"Recordable {type_id}"
    return " ".join([*(w if w in _SMALL_WORDS else w.title() for w in words), "Class"])


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


_NEXT_SIZE = Piece(VALUE, uint32, NEXT_CONTENT_BLOCK_SIZE)


class RecordLayout:
    """One version of a record type: its blocks, and the layouts among them.

    >>> RecordLayout(CameraData, ImageContent(format="jpg"))  # doctest: +SKIP

    Attributes:
        format: format of the blocks.
        layouts: layout of every block, or None.
    """

    def __init__(self, *blocks: type[DataLayout] | LayoutSpec | Content) -> None:
        """Check layouts and other blocks in order; FormatError if readers could not read them."""
        contents: list[Content] = []
        layouts: list[LayoutSpec | None] = []
        for block in blocks:
            spec = block.spec if isinstance(block, type) else block
            if isinstance(spec, LayoutSpec):
                contents.append(LayoutContent(spec.size))
                layouts.append(spec)
            elif isinstance(spec, LayoutContent):
                raise FormatError("a layout block is declared by its DataLayout")
            else:
                contents.append(spec)
                layouts.append(None)
        self.format = RecordFormat(*contents)
        self.layouts = tuple(layouts)
        self.format.check(
            at for at, s in enumerate(layouts) if s is not None and s.place(_NEXT_SIZE) is not None
        )

    @classmethod
    def from_tags(cls, format_: RecordFormat, layouts: Sequence[LayoutSpec | None]) -> RecordLayout:
        """Make a layout from tags, without checks."""
        layout = cls.__new__(cls)
        layout.format = format_
        layout.layouts = tuple(layouts)
        return layout

    def tags(self, record_type: RecordType, version: int) -> dict[str, str]:
        """Return the tags that declare the layout."""
        name = record_type.tag
        tags = {format_tag(name, version): str(self.format)}
        for at, spec in enumerate(self.layouts):
            if spec is not None:
                tags[layout_tag(name, version, at)] = spec.to_json()
        return tags


@dataclass(frozen=True)
class StreamSpec:
    """Declaration of a stream to be written.

    Attributes:
        type_id: a `RecordableType`, or any other number that readers know.
        flavor: flavor of the type, such as ``recorder/imu``; recordable classes demand one.
        records: record types, each with its version (from 1).
        tags: free texts about the stream.
        name: name of the recordable; "" for the type's own.
        serial: serial, unique to the stream; "": readers make one.
        instance: instance; 0: the next free one of its type.
    """

    type_id: int
    flavor: str
    records: Mapping[tuple[RecordType, int], RecordLayout]
    tags: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    serial: str = ""
    instance: int = 0

    def stream_tags(self) -> StreamTags:
        """Return the stream's tags in the file."""
        own = {NAME_TAG: self.name or recordable_name(self.type_id), FLAVOR_TAG: self.flavor}
        if self.serial:
            own[SERIAL_TAG] = self.serial
        for (record_type, version), layout in self.records.items():
            own.update(layout.tags(record_type, version))
        return StreamTags(own, dict(self.tags))


Records = dict[tuple[int, int], RecordLayout]


def parse_records(tags: Mapping[str, str]) -> Records:
    """Parse the record types and versions that a stream's own tags declare.

    A layout that is undeclared, or has pieces of unknown types, is None, so that the rest can be
    read.
    """
    records: Records = {}
    types = {kind.tag: kind for kind in RecordType}
    for tag, name, version in find_formats(tags):
        blocks = RecordFormat.parse(tags[tag], strict=False)
        layouts: list[LayoutSpec | None] = []
        for at, block in enumerate(blocks):
            declared = tags.get(layout_tag(name, version, at))
            spec = None
            if isinstance(block, LayoutContent) and declared is not None:
                try:
                    spec = LayoutSpec.from_json(declared)
                except FormatError:
                    spec = None
            layouts.append(spec)
        records[types[name], version] = RecordLayout.from_tags(blocks, layouts)
    return records


@dataclass(frozen=True)
class VrsStream:
    """Stream of a file that is read.

    Attributes:
        id: type and instance.
        tags: free texts about the stream.
        vrs_tags: tags of the format.
    """

    id: StreamId
    tags: dict[str, str]
    vrs_tags: dict[str, str]

    @cached_property
    def records(self) -> Records:
        """Record types and versions; see `parse_records`."""
        return parse_records(self.vrs_tags)

    @property
    def flavor(self) -> str:
        """Flavor of the stream's type; "" if not stated."""
        return self.vrs_tags.get(FLAVOR_TAG, "")

    @property
    def name(self) -> str:
        """Name of the recordable when the file was made."""
        return self.vrs_tags.get(NAME_TAG) or recordable_name(self.id.type_id)

    @property
    def serial(self) -> str:
        """Serial, unique to the stream; "" if the file has none."""
        return self.vrs_tags.get(SERIAL_TAG, "")


def next_size(spec: LayoutSpec | None, values: Iterable[Any]) -> int | None:
    """Return the size of the next block, from a layout; None if the layout does not have it."""
    place = spec.place(_NEXT_SIZE) if spec is not None else None
    if place is None:
        return None
    value: int = list(values)[place]
    return value
