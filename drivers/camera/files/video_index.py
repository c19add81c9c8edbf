"""Declarations of a video file itself: its number of pictures, and its end.

ISO media (ISO 14496-12: MP4, MOV, fragmented or not) declare each sample, AVI the length of a
stream; Matroska (RFC 8794, RFC 9559) declares the bytes of its segment, but no number of pictures.
Other formats declare nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO, Final, NamedTuple

_MOST_BOXES: Final = 1 << 20  # of a file; a fragment of a second has about ten
_TOP_BOXES: Final = (
    b"ftyp",
    b"styp",
    b"moov",
    b"moof",
    b"mdat",
    b"wide",
    b"free",
    b"skip",
    b"sidx",
)
_EBML, _SEGMENT = 0x1A45DFA3, 0x18538067


class VideoIndex(NamedTuple):
    """Declarations of a file.

    Attributes:
        pictures: samples of the first track of pictures; None: the file does not declare them.
        is_cut: the file ends before the end that it declares.
        broken_at: where a description of pictures begins that the end of the file cuts; None:
            there is none.  FFmpeg opens the file only up to there.
    """

    pictures: int | None = None
    is_cut: bool = False
    broken_at: int | None = None


class _Box(NamedTuple):
    kind: bytes
    start: int  # of the data behind the header
    end: int
    at: int = 0  # of the header


def read_video_index(file: BinaryIO) -> VideoIndex:
    """Read the declarations of a file of any kind, from its headers alone."""
    size = file.seek(0, os.SEEK_END)
    head = _read(file, 0, 12)
    if head[4:8] in _TOP_BOXES:
        return _iso_index(file, size)
    if head[:4] == b"RIFF" and head[8:] == b"AVI ":
        return VideoIndex(_avi_pictures(file, size))
    if int.from_bytes(head[:4], "big") == _EBML:
        return VideoIndex(None, _is_matroska_cut(file, size))
    return VideoIndex()


def _read(file: BinaryIO, at: int, count: int) -> bytes:
    file.seek(at)
    return file.read(count)


# --- ISO media ------------------------------------------------------------------------------------


def _iso_index(file: BinaryIO, size: int) -> VideoIndex:
    track, pictures, is_cut, broken_at = None, 0, False, None
    top = list(islice(_boxes(file, 0, size), _MOST_BOXES))
    for movie in (box for box in top if box.kind == b"moov"):
        for each in _boxes(file, movie.start, movie.end):
            if track is None and each.kind == b"trak" and _handler(file, each) == b"vide":
                track = _track_number(file, each)
                pictures += _samples(file, each)
    for box in top:
        is_cut |= box.kind in (b"mdat", b"moof") and box.end > size
        if box.kind == b"moof":
            pictures += _fragment_samples(file, box, track) if box.end <= size else 0
            broken_at = box.at if box.end > size else broken_at
    is_known = track is not None and len(top) < _MOST_BOXES
    return VideoIndex(pictures if is_known else None, is_cut, broken_at)


def _boxes(file: BinaryIO, start: int, end: int) -> Iterator[_Box]:
    """Yield the boxes between two places; the last one may end behind `end`."""
    while start + 8 <= end:
        head = _read(file, start, 16)
        size, kind, body = int.from_bytes(head[:4], "big"), head[4:8], start + 8
        if size == 1:
            size, body = int.from_bytes(head[8:16], "big"), start + 16
        elif size == 0:  # up to the end
            size = end - start
        if size < body - start:
            return
        yield _Box(kind, body, start + size, start)
        start += size


def _find(file: BinaryIO, box: _Box, *path: bytes) -> _Box | None:
    for kind in path:
        found = next((b for b in _boxes(file, box.start, box.end) if b.kind == kind), None)
        if found is None:
            return None
        box = found
    return box


def _handler(file: BinaryIO, track: _Box) -> bytes:
    handler = _find(file, track, b"mdia", b"hdlr")
    return b"" if handler is None else _read(file, handler.start + 8, 4)


def _track_number(file: BinaryIO, track: _Box) -> int:
    if (header := _find(file, track, b"tkhd")) is None:
        return 0
    is_long = _read(file, header.start, 1) == b"\1"
    return int.from_bytes(_read(file, header.start + (20 if is_long else 12), 4), "big")


def _samples(file: BinaryIO, track: _Box) -> int:
    for kind in (b"stsz", b"stz2"):
        if (sizes := _find(file, track, b"mdia", b"minf", b"stbl", kind)) is not None:
            return int.from_bytes(_read(file, sizes.start + 8, 4), "big")
    return 0


def _fragment_samples(file: BinaryIO, fragment: _Box, track: int | None) -> int:
    count = 0
    for part in _boxes(file, fragment.start, fragment.end):
        if part.kind != b"traf" or (header := _find(file, part, b"tfhd")) is None:
            continue
        if int.from_bytes(_read(file, header.start + 4, 4), "big") == track:
            runs = (box for box in _boxes(file, part.start, part.end) if box.kind == b"trun")
            count += sum(int.from_bytes(_read(file, run.start + 4, 4), "big") for run in runs)
    return count


# --- AVI ------------------------------------------------------------------------------------------


def _avi_pictures(file: BinaryIO, size: int) -> int | None:
    """Return the length of the first stream of pictures; an unfinished file has 0."""
    for header in _lists(file, 12, size, b"hdrl"):
        for stream in _lists(file, header.start, header.end, b"strl"):
            data = _read(file, stream.start, 44)
            if data[:4] == b"strh" and data[8:12] == b"vids":
                return int.from_bytes(data[40:44], "little") or None
    return None


def _lists(file: BinaryIO, at: int, end: int, kind: bytes) -> Iterator[_Box]:
    for _ in range(_MOST_BOXES):
        head = _read(file, at, 12)
        if at + 12 > end or len(head) < 12:
            return
        size = int.from_bytes(head[4:8], "little")
        if head[:4] == b"LIST" and head[8:] == kind:
            yield _Box(kind, at + 12, at + 8 + size)
        at += 8 + size + size % 2


# --- Matroska -------------------------------------------------------------------------------------


def _is_matroska_cut(file: BinaryIO, size: int) -> bool:
    """Return whether the segment ends behind the end of the file; its size may be unknown."""
    start, length = _element_size(file, 4)
    if length is None:
        return False
    segment = start + length
    if int.from_bytes(_read(file, segment, 4), "big") != _SEGMENT:
        return False
    start, length = _element_size(file, segment + 4)
    return length is not None and start + length > size


def _element_size(file: BinaryIO, at: int) -> tuple[int, int | None]:
    """Return where an element's data begin, and their size; None: unknown."""
    data = _read(file, at, 8)
    if not data or not data[0]:
        return at, None
    width = 9 - data[0].bit_length()
    value = int.from_bytes(data[:width], "big") & ((1 << 7 * width) - 1)
    return at + width, None if value == (1 << 7 * width) - 1 else value
