"""The option ``packing``: which channels xz compresses while they are recorded.

A number: rows that shrink at least to that share are compressed at once.  ``later``: rows are
stored as they are, and `recorder.integrity.deferred_compression` compresses them after the
session.  ``auto``: the first if the machine has room for it, else the second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from drivers.ouster.frames import LAYOUT
from recorder.codecs import STORED
from recorder.codecs.streams import ChannelSpec
from recorder.codecs.xz import WORTH, XzCompressor, stored_bytes

LATER, AUTO = "later", "auto"
_ROOM: Final = 0.4
"""Share of the free cores that compression may take: the other sensors' drivers and the writer
begin at the same time, and a sweep full of near objects takes half as much again."""
_RESTS: Final = frozenset(to.rest for to in LAYOUT.values() if to.rest)
"""Channels that are nearly all zeros: 5 MB/s as they are, next to nothing packed."""
_PROBE_ROWS: Final = 32


@dataclass(frozen=True, slots=True)
class Packing:
    """How a lidar's channels are stored while they are recorded.

    Attributes:
        settings: for the stream's declaration; `packing` among them describes the choice and its
            cost for people.
        bytes_per_sample: expected; None: as measured for packing at once.
    """

    settings: Mapping[str, Any]
    bytes_per_sample: int | None = None


def choose_packing(
    option: float | str, channels: Sequence[ChannelSpec], rate_hz: float | None
) -> Packing:
    """Choose how channels are stored; ``auto`` measures the machine.

    Args:
        option: a share of 0 to 1, ``later`` or ``auto``.
        channels: the sweeps'.
        rate_hz: sweeps per second.
    """
    packed = [c for c in channels if c.format == "lzmaf"]
    if not isinstance(option, str):
        return Packing({"xz_worth": option})
    if not packed:
        return Packing({})
    why = ""
    if option == AUTO:
        need, room = _load(packed, rate_hz or 10.0), _ROOM * _free_cores()
        why = f"auto: packing needs {need:.2f} of a core, {room:.2f} may be used; "
        if need <= room:
            return Packing(
                {"xz_worth": WORTH, "packing": why + "rows are packed while recording"}, None
            )
    stored = [c.name for c in packed if c.name not in _RESTS]
    size = sum(
        stored_bytes(c.sample_bytes) if c.name in stored else c.sample_bytes // 64
        for c in packed
    ) + sum(c.sample_bytes for c in channels if c.format != "lzmaf")  # fmt: skip
    rate = size * (rate_hz or 10.0)
    text = (
        f"{why}rows are stored while recording, {rate / 1e6:.1f} MB/s or {rate * 3.6e-6:.0f} GB/h, "
        "and packed after the session"
    )
    return Packing({"xz_worth": WORTH, STORED: stored, "packing": text}, size)


def _load(channels: Sequence[ChannelSpec], rate_hz: float) -> float:
    """Return the number of cores that packing uses, measured on rows like a real sweep's."""
    noise = np.random.default_rng(1)
    seconds = 0.0
    for channel in channels:
        if channel.name in _RESTS or len(channel.shape) < 2:
            continue
        rows = min(_PROBE_ROWS, channel.shape[0])
        # Neighbours differ little, as on surfaces; three low bits are noise.
        steps = noise.integers(0, 8, (rows, *channel.shape[1:]))
        values = np.cumsum(steps, axis=1).astype(channel.np_dtype)
        compressor = XzCompressor(channel.np_dtype.itemsize, channel.delta)
        started_s = time.thread_time()
        compressor.compress(values)
        seconds += (time.thread_time() - started_s) * channel.shape[0] / rows
    return seconds * rate_hz


def _free_cores() -> float:
    """Return how many of the cores that this process may use were idle in the last minute."""
    cores = len(os.sched_getaffinity(0))
    return max(0.0, cores - os.getloadavg()[0])
