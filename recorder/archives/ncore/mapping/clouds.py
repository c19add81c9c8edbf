"""Packing of lidars by their points, of all but Ousters: rays with a time each, or point clouds.

Points with times become a frame of ``lidars``: a ray through each point that has a return, with the
point's time.  If the lidar's beams are known, or the points have rings that spin evenly, it has a
spinning model, and each ray an element of it.  Points without times become a cloud of
``point_clouds``.

Points without a return have no direction, and are left out, as are rays without a time; a frame's
metadata have their numbers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.ncore.format.cameras import IntrinsicsWriter
from recorder.archives.ncore.format.component import NS_PER_US, Interval
from recorder.archives.ncore.format.frames import FrameWriter
from recorder.archives.ncore.format.models import RowOffsetSpinning
from recorder.archives.ncore.format.point_clouds import Attribute, PointCloudsWriter
from recorder.archives.ncore.format.rays import EncodedRays, LidarWriter, RayEncoder
from recorder.archives.ncore.format.sequence import SequenceWriter
from recorder.archives.ncore.mapping.recorded_rays import RaySensor
from recorder.archives.ncore.mapping.sensors import Sensor
from recorder.archives.sample_workers import LIDAR_GROUP, WorkerContext
from recorder.codecs.rays import RETURN_VALUES
from recorder.common.errors import ArchiveError
from recorder.perception.calibration import Calibration
from recorder.perception.frames import Times, has_detections
from recorder.perception.lidar.beams import BeamPoints
from recorder.perception.lidar.clouds import find_brightness, make_point_source
from recorder.perception.lidar.points import (
    PointSource,
    Values,
    find_returns,
    find_times,
    stack_xyz,
)
from recorder.perception.lidar.rays import RayPoints
from recorder.perception.lidar.spinning import DerivedModel, derive_model, with_error
from recorder.session.playback import recorded_spec
from recorder.session.stream import Stream

_MODEL_SWEEPS: Final = 5
"""Sweeps from which a spinning model is derived, spread over the recording."""
_LEAST_M: Final = 1e-6
"""Points that are nearer have no direction: 0, 0, 0 is a point without a return."""
_WHITE: Final = (1.0, 255.0, 65_535.0)
"""Intensities that are 1 in an archive: the smallest that no point of those sweeps exceeds."""


@dataclass(frozen=True)
class _Sweep:
    """An encoded sweep.

    Attributes:
        encoded: its rays.
        t_ns: int64 [rays], times of the rays.
        elements: u2 [rays, 2], row and column of each ray in the model; None without a model.
        left_out: numbers of points that are left out, by reason.
        brighter: number of points with an intensity above the largest one.
    """

    encoded: EncodedRays
    t_ns: Times
    elements: npt.NDArray[np.uint16] | None
    left_out: dict[str, int]
    brighter: int


class _SweepEncoder:
    """Encoder of sweeps, in a worker.

    Args:
        name: name of the lidar.
        interval: the sequence's interval.
        white: intensity that is 1 in the archive.
        model: the lidar's model; None without one.
        worker: the worker's context.
    """

    def __init__(
        self,
        name: str,
        interval: Interval,
        white: float,
        model: DerivedModel | None,
        worker: WorkerContext,
    ) -> None:
        self._stream, self._interval = worker.session.streams[name], interval
        self._source = make_point_source(recorded_spec(self._stream))
        self._rays = RayEncoder(LidarWriter, name, interval)
        self._white, self._model = np.float32(white), model
        self._brightness = find_brightness(self._source)
        self._others = other_fields(self._source, "t", self._brightness)
        self._needed = {"t", *self._others}
        if self._brightness is not None:
            self._needed.add(self._brightness)
        if model is not None:
            self._needed |= {"x", "y", "z", "ring"}

    def __call__(self, indices: Sequence[int]) -> list[_Sweep]:
        return [self._encode(index) for index in indices]

    @np.errstate(invalid="ignore", over="ignore")  # values may be any numbers
    def _encode(self, index: int) -> _Sweep:
        began_ns, recorded = self._source.read(self._stream, index)
        stamp_ns = int(self._stream.times(index, index + 1)[0])
        start_ns, end_ns = self._fit(began_ns, stamp_ns)
        timed = find_times(recorded)
        kept, direction, distance_m = find_rays(recorded, timed)
        points = {name: recorded[name][kept] for name in self._needed}
        t_ns = points["t"].astype(np.int64)
        t_ns += began_ns
        t_ns.clip(start_ns, end_ns, out=t_ns)
        intensity, brighter = np.zeros(len(t_ns), np.float32), 0
        if self._brightness is not None:
            intensity = points[self._brightness].astype(np.float32)
            intensity /= self._white
            brighter = int(np.count_nonzero(intensity > 1))
            np.fmax(intensity, 0, out=intensity)  # NaN becomes 0
            np.fmin(intensity, 1, out=intensity)
        encoded = self._rays.encode(
            start_ns,
            end_ns,
            direction=direction,
            t_ns=t_ns,
            distance_m=distance_m[None],
            intensity=intensity[None],
            data={name: points[name] for name in self._others},
        )
        elements = None if self._model is None else self._model.elements(points)
        count = int(np.count_nonzero(timed))
        left_out = _left_out(time=len(recorded) - count, **{"return": count - len(t_ns)})
        return _Sweep(encoded.without_values(), t_ns, elements, left_out, brighter)

    def _fit(self, *times_ns: int) -> list[int]:
        """Return times that lie in the sequence."""
        last_ns = self._interval.last_ns + NS_PER_US - 1
        return [min(max(t_ns, self._interval.start_ns), last_ns) for t_ns in times_ns]


@dataclass
class PointLidar(Sensor):
    """Lidar whose points have times, packed as rays."""

    def __post_init__(self) -> None:
        self._source = make_point_source(recorded_spec(self.stream))
        sweeps = _find_sweeps(self.stream, self._source)
        self._white = _find_white(sweeps, find_brightness(self._source))
        self._model: DerivedModel | None = None
        self._origin = "derived from the points"
        if isinstance(self._source, BeamPoints):
            self._model = with_error(self._source.model(), sweeps)
            self._origin = f"of the beams; calibration: {self._source.beams.calibration}"
        elif "ring" in (self._source.point.names or ()):
            self._model = derive_model(sweeps)

    def start_ns(self, index: int, _end_ns: int) -> int:
        return self._source.read(self.stream, index)[0]

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        writer = sequence.lidar(self.name, metadata=self.metadata() | {"sensor": self._facts()})
        if find_brightness(self._source) is None:
            self.note("its points have no intensity: 0")
        factory = partial(_SweepEncoder, self.name, sequence.interval, self._white, self._model)
        everything = range(len(self.stream))
        encoded = self.context.encode_samples(self.name, factory, everything, group=LIDAR_GROUP)
        brighter = 0
        with contextlib.closing(encoded) as sweeps:
            sweep: _Sweep

            def take(_index: int, _end_ns: int) -> int:
                nonlocal sweep
                sweep = next(sweeps)
                return sweep.encoded.frame_ns[0]

            for index, start_ns, end_ns in self.samples(take):
                with self.context.locate_errors(self.name, index):
                    brighter += sweep.brighter
                    writer.put(
                        sweep.encoded,
                        start_ns,
                        end_ns,
                        t_ns=partial(np.clip, sweep.t_ns, start_ns, end_ns),
                        model_element=sweep.elements,
                        metadata=self.frame_metadata(index) | sweep.left_out,
                    )
                yield end_ns
        if brighter:
            self.note(f"{brighter} points have an intensity above {self._white:g}: packed as 1")
        return writer

    def place_model(self, intrinsics: IntrinsicsWriter, _: Calibration) -> None:
        if self._model is not None:
            spinning = self._model.spinning
            model = RowOffsetSpinning(
                self._model.frequency_hz,
                spinning.direction,
                spinning.row_elevations_rad,
                spinning.column_azimuths_rad,
                spinning.row_azimuth_offsets_rad,
            )
            try:
                intrinsics.lidar(self.name, model)
                return
            except ArchiveError:  # angles that are equal as float32
                self._model = None
        self.note("its points fit no spinning model: no lidar intrinsics, no model elements")

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "recorded": "ranges" if isinstance(self._source, BeamPoints) else "points",
            "fields": list(self._source.point.names or ()),
            "intensity": f"{find_brightness(self._source) or 'none'} / {self._white:g}",
        }
        if self._model is not None:
            facts["model"] = self._origin
            facts["model_error_deg"] = round(math.degrees(self._model.error_rad), 4)
        return facts


@dataclass
class UntimedLidar(Sensor):
    """Lidar whose recorded points have no times, packed as point clouds."""

    def __post_init__(self) -> None:
        self._source = make_point_source(recorded_spec(self.stream))

    def start_ns(self, _index: int, end_ns: int) -> int:
        return end_ns

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, PointCloudsWriter]:
        names = other_fields(self._source)
        writer = sequence.point_clouds(
            self.name,
            attributes={name: Attribute(str(self._source.point[name])) for name in names},
            group=sequence.group_of("lidars"),  # as sensors, not as labels
            metadata=self.metadata(),
        )
        self.note("its points have no times: packed as point clouds")
        for index, _, end_ns in self.samples(self.start_ns):
            with self.context.locate_errors(self.name, index):
                recorded = self._source.read(self.stream, index)[1]
                points = recorded[find_returns(recorded)]
                left_out = _left_out(**{"return": len(recorded) - len(points)})
                attributes = {name: np.ascontiguousarray(points[name]) for name in names}
                writer.cloud(
                    end_ns,
                    self.name,
                    stack_xyz(points),
                    attributes,
                    metadata=self.frame_metadata(index) | left_out,
                )
            yield end_ns
        return writer


@dataclass
class PointRadar(Sensor):
    """Radar whose detections are recorded as points without times."""

    def __post_init__(self) -> None:
        self._source = make_point_source(recorded_spec(self.stream))

    def start_ns(self, _index: int, end_ns: int) -> int:
        return end_ns

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        writer = sequence.radar(self.name, metadata=self.metadata())
        names = [name for name in other_fields(self._source, "t") if name in RETURN_VALUES]
        for index, start_ns, end_ns in self.samples(self.start_ns):
            with self.context.locate_errors(self.name, index):
                points = self._source.read(self.stream, index)[1]
                kept, direction, distance_m = find_rays(points, np.ones(len(points), np.bool_))
                values = {name: points[name][kept].astype(np.float32)[None] for name in names}
                if "noise" in values and "power" in values:
                    values["noise"] = values["power"] - values["noise"]
                writer.frame(
                    start_ns,
                    end_ns,
                    direction=direction,
                    t_ns=np.full(len(direction), end_ns, np.int64),
                    distance_m=distance_m[None],
                    returns={RETURN_VALUES[name]: each for name, each in values.items()},
                    metadata=self.frame_metadata(index),
                )
            yield end_ns
        return writer


def make_point_sensor(context: PackingContext, stream: Stream) -> Sensor:
    """Return the packer of a lidar that is recorded as points, or of a radar's detections.

    Raises:
        FormatError: the stream's columns cannot be used, or a sweep is damaged.
    """
    source = make_point_source(recorded_spec(stream))
    if isinstance(source, RayPoints):
        return RaySensor(context, stream)
    if has_detections(stream):
        return PointRadar(context, stream)
    return (PointLidar if source.timed else UntimedLidar)(context, stream)


def other_fields(source: PointSource, *used: str | None) -> list[str]:
    """Return the fields of a point besides its position and those that are used."""
    return [name for name in source.point.names or () if name not in {"x", "y", "z", *used}]


def find_rays(
    points: Values, wanted: npt.NDArray[np.bool_]
) -> tuple[slice | npt.NDArray[np.bool_], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the rays of the points that have a return.

    No records are copied, since copies of single fields cost less.

    Args:
        points: structured array [n] with the fields x, y and z.
        wanted: [n], which of them are considered.

    Returns:
        index of the points, unit vectors f4 [rays, 3], and distances f4 [rays], m.
    """
    x, y, z = axes = [points[axis].astype(np.float32) for axis in "xyz"]
    distance_m = np.sqrt(x * x + y * y + z * z)
    hit = wanted & np.isfinite(distance_m) & (distance_m > _LEAST_M)
    kept = slice(None) if hit.all() else hit
    distance_m = distance_m[kept]
    direction = np.empty((len(distance_m), 3), np.float32)
    for at, axis in enumerate(axes):
        np.divide(axis[kept], distance_m, out=direction[:, at])
    return kept, direction, distance_m


def _left_out(**counts: int) -> dict[str, int]:
    return {f"points_without_{what}": count for what, count in counts.items() if count}


def _find_sweeps(stream: Stream, source: PointSource) -> list[Values]:
    """Return the points with times of a few sweeps, spread over the recording."""
    chosen = np.unique(np.linspace(0, len(stream) - 1, _MODEL_SWEEPS).astype(int)).tolist()
    read = [source.read(stream, index)[1] for index in chosen]
    return [points[find_times(points)] for points in read]


def _find_white(sweeps: Sequence[Values], brightness: str | None) -> float:
    """Return the intensity that is 1 in the archive."""
    if brightness is None:
        return _WHITE[0]
    values = [points[brightness] for points in sweeps]
    if values[0].dtype.kind == "u" and values[0].dtype.itemsize < 4:
        return float(np.iinfo(values[0].dtype).max)
    most = max(float(np.max(each, initial=0, where=np.isfinite(each))) for each in values)
    return next((white for white in _WHITE if most <= white), most)
