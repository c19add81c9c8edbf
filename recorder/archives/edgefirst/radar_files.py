"""A radar's files of samples: ``.radar.pcd`` and ``.radar.png``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.archives.base import Job
from recorder.archives.edgefirst.container import Payload
from recorder.archives.edgefirst.pcd import RADAR, encode_pcd
from recorder.archives.edgefirst.png import cube_picture, stored_png
from recorder.archives.edgefirst.sensors import SampleFiles, SensorFiles
from recorder.archives.sensor_files import radar_frames, radar_geometry
from recorder.processing.radar import Detections, rcs_db
from recorder.processing.radar_frames import speed_facts, step_remarks
from recorder.processing.radar_spectra import Complex64
from recorder.processing.sample_workers import RADAR_GROUP
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
    """Makes ``.radar.pcd`` and ``.radar.png`` of a radar's frames.

    Attributes:
        cut: number of cube values that were clipped to int16.
        incomplete: number of frames that lack packets.
    """

    GROUP = RADAR_GROUP

    def __init__(self, job: Job, stream: Stream) -> None:
        super().__init__(job, stream)
        self.geometry = radar_geometry(stream, job.calibration)
        if self.geometry.tx_m is None:
            job.notes.add("radar.json has no antennas: points lie straight ahead", stream.name)
        self._channels = ["iq", "valid"] if "valid" in stream.meta else ["iq"]
        self.cut = self.incomplete = 0
        chirps, tx, rx, _ = self.geometry.shape
        self._frames = radar_frames(job, stream, self.geometry)
        self._steps: Counter[int] = Counter()
        self._text = {
            "radar cube": json.dumps(
                {
                    "shape": [tx, rx, self.geometry.ranges, chirps],
                    "gain": job.options["radar_gain"],
                    "range_resolution_m": self.geometry.range_resolution,
                    "doppler_resolution_m_s": self.geometry.doppler_resolution,
                    "doppler_zero": chirps // 2,
                }
            )
        }

    def describe(self) -> dict[str, Any]:
        """The radar's entry in the dataset's metadata."""
        values: dict[str, Any] = json.loads(self._text["radar cube"])
        return {
            "name": self.name,
            **values,
            "layout": "sequence (transmitter), rx, range, doppler",
            "points": speed_facts(self._frames.processor),
        }

    def make(self, indices: Sequence[int]) -> list[SampleFiles]:
        """The files of some frames; several together cost less than one by one."""
        spectra: list[Complex64] = []
        made: list[SampleFiles] = []
        for index in indices:
            with self._job.at(self.name, index):
                spectrum, files = self._read(index)
            spectra.append(spectrum)
            made.append(files)
        self._frames.find(indices, spectra)
        for index, one in zip(indices, made, strict=True):
            with self._job.at(self.name, index):
                found = self._frames.resolved(index)
            one.files = {"radar.pcd": self._points(found), **one.files}
            one.oddities = replace(one.oddities, step=self._frames.step(index))
        return made

    def _read(self, index: int) -> tuple[Complex64, SampleFiles]:
        """A frame's spectra, and its ``.radar.png``."""
        data = self.stream.sample(index, self._channels)
        spectra = self._frames.spectra(index, data["iq"])
        cube, cut = quantized(spectra, self._job.options["radar_gain"])
        payload = stored_png(cube_picture(cube), text=self._text)
        oddities = _Oddities(int(cut), "valid" in data and not data["valid"])
        return spectra, SampleFiles({"radar.png": payload}, oddities=oddities)

    def count(self, made: SampleFiles) -> None:
        oddities: _Oddities = made.oddities
        self.cut += oddities.cut
        self.incomplete += oddities.incomplete
        if oddities.step is not None:
            self._steps[oddities.step] += 1

    def _points(self, found: Detections) -> Payload:
        """A frame's ``.radar.pcd``."""
        period = 2 * self.geometry.max_velocity
        points = radar_points(found, self._job.options["radar_rcs_db"], period)
        return Payload(encode_pcd(points, self.pose))

    def remarks(self) -> list[str]:
        """Oddities of the radar, one sentence each."""
        lines = []
        if self.cut:
            lines.append(f"{self.cut} values of its cubes were cut: edgefirst.radar_gain is high")
        if self.incomplete:
            lines.append(f"{self.incomplete} frames lack packets; they are packed")
        return lines + step_remarks(self._steps)


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
