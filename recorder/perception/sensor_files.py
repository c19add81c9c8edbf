"""Metadata files beside the samples of recorded sensors, and the times of a lidar's columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from recorder.common.errors import FormatError
from recorder.perception.calibration import Calibration
from recorder.perception.frames import SweepTimes, mean_period_ns, sweep_times
from recorder.perception.lidar.lidar import OusterOptics
from recorder.perception.radar.geometry import PhaseCalibration, RadarGeometry
from recorder.session.stream import Stream

_SAME_GHZ: Final = 0.5
"""Largest difference of the centre frequencies of a calibration and its use."""


def read_text(stream: Stream, name: str) -> tuple[str, str]:
    """Return text and path of a metadata file; FormatError where it cannot be read."""
    path = stream.path / name
    try:
        return path.read_text("utf-8"), str(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None


def lidar_optics(stream: Stream) -> tuple[OusterOptics, str, str]:
    """Return a lidar's optics, and text and path of their file; FormatError if shapes differ."""
    text, where = read_text(stream, "lidar.json")
    optics = OusterOptics.of_metadata(text, where)
    shape = (optics.beams, optics.columns)
    found = tuple(stream.meta["rng"]["shape"])
    if found != shape:
        raise FormatError(f"{where}: has {shape} beams and columns, channel rng has {found}")
    return optics, text, where


class SweepClock:
    """Source of the times of the columns of a lidar's sweeps.

    Attributes:
        period_ns: duration of a sweep.
    """

    def __init__(self, stream: Stream, optics: OusterOptics) -> None:
        self._stream, self._columns = stream, optics.columns
        self.period_ns = mean_period_ns(stream, optics.frequency_hz)

    def times(self, index: int) -> SweepTimes:
        """Return the times of a sweep."""
        t_col = None
        if "t_col" in self._stream.meta:
            t_col = self._stream.sample(index, ["t_col"])["t_col"]
        end_ns = int(self._stream.times(index, index + 1)[0])
        return sweep_times(t_col, self._columns, end_ns, self.period_ns)


def lidar_returns(stream: Stream) -> list[tuple[int, str]]:
    """Return number and channel of the reflectivity of each recorded return of a lidar."""
    channels = ((1, "rng", "rfl"), (2, "rng2", "rfl2"))
    return [(number, rfl) for number, rng, rfl in channels if rng in stream.meta]


def radar_geometry(stream: Stream, calibration: Calibration) -> RadarGeometry:
    """Return a radar's geometry, calibrated by the calibration file or by radar.json.

    Raises:
        FormatError: the file ``radar.json`` does not fit the samples.
        ConfigError: the antennas' calibration is for another device, layout or frequency.
    """
    text, where = read_text(stream, "radar.json")
    geometry = RadarGeometry.of_metadata(text, where, tuple(stream.meta["iq"]["shape"]))
    values = calibration.of(stream.name).antennas
    if values is None:
        return geometry
    key = f"sensors.{stream.name}.antennas"
    for name, ours in geometry.identity().items():
        theirs = values.get(name)
        if None not in (theirs, ours) and not _is_equal(theirs, ours):
            raise calibration.error(f"{key}.{name}", f"is {theirs!r}, but the radar's is {ours!r}")
    try:
        measured = PhaseCalibration.of_mapping(values, geometry.shape[1], geometry.shape[2])
    except KeyError as error:
        raise calibration.error(key, f"lacks {error.args[0]}") from None
    except (TypeError, ValueError) as error:
        raise calibration.error(key, f"is invalid: {error}") from None
    return replace(geometry, calibration=measured)


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(other, float):
        return isinstance(one, (int, float)) and abs(one - other) <= _SAME_GHZ
    return bool(one == other)
