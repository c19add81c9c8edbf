"""``lzmaf``: samples compressed with xz one by one, and an index file.

Every sample is an xz stream of its own; the index file ``NAME_i`` holds u8 offsets into the data
file, first 0, then the end of every sample, n + 1 entries in all.  Any filter chain may be used:
readers call ``lzma.decompress`` on each sample.
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recorder.contract.channel_formats import channel_files
from recorder.contract.errors import FormatError, StorageError
from recorder.contract.wire import Buffer
from recorder.formats.disk import AppendFile, Disk
from recorder.formats.roverd.channel import (
    ChannelWriter,
    FileReader,
    FramedReader,
    ReadFile,
    Units,
    committed_length,
    reopen,
    sample_units,
)
from recorder.formats.roverd.storage import ChannelStorage, Extent

_INDEX = np.dtype("<u8")


class LzmafWriter(ChannelWriter):
    """Concatenates xz streams and keeps their index file; `files` is data, index."""

    def __init__(self, data: AppendFile, index: AppendFile) -> None:
        self.files = [data, index]
        self._data = data
        self._index = index
        if not index.length:
            index.append(bytes(_INDEX.itemsize))

    def append(
        self,
        frame: Buffer,
        count: int,  # noqa: ARG002  (the sizes tell)
        sizes: npt.NDArray[np.uint32] | None,
    ) -> None:
        if sizes is None:
            raise ValueError(f"{self._data.path}: lzmaf needs the size of every sample")
        ends = np.cumsum(sizes, dtype=_INDEX)
        ends += np.uint64(self._data.length)
        self._data.append(frame)
        self._index.append(ends.tobytes())


def _index_path(path: Path) -> Path:
    return path.with_name(channel_files(path.name, "lzmaf")[1])


class LzmafReader(FileReader, FramedReader):
    """Reads ``lzmaf``; holds the index (8 bytes a sample) and one sample."""

    def _open(self, partial: bool) -> None:
        path = _index_path(self.path)
        while True:
            with ReadFile(path) as file:
                raw = file.peek(0, file.size)
            # Packing after the session replaces both files at once: they must be of one state.
            if self._file.in_place():
                break
            self._file.close()
            self._file = ReadFile(self.path)
        torn = len(raw) % _INDEX.itemsize
        if (torn or not raw) and not partial:
            raise FormatError(f"{path}: {len(raw)} bytes are not u8 offsets, one more than samples")
        ends = np.frombuffer(raw[: len(raw) - torn], _INDEX)
        if not len(ends):
            ends = np.zeros(1, _INDEX)
        rising = ends[1:] > ends[:-1]
        if ends[0] != 0 or not rising.all():
            at = 0 if ends[0] != 0 else int(np.argmin(rising)) + 1
            raise FormatError(f"{path}: entry {at} is {ends[at]}, offsets start at 0 and rise")
        whole = int(np.searchsorted(ends, self._file.size, side="right"))
        if whole < len(ends) and not partial:
            raise FormatError(
                f"{self.path}: has {self._file.size} bytes, its index ends at {ends[-1]}"
            )
        self._ends = ends[:whole]
        self._take_tail(self._file.size - int(self._ends[-1]), partial)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def encoded(self, index: int) -> bytes:
        at = self._index(index)
        start, stop = int(self._ends[at]), int(self._ends[at + 1])
        return self._file.read(start, stop - start)

    def units(self, start: int, stop: int) -> Units:
        ends = self._ends[start : stop + 1].astype(np.int64)
        return sample_units(start, ends[:-1], np.diff(ends))


class LzmafExtent(Extent):
    """Samples that index and data file have both, and that unpack behind the committed ones."""

    def __init__(self, path: Path, committed: int) -> None:
        self._path = path
        raw = _index_path(path).read_bytes()
        ends = np.frombuffer(raw[: len(raw) // 8 * 8], _INDEX)
        if not len(ends) or ends[0] != 0:
            raise FormatError(f"{_index_path(path)}: does not begin with 0")
        with ReadFile(path) as file:
            rising = np.concatenate([[True], ends[1:] > ends[:-1]])
            whole = int(np.argmin(np.append(rising & (ends <= file.size), False))) - 1
            for i in range(min(committed, whole), whole):
                frame = file.read(int(ends[i]), int(ends[i + 1] - ends[i]))
                if not _decodes(frame):
                    whole = i
                    break
        self._ends = ends
        self.samples = whole

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        data = int(self._ends[samples])
        return samples, {self._path.name: data, _index_path(self._path).name: 8 * (samples + 1)}


class LzmafStorage(ChannelStorage):
    """A data file and its index."""

    reader = LzmafReader

    def create(self, disk: Disk) -> LzmafWriter:
        data = disk.create(self.path)
        try:
            return LzmafWriter(data, disk.create(_index_path(self.path)))
        except BaseException:
            data.close()
            raise

    def resume(self, disk: Disk, lengths: Mapping[str, int]) -> LzmafWriter:
        path, index = self.path, _index_path(self.path)
        data_length, index_length = (committed_length(lengths, file) for file in (path, index))
        if index_length:
            with ReadFile(index) as file:
                last = file.peek(index_length - _INDEX.itemsize, _INDEX.itemsize)
            if index_length % _INDEX.itemsize or last != data_length.to_bytes(8, "little"):
                raise StorageError(
                    f"{path}: committed lengths {data_length} and {index_length} (index) do not "
                    "belong to one sample"
                )
        elif data_length:
            raise StorageError(f"{path}: {data_length} bytes were committed without an index")
        data = reopen(disk, path, data_length)
        try:
            return LzmafWriter(data, reopen(disk, index, index_length))
        except BaseException:
            data.close()
            raise

    def measure(self, committed: int) -> LzmafExtent:
        return LzmafExtent(self.path, committed)

    def known_lengths(self, samples: int) -> dict[str, int]:
        return {_index_path(self.path).name: _INDEX.itemsize * (samples + 1)}


def _decodes(frame: bytes) -> bool:
    try:
        lzma.decompress(frame)
    except (lzma.LZMAError, EOFError):
        return False
    return True
