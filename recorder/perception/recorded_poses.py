"""Poses of the rig from a recording of others: from transforms, or from a topic of odometry.

The rig's pose at a time is the product of the transforms from the rig up to the world, each
interpolated to the times of the one that comes most often; beyond the first and last time of any of
them there is no pose.  Times are those of sensors from the same recording
(`recorder.formats.bags.timing`).

::

    found = find_trajectory(bag, topics, tree, "base_link")
    found.t_ns, found.poses                       # i8 [n], f8 [n, 4, 4]
    write_poses(session, found)                   # the virtual sensor ``_pose``
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.common.files import PosixDisk
from recorder.formats.bags.bag import Bag, Cut
from recorder.formats.bags.contents import find_content
from recorder.formats.bags.messages import Kind
from recorder.formats.bags.timing import Timing, order_messages
from recorder.formats.ros2.definitions import ODOMETRY
from recorder.formats.ros2.messages import Header, Odometry, TransformStamped
from recorder.perception.geometry import (
    Floats,
    interpolate_poses,
    invert,
    rotation_of_quaternion,
    transform,
)
from recorder.perception.import_map import NO_POSES, ImportMap
from recorder.perception.transforms import FARTHEST_M, FrameTree, name_frame
from recorder.session.layout import read_session_json

POSE: Final = "_pose"
_ROW: Final = 7  # numbers of a pose
_LENGTH: Final = 1e-2  # of a quaternion: distance from 1


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Poses of the rig in the world.

    Attributes:
        rig, world: frames.
        sources: topics.
        t_ns: times, epoch ns, strictly rising, i8 [n].
        poses: rig to world, f8 [n, 4, 4].
        left_out: number of poses that are not finite, or no rotation.
    """

    rig: str
    world: str
    sources: Sequence[str]
    t_ns: npt.NDArray[np.int64]
    poses: Floats
    left_out: int = 0

    def describe(self) -> str:
        """Return a sentence on the poses."""
        text = f"{len(self.t_ns)} poses of {self.rig!r:.80} in {self.world!r:.80}, "
        return f"{text}from {', '.join(self.sources)}"


@dataclass(slots=True)
class _Stamped:
    """Poses as they come: times, and x, y, z and quaternion x, y, z, w of each."""

    t_ns: array[int] = field(default_factory=lambda: array("q"))
    rows: array[float] = field(default_factory=lambda: array("d"))

    def add(self, t_ns: int, place: Sequence[float], turn: Sequence[float]) -> None:
        self.t_ns.append(t_ns)
        self.rows.extend((*place, *turn))

    def sorted(self) -> tuple[npt.NDArray[np.int64], Floats, int]:
        """Return times, poses, and how many were left out; of equal times the last one stays."""
        t_ns = np.array(self.t_ns, np.int64)
        rows = np.array(self.rows, np.float64).reshape(-1, _ROW)
        known = np.where(np.abs(rows) < FARTHEST_M, rows, np.nan)
        length = np.linalg.norm(known[:, 3:], axis=1)
        good = np.isfinite(known).all(axis=1) & (np.abs(length - 1) < _LENGTH)
        order = np.flatnonzero(good)[np.argsort(t_ns[good], kind="stable")]
        order = order[np.append(np.diff(t_ns[order]) > 0, True)] if len(order) else order
        rows = rows[order]
        poses = transform(rotation_of_quaternion(rows[:, 3:]), rows[:, :3])
        return t_ns[order], poses, int(np.count_nonzero(~good))


def choose_trajectory(
    bag: Bag, topics: Collection[str], tree: FrameTree, rig: str, choices: ImportMap
) -> tuple[Trajectory | None, list[str]]:
    """Choose the rig's poses of a recording: its transforms, else the odometry with most messages.

    Args:
        bag: the recording.
        topics: topics with transforms and poses.
        tree: the recording's frames.
        rig: the rig's frame; "": not known.
        choices: the import's choices.

    Returns:
        The poses, None if none are known; notes on what is not used.

    Raises:
        FormatError: the chosen topic has no poses of the rig.
    """
    if choices.poses == NO_POSES:
        return None, []
    kinds = {topic: find_content(bag.topics[topic]).kind for topic in topics}
    transforms = [topic for topic, kind in kinds.items() if kind is Kind.TRANSFORMS]
    if (wanted := choices.poses) != "":
        if (
            kinds.get(wanted, Kind.CAMERA_MODEL) is Kind.CAMERA_MODEL
            or not bag.topics[wanted].count
        ):
            useful = [t for t, kind in kinds.items() if kind is not Kind.CAMERA_MODEL]
            known = ", ".join(t for t in useful if bag.topics[t].count) or "none"
            raise FormatError(f"no topic {wanted!r:.200} with poses; those with some: {known:.500}")
        if kinds[wanted] is Kind.POSES:
            return read_pose_topic(bag, wanted, tree, rig, choices.of(wanted).frame or ""), []
        found = find_trajectory(bag, [wanted], tree, rig, choices.world)
        if found is None:
            raise FormatError(f"{rig!r:.80} does not move in {wanted}")
        return found, []
    found, notes = None, list[str]()
    if rig in tree.frames:
        try:
            found = find_trajectory(bag, transforms, tree, rig, choices.world)
        except FormatError as error:
            notes.append(f"no poses from transforms: {error}")
    poses = [t for t, kind in kinds.items() if kind is Kind.POSES and bag.topics[t].count]
    for topic in sorted(poses, key=lambda name: -bag.topics[name].count):
        if found is not None:
            notes.append(f"{topic}: its poses are not used beside those of {found.sources[0]}")
        elif bag.topics[topic].schema_name != ODOMETRY:
            notes.append(f"{topic}: its poses are not used: `poses` in --map can name the topic")
        else:
            try:
                found = read_pose_topic(bag, topic, tree, rig)
            except FormatError as error:
                notes.append(f"no poses from odometry: {error}")
    if found is not None and (not len(found.t_ns) or not found.poses[:, :3, 3].any()):
        notes.append(f"{found.sources[0]}: its poses have no positions, and are not used")
        found = None
    return found, notes


def find_trajectory(
    bag: Bag, topics: Collection[str], tree: FrameTree, rig: str, world: str = ""
) -> Trajectory | None:
    """Find the rig's poses in the transforms of a recording.

    Args:
        bag: the recording.
        topics: topics with transforms.
        tree: the frames of these transforms.
        rig: the rig's frame.
        world: the world's frame; "": the one without a parent.

    Returns:
        None: the rig does not move in these transforms.

    Raises:
        FormatError: there is no way from the rig to the world, or there are several.
    """
    edges = tree.climb(rig, world)
    moving = {(edge.parent, edge.child): _Stamped() for edge in edges if edge.moves}
    if not moving:
        return None
    sources = set()
    for topic, at_ns, each in _read_transforms(bag, topics):
        key = name_frame(each.header.frame_id), name_frame(each.child_frame_id)
        if (found := moving.get(key)) is not None:
            found.add(at_ns, each.translation, each.rotation)
            sources.add(topic)
    known = {key: found.sorted() for key, found in moving.items()}
    if not all(len(times) for times, _, _ in known.values()):
        return None
    start_ns = max(int(times[0]) for times, _, _ in known.values())
    end_ns = min(int(times[-1]) for times, _, _ in known.values())
    often = max((times for times, _, _ in known.values()), key=len)
    t_ns = often[(often >= start_ns) & (often <= end_ns)]
    poses = np.repeat(np.eye(4)[None], len(t_ns), axis=0)
    for edge in edges:
        if edge.moves:
            times, places, _ = known[edge.parent, edge.child]
            poses = interpolate_poses(times, places, t_ns) @ poses
        else:
            poses = edge.place @ poses
    left_out = sum(count for _, _, count in known.values())
    return Trajectory(rig, edges[-1].parent, sorted(sources), t_ns, poses, left_out)


def read_pose_topic(bag: Bag, topic: str, tree: FrameTree, rig: str, frame: str = "") -> Trajectory:
    """Read the rig's poses from a topic of odometry or poses.

    Args:
        bag: the recording.
        topic: topic of ``nav_msgs/msg/Odometry`` or stamped poses.
        tree: the recording's frames.
        rig: the rig's frame.
        frame: frame whose poses the messages are; "": the one that they name, or the rig.

    Raises:
        FormatError: the frame is not fixed to the rig, or the poses are of several frames.
    """
    found, worlds, children = _Stamped(), dict[str, None](), dict[str, None]()
    for timed in _in_order(bag, {topic: find_content(bag.topics[topic]).decode}):
        message = timed.decoded
        worlds[name_frame(message.header.frame_id)] = None
        if isinstance(message, Odometry):
            children[name_frame(message.child_frame_id)] = None
        found.add(timed.t_ns, message.position, message.orientation)
    if len(worlds) > 1 or len(children) > 1:
        several = worlds if len(worlds) > 1 else children
        raise FormatError(f"{topic}: its poses have the frames {', '.join(several):.200}")
    child = name_frame(frame) or next(iter(children), "") or rig
    rig = rig or child
    t_ns, poses, left_out = found.sorted()
    if child != rig:
        try:
            poses = poses @ invert(tree.place(child, rig))
        except FormatError as error:
            raise FormatError(f"{topic}: has poses of {child!r:.80}: {error}") from None
    return Trajectory(rig, next(iter(worlds), ""), [topic], t_ns, poses, left_out)


def grow_tree(bag: Bag, topics: Collection[str], damage: Callable[[str], None]) -> FrameTree:
    """Read the frames of a recording; `damage` receives what cannot be read."""
    tree = FrameTree()
    for _, _, each in _read_transforms(bag, topics, damage):
        tree.add(each)
    return tree


@dataclass(frozen=True, slots=True)
class _Transforms:
    """Transforms of one message, with the first one's header, whose stamp is the message's."""

    header: Header
    transforms: Sequence[TransformStamped]


def _wrap(decode: Callable[[Any], Sequence[TransformStamped]], data: Any) -> _Transforms:
    transforms = decode(data)
    return _Transforms(transforms[0].header if transforms else Header(0, ""), transforms)


def _read_transforms(
    bag: Bag, topics: Collection[str], damage: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[str, int, TransformStamped]]:
    """Yield topic, time in epoch ns and transform, in the order of the messages' times."""
    known = {name: find_content(bag.topics[name]) for name in topics}
    decoders = {
        name: partial(_wrap, content.decode)
        for name, content in known.items()
        if content.kind is Kind.TRANSFORMS
    }
    for timed in _in_order(bag, decoders, damage):
        first_ns = timed.decoded.header.stamp_ns
        for each in timed.decoded.transforms:
            yield timed.message.topic, timed.t_ns + each.header.stamp_ns - first_ns, each


def _in_order(
    bag: Bag, decoders: Mapping[str, Any], damage: Callable[[str], None] = lambda _: None
) -> Iterator[Any]:
    """Yield the messages with a time, of topics that have messages, in the order of their times."""
    told: set[str] = set()
    timing = Timing(bag, {name: d for name, d in decoders.items() if bag.topics[name].count})
    try:
        for timed in order_messages(bag, timing):
            if isinstance(timed, Cut):
                continue
            topic, problem = timed.message.topic, timed.problem
            if problem is None and timed.t_ns is not None:
                yield timed
            elif problem is not None and topic not in told:
                told.add(topic)
                damage(f"{topic}: not used for the calibration: {problem}")
    except FormatError as error:
        damage(f"{', '.join(decoders)}: not used for the calibration from here on: {error}")


def write_poses(session: Path, found: Trajectory) -> None:
    """Write poses as the virtual sensor ``_pose`` of a session, as roverd's processing does.

    Raises:
        SessionError: the session's header cannot be read.
        OSError: the files cannot be written.
    """
    header, disk, folder = read_session_json(session), PosixDisk(), session / POSE
    shift_ns = header["start_mono_ns"] - header["start_ns"]
    kept = found.t_ns + shift_ns >= 0
    t_ns, poses = found.t_ns[kept], found.poses[kept]
    disk.make_folder(folder)
    values: dict[str, tuple[npt.NDArray[Any], str]] = {
        "ts": ((t_ns / 1e9).astype("<f8"), "time, epoch seconds"),
        "t_mono": ((t_ns + shift_ns).astype("<u8"), "time on the host's monotonic clock, ns"),
        "pos": (poses[:, :3, 3].astype("<f8"), f"position in {found.world}, m"),
        "rot": (poses[:, :3, :3].astype("<f8"), f"rotation matrix, {found.rig} to {found.world}"),
    }
    meta = {
        name: {
            "format": "raw",
            "type": rows.dtype.str[1:],
            "shape": list(rows.shape[1:]),
            "desc": text,
        }
        for name, (rows, text) in values.items()
    }
    for name, (rows, _) in values.items():
        disk.write_file(folder / name, rows.tobytes())
    # Written last: a folder with a meta.json is a sensor.
    disk.write_file(folder / "meta.json", json.dumps(meta, indent=2).encode())
