"""Batches of samples: their latest stamp, their parts, data that are made on access.

A driver that restarts during a session skips the samples up to the present time.  An endless
simulated source may have many hours of them; their stamps cost nothing, their data would cost
hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Sample


def last_ns(item: Item) -> int:
    """Return the latest stamp of an item, in ns."""
    if not isinstance(item, Sample):
        return item.t_ns
    return int(item.t_ns[0] if len(item.t_ns) == 1 else item.t_ns.max())


def keep_samples(sample: Sample, mask: npt.NDArray[np.bool_]) -> None:
    """Reduce a batch to the samples where the mask is set.

    Args:
        sample: a batch of n samples.
        mask: bool [n].
    """
    if mask.all():
        return
    indices = np.flatnonzero(mask)
    sample.t_ns = sample.t_ns[mask]
    if sample.t_dev_ns is not None:
        sample.t_dev_ns = sample.t_dev_ns[mask]
    sample.data = {
        name: values[indices]
        if isinstance(values, np.ndarray)
        else [values[i] for i in indices.tolist()]
        for name, values in sample.data.items()
    }


def single_samples(sample: Sample) -> list[Sample]:
    """Split a batch into single samples."""
    if sample.count == 1:
        return [sample]
    return [
        replace(
            sample,
            t_ns=sample.t_ns[i : i + 1],
            t_dev_ns=None if sample.t_dev_ns is None else sample.t_dev_ns[i : i + 1],
            data={name: values[i : i + 1] for name, values in sample.data.items()},
        )
        for i in range(sample.count)
    ]


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


def select_samples(
    batch: DeferredData[npt.NDArray[Any]], part: slice
) -> DeferredData[npt.NDArray[Any]]:
    """Return the data of the samples `part` of a batch."""
    return DeferredData(lambda: {n: np.ascontiguousarray(v[part]) for n, v in batch.items()})
