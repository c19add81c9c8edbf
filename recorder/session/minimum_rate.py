"""The rate that a stream must keep, and the time after which a stream counts as silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recorder.codecs.streams import StreamSpec

SILENT, SLOW = "silent", "rate"
"""Causes of losses: a stream gave no sample, or fewer than its minimum rate."""

WINDOW_NS = 3_000_000_000
_PERIODS = 3  # of the minimum rate: slow streams have longer windows
_SHARE = 0.5  # of the expected rate, if no `min_rate` is set


def floor_hz(sensor: str, header: Mapping[str, Any], spec: StreamSpec) -> float | None:
    """Return a stream's minimum rate: its sensor's ``min_rate``, or half of the expected rate.

    ``min_rate`` applies to the stream that has the sensor's name.

    Args:
        sensor: the sensor's name.
        header: the sensor's entry of ``session.json``.
        spec: the stream.
    """
    agreed = header.get("min_rate")
    if spec.name == sensor and agreed is not None:
        return float(agreed) or None
    return spec.rate_hz * _SHARE if spec.rate_hz else None


def window_ns(floor: float) -> int:
    """Return the interval in which a stream of that minimum rate is judged, in ns."""
    return max(WINDOW_NS, round(_PERIODS * 1e9 / floor))
