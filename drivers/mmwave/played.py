"""Captures of raw IQ in files."""

from __future__ import annotations

from collections import deque

import numpy as np

from drivers.kit.driver import EndOfSource, Item, Lost, Sample, SensorConfig, State
from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.raw_capture import CapturedFrame, CaptureFiles, LostFrames
from drivers.mmwave.stream import frame_data, incomplete_state


class RecordedFrames:
    """Converter of the frames of capture files to items for the kit.

    Args:
        sensor: its address is a file or a folder.
        chirp: defines a frame's shape and the period.

    Attributes:
        warnings: about files that are not played, or that may continue in the next file.

    Raises:
        SourceError: there is no complete frame, or the frames cannot be found.
    """

    def __init__(self, sensor: SensorConfig, chirp: ChirpConfig) -> None:
        self._name, self._period_ms = sensor.name, chirp.frame_period
        where = f"{sensor.name}: file:{sensor.address}"
        self._capture = CaptureFiles(sensor.path, chirp, where)
        self.warnings = self._capture.warnings
        self._items: deque[Item] = deque()
        self._last_ns = 0
        self._ended = False

    def read(self) -> Item:
        """Return the next item.

        Raises:
            EndOfSource: the last item was already returned.
            SourceError: the rest of the files cannot be read.
        """
        while not self._items and not self._ended:
            self._take(self._capture.read())
        if not self._items:
            raise EndOfSource
        return self._items.popleft()

    def _take(self, item: CapturedFrame | LostFrames | None) -> None:
        if item is None:
            self._ended = True
            if counts := self._capture.counts:
                self._items.append(State(self._name, self._last_ns, dict(counts)))
            return
        t_ns = self._last_ns = round(item.index * self._period_ms * 1e6)
        if isinstance(item, LostFrames):
            lost = Lost(self._name, t_ns, item.cause, item.count, detail=item.detail)
            self._items.append(lost)
            return
        data = frame_data(item.data, not item.bytes_missing)
        self._items.append(Sample(self._name, np.array([t_ns], np.int64), data))
        if item.bytes_missing:
            self._items.append(incomplete_state(self._name, t_ns, item))

    def close(self) -> None:
        """Close the files."""
        self._capture.close()
