"""Reading back the structure of an AVI file of ours, finished or not, cut anywhere.

Closed segments are taken by their headers and the two ends of their index; only the last one's
frames are walked, so that the cost does not grow with the recording.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from recorder.contract.errors import FormatError
from recorder.formats.roverd.avi import (
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
from recorder.formats.roverd.channel import ReadFile


@dataclass(slots=True)
class AviScan:
    """What a file holds up to where it was looked at.

    Attributes:
        path: the file.
        layout: its header's make.
        segments: all segments; the last one is the current one, all others are closed.
        entries: u4 [n, 2], frames of the last segment (see `avi.Entries`).
        end: where the look ended: the file's end, or before it where asked.
        finished: every frame is indexed and counted, and nothing follows.
    """

    path: Path
    layout: AviLayout
    segments: list[Segment]
    entries: Entries
    end: int
    finished: bool = False

    @property
    def total(self) -> int:
        """Frames in all."""
        return sum(s.count for s in self.segments)

    @property
    def frames_end(self) -> int:
        """Where the last whole frame ends; at most `end` (its padding may be cut off)."""
        return min(self.segments[-1].frames_end, self.end)

    @property
    def finished_length(self) -> int:
        """Length of the file once it is finished with the frames that it has."""
        return self.segments[-1].end


def scan_avi(path: Path, end: int | None = None) -> AviScan:
    """Find all whole frames of a file up to byte `end` (its own end where None).

    Raises:
        FormatError: not an AVI of ours, or cut inside its header.
    """
    with ReadFile(path) as file:
        end = file.size if end is None else min(end, file.size)
        layout = _read_layout(file, end)
        segments: list[Segment] = []
        entries: dict[int, Entries] = {}
        riff, movi = 0, layout.movi
        while True:
            segment = _closed_segment(file, len(segments), riff, movi, end)
            if segment is None:
                segment, entries[len(segments)] = _walk(file, riff, movi, end)
            if not segment.count and segments:
                break  # headers of a segment, and no frame yet: not begun
            segments.append(segment)
            riff, movi = segment.end, segment.end + LIST.size
            if len(segments) == layout.super_entries or not _segment_head(file, riff, end):
                break
        last = segments[-1]
        if (walked := entries.get(len(segments) - 1)) is None:
            walked = load_index(file, last)
        scan = AviScan(path, layout, segments, walked, end)
        scan.finished = end == file.size == scan.finished_length and _is_finished(file, scan)
        return scan


def _read_layout(file: ReadFile, end: int) -> AviLayout:
    """The layout that a header was made with; its constant bytes must be those of our writer."""
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
                and _constant(layout, found) == _constant(layout, layout.header())
            ):
                return layout
    raise FormatError(
        f"{file.path}: not an AVI of this recorder, or cut inside its header ({end} bytes)"
    )


def _constant(layout: AviLayout, header: bytes) -> bytes:
    """A header with every field blanked that changes while the file grows."""
    blank = bytearray(header)
    patches = layout.count_patches(0, 0)
    patches += Segment(0, layout.movi, 0, layout.header_bytes).size_patches(closed=False)
    patches.append((INDX_COUNT, bytes(4)))
    patches.append((INDX_ENTRIES, bytes(SUPER_ENTRY.size * layout.super_entries)))
    for offset, data in patches:
        blank[offset : offset + len(data)] = bytes(len(data))
    return bytes(blank)


def _segment_head(file: ReadFile, riff: int, end: int) -> bool:
    """Whether a further segment begins at `riff`, whole headers at least."""
    if riff + SEGMENT_HEAD_BYTES > end:
        return False
    head = file.peek(riff, SEGMENT_HEAD_BYTES)
    (name, _, kind), (list_name, _, movi) = LIST.unpack(head[:12]), LIST.unpack(head[12:])
    return bool((name, kind, list_name, movi) == (b"RIFF", b"AVIX", b"LIST", b"movi"))


def _closed_segment(file: ReadFile, number: int, riff: int, movi: int, end: int) -> Segment | None:
    """The segment, if its sizes are set and lead to its index and to its end before `end`.

    The count comes from the super index, which is patched when a segment is closed; what a power
    cut left of that patch is believed only as far as the index itself bears it out.
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
    """Whether the ix00 of `segment` is there, and its last frame ends where it begins."""
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
    """The whole frames of a segment, by their chunk headers."""
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
    """Where a frame's chunk begins, found by the chunks before it and not by any index.

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
    """The entries of a closed segment, from its ix00."""
    raw = file.read(segment.frames_end + INDEX_HEAD.size, 8 * segment.count)
    return np.frombuffer(raw, "<u4").reshape(-1, 2).astype(np.uint32) - np.array([8, 0], np.uint32)


def _is_finished(file: ReadFile, scan: AviScan) -> bool:
    """Whether all that `AviWriter.finish` writes is in the file."""
    last = scan.segments[-1]
    patches = scan.layout.count_patches(scan.total, scan.segments[0].count)
    patches.append((INDX_COUNT, len(scan.segments).to_bytes(4, "little")))
    patches.append((INDX_ENTRIES, b"".join(s.super_entry() for s in scan.segments)))
    for segment in scan.segments:
        patches += segment.size_patches(closed=True)
    patches.append((last.frames_end, last.index(scan.entries)))
    return all(file.peek(offset, len(data)) == data for offset, data in patches)
