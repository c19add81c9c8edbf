"""Packing of sweeps and detections that are recorded as rays: bit for bit as they are.

Such streams come from NCore sequences and other datasets (`recorder.codecs.rays`).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from recorder.archives.ncore.format.cameras import IntrinsicsWriter
from recorder.archives.ncore.format.frames import FrameWriter
from recorder.archives.ncore.format.models import RowOffsetSpinning
from recorder.archives.ncore.format.rays import LidarWriter
from recorder.archives.ncore.format.sequence import SequenceWriter
from recorder.archives.ncore.mapping.sensors import Sensor
from recorder.codecs.rays import DIRECTION, DISTANCE, DURATION, ELEMENT, RETURNS, TIMES
from recorder.common.errors import ArchiveError
from recorder.perception.calibration import Calibration
from recorder.perception.frames import has_detections
from recorder.perception.lidar.points import Values
from recorder.perception.lidar.rays import RayPoints
from recorder.session.playback import recorded_spec

MODEL: Final = "lidar_model.json"
_INTENSITY: Final = "intensity"


@dataclass
class RaySensor(Sensor):
    """Lidar or radar that is recorded as rays."""

    def __post_init__(self) -> None:
        self._spec = recorded_spec(self.stream)
        self._source = RayPoints(self._spec)
        self._of_returns = frozenset(self._spec.settings.get(RETURNS, ()))

    def start_ns(self, index: int, end_ns: int) -> int:
        return end_ns - int(self.stream.sample(index, [DURATION])[DURATION])

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        make = sequence.radar if has_detections(self.stream) else sequence.lidar
        writer = make(self.name, metadata=self.metadata())
        lidar = isinstance(writer, LidarWriter)
        for index, start_ns, end_ns in self.samples(self.start_ns):
            with self.context.locate_errors(self.name, index):
                rays = self._source.read_rays(self.stream, index)
                began_ns = self.start_ns(index, int(self.stream.times(index, index + 1)[0]))
                t_ns = np.clip(began_ns + rays[TIMES].astype(np.int64), start_ns, end_ns)
                writer.frame(
                    start_ns,
                    end_ns,
                    direction=np.ascontiguousarray(rays[DIRECTION]),
                    t_ns=t_ns,
                    metadata=self.frame_metadata(index),
                    **self._convert(rays, lidar=lidar),
                )
            yield end_ns
        return writer

    def _convert(self, rays: Values, *, lidar: bool) -> Mapping[str, Any]:
        """Return the values of the returns, the elements and the generic data of a frame."""
        given: dict[str, Any] = {"distance_m": self._per_return(rays, DISTANCE)}
        returns, data = {}, {}
        for name in rays.dtype.names or ():
            if name in (DIRECTION, DISTANCE, TIMES):
                continue
            if name == ELEMENT:
                given["model_element"] = np.ascontiguousarray(rays[name])
            elif name not in self._of_returns:
                data[name] = np.ascontiguousarray(rays[name])
            elif name == _INTENSITY and lidar:
                given[_INTENSITY] = self._per_return(rays, name)
            else:
                returns[name] = self._per_return(rays, name)
        if lidar and _INTENSITY not in given:
            missing = np.isnan(given["distance_m"])
            given[_INTENSITY] = np.where(missing, np.float32(np.nan), np.float32(0))
        return given | {"returns": returns, "data": data}

    def _per_return(self, rays: Values, name: str) -> Values:
        """Return the values of the returns, f4 [returns, rays, ...]."""
        shape = rays.dtype[name].shape
        shape = shape if self._source.returns == 1 else shape[1:]
        values: Values = rays[name].reshape(len(rays), self._source.returns, *shape)
        return np.ascontiguousarray(np.moveaxis(values, 1, 0))

    def place_model(self, intrinsics: IntrinsicsWriter, _: Calibration) -> None:
        if has_detections(self.stream):
            return
        try:
            given = json.loads(self._spec.files[MODEL])["lidar_model_parameters"]
            model = RowOffsetSpinning(
                given["spinning_frequency_hz"],
                given["spinning_direction"],
                given["row_elevations_rad"],
                given["column_azimuths_rad"],
                given["row_azimuth_offsets_rad"],
            )
            intrinsics.lidar(self.name, model)
        except (KeyError, TypeError, ValueError, ArchiveError) as error:
            self.note(f"has no known model: no lidar intrinsics ({error})")
