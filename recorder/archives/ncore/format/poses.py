"""Pose component: rigid transformations between named frames, constant or over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from recorder.archives.ncore.format.component import ComponentWriter, check_name, to_us
from recorder.common.errors import ArchiveError
from recorder.formats.zarr2 import ArrayParts, SpillFile
from recorder.perception.geometry import is_rotation

ROTATION_TOLERANCE = 1e-4
_LAST_ROW = (0.0, 0.0, 0.0, 1.0)


class PosesWriter(ComponentWriter):
    """Writer of static and dynamic poses (component ``poses``).

    The poses of an instance form a tree: exactly one path connects any two frames.  ``world`` is
    the frame that does not move, ``rig`` the vehicle.
    """

    COMPONENT = "poses"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._static: dict[tuple[str, str], npt.NDArray[Any]] = {}
        self._dynamic: dict[tuple[str, str], Trajectory] = {}

    def static_pose(self, source: str, target: str, pose: npt.NDArray[Any]) -> None:
        """Add a constant pose.

        Args:
            source: name of a frame (``front``).
            target: name of another frame (``rig``).
            pose: f4 or f8 [4, 4]; maps points of the source frame to the target frame.
        """
        pair = self._new_pair(source, target)
        self._check_poses(pair, np.asarray(pose)[np.newaxis])
        self._static[pair] = np.array(pose)

    def dynamic_pose(
        self,
        source: str,
        target: str,
        t_ns: npt.NDArray[np.int64],
        poses: npt.NDArray[Any],
        *,
        whole_sequence: bool = True,
    ) -> None:
        """Add a pose over time: a `trajectory` with one `append`."""
        pair = self._new_pair(source, target)
        trajectory = Trajectory(self, pair, whole_sequence)
        try:
            trajectory.append(t_ns, poses)
            trajectory.check_cover()
        except ArchiveError:
            trajectory.close()
            raise
        self._dynamic[pair] = trajectory  # an invalid trajectory is not kept

    def trajectory(self, source: str, target: str, *, whole_sequence: bool = True) -> Trajectory:
        """Add a trajectory, to which poses are appended.

        Args:
            source, target: as for a static pose.
            whole_sequence: the trajectory must cover the sequence exactly: its first time is
                `SequenceWriter.interval.start_ns`, its last one ``.last_ns`` (to the microsecond).
        """
        pair = self._new_pair(source, target)
        self._dynamic[pair] = Trajectory(self, pair, whole_sequence)
        return self._dynamic[pair]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Source and target of every pose."""
        return [*self._static, *self._dynamic]

    def _new_pair(self, source: str, target: str) -> tuple[str, str]:
        check_name(source, f"a frame of {self.full_name}")
        check_name(target, f"a frame of {self.full_name}")
        pair = (source, target)
        for known in (pair, (target, source)):
            if known in self._static or known in self._dynamic:
                self._refuse(f"the pose {known[0]} -> {known[1]} exists already")
        return pair

    def _check_poses(self, pair: tuple[str, str], poses: npt.NDArray[Any]) -> None:
        if poses.dtype not in (np.float32, np.float64) or poses.shape[1:] != (4, 4):
            self._refuse(
                f"pose {pair[0]} -> {pair[1]} is {poses.dtype} {poses.shape[1:]},"
                " not float32 or float64 (4, 4)"
            )
        good = is_rotation(poses[:, :3, :3], ROTATION_TOLERANCE)
        good &= np.isfinite(poses).all(axis=(1, 2)) & (poses[:, 3] == _LAST_ROW).all(axis=1)
        if not good.all():
            first = int(np.argmin(good))
            self._refuse(
                f"pose {first} of {pair[0]} -> {pair[1]} is not a rotation with a translation:"
                f" {poses[first].tolist()}"
            )

    def check_tree(self) -> None:
        """Check that the poses form one tree; an ArchiveError names separate frames or a ring.

        The loader opens only a single tree with at least one pose.
        """
        neighbours: dict[str, list[str]] = defaultdict(list)
        for source, target in self.pairs:
            neighbours[source].append(target)
            neighbours[target].append(source)
        if not neighbours:
            self._refuse("it has no pose; the loader needs at least one")
        start = "world" if "world" in neighbours else next(iter(neighbours))
        reached = {start}
        todo = [start]
        while todo:
            new = [frame for frame in neighbours[todo.pop()] if frame not in reached]
            reached.update(new)
            todo.extend(new)
        apart = sorted(set(neighbours) - reached)
        if apart:
            self._refuse(f"no pose connects {', '.join(apart)} to {start}")
        if len(self.pairs) >= len(neighbours):
            self._refuse(f"its poses form a ring: {self.pairs}")

    def reaches_world(self, frame: str) -> bool:
        """Return whether a path leads from a frame to ``world``; the poses must form a tree."""
        frames = {name for pair in self.pairs for name in pair}
        return {frame, "world"} <= frames

    def _write_rest(self) -> None:
        for trajectory in self._dynamic.values():
            trajectory.check_cover()
        static = {
            str(pair): {"pose": pose.tolist(), "dtype": str(pose.dtype)}
            for pair, pose in self._static.items()
        }
        dynamic = {str(pair): trajectory.document() for pair, trajectory in self._dynamic.items()}
        self.group.group("static_poses").set_attributes(static)
        self.group.group("dynamic_poses").set_attributes(dynamic)
        self.discard()

    def discard(self) -> None:
        for trajectory in self._dynamic.values():
            trajectory.close()


class Trajectory:
    """Pose over time, spooled in a file until the sequence is finished."""

    def __init__(self, writer: PosesWriter, pair: tuple[str, str], whole_sequence: bool) -> None:
        self._writer = writer
        self._pair = pair
        self._whole = whole_sequence
        self._dtype: np.dtype[Any] | None = None
        self._interval = writer._place.interval
        self._poses = SpillFile(writer._place.folder)
        self._times = SpillFile(writer._place.folder)
        self._span: tuple[int, int] | None = None
        self.length = 0
        """Number of poses so far."""

    def append(self, t_ns: npt.NDArray[np.int64], poses: npt.NDArray[Any]) -> None:
        """Add poses.

        Args:
            t_ns: i8 [n], strictly increasing (to the microsecond), inside the sequence.
            poses: f4 or f8 [n, 4, 4], the same dtype in every call.
        """
        times = np.asarray(t_ns)
        if times.dtype != np.int64 or times.ndim != 1 or len(times) != len(poses):
            self._refuse(f"{len(poses)} poses have times of type {times.dtype} {times.shape}")
        self._writer._check_poses(self._pair, poses)
        if self._dtype is not None and poses.dtype != self._dtype:
            self._refuse(f"its poses are {self._dtype}, the appended poses are {poses.dtype}")
        if not len(times):
            return
        interval = self._interval
        if times.min() < 0:
            self._refuse(f"time {times.min()} ns is negative")
        times_us = to_us(np.ascontiguousarray(times))
        first, last = int(times_us[0]), int(times_us[-1])
        before = -1 if self._span is None else self._span[1]
        steps = np.diff(times_us.astype(np.int64), prepend=before)
        if steps.min() <= 0:
            late = int(times_us[np.argmin(steps)])
            self._refuse(f"time {late} us is not after the previous time")
        if not interval.holds(first) or not interval.holds(last):
            outside = last if interval.holds(first) else first
            self._refuse(f"time {outside} us is outside the sequence {interval}")
        self._dtype = poses.dtype
        self._span = (first if self._span is None else self._span[0], last)
        self._poses.write(np.ascontiguousarray(poses, "<f8").tobytes())
        self._times.write(times_us.tobytes())
        self.length += len(times)

    def check_cover(self) -> None:
        """Check that the trajectory has two poses, and covers the sequence if it must."""
        if self.length < 2 or self._span is None:
            self._refuse(f"it has {self.length} poses, at least 2 are needed to interpolate")
        interval = self._interval
        if self._whole and self._span != (interval.start_us, interval.stop_us - 1):
            self._refuse(
                f"it covers {self._span[0]} to {self._span[1]} us; the sequence needs"
                f" {interval.start_us} to {interval.stop_us - 1} us"
            )

    def document(self) -> dict[str, Any]:
        """Return the trajectory's entry in the attributes of ``dynamic_poses``."""
        return {
            "poses": ArrayParts(self.length, lambda: _arrays(self._poses, "<f8", (4, 4))),
            "timestamps_us": ArrayParts(self.length, lambda: _arrays(self._times, "<u8")),
            "dtype": str(self._dtype),
        }

    def close(self) -> None:
        """Discard the poses."""
        self._poses.close()
        self._times.close()

    def _refuse(self, problem: str) -> NoReturn:
        raise ArchiveError(
            f"{self._writer.full_name}: pose {self._pair[0]} -> {self._pair[1]}: {problem}"
        )


def _arrays(
    spool: SpillFile, dtype: str, shape: tuple[int, ...] = ()
) -> Iterator[npt.NDArray[Any]]:
    for part in spool.parts():
        yield np.frombuffer(part, dtype).reshape(-1, *shape)
