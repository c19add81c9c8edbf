"""``h264``: access units of H.264 one after another (Annex B), and an index file.

``video.h264`` plays as it is.  ``video.h264_i`` has a row of three u8 for each access unit: its
offset, its bytes, and 1 if it is a keyframe, else 0.  roverd knows neither the format nor variable
records, so ``meta.json`` declares the index alone, as ``raw``; ``video.h264.json`` has the entry of
the video.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.contract.channel_formats import channel_files
from recorder.contract.channel_formats.h264 import begins_with_start_code, is_key
from recorder.contract.channel_formats.h264_decoder import H264Decoder, rgb_pixels
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

_ROW_BYTES = 24
_KEPT_FRAMES = 8  # threads that read ahead ask for pictures in nearly their order
_OFFSET, _SIZE, _KEY = range(3)

Rows = npt.NDArray[np.uint64]


class H264Writer(ChannelWriter):
    """Concatenates access units and keeps their index file; `files` is data, index."""

    def __init__(self, data: AppendFile, index: AppendFile) -> None:
        self.files = [data, index]
        self._data = data
        self._index = index

    def append(self, frame: Buffer, count: int, sizes: npt.NDArray[np.uint32] | None) -> None:
        if sizes is None:
            raise ValueError(f"{self._data.path}: h264 needs the size of every access unit")
        units = memoryview(frame)
        ends = np.cumsum(sizes, dtype=np.uint64)
        rows = np.empty((count, 3), "<u8")
        rows[:, _OFFSET] = ends - sizes + np.uint64(self._data.length)
        rows[:, _SIZE] = sizes
        for row, end, size in zip(rows, ends.tolist(), sizes.tolist(), strict=True):
            row[_KEY] = is_key(units[end - size : end])
        self._data.append(frame)
        self._index.append(rows.tobytes())


class H264Reader(FileReader, FramedReader):
    """Reads access units; holds the index (24 bytes each), a decoder and a few pictures.

    Pictures that are read about in order are decoded once; any other one from its keyframe on.
    """

    def _open(self, partial: bool) -> None:
        path = _index_path(self.path)
        with ReadFile(path) as file:
            raw = file.peek(0, file.size)
        if len(raw) % _ROW_BYTES and not partial:
            raise FormatError(f"{path}: {len(raw)} bytes are not rows of {_ROW_BYTES}")
        rows = _rows(raw)
        good = _good_rows(rows)
        if good < len(rows):
            raise FormatError(
                f"{path}: row {good} is {rows[good].tolist()}: rows are offset, bytes, keyframe "
                "(0 or 1), without gaps"
            )
        ends = rows[:, _OFFSET] + rows[:, _SIZE]
        whole = int(np.searchsorted(ends, self._file.size, side="right"))
        if whole < len(rows) and not partial:
            raise FormatError(
                f"{self.path}: has {self._file.size} bytes, its index ends at {ends[-1]}"
            )
        self._rows = rows[:whole]
        self._keys = np.flatnonzero(self._rows[:, _KEY])
        self._take_tail(self._file.size - (int(ends[whole - 1]) if whole else 0), partial)
        self._lock = threading.Lock()
        self._decoder: H264Decoder | None = None
        self._next = 0  # the access unit that the decoder takes next
        self._frames: OrderedDict[int, Any] = OrderedDict()  # the last ones that it gave

    def __len__(self) -> int:
        return len(self._rows)

    def encoded(self, index: int) -> bytes:
        offset, size, _ = self._rows[self._index(index)].tolist()
        return self._file.read(offset, size)

    def units(self, start: int, stop: int) -> Units:
        rows = self._rows[start:stop]
        return sample_units(start, rows[:, _OFFSET], rows[:, _SIZE])

    def entry(self, index: int) -> int:
        before = int(np.searchsorted(self._keys, self._index(index), side="right"))
        if not before:
            raise FormatError(f"{self._where(index)}: no keyframe before it")
        return int(self._keys[before - 1])

    def check(self, index: int) -> npt.NDArray[Any]:
        unit = self.encoded(index)
        if not begins_with_start_code(unit):
            raise FormatError(f"{self._where(index)}: does not begin with a start code")
        if is_key(unit) != bool(self._rows[index, _KEY]):
            raise FormatError(f"{self._where(index)}: is it a keyframe? the index is wrong")
        if fault := self._codec.shape_fault(unit, self.shape):
            raise FormatError(f"{self._where(index)}: {fault}")
        return self[index]

    def check_finished(self) -> None:
        if len(self._rows) and not self._rows[0, _KEY]:
            raise FormatError(f"{self.path}: does not begin with a keyframe")

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        block = np.empty((stop - start, *self.shape), self.dtype)
        with self._lock:
            for index in range(start, stop):
                frame, where = self._decoded(index), self._where(index)
                picture = rgb_pixels(frame)
                if picture.shape != self.shape:
                    raise FormatError(
                        f"{where}: is {picture.shape}, the channel's shape is {self.shape}"
                    )
                block[index - start] = picture
        return block

    def _decoded(self, index: int) -> Any:
        """The decoder's frame of an access unit; the lock is held."""
        if index in self._frames:
            return self._frames[index]
        key = self.entry(index)
        if self._decoder is None or index < self._next or key > self._next:
            self._decoder, self._next = H264Decoder(), key
        while self._next <= index:
            at = self._next
            try:
                self._frames[at] = self._decoder.decode(self.encoded(at), self._where(at))
            except FormatError:
                self._decoder = None
                raise
            self._next += 1
            while len(self._frames) > _KEPT_FRAMES:
                self._frames.popitem(last=False)
        return self._frames[index]


class H264Extent(Extent):
    """Access units that index and data file have both; later ones than the committed checked."""

    def __init__(self, path: Path, committed: int) -> None:
        self._path = path
        self._rows = _rows(_index_path(path).read_bytes())
        with ReadFile(path) as file:
            ends = self._rows[:, _OFFSET] + self._rows[:, _SIZE]
            good = _good_rows(self._rows)
            whole = min(good, int(np.searchsorted(ends[:good], file.size, side="right")))
            for at in range(min(committed, whole), whole):
                offset, size, key = self._rows[at].tolist()
                unit = file.read(offset, size)
                if not begins_with_start_code(unit) or is_key(unit) != bool(key):
                    whole = at
                    break
        self.samples = whole

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        data = int(self._rows[samples - 1, :_KEY].sum()) if samples else 0
        index = _index_path(self._path).name
        return samples, {self._path.name: data, index: _ROW_BYTES * samples}


class H264Storage(ChannelStorage):
    """A data file and its index."""

    reader = H264Reader

    def create(self, disk: Disk) -> H264Writer:
        data = disk.create(self.path)
        try:
            return H264Writer(data, disk.create(_index_path(self.path)))
        except BaseException:
            data.close()
            raise

    def resume(self, disk: Disk, lengths: Mapping[str, int]) -> H264Writer:
        path, index = self.path, _index_path(self.path)
        data_length, index_length = (committed_length(lengths, file) for file in (path, index))
        end = 0
        if index_length >= _ROW_BYTES and not index_length % _ROW_BYTES:
            with ReadFile(index) as file:
                last = _rows(file.peek(index_length - _ROW_BYTES, _ROW_BYTES))
            end = int(last[:, :_KEY].sum()) if len(last) else -1
        if index_length % _ROW_BYTES or end != data_length:
            raise StorageError(
                f"{path}: committed lengths {data_length} and {index_length} (index) do not "
                "belong to one access unit"
            )
        data = reopen(disk, path, data_length)
        try:
            return H264Writer(data, reopen(disk, index, index_length))
        except BaseException:
            data.close()
            raise

    def measure(self, committed: int) -> H264Extent:
        return H264Extent(self.path, committed)

    def known_lengths(self, samples: int) -> dict[str, int]:
        return {_index_path(self.path).name: _ROW_BYTES * samples}


def _index_path(path: Path) -> Path:
    return path.with_name(channel_files(path.name, "h264")[1])


def _rows(raw: bytes) -> Rows:
    return np.frombuffer(raw[: len(raw) // _ROW_BYTES * _ROW_BYTES], "<u8").reshape(-1, 3)


def _good_rows(rows: Rows) -> int:
    """Rows up to the first one that is wrong."""
    starts = np.zeros(len(rows), np.uint64)
    starts[1:] = rows[:-1, _OFFSET] + rows[:-1, _SIZE]
    bad = (rows[:, _OFFSET] != starts) | (rows[:, _KEY] > 1)
    bad |= (rows[:, _SIZE] == 0) | (rows[:, _SIZE] > np.uint64(1 << 32))
    return int(np.argmax(bad)) if bad.any() else len(rows)
