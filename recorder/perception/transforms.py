"""Transforms between the frames of a recording: which move, and the places of those that do not.

::

    tree = FrameTree()
    for each in transforms:               # of tf2_msgs/msg/TFMessage
        tree.add(each)
    tree.place("camera_optical", "base_link")        # f8 [4, 4]
    tree.climb("base_link")               # [Edge of odom, Edge of map]: from the rig to the world

A frame has one parent in a tree of ROS (tf2).  Where a recording has two, a way through either is
chosen only if it is the only one to the frame that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from recorder.common.errors import FormatError
from recorder.formats.ros2.messages import TransformStamped
from recorder.perception.geometry import (
    Floats,
    invert,
    rotation_of_quaternion,
    transform,
)

_STILL: Final = 1e-9  # a transform that changes by more moves
_DEEPEST: Final = 100  # frames from one to another
FARTHEST_M: Final = 1e12
"""Length of a translation that cannot be meant."""


@dataclass(slots=True)
class Edge:
    """Transforms from a frame to one parent.

    Attributes:
        parent, child: frames, without a first ``/``.
        place: first pose of the child in the parent, f8 [4, 4].
        moves: whether a later pose differs.
        fault: why one of the transforms is no pose; "": all are.
        count: number of transforms.
    """

    parent: str
    child: str
    place: Floats
    moves: bool = False
    fault: str = ""
    count: int = 0


class FrameTree:
    """Transforms of a recording, by child and parent; it keeps no pose but the first of each."""

    def __init__(self) -> None:
        self._edges: dict[str, dict[str, Edge]] = {}

    @property
    def frames(self) -> set[str]:
        """All frames."""
        return {*self._edges, *(parent for edges in self._edges.values() for parent in edges)}

    def add(self, each: TransformStamped) -> None:
        """Add one transform."""
        parent, child = name_frame(each.header.frame_id), name_frame(each.child_frame_id)
        fault, place = "", np.eye(4)
        try:
            with np.errstate(all="ignore"):
                place = transform(rotation_of_quaternion(each.rotation), each.translation)
        except ValueError:
            fault = f"the transform of {child!r:.80} is no rotation"
        if not (np.abs(place) < FARTHEST_M).all():  # NaN neither
            fault = f"the transform of {child!r:.80} is not finite"
        edges = self._edges.setdefault(child, {})
        edge = edges.setdefault(parent, Edge(parent, child, place, fault=fault))
        edge.count += 1
        if fault:
            edge.fault = edge.fault or fault
        elif not edge.moves and np.abs(edge.place - place).max() > _STILL:
            edge.moves = True

    def fix(self, frame: str, parent: str, pose: Floats) -> None:
        """Replace all transforms of a frame by a fixed pose f8 [4, 4] in a parent."""
        self._edges[frame] = {parent: Edge(parent, frame, pose, count=1)}

    def place(self, frame: str, rig: str) -> Floats:
        """Return the pose f8 [4, 4] of a frame in the rig's frame.

        Raises:
            FormatError: the transforms give no pose that stays; the message has the reason.
        """
        of_rig: dict[str, Floats] = {}  # the rig's pose in the frames that it is fixed to
        at, pose = rig, np.eye(4)
        while at not in of_rig:
            of_rig[at] = pose
            edges = [e for e in self._edges.get(at, {}).values() if not (e.moves or e.fault)]
            if len(edges) == 1:
                at, pose = edges[0].parent, edges[0].place @ pose
        at, pose = name_frame(frame), np.eye(4)
        seen = {at}
        while at not in of_rig:
            edge = self._only_edge(at, f"no transforms lead from its frame {frame!r} to {rig!r}")
            if edge.fault:
                raise FormatError(edge.fault)
            if edge.moves:
                raise FormatError(f"{at!r:.80} moves in {edge.parent!r:.80}")
            at, pose = edge.parent, edge.place @ pose
            if at in seen:
                raise FormatError(f"the transforms of {frame!r:.80} are a ring")
            seen.add(at)
        return invert(of_rig[at]) @ pose

    def climb(self, frame: str, to: str = "") -> list[Edge]:
        """Return the edges from a frame up to another one, or up to the frame without a parent.

        Raises:
            FormatError: there is no way, or there are several; the message has the reason.
        """
        ways = list(islice(self._ways(frame, to, (frame,), set()), 2))
        if not ways:
            end = f" to {to!r:.80}" if to else ""
            raise FormatError(f"no transforms lead from {frame!r:.80}{end}")
        if len(ways) > 1:
            split = next(a.child for a, b in zip(*ways, strict=False) if a.parent != b.parent)
            parents = " and ".join(map(repr, sorted(self._edges[split])))
            raise FormatError(f"{split!r:.80} has the parents {parents:.200}")
        return ways[0]

    def _ways(
        self, frame: str, to: str, seen: tuple[str, ...], dead: set[str]
    ) -> Iterator[list[Edge]]:
        """Yield the ways up from a frame; `seen` is the way to it, `dead` frames without one."""
        edges, is_dead = self._edges.get(frame, {}), True
        if frame == to or (not to and not edges):
            yield []
            return
        for edge in edges.values():
            if edge.parent not in {*seen, *dead} and len(seen) < _DEEPEST:
                for way in self._ways(edge.parent, to, (*seen, edge.parent), dead):
                    is_dead = False
                    yield [edge, *way]
        if is_dead:
            dead.add(frame)

    def _only_edge(self, child: str, absent: str) -> Edge:
        edges = self._edges.get(child, {})
        if not edges:
            raise FormatError(absent)
        if len(edges) > 1:
            raise FormatError(f"{child!r:.80} has two parents")
        return next(iter(edges.values()))


def name_frame(frame: str) -> str:
    """Return a frame's name without the ``/`` that tf of ROS 1 had before it."""
    return frame.lstrip("/")
