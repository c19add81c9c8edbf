"""Lidar odometry with kiss-icp (the extra ``odometry``), used only on request.

Odometry estimates the trajectory from the sweeps alone.  The estimate drifts; it does not measure
the vehicle's position.  Its world frame is the rig's frame at the end of the first sweep.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from recorder.common.errors import UsageError, need_extra
from recorder.perception.geometry import Floats, apply, invert
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.points import find_times, point_times, stack_xyz
from recorder.perception.poses import Block
from recorder.session.playback import recorded_spec
from recorder.session.stream import Stream

_NEAREST_M, _FARTHEST_M = 1.0, 100.0
_GROUND_M = 0.25


def require_odometry() -> None:
    """Raise a UsageError that names the extra if kiss-icp is not installed."""
    if importlib.util.find_spec("kiss_icp") is None:
        raise UsageError(f"lidar odometry {need_extra('odometry')}: no kiss-icp")


class LidarOdometry:
    """A trajectory from a lidar's sweeps.

    Poses are kept in memory: 136 bytes a sweep.

    Args:
        stream: the lidar's stream.
        mounting: ``T_lidar_rig``, f8 [4, 4].
        advance: called with 1 for each sweep.
    """

    def __init__(
        self,
        stream: Stream,
        mounting: Floats,
        advance: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.name = stream.name
        self._stream, self._mounting, self._advance = stream, mounting, advance
        self._source = make_point_source(recorded_spec(stream))
        self._version = ""

    def blocks(self) -> Iterator[Block]:
        require_odometry()
        odometry = self._create_odometry()
        to_lidar = invert(self._mounting)
        times, poses = array("q"), []
        for index in range(len(self._stream)):
            end_ns, points, share = self._select_points(index)
            odometry.register_frame(points, share)
            if times and end_ns <= times[-1]:
                continue
            times.append(end_ns)
            poses.append(self._mounting @ np.asarray(odometry.last_pose, np.float64) @ to_lidar)
            self._advance(1)
        yield np.array(times, np.int64), np.stack(poses)

    def _select_points(self, index: int) -> tuple[int, Floats, Floats]:
        """Return a sweep's end, points f8 [n, 3] of the first return, and their times.

        A time is a share of the sweep, between 0 and 1.
        """
        end_ns = int(self._stream.times(index, index + 1)[0])
        start_ns, found = self._source.read(self._stream, index)
        if self._source.timed:
            found = found[find_times(found)]
        if self._source.returns > 1:
            found = found[found["return"] == 0]
        points = stack_xyz(found).astype(np.float64)
        with np.errstate(invalid="ignore"):
            distance = np.linalg.norm(points, axis=1)
            hit = (distance > _NEAREST_M) & (distance < _FARTHEST_M)
            if not np.array_equal(self._mounting, np.eye(4)):
                # A sweep's rings on flat ground do not move with the rig.
                hit &= apply(self._mounting, points)[:, 2] > _GROUND_M
        share = (point_times(start_ns, found[hit]) - start_ns) / max(1, end_ns - start_ns)
        return end_ns, points[hit], share

    def _create_odometry(self) -> Any:
        load_config = importlib.import_module("kiss_icp.config").load_config
        kiss_icp = importlib.import_module("kiss_icp.kiss_icp")
        self._version = importlib.metadata.version("kiss-icp")
        config = load_config(None)
        config.data.max_range, config.data.min_range = _FARTHEST_M, _NEAREST_M
        config.data.deskew = self._source.timed
        if config.mapping.voxel_size is None:
            config.mapping.voxel_size = _FARTHEST_M / 100
        return kiss_icp.KissICP(config)

    def describe(self) -> dict[str, Any]:
        note = "estimated from the lidar's sweeps by odometry; drifts"
        if not self._source.timed:
            note += "; not corrected for motion: the points have no times"
        return {
            "source": f"lidar odometry of {self.name}",
            "measured": False,
            "note": note,
            "method": f"kiss-icp {self._version}".strip(),
        }
