"""A session's sensors as NCore components: cameras, lidars, radars and generic streams."""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from recorder.archives.base import Job
from recorder.archives.ncore.component import Place
from recorder.archives.ncore.frames import FrameWriter
from recorder.archives.ncore.models import CameraModel
from recorder.archives.ncore.packer_models import camera_model, lidar_model
from recorder.archives.ncore.rays import EncodedRays, LidarWriter, RadarWriter, RayWriter
from recorder.archives.ncore.sequence import SequenceWriter
from recorder.archives.ncore.times import Interval
from recorder.archives.sensor_files import lidar_optics, lidar_returns, radar_frames, radar_geometry
from recorder.contract.errors import FormatError
from recorder.processing.calibration import Calibration
from recorder.processing.camera_pictures import Pictures
from recorder.processing.frames import (
    Exposures,
    FrameGate,
    SweepTimes,
    Times,
    kind_of,
    mean_period_ns,
    sweep_times,
)
from recorder.processing.labels import LabelFile
from recorder.processing.radar import rcs_db
from recorder.processing.radar_frames import speed_facts, step_remarks
from recorder.processing.sample_workers import LIDAR_GROUP, RADAR_GROUP, Shelf
from recorder.session.reader import lidar_range_mm
from recorder.session.stream import Stream

GENERIC_BYTES = 4096
"""Largest sample, in bytes, of a stream that is packed as rows (no camera, lidar or radar)."""
_ROWS = 4096

Boxes = Mapping[int, list[dict[str, Any]]]


class FrameEnds:
    """Collects which samples became frames, and when those frames end; 16 bytes per frame."""

    def __init__(self) -> None:
        self._index, self._end_ns = array("q"), array("q")

    def add(self, index: int, end_ns: int) -> None:
        """Add a packed sample."""
        self._index.append(index)
        self._end_ns.append(end_ns)

    def of(self, index: int) -> int | None:
        """End of the frame that a sample became; None where the sample was left out."""
        at = bisect_left(self._index, index)
        if at == len(self._index) or self._index[at] != index:
            return None
        return self._end_ns[at]


@dataclass
class Sensor:
    """A stream that is packed as a component.

    Attributes:
        job: the session's job.
        stream: the sensor's stream.
        ends: ends of the frames.
    """

    job: Job
    stream: Stream
    gate: FrameGate = field(default_factory=FrameGate)
    ends: FrameEnds = field(default_factory=FrameEnds)

    @property
    def name(self) -> str:
        return self.stream.name

    def start_ns(self, _index: int, end_ns: int, /) -> int:
        """Time at which the sample's measurement began, ns."""
        raise NotImplementedError

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        """Write all frames; yields the end of each, ns, and returns the component's writer."""
        raise NotImplementedError

    def note(self, sentence: str) -> None:
        """Record an oddity of this stream."""
        self.job.notes.add(sentence, self.name)

    def metadata(self) -> dict[str, Any]:
        """The session's description of the stream, for the component's generic metadata."""
        known: dict[str, Any] = {"stream": self.name}
        spec = self.stream.spec
        if spec is not None:
            known |= {"description": spec.description, "rate_hz": spec.rate_hz}
            known["settings"] = dict(spec.settings)
        calibrated = self.job.calibration.of(self.name)
        known["pose_calibrated"] = calibrated.pose is not None
        if calibrated.calibrated_at is not None:
            known["calibrated_at"] = calibrated.calibrated_at
        return known

    def samples(self) -> Iterator[tuple[int, int, int]]:
        """Index, start and end (ns) of each packed sample."""
        gate = self.gate
        numbers = self._numbers()
        for index, end_ns, seq in numbers:
            with self.job.at(self.name, index):
                times = gate.admit(index, self.start_ns(index, end_ns), end_ns)
                self.seq = seq
            if times is not None:
                self.ends.add(index, times[1])
                yield index, *times
            self.job.advance(1)
        for sentence in gate.remarks():
            self.note(sentence)

    def _numbers(self) -> Iterator[tuple[int, int, int | None]]:
        has_seq = "seq" in self.stream.meta
        for at in range(0, len(self.stream), _ROWS):
            stop = min(at + _ROWS, len(self.stream))
            with self.job.at(self.name, at):
                times = self.stream.times(at, stop).tolist()
                seqs: Iterable[int | None] = [None] * len(times)
                if has_seq:
                    seqs = self.stream.read(at, stop, ["seq"])["seq"].tolist()
            yield from zip(range(at, stop), times, seqs, strict=True)

    seq: int | None = None
    """Sequence number of the sample that `samples` yielded last."""

    def frame_metadata(self, index: int) -> dict[str, Any]:
        """Metadata of one frame: its place in the session."""
        known = {"sample": index + self.stream.first}
        return known if self.seq is None else known | {"seq": self.seq}


@dataclass
class Camera(Sensor):
    """A camera's JPEGs; their bytes are stored unchanged.  Raw pictures are encoded.

    A frame starts an exposure and a readout before its end, as far as these are known (see
    `recorder.processing.frames.Exposures`).
    """

    boxes: LabelFile | None = None

    def __post_init__(self) -> None:
        self._pictures = Pictures(self.stream)
        self._exposures = Exposures(self.stream)

    def start_ns(self, index: int, end_ns: int) -> int:
        return end_ns - self._exposures.at_ns(index) - self._exposures.readout_ns

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._pictures.size

    def model(self) -> CameraModel | None:
        """The calibrated model, if it fits the pictures."""
        model = camera_model(self.job.calibration, self.name)
        if model is not None and tuple(model.resolution) != self.size:
            self.note(
                "calibrated for {}x{}, but the pictures have {}x{}: placeholder intrinsics".format(
                    *model.resolution, *self.size
                )
            )
            return None
        if model is None:
            self.note("no intrinsics in the calibration: placeholder intrinsics")
        return model

    def _known_exposure(self) -> str:
        if self._exposures.measured:
            return "known for each frame"
        if self._exposures.known:
            return "known"
        return "unknown; frames start at their end"

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        writer = sequence.camera(
            self.name,
            metadata=self.metadata() | {"exposure": self._known_exposure()},
        )
        if remark := self._pictures.remark():
            self.note(remark)
        boxes = None if self.boxes is None else BoxReader(self.stream, self.boxes)
        for index, start_ns, end_ns in self.samples():
            with self.job.at(self.name, index):
                metadata = self.frame_metadata(index)
                if boxes is not None:
                    metadata["boxes"] = boxes.at(index)
                image = self._pictures.jpeg(index)
                writer.frame(start_ns, end_ns, image, "jpeg", metadata=metadata)
            yield end_ns
        if self.boxes is not None:
            writer.metadata["boxes"] = dict(self.boxes.header)
        return writer


class BoxReader:
    """Reads the boxes of a camera's pictures from a file ordered by time."""

    def __init__(self, stream: Stream, boxes: LabelFile) -> None:
        self._stream, self._boxes = stream, self._read(boxes)
        self._next: tuple[int, dict[str, Any]] | None = (-1, {})

    def at(self, index: int) -> list[dict[str, Any]]:
        """The boxes of a sample; call with rising indices."""
        found = []
        while self._next is not None and self._next[0] <= index:
            if self._next[0] == index:
                found.append(self._next[1])
            self._next = next(self._boxes, None)
        return found

    def _read(self, boxes: LabelFile) -> Iterator[tuple[int, dict[str, Any]]]:
        """Sample and box of each line."""
        for where, label in boxes.lines():
            frame = label.get("frame")
            if not isinstance(frame, int):
                frame = self._stream.whole.at(label["t_ns"])
            frame -= self._stream.first
            kept = {key: value for key, value in label.items() if key not in ("t_ns", "frame")}
            if not isinstance(kept.get("class"), str):
                raise FormatError(f"{where}: class: needs a text")
            yield frame, kept


@dataclass(frozen=True)
class _Sweep:
    """An encoded sweep; see `recorder.processing.lidar.Rays`."""

    encoded: EncodedRays
    second_error_m: float
    beam_of_ray: npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Frame:
    """An encoded frame of a radar.

    Attributes:
        valid: whether it is complete.
        step: sample before which it is misaligned; None where it is not.
    """

    encoded: EncodedRays
    valid: bool
    step: int | None


class _RaySensor(Sensor):
    """A sensor whose frames are encoded by the session's workers."""

    WRITER: ClassVar[type[RayWriter]]

    def encode(self, writer: RayWriter, indices: Sequence[int]) -> list[Any]:
        """Encode the frames of samples; called in a worker, in which `samples` is not."""
        raise NotImplementedError

    def products(self, interval: Interval, group: int) -> Generator[Any]:
        """The encoded frames of all samples."""
        factory = partial(
            _maker, type(self), self.name, dict(self.job.options), self.job.calibration, interval
        )
        return self.job.products(self.name, factory, range(len(self.stream)), group=group)


class _Maker:
    """Encodes a sensor's frames in a worker."""

    def __init__(self, sensor: _RaySensor, interval: Interval) -> None:
        self._sensor = sensor
        place = Place(interval, Path(), _no_group)
        self._writer = sensor.WRITER(place, sensor.name)

    def make(self, indices: Sequence[int]) -> list[Any]:
        return self._sensor.encode(self._writer, indices)


def _no_group() -> NoReturn:
    raise AssertionError("a worker writes nothing")


def _maker(
    kind: type[_RaySensor],
    name: str,
    options: Mapping[str, Any],
    calibration: Calibration,
    interval: Interval,
    shelf: Shelf,
) -> _Maker:
    job = Job(shelf.session, Path(), options, calibration, shelf=shelf)
    return _Maker(kind(job, shelf.session.streams[name]), interval)


@dataclass
class Lidar(_RaySensor):
    """Ouster sweeps as rays, with both returns."""

    WRITER = LidarWriter

    def __post_init__(self) -> None:
        self.optics, _, _ = lidar_optics(self.stream)
        self._period_ns = mean_period_ns(self.stream, self.optics.frequency_hz)
        self._returns = lidar_returns(self.stream)
        self._sweep: SweepTimes | None = None

    def start_ns(self, index: int, end_ns: int) -> int:
        t_col = None
        if "t_col" in self.stream.meta:
            t_col = self.stream.sample(index, ["t_col"])["t_col"]
        self._sweep = sweep_times(t_col, self.optics.columns, end_ns, self._period_ns)
        if not self._sweep.measured:
            self.note("sweeps without column times of the device: spread evenly over the sweep")
        return self._sweep.start_ns

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        writer = sequence.lidar(self.name, metadata=self.metadata() | {"sensor": self._facts()})
        beams, columns = self.optics.beams, self.optics.columns
        place = elements = None
        frequency = self.optics.frequency_hz or 1e9 / self._period_ns
        spinning = self.optics.model()
        model = lidar_model(self.optics, frequency)
        if spinning is None or model is None:
            self.note("its beams fit no spinning model: no lidar intrinsics, no model elements")
        else:
            sequence.intrinsics().lidar(self.name, model)
            rows = np.repeat(spinning.row_of_beam, columns)
            place = np.stack([rows, np.tile(np.arange(columns), beams)], 1).astype(np.uint16)
            elements = writer.constant(place)
        second_error_m = 0.0
        with contextlib.closing(self.products(sequence.interval, LIDAR_GROUP)) as made:
            sweeps = enumerate(made)
            for index, start_ns, end_ns in self.samples():
                with self.job.at(self.name, index):
                    sweep: _Sweep = next(s for k, s in sweeps if k == index)
                    more = sweep.beam_of_ray
                    second_error_m = max(second_error_m, sweep.second_error_m)
                    element: Any = elements
                    if len(more) and place is not None:
                        element = np.concatenate([place, place[more]])
                    writer.put(
                        sweep.encoded,
                        start_ns,
                        end_ns,
                        t_ns=partial(self._times, more, start_ns, end_ns),
                        model_element=element,
                        metadata=self.frame_metadata(index),
                    )
                yield end_ns
        if len(self._returns) > 1:
            writer.metadata["second_return_error_m"] = round(second_error_m, 6)
        if len(self._returns) > 1 and not self._own_rays:
            self.note(
                "second returns share the direction of the first: up to "
                f"{second_error_m * 1e3:.1f} mm beside their true place"
            )
        return writer

    def _times(self, more: npt.NDArray[np.intp], start_ns: int, end_ns: int) -> Times:
        """The times of the rays of the sweep that `start_ns` was asked for, within the frame."""
        assert self._sweep is not None
        times = np.tile(np.clip(self._sweep.columns_ns, start_ns, end_ns), self.optics.beams)
        return np.concatenate([times, times[more]]) if len(more) else times

    def encode(self, writer: RayWriter, indices: Sequence[int]) -> list[_Sweep]:
        return [self._encode(writer, index) for index in indices]

    def _encode(self, writer: RayWriter, index: int) -> _Sweep:
        ambient = "nir" in self.stream.meta and not self._no_ambient()
        ranges = [lidar_range_mm(self.stream, index, number) for number, _ in self._returns]
        names = [rfl for _, rfl in self._returns if rfl in self.stream.meta]
        data = self.stream.sample(index, [*names, "nir"] if ambient else names)
        no_reflectivity = np.zeros((self.optics.beams, self.optics.columns), np.uint8)
        rays = self.optics.rays(
            ranges,
            [data.get(rfl, no_reflectivity) for _, rfl in self._returns],
            own_rays=self._own_rays,
        )
        end_ns = int(self.stream.times(index, index + 1)[0])
        start_ns = min(self.start_ns(index, end_ns), end_ns)
        encoded = writer.encode(
            start_ns,
            end_ns,
            direction=rays.direction,
            t_ns=self._times(rays.beam_of_ray, start_ns, end_ns),
            distance_m=rays.distance_m,
            intensity=rays.intensity,
            data={"near_ir": data["nir"].reshape(-1)} if ambient else None,
        )
        return _Sweep(encoded.without_values(), rays.second_error_m, rays.beam_of_ray)

    @property
    def _own_rays(self) -> bool:
        return bool(self.job.options["second_returns"] == "own")

    def _no_ambient(self) -> bool:
        return "all zero" in str(self.stream.meta["nir"].get("desc", ""))

    def _facts(self) -> dict[str, Any]:
        second = "none recorded"
        if len(self._returns) > 1:
            second = "on the ray of the first return, at the point nearest to the true one"
            if self._own_rays:
                second = "on rays of their own, behind the others, where they are off the first's"
        return {
            **self.optics.settings,
            "beams": self.optics.beams,
            "columns": self.optics.columns,
            "returns": len(self._returns),
            "intensity": "calibrated reflectivity / 255",
            "second_returns": second,
        }


@dataclass
class Radar(_RaySensor):
    """Detections computed from the raw samples."""

    WRITER = RadarWriter

    def __post_init__(self) -> None:
        self.geometry = radar_geometry(self.stream, self.job.calibration)
        if self.geometry.tx_m is None:
            self.note("radar.json has no antennas: detections have no direction but straight ahead")
        self._frames = radar_frames(self.job, self.stream, self.geometry)

    def start_ns(self, _index: int, end_ns: int) -> int:
        return end_ns - round(self.geometry.frame_time * 1e9)

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        writer = sequence.radar(
            self.name,
            metadata=self.metadata()
            | {
                "radar": self.geometry.document,
                "processing": {
                    "method": "windowed range and Doppler transforms, log CFAR, "
                    "matched phases over the virtual array",
                    "threshold_db": self.job.options["radar_threshold_db"],
                    "limit": self.job.options["radar_limit"],
                    "rcs_reference_db": self.job.options["radar_rcs_db"],
                    **speed_facts(self._frames.processor),
                },
            },
        )
        incomplete, steps = 0, Counter[int]()
        with contextlib.closing(self.products(sequence.interval, RADAR_GROUP)) as made:
            frames = enumerate(made)
            for index, start_ns, end_ns in self.samples():
                with self.job.at(self.name, index):
                    frame: _Frame = next(f for k, f in frames if k == index)
                    metadata = self.frame_metadata(index)
                    if not frame.valid:
                        incomplete += 1
                        metadata["incomplete"] = True
                    if frame.step is not None:
                        steps[frame.step] += 1
                    rays = frame.encoded.rays
                    times = partial(np.full, rays, (start_ns + end_ns) // 2, np.int64)
                    writer.put(frame.encoded, start_ns, end_ns, t_ns=times, metadata=metadata)
                yield end_ns
        if incomplete:
            self.note(f"{incomplete} frames lack packets; they are packed, and say so")
        for sentence in step_remarks(steps):
            self.note(sentence)
        return writer

    def encode(self, writer: RayWriter, indices: Sequence[int]) -> list[_Frame]:
        self._frames.find(indices)
        return [self._encode(writer, index) for index in indices]

    def _encode(self, writer: RayWriter, index: int) -> _Frame:
        valid = True
        if "valid" in self.stream.meta:
            valid = bool(self.stream.sample(index, ["valid"])["valid"])
        found, period = self._frames.resolved(index), 2 * self.geometry.max_velocity
        end_ns = int(self.stream.times(index, index + 1)[0])
        start_ns = min(self.start_ns(index, end_ns), end_ns)
        encoded = writer.encode(
            start_ns,
            end_ns,
            direction=found.direction,
            t_ns=np.full(len(found), (start_ns + end_ns) // 2, np.int64),
            distance_m=found.range_m[None],
            returns={
                "radial_velocity_m_s": found.velocity_m_s[None],
                "power_db": found.power_db[None],
                "snr_db": found.snr_db[None],
                "rcs_dbsm": rcs_db(found, self.job.options["radar_rcs_db"])[None],
                "velocity_margin_db": found.margin_db[None],
                "velocity_method": found.method.astype(np.float32)[None],
                "velocity_period_m_s": np.full((1, len(found)), period, np.float32),
            },
        )
        return _Frame(encoded.without_values(), valid, self._frames.step(index))


def is_generic(stream: Stream) -> bool:
    """Whether a stream is packed as rows of generic data."""
    return (
        kind_of(stream) in ("imu", "other")
        and stream.has_times
        and stream.sample_bytes <= GENERIC_BYTES
    )


def pack_generic(job: Job, sequence: SequenceWriter, stream: Stream) -> dict[str, Any]:
    """Store a stream's samples as generic data of the poses: ``NAME.t_ns`` and ``NAME.CHANNEL``.

    Returns:
        the stream's entry in the component's metadata.
    """
    poses = sequence.poses()
    channels = stream.data_channels
    rows = {"t_ns": poses.generic_rows(f"{stream.name}.t_ns", np.int64)}
    for name in channels:
        entry = stream.meta[name]
        rows[name] = poses.generic_rows(
            f"{stream.name}.{name}", entry["type"], tuple(entry["shape"])
        )
    backward, last = 0, -1
    for at in range(0, len(stream), _ROWS):
        stop = min(at + _ROWS, len(stream))
        with job.at(stream.name, at):
            t_ns: npt.NDArray[np.int64] = stream.times(at, stop)
            data = stream.read(at, stop, channels) if channels else {}
            rows["t_ns"].append(t_ns)
            for name in channels:
                rows[name].append(data[name])
        steps = np.diff(t_ns, prepend=last)
        backward += int(np.count_nonzero(steps <= 0))
        last = int(t_ns[-1])
        job.advance((stop - at) / _ROWS)
    if backward:
        job.notes.add(f"{backward} samples with equal or backward times, packed", stream.name)
    spec = stream.spec
    units = {} if spec is None else {c.name: c.unit for c in spec.channels if c.unit}
    known: dict[str, Any] = {
        "kind": kind_of(stream),
        "samples": len(stream),
        "channels": {name: {"unit": units.get(name, "")} for name in channels},
    }
    if spec is not None:
        known |= {"description": spec.description, "settings": dict(spec.settings)}
    return known


def ticks_of(stream: Stream) -> float:
    """Amount of work of a stream, in the unit of `Job.advance`."""
    return len(stream) / _ROWS if is_generic(stream) else len(stream)
