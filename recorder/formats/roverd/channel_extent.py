"""How many whole samples a channel's files hold, and where they would have to be cut.

For recovery: a writer was killed, or power was cut, and the files end anywhere.  What was
committed is trusted; what follows is looked at sample by sample, so that the cost goes by the
tail and not by the recording.
"""

from __future__ import annotations

import lzma
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from recorder.contract.errors import FormatError
from recorder.contract.streams import ChannelSpec
from recorder.formats.roverd.avi_scan import AviScan, frame_offset, scan_avi
from recorder.formats.roverd.channel import Layout, ReadFile
from recorder.formats.roverd.xz import LzmaReader, index_path


class Extent(ABC):
    """The whole samples of one channel, as its files are.

    Attributes:
        samples: how many there are, from the first one on.
    """

    samples: int

    @abstractmethod
    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        """Where to cut the channel to so many samples.

        Args:
            samples: at most `self.samples`.

        Returns:
            The samples that remain (fewer where the format cannot be cut there), and the length
            of each file by its name.
        """


def measure(folder: Path, spec: ChannelSpec, committed: int) -> Extent:
    """Measure a channel; a file that is missing, or is not of its format, holds nothing.

    Args:
        folder: the stream's folder.
        spec: the channel.
        committed: samples that the journal vouches for; those behind are checked one by one.
    """
    path = folder / spec.name
    try:
        match spec.format:
            case "mjpg":
                return _VideoExtent(path)
            case "lzmaf":
                return _LzmafExtent(path, committed)
            case "lzma":
                return _LzmaExtent(path, spec)
            case _:
                return PlainExtent(path, spec.sample_bytes)
    except (FormatError, OSError):
        return _NoExtent([path, index_path(path)] if spec.format == "lzmaf" else [path])


class PlainExtent(Extent):
    """Samples of one length, one after another (``raw``, and the time files)."""

    def __init__(self, path: Path, sample_bytes: int) -> None:
        self._name, self._sample_bytes = path.name, sample_bytes
        self.samples = path.stat().st_size // sample_bytes

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        return samples, {self._name: samples * self._sample_bytes}


class _NoExtent(Extent):
    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self.samples = 0

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        return samples, {path.name: 0 for path in self._paths if path.exists()}


class _LzmafExtent(Extent):
    def __init__(self, path: Path, committed: int) -> None:
        self._path = path
        raw = index_path(path).read_bytes()
        ends = np.frombuffer(raw[: len(raw) // 8 * 8], "<u8")
        if not len(ends) or ends[0] != 0:
            raise FormatError(f"{index_path(path)}: does not begin with 0")
        file = ReadFile(path)
        try:
            rising = np.concatenate([[True], ends[1:] > ends[:-1]])
            whole = int(np.argmin(np.append(rising & (ends <= file.size), False))) - 1
            for i in range(min(committed, whole), whole):
                frame = file.read(int(ends[i]), int(ends[i + 1] - ends[i]))
                if not _decodes(frame):
                    whole = i
                    break
        finally:
            file.close()
        self._ends = ends
        self.samples = whole

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        data = int(self._ends[samples])
        return samples, {self._path.name: data, index_path(self._path).name: 8 * (samples + 1)}


class _VideoExtent(Extent):
    def __init__(self, path: Path) -> None:
        self._scan: AviScan = scan_avi(path)
        self.samples = self._scan.total

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        return samples, {self._scan.path.name: self._length(samples)}

    def _length(self, samples: int) -> int:
        """Where the frames before that one end; a segment's headers belong to its first frame."""
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


class _LzmaExtent(Extent):
    def __init__(self, path: Path, spec: ChannelSpec) -> None:
        self._name = path.name
        meta = Layout.from_meta(str(path), spec.meta())
        self._reader = LzmaReader(path, meta, partial=True)
        self._reader.close()
        self.samples = self._reader.boundary(len(self._reader))[0]

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        samples, length = self._reader.boundary(samples)
        return samples, {self._name: length}


def _decodes(frame: bytes) -> bool:
    try:
        lzma.decompress(frame)
    except (lzma.LZMAError, EOFError):
        return False
    return True
