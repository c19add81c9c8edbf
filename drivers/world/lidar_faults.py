"""Faults of a simulated lidar's sweep: covered sectors, dead beams, noise, and lost returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from drivers.world.faults import Fault, active_at
from drivers.world.noise import bits, normal, uniform
from drivers.world.raycast import NEAREST_M, Image


class LidarFaults:
    """The faults of one lidar's sweeps.

    Args:
        faults: of the kinds ``sector`` (share of the columns, side by side, without returns),
            ``beam`` (number of beams without returns), ``noise`` (standard deviation in m of what
            is added to a distance) and ``drop`` (share of the returns).
        seed: of their choices.
        azimuth_rad: f8 [w], of the columns.
        rows: number of beams.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        seed: int,
        azimuth_rad: npt.NDArray[np.float64],
        rows: int,
    ) -> None:
        self._faults, self._seed, self._rows = faults, seed, rows
        self._order = np.argsort(azimuth_rad, kind="stable")

    def apply(self, distances: Iterable[Image], t_s: float) -> None:
        """Change distances f4 [h, w] m of a sweep that begins at a world time, in place."""
        faults = active_at(self._faults, t_s)
        if not faults:
            return
        for distance in distances:
            for fault in faults:
                self._change(distance, fault, round(t_s * 1e6))

    def _change(self, distance: Image, fault: Fault, sweep: int) -> None:
        width, seed = len(self._order), self._seed
        if fault.kind == "sector":
            begin = int(bits(seed, "sector", fault.number, 1)[0]) % width
            covered = (begin + np.arange(round(fault.size * width))) % width
            distance[:, self._order[covered]] = np.inf
        elif fault.kind == "beam":
            order = np.argsort(uniform(seed, "beam", fault.number, self._rows), kind="stable")
            distance[order[: round(fault.size)]] = np.inf
        elif fault.kind == "drop":
            drawn = uniform(seed + fault.number, "drop", sweep, distance.size)
            distance[drawn.reshape(distance.shape) < fault.size] = np.inf
        else:
            drawn = normal(seed + fault.number, "scatter", sweep, distance.size)
            noise = (drawn * fault.size).astype(np.float32).reshape(distance.shape)
            np.maximum(distance + noise, np.float32(NEAREST_M), out=distance)
