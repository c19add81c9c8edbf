"""Base class of the camera, lidar and radar writers: frames, named by their end."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from recorder.archives.ncore.format.component import (
    GENERIC_DATA,
    ComponentWriter,
    Metadata,
    put_arrays,
)
from recorder.formats.zarr2 import EncodedArray, Group


class FrameWriter(ComponentWriter):
    """Base class of a sensor's writer.

    A sensor without a frame is not written, because the loader cannot open it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._frames: Group | None = None
        self._times = array("Q")
        self._waiting: dict[str, EncodedArray] = {}

    @property
    def frame_count(self) -> int:
        """Number of stored frames."""
        return len(self._times) // 2

    def _put_generic(self, encoded: Mapping[str, EncodedArray]) -> None:
        if self.frame_count:
            super()._put_generic(encoded)
            return
        for name in encoded.keys() & self._waiting.keys():
            self._refuse(f"it has generic data {name!r} already")
        self._waiting.update(encoded)

    def _check_started(self, name: str) -> None:
        if not self.frame_count:
            self._refuse(f"generic data {name!r} needs a frame before it")

    def _frame_times(self, t_start_ns: int, t_end_ns: int) -> tuple[int, int]:
        """Return start and end in microseconds; each must be later than in the previous frame."""
        end_us = self._time_us(t_end_ns, "the end")
        start_us = self._time_us(t_start_ns, "the start", end_us)
        if start_us > end_us:
            self._refuse(f"it starts at {start_us} us, after its end", end_us)
        if self._times:
            before_start, before_end = self._times[-2:]
            if end_us <= before_end:
                self._refuse(f"it ends at or before the previous frame, {before_end} us", end_us)
            if start_us <= before_start:
                self._refuse(
                    f"it starts at {start_us} us, at or before the previous frame,"
                    f" {before_start} us",
                    end_us,
                )
        return start_us, end_us

    def _begin_frame(
        self, times: tuple[int, int], data: dict[str, EncodedArray], metadata: Metadata | None
    ) -> Group:
        """Make a frame's group and its generic data, after all checks."""
        if self._frames is None:
            self._frames = self.group.group("frames", distinct=True)
            super()._put_generic(self._waiting)
        self._times.extend(times)
        frame = self._frames.group(str(times[1]))
        put_arrays(frame.group(GENERIC_DATA, metadata), data)
        return frame

    def _write_rest(self) -> None:
        if self._frames is not None:
            times: Any = np.frombuffer(self._times, np.uint64).reshape(-1, 2)
            self._frames.set_attributes({"frames_timestamps_us": times})
