"""Cuboid component: boxes around objects, over time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from recorder.archives.ncore.format.component import ComponentWriter
from recorder.formats.zarr2 import LazyRows, SpillFile
from recorder.formats.zarr2.documents import dump_json

LabelSource = Literal["AUTOLABEL", "EXTERNAL", "GT_SYNTHETIC", "GT_ANNOTATION"]
LABEL_SOURCES: tuple[str, ...] = get_args(LabelSource)
Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Cuboid:
    """One observation of an object.

    Attributes:
        track: identity of the object; the same in all observations of the object.
        category: class of the object (``car``).
        t_ns: time of the observation.
        frame: reference frame of the box: a sensor, ``rig`` or ``world``.
        frame_t_ns: time of that frame, for example the end of the labelled sweep.
        center_m: centre of the box, in the frame.
        size_m: extents along the box's own x, y and z.
        rotation_xyz_rad: rotation from the box's axes to the frame's; see `euler_xyz`.
        source: origin of the label.
        source_version: version of the source.
    """

    track: str
    category: str
    t_ns: int
    frame: str
    frame_t_ns: int
    center_m: Vector
    size_m: Vector
    rotation_xyz_rad: Vector
    source: LabelSource
    source_version: str | None = None


def euler_xyz(quaternion_xyzw: tuple[float, float, float, float]) -> Vector:
    """Convert a rotation to turns about the fixed x, then y, then z axis, in radians.

    The quaternion need not have length 1.  If the box points straight up or down, x and z turn
    about the same axis; then z gets the whole turn.
    """
    x, y, z, w = quaternion_xyzw
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if not length > 0 or not math.isfinite(length):
        raise ValueError(f"not a rotation: {quaternion_xyzw}")
    x, y, z, w = x / length, y / length, z / length, w / length
    sine = 2 * (w * y - z * x)
    if abs(sine) > 1 - 1e-12:
        turn = -2 * math.atan2(x, w) if sine > 0 else 2 * math.atan2(x, w)
        return (0.0, math.copysign(math.pi / 2, sine), math.remainder(turn, 2 * math.pi))
    return (
        math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)),
        math.asin(sine),
        math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)),
    )


class CuboidsWriter(ComponentWriter):
    """Writer of observations of objects (component ``cuboids``), spooled in a file."""

    COMPONENT = "cuboids"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._spool = SpillFile(self._place.folder)
        self._count = 0

    def add(self, cuboids: Iterable[Cuboid]) -> None:
        """Add observations.

        Raises:
            ArchiveError: an observation is outside the sequence, or a number is invalid; the
                observations before it are stored.
        """
        for cuboid in cuboids:
            self._spool.write(dump_json(self._document(cuboid)) + b"\n")
            self._count += 1

    def _document(self, cuboid: Cuboid) -> dict[str, Any]:
        label = f"cuboid {self._count} ({cuboid.track})"
        t_us = self._time_us(cuboid.t_ns, f"{label}: time")
        for name, text in (
            ("track", cuboid.track),
            ("category", cuboid.category),
            ("frame", cuboid.frame),
        ):
            if not isinstance(text, str) or not text:
                self._refuse(f"{label}: {name} {text!r} is not a name", t_us)
        if cuboid.source not in LABEL_SOURCES:
            self._refuse(f"{label}: source {cuboid.source!r} is not in {LABEL_SOURCES}", t_us)
        frame_t_us = self._time_us(cuboid.frame_t_ns, f"{label}: frame time", t_us)
        size = self._vector(label, "size_m", cuboid.size_m, t_us)
        if min(size) < 0:
            self._refuse(f"{label}: size_m {size} is negative", t_us)
        return {
            "track_id": cuboid.track,
            "class_id": cuboid.category,
            "timestamp_us": t_us,
            "reference_frame_id": cuboid.frame,
            "reference_frame_timestamp_us": frame_t_us,
            "bbox3": {
                "centroid": self._vector(label, "center_m", cuboid.center_m, t_us),
                "dim": size,
                "rot": self._vector(label, "rotation_xyz_rad", cuboid.rotation_xyz_rad, t_us),
            },
            "source": cuboid.source,
            "source_version": cuboid.source_version,
        }

    def _vector(self, label: str, name: str, values: Vector, t_us: int) -> list[float]:
        try:
            vector = [float(value) for value in values]
        except (TypeError, ValueError):
            vector = []
        if len(vector) != 3 or not all(map(math.isfinite, vector)):
            self._refuse(f"{label}: {name} {values!r} is not three numbers", t_us)
        return vector

    def _rows(self) -> Iterator[Any]:
        return map(json.loads, self._spool.lines())

    def _write_rest(self) -> None:
        observations = LazyRows(self._count, self._rows, self._spool.lines)
        self.group.group("cuboids", {"cuboid_track_observations": observations})
        self.discard()

    def discard(self) -> None:
        self._spool.close()
