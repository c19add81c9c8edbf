"""Export of one stream of any VRS file: values as a table, pictures, or blocks as they are stored.

::

    wanted = Wanted("214-1", "jpg", every=10)
    exported = export_vrs(Path("drive.vrs"), wanted, Path("looks"))

========== ====================================================================================
format     content
========== ====================================================================================
``csv``    a row for each data record: timestamp and the values of its layouts; arrays of up to
           16 values have a column for each value
``jpg``    pictures; stored JPEGs are unchanged, others are encoded
``png``    pictures without loss: grey ones with all bits, H.264 as decoded
``blocks`` every image, audio and custom block as it is stored, a file for each
========== ====================================================================================
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from recorder.archives.export.chosen import MOST_PROBLEMS
from recorder.archives.export.files import check_place, new_file, new_folder
from recorder.archives.export.job import Exported, Progress, Wanted
from recorder.codecs.h264 import H264Decoder, is_key, rgb_pixels
from recorder.codecs.jpeg import encode_jpeg
from recorder.common.errors import FormatError, UsageError
from recorder.formats.vrs import (
    AudioContent,
    DataBlock,
    ImageContent,
    LayoutBlock,
    PixelFormat,
    RecordType,
    VrsReader,
    VrsRecord,
    VrsStream,
)
from recorder.session.part import Moment
from recorder.session.vrs.files import STREAM_TAG

FORMATS: Final = ("csv", "jpg", "png", "blocks")
_MOST_VALUES: Final = 16
_QUALITY: Final = 95
_JPEG: Final = b"\xff\xd8"
_BITS: Final = {
    PixelFormat.GREY8: 8,
    PixelFormat.GREY10: 10,
    PixelFormat.GREY12: 12,
    PixelFormat.GREY16: 16,
}
Pixels = npt.NDArray[Any]


def export_vrs(
    path: Path, wanted: Wanted, out: Path | None = None, progress: Progress | None = None
) -> Exported:
    """Export a stream of a VRS file.

    Args:
        path: the file.
        wanted: the stream by its id (``214-1``), its type's number, its flavor or its name; times
            count from the file's first data record.
        out: the new file or folder; None: a name made of the file's and the stream's in the working
            directory.
        progress: called with the number of records done and of all records.

    Raises:
        UsageError: the format does not fit, `out` is taken, or there is no such stream.
        FormatError: the file is no VRS file, or none of the records can be exported.
        OSError: a file cannot be written.
    """
    if wanted.format not in FORMATS:
        fits = ", ".join(FORMATS)
        raise UsageError(f"{path}: a VRS file cannot be exported as {wanted.format}; fits: {fits}")
    with VrsReader(path) as vrs:
        task = _Task(vrs, _choose(vrs, wanted.stream), wanted, progress or (lambda *_: None))
        made = task.table(out) if wanted.format == "csv" else task.folder(out)
    made.bytes = sum(file.stat().st_size for file in made.files)
    return made


def _choose(vrs: VrsReader, wanted: str) -> VrsStream:
    """Return the stream of that id, type, flavor or name; raise a UsageError without one."""
    found = [stream for stream in vrs.streams.values() if wanted.lower() in _list_names(stream)]
    if len(found) != 1:
        there = ", ".join(f"{s.id} ({s.flavor or s.name})" for s in vrs.streams.values())
        many = "has several streams" if found else "has no stream"
        raise UsageError(f"{vrs.path}: {many} {wanted!r}; its streams: {there or 'none'}")
    return found[0]


def _list_names(stream: VrsStream) -> set[str]:
    names = {str(stream.id), str(stream.id.type_id), stream.flavor, stream.name}
    return {name.lower() for name in names | {stream.tags.get(STREAM_TAG, "")} if name}


@dataclass
class _Task:
    """One export with its inputs."""

    vrs: VrsReader
    stream: VrsStream
    wanted: Wanted
    progress: Progress
    problems: list[str] = field(default_factory=list)
    damaged: int = 0

    def records(self) -> Iterator[tuple[int, bool, VrsRecord]]:
        """Yield number and record of the interval's data, and whether the record is wanted."""
        times = self.vrs.timestamps_s(types=RecordType.DATA)
        origin_ns = round(float(times[0]) * 1e9) if len(times) else 0
        begin_s, end_s = (
            _find_time(moment, origin_ns) for moment in (self.wanted.begin, self.wanted.end)
        )
        own = self.vrs.timestamps_s(self.stream.id, RecordType.DATA)
        first = 0 if begin_s is None else int(np.searchsorted(own, begin_s))
        last = len(own) if end_s is None else int(np.searchsorted(own, end_s))
        found = self.vrs.records(self.stream.id, RecordType.DATA, begin_s, end_s)
        for number, record in enumerate(found, first):
            yield number, (number - first) % self.wanted.every == 0, record
            self.progress(number + 1 - first, last - first)

    def note_damage(self, error: FormatError) -> None:
        """Count a record that cannot be exported."""
        self.damaged += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(str(error))

    def table(self, out: Path | None) -> Exported:
        """Write the values of the layouts as one CSV file."""
        place = out or Path(f"{self.vrs.path.stem}_{self.stream.id}.csv")
        if place.is_dir():
            place /= f"{self.vrs.path.stem}_{self.stream.id}.csv"
        check_place(place, self.vrs.path, folder=False)
        count, columns, left_out, late = 0, list[str](), set[str](), set[str]()
        with new_file(place) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            for _, is_wanted, record in self.records():
                if not is_wanted:
                    continue
                try:
                    row = _flatten(record, self.wanted.channels, left_out)
                except FormatError as error:
                    self.note_damage(error)
                    continue
                if not count:
                    columns = ["timestamp_s", *row]
                    writer.writerow(columns)
                late |= row.keys() - set(columns)
                cells = {"timestamp_s": repr(record.timestamp_s), **row}
                writer.writerow([cells.get(name, "") for name in columns])
                count += 1
            if not count:
                raise self._find_reason()
        made = self._describe(place, count, [place])
        if left_out:
            names = ", ".join(sorted(left_out))
            made.notes.append(f"left out: {names}: more than {_MOST_VALUES} values each")
        if late:
            names = ", ".join(sorted(late))
            made.notes.append(f"left out: {names}: the first record has none")
        return made

    def folder(self, out: Path | None) -> Exported:
        """Write pictures or blocks, a file for each, into one folder."""
        place = out or Path(f"{self.vrs.path.stem}_{self.stream.id}_{self.wanted.format}")
        check_place(place, self.vrs.path, folder=True)
        make = _find_blocks if self.wanted.format == "blocks" else _Pictures(self.wanted.format)
        names: list[str] = []
        count = 0
        with new_folder(place) as temporary:
            for number, is_wanted, record in self.records():
                try:
                    parts = make(record, is_wanted)
                except FormatError as error:
                    if is_wanted:
                        self.note_damage(error)
                    continue
                count += bool(parts)
                for at, (ending, data) in enumerate(parts):
                    suffix = f"_{at}" if len(parts) > 1 else ""
                    names.append(f"{self.stream.id}_{number:06d}{suffix}.{ending}")
                    (temporary / names[-1]).write_bytes(data)
            if not count:
                raise self._find_reason()
        return self._describe(place, count, [place / name for name in names])

    def _find_reason(self) -> FormatError:
        reason = self.problems[0] if self.problems else "the interval has no such data"
        return FormatError(f"{self.vrs.path}: {self.stream.id}: nothing to export: {reason}")

    def _describe(self, place: Path, count: int, files: list[Path]) -> Exported:
        return Exported(
            self.vrs.path,
            str(self.stream.id),
            self.wanted.format,
            place,
            count,
            self.damaged,
            files,
            problems=self.problems,
        )


def _find_time(moment: Moment | None, origin_ns: int) -> float | None:
    if moment is None:
        return None
    return (moment.ns if moment.since_epoch else origin_ns + moment.ns) / 1e9


def _flatten(
    record: VrsRecord, channels: Sequence[str] | None, left_out: set[str]
) -> dict[str, Any]:
    """Return the values of a record's layouts by column; add labels of too many values to a set."""
    row: dict[str, Any] = {}
    for block in record.blocks():
        for label, value in block.as_dict().items() if isinstance(block, LayoutBlock) else ():
            if channels is not None and label not in channels:
                continue
            if isinstance(value, str | bytes | int | float):
                row.setdefault(label, value)
                continue
            values = np.asarray(value).reshape(-1) if not isinstance(value, dict) else value
            if isinstance(values, dict) or len(values) > _MOST_VALUES:
                left_out.add(label)
            elif np.ndim(value) == 0:
                row.setdefault(label, values[0].item())
            else:
                for at, one in enumerate(values.tolist()):
                    row.setdefault(f"{label}[{at}]", one)
    return row


Parts = list[tuple[str, bytes]]
"""Ending and content of each file of a record."""


def _find_blocks(record: VrsRecord, is_wanted: bool) -> Parts:
    """Return the blocks of a record as they are stored."""
    if not is_wanted:
        return []
    found = (block for block in record.blocks() if isinstance(block, DataBlock))
    return [(_find_ending(block), bytes(block.data)) for block in found]


def _find_ending(block: DataBlock) -> str:
    if isinstance(block.content, AudioContent):
        return block.content.format
    if not isinstance(block.content, ImageContent):
        return "bin"
    if block.content.format == "video":
        return "".join(filter(str.isalnum, block.content.codec.lower())) or "video"
    return block.content.format


class _Pictures:
    """Encoder of the pictures of consecutive records; H.264 needs those before, too."""

    def __init__(self, ending: str) -> None:
        self._ending = ending
        self._decoder: H264Decoder | None = None

    def __call__(self, record: VrsRecord, is_wanted: bool) -> Parts:
        block = next(
            (b for b in record.blocks() if isinstance(getattr(b, "content", None), ImageContent)),
            None,
        )
        where = record.reader.where(record)
        if not isinstance(block, DataBlock):
            raise FormatError(f"{where}: has no image")
        content = block.content
        assert isinstance(content, ImageContent)
        data = bytes(block.data)
        if content.format == "video":
            pixels = self._decode_video(data, content, where)
        elif not is_wanted:
            return []
        elif self._ending == content.format or (self._ending == "jpg" and data[:2] == _JPEG):
            return [(self._ending, data)]
        elif content.format == "raw":
            pixels = _read_raw(block, content, where, shows=self._ending == "jpg")
        else:
            decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
            if decoded is None:
                raise FormatError(f"{where}: does not decode as {content.format}")
            pixels = np.asarray(decoded)
        return [(self._ending, self._encode(pixels, where))] if is_wanted else []

    def _decode_video(self, unit: bytes, content: ImageContent, where: str) -> Pixels:
        if content.codec.upper() not in ("H.264", "H264"):
            raise FormatError(f"{where}: cannot decode {content.codec}")
        if is_key(unit):
            self._decoder = H264Decoder()
        if self._decoder is None:
            raise FormatError(f"{where}: needs a keyframe before it")
        try:
            return rgb_pixels(self._decoder.decode(unit, where))[..., ::-1]
        except FormatError:
            self._decoder = None
            raise

    def _encode(self, pixels: Pixels, where: str) -> bytes:
        if self._ending == "jpg":
            colour = np.repeat(pixels[..., None], 3, 2) if pixels.ndim == 2 else pixels
            jpeg = encode_jpeg(np.ascontiguousarray(colour[..., :3], np.uint8), _QUALITY)
            if jpeg is None:
                raise FormatError(f"{where}: {colour.shape} cannot be encoded as JPEG")
            return bytes(jpeg)
        done, png = cv2.imencode(".png", np.ascontiguousarray(pixels))
        if not done:
            raise FormatError(f"{where}: {pixels.shape} cannot be encoded as PNG")
        return png.tobytes()


_TO_BGR: Final[dict[PixelFormat, Callable[[Pixels], Pixels]]] = {
    PixelFormat.BGR8: lambda pixels: pixels,
    PixelFormat.RGB8: lambda pixels: pixels[..., ::-1],
    PixelFormat.RGBA8: lambda pixels: pixels[..., [2, 1, 0, 3]],
}


def _read_raw(block: DataBlock, content: ImageContent, where: str, *, shows: bool) -> Pixels:
    """Return a raw image, grey or BGR; `shows`: reduced to 8 bits."""
    kind = content.pixel_format
    pixels = block.array()
    if kind in _BITS:
        return (pixels >> (_BITS[kind] - 8)).astype(np.uint8) if shows else pixels
    if kind in _TO_BGR:
        return _TO_BGR[kind](pixels)
    raise FormatError(f"{where}: pixels of format {kind.text} are no picture; 'blocks' has them")
