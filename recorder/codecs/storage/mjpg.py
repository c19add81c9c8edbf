"""JPEG frames of an AVI file (``mjpg``).

Frames decode to RGB, u1 [height, width, 3], as in roverd's ``VideoChannel``. Pixel values are
libjpeg-turbo's; FFmpeg, which roverd uses through OpenCV, differs from it by a few counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from recorder.codecs.storage.avi import (
    CHUNK,
    FRAME_ID,
    AviLayout,
    AviWriter,
    frame_offset,
    scan_avi,
)
from recorder.codecs.storage.avi_demux import chunk_id_fits, find_frames
from recorder.codecs.storage.channel import (
    ChannelStorage,
    Extent,
    FileReader,
    FramedReader,
    ReadFile,
    Units,
    committed_length,
    sample_units,
)
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError, StorageError
from recorder.common.files import Disk


class MjpgReader(FileReader, FramedReader):
    """Reader of ``mjpg``; holds 12 bytes a frame and the frame that is decoded."""

    def _open(self, partial: bool) -> None:
        self._frames = find_frames(self._file)
        self._take_tail(self._frames.tail, partial)
        if self._frames.missing and not partial:
            raise FormatError(
                f"{self.path}: its header counts {self._frames.missing} frames more than the "
                f"{len(self)} that it holds"
            )

    def __len__(self) -> int:
        return len(self._frames.sizes)

    def _where(self, index: int) -> str:
        return f"{self.path}: frame {index}"

    def encoded(self, index: int) -> bytes:
        at = self._index(index)
        offset, size = int(self._frames.offsets[at]), int(self._frames.sizes[at])
        data = self._file.read(offset - CHUNK.size, CHUNK.size + size)
        name, chunk_bytes = CHUNK.unpack_from(data)
        if not chunk_id_fits(name) or chunk_bytes != size:
            raise FormatError(f"{self.path}: frame {at}: no frame where the index says, {offset}")
        return data[CHUNK.size :]

    def units(self, start: int, stop: int) -> Units:
        """Return whole chunks, with padding, as units."""
        sizes = self._frames.sizes[start:stop].astype(np.int64)
        offsets = self._frames.offsets[start:stop] - CHUNK.size
        return sample_units(start, offsets, CHUNK.size + sizes + (sizes & 1))

    def check_finished(self) -> None:
        if not scan_avi(self.path).finished:
            raise FormatError(f"{self.path}: frames are not all indexed and counted: seeking fails")


class AviExtent(Extent):
    """Extent of the frames of a file, finished or cut anywhere."""

    def __init__(self, path: Path) -> None:
        self._scan = scan_avi(path)
        self.samples = self._scan.total

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        return samples, {self._scan.path.name: self._length(samples)}

    def needed(self, samples: int) -> dict[str, int]:
        length = self._length(samples)
        return {self._scan.path.name: length - self._is_padded(samples, length)}

    def _is_padded(self, samples: int, length: int) -> bool:
        """Return whether the last frame before a length ends with padding.

        This is known for frames of the last segment.
        """
        segment = self._scan.segments[-1]
        index = samples - 1 - (self._scan.total - segment.count)
        if not 0 <= index < segment.count:
            return False
        offset, size = map(int, self._scan.entries[index])
        at = segment.movi + offset
        with ReadFile(self._scan.path) as file:
            whole = file.peek(at, CHUNK.size) == CHUNK.pack(FRAME_ID, size)
        return whole and at + CHUNK.size + size + 1 == length

    def _length(self, samples: int) -> int:
        """Return where the frames before a number end.

        A segment's headers belong to its first frame.
        """
        segments = self._scan.segments
        for number, segment in enumerate(segments):
            if samples > segment.count:
                samples -= segment.count
                continue
            if samples == segment.count:
                return min(segment.frames_end, self._scan.end)
            if number == len(segments) - 1 and self._scan.end < segment.end:
                return segment.movi + int(self._scan.entries[samples][0])
            # An index may be garbage between its ends, where it was written after the commit.
            return frame_offset(self._scan.path, segment, samples)
        return self._scan.frames_end


class AviStorage(ChannelStorage):
    """Storage of an AVI file."""

    reader = MjpgReader

    def create(self, disk: Disk) -> AviWriter:
        return AviWriter.create(self.path, disk, _make_layout(self.spec, self.rate_hz))

    def resume(self, disk: Disk, lengths: Mapping[str, int]) -> AviWriter:
        layout = _make_layout(self.spec, self.rate_hz)
        return AviWriter.resume(self.path, disk, committed_length(lengths, self.path), layout)

    def measure(self, committed: int) -> AviExtent:  # noqa: ARG002
        return AviExtent(self.path)


def _make_layout(spec: ChannelSpec, rate_hz: float | None) -> AviLayout:
    height, width, _ = spec.shape
    if max(width, height) > 0x7FFFFFFF:
        raise StorageError(f"{spec.name}: an AVI cannot hold frames of {width} x {height}")
    return AviLayout.of(width, height, rate_hz)
