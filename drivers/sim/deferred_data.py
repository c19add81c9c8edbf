"""Data of a sample that is made on access.

A driver that restarts during a session skips the samples up to the present time.  An endless
simulated source may have many hours of them; their stamps cost nothing, their data would cost
hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", npt.NDArray[Any], list[bytes])


class DeferredData(Mapping[str, T], Generic[T]):
    """A mapping of arrays, or of lists of encoded frames, that `make` makes at the first access.

    >>> data = DeferredData(lambda: {"acc": np.zeros((1, 3), "<f4")})
    >>> data["acc"].shape
    (1, 3)
    """

    def __init__(self, make: Callable[[], Mapping[str, T]]) -> None:
        self._make: Callable[[], Mapping[str, T]] | None = make
        self._made: Mapping[str, T] = {}

    def _values(self) -> Mapping[str, T]:
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    def __getitem__(self, name: str) -> T:
        return self._values()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())


def part_of(batch: DeferredData[npt.NDArray[Any]], part: slice) -> DeferredData[npt.NDArray[Any]]:
    """Return the data of the samples `part` of a batch."""
    return DeferredData(lambda: {n: np.ascontiguousarray(v[part]) for n, v in batch.items()})
