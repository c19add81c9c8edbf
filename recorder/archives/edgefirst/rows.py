"""Rows of the table: a sample's values, repeated for each annotation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.edgefirst.annotations import (
    SEGMENT,
    BoxReader,
    CuboidReader,
    FactsReader,
    LabelColumns,
    camera_masks,
    object_id,
    outlines,
)
from recorder.archives.edgefirst.cameras import CameraFiles, Place
from recorder.archives.edgefirst.samples import PoseWalk, nearest_all
from recorder.archives.edgefirst.schema import MISSION, STATUSES
from recorder.archives.edgefirst.table import REGION, Annotation, Sample, Table
from recorder.formats.png import encode_png
from recorder.perception.geometry import Floats
from recorder.perception.labels import LabelFile, decode_mask
from recorder.perception.poses import Times
from recorder.session.stream import Stream

Indices = npt.NDArray[np.int64]
BINARY, CLASSES = "binary", "classes"
STATED, DERIVED = "stated", "derived"
"""Values of the option ``status``: as the labels state it, or also from what a row has."""
_SAME_NS = 5_000_000
"""Largest time between a segmentation and its picture."""


@dataclass(frozen=True)
class CameraLabels:
    """Label files of a camera's samples; None where there is none.

    Attributes:
        cuboids: boxes in space.
        boxes: labels of objects in the pictures.
        facts: facts about whole pictures.
    """

    cuboids: LabelFile | None
    boxes: LabelFile | None
    facts: LabelFile | None


class RowMaker:
    """Builder of the rows of a camera's samples, in the order of the samples.

    Args:
        context: the session's context, with the options ``schema``, ``masks``, ``status`` and
            ``columns``.
        camera: the camera.
        sequence: name of the camera's sequence.
        base: name of the session's sequences without the camera's name.
        poses: poses of the rig; None where they are unknown.
        tolerance_ns: largest time between a sample and its cuboids.
        labels: the files of labels.

    Attributes:
        classes: number of values in class masks.
    """

    def __init__(
        self,
        context: PackingContext,
        camera: CameraFiles,
        sequence: str,
        base: str,
        poses: PoseWalk | None,
        tolerance_ns: int,
        labels: CameraLabels,
    ) -> None:
        self._context, self._camera = context, camera
        self._sequence, self._base = sequence, base
        self._poses = poses
        self._mission = context.options["schema"] == MISSION
        extra, stream = context.options["columns"], camera.stream
        self._boxes: BoxReader | None = None
        if labels.boxes is not None:
            columns = LabelColumns(extra)
            self._boxes = BoxReader(labels.boxes, stream, camera.size, base, columns)
        self._cuboids: CuboidReader | None = None
        if labels.cuboids is not None:
            columns = LabelColumns(extra)
            self._cuboids = CuboidReader(context, labels.cuboids, tolerance_ns, base, columns)
        self._facts: FactsReader | None = None
        if labels.facts is not None:
            self._facts = FactsReader(labels.facts, stream, LabelColumns(extra))
        self._constant = list(self._masks())
        self._segments = self._find_segments()
        self.classes = 0
        self._unmatched = 0

    def add_to(
        self,
        table: Table,
        index: Indices,
        t_ns: Times,
        lidar_t_ns: Times,
        groups: Sequence[str | None],
        places: Sequence[Place | None],
    ) -> None:
        """Add the rows of the next n samples.

        Args:
            table: the table to write to.
            index: int64 [n], indices of the pictures, stored as the samples' frame numbers.
            t_ns: int64 [n], stamps of the pictures.
            lidar_t_ns: int64 [n], stamps of the matching sweeps, at which cuboids are looked up;
                -1 without a sweep.
            groups: group of each sample in the split.
            places: position of each picture.
        """
        if not len(index):
            return
        with self._context.locate_errors(self._camera.name, int(index[0])):
            poses, known, angles = self._poses_at(t_ns)
            segments = self._segments_at(index, t_ns)
        boxes_t_ns = np.where(lidar_t_ns < 0, t_ns, lidar_t_ns).tolist()
        for n, frame in enumerate(index.tolist()):
            with self._context.locate_errors(self._camera.name, frame):
                place = places[n]
                sample = Sample(
                    self._sequence,
                    frame + self._camera.stream.first,
                    groups[n],
                    self._camera.size,
                    None if place is None else place[:2],
                    angles[n] if known[n] else None,
                )
                if self._facts is not None:
                    self._facts.add_to(sample, frame)
                found = self._annotations(frame, boxes_t_ns[n], poses[n] if known[n] else None)
                if self._context.options["status"] == DERIVED:
                    for row in found:
                        row.status = row.status or derive_status(row)
                found += self._constant
                if segments is not None:
                    found += self._segment(segments[n])
                table.add(sample, found)

    def _poses_at(self, t_ns: Times) -> tuple[Floats, list[bool], list[list[float]]]:
        """Return poses of the rig, which of them are known, and their angles."""
        if self._poses is None:
            return np.empty((len(t_ns), 4, 4)), [False] * len(t_ns), []
        poses, known = self._poses.at(t_ns)
        return poses, known.tolist(), yaw_pitch_roll(poses).tolist()

    def _annotations(self, index: int, t_ns: int, pose: Floats | None) -> list[Annotation]:
        """Return labels and cuboids of a picture; a label and a box of one track share a row."""
        in_space = [] if self._cuboids is None else self._cuboids.at(t_ns, pose)
        if self._boxes is None:
            return in_space
        rows: list[Annotation] = []
        tracks: dict[str | None, Annotation] = {}
        for row in self._boxes.at(index):
            if self._context.options["masks"] != BINARY:
                row.mask = row.mask_score = None
            if self._mission and row.mask is not None:
                mask = decode_mask(row.mask)
                assert mask is not None
                row.polygon, row.mask = row.polygon or outlines(mask), None
            rows.append(row)
            if row.object_id is not None:
                tracks[row.object_id] = row
        for box in in_space:
            row = tracks.get(box.object_id, box)
            if row is not box and row.label == box.label and row.box3d is None:
                row.add_box(box)
            else:
                rows.append(box)
        return rows

    def _masks(self) -> Iterator[Annotation]:
        """Yield the masks that are valid for all pictures: regions to exclude."""
        if self._context.options["masks"] != BINARY:
            return
        for name, mask in camera_masks(self._context, self._camera.name, self._camera.size).items():
            if not mask.any():
                continue
            row = Annotation(object_id(self._base, name), ignore=True, exclude=True)
            if self._mission:  # without columns for it, the label tells a region from an object
                row.label, row.polygon = f"{REGION}{name}", outlines(mask)
            else:
                row.mask = encode_png(mask.astype(np.uint8), level=9, bits=1)
            yield row

    def _find_segments(self) -> Stream | None:
        context, name = self._context, f"_{self._camera.name}"
        stream = context.session.streams.get(name)
        if stream is None or SEGMENT not in stream.meta:
            return None
        entry = stream.meta[SEGMENT]
        width, height = self._camera.size
        if np.dtype(entry["type"]) != np.uint8 or entry["shape"] != [height, width]:
            context.notes.add(f"{SEGMENT} is not u1 of the picture's size: left out", name)
            return None
        if context.options["masks"] != CLASSES or self._mission:
            context.notes.add("classes left out; edgefirst.masks=classes packs them", name)
            return None
        if not stream.has_times and len(stream) != len(self._camera.stream):
            context.notes.add(f"{SEGMENT} has no times and another length: left out", name)
            return None
        return stream

    def _segments_at(self, index: Indices, t_ns: Times) -> list[int] | None:
        """Return the indices of the segmentations of pictures; -1 without a segmentation."""
        if self._segments is None:
            return None
        if self._segments.has_times:
            index = nearest_all(self._segments, t_ns, _SAME_NS)
        found: list[int] = index.tolist()
        return found

    def _segment(self, at: int) -> list[Annotation]:
        assert self._segments is not None
        if at < 0:
            self._unmatched += 1
            return []
        classes: Any = self._segments.sample(at, [SEGMENT])[SEGMENT]
        self.classes = max(self.classes, int(classes.max(initial=0)) + 1)
        return [Annotation(mask=encode_png(np.ascontiguousarray(classes)))]

    def remarks(self) -> list[str]:
        """Return irregularities of the labels, one sentence each; call after the last sample."""
        lines = []
        for labels in (self._boxes, self._cuboids, self._facts):
            if labels is not None:
                place = labels.file.path.relative_to(self._context.session.path)
                labels.columns.note(self._context, place.as_posix())
        for of_pictures, what in ((self._boxes, "labels"), (self._facts, "lines of facts")):
            if of_pictures is not None:
                of_pictures.finish()
                if of_pictures.lost:
                    lines.append(f"{of_pictures.lost} {what} are of no picture of it: left out")
        if self._poses is not None and self._poses.unknown:
            lines.append(f"{self._poses.unknown} samples have no pose: none is near in time")
        if self._cuboids is not None and self._cuboids.unknown:
            lines.append(f"{self._cuboids.unknown} boxes in space are relative to no known frame")
        if self._unmatched:
            lines.append(f"{self._unmatched} samples have no segmentation")
        return lines


def derive_status(row: Annotation) -> str:
    """Return the status that the mission's document defines: ``valid`` with all geometries.

    These are a box in the picture, a mask or polygon, and a box in space.
    """
    masked = row.mask is not None or row.polygon is not None
    complete = masked and row.box2d is not None and row.box3d is not None
    return STATUSES[0] if complete else STATUSES[1]


def yaw_pitch_roll(poses: Floats) -> Floats:
    """Return yaw, pitch and roll of poses f8 [n, 4, 4], in degrees: Rz(yaw) Ry(pitch) Rx(roll).

    Returns:
        f8 [n, 3].
    """
    yaw = np.arctan2(poses[:, 1, 0], poses[:, 0, 0])
    pitch = np.arcsin(np.clip(-poses[:, 2, 0], -1.0, 1.0))
    roll = np.arctan2(poses[:, 2, 1], poses[:, 2, 2])
    return np.asarray(np.degrees(np.stack([yaw, pitch, roll], axis=1)))
