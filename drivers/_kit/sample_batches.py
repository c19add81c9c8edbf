"""Batches of samples."""

from __future__ import annotations

from dataclasses import replace

from drivers._kit.driver import Sample


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
