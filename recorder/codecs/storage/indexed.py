"""Channels of a data file and an index file, with samples of any length.

==========  =============================================  ==========================
format      index ``NAME_i``, u8                           a sample is
==========  =============================================  ==========================
``bytes``   offset and bytes of each sample                as it came, may be empty
``h264``    offset, bytes, 1 if it is a keyframe (else 0)  an access unit (Annex B)
``points``  offset and points of each sweep                a packed sweep
``lzmaf``   0, then the end of each sample                 an xz stream
``zstdf``   offset and bytes of each sample                a frame of Zstandard
==========  =============================================  ==========================

Of these formats, roverd only has ``lzmaf``. For the others, ``meta.json`` therefore declares only
the index, as ``raw``; ``NAME.json`` has the entry of the channel.
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recorder.codecs import channel_files
from recorder.codecs.shuffling import decompress, read_content_size
from recorder.codecs.storage.channel import (
    ChannelStorage,
    ChannelWriter,
    Extent,
    FileReader,
    FramedReader,
    ReadFile,
    Units,
    committed_length,
    reopen,
    sample_units,
)
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError, StorageError
from recorder.common.files import AppendFile, Buffer, Disk

_NUMBER_BYTES = 8
_FRAME_BYTES = 1024
"""Bytes by which a frame of Zstandard may be longer than its content, of small samples."""

Rows = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


class Index:
    """Index of ``bytes``: offset and size.

    Args:
        raw: content of the index file.
        shape: shape of a sample.
        data: the data file.
        known: number of rows that a crash cannot have changed; None: all of them.

    Attributes:
        rows: u8 [n, columns], whole rows.
        bounds: u8 [n + 1], 0 and the end of each sample.
        good: number of rows before the first wrong one.
        torn: whether the file ends inside a row, or before the first.
        is_headed: whether the file begins with the format's head.
    """

    columns: ClassVar[int] = 2
    head: ClassVar[bytes] = b""
    unit: ClassVar[str] = "sample"
    layout: ClassVar[str] = "rows of 16"

    def __init__(
        self, raw: bytes, shape: tuple[int, ...], data: ReadFile, known: int | None = None
    ) -> None:
        body = raw[len(self.head) :]
        count, rest = divmod(len(body), self.row_bytes())
        self.torn = bool(rest) or len(raw) < len(self.head)
        self.rows: Rows = np.frombuffer(body, "<u8", count * self.columns).reshape(-1, self.columns)
        self.bounds = np.zeros(count + 1, np.uint64)
        self.shape = shape
        self.is_headed = raw.startswith(self.head)
        if count:
            self.bounds[1:] = self.find_ends(data, count if known is None else min(known, count))
        bad = self.find_bad()
        self.good = int(np.argmax(bad)) if bad.any() else count

    @classmethod
    def row_bytes(cls) -> int:
        """Return the size of a row in bytes."""
        return cls.columns * _NUMBER_BYTES

    @classmethod
    def length(cls, samples: int) -> int:
        """Return the size of the file in bytes, with a number of samples."""
        return len(cls.head) + samples * cls.row_bytes()

    @classmethod
    def encode(
        cls,
        offset: int,
        frame: Buffer,  # noqa: ARG003
        sizes: npt.NDArray[np.uint32],
        shape: tuple[int, ...],  # noqa: ARG003
    ) -> Rows:
        """Make the rows of samples that are appended at an offset of the data file."""
        rows = np.empty((len(sizes), cls.columns), "<u8")
        rows[:, 1] = sizes
        rows[:, 0] = np.cumsum(sizes, dtype=np.uint64) - rows[:, 1] + np.uint64(offset)
        return rows

    def find_ends(self, data: ReadFile, known: int) -> Rows:  # noqa: ARG002
        """Return the end of each sample in the data file, u8 [n]; the first rows are known."""
        ends: Rows = self.rows[:, :2].sum(axis=1)
        return ends

    def find_bad(self) -> Flags:
        """Find the rows that are wrong: bool [n]."""
        return self.find_gaps() | (self.rows[:, 1] > self.shape[0])

    def find_gaps(self) -> Flags:
        """Find the rows whose sample does not begin where the one before ends: bool [n]."""
        gaps: Flags = self.rows[:, 0] != self.bounds[:-1]
        return gaps

    def describe(self, row: int) -> str:
        """Describe a wrong row."""
        return (
            f"row {row} is {self.rows[row].tolist()}: rows are offset and bytes (at most "
            f"{self.shape[0]}), without gaps"
        )

    def is_whole(self, row: int, sample: bytes) -> bool:  # noqa: ARG002
        """Check a sample after the committed ones, and its row."""
        return True


class LzmafIndex(Index):
    """Index of ``lzmaf``: 0, then ends."""

    columns = 1
    head = bytes(_NUMBER_BYTES)
    layout = "u8 offsets, one more than samples"

    @classmethod
    def encode(
        cls,
        offset: int,
        frame: Buffer,  # noqa: ARG003
        sizes: npt.NDArray[np.uint32],
        shape: tuple[int, ...],  # noqa: ARG003
    ) -> Rows:
        return np.cumsum(sizes, dtype=np.uint64) + np.uint64(offset)

    def find_bad(self) -> Flags:
        return self.bounds[1:] <= self.bounds[:-1]

    def describe(self, row: int) -> str:
        return f"entry {row + 1} is {self.bounds[row + 1]}, offsets start at 0 and rise"

    def is_whole(self, row: int, sample: bytes) -> bool:  # noqa: ARG002
        try:
            lzma.decompress(sample)
        except (lzma.LZMAError, EOFError):
            return False
        return True


class ZstdfIndex(Index):
    """Index of ``zstdf``: offset and size."""

    def find_bad(self) -> Flags:
        sizes = self.rows[:, 1]
        bad: Flags = self.find_gaps() | (sizes == 0) | (sizes > self._most_bytes())
        return bad

    def _most_bytes(self) -> int:
        return math.prod(self.shape) * _NUMBER_BYTES + _FRAME_BYTES

    def describe(self, row: int) -> str:
        return (
            f"row {row} is {self.rows[row].tolist()}: rows are offset and bytes (1 to "
            f"{self._most_bytes()}), without gaps"
        )

    def is_whole(self, row: int, sample: bytes) -> bool:  # noqa: ARG002
        values = math.prod(self.shape)
        try:
            size = read_content_size(sample)
            return 0 < size <= values * _NUMBER_BYTES and len(decompress(sample, "")) == size
        except FormatError:
            return False


class IndexedWriter(ChannelWriter):
    """Writer of samples and their index file; `files` are data and index."""

    def __init__(
        self, data: AppendFile, index: AppendFile, rows: type[Index], shape: tuple[int, ...]
    ) -> None:
        self.files = [data, index]
        self._shape = shape
        self._data, self._index, self._rows = data, index, rows
        if not index.length:
            index.append(rows.head)

    def append(
        self,
        frame: Buffer,
        count: int,  # noqa: ARG002  (the sizes give it)
        sizes: npt.NDArray[np.uint32] | None,
    ) -> None:
        if sizes is None:
            raise ValueError(f"{self._data.path}: needs the size of every {self._rows.unit}")
        rows = self._rows.encode(self._data.length, frame, sizes, self._shape)
        self._data.append(frame)
        self._index.append(rows.tobytes())


class IndexedReader(FileReader, FramedReader):
    """Reader of samples by their index; holds 8 bytes for each sample, and one sample.

    For ``bytes``, `encoded` returns exactly a sample's bytes; arrays hold them followed by zeros.
    """

    index: ClassVar[type[Index]] = Index

    def _open(self, partial: bool) -> None:
        path = _index_path(self.path, self.format)
        while True:
            with ReadFile(path) as file:
                raw = file.peek(0, file.size)
            # Packing after the session replaces both files at once: they must be of one state.
            if self._file.in_place():
                break
            self._file.close()
            self._file = ReadFile(self.path)
        index = self.index(raw, self.shape, self._file)
        if index.torn and not partial:
            raise FormatError(f"{path}: {len(raw)} bytes are not {index.layout}")
        if not index.is_headed and len(raw) >= len(index.head):
            raise FormatError(f"{path}: does not begin with 0")
        if index.good < len(index.rows):
            raise FormatError(f"{path}: {index.describe(index.good)}")
        whole = int(np.searchsorted(index.bounds, self._file.size, side="right")) - 1
        if whole < len(index.rows) and not partial:
            raise FormatError(
                f"{self.path}: has {self._file.size} bytes, its index ends at {index.bounds[-1]}"
            )
        self._bounds = index.bounds[: whole + 1]
        self._take_rows(index.rows[:whole])
        self._take_tail(self._file.size - int(self._bounds[-1]), partial)

    def _take_rows(self, rows: Rows) -> None:
        """Keep the other columns of the rows."""

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def encoded(self, index: int) -> bytes:
        at = self._index(index)
        begin, end = self._bounds[at : at + 2].tolist()
        return self._file.read(begin, end - begin)

    def units(self, start: int, stop: int) -> Units:
        bounds = self._bounds[start : stop + 1].astype(np.int64)
        return sample_units(start, bounds[:-1], np.diff(bounds))

    def encoded_range(self, start: int, stop: int) -> list[bytes]:
        bounds = self._bounds[start : stop + 1].tolist()
        begin = bounds[0]
        data = self._file.read(begin, bounds[-1] - begin)
        return [data[at - begin : end - begin] for at, end in pairwise(bounds)]


class BytesReader(IndexedReader):
    """Reader of ``bytes``.

    The longest sample may be much longer than others: zeros behind a sample's bytes are memory that
    is not written, and so not used.
    """

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        block = np.zeros((stop - start, *self.shape), self.dtype)
        for row, frame in zip(block, self.encoded_range(start, stop), strict=True):
            row[: len(frame)] = np.frombuffer(frame, np.uint8)
        return block

    def check(self, index: int) -> npt.NDArray[Any]:
        at = self._index(index)
        value: npt.NDArray[Any] = self._read(at, at + 1)[0]
        return value


class IndexedExtent(Extent):
    """Extent of the samples in both index and data file; checks those after the committed ones."""

    def __init__(self, path: Path, spec: ChannelSpec, committed: int, kind: type[Index]) -> None:
        self._path, self._index_path = path, _index_path(path, spec.format)
        raw = self._index_path.read_bytes()
        with ReadFile(path) as file:
            self._index = index = kind(raw, spec.shape, file, committed)
            if not index.is_headed:
                raise FormatError(f"{self._index_path}: does not begin with 0")
            bounds = index.bounds[: index.good + 1]
            whole = int(np.searchsorted(bounds, file.size, side="right")) - 1
            for at in range(min(committed, whole), whole):
                start, end = bounds[at : at + 2].tolist()
                if not index.is_whole(at, file.read(start, end - start)):
                    whole = at
                    break
        self.samples = whole

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        data, length = int(self._index.bounds[samples]), self._index.length(samples)
        return samples, {self._path.name: data, self._index_path.name: length}


class IndexedStorage(ChannelStorage):
    """Storage of a data file and its index."""

    reader: ClassVar[type[IndexedReader]] = IndexedReader

    def create(self, disk: Disk) -> IndexedWriter:
        return self._open(disk.create(self.path), lambda: disk.create(self._index_path))

    def resume(self, disk: Disk, lengths: Mapping[str, int]) -> IndexedWriter:
        path, index, kind = self.path, self._index_path, self.reader.index
        data_length, index_length = (committed_length(lengths, file) for file in (path, index))
        rows, torn = divmod(index_length - len(kind.head), kind.row_bytes())
        end = 0
        if rows > 0:
            with ReadFile(index) as file, ReadFile(path) as data_file:
                last = file.peek(index_length - kind.row_bytes(), kind.row_bytes())
                end = int(kind(kind.head + last, self.spec.shape, data_file).bounds[-1])
        if torn or end != data_length:
            raise StorageError(
                f"{path}: committed lengths {data_length} and {index_length} (index) do not "
                f"belong to one {kind.unit}"
            )
        data = reopen(disk, path, data_length)
        return self._open(data, lambda: reopen(disk, index, index_length))

    def _open(self, data: AppendFile, open_index: Callable[[], AppendFile]) -> IndexedWriter:
        try:
            return IndexedWriter(data, open_index(), self.reader.index, self.spec.shape)
        except BaseException:
            data.close()
            raise

    def measure(self, committed: int) -> IndexedExtent:
        return IndexedExtent(self.path, self.spec, committed, self.reader.index)

    def known_lengths(self, samples: int) -> dict[str, int]:
        return {self._index_path.name: self.reader.index.length(samples)}

    @property
    def _index_path(self) -> Path:
        return _index_path(self.path, self.spec.format)


class BytesStorage(IndexedStorage):
    """Storage of samples of bytes."""

    reader = BytesReader


class LzmafReader(IndexedReader):
    """Reader of ``lzmaf``."""

    index = LzmafIndex


class LzmafStorage(IndexedStorage):
    """Storage of samples that are compressed with xz one by one; any filter chain may be used."""

    reader = LzmafReader


class ZstdfReader(IndexedReader):
    """Reader of ``zstdf``."""

    index = ZstdfIndex


class ZstdfStorage(IndexedStorage):
    """Storage of images of integers that are packed one by one."""

    reader = ZstdfReader


def _index_path(path: Path, format_: str) -> Path:
    return path.with_name(channel_files(path.name, format_)[1])
