"""A radar's files of samples: ``.radar.pcd`` and ``.radar.png``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.base import Job
from recorder.archives.edgefirst.container import Payload
from recorder.archives.edgefirst.pcd import RADAR, encode_pcd
from recorder.archives.edgefirst.png import cube_picture, encode_png, stored_png
from recorder.archives.edgefirst.radar_cube import cropped, quantized
from recorder.archives.edgefirst.sensors import SampleFiles, SensorFiles, xyz
from recorder.archives.sensor_files import radar_frames, radar_geometry
from recorder.processing.geometry import apply
from recorder.processing.radar import Detections, rcs_db
from recorder.processing.radar_frames import speed_facts, step_remarks
from recorder.processing.radar_spectra import Complex64
from recorder.processing.sample_workers import RADAR_GROUP
from recorder.session.stream import Stream


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
        options = job.options
        self._frames = radar_frames(job, stream, self.geometry)
        self._steps: Counter[int] = Counter()
        self.ranges = min(options["radar_ranges"] or self.geometry.ranges, self.geometry.ranges)
        self.doppler = min(options["radar_doppler"] or chirps, chirps)
        self._text = {
            "radar cube": json.dumps(
                {
                    "shape": [tx, rx, self.ranges, self.doppler],
                    "gain": options["radar_gain"],
                    "range_resolution_m": self.geometry.range_resolution,
                    "doppler_resolution_m_s": self.geometry.doppler_resolution,
                    "doppler_zero": self.doppler // 2,
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
        options = self._job.options
        data = self.stream.sample(index, self._channels)
        spectra = self._frames.spectra(index, data["iq"])
        cube, cut = quantized(spectra, options["radar_gain"])
        picture = cube_picture(cropped(cube, self.ranges, self.doppler))
        if level := options["png_level"]:
            payload = Payload(encode_png(picture, level=level, text=self._text))
        else:
            payload = stored_png(picture, text=self._text)
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
        if self._in_rig and self.pose is not None:
            points["x"], points["y"], points["z"] = apply(self.pose, xyz(points)).T
            return Payload(encode_pcd(points))
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
