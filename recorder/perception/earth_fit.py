"""Alignment of a trajectory's world with the Earth, by positions recorded beside the trajectory.

::

    fit = find_earth_fit(session, calibration)
    for t_ns, poses in cover.blocks():
        fit.add(t_ns, poses)
    to_earth = fit.to_earth()           # f8 [4, 4], world to ECEF; None without a common time
"""

from __future__ import annotations

import numpy as np

from recorder.common.errors import SessionError
from recorder.perception.calibration import Calibration
from recorder.perception.earth import position_channel
from recorder.perception.geometry import Floats, interpolate_poses, transform
from recorder.perception.poses import EarthPoses, Times, find_poses
from recorder.session.reader import Session

_EVERY_NS = 1_000_000_000
_LONGEST_GAP_NS = 1_000_000_000


class EarthFit:
    """The rigid transformation from a trajectory's world to ECEF that fits all common times best.

    Positions and orientations both count, so that a straight or short drive is sufficient.  A
    trajectory that drifts does not fit everywhere; `residual_m` reports by how much.

    Args:
        earth: positions on Earth, with orientations.  About one a second is used.

    Attributes:
        name: name of the positions' stream.
        residual_m: largest distance of a position from the trajectory, after `to_earth`.
    """

    def __init__(self, earth: EarthPoses) -> None:
        self.name, self._earth_m = earth.name, earth.to_earth
        self.residual_m = 0.0
        times, poses, due_ns = [np.empty(0, np.int64)], [np.empty((0, 4, 4))], -(1 << 62)
        for t_ns, block in earth.blocks():
            for k in np.flatnonzero(np.diff(t_ns // _EVERY_NS, prepend=-1)).tolist():
                if t_ns[k] >= due_ns:
                    due_ns = int(t_ns[k]) + _EVERY_NS // 2
                    times.append(t_ns[k : k + 1])
                    poses.append(block[k : k + 1])
        self._t_ns, self._poses = np.concatenate(times), np.concatenate(poses)
        self._last: tuple[Times, Floats] | None = None
        self._pairs: list[tuple[Floats, Floats]] = []

    def add(self, t_ns: Times, poses: Floats) -> None:
        """Add the next part of the trajectory: times, rising, and poses [n, 4, 4], rig to world."""
        if self._last is not None:
            t_ns = np.concatenate([self._last[0], t_ns])
            poses = np.concatenate([self._last[1], poses])
        self._last = t_ns[-1:], poses[-1:]
        common = (self._t_ns >= t_ns[0]) & (self._t_ns < t_ns[-1])
        after = np.searchsorted(t_ns, self._t_ns[common], side="right")
        common[common] = t_ns[after] - t_ns[after - 1] <= _LONGEST_GAP_NS
        if common.any():
            at = interpolate_poses(t_ns, poses, self._t_ns[common])
            self._pairs.append((self._poses[common], at))

    def to_earth(self) -> Floats | None:
        """Return the transformation from world to ECEF, f8 [4, 4], m; None if no time is common."""
        if not self._pairs:
            return None
        earth, world = (np.concatenate(part) for part in zip(*self._pairs, strict=True))
        # The rotation that is nearest to the mean of all (Markley et al. 2007, "Averaging
        # Quaternions", section 2: the chordal mean).
        mean = (earth[:, :3, :3] @ np.swapaxes(world[:, :3, :3], 1, 2)).mean(axis=0)
        left, _, right = np.linalg.svd(mean)
        rotation = left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right
        apart = earth[:, :3, 3] - world[:, :3, 3] @ rotation.T
        offset = apart.mean(axis=0)
        self.residual_m = float(np.linalg.norm(apart - offset, axis=1).max())
        fitted: Floats = self._earth_m @ transform(rotation, offset)
        return fitted


def find_earth_fit(session: Session, calibration: Calibration) -> EarthFit | None:
    """Find positions on Earth beside an IMU's orientation; None if a session does not have both."""
    for stream in session.streams.values():
        if not stream.name.startswith("_") and position_channel(stream) is not None:
            try:
                earth = find_poses(session, calibration, stream.name)
            except SessionError:  # no position is valid, or no orientation is known
                continue
            if isinstance(earth, EarthPoses):
                return EarthFit(earth)
    return None
