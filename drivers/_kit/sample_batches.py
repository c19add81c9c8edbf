"""Batches of samples: their latest stamp, their parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from drivers._kit.driver import Item, Sample


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
