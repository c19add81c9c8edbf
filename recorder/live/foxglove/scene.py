"""Frames, labels and events: what is not a stream of samples.

The frame of a sensor has the sensor's name, and the parent ``rig``; where poses of the rig are
known, the parent of ``rig`` is ``world``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from foxglove.messages import (
    Color,
    CubePrimitive,
    FrameTransform,
    FrameTransforms,
    KeyValuePair,
    Log,
    LogLevel,
    Pose,
    Quaternion,
    SceneEntity,
    SceneEntityDeletion,
    SceneEntityDeletionType,
    SceneUpdate,
    Vector3,
)

from recorder.contract.errors import FormatError, RecorderError
from recorder.live.access import without_paths
from recorder.live.backend import Note
from recorder.live.foxglove.channels import (
    STATIC_NS,
    Channel,
    Encoded,
    EncodeTime,
    schema_of,
    stamp,
)
from recorder.live.happenings import event_note
from recorder.processing.calibration import Calibration
from recorder.processing.geometry import (
    Floats,
    interpolate_poses,
    quaternion_of_rotation,
)
from recorder.processing.labels import LabelFile, cuboid_files, number_rows, texts
from recorder.processing.poses import Identity, find_poses
from recorder.session.reader import Session

_POSE_EVERY_NS: Final = 20_000_000  # closer poses are left out
_EARLIER_EVENTS: Final = 100
_LABEL_TIME: Final = re.compile(rb'"t_ns"\s*:\s*(-?\d{1,19})\s*[,}]')
_COLORS: Final = {
    "car": Color(r=0.2, g=0.6, b=1.0, a=0.4),
    "truck": Color(r=0.6, g=0.4, b=1.0, a=0.4),
    "cyclist": Color(r=1.0, g=0.7, b=0.1, a=0.4),
    "pedestrian": Color(r=1.0, g=0.3, b=0.3, a=0.4),
}
_OTHER: Final = Color(r=0.7, g=0.7, b=0.7, a=0.3)
_LEVELS: Final = {"lost": LogLevel.Warning, "fault": LogLevel.Error}

Times = npt.NDArray[np.int64]


def transforms_channel(calibration: Calibration, session: Path | None = None) -> Channel | None:
    """``/tf``: places of the sensors in the rig, and of the rig in the world where it is known.

    Args:
        calibration: of the rig.
        session: a recorded session, whose poses are read at the first use.

    Returns:
        None where nothing is known.
    """
    places = {
        name: sensor.pose for name, sensor in calibration.sensors.items() if sensor.pose is not None
    }
    if not places and session is None:
        return None
    known: list[Trajectory | None] = []

    def start() -> EncodeTime:
        static_ns: int | None = None
        last_pose: int | None = None

        def due(t_ns: int) -> Encoded:
            nonlocal static_ns, last_pose
            if session is not None and not known:
                known.append(Trajectory.of_session(session, calibration))
            transforms = []
            if static_ns is None or not 0 <= t_ns - static_ns < STATIC_NS:
                static_ns = t_ns
                transforms = [_transform(t_ns, "rig", *place) for place in places.items()]
            trajectory = known[0] if known else None
            if trajectory is not None and last_pose != t_ns:
                last_pose = t_ns
                transforms.append(_transform(t_ns, "world", "rig", trajectory.at(t_ns)))
            if not transforms:
                return []
            return [(t_ns, FrameTransforms(transforms=transforms).encode())]

        return due

    return Channel("/tf", schema_of(FrameTransforms), timed=start)


class Trajectory:
    """Poses of the rig in the world, at most 50 a second.

    Args:
        t_ns: int64 [n], rising.
        poses: f8 [n, 4, 4], rig to world.
    """

    def __init__(self, t_ns: Times, poses: Floats) -> None:
        self._t_ns, self._poses = t_ns, poses

    @classmethod
    def of_session(cls, path: Path, calibration: Calibration) -> Trajectory | None:
        """The trajectory of a session; None where the session has no poses, or damaged ones."""
        times: list[Times] = []
        poses: list[Floats] = []
        try:
            session = Session(path, virtual=True)
            try:
                source = find_poses(session, calibration)
                if isinstance(source, Identity):
                    return None
                last = -(1 << 62)
                for t_ns, block in source.blocks():
                    slots = t_ns // _POSE_EVERY_NS
                    new = np.diff(slots, prepend=last) > 0
                    if len(slots):
                        last = int(slots[-1])
                    times.append(t_ns[new])
                    poses.append(block[new])
            finally:
                session.close()
        except (RecorderError, OSError):
            return None
        if not sum(map(len, times)):
            return None
        return cls(np.concatenate(times), np.concatenate(poses))

    def at(self, t_ns: int) -> Floats:
        """The pose f8 [4, 4] at a time; the nearest one outside of the trajectory."""
        at = int(np.searchsorted(self._t_ns, t_ns))
        around = slice(max(0, at - 1), at + 1)
        wanted = np.array([t_ns], np.int64)
        pose: Floats = interpolate_poses(self._t_ns[around], self._poses[around], wanted)[0]
        return pose


def _transform(t_ns: int, parent: str, child: str, matrix: Floats) -> FrameTransform:
    return FrameTransform(
        timestamp=stamp(t_ns),
        parent_frame_id=parent,
        child_frame_id=child,
        translation=_vector(matrix[:3, 3]),
        rotation=_quaternion(quaternion_of_rotation(matrix[:3, :3])),
    )


def _vector(values: npt.ArrayLike) -> Vector3:
    x, y, z = np.asarray(values, np.float64).tolist()
    return Vector3(x=x, y=y, z=z)


def _quaternion(xyzw: npt.ArrayLike) -> Quaternion:
    x, y, z, w = np.asarray(xyzw, np.float64).tolist()
    return Quaternion(x=x, y=y, z=z, w=w)


def label_channels(session: Path) -> list[Channel]:
    """``/labels/NAME``: the boxes in space of a recorded session (``_cuboids/NAME.jsonl``)."""
    try:
        files = cuboid_files(session)
    except FormatError:
        return []
    return [
        Channel(f"/labels/{file.name}", schema_of(SceneUpdate), timed=LabelSets(file).start)
        for file in files
    ]


class LabelSets:
    """The boxes of a file, found by their time; the file is indexed at the first use."""

    def __init__(self, file: LabelFile) -> None:
        self._file = file
        self._index: tuple[Times, npt.NDArray[np.int64]] | None = None

    def start(self) -> EncodeTime:
        """A timed source for one viewer: the newest set, once."""
        last: int | None = None

        def due(t_ns: int) -> Encoded:
            nonlocal last
            times, ends = self._indexed()
            at = int(np.searchsorted(times, t_ns, side="right")) - 1
            if at < 0 or int(times[at]) == last:
                return []
            last = int(times[at])
            return [(last, self._update(last, int(ends[at]), int(ends[at + 1])))]

        return due

    def _indexed(self) -> tuple[Times, npt.NDArray[np.int64]]:
        """Times of the sets, int64 [n], and where in the file they begin, int64 [n + 1]."""
        if self._index is None:
            times: list[int] = []
            starts: list[int] = []
            with self._file.path.open("rb") as file:
                end = len(file.readline())
                for line in file:
                    found = _LABEL_TIME.search(line)
                    if found is not None and (not times or int(found[1]) > times[-1]):
                        times.append(int(found[1]))
                        starts.append(end)
                    end += len(line)
            self._index = np.array(times, np.int64), np.array([*starts, end], np.int64)
        return self._index

    def _update(self, t_ns: int, start: int, stop: int) -> bytes:
        with self._file.path.open("rb") as file:
            file.seek(start)
            data = file.read(stop - start)
        name = self._file.path.name
        try:
            lines = [(name, json.loads(line)) for line in data.splitlines() if line.strip()]
        except ValueError:
            raise FormatError(f"{name}: a line of the time {t_ns} is not JSON") from None
        if not all(isinstance(label, dict) for _, label in lines):
            raise FormatError(f"{name}: a line of the time {t_ns} is not a mapping")
        columns = zip(
            texts(lines, "track"),
            texts(lines, "class"),
            texts(lines, "frame"),
            number_rows(lines, "center_m", 3),
            number_rows(lines, "size_m", 3),
            number_rows(lines, "quaternion_xyzw", 4),
            strict=True,
        )
        entities = [_entity(t_ns, *values) for values in columns]
        gone = SceneEntityDeletion(timestamp=stamp(t_ns), type=SceneEntityDeletionType.All)
        return SceneUpdate(deletions=[gone], entities=entities).encode()


def _entity(
    t_ns: int, track: str, kind: str, frame: str, center: Floats, size: Floats, turn: Floats
) -> SceneEntity:
    cube = CubePrimitive(
        pose=Pose(position=_vector(center), orientation=_quaternion(turn)),
        size=_vector(size),
        color=_COLORS.get(kind, _OTHER),
    )
    return SceneEntity(
        timestamp=stamp(t_ns),
        frame_id=frame,
        id=track,
        frame_locked=True,
        metadata=[KeyValuePair(key="class", value=kind)],
        cubes=[cube],
    )


def log_channel() -> Channel:
    """``/log``: events and marks, as they are reported."""
    return Channel("/log", schema_of(Log), log=True)


def log_message(note: Mapping[str, Any]) -> tuple[int, bytes]:
    """Log time and payload of an event: ``t_ns``, ``kind``, ``stream``, ``cause``, ``text``."""
    t_ns = int(note["t_ns"])
    kind = str(note.get("kind") or "")
    message = str(note.get("text") or note.get("cause") or kind)
    log = Log(
        timestamp=stamp(t_ns),
        level=_LEVELS.get(kind, LogLevel.Info),
        message=f"{kind}: {message}" if kind and kind not in message else message,
        name=str(note.get("stream") or "recorder"),
    )
    return t_ns, log.encode()


def events_channel(session: Path) -> Channel:
    """``/log`` of a recorded session: its events, as the playback reaches them.

    A viewer that begins, or that forgot what it has, gets the last events before that time too.

    Args:
        session: the session's folder; its events are read at the first use.
    """
    known: list[list[Note]] = []

    def read() -> list[Note]:
        opened = Session(session)
        try:
            events = sorted(opened.events(), key=lambda event: int(event["t_ns"]))
            return [without_paths(event_note(event)) for event in events]
        finally:
            opened.close()

    def start() -> EncodeTime:
        last: int | None = None

        def due(t_ns: int) -> Encoded:
            nonlocal last
            if not known:
                known.append(read())
            begin, last = last, t_ns
            reached = [note for note in known[0] if int(note["t_ns"]) <= t_ns]
            if begin is None:
                return [log_message(note) for note in reached[-_EARLIER_EVENTS:]]
            return [log_message(note) for note in reached if int(note["t_ns"]) > begin]

        return due

    return Channel("/log", schema_of(Log), timed=start)
