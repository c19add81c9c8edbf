"""The rig's motion between a sweep's columns and a picture, taken out of depth pictures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recorder.processing.geometry import Floats, interpolate_poses, invert
from recorder.processing.poses import Identity, PoseSource, Times
from recorder.processing.trajectory import RollingTrajectory

_KNOTS = 16
_PERIODS = 1.5
"""Longest time from a sweep's first column to its stamp, in periods."""
_KEPT_NS = 2_000_000_000


@dataclass(frozen=True)
class Motion:
    """Poses of the rig around a sweep, and at the time of a picture.

    Attributes:
        t_ns: int64 [k], rising.
        poses: f8 [k, 4, 4], rig to world.
        picture: f8 [4, 4], the pose at the picture's time.
    """

    t_ns: Times
    poses: Floats
    picture: Floats

    def move(self, points: Floats, t_ns: Times) -> Floats:
        """Points in the rig's frame at the picture's time.

        Args:
            points: f8 [n, 3], each in the rig's frame at its own time.
            t_ns: int64 [n], these times.
        """
        times, column = np.unique(t_ns, return_inverse=True)
        moves = invert(self.picture) @ interpolate_poses(self.t_ns, self.poses, times)
        turned = np.einsum("nij,nj->ni", moves[column, :3, :3], points)
        return np.asarray(turned + moves[column, :3, 3])


class EgoMotion:
    """The rig's motion in a session whose poses are known; none otherwise."""

    def __init__(self, source: PoseSource) -> None:
        self._path = None if isinstance(source, Identity) else RollingTrajectory(source.blocks())

    def around(self, picture_ns: int, sweep_ns: int, period_ns: int) -> Motion | None:
        """The motion from a sweep to a picture; call with rising times of pictures."""
        if self._path is None:
            return None
        first_ns = sweep_ns - round(_PERIODS * period_ns)
        t_ns = np.linspace(first_ns, sweep_ns, _KNOTS).astype(np.int64)
        times = np.unique(np.append(t_ns, picture_ns))
        poses = self._path.at(times)
        self._path.forget(min(first_ns, picture_ns) - _KEPT_NS)
        return Motion(times, poses, poses[int(np.searchsorted(times, picture_ns))])
