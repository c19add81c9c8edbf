"""Mounts, poses of the rig and models of cameras from an NCore sequence."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from recorder.archives.importing import SessionFile
from recorder.archives.ncore.format.cameras import PLACEHOLDER
from recorder.archives.ncore.mapping.models import from_attributes
from recorder.common.errors import ArchiveError, FormatError
from recorder.formats.ncore.sequence import NS_PER_US, Instance, NcoreSequence
from recorder.perception.geometry import Floats, invert, is_rotation, quaternion_of_rotation
from recorder.perception.recorded_poses import Trajectory, write_poses

RIG: Final = "rig"
WORLD: Final = "world"
_TOLERANCE: Final = 1e-4
_Moving = tuple[Any, Floats]


class PoseGraph:
    """The frames of a sequence: which fixed and which moving poses connect them.

    Args:
        sequence: the sequence.
        name: instance of the poses.

    Attributes:
        lost: poses that are no mount of a sensor and no pose of the rig, with the reason.

    Raises:
        FormatError: a pose is damaged.
    """

    def __init__(self, sequence: NcoreSequence, name: str = "default") -> None:
        self._static: dict[tuple[str, str], Floats] = {}
        self._moving: dict[tuple[str, str], _Moving] = {}
        self._used: set[tuple[str, str]] = set()
        if (poses := sequence.instance("poses", name)) is None:
            return
        for pair, document in _pairs(poses, "static_poses"):
            self._static[pair] = _matrices(document, "pose", (4, 4), poses)
        for pair, document in _pairs(poses, "dynamic_poses"):
            matrices = _matrices(document, "poses", (-1, 4, 4), poses)
            times = _times_us(document, poses)
            if len(times) != len(matrices):
                raise FormatError(f"{poses.where('dynamic_poses')}: {pair}: poses lack times")
            self._moving[pair] = times, matrices

    @property
    def lost(self) -> dict[str, str]:
        """The poses that are not used."""
        unused = [pair for pair in (*self._static, *self._moving) if pair not in self._used]
        return {
            f"the pose {source} -> {target}": "neither a sensor's place in the rig nor the rig's"
            for source, target in unused
        }

    @property
    def moves(self) -> bool:
        """Whether it has a moving pose."""
        return bool(self._moving)

    def find_mount(self, sensor: str) -> tuple[Floats | None, str | None]:
        """Return the place of a sensor in the rig, f8 [4, 4], or why it has none."""
        edges = self._find_way(sensor, RIG)
        if edges is None:
            return None, f"no pose connects it to {RIG}"
        moving = [pair for pair, _ in edges if pair in self._moving]
        if moving:
            return None, f"it moves in the rig: {moving[0][0]} -> {moving[0][1]}"
        pose = np.eye(4)
        for pair, forward in edges:
            own = self._static[pair]
            pose = (own if forward else invert(own)) @ pose
            self._used.add(pair)
        return pose, None

    def make_poses(self, start_ns: int) -> SessionFile | None:
        """Return the rig's poses in the world; None if it does not move."""
        edges = self._find_way(RIG, WORLD) or []
        if [pair in self._moving for pair, _ in edges].count(True) != 1:
            return None
        before, times, after = np.eye(4), np.empty(0, np.int64), np.eye(4)
        moving: Floats | None = None
        for pair, forward in edges:
            self._used.add(pair)
            if pair in self._moving:
                times_us, matrices = self._moving[pair]
                times = times_us * NS_PER_US
                moving = matrices if forward else invert(matrices)
            else:
                own = self._static[pair] if forward else invert(self._static[pair])
                before, after = (own @ before, after) if moving is None else (before, own @ after)
        assert moving is not None
        poses = moving if len(edges) == 1 else after @ moving @ before
        kept = times >= start_ns
        found = Trajectory(RIG, WORLD, ["poses/default"], times[kept], poses[kept])
        return SessionFile("poses/default", found.describe(), complete=partial(_write, found))

    def _find_way(self, start: str, end: str) -> list[tuple[tuple[str, str], bool]] | None:
        """Return the pairs from a frame to another, and whether each is used forward."""
        ways: dict[str, list[tuple[tuple[str, str], bool]]] = {start: []}
        todo = deque([start])
        while todo:
            frame = todo.popleft()
            for pair in (*self._static, *self._moving):
                if frame in pair:
                    forward = pair[0] == frame
                    other = pair[1] if forward else pair[0]
                    if other not in ways:
                        ways[other] = [*ways[frame], (pair, forward)]
                        todo.append(other)
        return ways.get(end)

    @staticmethod
    def describe(pose: Floats) -> dict[str, Any]:
        """Return a mount as in a calibration."""
        return {
            "translation_m": pose[:3, 3].tolist(),
            "quaternion_xyzw": quaternion_of_rotation(pose[:3, :3]).tolist(),
        }


def _write(found: Trajectory, session: Any) -> None:
    write_poses(session, found)


def _pairs(poses: Instance, group: str) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    for key, document in poses.attributes(group).items():
        try:
            source, target = ast.literal_eval(key)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            source = target = None
        if not (isinstance(source, str) and isinstance(target, str) and isinstance(document, dict)):
            raise FormatError(f"{poses.where(group)}: {key!r:.100} names no two frames")
        yield (source, target), document


def _matrices(
    document: Mapping[str, Any], key: str, shape: tuple[int, ...], poses: Instance
) -> Floats:
    try:
        matrices = np.array(document[key], np.float64).reshape(shape)
        sound = bool(
            np.isfinite(matrices).all()
            and is_rotation(matrices.reshape(-1, 4, 4)[:, :3, :3], _TOLERANCE).all()
        )
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise FormatError(f"{poses.where()}: a pose is no rotation with a translation")
    return matrices


def _times_us(document: Mapping[str, Any], poses: Instance) -> Any:
    times = np.asarray(document.get("timestamps_us"))
    if times.ndim != 1 or times.dtype.kind not in "iu" or (np.diff(times.astype("i8")) <= 0).any():
        raise FormatError(f"{poses.where('dynamic_poses')}: its times do not rise")
    return times.astype(np.int64)


def read_model(intrinsics: Instance, camera: str) -> tuple[dict[str, Any], str | None]:
    """Return a camera's model as entries of a calibration, or why it has none."""
    attributes = intrinsics.attributes(f"cameras/{camera}")
    if not attributes or attributes.get(PLACEHOLDER):
        return {}, None if attributes else "the sequence has none"
    try:
        return from_attributes(attributes), None
    except ArchiveError as error:
        return {}, str(error)
