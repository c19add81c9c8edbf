"""Lidars and radars of a session as NCore components; their frames are encoded by workers."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from recorder.archives.base import Job
from recorder.archives.ncore.component import Place
from recorder.archives.ncore.frames import FrameWriter
from recorder.archives.ncore.packer_models import lidar_model
from recorder.archives.ncore.packer_sensors import Sensor
from recorder.archives.ncore.rays import EncodedRays, LidarWriter, RadarWriter, RayWriter
from recorder.archives.ncore.sequence import SequenceWriter
from recorder.archives.ncore.times import Interval
from recorder.archives.sensor_files import lidar_optics, lidar_returns, radar_frames, radar_geometry
from recorder.processing.calibration import Calibration
from recorder.processing.frames import (
    SweepTimes,
    Times,
    mean_period_ns,
    sweep_times,
)
from recorder.processing.radar import rcs_db
from recorder.processing.radar_frames import speed_facts, step_remarks
from recorder.processing.sample_workers import LIDAR_GROUP, RADAR_GROUP, Shelf
from recorder.session.reader import lidar_range_mm


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
