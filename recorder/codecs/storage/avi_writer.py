"""Append-only writer of AVI files (``mjpg``), and its resumption.

The file's bytes depend only on its frames and the segment limit. After any kills and resumptions
the file equals that of an uninterrupted writer.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recorder.codecs.storage.avi import (
    CHUNK,
    FRAME_ID,
    INDX_COUNT,
    INDX_ENTRIES,
    MAX_FRAME_BYTES,
    SEGMENT_BYTES,
    SEGMENT_HEAD_BYTES,
    SUPER_ENTRY,
    AviLayout,
    Entries,
    Segment,
)
from recorder.codecs.storage.avi_scan import AviScan, scan_avi
from recorder.codecs.storage.channel import ChannelWriter, ReadFile, reopen
from recorder.common.errors import StorageError
from recorder.common.files import AppendFile, Buffer, Disk


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
