"""Maps of a radar's frames, with the detected targets."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.config.options import Option, OptionTable
from recorder.perception.encoded import EncodedSamples
from recorder.perception.radar.geometry import Floats, RadarGeometry
from recorder.perception.radar.maps import RadarMaps, in_db_steps
from recorder.perception.radar.radar import Detections, RadarProcessor
from recorder.perception.radar.spectra import Complex64, Float32
from recorder.viewers.live.views.drawing import Drawing, checked_options

OPTIONS: Final[OptionTable] = {
    "detections": Option(
        "int", 64, "largest number of targets that are listed", minimum=0, maximum=1024
    ),
    "threshold_db": Option(
        "float", 12.0, "level of a target above the noise [dB]", minimum=3.0, maximum=60.0
    ),
}

_SAMPLES, _VALID, _METADATA = "iq", "valid", "radar.json"
_LEAST_DB, _STEP_DB = -10.0, 0.5


class _MapView(ABC):
    """View of the newest frame as a map.

    A drawing has the array ``db``, u1 [rows, columns]: ``db_min + db_step * db`` is dB above the
    noise; columns are ranges.  Its header has these two values, ``noise_db`` (dB above one step of
    the converter squared), ``valid`` (false where packets of the frame are missing), the axes as
    lists, ``range_m`` [columns] and the one that `axis` names [rows], both increasing, and
    ``detections``, the strongest first, each with ``range_m``, ``velocity_mps`` (positive where the
    range grows), ``snr_db``, ``azimuth_deg`` (positive to the left) and ``elevation_deg`` (both
    null without antennas in `radar.json`), and ``method``
    (`recorder.perception.radar.radar.SpeedMethod`).
    """

    every = False
    static: Drawing | None = None
    name: ClassVar[str]
    axis: ClassVar[str]

    def __init__(self, spec: StreamSpec, options: Mapping[str, Any]) -> None:
        given = checked_options(spec, self.name, OPTIONS, options)
        geometry = _geometry(spec)
        self._wanted: bool = given["detections"] > 0
        self._processor = RadarProcessor(geometry, given["threshold_db"], given["detections"])
        self._maps = RadarMaps(geometry)
        self._samples = EncodedSamples(spec)
        self._has_valid = _VALID in (channel.name for channel in spec.channels)
        self._axes = {
            "range_m": np.round(self._maps.range_m, 4).tolist(),
            self.axis: np.round(self._rows(), 4).tolist(),
        }

    @staticmethod
    def is_offered(spec: StreamSpec) -> bool:
        """Check that the stream has raw samples and the radar's parameters."""
        samples = [c for c in spec.channels if c.name == _SAMPLES and c.dtype == "i2"]
        return _METADATA in spec.files and bool(samples) and len(samples[0].shape) == 4

    @abstractmethod
    def _rows(self) -> Floats:
        """Return the value of the axis for each row."""

    @abstractmethod
    def _level(self, spectra: Complex64) -> tuple[Float32, float]:
        """Return the map, and its noise."""

    def draw(self, messages: Sequence[Message]) -> Drawing | None:
        """Draw the newest frame; see `recorder.viewers.live.views.View`."""
        message = messages[-1]
        self._samples.check(message)
        spectra = self._processor.spectra(self._samples.decoded(message, _SAMPLES))
        level_db, noise_db = self._level(spectra)
        valid = bool(self._samples.decoded(message, _VALID)) if self._has_valid else True
        found = self._processor.find(spectra) if self._wanted else None
        header = {
            "db_min": _LEAST_DB,
            "db_step": _STEP_DB,
            "noise_db": noise_db,
            "valid": valid,
            **self._axes,
            "detections": [] if found is None else self._to_json(found),
        }
        return Drawing(header, [("db", in_db_steps(level_db, _LEAST_DB, _STEP_DB))])

    def _to_json(self, found: Detections) -> list[dict[str, Any]]:
        """Return the detections as JSON."""
        x, y, z = found.direction.T.astype(np.float64)
        columns: dict[str, list[Any]] = {
            "range_m": found.range_m.tolist(),
            "velocity_mps": found.velocity_m_s.tolist(),
            "snr_db": found.snr_db.tolist(),
            "azimuth_deg": np.degrees(np.arctan2(y, x)).tolist(),
            "elevation_deg": np.degrees(np.arcsin(np.clip(z, -1, 1))).tolist(),
            "method": found.method.tolist(),
        }
        if not len(self._maps.azimuth_rad):
            columns |= {name: [None] * len(found) for name in ("azimuth_deg", "elevation_deg")}
        return [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]


class RangeDopplerView(_MapView):
    """View of the power over range and speed."""

    name, axis = "range_doppler", "velocity_mps"

    def _rows(self) -> Floats:
        return self._maps.velocity_m_s

    def _level(self, spectra: Complex64) -> tuple[Float32, float]:
        return self._maps.range_doppler(spectra)


class RangeAzimuthView(_MapView):
    """View of the power over range and azimuth."""

    name, axis = "range_azimuth", "azimuth_deg"

    @staticmethod
    def is_offered(spec: StreamSpec) -> bool:
        """Check that the radar's antennas are known, too."""
        if not _MapView.is_offered(spec):
            return False
        try:
            return _geometry(spec).tx_m is not None
        except FormatError:
            return True  # making the view reports what is wrong

    def _rows(self) -> Floats:
        return np.degrees(self._maps.azimuth_rad)

    def _level(self, spectra: Complex64) -> tuple[Float32, float]:
        return self._maps.range_azimuth(spectra)


def _geometry(spec: StreamSpec) -> RadarGeometry:
    """Return the radar's geometry; raise FormatError if it is wrong or does not fit the samples."""
    shape, where = spec.channel(_SAMPLES).shape, f"{spec.name}: {_METADATA}"
    return _parse_geometry(spec.files[_METADATA], where, shape)


@functools.lru_cache(maxsize=8)
def _parse_geometry(text: str, where: str, shape: tuple[int, ...]) -> RadarGeometry:
    return RadarGeometry.of_metadata(text, where, shape)
