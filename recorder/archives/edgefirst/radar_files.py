"""A radar's files of samples: ``.radar.pcd`` and ``.radar.png``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.archives.context import Job
from recorder.archives.edgefirst.container import Payload
from recorder.archives.edgefirst.pcd import RADAR, encode_pcd
from recorder.archives.edgefirst.png import cube_picture, stored_png
from recorder.archives.edgefirst.sensors import SampleFiles, SensorFiles
from recorder.archives.sensor_files import radar_frames, radar_geometry, radar_processor
from recorder.processing.calibration import Calibration
from recorder.processing.geometry import Floats
from recorder.processing.radar import Detections, rcs_db
from recorder.processing.radar_frames import speed_facts, step_remarks
from recorder.processing.radar_spectra import Complex64
from recorder.processing.sample_workers import RADAR_GROUP, WorkerContext
from recorder.session.stream import Stream

_MOST = 32_767.0


@dataclass(frozen=True)
class _Oddities:
    """What is odd of a frame.

    Attributes:
        cut: number of cube values that were clipped.
        incomplete: whether it lacks packets.
        step: sample before which it is misaligned; None where it is not.
    """

    cut: int
    incomplete: bool
    step: int | None = None


class RadarFiles(SensorFiles):
    """``.radar.pcd`` and ``.radar.png`` of a radar's frames.

    Attributes:
        cut: number of cube values that were clipped to int16.
        incomplete: number of frames that lack packets.
    """

    GROUP = RADAR_GROUP

    def __init__(self, job: Job, stream: Stream) -> None:
        super().__init__(job, stream)
        geometry, options = radar_geometry(stream, job.calibration), job.options
        if geometry.tx_m is None:
            job.notes.add("radar.json has no antennas: points lie straight ahead", stream.name)
        self.cut = self.incomplete = 0
        self._steps: Counter[int] = Counter()
        chirps, tx, rx, _ = geometry.shape
        cube = {
            "shape": [tx, rx, geometry.ranges, chirps],
            "gain": options["radar_gain"],
            "range_resolution_m": geometry.range_resolution,
            "doppler_resolution_m_s": geometry.doppler_resolution,
            "doppler_zero": chirps // 2,
        }
        self._description = {
            "name": self.name,
            **cube,
            "layout": "sequence (transmitter), rx, range, doppler",
            "points": speed_facts(radar_processor(geometry, options)),
        }
        described = stream.name, self.pose, job.calibration, dict(options), json.dumps(cube)
        self.encoder = partial(RadarEncoder, *described)

    def describe(self) -> dict[str, Any]:
        """Return the radar's entry in the dataset's metadata."""
        return self._description

    def count(self, made: SampleFiles) -> None:
        oddities: _Oddities = made.oddities
        self.cut += oddities.cut
        self.incomplete += oddities.incomplete
        if oddities.step is not None:
            self._steps[oddities.step] += 1

    def remarks(self) -> list[str]:
        """Return the radar's irregularities, one sentence each."""
        lines = []
        if self.cut:
            lines.append(f"{self.cut} values of its cubes were cut: edgefirst.radar_gain is high")
        if self.incomplete:
            lines.append(f"{self.incomplete} frames lack packets; they are packed")
        return lines + step_remarks(self._steps)


class RadarEncoder:
    """Makes the files of frames in a worker; several together cost less than one by one.

    Args:
        name: name of the radar.
        pose: ``T_sensor_rig``, f8 [4, 4], or None.
        calibration: the session's calibration.
        options: the packer's options.
        text: description of the cube, which is stored in ``.radar.png``.
        worker: the worker's context.
    """

    def __init__(
        self,
        name: str,
        pose: Floats | None,
        calibration: Calibration,
        options: Mapping[str, Any],
        text: str,
        worker: WorkerContext,
    ) -> None:
        self._stream = stream = worker.session.streams[name]
        self._pose, self._options, self._text = pose, options, {"radar cube": text}
        geometry = radar_geometry(stream, calibration)
        self._period_m_s = 2 * geometry.max_velocity
        self._frames = radar_frames(stream, geometry, options, worker)
        self._channels = ["iq", "valid"] if "valid" in stream.meta else ["iq"]

    def __call__(self, indices: Sequence[int]) -> list[SampleFiles]:
        read = [self._read(index) for index in indices]
        self._frames.find(indices, [spectra for spectra, _, _ in read])
        return [
            self._encode(index, payload, oddities)
            for index, (_, payload, oddities) in zip(indices, read, strict=True)
        ]

    def _read(self, index: int) -> tuple[Complex64, Payload, _Oddities]:
        """Read a frame; returns its spectra, its ``.radar.png``, and its irregularities."""
        data = self._stream.sample(index, self._channels)
        spectra = self._frames.spectra(index, data["iq"])
        cube, cut = quantized(spectra, self._options["radar_gain"])
        payload = stored_png(cube_picture(cube), text=self._text)
        return spectra, payload, _Oddities(int(cut), "valid" in data and not data["valid"])

    def _encode(self, index: int, cube: Payload, oddities: _Oddities) -> SampleFiles:
        found = self._frames.resolved(index)
        points = radar_points(found, self._options["radar_rcs_db"], self._period_m_s)
        files = {"radar.pcd": Payload(encode_pcd(points, self._pose)), "radar.png": cube}
        return SampleFiles(files, oddities=replace(oddities, step=self._frames.step(index)))


def radar_points(found: Detections, rcs_reference_db: float, period_m_s: float) -> npt.NDArray[Any]:
    """Detections as points.

    Args:
        found: the detections.
        rcs_reference_db: power of a target of 1 m2 at 1 m, dB above one step of the converter
            squared.
        period_m_s: twice the largest unambiguous speed.
    """
    points = np.empty(len(found), RADAR)
    for axis, name in enumerate(("x", "y", "z")):
        points[name] = found.direction[:, axis] * found.range_m
    points["speed"] = found.velocity_m_s
    points["power"] = found.power_db
    points["noise"] = found.power_db - found.snr_db
    points["rcs"] = rcs_db(found, rcs_reference_db)
    points["speed_margin"] = found.margin_db
    points["speed_method"] = found.method
    points["speed_period"] = period_m_s
    return points


def quantized(spectra: npt.NDArray[np.complex64], gain: float) -> tuple[npt.NDArray[np.int16], int]:
    """Convert a frame's spectra to int16; also returns how many values were clipped.

    Args:
        spectra: complex64 [tx, rx, doppler, range]; Doppler bins begin at 0 and wrap round.
        gain: units of the result per step of the converter.

    Returns:
        int16 [tx, rx, range, doppler, 2], real and imaginary part, rounded; Doppler bins rise, the
        bin of 0 m/s has index doppler // 2.
    """
    tx, rx, chirps, ranges = spectra.shape
    values = np.ascontiguousarray(spectra).view(np.float32).reshape(-1, 2 * ranges)
    # OpenCV multiplies, rounds and clips in one pass; a clipped value lies at an end of int16.
    rounded: npt.NDArray[Any] = cv2.addWeighted(values, gain, values, 0.0, 0.0, None, cv2.CV_16S)
    cut = 0
    if cv2.norm(rounded, cv2.NORM_INF) >= _MOST:
        exact = np.rint(values * np.float32(gain))
        cut = int(np.count_nonzero(np.abs(exact) > _MOST))
        rounded = np.clip(exact, -_MOST, _MOST).astype(np.int16)
    pairs = rounded.view(np.int32).reshape(tx, rx, chirps, ranges)  # moves both parts as one value
    low = chirps // 2  # index of Doppler 0 in the result
    rising = np.concatenate([pairs[:, :, chirps - low :], pairs[:, :, : chirps - low]], axis=2)
    grid = np.empty((tx, ranges, rx * chirps), np.int32)  # layout of `cube_picture`
    for of_sequence, cells in zip(rising.reshape(tx, rx * chirps, ranges), grid, strict=True):
        cv2.transpose(of_sequence, cells)
    return grid.view(np.int16).reshape(tx, ranges, rx, chirps, 2).transpose(0, 2, 1, 3, 4), cut
