"""``bytes``: samples of any length one after another, and an index file.

``payload`` holds the samples as they came, ``payload_i`` a row of two u8 for each sample: its
offset and its bytes.  A sample may be empty.  roverd does not know samples of variable length, so
``meta.json`` declares the index alone, as ``raw``; ``payload.json`` has the entry of the channel.
"""

from __future__ import annotations

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

_ROW_BYTES = 16

Rows = npt.NDArray[np.uint64]


class BytesWriter(ChannelWriter):
    """Concatenates samples and keeps their index file; `files` is data, index."""

    def __init__(self, data: AppendFile, index: AppendFile) -> None:
        self.files = [data, index]
        self._data = data
        self._index = index

    def append(self, frame: Buffer, count: int, sizes: npt.NDArray[np.uint32] | None) -> None:
        if sizes is None:
            raise ValueError(f"{self._data.path}: bytes needs the size of every sample")
        rows = np.empty((count, 2), "<u8")
        rows[:, 1] = sizes
        rows[:, 0] = np.cumsum(sizes, dtype=np.uint64) - rows[:, 1] + np.uint64(self._data.length)
        self._data.append(frame)
        self._index.append(rows.tobytes())


class BytesReader(FileReader, FramedReader):
    """Reads samples of any length; holds the index (16 bytes a sample).

    `encoded` returns exactly a sample's bytes; arrays hold them followed by zeros.
    """

    def _open(self, partial: bool) -> None:
        path = _index_path(self.path)
        with ReadFile(path) as file:
            raw = file.peek(0, file.size)
        if len(raw) % _ROW_BYTES and not partial:
            raise FormatError(f"{path}: {len(raw)} bytes are not rows of {_ROW_BYTES}")
        rows = _rows(raw)
        good = _good_rows(rows, self.sample_bytes)
        if good < len(rows):
            raise FormatError(
                f"{path}: row {good} is {rows[good].tolist()}: rows are offset and bytes (at most "
                f"{self.sample_bytes}), without gaps"
            )
        ends = rows.sum(axis=1)
        whole = int(np.searchsorted(ends, self._file.size, side="right"))
        if whole < len(rows) and not partial:
            raise FormatError(
                f"{self.path}: has {self._file.size} bytes, its index ends at {ends[-1]}"
            )
        self._rows = rows[:whole]
        self._take_tail(self._file.size - (int(ends[whole - 1]) if whole else 0), partial)

    def __len__(self) -> int:
        return len(self._rows)

    def encoded(self, index: int) -> bytes:
        offset, size = self._rows[self._index(index)].tolist()
        return self._file.read(offset, size)

    def units(self, start: int, stop: int) -> Units:
        rows = self._rows[start:stop]
        return sample_units(start, rows[:, 0], rows[:, 1])

    def encoded_range(self, start: int, stop: int) -> list[bytes]:
        rows = self._rows[start:stop]
        if not len(rows):
            return []
        begin = int(rows[0, 0])
        data = self._file.read(begin, int(rows[-1].sum()) - begin)
        return [data[at - begin : at - begin + size] for at, size in rows.tolist()]


class BytesExtent(Extent):
    """The samples that index and data file have both."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._rows = _rows(_index_path(path).read_bytes())
        good = _good_rows(self._rows, most_bytes)
        ends = self._rows[:good].sum(axis=1)
        self.samples = int(np.searchsorted(ends, path.stat().st_size, side="right"))

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        data = int(self._rows[samples - 1].sum()) if samples else 0
        index = _index_path(self._path).name
        return samples, {self._path.name: data, index: _ROW_BYTES * samples}


class BytesStorage(ChannelStorage):
    """A data file and its index."""

    reader = BytesReader

    def create(self, disk: Disk) -> BytesWriter:
        data = disk.create(self.path)
        try:
            return BytesWriter(data, disk.create(_index_path(self.path)))
        except BaseException:
            data.close()
            raise

    def resume(self, disk: Disk, lengths: Mapping[str, int]) -> BytesWriter:
        path, index = self.path, _index_path(self.path)
        data_length, index_length = (committed_length(lengths, file) for file in (path, index))
        end = 0
        if index_length >= _ROW_BYTES and not index_length % _ROW_BYTES:
            with ReadFile(index) as file:
                last = _rows(file.peek(index_length - _ROW_BYTES, _ROW_BYTES))
            end = int(last.sum()) if len(last) else -1
        if index_length % _ROW_BYTES or end != data_length:
            raise StorageError(
                f"{path}: committed lengths {data_length} and {index_length} (index) do not "
                "belong to one sample"
            )
        data = reopen(disk, path, data_length)
        try:
            return BytesWriter(data, reopen(disk, index, index_length))
        except BaseException:
            data.close()
            raise

    def measure(self, committed: int) -> BytesExtent:  # noqa: ARG002
        return BytesExtent(self.path, self.spec.sample_bytes)

    def known_lengths(self, samples: int) -> dict[str, int]:
        return {_index_path(self.path).name: _ROW_BYTES * samples}


def _index_path(path: Path) -> Path:
    return path.with_name(channel_files(path.name, "bytes")[1])


def _rows(raw: bytes) -> Rows:
    return np.frombuffer(raw[: len(raw) // _ROW_BYTES * _ROW_BYTES], "<u8").reshape(-1, 2)


def _good_rows(rows: Rows, most_bytes: int) -> int:
    """Rows up to the first one that is wrong."""
    starts = np.zeros(len(rows), np.uint64)
    starts[1:] = rows[:-1].sum(axis=1)
    bad = (rows[:, 0] != starts) | (rows[:, 1] > most_bytes)
    return int(np.argmax(bad)) if bad.any() else len(rows)
