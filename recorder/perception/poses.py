"""Poses of the rig: the best trajectory of a session, and its source.

Sources in order of preference: a pose or odometry sensor of the session (``pos`` and ``rot``), such
as the virtual sensor ``_pose``; ``_SENSOR/pose.npz`` in the format of roverd's `Pose`; positions on
Earth with the orientation of an IMU; the orientation alone, without translation; a rig at rest.
Lidar odometry (`recorder.perception.lidar.odometry`) is used only on request.

::

    source = find_poses(session, calibration)
    cover = Cover(source, start_ns, last_ns)
    for t_ns, poses in cover.blocks():       # f8 [n, 4, 4], rig to world
        ...
    source.describe() | cover.describe()
"""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError, SessionError
from recorder.perception.calibration import Calibration
from recorder.perception.earth import (
    earth_points,
    is_position,
    local_axes,
    local_to_earth,
    position_channel,
)
from recorder.perception.frames import NS_PER_US, WINDOW, kind_of
from recorder.perception.geometry import (
    Floats,
    interpolate_poses,
    is_rotation,
    quaternion_of_rotation,
    rotation_of_quaternion,
    rotation_of_rpy,
    transform,
)
from recorder.session.reader import Session
from recorder.session.session_part import stream_part
from recorder.session.stream import Stream

Times = npt.NDArray[np.int64]
Block = tuple[Times, Floats]

_FROM_LOCAL = {  # rows: x, y, z of a frame with z up, in axes of the IMU's local frame
    "ENU": np.eye(3),
    "NWU": np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
    "NED": np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]),
}
_LONGEST_GAP_NS = 2_000_000_000
_POSITION = ("latitude_deg", "longitude_deg", "height_m")


class PoseSource(Protocol):
    """A trajectory of the rig."""

    @property
    def name(self) -> str:
        """Name of the source: ``_pose``, ``imu``, ``identity``."""

    def blocks(self) -> Iterator[Block]:
        """Yield times, int64 [n], strictly rising, and poses, f8 [n, 4, 4], rig to world."""

    def describe(self) -> dict[str, Any]:
        """Return a description for an archive's metadata: at least ``source`` and ``measured``."""


class RecordedPoses(PoseSource, Protocol):
    """A trajectory in a session, of which any interval can be read."""

    def between(self, start_ns: int, end_ns: int) -> PoseSource:
        """Limit the source to an interval, half-open, or to a longer one that is read at once."""


def find_poses(session: Session, calibration: Calibration, wanted: str = "auto") -> RecordedPoses:
    """Find the trajectory of a session.

    Args:
        session: opened with ``virtual=True``; otherwise virtual sensors are not found.
        calibration: calibration with the pose of the IMU.
        wanted: ``auto``; ``imu`` for the first IMU with orientations; ``identity``; or the name of
            a sensor.

    Raises:
        SessionError: the sensor is missing, or has neither poses nor orientations.
        FormatError: the sensor cannot be read.
    """
    if wanted == "identity":
        return Identity()
    if wanted not in ("auto", "imu"):
        return _find_named(session, calibration, wanted)
    if wanted == "auto":
        found: list[Stream] = [s for s in session.streams.values() if has_poses(s) and len(s)]
        if found:
            # Processing writes its best trajectory to `_pose`; a recorded pose sensor comes next.
            return StreamPoses(min(found, key=lambda s: (s.name != "_pose", s.name)))
        for name in ("_pose", "_lidar", "_camera", "_radar"):
            path = session.path / name / "pose.npz"
            if path.is_file():
                return NpzPoses(path)
        for path in sorted(session.path.glob("_*/pose.npz")):
            return NpzPoses(path)
    imu = _find_oriented_imu(session)
    if imu is not None and wanted == "auto":
        for stream in session.streams.values():
            if not stream.name.startswith("_") and _has_positions(stream):
                return EarthPoses(
                    stream, _find_oriented_imu(session, stream.name) or imu, calibration
                )
    if imu is not None:
        return ImuOrientation(imu, calibration)
    if wanted == "imu":
        raise SessionError(f"{session.path}: has no IMU with orientations")
    return Identity()


def _find_named(session: Session, calibration: Calibration, name: str) -> RecordedPoses:
    path = session.path / name / "pose.npz"
    if name not in session.streams and path.is_file():
        return NpzPoses(path)
    stream = session.stream(name)
    if has_poses(stream):
        return StreamPoses(stream)
    if kind_of(stream) == "imu" and _has_orientations(stream):
        return ImuOrientation(stream, calibration)
    if _has_positions(stream) and (
        imu := _find_oriented_imu(session, name) or _find_oriented_imu(session)
    ):
        return EarthPoses(stream, imu, calibration)
    raise SessionError(f"{stream.path}: has neither poses (pos, rot) nor orientations")


def _find_oriented_imu(session: Session, position: str = "") -> Stream | None:
    """Return the first IMU with orientations; that of the position stream `position` if given."""
    for stream in session.streams.values():
        if position and position != f"{stream.name}_gnss":
            continue
        if kind_of(stream) == "imu" and len(stream) and _has_orientations(stream):
            return stream
    return None


def _has_positions(stream: Stream) -> bool:
    """Return whether a stream has positions on Earth."""
    channel = position_channel(stream)
    return channel is not None and any(
        is_position(batch.data[channel]).any() for batch in stream.iterate(WINDOW, [channel])
    )


def has_poses(stream: Stream) -> bool:
    """Return whether a stream has poses: positions and orientations at times."""
    pos, rot = stream.meta.get("pos"), stream.meta.get("rot")
    return (
        stream.has_times
        and pos is not None
        and rot is not None
        and pos["shape"] == [3]
        and rot["shape"] in ([3, 3], [4], [3])
    )


def _has_orientations(stream: Stream) -> bool:
    """Return whether an orientation is among an IMU's first samples."""
    if stream.meta.get("rot", {}).get("shape") != [3]:
        return False
    first = stream.read(0, min(len(stream), 100), ["rot"])["rot"]
    return bool(np.isfinite(first).all(axis=1).any())


class Identity:
    """A rig with unknown poses, at rest in the world's origin."""

    name = "identity"

    def blocks(self) -> Iterator[Block]:
        yield np.zeros(1, np.int64), np.eye(4)[None]

    def between(self, start_ns: int, end_ns: int) -> PoseSource:  # noqa: ARG002
        return self

    def describe(self) -> dict[str, Any]:
        return {"source": "identity", "measured": False, "note": "no poses known: the rig stands"}


class _CheckedPoses:
    """A source that passes samples with rising times and valid poses, and counts the others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._left_out = 0

    def blocks(self) -> Iterator[Block]:
        self._left_out, last_us = 0, -(1 << 62)
        for t_ns, poses in self._read():
            good = is_rotation(poses[:, :3, :3]) & np.isfinite(poses[:, :3, 3]).all(axis=1)
            t_us = t_ns // NS_PER_US
            highest = np.maximum.accumulate(np.concatenate([[last_us], np.where(good, t_us, 0)]))
            good &= t_us > highest[:-1]
            if good.any():
                last_us = int(t_us[good][-1])
            self._left_out += int(len(good) - np.count_nonzero(good))
            kept = poses[good]
            # Restores orthogonality to the precision of float64: stored rotations may be float32.
            kept[:, :3, :3] = rotation_of_quaternion(quaternion_of_rotation(kept[:, :3, :3]))
            yield t_ns[good], kept

    def between(self, start_ns: int, end_ns: int) -> PoseSource:
        part = copy.copy(self)
        part._limit(start_ns, end_ns)
        return part

    def _limit(self, start_ns: int, end_ns: int) -> None:
        """Read an interval only, if the samples are not in memory anyway."""

    def describe(self) -> dict[str, Any]:
        left_out = {"poses_left_out": self._left_out} if self._left_out else {}
        return self._describe_source() | left_out

    def _read(self) -> Iterator[Block]:
        """Yield times and poses as recorded."""
        raise NotImplementedError

    def _describe_source(self) -> dict[str, Any]:
        """Return the description without the number of samples that are left out."""
        raise NotImplementedError


class StreamPoses(_CheckedPoses):
    """Poses of a sensor with ``pos`` f[3] (m) and ``rot``, rig to world.

    ``rot`` is a matrix [3, 3], a quaternion x y z w [4], or roll, pitch, yaw in rad [3].
    """

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.name)
        self._stream = stream

    def _read(self) -> Iterator[Block]:
        for batch in self._stream.iterate(WINDOW // 8, ["pos", "rot"]):
            pos, rot = batch.data["pos"], batch.data["rot"].astype(np.float64)
            if rot.shape[1:] == (4,):
                rot[~(np.abs(np.linalg.norm(rot, axis=1) - 1) < 1e-2)] = np.nan
                bad = ~np.isfinite(rot).all(axis=1)
                rot[bad] = (0, 0, 0, 1)
                matrix = rotation_of_quaternion(rot)
                matrix[bad] = np.nan
            elif rot.shape[1:] == (3,):
                matrix = _compute_rotations(rot)
            else:
                matrix = rot
            yield batch.t_ns, transform(matrix, pos)

    def _limit(self, start_ns: int, end_ns: int) -> None:
        self._stream = _cut(self._stream, start_ns, end_ns)

    def _describe_source(self) -> dict[str, Any]:
        text = {"source": f"sensor {self.name}", "measured": True}
        spec = self._stream.spec
        if spec is not None and spec.description:
            text["description"] = spec.description
        return text


class NpzPoses(_CheckedPoses):
    """Poses of roverd's ``pose.npz``, rig to world.

    Arrays: ``t`` in s, ``pos`` [n, 3], ``rot`` [n, 3, 3].
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent.name)
        self._path = path

    def _read(self) -> Iterator[Block]:
        try:
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as bundle:
                t_s, pos, rot = bundle["t"], bundle["pos"], bundle["rot"]
            whole = np.floor(t_s)
            t_ns = whole.astype(np.int64) * 1_000_000_000
            t_ns += np.rint((t_s - whole) * 1e9).astype(np.int64)
            poses = transform(rot.reshape(-1, 3, 3), pos.reshape(-1, 3))
            if len(poses) != len(t_ns):
                raise ValueError(f"{len(poses)} poses have {len(t_ns)} times")
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise FormatError(f"{self._path}: is not a trajectory: {error}") from None
        yield t_ns, poses

    def _describe_source(self) -> dict[str, Any]:
        return {"source": f"{self.name}/pose.npz", "measured": True}


class ImuOrientation(_CheckedPoses):
    """Orientation of an IMU (roll, pitch, yaw), with zero translation."""

    def __init__(self, stream: Stream, calibration: Calibration) -> None:
        super().__init__(stream.name)
        self._stream = stream
        self._mounting = calibration.of(stream.name).pose
        settings: Mapping[str, Any] = stream.spec.settings if stream.spec is not None else {}
        self._local = str(settings.get("coordinates") or "ENU")

    def _read(self) -> Iterator[Block]:
        for t_ns, rotation in self.rotations():
            yield t_ns, transform(rotation, np.zeros(3))

    def rotations(self) -> Iterator[Block]:
        """Yield times and rotations f8 [n, 3, 3], rig to east, north, up; NaN if not measured."""
        of_rig = np.eye(3) if self._mounting is None else self._mounting[:3, :3].T
        for batch in self._stream.iterate(WINDOW // 4, ["rot"]):
            yield batch.t_ns, imu_rotations(batch.data["rot"], self._local) @ of_rig

    def _limit(self, start_ns: int, end_ns: int) -> None:
        self._stream = _cut(self._stream, start_ns, end_ns)

    def _describe_source(self) -> dict[str, Any]:
        return {
            "source": f"orientation of {self.name}",
            "measured": False,
            "note": "orientation from the IMU, translation is zero and not known",
            "local_frame": self._local,
            "mounting": "identity" if self._mounting is None else "calibration",
        }


class EarthPoses(_CheckedPoses):
    """Positions on Earth with the orientation of an IMU.

    The world's axes are east, north and up at the first position.  Positions are interpolated
    linearly.  A pose is left out beside a position that was not measured, between two positions
    more than two seconds apart, and outside of all positions.

    Args:
        stream: positions (`recorder.perception.earth.position_channel`), at least one is valid.
        imu: stream with orientations.
        calibration: places of both in the rig; a GNSS/INS device's positions are at its IMU.

    Attributes:
        to_earth: f8 [4, 4], world to ECEF in m.
    """

    def __init__(self, stream: Stream, imu: Stream, calibration: Calibration) -> None:
        super().__init__(stream.name)
        self._orientation = ImuOrientation(imu, calibration)
        place = calibration.of(stream.name).pose
        place = calibration.of(imu.name).pose if place is None else place
        self._lever_m = np.zeros(3) if place is None else place[:3, 3]
        self._placed = place is not None
        channel = position_channel(stream) or ""
        positions = stream.read(0, len(stream), [channel])[channel].astype(np.float64)
        t_ns = stream.t_ns
        rising = t_ns > np.maximum.accumulate(np.concatenate([[-1], t_ns]))[:-1]
        positions, self._t_ns = positions[rising], t_ns[rising]
        if positions.shape[1] == 2 or np.isnan(positions[:, 2]).all():  # heights are not known
            positions = np.pad(positions[:, :2], ((0, 0), (0, 1)))
        positions[~is_position(positions)] = np.nan
        self._origin = positions[np.flatnonzero(np.isfinite(positions).all(axis=1))[0]]
        self.to_earth = local_to_earth(self._origin)
        self._world_m = (earth_points(positions) - self.to_earth[:3, 3]) @ self.to_earth[:3, :3]
        self._axes = self.to_earth[:3, :3].T @ local_axes(positions)

    def _read(self) -> Iterator[Block]:
        for t_ns, rotation in self._orientation.rotations():
            after = np.clip(np.searchsorted(self._t_ns, t_ns), 0, len(self._t_ns) - 1)
            before = np.where(self._t_ns[after] > t_ns, np.maximum(after - 1, 0), after)
            span_ns = (self._t_ns[after] - self._t_ns[before]).astype(np.float64)
            late_ns = np.clip(t_ns - self._t_ns[before], 0, span_ns)
            share = np.divide(late_ns, span_ns, out=np.zeros(len(t_ns)), where=span_ns > 0)
            start, end = self._world_m[before], self._world_m[after]
            position = start + share[:, None] * (end - start)
            outside = (t_ns < self._t_ns[0]) | (t_ns > self._t_ns[-1])
            position[(span_ns > _LONGEST_GAP_NS) | outside] = np.nan
            rotation = self._axes[before] @ rotation
            yield t_ns, transform(rotation, position - rotation @ self._lever_m)

    def _limit(self, start_ns: int, end_ns: int) -> None:
        self._orientation = copy.copy(self._orientation)
        self._orientation._limit(start_ns, end_ns)

    def _describe_source(self) -> dict[str, Any]:
        return {
            "source": f"positions of {self.name}, orientation of {self._orientation.name}",
            "measured": True,
            "world": "east, north, up at the first position",
            "origin": dict(zip(_POSITION, self._origin.tolist(), strict=True)),
            "mounting": "calibration" if self._placed else "identity",
        }


def _cut(stream: Stream, start_ns: int, end_ns: int) -> Stream:
    inside = stream.between(start_ns, end_ns)
    return stream_part(stream, inside.start, inside.stop)


def imu_rotations(rpy_rad: npt.ArrayLike, local: str) -> Floats:
    """Return rotations f8 [n, 3, 3] from an IMU to east, north, up; NaN where an angle is NaN.

    Args:
        rpy_rad: roll, pitch, yaw [n, 3] in the device's local frame.
        local: its local frame: ``ENU``, ``NED`` or ``NWU``.
    """
    matrices: Floats = _FROM_LOCAL.get(local, np.eye(3)) @ _compute_rotations(
        np.asarray(rpy_rad, np.float64)
    )
    return matrices


def _compute_rotations(rpy_rad: Floats) -> Floats:
    """Return rotation matrices of roll, pitch, yaw [n, 3]; NaN where an angle is NaN."""
    bad = np.asarray(~np.isfinite(rpy_rad).all(axis=1))
    matrix = rotation_of_rpy(np.where(bad[:, None], 0.0, rpy_rad))
    matrix[bad] = np.nan
    return matrix


class Cover:
    """A trajectory, cut and extended to cover an interval exactly.

    Attributes:
        held_before_ns, held_after_ns: time for which the first and the last pose are held, where
            the source begins later or ends earlier than the interval; else 0.
        longest_gap_ns: longest time between two poses of the source inside the interval.
        count: number of poses yielded.
    """

    def __init__(self, source: PoseSource, start_ns: int, last_ns: int) -> None:
        """Cover an interval; both ends are whole microseconds, and the last is greater."""
        self._source, self._start, self._last = source, start_ns, last_ns
        self.held_before_ns = self.held_after_ns = self.longest_gap_ns = 0
        self.count = 0

    def blocks(self) -> Iterator[Block]:
        """Yield times, strictly rising from the interval's start to its last time, and poses.

        Raises:
            FormatError: the source has no pose.
        """
        known: Block | None = None  # the latest pose
        begun = False
        for t_ns, poses in self._source.blocks():
            if not len(t_ns):
                continue
            if known is not None:
                t_ns, poses = np.concatenate([known[0], t_ns]), np.concatenate([known[1], poses])
            # The first pose lies at the start itself, between the poses around it.
            if not begun and t_ns[-1] >= self._start:
                begun = True
                self.held_before_ns = max(0, int(t_ns[0]) - self._start)
                yield self._count_poses(
                    np.array([self._start]),
                    interpolate_poses(t_ns, poses, np.array([self._start])),
                )
            if begun:
                first = 0 if known is None else 1
                yield from self._select_inside(t_ns, poses, first)
            known = t_ns[-1:], poses[-1:]
            if t_ns[-1] >= self._last:
                end = np.array([self._last])
                yield self._count_poses(end, interpolate_poses(t_ns, poses, end))
                return
        if known is None:
            raise FormatError(f"{self._source.name}: holds no pose")
        for at in ([] if begun else [self._start]) + [self._last]:
            yield self._count_poses(np.array([at]), known[1])
        if not isinstance(self._source, Identity):
            self.held_after_ns = self._last - max(int(known[0][0]), self._start)

    def _select_inside(self, t_ns: Times, poses: Floats, first: int) -> Iterator[Block]:
        us = NS_PER_US
        inside = (t_ns // us > self._start // us) & (t_ns // us < self._last // us)
        gaps = np.diff(t_ns)[(t_ns[1:] > self._start) & (t_ns[:-1] < self._last)]
        self.longest_gap_ns = max(self.longest_gap_ns, int(gaps.max(initial=0)))
        inside[:first] = False
        if inside.any():
            yield self._count_poses(t_ns[inside], poses[inside])

    def _count_poses(self, t_ns: Times, poses: Floats) -> Block:
        self.count += len(t_ns)
        return t_ns, poses

    def describe(self) -> dict[str, Any]:
        """Return a description for an archive's metadata, after `blocks` has ended."""
        held = {"held_before_s": self.held_before_ns, "held_after_s": self.held_after_ns}
        text: dict[str, Any] = {name: ns / 1e9 for name, ns in held.items() if ns}
        return {"poses": self.count, "longest_gap_s": self.longest_gap_ns / 1e9, **text}


_WORTH_CUTTING = 4096  # poses
LONGEST_GAP_NS = 1_000_000_000
_HELD_NS = 100_000_000


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
        """Return poses at the rising times [n]; outside of the trajectory, its nearest pose.

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

    def knows(self, t_ns: Times) -> npt.NDArray[np.bool_]:
        """Return whether poses are near each time of the last `at`, bool [n]; see `are_near`."""
        return are_near(self._t_ns, t_ns) if len(self._t_ns) else np.zeros(len(t_ns), np.bool_)


def are_near(times: Times, t_ns: Times) -> npt.NDArray[np.bool_]:
    """Find the times that have a pose.

    A time more than 0.1 s before the first or after the last pose has none, nor has a time between
    two poses that are more than a second apart.

    Args:
        times: int64 [k], k > 0, rising times of poses.
        t_ns: int64 [n].

    Returns:
        bool [n].
    """
    held = np.abs(np.clip(t_ns, times[0], times[-1]) - t_ns) <= _HELD_NS
    gaps = np.diff(times, prepend=times[0])
    gap = gaps[np.minimum(np.searchsorted(times, t_ns), len(times) - 1)]
    inside = (t_ns > times[0]) & (t_ns < times[-1])
    near: npt.NDArray[np.bool_] = np.where(inside, gap <= LONGEST_GAP_NS, held)
    return near
