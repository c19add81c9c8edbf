"""Preparation of the next samples while the current one is processed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from recorder.common.files import Closeable

Made = TypeVar("Made")

AHEAD = 2
"""Number of samples made ahead, and of threads that make them; keeps two cores busy."""


class ReadAhead(Closeable, Generic[Made]):
    """Results of samples that threads compute a few samples ahead.

    For work that releases the GIL: reading, decompressing, transforming::

        with ReadAhead(lambda index: lidar.sample(index), len(lidar)) as samples:
            for index in range(len(lidar)):
                samples.take(index)["rng"]

    Only one thread may call `take`.  At most `ahead` results are in memory besides the taken one.

    Args:
        make: makes the result of a sample's index; several threads call it at once.
        length: number of samples.
        ahead: number of samples made ahead, and number of threads.
    """

    def __init__(self, make: Callable[[int], Made], length: int, ahead: int = AHEAD) -> None:
        if ahead < 1:
            raise ValueError(f"{ahead} samples ahead: needs at least 1")
        self._make, self._length, self._ahead = make, length, ahead
        self._pending: dict[int, Future[Made]] = {}
        self._pool = ThreadPoolExecutor(ahead, "ahead")

    def take(self, index: int) -> Made:
        """Return the result of a sample; indices must rise, otherwise nothing is computed ahead.

        Raises:
            IndexError: the sample does not exist.
            Exception: an exception of `make`.
        """
        if not 0 <= index < self._length:
            raise IndexError(f"sample {index} of {self._length}")
        wanted = range(index, min(index + self._ahead + 1, self._length))
        for other in self._pending.keys() - set(wanted):
            self._pending.pop(other).cancel()
        for one in wanted:
            if one not in self._pending:
                self._pending[one] = self._pool.submit(self._make, one)
        return self._pending.pop(index).result()

    def close(self) -> None:
        """Stop computing results; wait for results in progress."""
        self._pool.shutdown(cancel_futures=True)
        self._pending.clear()
