"""The rig's motion while a lidar turns: points of a sweep, moved to one time.

::

    poses = PoseWindow(find_poses(session, calibration))
    motion = motion_around(poses.at, reference_ns, sweep_ns, period_ns)
    points = motion.move(points, t_ns)      # f8 [n, 3], in the rig's frame at reference_ns
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recorder.perception.geometry import Floats, interpolate_poses, invert
from recorder.perception.poses import (
    LONGEST_GAP_NS,
    Identity,
    PoseSource,
    RecordedPoses,
    RollingTrajectory,
    Times,
    are_near,
)

_KNOTS = 16
_PERIODS = 1.5
"""Longest time from a sweep's first column to its stamp, in periods."""
_KEPT_NS = 2_000_000_000
_AROUND_NS = 2_000_000_000
"""Poses that `PoseWindow` reads before and after the times that are asked for."""


@dataclass(frozen=True)
class Motion:
    """Poses of the rig around a sweep, and at the time to which its points are moved.

    Attributes:
        t_ns: int64 [k], rising.
        poses: f8 [k, 4, 4], rig to world.
        reference: f8 [4, 4], the pose at that time.
    """

    t_ns: Times
    poses: Floats
    reference: Floats

    def move(self, points: Floats, t_ns: Times) -> Floats:
        """Move points to the rig's frame at the reference time.

        Args:
            points: f8 [n, 3], each in the rig's frame at its own time.
            t_ns: int64 [n], these times.
        """
        times, column = np.unique(t_ns, return_inverse=True)
        moves = invert(self.reference) @ interpolate_poses(self.t_ns, self.poses, times)
        turned = np.einsum("nij,nj->ni", moves[column, :3, :3], points)
        return np.asarray(turned + moves[column, :3, 3])


def motion_around(
    poses_at: Callable[[Times], Floats], reference_ns: int, sweep_ns: int, period_ns: int
) -> Motion:
    """Find the motion from a sweep to a reference time.

    Args:
        poses_at: returns the rig's poses, f8 [n, 4, 4], at rising times int64 [n].
        reference_ns: the time to which points are moved.
        sweep_ns: the sweep's stamp, which is the end of its measurement.
        period_ns: time from sweep to sweep.
    """
    t_ns = sweep_ns + np.linspace(-_PERIODS * period_ns, 0, _KNOTS).astype(np.int64)
    times = np.unique(np.append(t_ns, reference_ns))
    poses = poses_at(times)
    return Motion(times, poses, poses[int(np.searchsorted(times, reference_ns))])


class EgoMotion:
    """The rig's motion along a session whose poses are known, in order of time."""

    def __init__(self, source: PoseSource) -> None:
        self._path = None if isinstance(source, Identity) else RollingTrajectory(source.blocks())

    def around(self, picture_ns: int, sweep_ns: int, period_ns: int) -> Motion | None:
        """Find the motion from a sweep to a picture; call with rising times of pictures."""
        if self._path is None:
            return None
        motion = motion_around(self._path.at, picture_ns, sweep_ns, period_ns)
        self._path.forget(int(motion.t_ns[0]) - _KEPT_NS)
        return motion


class PoseWindow:
    """Poses of the rig at times in any order; those around the latest time are in memory.

    Args:
        source: the session's trajectory.
    """

    def __init__(self, source: RecordedPoses) -> None:
        self._source = source
        self._first_ns, self._last_ns = 0, -1
        self._t_ns, self._poses = np.empty(0, np.int64), np.empty((0, 4, 4))

    def at(self, t_ns: Times) -> Floats:
        """Interpolate poses at rising times; outside of the trajectory, its nearest pose.

        Args:
            t_ns: int64 [n].

        Returns:
            f8 [n, 4, 4], rig to world; identities where no pose is within seconds.
        """
        self._load(int(t_ns[0]), int(t_ns[-1]))
        if not len(self._t_ns):
            return np.tile(np.eye(4), (len(t_ns), 1, 1))
        return interpolate_poses(self._t_ns, self._poses, t_ns)

    def pose(self, t_ns: int) -> Floats | None:
        """Interpolate the pose at a time, f8 [4, 4]; None where it is not known (`are_near`)."""
        wanted = np.array([t_ns], np.int64)
        self._load(t_ns, t_ns)
        if not len(self._t_ns) or not are_near(self._t_ns, wanted)[0]:
            return None
        return np.asarray(self.at(wanted)[0])

    def _load(self, first_ns: int, last_ns: int) -> None:
        """Read the poses around an interval, unless those in memory suffice."""
        if self._first_ns <= first_ns and last_ns <= self._last_ns:
            return
        self._first_ns, self._last_ns = first_ns - _AROUND_NS, last_ns + _AROUND_NS
        margin_ns = 2 * LONGEST_GAP_NS
        inside = self._source.between(self._first_ns - margin_ns, self._last_ns + margin_ns)
        blocks = [(np.empty(0, np.int64), np.empty((0, 4, 4))), *inside.blocks()]
        self._t_ns = np.concatenate([t_ns for t_ns, _ in blocks])
        self._poses = np.concatenate([poses for _, poses in blocks])
