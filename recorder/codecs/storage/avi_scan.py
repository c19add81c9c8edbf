"""Scan of this recorder's AVI files, finished or not, or cut anywhere.

Closed segments are recognized by their headers and the two ends of their index. Only the frames of
the last segment are walked, so that the cost does not grow with the recording.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from recorder.codecs.storage.avi import (
    CHUNK,
    FRAME_ID,
    INDEX_HEAD,
    INDX,
    INDX_COUNT,
    INDX_ENTRIES,
    LIST,
    SEGMENT_HEAD_BYTES,
    STRF,
    STRH,
    SUPER_ENTRY,
    AviLayout,
    Entries,
    Segment,
)
from recorder.codecs.storage.channel import ReadFile
from recorder.common.errors import FormatError


@dataclass(slots=True)
class AviScan:
    """Structure of a file up to the end of the scan.

    Attributes:
        path: the file.
        layout: layout of its header.
        segments: all segments; the last one is the current one, all others are closed.
        entries: u4 [n, 2], frames of the last segment (see `avi.Entries`).
        end: end of the scan: the file's end, or an earlier requested one.
        finished: whether every frame is indexed and counted, and nothing follows.
    """

    path: Path
    layout: AviLayout
    segments: list[Segment]
    entries: Entries
    end: int
    finished: bool = False

    @property
    def total(self) -> int:
        """Number of frames in the file."""
        return sum(s.count for s in self.segments)

    @property
    def frames_end(self) -> int:
        """End of the last whole frame; at most `end` (its padding may be cut off)."""
        return min(self.segments[-1].frames_end, self.end)

    @property
    def finished_length(self) -> int:
        """Length of the file once it is finished with the frames that it has."""
        return self.segments[-1].end


def scan_avi(path: Path, end: int | None = None) -> AviScan:
    """Find all whole frames of a file up to byte `end` (None: its own end).

    Raises:
        FormatError: the file is not an AVI of this recorder, or is cut inside its header.
    """
    with ReadFile(path) as file:
        end = file.size if end is None else min(end, file.size)
        layout = _read_layout(file, end)
        segments: list[Segment] = []
        entries: dict[int, Entries] = {}
        riff, movi = 0, layout.movi
        while True:
            segment = _read_closed_segment(file, len(segments), riff, movi, end)
            if segment is None:
                segment, entries[len(segments)] = _walk(file, riff, movi, end)
            if not segment.count and segments:
                break  # headers of a segment, and no frame yet: not begun
            segments.append(segment)
            riff, movi = segment.end, segment.end + LIST.size
            if len(segments) == layout.super_entries or not _begins_segment(file, riff, end):
                break
        last = segments[-1]
        if (walked := entries.get(len(segments) - 1)) is None:
            walked = load_index(file, last)
        scan = AviScan(path, layout, segments, walked, end)
        scan.finished = end == file.size == scan.finished_length and _is_finished(file, scan)
        return scan


def _read_layout(file: ReadFile, end: int) -> AviLayout:
    """Read the layout from a header; its constant bytes must be those of this recorder's writer."""
    head = file.peek(0, min(end, INDX_ENTRIES))
    if len(head) == INDX_ENTRIES and head[INDX : INDX + 4] == b"indx":
        (indx_bytes,) = struct.unpack_from("<I", head, INDX + 4)
        width, height = struct.unpack_from("<ii", head, STRF + 12)
        scale, rate = struct.unpack_from("<II", head, STRH + 28)
        if 24 <= indx_bytes <= 24 + SUPER_ENTRY.size * (1 << 20) and scale and rate:
            layout = AviLayout(width, height, Fraction(rate, scale), (indx_bytes - 24) // 16)
            found = file.peek(0, min(end, layout.header_bytes))
            if (
                width > 0
                and height > 0
                and _blank_header(layout, found) == _blank_header(layout, layout.header())
            ):
                return layout
    raise FormatError(
        f"{file.path}: not an AVI of this recorder, or cut inside its header ({end} bytes)"
    )


def _blank_header(layout: AviLayout, header: bytes) -> bytes:
    """Return a header with every field zeroed that changes while the file grows."""
    blank = bytearray(header)
    patches = layout.count_patches(0, 0)
    patches += Segment(0, layout.movi, 0, layout.header_bytes).size_patches(closed=False)
    patches.append((INDX_COUNT, bytes(4)))
    patches.append((INDX_ENTRIES, bytes(SUPER_ENTRY.size * layout.super_entries)))
    for offset, data in patches:
        blank[offset : offset + len(data)] = bytes(len(data))
    return bytes(blank)


def _begins_segment(file: ReadFile, riff: int, end: int) -> bool:
    """Return whether a further segment begins at `riff`, with whole headers."""
    if riff + SEGMENT_HEAD_BYTES > end:
        return False
    head = file.peek(riff, SEGMENT_HEAD_BYTES)
    (name, _, kind), (list_name, _, movi) = LIST.unpack(head[:12]), LIST.unpack(head[12:])
    return bool((name, kind, list_name, movi) == (b"RIFF", b"AVIX", b"LIST", b"movi"))


def _read_closed_segment(
    file: ReadFile, number: int, riff: int, movi: int, end: int
) -> Segment | None:
    """Return the segment, if its sizes are set and lead to its index and its end before `end`.

    The count comes from the super index, which is patched when a segment is closed. A power cut may
    leave a part of that patch, so that the index itself must confirm the count.
    """
    riff_bytes, movi_bytes = file.peek(riff + 4, 4), file.peek(movi + 4, 4)
    riff_end = riff + 8 + int.from_bytes(riff_bytes, "little")
    movi_end = movi + 8 + int.from_bytes(movi_bytes, "little")
    if not movi + LIST.size < movi_end <= riff_end <= end:
        return None
    entry = file.read(INDX_ENTRIES + SUPER_ENTRY.size * number, SUPER_ENTRY.size)
    frames_end, _, count = SUPER_ENTRY.unpack(entry)
    segment = Segment(riff, movi, count, frames_end)
    if segment.index_bytes > 0xFFFFFFFF or frames_end + segment.index_bytes != movi_end:
        return None
    if entry != segment.super_entry():
        return None
    return segment if segment.end == riff_end and _index_fits(file, segment) else None


def _index_fits(file: ReadFile, segment: Segment) -> bool:
    """Return whether a segment's ix00 is there, and its last frame ends where the ix00 begins."""
    count = segment.count
    if count < 1 or segment.frames_end < segment.movi + LIST.size:
        return False
    head = file.peek(segment.frames_end, INDEX_HEAD.size)
    expected = INDEX_HEAD.pack(
        *(b"ix00", segment.index_bytes - 8, 2, 0, 1, count, FRAME_ID, segment.movi, 0)
    )
    if head != expected:
        return False
    last = file.peek(segment.frames_end + INDEX_HEAD.size + 8 * (count - 1), 8)
    offset, size = struct.unpack("<II", last)
    at = segment.movi + offset - 8
    frame_end = at + 8 + size + (size & 1)
    return frame_end == segment.frames_end and file.peek(at, 8) == CHUNK.pack(FRAME_ID, size)


def _walk(file: ReadFile, riff: int, movi: int, end: int) -> tuple[Segment, Entries]:
    """Find the whole frames of a segment by their chunk headers."""
    found = array("I")
    at = movi + LIST.size
    while at + CHUNK.size < end:
        name, size = CHUNK.unpack(file.read(at, CHUNK.size))
        if name != FRAME_ID or not size or at + 8 + size > end:
            break
        found.append(at - movi)
        found.append(size)
        at += 8 + size + (size & 1)
    entries = np.array(found, np.uint32).reshape(-1, 2)
    return Segment(riff, movi, len(entries), at), entries


def frame_offset(path: Path, segment: Segment, number: int) -> int:
    """Find where a frame's chunk begins, by the chunks before it and without an index.

    Raises:
        FormatError: the segment holds no such frame.
    """
    with ReadFile(path) as file:
        at = segment.movi + LIST.size
        for _ in range(number):
            name, size = CHUNK.unpack(file.read(at, CHUNK.size))
            if name != FRAME_ID:
                raise FormatError(f"{path}: no frame at byte {at}")
            at += CHUNK.size + size + (size & 1)
        return at


def load_index(file: ReadFile, segment: Segment) -> Entries:
    """Load the entries of a closed segment from its ix00."""
    raw = file.read(segment.frames_end + INDEX_HEAD.size, 8 * segment.count)
    return np.frombuffer(raw, "<u4").reshape(-1, 2).astype(np.uint32) - np.array([8, 0], np.uint32)


def _is_finished(file: ReadFile, scan: AviScan) -> bool:
    """Return whether everything that `AviWriter.finish` writes is in the file."""
    last = scan.segments[-1]
    patches = scan.layout.count_patches(scan.total, scan.segments[0].count)
    patches.append((INDX_COUNT, len(scan.segments).to_bytes(4, "little")))
    patches.append((INDX_ENTRIES, b"".join(s.super_entry() for s in scan.segments)))
    for segment in scan.segments:
        patches += segment.size_patches(closed=True)
    patches.append((last.frames_end, last.index(scan.entries)))
    return all(file.peek(offset, len(data)) == data for offset, data in patches)
