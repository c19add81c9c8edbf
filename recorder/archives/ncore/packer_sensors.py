"""A session's sensors as NCore components: cameras, lidars, radars and generic streams."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.base import Job
from recorder.archives.ncore.frames import FrameWriter
from recorder.archives.ncore.models import CameraModel
from recorder.archives.ncore.packer_models import camera_model, lidar_model
from recorder.archives.ncore.rays import LidarWriter
from recorder.archives.ncore.sequence import SequenceWriter
from recorder.archives.sensor_files import lidar_optics, lidar_returns, radar_geometry
from recorder.contract.errors import FormatError
from recorder.formats.zarr2 import EncodedArray
from recorder.processing.camera_pictures import Pictures
from recorder.processing.frames import (
    Exposures,
    FrameGate,
    SweepTimes,
    kind_of,
    mean_period_ns,
    sweep_times,
)
from recorder.processing.labels import LabelFile
from recorder.processing.radar import Detections, RadarProcessor, rcs_db
from recorder.processing.radar_frames import RadarFrames, speed_facts
from recorder.processing.read_ahead import ReadAhead
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

    def pack(self, sequence: SequenceWriter) -> FrameWriter:
        """Write all frames; returns the component's writer."""
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

    def pack(self, sequence: SequenceWriter) -> FrameWriter:
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
class _EncodedSweep:
    """A compressed sweep; see `recorder.processing.lidar.Rays`."""

    direction: EncodedArray
    distance_m: EncodedArray
    intensity: EncodedArray
    data: dict[str, EncodedArray] | None
    second_error_m: float
    beam_of_ray: npt.NDArray[np.intp]


@dataclass
class Lidar(Sensor):
    """Ouster sweeps as rays, with both returns."""

    def __post_init__(self) -> None:
        self.optics, _, _ = lidar_optics(self.stream)
        self._period_ns = mean_period_ns(self.stream, self.optics.frequency_hz)
        self._returns = lidar_returns(self.stream)
        self._sweep: SweepTimes | None = None
        self._second_error_m = 0.0

    def start_ns(self, index: int, end_ns: int) -> int:
        t_col = None
        if "t_col" in self.stream.meta:
            t_col = self.stream.sample(index, ["t_col"])["t_col"]
        self._sweep = sweep_times(t_col, self.optics.columns, end_ns, self._period_ns)
        if not self._sweep.measured:
            self.note("sweeps without column times of the device: spread evenly over the sweep")
        return self._sweep.start_ns

    def pack(self, sequence: SequenceWriter) -> FrameWriter:
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
        ambient = "nir" in self.stream.meta and not self._no_ambient()
        with ReadAhead(lambda index: self._rays(index, ambient), len(self.stream)) as sweeps:
            for index, start_ns, end_ns in self.samples():
                with self.job.at(self.name, index):
                    assert self._sweep is not None
                    sweep = sweeps.take(index)
                    more = sweep.beam_of_ray
                    self._second_error_m = max(self._second_error_m, sweep.second_error_m)
                    times = np.tile(np.clip(self._sweep.columns_ns, start_ns, end_ns), beams)
                    element: Any = elements
                    if len(more):
                        times = np.concatenate([times, times[more]])
                        if place is not None:
                            element = np.concatenate([place, place[more]])
                    writer.frame(
                        start_ns,
                        end_ns,
                        direction=sweep.direction,
                        t_ns=times,
                        distance_m=sweep.distance_m,
                        intensity=sweep.intensity,
                        model_element=element,
                        data=sweep.data,
                        metadata=self.frame_metadata(index),
                    )
        if len(self._returns) > 1:
            writer.metadata["second_return_error_m"] = round(self._second_error_m, 6)
        if len(self._returns) > 1 and not self._own_rays:
            self.note(
                "second returns share the direction of the first: up to "
                f"{self._second_error_m * 1e3:.1f} mm beside their true place"
            )
        return writer

    def _rays(self, index: int, ambient: bool) -> _EncodedSweep:
        """A sweep in its stored form; threads make sweeps ahead of the thread that stores them."""
        ranges = [lidar_range_mm(self.stream, index, number) for number, _ in self._returns]
        names = [rfl for _, rfl in self._returns if rfl in self.stream.meta]
        data = self.stream.sample(index, [*names, "nir"] if ambient else names)
        no_reflectivity = np.zeros((self.optics.beams, self.optics.columns), np.uint8)
        rays = self.optics.rays(
            ranges,
            [data.get(rfl, no_reflectivity) for _, rfl in self._returns],
            own_rays=self._own_rays,
        )
        return _EncodedSweep(
            EncodedArray.encode(rays.direction),
            LidarWriter.encode_return(rays.distance_m),
            LidarWriter.encode_return(rays.intensity),
            {"near_ir": EncodedArray.encode(data["nir"].reshape(-1))} if ambient else None,
            rays.second_error_m,
            rays.beam_of_ray,
        )

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
class Radar(Sensor):
    """Detections computed from the raw samples."""

    def __post_init__(self) -> None:
        self.geometry = radar_geometry(self.stream, self.job.calibration)
        options = self.job.options
        self._processor = RadarProcessor(
            self.geometry, options["radar_threshold_db"], options["radar_limit"]
        )
        if self.geometry.tx_m is None:
            self.note("radar.json has no antennas: detections have no direction but straight ahead")
        self._frames = RadarFrames(
            self._processor,
            lambda index: self.stream.sample(index, ["iq"])["iq"],
            self.stream.t_ns,
        )

    def start_ns(self, _index: int, end_ns: int) -> int:
        return end_ns - round(self.geometry.frame_time * 1e9)

    def pack(self, sequence: SequenceWriter) -> FrameWriter:
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
                    **speed_facts(self._processor),
                },
            },
        )
        incomplete, period = 0, 2 * self.geometry.max_velocity
        with ReadAhead(self._found, len(self.stream)) as frames:
            for index, start_ns, end_ns in self.samples():
                with self.job.at(self.name, index):
                    valid, found = frames.take(index)
                    metadata = self.frame_metadata(index)
                    if not valid:
                        incomplete += 1
                        metadata["incomplete"] = True
                    writer.frame(
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
                        metadata=metadata,
                    )
        if incomplete:
            self.note(f"{incomplete} frames lack packets; they are packed, and say so")
        for sentence in self._frames.remarks():
            self.note(sentence)
        return writer

    def _found(self, index: int) -> tuple[bool, Detections]:
        """Whether a frame is complete, and its targets; called by threads."""
        valid = True
        if "valid" in self.stream.meta:
            valid = bool(self.stream.sample(index, ["valid"])["valid"])
        return valid, self._frames.resolved(index)


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
