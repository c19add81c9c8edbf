"""What comes next is made while what is there is worked on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from recorder.contract.closing import Closing

Made = TypeVar("Made")

AHEAD = 2
"""As many are made ahead as there are threads that make them: on two cores both are busy."""


class ReadAhead(Closing, Generic[Made]):
    """Makes something of samples, a few samples ahead, by threads.

    For what leaves the interpreter to others: reading, decompressing, transforming::

        with Ahead(lambda index: lidar.sample(index), len(lidar)) as samples:
            for index in range(len(lidar)):
                samples.take(index)["rng"]

    Of one thread itself.  No more than `ahead` are in memory besides the one that was taken.

    Args:
        make: what makes one, of a sample's index; called by several threads at once.
        length: number of samples.
        ahead: how many are made ahead, and how many threads there are.
    """

    def __init__(self, make: Callable[[int], Made], length: int, ahead: int = AHEAD) -> None:
        if ahead < 1:
            raise ValueError(f"{ahead} samples ahead")
        self._make, self._length, self._ahead = make, length, ahead
        self._pending: dict[int, Future[Made]] = {}
        self._pool = ThreadPoolExecutor(ahead, "ahead")

    def take(self, index: int) -> Made:
        """What is made of a sample; to be taken in rising order, else nothing is made ahead.

        Raises:
            IndexError: there is no such sample.
            Exception: what making it raised.
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
        """Make no more; waits for what is being made."""
        self._pool.shutdown(cancel_futures=True)
        self._pending.clear()
