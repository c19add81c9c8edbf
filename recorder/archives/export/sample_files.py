"""Exports of samples one by one: pictures of all sensors, points of lidars and radars."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from recorder.codecs import CHANNEL_FORMATS
from recorder.common.errors import FormatError
from recorder.formats.pcd import encode_pcd
from recorder.perception.camera.camera_pictures import Pictures
from recorder.perception.frames import has_ouster_sweeps, image_channel
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.lidar import pixel_shifts
from recorder.perception.radar.detections import RadarDetections
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.maps import RadarMaps, in_db_steps
from recorder.perception.radar.radar import RadarProcessor
from recorder.perception.sensor_files import lidar_optics
from recorder.session.playback import recorded_spec
from recorder.session.reader import lidar_range_mm
from recorder.session.stream import Stream

LEAST_DB: Final = -10.0
"""Level of the value 0 in a radar's map, dB above the noise."""
STEP_DB: Final = 0.25
_RANGES: Final = {"rng": 1, "rng2": 2}
_LONGEST_MM: Final = 0xFFFF


class Made(NamedTuple):
    """A file's content.

    Attributes:
        suffix: of its name, before the ending; empty if the sample has only one file.
        data: its bytes.
    """

    suffix: str
    data: bytes


class SampleFiles(ABC):
    """Encoder of one sample after another into files.  Safe for several threads.

    Attributes:
        files: number of files of a sample.
    """

    files = 1

    @abstractmethod
    def make(self, index: int) -> list[Made]:
        """Return the files of a sample; FormatError or OSError if the sample is damaged."""

    def remarks(self) -> list[str]:
        """Return notes about all samples so far, one sentence each."""
        return []


class CameraPictures(SampleFiles):
    """A camera's pictures: JPEGs as recorded, or PNGs; raw pictures are rendered with 8 bits.

    Video is decoded.

    Args:
        stream: a stream whose kind is ``camera``.
        ending: ``jpg`` or ``png``.
    """

    def __init__(self, stream: Stream, ending: str) -> None:
        channel = image_channel(stream)
        assert channel is not None
        self._reader, self._ending = stream.channels[channel], ending
        self._pictures = Pictures(stream)

    def make(self, index: int) -> list[Made]:
        recorded = not self._pictures.encodes
        if recorded:
            data, codec = self._reader.encoded(index), CHANNEL_FORMATS[self._reader.format]
            fault = codec.shape_fault(data, self._reader.shape) or codec.hidden_fault(data)
            if fault:
                raise FormatError(fault)
        picture = self._pictures.picture(index)  # a JPEG that does not decode is damaged
        if self._ending == "png":
            return [Made("", encode_png(picture))]
        return [Made("", data if recorded else self._pictures.jpeg(index))]


class SweepPictures(SampleFiles):
    """A lidar's channels as pictures.

    An Ouster's have a column for each azimuth (destaggered).  Ranges are in mm, with 16 bits: those
    beyond 65535 mm become 65535.  Other channels, and all of other lidars, are as recorded.

    Args:
        stream: a stream whose kind is ``lidar``.
        names: of channels that are among `sweep_pictures`.

    Raises:
        FormatError: ``lidar.json`` cannot be used.
    """

    def __init__(self, stream: Stream, names: Sequence[str]) -> None:
        self._stream, self._names = stream, names
        self.files = len(names)
        self._places = None
        if has_ouster_sweeps(stream):
            optics, text, where = lidar_optics(stream)
            shifts = pixel_shifts(text, optics, where)
            self._places = (np.arange(optics.columns)[None, :] - shifts[:, None]) % optics.columns
        self._lock = threading.Lock()
        self._cut = 0

    def make(self, index: int) -> list[Made]:
        return [
            Made(f"_{name}" if self.files > 1 else "", encode_png(self._render(index, name)))
            for name in self._names
        ]

    def _render(self, index: int, name: str) -> npt.NDArray[Any]:
        if self._places is None:
            return self._stream.sample(index, [name])[name]
        if name in _RANGES:
            ranges = lidar_range_mm(self._stream, index, _RANGES[name])
            values: npt.NDArray[Any] = np.minimum(ranges, _LONGEST_MM).astype(np.uint16)
            with self._lock:
                self._cut += int(np.count_nonzero(ranges > _LONGEST_MM))
        else:
            values = self._stream.sample(index, [name])[name]
        return np.take_along_axis(values, self._places, axis=1)

    def remarks(self) -> list[str]:
        if not self._cut:
            return []
        return [f"{self._cut} ranges beyond 65.535 m are 65535 in the pictures"]


def sweep_pictures(stream: Stream) -> list[str]:
    """Return the channels of a lidar that have 8 or 16 bits for each beam and column."""
    shape = stream.meta["rng"]["shape"]
    return [
        name
        for name, entry in stream.meta.items()
        if entry["shape"] == shape and np.dtype(entry["type"]) in (np.uint8, np.uint16)
    ]


class RangeDopplerPictures(SampleFiles):
    """A radar's power over range and speed, with 8 bits.

    A column for each range, from near to far; a row for each radial speed, rising from the top to
    the bottom.  A value is ``(dB above the noise of the map - LEAST_DB) / STEP_DB``.

    Args:
        stream: a stream whose kind is ``radar``.
        geometry: of the radar.
    """

    def __init__(self, stream: Stream, geometry: RadarGeometry) -> None:
        self._stream = stream
        self._processor, self._maps = RadarProcessor(geometry), RadarMaps(geometry)

    def make(self, index: int) -> list[Made]:
        spectra = self._processor.spectra(self._stream.sample(index, ["iq"])["iq"])
        level_db, _ = self._maps.range_doppler(spectra)
        return [Made("", encode_png(in_db_steps(level_db, LEAST_DB, STEP_DB)))]


class SweepClouds(SampleFiles):
    """The points of a lidar, with the fields of `recorder.perception.lidar.points.PointSource`.

    Args:
        stream: a stream whose kind is ``lidar``.

    Raises:
        FormatError: ``lidar.json`` cannot be used.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._source = make_point_source(recorded_spec(stream))

    def make(self, index: int) -> list[Made]:
        start_ns, points = self._source.read(self._stream, index)
        after = "t: ns after" if self._source.timed else "all points:"
        return [Made("", encode_pcd(points, f"{after} {start_ns} ns since 1970-01-01 UTC"))]


class DetectionClouds(SampleFiles):
    """The detections of a radar, as `recorder.perception.radar.detections.DETECTION`.

    Args:
        stream: a stream whose kind is ``radar``.
        geometry: of the radar.
    """

    def __init__(self, stream: Stream, geometry: RadarGeometry) -> None:
        self._radar = RadarDetections(
            geometry, lambda index: stream.sample(index, ["iq"])["iq"], stream.t_ns
        )

    def make(self, index: int) -> list[Made]:
        return [Made("", encode_pcd(self._radar.points(index)))]

    def remarks(self) -> list[str]:
        return self._radar.remarks()


def encode_png(picture: npt.NDArray[Any]) -> bytes:
    """Encode a picture: u1 or u2 [height, width], or u1 [height, width, 3], BGR."""
    done, data = cv2.imencode(".png", picture)
    assert done
    return data.tobytes()
