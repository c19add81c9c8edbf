"""Data of a sample that is made on access.

A driver that restarts during a session skips the samples up to the present time.  An endless
simulated source may have many hours of them; their stamps cost nothing, their data would cost
hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


class DeferredData(Mapping[str, npt.NDArray[Any]]):
    """A mapping of arrays that `make` makes at the first access.

    >>> data = DeferredData(lambda: {"acc": np.zeros((1, 3), "<f4")})
    >>> data["acc"].shape
    (1, 3)
    """

    def __init__(self, make: Callable[[], Arrays]) -> None:
        self._make: Callable[[], Arrays] | None = make
        self._made: Arrays = {}

    def _arrays(self) -> Arrays:
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._arrays()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays())

    def __len__(self) -> int:
        return len(self._arrays())

    def row(self, k: int) -> DeferredData:
        """Return the data of sample `k` of a batch."""
        return DeferredData(
            lambda: {n: np.ascontiguousarray(v[k : k + 1]) for n, v in self._arrays().items()}
        )
