"""Packed sweeps of points (``points``) one after another, and their index.

The index has the offset and the number of points of each sweep, as readers of videos have it.  The
end of a sweep is the offset of the next; the end of the last follows from its own blocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs.points import (
    count_points,
    points_dtype,
    unpack_points,
    unpack_records,
)
from recorder.codecs.shuffling import find_frame_end
from recorder.codecs.storage.channel import Layout, ReadFile
from recorder.codecs.storage.indexed import Flags, Index, IndexedReader, IndexedStorage, Rows
from recorder.common.errors import FormatError
from recorder.common.files import Buffer

_OFFSET, _POINTS = 0, 1  # columns of the index


class PointsIndex(Index):
    """Index of ``points``: offset, points."""

    unit = "sweep"

    @classmethod
    def encode(
        cls, offset: int, frame: Buffer, sizes: npt.NDArray[np.uint32], shape: tuple[int, ...]
    ) -> Rows:
        rows, frames = super().encode(offset, frame, sizes, shape), memoryview(frame)
        for row in rows:
            at, size = int(row[_OFFSET]) - offset, int(row[1])
            row[_POINTS] = count_points(frames[at : at + size], shape[1], "a sweep")
        return rows

    def find_ends(self, data: ReadFile, known: int) -> Rows:
        offsets = self.rows[:, _OFFSET]
        ends = np.append(offsets[1:], np.uint64(0))
        # A crash may leave anything in the rows after the known ones: sweeps tell their own ends.
        for row in range(max(known, 1) - 1, len(offsets)):
            start = int(offsets[row])
            end = find_frame_end(data.peek, start) if start < data.size else None
            ends[row] = max(start, data.size) + 1 if end is None else end
            if row + 1 < len(offsets) and offsets[row + 1] != ends[row]:
                break
        return ends

    def find_bad(self) -> Flags:
        bad = self.find_gaps() | (self.rows[:, _POINTS] > self.shape[0])
        bad[1:] |= self.rows[1:, _OFFSET] <= self.rows[:-1, _OFFSET]
        return bad

    def describe(self, row: int) -> str:
        return (
            f"row {row} is {self.rows[row].tolist()}: rows are offset and points (at most "
            f"{self.shape[0]}), with offsets that rise from 0"
        )

    def is_whole(self, row: int, sample: bytes) -> bool:
        try:
            records = unpack_records(sample, self.shape[1], "")
        except FormatError:
            return False
        return len(records) == int(self.rows[row, _POINTS])


class PointsReader(IndexedReader):
    """Reader of sweeps; holds 16 bytes of each, and one sweep.

    Arrays have the declared number of points, with zeros behind those of the sweep.  `sweep` gives
    the sweep's points alone, by their columns::

        points = reader.sweep(7)
        points["xyz"]           # f4 [points, 3]

    Attributes:
        counts: number of points of each sweep, u8 [n].
        point_dtype: dtype of a point, a field for each column.
    """

    index = PointsIndex

    def __init__(self, path: Path, layout: Layout, partial: bool = False) -> None:
        super().__init__(path, layout, partial)
        self.point_dtype = points_dtype(layout.columns)

    def _take_rows(self, rows: Rows) -> None:
        self.counts = rows[:, _POINTS]

    def sweep(self, index: int) -> npt.NDArray[Any]:
        """Return the points of a sweep, an array [points] of `point_dtype`, fresh and writable.

        Raises:
            IndexError: there is no such sweep.
            FormatError: its bytes do not decode, or are not the points that the index has.
        """
        at = self._index(index)
        points = unpack_points(self.encoded(at), self.point_dtype, self._where(at))
        if len(points) != self.counts[at]:
            raise FormatError(
                f"{self._where(at)}: has {len(points)} points, its index says {self.counts[at]}"
            )
        return points

    def check(self, index: int) -> npt.NDArray[Any]:
        return self[index]

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        # The system gives zeros without writing them: most of the array is never touched.
        block = np.zeros((stop - start, *self.shape), self.dtype)
        for index in range(start, stop):
            records = self.sweep(index).view(np.uint8).reshape(-1, self.shape[1])
            block[index - start, : len(records)] = records
        return block


class PointsStorage(IndexedStorage):
    """Storage of packed sweeps of points."""

    reader = PointsReader
