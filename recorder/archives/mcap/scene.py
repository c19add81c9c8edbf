"""Poses and labels of a session, limited to the packed part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from recorder.archives.context import PackingContext
from recorder.perception.labels import LabelFile, Lines, cuboid_files
from recorder.perception.poses import Block, Identity, PoseSource, find_poses

LabelSets = tuple[str, Callable[[], Iterator[tuple[int, Lines]]]]
"""Name of a file, and a function that begins a pass over its labels by time."""


@dataclass(frozen=True)
class Poses:
    """Poses of the rig in the world.

    Attributes:
        context: the session's context.
        source: the source of the poses.
    """

    context: PackingContext
    source: PoseSource

    @property
    def name(self) -> str:
        """Name of the stream or of the processed sensor with the poses."""
        return self.source.name

    def blocks(self) -> Iterator[Block]:
        """Yield times, int64 [n], epoch ns, rising, and poses, f8 [n, 4, 4], rig to world.

        Raises:
            FormatError: the poses cannot be read.
        """
        for t_ns, poses in self.source.blocks():
            inside = np.fromiter(map(self.context.contains, t_ns.tolist()), np.bool_, len(t_ns))
            if inside.any():
                yield t_ns[inside], poses[inside]


def find_rig_poses(context: PackingContext) -> Poses | None:
    """Return the poses of the rig; None if they are not known."""
    with context.locate_errors("poses"):
        source = find_poses(context.session.whole, context.calibration)
    return None if isinstance(source, Identity) else Poses(context, source)


def label_sets(context: PackingContext) -> list[LabelSets]:
    """Return the files of boxes in space: names, and passes over the labels by time.

    A pass raises FormatError for an invalid line.
    """

    with context.locate_errors("labels"):
        files = cuboid_files(context.session.path)
    return [(file.name, partial(_sets, context, file)) for file in files]


def box_sets(context: PackingContext) -> list[LabelSets]:
    """Return the files of boxes in pictures: cameras, and passes over the labels by time.

    The files of cameras that are not packed are noted.
    """
    with context.locate_errors("labels"):
        files = context.find_boxes(context.session.streams)
    return [(camera, partial(_sets, context, file)) for camera, file in files.items()]


def _sets(context: PackingContext, file: LabelFile) -> Iterator[tuple[int, Lines]]:
    return (found for found in file.by_time() if context.contains(found[0]))


def first_ns(context: PackingContext) -> int:
    """Return the log time of constant data: the first stamp of the packed samples."""
    first = context.session.first_ns
    return max(0, (context.session.start_ns if first is None else first) or 0)
