"""Agents of the frames, from cuboids (``_cuboids``, docs/labels.md).

The labels are read once, in order of time, and only the labels around the current frame are kept.
A frame gets the boxes that were labelled at its stamp.  Without such boxes, the boxes of a track
are interpolated between the last label before the frame and the first one after it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.l5kit.dataset import AGENT, UNKNOWN, Rows, find_label
from recorder.archives.shared_options import UnplacedKeys
from recorder.common.errors import FormatError
from recorder.perception.geometry import Floats, rotation_of_quaternion
from recorder.perception.labels import LabelFile, Lines, numbers, text
from recorder.perception.poses import RollingTrajectory

SAME_NS = 1_000_000
"""Largest difference of the stamps of a label and of the frame that it belongs to."""

_LARGEST = 1e12
_NEVER_NS = float("inf")

NO_AGENTS: Rows = np.zeros(0, AGENT)


@dataclass
class Counts:
    """Counts of the labels that could not be packed unchanged.

    Attributes:
        alone: boxes that belong to no frame.
        elsewhere: boxes whose reference frame is unknown.
        repeated: boxes of a track that has a box at the same time already.
        without_velocity: agents with unknown velocity, stored as 0.
        unknown_classes: classes without a label.
        unplaced: keys of labels for which agents have no place.
    """

    alone: int = 0
    elsewhere: int = 0
    repeated: int = 0
    without_velocity: int = 0
    unknown_classes: set[str] = field(default_factory=set)
    unplaced: UnplacedKeys = field(default_factory=lambda: UnplacedKeys(("score",)))


@dataclass
class _Snapshot:
    """Boxes of one time: `AGENT` rows; velocities are NaN if the label has none."""

    t_ns: int
    rows: Rows
    place: Mapping[int, int]  # row by track
    used: bool = False


@dataclass
class CuboidAgents:
    """Reader of a label file's boxes as agents.

    ::

        agents = CuboidAgents(file, trajectory, mounting, ...)
        for t_ns in stamps:                # rising
            rows = agents.at(t_ns)         # AGENT [n], by track
        agents.finish()
        agents.counts

    Attributes:
        file: the label file, ordered by time.
        trajectory: rig to world.
        mounting: returns ``T_frame_rig`` of a sensor's frame; None for an unknown frame.
        classes: labels by class; they take precedence over the labels known by name.
        span_ns: times of the first and the last frame.
        gap_ns: longest time between two boxes of a track over which boxes are interpolated.
        bridge: whether frames without own labels get interpolated boxes.
        place: the file's place in the session.
        counts: counts of the labels that could not be packed unchanged.
    """

    file: LabelFile
    trajectory: RollingTrajectory
    mounting: Callable[[str], Floats | None]
    classes: Mapping[str, int]
    span_ns: tuple[int, int]
    gap_ns: int
    bridge: bool
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.place = f"_cuboids/{self.file.path.name}"
        reach_ns = self._reach_ns = max(self.gap_ns, SAME_NS)
        self._first_ns, self._last_ns = self.span_ns[0] - reach_ns, self.span_ns[1] + reach_ns
        self._tracks: dict[str, int] = {}
        self._window: deque[_Snapshot] = deque()
        self._groups = self.file.by_time()
        self._waiting: tuple[int, Lines] | None = None

    def at(self, t_ns: int) -> Rows:
        """Return the agents at a time, `AGENT` [n], ordered by track; call with rising times.

        Raises:
            FormatError: a label is invalid; the message names file, line and key.
        """
        self._fill(t_ns + self._reach_ns)
        self._evict(t_ns - self._reach_ns - SAME_NS)
        own = [s for s in self._window if abs(s.t_ns - t_ns) <= SAME_NS]
        if own:
            rows = self._collect_labelled(sorted(own, key=lambda s: abs(s.t_ns - t_ns)))
        elif self.bridge:
            rows = self._interpolate_at(t_ns)
        else:
            return NO_AGENTS
        unknown = np.isnan(rows["velocity"]).any(axis=1)
        self.counts.without_velocity += int(np.count_nonzero(unknown))
        rows["velocity"][unknown] = 0.0
        return rows[np.argsort(rows["track_id"])]

    def finish(self) -> None:
        """Read the labels after the last frame, and count them."""
        self._fill(_NEVER_NS)
        self._evict(_NEVER_NS)

    def _fill(self, until_ns: float) -> None:
        while True:
            if self._waiting is None:
                self._waiting = next(self._groups, None)
            if self._waiting is None or self._waiting[0] > until_ns:
                return
            t_ns, lines = self._waiting
            self._waiting = None
            if self._first_ns <= t_ns <= self._last_ns:
                snapshot = self._snapshot(t_ns, lines)
                if snapshot.place:
                    self._window.append(snapshot)
            else:
                self.counts.alone += len(lines)

    def _evict(self, before_ns: float) -> None:
        while self._window and self._window[0].t_ns < before_ns:
            snapshot = self._window.popleft()
            if not snapshot.used:
                self.counts.alone += len(snapshot.rows)

    def _snapshot(self, t_ns: int, lines: Lines) -> _Snapshot:
        """Convert the boxes of one time to the world's frame."""
        rig_world = self.trajectory.at(np.array([t_ns], np.int64))[0]
        ways: dict[str, Floats | None] = {"rig": rig_world, "world": np.eye(4)}
        place: dict[int, int] = {}
        rows = np.zeros(len(lines), AGENT)
        boxes = np.empty((len(lines), 10))  # centre, velocity, quaternion
        matrices = np.empty((len(lines), 4, 4))
        for where, label in lines:
            frame = text(label, "frame", where)
            if frame not in ways:
                mounting = self.mounting(frame)
                ways[frame] = None if mounting is None else rig_world @ mounting
            matrix = ways[frame]
            track = text(label, "track", where)
            number = self._tracks.setdefault(track, len(self._tracks) + 1)
            if matrix is None:
                self.counts.elsewhere += 1
            elif number in place:
                self.counts.repeated += 1
            else:
                k = place[number] = len(place)
                self.counts.unplaced.count(label)
                matrices[k], boxes[k] = matrix, _box(label, where)
                rows[k]["track_id"] = number
                rows[k]["extent"] = _size(label, where)
                rows[k]["label_probabilities"] = self._probabilities(label, where)
        n = len(place)
        turn = matrices[:n, :3, :3]
        heading = (turn @ rotation_of_quaternion(boxes[:n, 6:]))[:, :2, 0]
        rows = rows[:n]
        rows["centroid"] = (turn @ boxes[:n, :3, None])[:, :2, 0] + matrices[:n, :2, 3]
        rows["velocity"] = (turn @ boxes[:n, 3:6, None])[:, :2, 0]
        rows["yaw"] = np.arctan2(heading[:, 1], heading[:, 0])
        return _Snapshot(t_ns, rows, place)

    def _probabilities(self, label: Mapping[str, Any], where: str) -> npt.NDArray[np.float32]:
        word = text(label, "class", where)
        index = self.classes.get(word)
        if index is None:
            index = find_label(word)
        if index is None:
            self.counts.unknown_classes.add(word)
            index = UNKNOWN
        score = label.get("score", 1.0)
        probabilities = np.zeros(AGENT["label_probabilities"].shape, np.float32)
        probabilities[UNKNOWN] = 1 - score
        probabilities[index] += score
        return probabilities

    def _collect_labelled(self, own: list[_Snapshot]) -> Rows:
        """Return the boxes of these snapshots; compute missing velocities from the tracks."""
        found: list[tuple[_Snapshot, int]] = []
        seen: set[int] = set()
        for snapshot in own:
            snapshot.used = True
            found += [(snapshot, track) for track in snapshot.place if track not in seen]
            seen |= snapshot.place.keys()
        merged, times = _gather(found), [snapshot.t_ns for snapshot, _ in found]
        missing = np.flatnonzero(np.isnan(merged["velocity"]).any(axis=1))
        if len(missing):
            before, after = self._find_around(min(times), max(times))
            for k in missing.tolist():
                merged["velocity"][k] = self._estimate_velocity(merged[k], times[k], before, after)
        return merged

    def _estimate_velocity(self, row: Any, t_ns: int, before: _Found, after: _Found) -> Floats:
        """Return the velocity of a track around one of its boxes; NaN if it has no other box."""
        track = int(row["track_id"])

        def point(found: _Found) -> tuple[int, Floats]:
            snapshot = found.get(track)
            if snapshot is None or abs(snapshot.t_ns - t_ns) > self.gap_ns:
                return t_ns, row["centroid"]
            return snapshot.t_ns, snapshot.rows["centroid"][snapshot.place[track]]

        (start_ns, start), (end_ns, end) = point(before), point(after)
        if start_ns == end_ns:
            return np.full(2, np.nan)
        return np.asarray((end - start) / ((end_ns - start_ns) / 1e9))

    def _find_around(self, start_ns: int, end_ns: int) -> tuple[_Found, _Found]:
        """Return each track's last snapshot before `start_ns` and its first one after `end_ns`."""
        before: _Found = {}
        after: _Found = {}
        for snapshot in self._window:
            if snapshot.t_ns < start_ns:
                before.update(dict.fromkeys(snapshot.place, snapshot))
            elif snapshot.t_ns > end_ns:
                after = dict.fromkeys(snapshot.place, snapshot) | after
        return before, after

    def _interpolate_at(self, t_ns: int) -> Rows:
        """Interpolate the boxes of the tracks that have a box before and a box after a time."""
        before, after = self._find_around(t_ns, t_ns)
        pairs = [
            (before[track], after[track], track)
            for track in before.keys() & after.keys()
            if after[track].t_ns - before[track].t_ns <= self.gap_ns
        ]
        if not pairs:
            return NO_AGENTS.copy()
        for a, b, _ in pairs:
            a.used = b.used = True
        first = _gather([(a, track) for a, _, track in pairs])
        second = _gather([(b, track) for _, b, track in pairs])
        start = np.array([a.t_ns for a, _, _ in pairs], np.int64)
        span_s = np.array([b.t_ns for _, b, _ in pairs], np.int64) - start
        return _interpolate(first, second, (t_ns - start) / span_s, span_s / 1e9)


_Found = dict[int, _Snapshot]


def _gather(found: list[tuple[_Snapshot, int]]) -> Rows:
    """Copy the rows of snapshots and tracks.

    Rows are copied into one array, because numpy takes 20 us to join two structured arrays.
    """
    places: dict[int, list[int]] = {}
    for k, (snapshot, _) in enumerate(found):
        places.setdefault(id(snapshot), []).append(k)
    rows = np.empty(len(found), AGENT)
    for where in places.values():
        snapshot = found[where[0]][0]
        rows[where] = snapshot.rows[[snapshot.place[found[k][1]] for k in where]]
    return rows


def _interpolate(first: Rows, second: Rows, share: Floats, span_s: Floats) -> Rows:
    """Interpolate two boxes of each track, at a share (0 to 1) of the time between them."""
    rows = np.where(share < 0.5, first, second)
    part = share[:, None]
    for name in ("centroid", "extent", "velocity"):
        rows[name] = first[name] + part * (second[name] - first[name])
    turn = np.remainder(second["yaw"] - first["yaw"] + np.pi, 2 * np.pi) - np.pi
    yaw = first["yaw"] + share * turn
    rows["yaw"] = np.remainder(yaw + np.pi, 2 * np.pi) - np.pi
    missing = np.isnan(rows["velocity"]).any(axis=1)
    moved = (second["centroid"] - first["centroid"]) / span_s[:, None]
    rows["velocity"][missing] = moved[missing]
    return rows


def _box(label: Mapping[str, Any], where: str) -> tuple[float, ...]:
    """Return centre, velocity and quaternion of a label."""
    velocity: tuple[float, ...] = (np.nan, np.nan, np.nan)
    if label.get("velocity_m_s") is not None:
        velocity = _read_vector(label, "velocity_m_s", where)
    quaternion = numbers(label, "quaternion_xyzw", 4, where)
    if not 1 / _LARGEST < math.hypot(*quaternion) < _LARGEST:
        raise FormatError(f"{where}: quaternion_xyzw: is not a rotation")
    return (*_read_vector(label, "center_m", where), *velocity, *quaternion)


def _read_vector(label: Mapping[str, Any], key: str, where: str) -> tuple[float, ...]:
    """Return three numbers small enough for float32, including their rates of change."""
    values = numbers(label, key, 3, where)
    if max(map(abs, values)) > _LARGEST:
        raise FormatError(f"{where}: {key}: {max(values, key=abs):g} is too large")
    return values


def _size(label: Mapping[str, Any], where: str) -> tuple[float, ...]:
    size = _read_vector(label, "size_m", where)
    if min(size) < 0:
        raise FormatError(f"{where}: size_m: is negative")
    return size
