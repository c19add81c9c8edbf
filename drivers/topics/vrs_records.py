"""Records of a VRS file as they are: a stream for each of the file's streams.

A message is a record as VRS has it, header and data, not compressed.  Its header has all that the
file says of the record: stream, type, version and timestamp.  ``topic.json`` has the stream's tags,
which declare the blocks of its records.  The first message is the description record, which has the
tags of the file and of all streams.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from drivers.kit.driver import Item, Lost, Sample, SensorConfig
from drivers.kit.recorded_source import SHORT_BATCH_NS
from drivers.kit.topics.pictures import PictureConverter
from drivers.topics.selection import Selection, name_stream
from drivers.topics.stream import Messages
from recorder.codecs.h264 import is_key
from recorder.codecs.jpeg import jpeg_size
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, StreamChangedError
from recorder.formats.recorded_topic import MOST_BYTES, RecordedTopic, topic_spec
from recorder.formats.vrs import (
    DataBlock,
    ImageContent,
    RecordType,
    StreamId,
    VrsReader,
    VrsRecord,
)
from recorder.formats.vrs.contents import find_image, find_play_range_s, is_h264
from recorder.formats.vrs.headers import (
    DESCRIPTION_TYPE_ID,
    DESCRIPTION_VERSION,
    MAX_TIMESTAMP,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    RecordHeader,
)
from recorder.formats.vrs.streams import StreamTags, pack_description

ENCODING: Final = "vrs"
"""Encoding of the messages, and of the streams' tags in ``topic.json`` (JSON)."""
_DESCRIPTION: Final = "/description"
_JPEG_START: Final = b"\xff\xd8"
MOST_READ: Final = 1 << 28
"""Largest data of a record that are read; a message, without the picture, has `MOST_BYTES`."""
_BATCH_NS: Final = {"realtime": SHORT_BATCH_NS, "max": 1_000_000_000}
_BATCH_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _Played:
    """A stream that is played, and its records that go into the next sample.

    Attributes:
        cuts: the pictures are left out of the records, because a camera has them.
        form: format and size of the first picture; None before it.
        video: converter of H.264, as the camera has one.
        started: a keyframe came, and no picture was lost behind it.
    """

    stream: str
    cuts: bool
    batch: Messages = field(default_factory=Messages)
    form: tuple[object, ...] | None = None
    video: PictureConverter = field(default_factory=lambda: PictureConverter(""))
    started: bool = False


class VrsRecords:
    """Source of the records of a VRS file.

    Args:
        sensor: the sensor's entry, of scheme ``vrs``.
        selection: of the streams, which are topics of the names ``/214-1``.

    Attributes:
        origin_ns: see `Driver`; the origin is the same for all sensors that play the file.

    Raises:
        SourceError: the file is missing, is no VRS file, or has no data with a time.
    """

    def __init__(self, sensor: SensorConfig, selection: Selection) -> None:
        self._sensor, self._selection = sensor, selection
        path, self._only = sensor.path_and_part()
        try:
            self._vrs = VrsReader(path, most_bytes=MOST_READ)
        except (OSError, FormatError) as error:
            raise sensor.fault(error) from None
        try:
            self._range_s = find_play_range_s(self._vrs)
        except FormatError as error:
            self.close()
            raise sensor.fault(error) from None
        self.origin_ns = round(self._range_s[0] * 1e9)
        self._topics: dict[str, _Played] = {}

    def open(self) -> list[StreamSpec]:
        """Declare a stream for each chosen stream that has records.

        Raises:
            SourceError: no stream is chosen, or one that is asked for by its name is not there.
        """
        counts = self._count_records()
        known = ", ".join(name.removeprefix("/") for name in counts) or "none"
        for name in [f"/{self._only}"] if self._only else self._selection.names:
            if name not in counts:
                text = f"has no stream {name[1:]!r:.200}; its streams: {known}"
                raise self._sensor.fault(text)
        chosen = [name for name in counts if self._takes(name) and counts[name]]
        if not chosen:
            raise self._sensor.fault(f"has no stream to record; its streams: {known}")
        cuts = set(self._sensor.options["without_pictures"])
        streams: dict[str, str] = {}
        for name in chosen:
            stream = name_stream(self._sensor.name, name, streams)
            streams[stream] = name
            self._topics[name] = _Played(stream, name.removeprefix("/") in cuts)
        return [self._declare(stream, name, counts[name]) for stream, name in streams.items()]

    def _takes(self, name: str) -> bool:
        return name == f"/{self._only}" if self._only else self._selection.takes(name)

    def _count_records(self) -> dict[str, int]:
        counts = {_DESCRIPTION: 1, **{f"/{stream}": 0 for stream in self._vrs.streams}}
        for (stream, _), count in self._vrs.counts().items():
            counts[f"/{stream}"] += count
        return counts

    def _declare(self, stream: str, name: str, records: int) -> StreamSpec:
        if name == _DESCRIPTION:
            about = RecordedTopic(name, "description", ENCODING)
            return topic_spec(stream, about, bytes_per_sample=0, finite=True, settings={})
        found = self._vrs.stream(name.removeprefix("/"))
        tags = json.dumps({"vrs_tags": found.vrs_tags, "tags": found.tags})
        about = RecordedTopic(name, found.flavor or found.name, ENCODING, ENCODING, tags.encode())
        settings = {"vrs_stream": str(found.id), "vrs_name": found.name, "records": records}
        first = next(self._vrs.records(found.id, RecordType.DATA), None)
        size = 0 if first is None else first.size
        return topic_spec(stream, about, bytes_per_sample=size, finite=True, settings=settings)

    def items(self) -> Iterator[Item]:
        """Yield the records in order of their times; losses in place of those that are damaged."""
        vrs, longest_ns = self._vrs, _BATCH_NS[self._sensor.pace]
        until_ns, held = 0, 0
        if (described := self._topics.get(_DESCRIPTION)) is not None:
            tags = {each.id: StreamTags(each.vrs_tags, each.tags) for each in vrs.streams.values()}
            data = pack_description(tags, vrs.tags)
            header = RecordHeader(
                *(0, 0, DESCRIPTION_TYPE_ID, DESCRIPTION_VERSION, MAX_TIMESTAMP, 0),
                *(RecordType.TAGS, 0, 0),
            )
            message = _pack_record(header, StreamId(DESCRIPTION_TYPE_ID, 0), len(data), (data,))
            described.batch.put(self.origin_ns, message, 0, 0, 0)
        for record in vrs:
            played = self._topics.get(f"/{record.stream}")
            if played is None:
                continue
            # Configuration is as early as a double can be.
            t_ns = round(min(max(record.timestamp_s, self._range_s[0]), self._range_s[1]) * 1e9)
            try:
                message = self._make_message(played, record)
            except FormatError as error:
                played.started = False
                yield from self._flush()
                yield Lost(played.stream, t_ns, "corrupt", 1, detail={"reason": str(error)})
                continue
            if t_ns >= until_ns or held >= _BATCH_BYTES or played.batch.is_full:
                yield from self._flush()
                until_ns, held = t_ns + longest_ns, 0
            held += len(message)
            played.batch.put(t_ns, message, record.number + 1, 0, 0)
        yield from self._flush()
        if vrs.tail is not None:
            end_ns = round(self._range_s[1] * 1e9)
            for played in self._topics.values():
                yield Lost(played.stream, end_ns, "truncated", None, detail={"reason": vrs.tail})

    def _make_message(self, played: _Played, record: VrsRecord) -> bytes:
        """Return a record, if need be without its picture.

        Raises:
            FormatError: the record cannot be read, or is too large.
        """
        header, data = self._vrs.read(record)
        begin, end = self._find_picture(played, record) if played.cuts else (0, 0)
        parts = data[:begin], data[end:]
        message = _pack_record(header, record.stream, len(data), parts)
        if len(message) > MOST_BYTES:
            text = f"has {len(message)} bytes; at most {MOST_BYTES} are recorded"
            raise FormatError(f"{self._vrs.where(record)}: {text}")
        return message

    def _find_picture(self, played: _Played, record: VrsRecord) -> tuple[int, int]:
        """Return begin and end of the picture in a record's data; (0, 0): the camera has none."""
        if record.record_type is not RecordType.DATA:
            return 0, 0
        try:
            blocks = record.blocks()
            picture = find_image(blocks)
            if picture is None or not _is_kept(played, picture):
                return 0, 0
        except (FormatError, StreamChangedError):
            played.started = False
            return 0, 0
        sizes = [len(b.data) if isinstance(b, DataBlock) else b.size for b in blocks]
        begin = sum(sizes[: blocks.index(picture)])
        return begin, begin + len(picture.data)

    def _flush(self) -> Iterator[Sample]:
        full = [played for played in self._topics.values() if played.batch]
        full.sort(key=lambda played: played.batch.first_ns)
        for played in full:
            yield played.batch.take(played.stream)

    def close(self) -> None:
        self._vrs.close()


def _pack_record(
    header: RecordHeader, stream: StreamId, size: int, parts: Sequence[bytes]
) -> bytes:
    """Return a record that is not compressed, of so many bytes of data; parts may be left out."""
    whole = header._replace(
        size=RECORD_HEADER_BYTES + size,
        previous_size=0,
        type_id=stream.type_id,
        instance=stream.instance,
        compression=0,
        uncompressed_size=0,
    )
    return b"".join((RECORD_HEADER.pack(*whole), *parts))


def _is_kept(played: _Played, picture: DataBlock) -> bool:
    """Return whether a camera records a picture as it is: one of the first one's form.

    Raises:
        FormatError, StreamChangedError: the camera counts the picture as lost.
    """
    content = picture.content
    assert isinstance(content, ImageContent)
    if is_h264(picture):
        unit = played.video.convert_unit(picture.data)
        played.started = unit is not None and (played.started or is_key(unit))
        return played.started and unit == picture.data
    form: tuple[object, ...] | None
    if content.format == "raw":
        form = content.pixel_format, content.width, content.height
    else:
        form = jpeg_size(picture.data) if picture.data[:2] == _JPEG_START else None
    played.form = played.form or form
    return form is not None and form == played.form
