"""What the sensors of a session give to a sample: files, made once each and by several threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.archives.base import Job
from recorder.archives.edgefirst.container import Payload
from recorder.archives.edgefirst.pcd import LIDAR, RADAR, encode_pcd
from recorder.archives.edgefirst.png import cube_picture, encode_png
from recorder.archives.edgefirst.projection import in_steps
from recorder.archives.edgefirst.radar_cube import cropped, quantized
from recorder.contract.errors import FormatError
from recorder.processing.geometry import apply
from recorder.processing.lidar import OusterOptics
from recorder.processing.radar import Detections, RadarGeometry, RadarProcessor
from recorder.session.reader import lidar_range_mm
from recorder.session.stream import Stream

SENSOR, RIG = "sensor", "rig"
LIDAR_PICTURES = ("depth", "reflectivity", "projected")
_JPEG_QUALITY = 90


@dataclass
class Made:
    """Files of one sample of a sensor.

    Attributes:
        files: by ending.
        points: f4 [n, 3] in the rig, of a lidar whose points are to be projected.
    """

    files: dict[str, Payload]
    points: npt.NDArray[Any] | None = None


class LidarFiles:
    """``.lidar.pcd`` and what else was asked for, of a lidar's sweeps.

    Safe for several threads.

    Args:
        job: with the options ``points_frame``, ``returns`` and ``lidar_images``.
        stream: the lidar's.
        project: whether anybody projects points.

    Attributes:
        projects: whether points are given for that.
    """

    def __init__(self, job: Job, stream: Stream, *, project: bool) -> None:
        self.name, self.stream = stream.name, stream
        self._job = job
        text, where = read_text(stream, "lidar.json")
        self._optics = OusterOptics.of_metadata(text, where)
        shape = (self._optics.beams, self._optics.columns)
        found = tuple(stream.meta["rng"]["shape"])
        if found != shape:
            raise FormatError(f"{where}: has {shape} beams and columns, the channel rng {found}")
        self._beam, self._start = _lines(self._optics)
        self._shifts = _pixel_shifts(text, shape[0])
        self.pose = job.calibration.of(stream.name).pose
        self.projects = project and self.pose is not None
        self._in_rig = job.options["points_frame"] == RIG
        if self._in_rig and self.pose is None:
            job.notes.say("not in the calibration: its points stay in its own frame", stream.name)
        self._returns = [
            (number, rfl)
            for number, rng, rfl in ((1, "rng", "rfl"), (2, "rng2", "rfl2"))
            if rng in stream.meta and number <= job.options["returns"]
        ]
        if "rng2" in stream.meta and len(self._returns) == 1:
            job.notes.say("second returns left out; edgefirst.returns=2 packs them", stream.name)
        self._pictures = job.options["lidar_images"]

    def make(self, index: int) -> Made:
        """The files of a sweep."""
        with self._job.at(self.name, index):
            sweep = [self._read(index, number, rfl) for number, rfl in self._returns]
            clouds = [self._points(*one) for one in sweep]
            points = clouds[0] if len(clouds) == 1 else np.concatenate(clouds)
            in_rig = None
            if self.pose is not None and (self._in_rig or self.projects):
                in_rig = apply(self.pose, _xyz(points))
            if self._in_rig and in_rig is not None:
                points["x"], points["y"], points["z"] = in_rig.T
            viewpoint = None if self._in_rig else self.pose
            files = {"lidar.pcd": Payload(encode_pcd(points, viewpoint))}
            ranges, reflectivity = sweep[0]
            if "depth" in self._pictures:
                depth = in_steps(self._destaggered(ranges) * 1e-3)
                files["lidar.png"] = Payload(encode_png(depth, level=1))
            if "reflectivity" in self._pictures:
                picture = self._destaggered(reflectivity)
                done, jpeg = cv2.imencode(
                    ".jpeg", picture, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY]
                )
                assert done
                files["lidar.jpeg"] = Payload(jpeg.tobytes())
            return Made(files, in_rig if self.projects else None)

    def _read(
        self, index: int, number: int, rfl: str
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
        ranges = lidar_range_mm(self.stream, index, number)
        if rfl in self.stream.meta:
            return ranges, self.stream.sample(index, [rfl])[rfl]
        return ranges, np.zeros(ranges.shape, np.uint8)

    def _points(
        self, ranges: npt.NDArray[np.uint32], reflectivity: npt.NDArray[np.uint8]
    ) -> npt.NDArray[Any]:
        """Where something came back, row by row."""
        metres = ranges.reshape(-1).astype(np.float32)
        metres *= np.float32(1e-3)
        points = np.empty((len(metres), 4), np.float32)
        along = np.empty_like(metres)
        for axis, (beam, start) in enumerate(zip(self._beam, self._start, strict=True)):
            np.multiply(beam, metres, out=along)
            along += start
            points[:, axis] = along
        points[:, 3] = reflectivity.reshape(-1)
        # A point's 16 bytes are moved as one number: much quicker than as a structure.
        numbers = points.view(np.complex128)[:, 0]
        return numbers[ranges.reshape(-1) > 0].view(LIDAR)

    def _destaggered(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Columns above each other look the same way."""
        columns = np.arange(values.shape[1])
        places = (columns[None, :] - self._shifts[:, None]) % values.shape[1]
        return np.take_along_axis(values, places, axis=1)


class RadarFiles:
    """``.radar.pcd`` and ``.radar.png`` of a radar's frames.  Safe for several threads.

    Attributes:
        cut: values of cubes that did not fit into int16.
        incomplete: frames that lack packets.
    """

    def __init__(self, job: Job, stream: Stream) -> None:
        self.name, self.stream = stream.name, stream
        self._job, self._lock = job, threading.Lock()
        text, where = read_text(stream, "radar.json")
        raw_shape = tuple(stream.meta["iq"]["shape"])
        self.geometry = RadarGeometry.of_metadata(text, where, raw_shape)
        if self.geometry.tx_m is None:
            job.notes.say("radar.json has no antennas: points lie straight ahead", stream.name)
        self.pose = job.calibration.of(stream.name).pose
        self._in_rig = job.options["points_frame"] == RIG
        if self._in_rig and self.pose is None:
            job.notes.say("not in the calibration: its points stay in its own frame", stream.name)
        self._channels = ["iq", "valid"] if "valid" in stream.meta else ["iq"]
        self.cut = self.incomplete = 0
        chirps, tx, rx, _ = self.geometry.shape
        options = job.options
        self._processor = RadarProcessor(
            self.geometry, options["radar_threshold_db"], options["radar_limit"]
        )
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
        """What the dataset's metadata say of the cubes."""
        told: dict[str, Any] = json.loads(self._text["radar cube"])
        return {"name": self.name, **told, "layout": "sequence (transmitter), rx, range, doppler"}

    def make(self, index: int) -> Made:
        """The files of a frame."""
        options = self._job.options
        with self._job.at(self.name, index):
            data = self.stream.sample(index, self._channels)
            spectra = self._processor.spectra(data["iq"])
            found = self._processor.find(spectra)
            cube, cut = quantized(spectra, options["radar_gain"])
            picture = cube_picture(cropped(cube, self.ranges, self.doppler))
            png = encode_png(picture, level=options["png_level"], text=self._text)
            with self._lock:
                self.cut += cut
                self.incomplete += "valid" in data and not data["valid"]
            points = radar_points(found, options["radar_rcs_db"])
            viewpoint = self.pose
            if self._in_rig and self.pose is not None:
                points["x"], points["y"], points["z"] = apply(self.pose, _xyz(points)).T
                viewpoint = None
            pcd = Payload(encode_pcd(points, viewpoint))
            return Made({"radar.pcd": pcd, "radar.png": Payload(png)})

    def told(self) -> list[str]:
        """What was odd, one sentence each."""
        lines = []
        if self.cut:
            lines.append(f"{self.cut} values of its cubes were cut: edgefirst.radar_gain is high")
        if self.incomplete:
            lines.append(f"{self.incomplete} frames lack packets; they are packed")
        return lines


def radar_points(found: Detections, rcs_db: float) -> npt.NDArray[Any]:
    """Detections as points.

    Args:
        found: the detections.
        rcs_db: power of a target of 1 m2 in 1 m, dB above one step of the converter squared.
    """
    points = np.empty(len(found), RADAR)
    for axis, name in enumerate(("x", "y", "z")):
        points[name] = found.direction[:, axis] * found.range_m
    points["speed"] = found.velocity_m_s
    points["power"] = found.power_db
    points["noise"] = found.power_db - found.snr_db
    points["rcs"] = found.power_db + 40 * np.log10(np.maximum(found.range_m, 0.01)) - rcs_db
    return points


def read_text(stream: Stream, name: str) -> tuple[str, str]:
    """Text and path of an intrinsics file; FormatError where there is none."""
    path = stream.path / name
    try:
        return path.read_text("utf-8"), str(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None


def _xyz(points: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return np.stack([points["x"], points["y"], points["z"]], axis=1)


def _lines(optics: OusterOptics) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """A pixel's points lie on a line: what it goes along by in a metre of range, and its start.

    Returns:
        twice f4 [3, beams * columns], m.
    """
    ends = []
    for range_mm in (1_000, 101_000):
        ranges = np.full((optics.beams, optics.columns), range_mm, np.uint32)
        rays = optics.rays([ranges], [np.zeros(ranges.shape, np.uint8)])
        ends.append(rays.direction.T.astype(np.float64) * rays.distance_m[0])
    along = (ends[1] - ends[0]) / 100.0
    return along.astype(np.float32), (ends[0] - along).astype(np.float32)


def _pixel_shifts(text: str, beams: int) -> npt.NDArray[np.intp]:
    """By how many columns each row is turned so that columns stand above each other."""
    document: Mapping[str, Any] = json.loads(text)
    layout = document.get("lidar_data_format") or document.get("data_format") or {}
    shifts = layout.get("pixel_shift_by_row") or [0] * beams
    return np.resize(np.array(shifts, np.intp), beams)
