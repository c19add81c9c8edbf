"""Packing of lidars and radars as NCore components; workers encode their frames.

A worker gets a plain description of its work: names, options, and the sequence's interval.
The process that packs takes each frame's start from the encoded frame.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.ncore.format.cameras import IntrinsicsWriter
from recorder.archives.ncore.format.component import Interval
from recorder.archives.ncore.format.frames import FrameWriter
from recorder.archives.ncore.format.rays import EncodedRays, LidarWriter, RadarWriter, RayEncoder
from recorder.archives.ncore.format.sequence import SequenceWriter
from recorder.archives.ncore.mapping.models import lidar_model
from recorder.archives.ncore.mapping.sensors import Sensor
from recorder.archives.ncore.mapping.sweep_values import find_values
from recorder.archives.sample_workers import LIDAR_GROUP, RADAR_GROUP, WorkerContext
from recorder.archives.shared_options import radar_frames, radar_processor
from recorder.perception.calibration import Calibration
from recorder.perception.frames import SweepTimes, Times
from recorder.perception.radar.frames import speed_facts, step_remarks
from recorder.perception.radar.radar import rcs_db
from recorder.perception.sensor_files import SweepClock, lidar_optics, lidar_returns, radar_geometry
from recorder.session.reader import lidar_range_mm


@dataclass(frozen=True)
class _Sweep:
    """An encoded sweep; see `recorder.perception.lidar.lidar.Rays`.

    Attributes:
        times: times of the sweep's columns.
    """

    encoded: EncodedRays
    times: SweepTimes
    second_error_m: float
    beam_of_ray: npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Frame:
    """An encoded frame of a radar.

    Attributes:
        valid: whether the frame is complete.
        step: sample before which the frame is misaligned; None if it is aligned.
    """

    encoded: EncodedRays
    valid: bool
    step: int | None


class _SweepEncoder:
    """Encoder of a lidar's sweeps, in a worker.

    Args:
        name: name of the lidar.
        interval: the sequence's interval.
        own_rays: whether second returns have rays of their own.
        worker: the worker's context.
    """

    def __init__(
        self, name: str, interval: Interval, own_rays: bool, worker: WorkerContext
    ) -> None:
        self._stream = stream = worker.session.streams[name]
        self._optics, _, _ = lidar_optics(stream)
        self._clock, self._own_rays = SweepClock(stream, self._optics), own_rays
        self._returns = lidar_returns(stream)
        self._values = find_values(stream)
        self._rays = RayEncoder(LidarWriter, name, interval)

    def __call__(self, indices: Sequence[int]) -> list[_Sweep]:
        return [self._encode(index) for index in indices]

    def _encode(self, index: int) -> _Sweep:
        stream, optics = self._stream, self._optics
        values = self._values
        ranges = [lidar_range_mm(stream, index, number) for number, _ in self._returns]
        names = [rfl for _, rfl in self._returns if rfl in stream.meta]
        data = stream.sample(index, [*names, *values.channels])
        no_reflectivity = np.zeros((optics.beams, optics.columns), np.uint8)
        rays = optics.rays(
            ranges,
            [data.get(rfl, no_reflectivity) for _, rfl in self._returns],
            own_rays=self._own_rays,
        )
        end_ns = int(stream.times(index, index + 1)[0])
        times = self._clock.times(index)
        start_ns = times.start_ns
        encoded = self._rays.encode(
            start_ns,
            end_ns,
            direction=rays.direction,
            t_ns=_ray_times(times, rays.beam_of_ray, optics.beams, start_ns, end_ns),
            distance_m=rays.distance_m,
            intensity=rays.intensity,
            returns=values.per_return(data, rays),
            data={name: data[channel].reshape(-1) for name, channel in values.per_pixel.items()},
        )
        return _Sweep(encoded.without_values(), times, rays.second_error_m, rays.beam_of_ray)


def _ray_times(
    sweep: SweepTimes, more: npt.NDArray[np.intp], beams: int, start_ns: int, end_ns: int
) -> Times:
    """Return the times of a sweep's rays, and of further rays that repeat some, in the frame."""
    times = np.tile(np.clip(sweep.columns_ns, start_ns, end_ns), beams)
    return np.concatenate([times, times[more]]) if len(more) else times


class _RadarEncoder:
    """Encoder of a radar's frames, in a worker.

    Args:
        name: name of the radar.
        interval: the sequence's interval.
        calibration: the session's calibration.
        options: `recorder.archives.shared_options.RADAR_OPTIONS`, with values.
        worker: the worker's context.
    """

    def __init__(
        self,
        name: str,
        interval: Interval,
        calibration: Calibration,
        options: Mapping[str, Any],
        worker: WorkerContext,
    ) -> None:
        self._stream = stream = worker.session.streams[name]
        self._geometry = radar_geometry(stream, calibration)
        self._frames = radar_frames(stream, self._geometry, options, worker)
        self._rcs_reference_db = options["radar_rcs_db"]
        self._rays = RayEncoder(RadarWriter, name, interval)

    def __call__(self, indices: Sequence[int]) -> list[_Frame]:
        self._frames.find(indices)
        return [self._encode(index) for index in indices]

    def _encode(self, index: int) -> _Frame:
        valid = True
        if "valid" in self._stream.meta:
            valid = bool(self._stream.sample(index, ["valid"])["valid"])
        found, period = self._frames.resolved(index), 2 * self._geometry.max_velocity
        end_ns = int(self._stream.times(index, index + 1)[0])
        start_ns = end_ns - round(self._geometry.frame_time * 1e9)
        encoded = self._rays.encode(
            start_ns,
            end_ns,
            direction=found.direction,
            t_ns=np.full(len(found), (start_ns + end_ns) // 2, np.int64),
            distance_m=found.range_m[None],
            returns={
                "radial_velocity_m_s": found.velocity_m_s[None],
                "power_db": found.power_db[None],
                "snr_db": found.snr_db[None],
                "rcs_dbsm": rcs_db(found, self._rcs_reference_db)[None],
                "velocity_margin_db": found.margin_db[None],
                "velocity_method": found.method.astype(np.float32)[None],
                "velocity_period_m_s": np.full((1, len(found)), period, np.float32),
            },
        )
        return _Frame(encoded.without_values(), valid, self._frames.step(index))


@dataclass
class Lidar(Sensor):
    """Lidar whose Ouster sweeps are packed as rays, with both returns."""

    def __post_init__(self) -> None:
        self.optics, _, _ = lidar_optics(self.stream)
        self._clock = SweepClock(self.stream, self.optics)
        self._returns = lidar_returns(self.stream)

    def start_ns(self, index: int, _end_ns: int) -> int:
        return self._note_estimated(self._clock.times(index)).start_ns

    def place_model(self, intrinsics: IntrinsicsWriter, _: Calibration) -> None:
        frequency = self.optics.frequency_hz or 1e9 / self._clock.period_ns
        if (model := lidar_model(self.optics, frequency)) is None:
            self.note("its beams fit no spinning model: no lidar intrinsics, no model elements")
        else:
            intrinsics.lidar(self.name, model)

    def _note_estimated(self, times: SweepTimes) -> SweepTimes:
        if not times.measured:
            self.note("sweeps without column times of the device: spread evenly over the sweep")
        return times

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        writer = sequence.lidar(self.name, metadata=self.metadata() | {"sensor": self._facts()})
        beams, columns = self.optics.beams, self.optics.columns
        place = elements = None
        if (spinning := self.optics.model()) is not None:
            rows = np.repeat(spinning.row_of_beam, columns)
            place = np.stack([rows, np.tile(np.arange(columns), beams)], 1).astype(np.uint16)
            elements = writer.constant(place)
        second_error_m = 0.0
        factory = partial(_SweepEncoder, self.name, sequence.interval, self._own_rays)
        everything = range(len(self.stream))
        encoded = self.context.encode_samples(self.name, factory, everything, group=LIDAR_GROUP)
        with contextlib.closing(encoded) as sweeps:
            sweep: _Sweep

            # `samples` calls this once for each sweep, in order, before it yields the sweep.
            def take(_index: int, _end_ns: int) -> int:
                nonlocal sweep
                sweep = next(sweeps)
                return self._note_estimated(sweep.times).start_ns

            for index, start_ns, end_ns in self.samples(take):
                with self.context.locate_errors(self.name, index):
                    more = sweep.beam_of_ray
                    second_error_m = max(second_error_m, sweep.second_error_m)
                    # Only second returns with rays of their own change the shared elements.
                    element: Any = elements
                    if len(more) and place is not None:
                        element = np.concatenate([place, place[more]])
                    writer.put(
                        sweep.encoded,
                        start_ns,
                        end_ns,
                        t_ns=partial(_ray_times, sweep.times, more, beams, start_ns, end_ns),
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

    @property
    def _own_rays(self) -> bool:
        return bool(self.context.options["second_returns"] == "own")

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
    """Radar whose detections are computed from the raw samples."""

    def __post_init__(self) -> None:
        self.geometry = radar_geometry(self.stream, self.context.calibration)
        if self.geometry.tx_m is None:
            self.note("radar.json has no antennas: detections have no direction but straight ahead")

    def start_ns(self, _index: int, end_ns: int) -> int:
        return end_ns - round(self.geometry.frame_time * 1e9)

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        options = self.context.options
        writer = sequence.radar(
            self.name,
            metadata=self.metadata()
            | {
                "radar": self.geometry.document,
                "processing": {
                    "method": "windowed range and Doppler transforms, log CFAR, "
                    "matched phases over the virtual array",
                    "threshold_db": options["radar_threshold_db"],
                    "limit": options["radar_limit"],
                    "rcs_reference_db": options["radar_rcs_db"],
                    **speed_facts(radar_processor(self.geometry, options)),
                },
            },
        )
        incomplete, steps = 0, Counter[int]()
        described = self.name, sequence.interval, self.context.calibration, dict(options)
        factory = partial(_RadarEncoder, *described)
        everything = range(len(self.stream))
        encoded = self.context.encode_samples(self.name, factory, everything, group=RADAR_GROUP)
        with contextlib.closing(encoded) as frames:
            frame: _Frame

            def take(index: int, end_ns: int) -> int:
                nonlocal frame
                frame = next(frames)
                return self.start_ns(index, end_ns)

            for index, start_ns, end_ns in self.samples(take):
                with self.context.locate_errors(self.name, index):
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
