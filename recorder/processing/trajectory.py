"""Poses of the rig at rising times, from a trajectory that is read block by block."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recorder.processing.geometry import Floats, interpolate_poses
from recorder.processing.poses import Block, Times

_WORTH_CUTTING = 4096  # poses


class RollingTrajectory:
    """A trajectory that keeps only the part in use in memory.

    ::

        path = RollingTrajectory(Cover(source, first_ns, last_ns).blocks())
        poses = path.at(t_ns)          # f8 [n, 4, 4], rig to world
        path.forget(int(t_ns[-1]))     # earlier poses are not needed any more

    Args:
        blocks: times, strictly rising, and poses of the rig.
    """

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = iter(blocks)
        self._t_ns: Times = np.empty(0, np.int64)
        self._poses: Floats = np.empty((0, 4, 4))

    def at(self, t_ns: Times) -> Floats:
        """Poses at the rising times [n]; outside of the trajectory, its nearest pose.

        An empty trajectory is a rig in the world's origin.
        """
        while not len(self._t_ns) or self._t_ns[-1] < t_ns[-1]:
            block = next(self._blocks, None)
            if block is None:
                break
            self._t_ns = np.concatenate([self._t_ns, block[0]])
            self._poses = np.concatenate([self._poses, block[1]])
        if not len(self._t_ns):
            return np.tile(np.eye(4), (len(t_ns), 1, 1))
        return interpolate_poses(self._t_ns, self._poses, t_ns)

    def forget(self, t_ns: int) -> None:
        """Discard the poses that are needed only for times before this one."""
        first = int(np.searchsorted(self._t_ns, t_ns, side="right")) - 1
        if first >= _WORTH_CUTTING:
            self._t_ns = self._t_ns[first:].copy()
            self._poses = self._poses[first:].copy()

    def drain(self) -> None:
        """Read the rest of the trajectory, so that the counts of source and cover are complete."""
        for _ in self._blocks:
            pass
