"""Sessions of a lidar that is recorded as points, with known content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs.points import Column, pack_points, points_dtype
from recorder.codecs.streams import StreamSpec, points_channel
from recorder.formats.ros2.clouds import NO_TIME
from tests.session.build import Builder, Recorded

RINGS, COLUMNS = 16, 180
SWEEP_NS = 100_000_000
ELEVATIONS_RAD = np.radians(np.linspace(-15, 15, RINGS))
"""Of the rings, which rise."""
OFFSETS_RAD = np.radians(np.where(np.arange(RINGS) % 2, 1.5, -1.5))
"""By which a ring is ahead of the column's azimuth."""

POSITION = Column("xyz", "f4", (3,), "m")
TIME = Column("t_offset", "u4", unit="ns")
WITH_TIMES = (
    POSITION,
    Column("intensity", "f4"),
    Column("ring", "u2"),
    TIME,
    Column("tag", "u1", (2,)),
)
WITHOUT_TIMES = (POSITION, Column("reflectivity", "u1"), Column("ring", "u1"))

Sweep = npt.NDArray[Any]


def cloud_spec(columns: Sequence[Column] = WITH_TIMES, name: str = "lidar") -> StreamSpec:
    return StreamSpec(name, (points_channel(columns, "points"),), rate_hz=10.0)


def make_sweep(columns: Sequence[Column] = WITH_TIMES, seed: int = 0) -> Sweep:
    """A turn of a lidar that turns clockwise from behind; in firing order.

    Of 20 points one has no return: half of those are NaN, half 0, 0, 0.  Other columns are 0.
    """
    rng = np.random.default_rng(seed)
    column, ring = (each.reshape(-1) for each in np.mgrid[0:COLUMNS, 0:RINGS])
    azimuth = np.pi - 2 * np.pi * (column + 0.5) / COLUMNS + OFFSETS_RAD[ring]
    elevation = ELEVATIONS_RAD[ring]
    distance = rng.uniform(5, 60, len(ring)) * (rng.random(len(ring)) > 0.05)
    level = np.cos(elevation)
    xyz = np.stack([np.cos(azimuth) * level, np.sin(azimuth) * level, np.sin(elevation)], axis=1)
    xyz *= distance[:, None]
    xyz[(distance == 0) & (rng.random(len(ring)) > 0.5)] = np.nan
    values = {
        "xyz": xyz,
        "intensity": rng.uniform(0, 200, len(ring)),
        "reflectivity": rng.integers(0, 256, len(ring)),
        "ring": ring,
        "t_offset": column * SWEEP_NS // COLUMNS,
        "tag": rng.integers(0, 256, (len(ring), 2)),
    }
    sweep = np.zeros(len(ring), points_dtype(columns))
    for name in {*(sweep.dtype.names or ())} & values.keys():
        sweep[name] = values[name]
    return sweep


def has_return(sweep: Sweep) -> npt.NDArray[np.bool_]:
    return np.asarray(np.nan_to_num(np.abs(sweep["xyz"]).sum(axis=1)) > 0)


def begin_ns(t_ns: int, sweep: Sweep) -> int:
    """The time from which a sweep's `t_offset` counts: its stamp is that of the last point."""
    if "t_offset" not in (sweep.dtype.names or ()):
        return int(t_ns)
    known = sweep["t_offset"][sweep["t_offset"] != NO_TIME]
    return int(t_ns) - int(known.max(initial=0))


def add_clouds(
    builder: Builder, sweeps: Sequence[Sweep], spec: StreamSpec | None = None
) -> Recorded:
    """Record sweeps as a stream."""
    spec = spec or cloud_spec()
    data = {spec.channels[0].name: [pack_points(sweep) for sweep in sweeps]}
    return builder.add(spec, count=len(sweeps), data=data)
