"""File of concatenated xz streams (``lzma``), whose contents together are those of ``raw``.

The xz format is https://tukaani.org/xz/xz-file-format.txt, version 1.2.
"""

from __future__ import annotations

import lzma
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs.storage.channel import (
    ChannelStorage,
    Extent,
    FileReader,
    Layout,
    ReadFile,
    Units,
    committed_length,
    reopen,
)
from recorder.codecs.storage.raw import PlainWriter
from recorder.codecs.streams import ChannelSpec
from recorder.codecs.xz import FOOTER_BYTES, FOOTER_MAGIC, HEADER_BYTES, HEADER_MAGIC, read_varint
from recorder.common.errors import FormatError
from recorder.common.files import Disk

_READ_BYTES = 64 * 1024
_SKIP_BYTES = 1 << 20
_TAIL_WINDOW = 64  # holds footer and index of a stream with one block


class LzmaReader(FileReader):
    """Reader of ``lzma``.

    When a file is opened, the reader finds the boundaries of all streams, from the last stream to
    the first, by their footers and indexes and without decompressing. That takes 16 bytes of memory
    and one small read for each stream. Reading continues where the last read ended, or starts at
    the nearest stream before the sample. Files of this recorder's writer (a stream a message)
    therefore have random access, a single huge stream has sequential access.
    """

    def _open(self, partial: bool) -> None:
        self._turn = threading.Lock()
        self._decoder: lzma.LZMADecompressor | None = None
        self._stream = self._input = self._position = 0
        starts: list[int] = []
        sizes: list[int] = []
        end = self._file.size
        while end and (found := _find_stream_before(self._file, end)):
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
        """Return the last end of a whole stream at or before a sample count: samples, bytes."""
        offsets = self._offsets[: self._whole + 1]
        whole = (offsets % self.sample_bytes == 0) & (offsets <= samples * self.sample_bytes)
        at = int(np.flatnonzero(whole)[-1])
        return int(self._offsets[at]) // self.sample_bytes, int(self._starts[at])

    def block_ends(self, start: int, stop: int) -> list[int]:
        ends, torn = np.divmod(self._offsets[1 : self._whole + 1], self.sample_bytes)
        ends = ends[torn == 0]
        low, high = np.searchsorted(ends, (start, stop))
        return [int(end) for end in ends[low:high]]

    def units(self, start: int, stop: int) -> Units:
        firsts, torn = np.divmod(self._offsets[: self._whole + 1], self.sample_bytes)
        rows = np.stack([firsts[:-1], np.diff(firsts), self._starts[: self._whole]], axis=1)
        rows = np.column_stack([rows, np.diff(self._starts[: self._whole + 1])])
        inside = (firsts[:-1] >= start) & (firsts[1:] <= stop) & (torn[:-1] == 0) & (torn[1:] == 0)
        return np.asarray(rows[inside], np.int64)

    def block(self, start: int, stop: int) -> bytes | None:
        begin, end = self.boundary(start), self.boundary(stop)
        if (begin[0], end[0]) != (start, stop):
            return None
        return self._file.read(begin[1], end[1] - begin[1])

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
        """Return the next 1 to `limit` unpacked bytes."""
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


class LzmaExtent(Extent):
    """Extent of the samples in whole xz streams; the file can be cut only after a stream."""

    def __init__(self, path: Path, spec: ChannelSpec) -> None:
        self._name = path.name
        meta = Layout.from_meta(str(path), spec.meta())
        self._reader = LzmaReader(path, meta, partial=True)
        self._reader.close()
        self.samples = self._reader.boundary(len(self._reader))[0]

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        samples, length = self._reader.boundary(samples)
        return samples, {self._name: length}


class LzmaStorage(ChannelStorage):
    """Storage of xz streams, each of one message's samples."""

    reader = LzmaReader

    def create(self, disk: Disk) -> PlainWriter:
        return PlainWriter(disk.create(self.path))

    def resume(self, disk: Disk, lengths: Mapping[str, int]) -> PlainWriter:
        return PlainWriter(reopen(disk, self.path, committed_length(lengths, self.path)))

    def measure(self, committed: int) -> LzmaExtent:  # noqa: ARG002
        return LzmaExtent(self.path, self.spec)


def _find_stream_before(file: ReadFile, end: int) -> tuple[int, int] | None:
    """Return start and unpacked size of the xz stream that ends at `end`; None without one.

    It reads stream footer and index (xz format, sections 2.1.2 and 4), which both have a CRC-32.
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
    records, at = read_varint(index, 1)
    for _ in range(min(records, len(index))):  # a record takes two bytes at least
        size, at = read_varint(index, at)
        packed += (size + 3) & ~3
        size, at = read_varint(index, at)
        unpacked += size
    start = index_start - packed - HEADER_BYTES
    if start < 0 or file.peek(start, len(HEADER_MAGIC)) != HEADER_MAGIC:
        return None
    return start, unpacked
