"""``lzmaf`` and ``lzma``: samples compressed with xz, one by one or together.

``lzmaf``: every sample is an xz stream of its own; the index file ``NAME_i`` holds u8 offsets into
the data file, first 0, then the end of every sample, n + 1 entries in all.  Any filter chain may
be used: readers call ``lzma.decompress`` on each sample.

``lzma``: one file of concatenated xz streams, whose contents, put together, are what ``raw``
would hold.  xz format: https://tukaani.org/xz/xz-file-format.txt, version 1.2.
"""

from __future__ import annotations

import lzma
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.contract.errors import FormatError, StorageError
from recorder.contract.wire import Buffer
from recorder.formats.disk import AppendFile, Disk
from recorder.formats.roverd.channel import ChannelReader, ChannelWriter, Layout, ReadFile, reopen
from recorder.formats.roverd.xz_blocks import (
    FOOTER_BYTES,
    FOOTER_MAGIC,
    HEADER_BYTES,
    HEADER_MAGIC,
    BlockUnpacker,
    varint,
)

_INDEX = np.dtype("<u8")
_READ_BYTES = 64 * 1024
_SKIP_BYTES = 1 << 20
_TAIL_WINDOW = 64  # holds footer and index of a stream with one block


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


def index_path(path: Path) -> Path:
    """The index file of an ``lzmaf`` data file."""
    return path.with_name(path.name + "_i")


def resume_lzmaf(path: Path, disk: Disk, data_length: int, index_length: int) -> LzmafWriter:
    """Go on with an ``lzmaf`` channel at its committed lengths.

    Raises:
        StorageError: the lengths do not belong together, or a file is shorter.
    """
    if index_length:
        file = ReadFile(index_path(path))
        try:
            last = file.peek(index_length - _INDEX.itemsize, _INDEX.itemsize)
        finally:
            file.close()
        if index_length % _INDEX.itemsize or last != data_length.to_bytes(8, "little"):
            raise StorageError(
                f"{path}: committed lengths {data_length} and {index_length} (index) do not "
                "belong to one sample"
            )
    elif data_length:
        raise StorageError(f"{path}: {data_length} bytes were committed without an index")
    data = reopen(disk, path, data_length)
    try:
        return LzmafWriter(data, reopen(disk, index_path(path), index_length))
    except BaseException:
        data.close()
        raise


class LzmafReader(ChannelReader):
    """Reads ``lzmaf``; holds the index (8 bytes a sample) and one sample."""

    def __init__(self, path: Path, layout: Layout, partial: bool = False) -> None:
        super().__init__(path, layout)
        self._file = ReadFile(path)
        self._blocks = BlockUnpacker()
        try:
            self._ends = self._load_index(index_path(path), partial)
        except BaseException:
            self.close()
            raise

    def _load_index(self, path: Path, partial: bool) -> npt.NDArray[np.uint64]:
        file = ReadFile(path)
        try:
            raw = file.peek(0, file.size)
        finally:
            file.close()
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
        ends = ends[:whole]
        self._ends = ends
        self._take_tail(self._file.size - int(ends[-1]), partial)
        return ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        block = np.empty((stop - start, *self.shape), self.dtype)
        flat = block.reshape(-1).view(np.uint8).reshape(stop - start, self.sample_bytes)
        for index, out in zip(range(start, stop), flat, strict=True):
            stream = self.encoded(index)
            if not self._blocks.unpack(stream, out):
                out[:] = np.frombuffer(self._decode(stream, index), np.uint8)
        return block

    def _decode(self, stream: bytes, index: int) -> bytes:
        decoder = lzma.LZMADecompressor()
        try:
            # Bounded: a damaged stream must not unpack to more than a sample.
            values = decoder.decompress(stream, self.sample_bytes + 1)
        except lzma.LZMAError as error:
            raise FormatError(f"{self.path}: sample {index}: {error}") from None
        if not decoder.eof or decoder.unused_data or len(values) != self.sample_bytes:
            raise FormatError(
                f"{self.path}: sample {index} is not one xz stream of {self.sample_bytes} bytes"
            )
        return values

    def encoded(self, index: int) -> bytes:
        at = self._index(index)
        start, stop = int(self._ends[at]), int(self._ends[at + 1])
        return self._file.read(start, stop - start)

    def close(self) -> None:
        self._file.close()


class LzmaReader(ChannelReader):
    """Reads ``lzma``.

    The boundaries of all streams are found at opening, from the last stream to the first, by
    their footers and indexes and without decompressing (16 bytes of memory a stream, one small
    read each).  Reading goes on where the last read ended, or starts at the nearest stream before
    the sample: what our writer makes (a stream a message) is random access, a single huge stream
    is sequential access.
    """

    def __init__(self, path: Path, layout: Layout, partial: bool = False) -> None:
        super().__init__(path, layout)
        self._file = ReadFile(path)
        self._turn = threading.Lock()
        self._decoder: lzma.LZMADecompressor | None = None
        self._stream = self._input = self._position = 0
        try:
            self._find_streams(partial)
        except BaseException:
            self.close()
            raise

    def _find_streams(self, partial: bool) -> None:
        starts: list[int] = []
        sizes: list[int] = []
        end = self._file.size
        while end and (found := _stream_before(self._file, end)):
            end = found[0]
            starts.append(end)
            sizes.append(found[1])
        starts.reverse()
        sizes.reverse()
        tail = 0
        if end:  # not streams all the way: unpack from the front as far as it goes
            starts, sizes, tail = self._unpack_all()
        whole_end = self._file.size - tail
        self._whole = len(starts) - bool(tail and starts and starts[-1] == whole_end)
        self._starts = np.array([*starts, whole_end], np.int64)
        self._offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        torn = int(self._offsets[-1]) % self.sample_bytes
        self._take_tail(tail, partial, f"{tail} bytes after the last whole xz stream")
        self._take_tail(tail or torn, partial, f"{torn} values' bytes after the last whole sample")

    def _unpack_all(self) -> tuple[list[int], list[int], int]:
        starts, sizes, offset = [], [], 0
        while offset < self._file.size:
            decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            size, position = 0, offset
            try:
                while not decoder.eof:
                    data = b""
                    if decoder.needs_input:
                        data = self._file.peek(position, _READ_BYTES)
                        position += len(data)
                        if not data:
                            break
                    size += len(decoder.decompress(data, _SKIP_BYTES))
            except lzma.LZMAError:
                decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)  # not at its end
            if decoder.eof or size:
                starts.append(offset)
                sizes.append(size)
            if not decoder.eof:
                return starts, sizes, self._file.size - offset
            offset = position - len(decoder.unused_data)
        return starts, sizes, 0

    def __len__(self) -> int:
        return int(self._offsets[-1]) // self.sample_bytes

    def boundary(self, samples: int) -> tuple[int, int]:
        """The last end of a whole stream at or before so many samples: samples, bytes."""
        offsets = self._offsets[: self._whole + 1]
        whole = (offsets % self.sample_bytes == 0) & (offsets <= samples * self.sample_bytes)
        at = int(np.flatnonzero(whole)[-1])
        return int(self._offsets[at]) // self.sample_bytes, int(self._starts[at])

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        block = np.empty((stop - start, *self.shape), self.dtype)
        out = block.reshape(-1).view(np.uint8).data
        if stop > start:
            with self._turn:
                self._seek(start * self.sample_bytes)
                while out:
                    piece = self._pull(len(out))
                    out[: len(piece)] = piece
                    out = out[len(piece) :]
        return block

    def _seek(self, offset: int) -> None:
        stream = int(np.searchsorted(self._offsets, offset, side="right")) - 1
        if self._decoder is None or stream != self._stream or offset < self._position:
            self._start(stream)
        while self._position < offset:
            self._pull(min(_SKIP_BYTES, offset - self._position))

    def _start(self, stream: int) -> None:
        self._stream = stream
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        self._input = int(self._starts[stream])
        self._position = int(self._offsets[stream])

    def _pull(self, limit: int) -> bytes:
        """The next 1 to `limit` unpacked bytes."""
        while True:
            while self._position == self._offsets[self._stream + 1] or self._decoder is None:
                self._start(self._stream + 1)
            data = b""
            if self._decoder.needs_input and not self._decoder.eof:
                data = self._file.peek(self._input, _READ_BYTES)
                self._input += len(data)
            if self._decoder.eof or (self._decoder.needs_input and not data):
                raise FormatError(
                    f"{self.path}: the xz stream at byte {self._starts[self._stream]} holds less "
                    "than its index says"
                )
            try:
                piece = self._decoder.decompress(
                    data, min(limit, int(self._offsets[self._stream + 1]) - self._position)
                )
            except lzma.LZMAError as error:
                self._decoder, position = None, self._position
                raise FormatError(
                    f"{self.path}: sample {position // self.sample_bytes}: {error}"
                ) from None
            if piece:
                self._position += len(piece)
                return piece

    def encoded(self, index: int) -> bytes:
        return self[index].tobytes()

    def close(self) -> None:
        self._file.close()


def _stream_before(file: ReadFile, end: int) -> tuple[int, int] | None:
    """Start and unpacked size of the xz stream that ends at `end`; None where none does.

    Reads stream footer and index (xz format, sections 2.1.2 and 4), both under a CRC32.
    """
    window_start = max(0, end - _TAIL_WINDOW)
    window = file.peek(window_start, end - window_start)
    footer = window[-FOOTER_BYTES:]
    if len(footer) < FOOTER_BYTES or footer[10:] != FOOTER_MAGIC:
        return None
    if zlib.crc32(footer[4:10]) != int.from_bytes(footer[:4], "little"):
        return None
    index_bytes = (int.from_bytes(footer[4:8], "little") + 1) * 4
    index_start = end - FOOTER_BYTES - index_bytes
    if index_start < HEADER_BYTES:
        return None
    if index_start >= window_start:
        index = window[index_start - window_start : -FOOTER_BYTES]
    else:
        index = file.peek(index_start, index_bytes)
    if index[0] != 0 or zlib.crc32(index[:-4]) != int.from_bytes(index[-4:], "little"):
        return None
    packed = unpacked = 0
    records, at = varint(index, 1)
    for _ in range(min(records, len(index))):  # a record takes two bytes at least
        size, at = varint(index, at)
        packed += (size + 3) & ~3
        size, at = varint(index, at)
        unpacked += size
    start = index_start - packed - HEADER_BYTES
    if start < 0 or file.peek(start, len(HEADER_MAGIC)) != HEADER_MAGIC:
        return None
    return start, unpacked
