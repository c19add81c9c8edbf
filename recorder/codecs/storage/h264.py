"""Access units of H.264 (``h264``) one after another, and their index.

Players accept ``video.h264`` unchanged (Annex B).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs.h264 import H264Decoder, begins_with_start_code, is_key, rgb_pixels
from recorder.codecs.storage.indexed import Flags, Index, IndexedReader, IndexedStorage, Rows
from recorder.common.errors import FormatError
from recorder.common.files import Buffer

_KEPT_FRAMES = 8  # threads that read ahead ask for pictures in nearly their order
_KEY = 2  # column of the index
_MOST_BYTES = 1 << 32


class H264Index(Index):
    """Index of ``h264``: offset, size, keyframe."""

    columns = 3
    unit = "access unit"
    layout = "rows of 24"

    @classmethod
    def encode(
        cls, offset: int, frame: Buffer, sizes: npt.NDArray[np.uint32], shape: tuple[int, ...]
    ) -> Rows:
        rows, units = super().encode(offset, frame, sizes, shape), memoryview(frame)
        for row in rows:
            at, size = int(row[0]) - offset, int(row[1])
            row[_KEY] = is_key(units[at : at + size])
        return rows

    def find_bad(self) -> Flags:
        bad = self.find_gaps() | (self.rows[:, 1] > _MOST_BYTES)
        bad |= (self.rows[:, _KEY] > 1) | (self.rows[:, 1] == 0)
        return bad

    def describe(self, row: int) -> str:
        return (
            f"row {row} is {self.rows[row].tolist()}: rows are offset, bytes, keyframe "
            "(0 or 1), without gaps"
        )

    def is_whole(self, row: int, sample: bytes) -> bool:
        return begins_with_start_code(sample) and is_key(sample) == bool(self.rows[row, _KEY])


class H264Reader(IndexedReader):
    """Reader of access units; holds 17 bytes of each, a decoder and a few pictures.

    Pictures that are read roughly in order are decoded once. Any other picture is decoded from its
    keyframe on.
    """

    index = H264Index

    def _take_rows(self, rows: Rows) -> None:
        self._is_key = rows[:, _KEY] == 1
        self._keys = np.flatnonzero(self._is_key)
        self._lock = threading.Lock()
        self._decoder: H264Decoder | None = None
        self._next = 0  # the access unit that the decoder takes next
        self._frames: OrderedDict[int, Any] = OrderedDict()  # the last ones that it gave

    def entry(self, index: int) -> int:
        before = int(np.searchsorted(self._keys, self._index(index), side="right"))
        if not before:
            raise FormatError(f"{self._where(index)}: no keyframe before it")
        return int(self._keys[before - 1])

    def check(self, index: int) -> npt.NDArray[Any]:
        unit = self.encoded(index)
        if not begins_with_start_code(unit):
            raise FormatError(f"{self._where(index)}: does not begin with a start code")
        if is_key(unit) != self._is_key[index]:
            raise FormatError(f"{self._where(index)}: is it a keyframe? the index is wrong")
        if fault := self._codec.shape_fault(unit, self.shape):
            raise FormatError(f"{self._where(index)}: {fault}")
        return self[index]

    def check_finished(self) -> None:
        if len(self) and not self._is_key[0]:
            raise FormatError(f"{self.path}: does not begin with a keyframe")

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        block = np.empty((stop - start, *self.shape), self.dtype)
        with self._lock:
            for index in range(start, stop):
                frame, where = self._decode_frame(index), self._where(index)
                picture = rgb_pixels(frame)
                if picture.shape != self.shape:
                    raise FormatError(
                        f"{where}: is {picture.shape}, the channel's shape is {self.shape}"
                    )
                block[index - start] = picture
        return block

    def _decode_frame(self, index: int) -> Any:
        """Return the decoder's frame of an access unit; the lock is held."""
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


class H264Storage(IndexedStorage):
    """Storage of access units of H.264."""

    reader = H264Reader
