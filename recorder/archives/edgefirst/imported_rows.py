"""Rows of an EdgeFirst table as a session's files: boxes, cuboids, masks, orientations.

Shares of a picture become pixels, in which the centre of the first pixel is (0, 0); boxes in space
are metres in the rig, without an orientation.  A box in the picture and one in space of one row
have the same track.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
import numpy.typing as npt

from recorder.archives.edgefirst.imported_table import ImportedTable, Row
from recorder.archives.importing import Contents, SessionFile
from recorder.archives.ncore.imported_labels import file_name
from recorder.common.errors import FormatError
from recorder.formats.edgefirst.files import SINGLE, EdgeFirstDataset, find_picture
from recorder.perception.geometry import Floats, rotation_of_rpy, transform
from recorder.perception.labels import BOXES, CUBOIDS, DEGRADATIONS, MASKS, decode_mask
from recorder.perception.recorded_poses import Trajectory, write_poses

SET: Final = "edgefirst"
_LEVELS: Final = {0: 0.0, 1: 0.25, 2: 0.75}
"""Hidden shares of the levels none, less than half, more."""
_LOST: Final = {
    "group": "which split a sample is in",
    "ignore": "that an object is ignored",
    "iscrowd": "that an object is a crowd",
    "exclude": "that an object is excluded",
    "label_index": "the numbers of the labels",
    "timing": "the times of processing",
}
"""Columns for which a session has no place."""
_KNOWN: Final = frozenset(
    {*_LOST, "name", "frame", "object_id", "label", "polygon", "box2d", "box3d", "mask", "size",
     "location", "pose", "status", "degradation", "truncation", "occlusion",
     "polygon_score", "mask_score", "box2d_score", "box3d_score"}
)  # fmt: skip


@dataclass(frozen=True)
class CameraFrames:
    """The pictures of a camera.

    Attributes:
        sequence, camera: names of the sequence and of the session's sensor.
        size: width and height.
        index: index of a picture in the stream, by frame.
        singles: index of a picture by its name, where the sequence is `SINGLE`.
        t_ns: times of the pictures, i8 [n].
    """

    sequence: str
    camera: str
    size: tuple[int, int]
    index: Mapping[int, int]
    t_ns: npt.NDArray[np.int64]
    singles: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, dataset: EdgeFirstDataset, sequence: str, camera: str, size: tuple[int, int]
    ) -> CameraFrames:
        """Read the times of a sequence's pictures."""
        files = dataset.sequences[sequence]
        frames = [frame for frame, each in files.items() if find_picture(each)]
        timed = dataset.has_times(sequence)
        times: list[int] = []
        for frame in frames:
            found = dataset.exif(sequence, frame).t_ns if timed else None
            last_ns = times[-1] if times else dataset.start_ns
            later_ns = last_ns + 1_000_000 if timed else dataset.guess_ns(sequence, frame)
            times.append(later_ns if found is None else found)
        index = {frame: number for number, frame in enumerate(frames)}
        singles = {}
        if sequence == SINGLE:
            singles = {dataset.singles[frame]: index[frame] for frame in frames}
        return cls(sequence, camera, size, index, np.array(times, np.int64), singles)

    def find(self, row: Row) -> int | None:
        """Return the index of a row's picture; None without one."""
        if self.sequence == SINGLE:
            return self.singles.get(row["name"])
        return self.index.get(row.get("frame", -1))


def find_files(
    table: ImportedTable, cameras: Sequence[CameraFrames], contents: Contents
) -> Iterator[SessionFile]:
    """Yield the labels of a recording; note the columns that are lost."""
    counts, angles = dict.fromkeys(("box2d", "box3d", "mask", "polygon"), 0), 0
    lost: dict[str, int] = {}
    unplaced = 0
    for camera in cameras:
        for row in table.rows(_names_of(camera)):
            if camera.find(row) is None:
                unplaced += 1
                continue
            for name in counts:
                counts[name] += row.get(name) is not None
            angles += row.get("pose") is not None
            for name in row.keys() - _KNOWN | _LOST.keys() & row.keys():
                lost[name] = lost.get(name, 0) + bool(row[name])
    for name, count in sorted(lost.items()):
        if count:
            why = _LOST.get(name, "a column that the recorder does not know")
            contents.lost[f"the column {name}"] = f"{why} ({count} rows)"
    if unplaced:
        contents.lost[f"{unplaced} rows"] = "of no picture"
    if table.metadata.get("mask_interpretation") == "class_index" and counts["mask"]:
        contents.lost["the column mask"] = f"classes of pixels ({counts['mask']} rows)"
        counts["mask"] = 0
    labels = counts["box2d"] + counts["box3d"] + counts["mask"] + counts["polygon"]
    if labels:
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        more = []
        if counts["box3d"] and table.metadata.get("box3d_normalized") != "false":
            more.append("whether boxes in space are metres in the rig: taken for these")
        classes = table.metadata.get("mask_interpretation") == "class_index"
        write = partial(_write_labels, table, cameras, classes)
        yield SessionFile(f"{table.path.name}: labels", told, write, lost=more)
    if angles and cameras:
        text = f"{angles} rows with the rig's orientation: poses without positions"
        complete = partial(_write_angles, table, cameras[0])
        yield SessionFile(f"{table.path.name}: pose", text, complete=complete)


def _names_of(camera: CameraFrames) -> Mapping[str, Any]:
    return camera.singles or {camera.sequence: None}


def _write_labels(
    table: ImportedTable, cameras: Sequence[CameraFrames], classes: bool, folder: Path
) -> None:
    """Write ``_labels``, ``_masks`` and ``_cuboids``; rows are in order of their frames."""
    cuboids: dict[int, list[dict[str, Any]]] = {}
    for camera in cameras:
        rows = _Rows(camera, folder, classes)
        for row in table.rows(_names_of(camera)):
            try:
                rows.add(row)
            except (TypeError, ValueError) as error:
                where = f"{table.path}: frame {row.get('frame')} of {row['name']}"
                raise FormatError(f"{where}: is damaged: {error}") from None
        rows.finish()
        for t_ns, lines in rows.cuboids.items():
            known = cuboids.setdefault(t_ns, [])
            known += [line for line in lines if line not in known]
    if cuboids:
        (folder / CUBOIDS).mkdir(exist_ok=True)
        with (folder / CUBOIDS / f"{SET}.jsonl").open("x") as file:
            _write_line(file, {"format": "recorder-cuboids", "version": 1, "source": SET})
            for t_ns in sorted(cuboids):
                for line in cuboids[t_ns]:
                    _write_line(file, line)


def _write_line(file: TextIO, values: Mapping[str, Any]) -> None:
    try:
        file.write(json.dumps(values, allow_nan=False) + "\n")
    except ValueError:
        raise FormatError(f"a label has a number that is not finite: {values!r:.200}") from None


class _Rows:
    """Writer of the labels of one camera.

    Attributes:
        cuboids: lines of boxes in space, by time.
    """

    def __init__(self, camera: CameraFrames, folder: Path, classes: bool) -> None:
        self._camera, self._folder, self._classes = camera, folder, classes
        self.cuboids: dict[int, list[dict[str, Any]]] = {}
        self._lines: list[tuple[int, dict[str, Any]]] = []
        self._masks: set[str] = set()
        self._unnamed = 0

    def finish(self) -> None:
        """Write the lines, in the order of the pictures."""
        if not self._lines:
            return
        name, place = self._camera.camera, self._folder / BOXES
        place.mkdir(exist_ok=True)
        with (place / f"{name}.jsonl").open("x") as file:
            head = {"format": "recorder-boxes", "version": 1, "source": SET, "camera": name}
            _write_line(file, head)
            for _, line in sorted(self._lines, key=itemgetter(0)):
                _write_line(file, line)

    def add(self, row: Row) -> None:
        """Add the labels of a row."""
        index = self._camera.find(row)
        if index is None:
            return
        t_ns = int(self._camera.t_ns[index])
        mask = None if self._classes else row.get("mask")
        if row.get("label") is None and mask is not None:
            self._add_region(row, mask)
            return
        known = self._describe(row, index)
        line = {"t_ns": t_ns, "frame": index} | known
        shapes = self._shapes(row, mask, len(self._lines))
        if shapes:
            scores = (row.get(f"{name}_score") for name in ("box2d", "polygon", "mask"))
            score = next((score for score in scores if score is not None), None)
            more = {} if score is None else {"score": score}
            self._lines.append((index, line | shapes | more))
        if (box := row.get("box3d")) is not None:
            self._add_cuboid(t_ns, known, box, row.get("box3d_score"))

    def _add_cuboid(
        self, t_ns: int, known: Mapping[str, Any], box: Sequence[float], score: float | None
    ) -> None:
        cuboid: dict[str, Any] = {"t_ns": t_ns, "frame": "rig"} | dict(known)
        cuboid |= {
            "center_m": list(box[:3]),
            "size_m": list(box[3:]),
            "quaternion_xyzw": [0.0, 0.0, 0.0, 1.0],
        }
        if score is not None:
            cuboid["score"] = score
        self.cuboids.setdefault(t_ns, []).append(cuboid)

    def _describe(self, row: Row, index: int) -> dict[str, Any]:
        """Return class, track and qualities of a row."""
        known: dict[str, Any] = {"class": row.get("label") or "unknown"}
        if name := row.get("object_id"):
            known["track"] = str(name).rpartition("/")[2] or str(name)
        else:
            self._unnamed += 1
            known["track"] = f"{index}_{self._unnamed}"
        for column, key in (("truncation", "truncated"), ("occlusion", "occluded")):
            if (level := row.get(column)) is not None:
                known[key] = _LEVELS.get(level, 1.0)
        if row.get("status"):
            known["status"] = row["status"]
        if row.get("degradation") in DEGRADATIONS:
            known["degradation"] = row["degradation"]
        return known

    def _shapes(self, row: Row, mask: bytes | None, number: int) -> dict[str, Any]:
        width, height = self._camera.size
        found: dict[str, Any] = {}
        if (box := row.get("box2d")) is not None:
            x, y, wide, high = box
            wide, high = wide * width, high * height
            corner = x * width - 0.5 - wide / 2, y * height - 0.5 - high / 2
            found["box_px"] = [*corner, wide, high]
        if (rings := row.get("polygon")) is not None:
            pixels = [
                [[x * width - 0.5, y * height - 0.5] for x, y in _pairs(ring)] for ring in rings
            ]
            found["polygon_px"] = [ring for ring in pixels if len(ring) > 2]
        if mask is not None:
            name = f"{number:06d}.png"
            place = self._folder / BOXES / self._camera.camera
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(mask)
            found["mask"] = name
        if found and "box_px" not in found:
            found["box_px"] = _bound(found.get("polygon_px", ()), mask)
        return found

    def _add_region(self, row: Row, mask: bytes) -> None:
        """Add a mask that is valid for all pictures, once."""
        name = file_name(str(row.get("object_id") or "region").rpartition("/")[2])
        if name not in self._masks:
            self._masks.add(name)
            place = self._folder / MASKS / self._camera.camera
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{name}.png").write_bytes(mask)


def _bound(rings: Sequence[Sequence[Sequence[float]]], mask: bytes | None) -> list[float]:
    """Return the box around an outline or a mask, in pixels: readers of boxes need one."""
    points = np.array([point for ring in rings for point in ring], np.float64).reshape(-1, 2)
    if not len(points) and mask is not None and (pixels := decode_mask(mask)) is not None:
        points = np.argwhere(pixels)[:, ::-1].astype(np.float64)
        points = np.concatenate([points - 0.5, points + 0.5])
    if not len(points):
        return [0.0, 0.0, 0.0, 0.0]
    low, high = points.min(axis=0), points.max(axis=0)
    return [*low.tolist(), *(high - low).tolist()]


def _pairs(ring: Sequence[float]) -> Iterator[tuple[float, float]]:
    if len(ring) % 2:
        raise FormatError("a polygon has a point of one number")
    return zip(ring[::2], ring[1::2], strict=True)


def _write_angles(table: ImportedTable, camera: CameraFrames, session: Path) -> None:
    """Write the rig's orientations as ``_pose``, at the origin."""
    angles: dict[int, Sequence[float]] = {}
    for row in table.rows(_names_of(camera)):
        index = camera.find(row)
        if index is not None and row.get("pose") is not None:
            angles.setdefault(index, row["pose"])
    order = sorted(angles)
    yaw_pitch_roll: Floats = np.radians([angles[index] for index in order])
    poses = transform(rotation_of_rpy(yaw_pitch_roll[:, ::-1]), np.zeros((len(order), 3)))
    write_poses(session, Trajectory("rig", "world", [table.path.name], camera.t_ns[order], poses))
