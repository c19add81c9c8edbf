"""Poses and labels of a session, inside the part that is packed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from recorder.archives.base import Job
from recorder.processing.labels import LabelFile, Lines, cuboid_files
from recorder.processing.poses import Block, Identity, PoseSource, find_poses

T = TypeVar("T")


@dataclass(frozen=True)
class Poses:
    """The poses of the rig in the world.

    Attributes:
        job: the session's job.
        source: the source of the poses.
    """

    job: Job
    source: PoseSource

    @property
    def name(self) -> str:
        """Name of the stream or of the processed sensor with the poses."""
        return self.source.name

    def blocks(self) -> Iterator[Block]:
        """Times, int64 [n], epoch ns, rising, and poses, f8 [n, 4, 4], rig to world.

        Raises:
            FormatError: the poses cannot be read.
        """
        for t_ns, poses in self.source.blocks():
            inside = np.fromiter(map(self.job.contains, t_ns.tolist()), np.bool_, len(t_ns))
            if inside.any():
                yield t_ns[inside], poses[inside]


def find_rig_poses(job: Job) -> Poses | None:
    """The poses of the rig; None where they are not known."""
    with job.at("poses"):
        source = find_poses(job.session.whole, job.calibration)
    return None if isinstance(source, Identity) else Poses(job, source)


def label_sets(job: Job) -> list[tuple[str, Callable[[], Iterator[tuple[int, Lines]]]]]:
    """The files of boxes in space: their names, and passes over the labels of each time.

    A pass raises FormatError for a line that is no label.
    """

    def sets(file: LabelFile) -> Iterator[tuple[int, Lines]]:
        return (found for found in file.by_time() if job.contains(found[0]))

    with job.at("labels"):
        files = cuboid_files(job.session.path)
    return [(file.name, lambda file=file: sets(file)) for file in files]  # type: ignore[misc]


def placed(job: Job, subject: str, items: Iterator[T]) -> Iterator[T]:
    """The items; an error names the subject."""
    while True:
        with job.at(subject):
            item = next(items, None)
        if item is None:
            return
        yield item


def first_ns(job: Job) -> int:
    """Log time of what does not change: the first stamp of the samples that are packed."""
    first = job.session.first_ns
    return max(0, (job.session.start_ns if first is None else first) or 0)
