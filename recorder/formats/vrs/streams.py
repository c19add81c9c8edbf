"""Content of a stream's records, which writers declare and readers read from tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from recorder.common.errors import FormatError
from recorder.formats.vrs.elements import uint32
from recorder.formats.vrs.headers import RecordType, StreamId
from recorder.formats.vrs.layout import DataLayout
from recorder.formats.vrs.layout_spec import LayoutSpec
from recorder.formats.vrs.media import NEXT_CONTENT_BLOCK_SIZE
from recorder.formats.vrs.pieces import VALUE, Piece
from recorder.formats.vrs.record_format import (
    Content,
    LayoutContent,
    RecordFormat,
    find_formats,
    format_tag,
    layout_tag,
)
from recorder.formats.vrs.recordables import recordable_name
from recorder.formats.vrs.tags import FLAVOR_TAG, NAME_TAG, SERIAL_TAG, StreamTags

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
        made = cls.__new__(cls)
        made.format = format_
        made.layouts = tuple(layouts)
        return made

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
