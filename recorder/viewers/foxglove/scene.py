"""Channels that depend on the viewer's time: transforms, labels and events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError, RecorderError
from recorder.perception.calibration import Calibration
from recorder.perception.foxglove import scene
from recorder.perception.foxglove.channels import Encoded, Parts
from recorder.perception.geometry import Floats, interpolate_poses
from recorder.perception.labels import LabelFile, cuboid_files
from recorder.perception.poses import Identity, find_poses
from recorder.session.reader import Session
from recorder.viewers.foxglove.catalog import STATIC_NS, EncodeTime, LogChannel, TimedChannel
from recorder.viewers.live.access import strip_paths
from recorder.viewers.live.backend import Note
from recorder.viewers.live.event_tail import event_note

_POSE_EVERY_NS: Final = 20_000_000  # closer poses are left out
_EARLIER_EVENTS: Final = 100
_LABEL_TIME: Final = re.compile(rb'"t_ns"\s*:\s*(-?\d{1,19})\s*[,}]')

Times = npt.NDArray[np.int64]


def transforms_channel(
    calibration: Calibration, session: Path | None = None
) -> TimedChannel | None:
    """Return the channel ``/tf``: sensor poses in the rig, and the rig's pose in the world.

    Args:
        calibration: the rig's calibration.
        session: a recorded session, whose poses are read on first use.

    Returns:
        None if neither sensor poses nor a session are known.
    """
    places = scene.sensor_places(calibration)
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
            due_places: list[scene.Place] = []
            if static_ns is None or not 0 <= t_ns - static_ns < STATIC_NS:
                static_ns = t_ns
                due_places += places
            trajectory = known[0] if known else None
            if trajectory is not None and last_pose != t_ns:
                last_pose = t_ns
                due_places.append((scene.WORLD, scene.RIG, trajectory.at(t_ns)))
            return [(t_ns, [scene.transforms(t_ns, due_places)])] if due_places else []

        return due

    return TimedChannel("/tf", scene.TRANSFORMS, start)


class Trajectory:
    """Poses of the rig in the world, at most 50 a second.

    Args:
        t_ns: int64 [n], increasing.
        poses: f8 [n, 4, 4], rig to world.
    """

    def __init__(self, t_ns: Times, poses: Floats) -> None:
        self._t_ns, self._poses = t_ns, poses

    @classmethod
    def of_session(cls, path: Path, calibration: Calibration) -> Trajectory | None:
        """Read the trajectory of a session; None if the session has no poses, or damaged ones."""
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
        """Return the pose f8 [4, 4] at a time; the nearest one outside the trajectory."""
        at = int(np.searchsorted(self._t_ns, t_ns))
        around = slice(max(0, at - 1), at + 1)
        wanted = np.array([t_ns], np.int64)
        pose: Floats = interpolate_poses(self._t_ns[around], self._poses[around], wanted)[0]
        return pose


def label_channels(session: Path) -> list[TimedChannel]:
    """Return the channels ``/labels/NAME``: the 3D boxes of a session (``_cuboids/NAME.jsonl``)."""
    try:
        files = cuboid_files(session)
    except FormatError:
        return []
    return [
        TimedChannel(f"/labels/{file.name}", scene.LABELS, LabelSets(file).start) for file in files
    ]


class LabelSets:
    """Boxes of a file, found by their time; the file is indexed on first use."""

    def __init__(self, file: LabelFile) -> None:
        self._file = file
        self._index: tuple[Times, npt.NDArray[np.int64]] | None = None

    def start(self) -> EncodeTime:
        """Return a timed source for one viewer, which sends each newest set once."""
        last: int | None = None

        def due(t_ns: int) -> Encoded:
            nonlocal last
            times, ends = self._read_index()
            at = int(np.searchsorted(times, t_ns, side="right")) - 1
            if at < 0 or int(times[at]) == last:
                return []
            last = int(times[at])
            return [(last, [self._update(last, int(ends[at]), int(ends[at + 1]))])]

        return due

    def _read_index(self) -> tuple[Times, npt.NDArray[np.int64]]:
        """Return the times of the sets, int64 [n], and their file offsets, int64 [n + 1]."""
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
        return scene.label_update(t_ns, lines)


def log_channel() -> LogChannel:
    """Return the channel ``/log``: events and marks, as the daemon reports them."""
    return LogChannel("/log", scene.LOG)


def log_message(note: Mapping[str, Any]) -> tuple[int, Parts]:
    """Return time and payload of an event: ``t_ns``, ``kind``, ``stream``, ``cause``, ``text``."""
    t_ns = int(note["t_ns"])
    kind = str(note.get("kind") or "")
    text = str(note.get("text") or note.get("cause") or kind)
    return t_ns, [scene.log_message(t_ns, kind, note.get("stream"), text)]


def events_channel(session: Path) -> TimedChannel:
    """Return ``/log`` of a recorded session: its events, as the playback reaches them.

    A new subscription, or one after a jump, gets the last events before that time too.

    Args:
        session: the session's folder; its events are read on first use.
    """
    known: list[list[Note]] = []

    def read() -> list[Note]:
        opened = Session(session)
        try:
            events = sorted(opened.events(), key=lambda event: int(event["t_ns"]))
            return [strip_paths(event_note(event)) for event in events]
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

    return TimedChannel("/log", scene.LOG, start)
