"""Mapping of a played source's stamps to a session's timeline.

``t_mono`` = session start + (source stamp - the source's first stamp), whatever the pace.  Each
loop is shifted by one period, and so are its device times.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from drivers.kit.driver import Item, Sample
from recorder.codecs.streams import StreamSpec


class Timeline:
    """Mapping of a played source's items to the host's monotonic clock, in place.

    Args:
        specs: the source's streams.
        start_ns: CLOCK_MONOTONIC of the session's start.
        origin_ns: source stamp that is played at the start; None: the first item's stamp.
    """

    def __init__(
        self, specs: Mapping[str, StreamSpec], start_ns: int, origin_ns: int | None = None
    ) -> None:
        self._specs = specs
        self._start_ns = start_ns
        self._origin_ns = origin_ns
        self._loop_ns = 0
        self._end_ns = 0  # earliest start of the next loop, relative to the origin, without loops

    def place(self, item: Item) -> None:
        """Move an item's times from the source's time base to the session's."""
        if self._origin_ns is None:
            self._origin_ns = int(np.min(item.t_ns))
        shift = self._start_ns + self._loop_ns - self._origin_ns
        if not isinstance(item, Sample):
            item.t_ns += shift
            return
        spec = self._specs[item.stream]
        times = np.asarray(item.t_ns, np.int64)
        interval = round(1e9 / spec.rate_hz) if spec.rate_hz else 1
        self._end_ns = max(self._end_ns, int(times[-1]) - self._origin_ns + interval)
        item.t_ns = times + shift
        if not self._loop_ns:
            return
        if item.t_dev_ns is not None:
            item.t_dev_ns = item.t_dev_ns + self._loop_ns
        moved = {
            c.name: np.where(values != 0, values + values.dtype.type(self._loop_ns), values)
            for c in spec.channels
            if c.device_time and isinstance(values := item.data[c.name], np.ndarray)
        }
        if moved:  # a device time of 0 means "not measured" and is not shifted
            item.data = {**item.data, **moved}

    def loop(self) -> None:
        """Shift all following items by one period: the source starts again."""
        self._loop_ns += self._end_ns
