"""Files of lidar and radar samples, encoded by the session's workers: points, cubes, pictures."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import cv2
import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.edgefirst.cameras import quantize_distances
from recorder.archives.sample_workers import LIDAR_GROUP, RADAR_GROUP, EncoderFactory, WorkerContext
from recorder.archives.shared_options import radar_frames, radar_processor
from recorder.codecs.beams import BEAMS
from recorder.formats.pcd import pcd_header
from recorder.formats.png import compress_png, cube_picture
from recorder.formats.zip import zlib
from recorder.formats.zip.writer import Payload
from recorder.perception.calibration import Calibration
from recorder.perception.frames import cloud_channel, has_ouster_sweeps, mean_period_ns
from recorder.perception.geometry import Floats, apply, quaternion_of_rotation
from recorder.perception.lidar.beam_pictures import BeamPictures
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.lidar import pixel_shifts
from recorder.perception.lidar.points import convert_points, find_returns, point_times, stack_xyz
from recorder.perception.radar.frames import speed_facts, step_remarks
from recorder.perception.radar.radar import Detections, rcs_db
from recorder.perception.radar.spectra import Complex64
from recorder.perception.sensor_files import SweepClock, lidar_optics, lidar_returns, radar_geometry
from recorder.session.playback import recorded_spec
from recorder.session.reader import lidar_range_mm
from recorder.session.stream import Stream

LIDAR = np.dtype([(name, "<f4") for name in ("x", "y", "z", "intensity")])
"""x, y, z in m; reflectivity as recorded, 0 to 255."""
RADAR = np.dtype(
    [
        (name, "<f4")
        for name in (
            "x", "y", "z", "speed", "power", "noise", "rcs",
            "speed_margin", "speed_method", "speed_period",
        )
    ]
)  # fmt: skip
"""x, y, z in m; radial speed in m/s, positive for a growing range; power, noise and rcs in dB;
the speed's margin in dB, method (`SpeedMethod`) and period in m/s."""


def encode_pcd(points: npt.NDArray[Any], viewpoint: Floats | None = None) -> bytes:
    """Encode a binary, unorganized PCD.

    Args:
        points: structured array [n] of scalar fields, little endian, packed.
        viewpoint: f8 [4, 4], maps points to the vehicle's frame; None: the identity.

    Raises:
        FormatError: PCD has no type for a field.
    """
    pose = np.eye(4) if viewpoint is None else viewpoint
    place = _place(np.asarray(pose, np.float64).tobytes())
    header = pcd_header(points.dtype, len(points), place)
    return b"".join([header, np.ascontiguousarray(points).view(np.uint8).data])


@functools.lru_cache(maxsize=16)
def _place(pose: bytes) -> tuple[float, ...]:
    """Return the viewpoint of a pose (f8 [4, 4]); cached, as a sensor's files share one pose."""
    matrix = np.frombuffer(pose, np.float64).reshape(4, 4)
    x, y, z, w = quaternion_of_rotation(matrix[:3, :3]).tolist()
    return (*matrix[:3, 3].tolist(), w, x, y, z)


@dataclass
class SampleFiles:
    """Files of one sample of a sensor.

    Attributes:
        files: contents by file ending.
        points: f4 [n, 3] in the rig's frame at the time of each point, for a lidar whose points are
            projected.
        t_ns: int64 [n], times of the points.
        irregularities: the sample's irregularities, for `SensorFiles.count`.
    """

    files: dict[str, Payload]
    points: npt.NDArray[Any] | None = None
    t_ns: npt.NDArray[np.int64] | None = None
    irregularities: Any = None


class SensorFiles:
    """Files of a sensor's samples.

    Args:
        context: the session's context.
        stream: the sensor's stream.

    Attributes:
        name: name of the sensor.
        stream: the sensor's stream.
        pose: ``T_sensor_rig``, f8 [4, 4]; None where the calibration has none.
        encoder: makes the files in a worker, as `SampleFiles`.
    """

    GROUP: ClassVar[int] = LIDAR_GROUP
    """Number of samples that one worker encodes together."""
    encoder: EncoderFactory

    def __init__(self, context: PackingContext, stream: Stream) -> None:
        self.name, self.stream = stream.name, stream
        self._context = context
        self.pose = context.calibration.of(stream.name).pose

    def count(self, made: SampleFiles) -> None:
        """Count the irregularities of a sample."""

    def submit(self, indices: Sequence[int]) -> Callable[[], list[SampleFiles]]:
        """Start making files of samples of one group in a worker; return a function that waits."""
        return self._context.submit(self.name, self.encoder, indices, group=self.GROUP)


LIDAR_PICTURES = ("depth", "reflectivity", "projected")
_JPEG_QUALITY = 90


class LidarFiles(SensorFiles):
    """Files of a lidar's sweeps: ``.lidar.pcd`` and the requested pictures.

    Args:
        context: the session's context, with the options ``returns`` and ``lidar_images``.
        stream: the lidar's stream.
        project: whether depth pictures of a camera need points.

    Attributes:
        projects: whether `SampleFiles.points` are set for depth pictures.
        period_ns: time from sweep to sweep.
    """

    def __init__(self, context: PackingContext, stream: Stream, *, project: bool) -> None:
        super().__init__(context, stream)
        self.projects = project and self.pose is not None
        if not has_ouster_sweeps(stream):
            self._prepare_clouds()
            return
        optics, text, where = lidar_optics(stream)
        self.period_ns = mean_period_ns(stream, optics.frequency_hz)
        returns: int = context.options["returns"]
        if "rng2" in stream.meta and returns == 1:
            context.notes.add(
                "second returns left out; edgefirst.returns=2 packs them", stream.name
            )
        shifts = pixel_shifts(text, optics, where)
        self.encoder = partial(
            LidarEncoder, stream.name, self.pose, shifts, dict(context.options), self.projects
        )

    def _prepare_clouds(self) -> None:
        """Choose the encoder of a lidar that is no Ouster."""
        self.period_ns = mean_period_ns(self.stream)
        options = self._context.options
        images = [name for name in options["lidar_images"] if name != "projected"]
        if images and cloud_channel(self.stream):
            self._context.notes.add(
                f"its lidar records points: no pictures of {', '.join(images)}", self.name
            )
        if options["returns"] == 1 and "rng2" in self.stream.meta:
            self._context.notes.add(
                "second returns left out; edgefirst.returns=2 packs them", self.name
            )
        self.encoder = partial(CloudEncoder, self.name, self.pose, dict(options), self.projects)


def encode_lidar_pictures(
    depth_m: npt.NDArray[Any], reflectivity: npt.NDArray[np.uint8], options: Mapping[str, Any]
) -> dict[str, Payload]:
    """Encode the requested pictures of a sweep, by file ending.

    Args:
        depth_m: ranges [rows, columns], a column for each azimuth, 0 without a return.
        reflectivity: u1 [rows, columns].
        options: the options ``lidar_images`` and ``png_level``.
    """
    files = {}
    if "depth" in options["lidar_images"]:
        files["lidar.png"] = compress_png(quantize_distances(depth_m), options["png_level"])
    if "reflectivity" in options["lidar_images"]:
        quality = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY]
        done, jpeg = cv2.imencode(".jpeg", reflectivity, quality)
        assert done
        files["lidar.jpeg"] = Payload(jpeg.tobytes())
    return files


class CloudEncoder:
    """Encoder of the files of sweeps of any lidar but an Ouster, in a worker.

    The ``.lidar.pcd`` has the points with a return, with all their fields; the intensity is f4.

    Args:
        name: name of the lidar.
        pose: ``T_sensor_rig``, f8 [4, 4], or None.
        options: the options ``returns``, of a pixel, where points have their number,
            ``lidar_images`` and ``png_level``.
        projects: whether depth pictures need points in the rig's frame.
        worker: the worker's context.
    """

    def __init__(
        self,
        name: str,
        pose: Floats | None,
        options: Mapping[str, Any],
        projects: bool,
        worker: WorkerContext,
    ) -> None:
        self._stream = worker.session.streams[name]
        spec = recorded_spec(self._stream)
        self._source = make_point_source(spec)
        self._pose, self._projects = pose, projects
        self._returns: int | None = options["returns"] if self._source.returns > 1 else None
        self._options = options
        self._pictures = BeamPictures(spec) if BEAMS in spec.files else None
        point = self._source.point
        kinds = [(name, point[name].str) for name in point.names or ()]
        self._point = np.dtype([(n, "<f4" if n == "intensity" else kind) for n, kind in kinds])

    def __call__(self, indices: Sequence[int]) -> list[SampleFiles]:
        return [self._encode(index) for index in indices]

    def _encode(self, index: int) -> SampleFiles:
        sample = self._source.read_sample(self._stream, index)
        t_ns = int(self._stream.times(index, index + 1)[0])
        start_ns, points = self._source.points(sample, t_ns)
        points = points[find_returns(points)]
        if self._returns is not None:
            points = points[points["return"] < self._returns]
        pcd = encode_pcd(convert_points(points, self._point), self._pose)
        files = {"lidar.pcd": Payload(pcd, zlib.crc32(pcd))}
        if self._options["lidar_images"] and (pictures := self._pictures) is not None:
            places = pictures.find_places(sample)
            depth_m = pictures.select(sample["rng"], places) * pictures.unit_m
            reflectivity = pictures.select(sample["rfl"], places)
            files |= encode_lidar_pictures(depth_m, reflectivity, self._options)
        if not self._projects or self._pose is None:
            return SampleFiles(files)
        in_rig = apply(self._pose, stack_xyz(points))
        return SampleFiles(files, in_rig, point_times(start_ns, points))


class LidarEncoder:
    """Encoder of the files of sweeps, in a worker.

    Args:
        name: name of the lidar.
        pose: ``T_sensor_rig``, f8 [4, 4], or None.
        shifts: int [beams], see `pixel_shifts`.
        options: the options ``returns``, ``lidar_images`` and ``png_level``.
        projects: whether depth pictures need points in the rig's frame.
        worker: the worker's context.
    """

    def __init__(
        self,
        name: str,
        pose: Floats | None,
        shifts: npt.NDArray[Any],
        options: Mapping[str, Any],
        projects: bool,
        worker: WorkerContext,
    ) -> None:
        self._stream = worker.session.streams[name]
        self._pose, self._shifts = pose, shifts
        self._options, self._projects = options, projects
        self._optics, _, _ = lidar_optics(self._stream)
        self._beam, self._start = self._optics.lines
        self._clock = SweepClock(self._stream, self._optics)
        self._returns = lidar_returns(self._stream)[: options["returns"]]

    def __call__(self, indices: Sequence[int]) -> list[SampleFiles]:
        return [self._encode(index) for index in indices]

    def _encode(self, index: int) -> SampleFiles:
        sweep = [self._read(index, number, rfl) for number, rfl in self._returns]
        clouds = [self._points(*one) for one in sweep]
        points = clouds[0] if len(clouds) == 1 else np.concatenate(clouds)
        pcd = encode_pcd(points, self._pose)
        files = {"lidar.pcd": Payload(pcd, zlib.crc32(pcd))}
        ranges, reflectivity = sweep[0]
        if self._options["lidar_images"]:
            depth_m, picture = self._destagger(ranges) * 1e-3, self._destagger(reflectivity)
            files |= encode_lidar_pictures(depth_m, picture, self._options)
        if not self._projects or self._pose is None:
            return SampleFiles(files)
        in_rig = apply(self._pose, stack_xyz(points))
        times = self._clock.times(index).columns_ns
        return SampleFiles(
            files, in_rig, np.concatenate([times[np.nonzero(r)[1]] for r, _ in sweep])
        )

    def _read(
        self, index: int, number: int, rfl: str
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
        ranges = lidar_range_mm(self._stream, index, number)
        if rfl in self._stream.meta:
            return ranges, self._stream.sample(index, [rfl])[rfl]
        return ranges, np.zeros(ranges.shape, np.uint8)

    def _points(
        self, ranges: npt.NDArray[np.uint32], reflectivity: npt.NDArray[np.uint8]
    ) -> npt.NDArray[Any]:
        """Return the points of a sweep's returns, row by row, `LIDAR` [n]."""
        planes = np.empty((4, ranges.size), np.float32)
        metres = ranges.reshape(-1).astype(np.float32)
        metres *= np.float32(1e-3)
        np.multiply(self._beam, metres, out=planes[:3])
        planes[:3] += self._start
        planes[3] = reflectivity.reshape(-1)
        # A point's 16 bytes are moved as one number, much faster than as a structure.
        points = cv2.merge(list(planes)).reshape(-1).view(np.complex128)
        valid: npt.NDArray[np.bool_] = ranges.reshape(-1) > 0
        found: npt.NDArray[Any] = points[valid].view(LIDAR)
        return found

    def _destagger(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Shift each row, so that a column has the same azimuth in all rows."""
        columns = np.arange(values.shape[1])
        places = (columns[None, :] - self._shifts[:, None]) % values.shape[1]
        return np.take_along_axis(values, places, axis=1)


_MOST = 32_767.0


@dataclass(frozen=True)
class _Irregularities:
    """Irregularities of a frame.

    Attributes:
        cut: number of cube values that were clipped.
        incomplete: whether the frame lacks packets.
        step: sample before which the frame is misaligned; None if it is aligned.
    """

    cut: int
    incomplete: bool
    step: int | None = None


class RadarFiles(SensorFiles):
    """Files of a radar's frames: ``.radar.pcd`` and ``.radar.png``.

    Attributes:
        cut: number of cube values that were clipped to int16.
        incomplete: number of frames that lack packets.
    """

    GROUP = RADAR_GROUP

    def __init__(self, context: PackingContext, stream: Stream) -> None:
        super().__init__(context, stream)
        geometry, options = radar_geometry(stream, context.calibration), context.options
        if geometry.tx_m is None:
            context.notes.add("radar.json has no antennas: points lie straight ahead", stream.name)
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
        described = stream.name, self.pose, context.calibration, dict(options), json.dumps(cube)
        self.encoder = partial(RadarEncoder, *described)

    def describe(self) -> dict[str, Any]:
        """Return the radar's entry in the dataset's metadata."""
        return self._description

    def count(self, made: SampleFiles) -> None:
        irregularities: _Irregularities = made.irregularities
        self.cut += irregularities.cut
        self.incomplete += irregularities.incomplete
        if irregularities.step is not None:
            self._steps[irregularities.step] += 1

    def remarks(self) -> list[str]:
        """Return the radar's irregularities, one sentence each."""
        lines = []
        if self.cut:
            lines.append(f"{self.cut} values of its cubes were cut: edgefirst.radar_gain is high")
        if self.incomplete:
            lines.append(f"{self.incomplete} frames lack packets; they are packed")
        return lines + step_remarks(self._steps)


class RadarEncoder:
    """Encoder of the files of frames, in a worker; several together cost less than one by one.

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
            self._encode(index, payload, irregularities)
            for index, (_, payload, irregularities) in zip(indices, read, strict=True)
        ]

    def _read(self, index: int) -> tuple[Complex64, Payload, _Irregularities]:
        """Read a frame; return its spectra, its ``.radar.png``, and its irregularities."""
        data = self._stream.sample(index, self._channels)
        spectra = self._frames.spectra(index, data["iq"])
        cube, cut = quantize(spectra, self._options["radar_gain"])
        payload = compress_png(cube_picture(cube), self._options["png_level"], text=self._text)
        return spectra, payload, _Irregularities(int(cut), "valid" in data and not data["valid"])

    def _encode(self, index: int, cube: Payload, irregularities: _Irregularities) -> SampleFiles:
        found = self._frames.resolved(index)
        points = radar_points(found, self._options["radar_rcs_db"], self._period_m_s)
        files = {"radar.pcd": Payload(encode_pcd(points, self._pose)), "radar.png": cube}
        return SampleFiles(
            files, irregularities=replace(irregularities, step=self._frames.step(index))
        )


def radar_points(found: Detections, rcs_reference_db: float, period_m_s: float) -> npt.NDArray[Any]:
    """Convert detections to points, `RADAR` [n].

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


def quantize(spectra: npt.NDArray[np.complex64], gain: float) -> tuple[npt.NDArray[np.int16], int]:
    """Convert a frame's spectra to int16; return also how many values were clipped.

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
