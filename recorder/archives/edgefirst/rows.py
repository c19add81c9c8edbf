"""Rows of the table: a sample's own values, once per annotation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from recorder.archives.base import Job
from recorder.archives.edgefirst.annotations import (
    SEGMENT,
    Boxes,
    Cuboids,
    camera_masks,
    outlines,
)
from recorder.archives.edgefirst.cameras import CameraFiles, Place
from recorder.archives.edgefirst.png import encode_png
from recorder.archives.edgefirst.samples import PoseWalk, nearest
from recorder.archives.edgefirst.schema import MISSION
from recorder.archives.edgefirst.table import Row
from recorder.processing.geometry import Floats
from recorder.processing.labels import box_files
from recorder.session.stream import Stream

BINARY, CLASSES = "binary", "classes"
_SAME_NS = 5_000_000
"""By so much at most a segmentation's stamp is off its picture's."""


class RowMaker:
    """Makes the rows of a camera's samples, which come in order.

    Args:
        job: with the options ``schema`` and ``masks``.
        camera: whose pictures they are.
        sequence: their name.
        base: name of the session's sequences without the camera's.
        poses: of the rig; None where nothing is known.
        tolerance_ns: how far boxes in space may be from a sample.

    Attributes:
        classes: number of values in masks of classes.
    """

    def __init__(
        self,
        job: Job,
        camera: CameraFiles,
        sequence: str,
        base: str,
        poses: PoseWalk | None,
        tolerance_ns: int,
    ) -> None:
        self._job, self._camera = job, camera
        self._sequence, self._base = sequence, base
        self._poses = poses
        self._mission = job.options["schema"] == MISSION
        boxes = box_files(job.session.path).get(camera.name)
        self._boxes = None if boxes is None else Boxes(boxes, camera.stream, camera.size)
        self._cuboids = Cuboids(job, tolerance_ns)
        self._constant = list(self._masks())
        self._segments = self._find_segments()
        self.classes = 0
        self._unmatched = 0

    def make(
        self,
        index: int,
        t_ns: int,
        lidar_t_ns: int | None,
        group: str | None,
        place: Place | None,
    ) -> Iterator[Row]:
        """The rows of a sample.

        Args:
            index: of the picture, which is the sample's frame number.
            t_ns: its stamp.
            lidar_t_ns: of the sweep that goes with it; boxes in space are of that time.
            group: of the split.
            place: where it was taken.
        """
        pose = None if self._poses is None else self._poses.at(t_ns)
        own = Row(
            self._sequence,
            index,
            group,
            size=self._camera.size,
            location=None if place is None else (place[0], place[1]),
            pose=None if pose is None else yaw_pitch_roll(pose),
        )
        found = self._annotations(index, t_ns if lidar_t_ns is None else lidar_t_ns, pose)
        found += [replace(row) for row in self._constant]
        if self._segments is not None:
            found += self._segment(index, t_ns)
        for row in found:
            row.name, row.frame, row.group = own.name, own.frame, own.group
            row.size, row.location, row.pose = own.size, own.location, own.pose
        yield from found or [own]

    def _annotations(self, index: int, t_ns: int, pose: Floats | None) -> list[Row]:
        """Labels of the picture and boxes in space; those of one track are one row."""
        rows: list[Row] = []
        tracks: dict[str, int] = {}
        if self._boxes is not None:
            for track, row in self._boxes.at(index):
                if track is not None:
                    tracks[track] = len(rows)
                    row.object_id = self._object_id(track)
                if self._job.options["masks"] != BINARY:
                    row.mask = None
                if self._mission and row.mask is not None:
                    row.polygon, row.mask = row.polygon or _outlines(row.mask), None
                rows.append(row)
        for track, row in self._cuboids.at(t_ns, pose):
            at = tracks.get(track)
            if at is not None and rows[at].label == row.label and rows[at].box3d is None:
                rows[at].box3d = row.box3d
            else:
                row.object_id = self._object_id(track)
                rows.append(row)
        return rows

    def _object_id(self, track: str) -> str:
        """Tracks are objects of one session; in a dataset an object's name stands once."""
        return f"{self._base}/{track}"

    def _masks(self) -> Iterator[Row]:
        """Masks that hold for all pictures: regions not to be looked at."""
        if self._job.options["masks"] != BINARY:
            return
        for name, mask in camera_masks(self._job, self._camera.name, self._camera.size).items():
            if not mask.any():
                continue
            row = Row("", 0, object_id=self._object_id(name), ignore=True, exclude=True)
            if self._mission:
                row.polygon = outlines(mask)
            else:
                row.mask = encode_png(mask.astype(np.uint8), level=9, bits=1)
            yield row

    def _find_segments(self) -> Stream | None:
        job, name = self._job, f"_{self._camera.name}"
        stream = job.session.streams.get(name)
        if stream is None or SEGMENT not in stream.meta:
            return None
        entry = stream.meta[SEGMENT]
        width, height = self._camera.size
        if np.dtype(entry["type"]) != np.uint8 or entry["shape"] != [height, width]:
            job.notes.say(f"{SEGMENT} is not u1 of the picture's size: left out", name)
            return None
        if job.options["masks"] != CLASSES or self._mission:
            job.notes.say("classes left out; edgefirst.masks=classes packs them", name)
            return None
        if not stream.has_times and len(stream) != len(self._camera.stream):
            job.notes.say(f"{SEGMENT} has no times and another length: left out", name)
            return None
        return stream

    def _segment(self, index: int, t_ns: int) -> list[Row]:
        assert self._segments is not None
        at: int | None = index
        if self._segments.has_times:
            at = nearest(self._segments, t_ns, _SAME_NS) if len(self._segments) else None
        if at is None:
            self._unmatched += 1
            return []
        classes: Any = self._segments.sample(at, [SEGMENT])[SEGMENT]
        self.classes = max(self.classes, int(classes.max(initial=0)) + 1)
        return [Row("", 0, mask=encode_png(np.ascontiguousarray(classes)))]

    def told(self) -> list[str]:
        """What was odd, one sentence each."""
        lines = []
        if self._poses is not None and self._poses.unknown:
            lines.append(f"{self._poses.unknown} samples have no pose: none is near in time")
        if self._cuboids.unknown:
            lines.append(f"{self._cuboids.unknown} boxes in space are relative to no known frame")
        if self._unmatched:
            lines.append(f"{self._unmatched} samples have no segmentation")
        return lines


def yaw_pitch_roll(pose: Floats) -> tuple[float, float, float]:
    """Yaw, pitch and roll of a pose f8 [4, 4], in degrees: Rz(yaw) Ry(pitch) Rx(roll)."""
    rotation = pose[:3, :3]
    yaw = np.arctan2(rotation[1, 0], rotation[0, 0])
    pitch = np.arcsin(np.clip(-rotation[2, 0], -1.0, 1.0))
    roll = np.arctan2(rotation[2, 1], rotation[2, 2])
    return float(np.degrees(yaw)), float(np.degrees(pitch)), float(np.degrees(roll))


def _outlines(png: bytes) -> list[list[float]]:
    grey = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert grey is not None
    return outlines(np.asarray(grey != 0))
