"""Layout of this recorder's AVI files: OpenDML AVI 2.0 with one MJPG stream, of any size.

All numbers are little-endian, and chunks are padded to an even length::

    RIFF 'AVI '
      LIST 'hdrl'
        avih                     main header; dwTotalFrames counts the first RIFF only
        LIST 'strl'
          strh strf              'vids' 'MJPG', dwRate / dwScale frames per second
          indx                   super index: where each segment's ix00 is, and its frame count
        LIST 'odml'  dmlh        frames in all
      LIST 'movi'
        00dc 00dc ...            one JPEG each
        ix00                     standard index of this segment
      idx1                       the index of AVI 1.0, for the first segment
    RIFF 'AVIX'                  as many as it takes, each of about `SEGMENT_BYTES`
      LIST 'movi'  00dc ... ix00

While a segment grows, its RIFF and movi sizes are placeholders and all frame counts are 0. FFmpeg
(under OpenCV) then reads in order from the start of the frame list to the end of the file.

Sources: Microsoft, "AVI RIFF File Reference"; "OpenDML AVI File Format Extensions" 1.02, chapters
"AVIX" (2.0), "Index Locations" (3.0) and "Extended AVI Header" (5.0).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recorder.codecs.storage.channel import ChannelWriter, ReadFile, reopen
from recorder.common.errors import FormatError, StorageError
from recorder.common.files import AppendFile, Buffer, Disk

SEGMENT_BYTES = 1 << 30
"""Length, without its index, at which a segment is closed before the frame that exceeds it."""
SUPER_ENTRIES = 4096
"""Number of entries reserved in the super index: 4 TiB in segments of `SEGMENT_BYTES`."""
DEFAULT_RATE_HZ = 30.0

PLACEHOLDER = 4
"""Size of a list that is still growing: only the four bytes of its type.

FFmpeg stops trusting the sizes and takes the file's own length as the end, so that a torn last
frame is not read; 0xFFFFFFFF there made it decode torn frames.
"""
FRAME_ID = b"00dc"
MAX_FRAME_BYTES = (1 << 31) - 1  # bit 31 of an index entry's size means "no key frame"

CHUNK = struct.Struct("<4sI")
LIST = struct.Struct("<4sI4s")
INDEX_HEAD = struct.Struct("<4sIHBBI4sQI")  # standard index, chapter 3.0: AVISTDINDEX
SUPER_ENTRY = struct.Struct("<QII")

# Offsets of header fields, in bytes from the start of the file.
RIFF_SIZE = 4
AVIH = 24
AVIH_FRAMES = AVIH + 8 + 16
STRH = 100
STRH_FRAMES = STRH + 8 + 32
STRF = 164
INDX = 212
INDX_COUNT = INDX + 8 + 4
INDX_ENTRIES = INDX + 8 + 24
_DMLH_BYTES = 248
_ODML_BYTES = 12 + 8 + _DMLH_BYTES

_HAS_INDEX, _IS_INTERLEAVED, _TRUST_CHUNK_TYPE = 0x10, 0x100, 0x800

SEGMENT_HEAD_BYTES = 24
"""Size of the RIFF and movi list headers of a segment after the first."""

Entries = npt.NDArray[np.uint32]
"""Array [n, 2]: offset of a frame's chunk from its segment's movi list, size of the JPEG."""


@dataclass(frozen=True, slots=True)
class AviLayout:
    """Parameters of a file's header; the rest of the file follows from the frames.

    Attributes:
        width, height: size of the frames in pixels.
        rate: frames per second.
        super_entries: number of segments that the super index can hold.
    """

    width: int
    height: int
    rate: Fraction
    super_entries: int = SUPER_ENTRIES

    @classmethod
    def of(
        cls, width: int, height: int, rate_hz: float | None, super_entries: int = SUPER_ENTRIES
    ) -> AviLayout:
        """Make the layout for a nominal rate (30 Hz if None)."""
        rate = Fraction(rate_hz or DEFAULT_RATE_HZ).limit_denominator(100_000)
        return cls(width, height, max(rate, Fraction(1, 100_000)), super_entries)

    @property
    def movi(self) -> int:
        """Offset of the first movi list."""
        return INDX_ENTRIES + SUPER_ENTRY.size * self.super_entries + _ODML_BYTES

    @property
    def header_bytes(self) -> int:
        """Offset of the first frame's chunk."""
        return self.movi + LIST.size

    def header(self) -> bytes:
        """Return the header of a file without frames, with placeholders for sizes that may grow."""
        frame_bytes = min(self.width * self.height * 3, 0xFFFFFFFF)
        avih = struct.pack(
            "<14I",
            min(round(1_000_000 / self.rate), 0xFFFFFFFF),
            0,  # dwMaxBytesPerSec: unknown
            0,
            _HAS_INDEX | _IS_INTERLEAVED | _TRUST_CHUNK_TYPE,
            0,  # dwTotalFrames
            0,
            1,
            frame_bytes,  # dwSuggestedBufferSize
            self.width,
            self.height,
            *(0, 0, 0, 0),
        )
        strh = struct.pack(
            "<4s4sIHH8I4H",
            *(b"vids", b"MJPG", 0, 0, 0, 0),
            self.rate.denominator,
            self.rate.numerator,
            *(0, 0),  # dwStart, dwLength
            frame_bytes,
            0xFFFFFFFF,  # dwQuality: the default one
            0,  # dwSampleSize: varies
            *(0, 0, min(self.width, 0x7FFF), min(self.height, 0x7FFF)),
        )
        strf = struct.pack(
            "<IiiHH4s5I", 40, self.width, self.height, 1, 24, b"MJPG", frame_bytes, 0, 0, 0, 0
        )
        indx = struct.pack("<HBBI4s3I", 4, 0, 0, 0, FRAME_ID, 0, 0, 0)
        indx += bytes(SUPER_ENTRY.size * self.super_entries)
        strl = b"strl" + chunk(b"strh", strh) + chunk(b"strf", strf) + chunk(b"indx", indx)
        odml = b"odml" + chunk(b"dmlh", bytes(_DMLH_BYTES))
        hdrl = b"hdrl" + chunk(b"avih", avih) + chunk(b"LIST", strl) + chunk(b"LIST", odml)
        return (
            LIST.pack(b"RIFF", PLACEHOLDER, b"AVI ")
            + chunk(b"LIST", hdrl)
            + LIST.pack(b"LIST", PLACEHOLDER, b"movi")
        )

    def segment_head(self) -> bytes:
        """Return the RIFF and movi list headers of a further segment."""
        return LIST.pack(b"RIFF", PLACEHOLDER, b"AVIX") + LIST.pack(b"LIST", PLACEHOLDER, b"movi")

    def count_patches(self, total: int, in_first: int) -> list[tuple[int, bytes]]:
        """Return the patches (offset, bytes) that set the frame counts."""
        return [
            (AVIH_FRAMES, in_first.to_bytes(4, "little")),
            (STRH_FRAMES, total.to_bytes(4, "little")),
            (self.movi - _DMLH_BYTES, total.to_bytes(4, "little")),
        ]


def chunk(name: bytes, data: bytes) -> bytes:
    """Make a RIFF chunk; lists pass their type as the first four bytes of `data`."""
    return CHUNK.pack(name, len(data)) + data


@dataclass(slots=True)
class Segment:
    """One RIFF of a file, as its headers describe it.

    Attributes:
        riff: offset of the RIFF chunk (0 for the first).
        movi: offset of its movi list.
        count: number of its frames.
        frames_end: offset after the last frame's chunk, padding included.
    """

    riff: int
    movi: int
    count: int
    frames_end: int

    @property
    def index_bytes(self) -> int:
        """Length of the segment's ix00 chunk."""
        return INDEX_HEAD.size + 8 * self.count

    @property
    def end(self) -> int:
        """Offset after the closed segment, with its indexes."""
        end = self.frames_end + self.index_bytes
        return end if self.riff else end + CHUNK.size + 16 * self.count

    def index(self, entries: Entries) -> bytes:
        """Return the chunks that close the segment: ix00, and idx1 in the first segment."""
        # Offsets of ix00 name a chunk's data, those of idx1 its header, relative to the list's
        # type field, 8 bytes into the list.
        standard = entries + np.array([8, 0], np.uint32)
        head = INDEX_HEAD.pack(
            *(b"ix00", self.index_bytes - 8, 2, 0, 1, self.count, FRAME_ID, self.movi, 0)
        )
        index = head + standard.astype("<u4").tobytes()
        if self.riff:
            return index
        old = np.empty((self.count, 4), "<u4")
        old[:, 0] = int.from_bytes(FRAME_ID, "little")
        old[:, 1] = 0x10  # AVIIF_KEYFRAME
        old[:, 2] = entries[:, 0] - 8
        old[:, 3] = entries[:, 1]
        return index + chunk(b"idx1", old.tobytes())

    def size_patches(self, closed: bool) -> list[tuple[int, bytes]]:
        """Return the patches (offset, bytes) that set the sizes of the segment's two lists."""
        riff = self.end - self.riff - 8 if closed else PLACEHOLDER
        movi = self.frames_end + self.index_bytes - self.movi - 8 if closed else PLACEHOLDER
        return [
            (self.riff + 4, riff.to_bytes(4, "little")),
            (self.movi + 4, movi.to_bytes(4, "little")),
        ]

    def super_entry(self) -> bytes:
        """Return the segment's entry of the super index."""
        return SUPER_ENTRY.pack(self.frames_end, self.index_bytes, self.count)


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


class AviWriter(ChannelWriter):
    """Writer of frames in order; holds the index of the current segment only (8 bytes a frame).

    >>> writer = AviWriter.create(path, disk, AviLayout.of(1920, 1080, 30.0))  # doctest: +SKIP
    >>> writer.append(jpegs, count=2, sizes=np.array([81920, 79872], np.uint32))  # doctest: +SKIP
    >>> writer.finish()  # doctest: +SKIP
    """

    def __init__(
        self,
        file: AppendFile,
        layout: AviLayout,
        segment_bytes: int,
        closed: Sequence[Segment] = (),
        current: Segment | None = None,
        entries: Entries | None = None,
    ) -> None:
        """Initialize the writer; use `create` or `resume` instead."""
        self.files = [file]
        self._file = file
        self._layout = layout
        self._limit = segment_bytes
        self._closed = len(closed)
        self._total = sum(s.count for s in closed)
        self._in_first = closed[0].count if closed else 0
        self._segment = current or Segment(0, layout.movi, 0, layout.header_bytes)
        # Offset and size of each frame in turn: 'I' is u4 on all that CPython runs on.
        self._entries = array("I", () if entries is None else entries.tobytes())
        self._finished = False

    @classmethod
    def create(
        cls, path: Path, disk: Disk, layout: AviLayout, segment_bytes: int = SEGMENT_BYTES
    ) -> AviWriter:
        """Create a file with its header; raise FileExistsError if it exists."""
        file = disk.create(path)
        _append_header(file, layout)
        return cls(file, layout, segment_bytes)

    @classmethod
    def resume(
        cls,
        path: Path,
        disk: Disk,
        length: int,
        layout: AviLayout,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> AviWriter:
        """Resume at a committed length, which may be that of a finished file.

        A finished file becomes shorter than committed, by the indexes at its end. The next commit
        corrects that; resuming again before it works, too.

        Raises:
            StorageError: the file is shorter, the length does not end at a whole frame, or the file
                was begun with another frame size, rate or index.
            FormatError: the file is not an AVI of this recorder.
        """
        if length == 0:
            file = reopen(disk, path, 0)
            _append_header(file, layout)
            return cls(file, layout, segment_bytes)
        scan = scan_avi(path, length)
        if scan.layout != layout:
            raise StorageError(f"{path}: cannot resume as {layout}, it was begun as {scan.layout}")
        if scan.end < length and scan.finished_length != length:
            raise StorageError(f"{path}: has {scan.end} bytes where {length} were committed")
        if scan.end != scan.frames_end and scan.finished_length != scan.end:
            raise StorageError(
                f"{path}: committed length {length} is inside a frame, whole ones end at "
                f"{scan.frames_end}"
            )
        return cls._resume_scan(scan, disk, segment_bytes)

    @classmethod
    def _resume_scan(cls, scan: AviScan, disk: Disk, segment_bytes: int) -> AviWriter:
        """Cut the file to its frames and reset every header field to "in progress"."""
        *closed, current = scan.segments
        if current.frames_end > scan.end:  # cut between a frame and its padding
            file = reopen(disk, scan.path, scan.end)
            file.append(b"\0")
        else:
            file = reopen(disk, scan.path, current.frames_end)
        file.flush()
        layout = scan.layout
        _declare_patchable(file, layout, scan.segments)
        patches = layout.count_patches(0, 0)
        patches.append((INDX_COUNT, len(closed).to_bytes(4, "little")))
        table = b"".join(s.super_entry() for s in closed)
        patches.append((INDX_ENTRIES, table.ljust(SUPER_ENTRY.size * layout.super_entries, b"\0")))
        for segment in closed:
            patches += segment.size_patches(closed=True)
        patches += current.size_patches(closed=False)
        _patch_changed(file, scan.path, patches)
        return cls(file, layout, segment_bytes, closed, current, scan.entries)

    def append(
        self,
        frame: Buffer,
        count: int,  # noqa: ARG002  (the sizes give it)
        sizes: npt.NDArray[np.uint32] | None,
    ) -> None:
        if sizes is None or self._finished:
            raise ValueError(f"{self._file.path}: no sizes given, or finished already")
        view = memoryview(frame).cast("B")
        put, entries = self._file.append, self._entries
        start = 0
        for size in sizes.tolist():
            if size > MAX_FRAME_BYTES:
                raise StorageError(f"{self._file.path}: a frame of {size} bytes; AVI ends at 2 GiB")
            segment = self._segment
            padding = size & 1
            end = self._file.length + 8 + size + padding
            if end - segment.riff > self._limit and entries:
                self._next_segment()
                segment = self._segment
            entries.append(self._file.length - segment.movi)
            entries.append(size)
            put(CHUNK.pack(FRAME_ID, size))
            put(view[start : start + size])
            if padding:
                put(b"\0")
            start += size

    def _next_segment(self) -> None:
        if self._closed + 1 >= self._layout.super_entries:
            raise StorageError(
                f"{self._file.path}: full, the super index has room for "
                f"{self._layout.super_entries} segments"
            )
        self._close_segment()
        riff = self._file.length
        self._segment = Segment(riff, riff + 12, 0, riff + SEGMENT_HEAD_BYTES)
        for offset, data in self._segment.size_patches(closed=False):
            self._file.patchable(offset, len(data))
        self._file.append(self._layout.segment_head())

    def _close_segment(self) -> None:
        """Append the segment's indexes and patch its sizes and super index entry."""
        entries = np.array(self._entries, np.uint32).reshape(-1, 2)
        segment = self._segment
        segment.count, segment.frames_end = len(entries), self._file.length
        self._file.append(segment.index(entries))
        self._file.flush()
        for offset, data in segment.size_patches(closed=True):
            self._file.patch(offset, data)
        entry_at = INDX_ENTRIES + SUPER_ENTRY.size * self._closed
        self._file.patch(entry_at, segment.super_entry())
        self._closed += 1
        self._file.patch(INDX_COUNT, self._closed.to_bytes(4, "little"))
        self._total += segment.count
        if not segment.riff:
            self._in_first = segment.count
        del self._entries[:]

    def finish(self) -> None:
        """Close the last segment and set the frame counts; a second call does nothing."""
        if self._finished:
            return
        self._close_segment()
        for offset, data in self._layout.count_patches(self._total, self._in_first):
            self._file.patch(offset, data)
        self._finished = True


def _append_header(file: AppendFile, layout: AviLayout) -> None:
    _declare_patchable(file, layout, [Segment(0, layout.movi, 0, layout.header_bytes)])
    file.append(layout.header())


def _declare_patchable(file: AppendFile, layout: AviLayout, segments: Sequence[Segment]) -> None:
    """Declare all fields that are patched while the file grows: sizes, counts, super index."""
    patches = layout.count_patches(0, 0)
    for segment in segments:
        patches += segment.size_patches(closed=False)
    for offset, data in patches:
        file.patchable(offset, len(data))
    file.patchable(INDX_COUNT, 4)
    file.patchable(INDX_ENTRIES, SUPER_ENTRY.size * layout.super_entries)


def _patch_changed(file: AppendFile, path: Path, patches: list[tuple[int, bytes]]) -> None:
    with ReadFile(path) as reader:
        for offset, data in patches:
            if reader.peek(offset, len(data)) != data:
                file.patch(offset, data)
