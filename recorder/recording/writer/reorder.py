"""Reordering of records of several streams by time, within a small window.

Samples arrive some time after their measurement, a lidar's sweep later than an IMU's batch.
Records are held for a short time and then written in order of time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recorder.common.files import Buffer, buffer_size
from recorder.formats.vrs import Compressor, RecordType, StreamId, VrsWriter
from recorder.formats.vrs.compression import MIN_BYTES

WINDOW_BYTES = 4 << 20
"""Number of held bytes at which all records are written."""
WINDOW_S = 0.5
"""Age relative to the newest record at which a record is written, s; no sensor is later."""


@dataclass(slots=True)
class Batch:
    """Records of one stream and one size, in order of time: timestamps f8 [n], data u1 [n, k]."""

    stream: StreamId
    record_type: RecordType
    timestamps_s: npt.NDArray[np.float64]
    rows: npt.NDArray[np.uint8]


@dataclass(slots=True)
class Single:
    """One record with its data in parts, which must not change until they are written."""

    stream: StreamId
    record_type: RecordType
    timestamp_s: float
    parts: Sequence[Buffer]


class ReorderWindow:
    """Window that sorts records by time before they are written to the file.

    Records of equal time keep their order of arrival; so do records of one stream, since a
    stream's times never decrease.  A batch is written in one piece unless another stream's record
    belongs in its middle.
    """

    def __init__(self, writer: VrsWriter, compressor: Compressor | None = None) -> None:
        """Initialize the window of a VRS writer; `compressor` compresses records one by one."""
        self._writer, self._compressor = writer, compressor
        self._held: list[tuple[float, int, Batch | Single]] = []
        self._count = 0
        self._bytes = 0
        self._newest_s = -np.inf

    def add(self, records: Batch | Single) -> None:
        """Add records, and write the due ones.

        Raises:
            OSError: a disk error.
        """
        if isinstance(records, Single):
            first = last = records.timestamp_s
            self._bytes += sum(map(buffer_size, records.parts))
        else:
            first, last = float(records.timestamps_s[0]), float(records.timestamps_s[-1])
            self._bytes += records.rows.nbytes
        self._count += 1
        heapq.heappush(self._held, (first, self._count, records))
        self._newest_s = max(self._newest_s, last)
        if self._bytes > WINDOW_BYTES:
            self.drain()
        elif self._held[0][0] < self._newest_s - WINDOW_S:
            self._write(self._newest_s - WINDOW_S)

    def drain(self) -> None:
        """Write all held records."""
        self._write(np.inf)

    def _write(self, until_s: float) -> None:
        held = self._held
        while held and held[0][0] <= until_s:
            _, number, records = heapq.heappop(held)
            if isinstance(records, Single):
                self._bytes -= sum(map(buffer_size, records.parts))
                stream, kind = records.stream, records.record_type
                stamp, parts = records.timestamp_s, records.parts
                self._writer.put(stream, kind, 1, stamp, parts, self._compressor)
                continue
            times, rows = records.timestamps_s, records.rows
            count = len(times)
            if times[-1] > until_s:
                count = int(np.searchsorted(times, until_s, "right"))
            if held and times[-1] >= held[0][0]:
                # Records of equal time are written in order of arrival.
                first = number < held[0][1]
                before = np.searchsorted(times, held[0][0], "right" if first else "left")
                count = min(count, int(before))
            self._bytes -= rows[:count].nbytes
            self._put_batch(records, count)
            if count < len(times):
                rest = Batch(records.stream, records.record_type, times[count:], rows[count:])
                heapq.heappush(held, (float(times[count]), number, rest))

    def _put_batch(self, records: Batch, count: int) -> None:
        """Write the first records of a batch; together where they are not compressed."""
        stream, kind = records.stream, records.record_type
        times, rows = records.timestamps_s[:count], records.rows[:count]
        if self._compressor is None or rows.shape[1] < MIN_BYTES:
            self._writer.put_many(stream, kind, 1, times, rows)
            return
        for timestamp_s, row in zip(times.tolist(), rows, strict=True):
            self._writer.put(stream, kind, 1, timestamp_s, [row.tobytes()], self._compressor)
