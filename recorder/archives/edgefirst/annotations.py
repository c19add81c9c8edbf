"""Annotations of samples, from a session's labels (docs/labels.md, docs/edgefirst.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.edgefirst.table import GEOMETRIES, Annotation, Sample
from recorder.common.errors import FormatError
from recorder.formats.png import encode_png
from recorder.perception.geometry import Floats, invert, rotation_of_quaternion, transform
from recorder.perception.label_facts import PictureFacts
from recorder.perception.labels import (
    QUALITIES,
    LabelFile,
    Lines,
    Mask,
    is_number,
    is_unicode,
    mask_files,
    number_rows,
    numbers,
    read_mask,
    text,
    texts,
)
from recorder.session.stream import Stream

SEGMENT = "segment"
_HALF_HIDDEN = 0.5
_NO_LINES: Lines = ()
_FARTHEST_NS = 100_000_000
"""Largest time between a picture and a label that does not name the picture's index."""
_MOST = float(np.finfo(np.float32).max)
_IDENTITY = np.eye(4)


class LabelColumns:
    """Columns of the table for the optional keys of the labels of a file.

    Args:
        extra: types of the further columns, by name: entries of ``metadata``.

    Attributes:
        unplaced: number of labels with further entries of ``metadata``.
    """

    def __init__(self, extra: Mapping[str, str]) -> None:
        self._extra = extra
        self.unplaced = 0

    def fill(self, row: Annotation, label: Mapping[str, Any], where: str) -> None:
        """Fill the columns of a row; a score is that of each geometry of the row."""
        if QUALITIES.isdisjoint(label):
            return
        if (score := label.get("score")) is not None:
            for name in GEOMETRIES:
                if getattr(row, name) is not None:
                    setattr(row, f"{name}_score", score)
        row.truncation = _find_level(label.get("truncated"))
        row.occlusion = _find_level(label.get("occluded"))
        row.status, row.degradation = label.get("status"), label.get("degradation")
        if "metadata" in label:
            row.extra = self.pick(label["metadata"], where)

    def pick(self, metadata: Mapping[str, Any], where: str) -> dict[str, Any] | None:
        """Return the values of further columns; None where there is none.

        Raises:
            FormatError: a value is not of its column's type.
        """
        self.unplaced += not metadata.keys() <= self._extra.keys()
        found = {}
        for name, kind in self._extra.items():
            if (value := metadata.get(name)) is not None:
                if not _IS_TYPE[kind](value):
                    raise FormatError(
                        f"{where}: metadata.{name}: the column has the type {kind}, "
                        f"not {value!r:.60}"
                    )
                found[name] = value
        return found or None

    def note(self, context: PackingContext, subject: str) -> None:
        """Note the entries that were left out, and in how many lines."""
        if self.unplaced:
            context.notes.add(
                f"metadata of {self.unplaced} lines left out; "
                "edgefirst.columns names the entries to pack",
                subject,
            )


_IS_TYPE: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str) and is_unicode(value),
    "integer": lambda value: type(value) is int and abs(value) < 2**63,
    "number": is_number,
    "bool": lambda value: isinstance(value, bool),
}


class PictureLines:
    """Lines of a file about a camera's pictures, in the order of the pictures.

    Args:
        file: the label file.
        stream: the camera's stream.

    Attributes:
        file: the label file.
        lost: number of lines about missing pictures.
    """

    def __init__(self, file: LabelFile, stream: Stream) -> None:
        self.file, self._stream = file, stream
        self._lines = file.lines()
        self._next: tuple[int, str, dict[str, Any]] | None = None
        self._last = 0
        self.lost = 0

    def lines_of(self, index: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield place and content of the lines about a picture; call with rising indices."""
        while self._advance() and self._next is not None and self._next[0] <= index:
            frame, where, label = self._next
            self._next = None
            if frame == index:
                yield where, label

    def finish(self) -> None:
        """Check the lines after the last requested picture."""
        while self._advance():
            self._next = None

    def _advance(self) -> bool:
        while self._next is None:
            line = next(self._lines, None)
            if line is None:
                return False
            where, label = line
            frame = self._frame(label)
            if frame is None:
                self.lost += 1
            elif frame < self._last:
                raise FormatError(
                    f"{where}: is of picture {frame}, after a label of picture {self._last}: "
                    "lines must be in order"
                )
            else:
                self._last = frame
                frame -= self._stream.first
                if 0 <= frame < len(self._stream):
                    self._next = frame, where, label
        return True

    def _frame(self, label: Mapping[str, Any]) -> int | None:
        """Return the index of a line's picture in the recording; None for a missing picture."""
        stream, frame = self._stream.whole, label.get("frame")
        if type(frame) is int:
            return frame if 0 <= frame < len(stream) else None
        frame = stream.at(label["t_ns"])
        off_ns = abs(int(stream.t_ns[frame]) - label["t_ns"])
        return frame if off_ns <= _FARTHEST_NS else None


class FactsReader(PictureLines):
    """Reader of the facts about a camera's whole pictures, from a file ordered by time.

    Args:
        file: the file.
        stream: the camera's stream.
        columns: columns for the optional keys.
    """

    def __init__(self, file: LabelFile, stream: Stream, columns: LabelColumns) -> None:
        super().__init__(file, stream)
        self.columns = columns

    def add_to(self, sample: Sample, index: int) -> None:
        """Add the facts about a picture to its sample; call with rising indices.

        Raises:
            FormatError: a line is invalid, or the second one of the picture.
        """
        for number, (where, line) in enumerate(self.lines_of(index)):
            if number:
                raise FormatError(f"{where}: is the second line of its picture")
            facts = PictureFacts.read(line, where)
            sample.degradation, sample.timing = facts.degradation, facts.timing
            sample.absent, sample.incomplete = facts.absent, facts.incomplete
            sample.extra = self.columns.pick(facts.metadata, where)


class BoxReader(PictureLines):
    """Reader of the labels of a camera's pictures, from a file ordered by time.

    Besides the keys of docs/labels.md, a line may have ``polygon_px``, a list of rings of [x, y],
    and ``mask``, the name of a PNG of the camera's size in ``_labels/FILE/``, named as the file.

    Args:
        file: the label file.
        stream: the camera's stream.
        size: width and height of the pictures.
        base: prefix of the tracks' names.
        columns: columns for the optional keys.
    """

    def __init__(
        self,
        file: LabelFile,
        stream: Stream,
        size: tuple[int, int],
        base: str,
        columns: LabelColumns,
    ) -> None:
        super().__init__(file, stream)
        self._size, self._base, self.columns = size, base, columns

    def at(self, index: int) -> Iterator[Annotation]:
        """Yield the labels of a picture, each as an annotation; call with rising indices."""
        for where, label in self.lines_of(index):
            yield self._annotation(where, label)

    def _annotation(self, where: str, label: dict[str, Any]) -> Annotation:
        width, height = self._size
        row = Annotation(label=text(label, "class", where), ignore=False)
        if "box_px" in label or not ("polygon_px" in label or "mask" in label):
            left, top, wide, high = numbers(label, "box_px", 4, where)
            if min(wide, high) < 0 or max(map(abs, (left, top, wide, high))) > _MOST:
                raise FormatError(f"{where}: box_px: is not a box")
            # Pixel (0, 0) is the centre of the first pixel, whose edge is the picture's edge.
            centre = (left + 0.5 + wide / 2) / width, (top + 0.5 + high / 2) / height
            row.box2d = (*centre, wide / width, high / height)
        if "polygon_px" in label:
            row.polygon = [_shares(ring, (width, height), where) for ring in _rings(label, where)]
        if "mask" in label:
            row.mask = self._mask(text(label, "mask", where), where)
        self.columns.fill(row, label, where)
        if isinstance(track := label.get("track"), str):
            row.object_id = object_id(self._base, track)
        return row

    def _mask(self, name: str, where: str) -> bytes:
        if Path(name).name != name:
            raise FormatError(f"{where}: mask: {name!r} is not a file name in its folder")
        return encode_png(read_mask(self.file.path.with_suffix("") / name, self._size), bits=1)


class CuboidReader:
    """Reader of cuboids, from a file ordered by time.

    Args:
        context: the session's context.
        file: the label file.
        tolerance_ns: largest time between a sample and its boxes.
        base: prefix of the tracks' names.
        columns: columns for the optional keys.

    Attributes:
        file: the label file.
        unknown: number of boxes in an unknown frame.
    """

    def __init__(
        self,
        context: PackingContext,
        file: LabelFile,
        tolerance_ns: int,
        base: str,
        columns: LabelColumns,
    ) -> None:
        self._context, self._tolerance_ns, self._base = context, tolerance_ns, base
        self.file, self.columns = file, columns
        self._groups = file.by_time()
        self._around = [next(self._groups, None), next(self._groups, None)]
        self._known: tuple[Lines, list[Annotation]] | None = None  # those that `at` returned last
        self.unknown = 0

    def at(self, t_ns: int, rig_to_world: Floats | None) -> list[Annotation]:
        """Return the boxes that are nearest to a time; call with rising times.

        Pictures that match the same boxes share their annotations.

        Args:
            t_ns: time of the sample.
            rig_to_world: f8 [4, 4], pose of the rig, for boxes in the world's frame; None if
                unknown.
        """
        lines = self._nearest(t_ns)
        if self._known is None or self._known[0] is not lines:
            boxes, in_world = self._in_rig(lines, rig_to_world)
            # The position in the rig of a box in the world depends on the picture.
            self._known = None if in_world else (lines, boxes)
            return boxes
        return self._known[1]

    def _nearest(self, t_ns: int) -> Lines:
        """Return the lines of the time that is nearest, if it is near enough."""
        while self._around[1] is not None and self._around[1][0] <= t_ns:
            self._around = [self._around[1], next(self._groups, None)]
        known = [one for one in self._around if one is not None]
        if not known:
            return _NO_LINES
        best = min(known, key=lambda one: abs(one[0] - t_ns))
        return best[1] if abs(best[0] - t_ns) <= self._tolerance_ns else _NO_LINES

    def _in_rig(self, lines: Lines, rig_to_world: Floats | None) -> tuple[list[Annotation], bool]:
        """Convert boxes to the rig's frame; return also if one was in the world's frame."""
        if not lines:
            return [], False
        frames = texts(lines, "frame")
        poses = {frame: self._pose(frame, rig_to_world) for frame in set(frames)}
        to_rig = [pose for frame in frames if (pose := poses[frame]) is not None]
        if len(to_rig) < len(lines):
            self.unknown += len(lines) - len(to_rig)
            known = zip(lines, frames, strict=True)
            lines = [line for line, frame in known if poses[frame] is not None]
        if not lines:
            return [], "world" in poses
        quaternions = number_rows(lines, "quaternion_xyzw", 4)
        with np.errstate(over="ignore"):
            lengths = np.sum(quaternions * quaternions, axis=1)
        _check(lines, (lengths > 0) & (lengths < np.inf), "quaternion_xyzw: is not a rotation")
        centres, sizes = number_rows(lines, "center_m", 3), number_rows(lines, "size_m", 3)
        _check(lines, (np.abs(centres) < _MOST).all(axis=1), "center_m: is too far away")
        _check(lines, ((sizes >= 0) & (sizes < _MOST)).all(axis=1), "size_m: are not valid sizes")
        local = transform(rotation_of_quaternion(quaternions), centres)
        boxes = np.array(to_rig) @ local
        extents = np.abs(boxes[:, :3, :3]) @ sizes[..., None]
        values = np.concatenate([boxes[:, :3, 3], extents[..., 0]], axis=1).tolist()
        rows = [
            Annotation(object_id(self._base, track), kind, box3d=box, ignore=False)
            for kind, track, box in zip(
                texts(lines, "class"), texts(lines, "track"), values, strict=True
            )
        ]
        for row, (where, label) in zip(rows, lines, strict=True):
            self.columns.fill(row, label, where)
        return rows, "world" in poses

    def _pose(self, frame: str, rig_to_world: Floats | None) -> Floats | None:
        """Return the transformation from a frame to the rig; None for an unknown frame."""
        if frame == "rig":
            return _IDENTITY
        if frame == "world":
            return None if rig_to_world is None else invert(rig_to_world)
        return self._context.calibration.of(frame).pose


def _find_level(share: float | None) -> int | None:
    """Return the level of a hidden share: 0 none, 1 less than half, 2 more; None without one."""
    if share is None:
        return None
    return 0 if share <= 0 else 1 if share < _HALF_HIDDEN else 2


def _check(lines: Lines, good: npt.ArrayLike, words: str) -> None:
    """Raise a FormatError that names the first invalid line."""
    if not np.all(good):
        raise FormatError(f"{lines[int(np.argmin(good))][0]}: {words}")


def object_id(base: str, track: str) -> str:
    """Return the name of a track's object, which is unique in the whole dataset."""
    return f"{base}/{track}"


def camera_masks(context: PackingContext, camera: str, size: tuple[int, int]) -> dict[str, Mask]:
    """Return the masks that are valid for all pictures of a camera, by name.

    Returns:
        bool [height, width] by name.
    """
    masks = {}
    for name, path in mask_files(context.session.path).get(camera, {}).items():
        with context.locate_errors(f"_masks/{camera}/{path.name}"):
            masks[name] = read_mask(path, size)
    return masks


def outlines(mask: Mask) -> list[list[float]]:
    """Return the outer outlines of a mask as rings, in shares of the mask's size."""
    height, width = mask.shape
    found, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    rings = [ring.reshape(-1, 2) for ring in found if len(ring) >= 3]
    return [((ring + 0.5) / (width, height)).reshape(-1).tolist() for ring in rings]


def _rings(label: Mapping[str, Any], where: str) -> list[Any]:
    rings = label["polygon_px"]
    if not isinstance(rings, list) or not all(isinstance(r, list) and len(r) > 2 for r in rings):
        raise FormatError(f"{where}: polygon_px: needs rings of at least three points")
    return rings


def _shares(ring: list[Any], size: tuple[int, int], where: str) -> list[float]:
    flat: list[float] = []
    for point in ring:
        x, y = numbers({"polygon_px": point}, "polygon_px", 2, where)
        if max(abs(x), abs(y)) > _MOST:
            raise FormatError(f"{where}: polygon_px: a point is too far away")
        flat += ((x + 0.5) / size[0], (y + 0.5) / size[1])
    return flat
