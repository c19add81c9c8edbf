"""Reads the metadata files that lie beside the samples of recorded sensors."""

from __future__ import annotations

from recorder.contract.errors import FormatError
from recorder.processing.lidar import OusterOptics
from recorder.processing.radar import RadarGeometry
from recorder.session.stream import Stream


def read_text(stream: Stream, name: str) -> tuple[str, str]:
    """Text and path of a metadata file; FormatError where it cannot be read."""
    path = stream.path / name
    try:
        return path.read_text("utf-8"), str(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None


def lidar_optics(stream: Stream) -> tuple[OusterOptics, str, str]:
    """Optics of a lidar, text and path of their file; FormatError for samples of another shape."""
    text, where = read_text(stream, "lidar.json")
    optics = OusterOptics.of_metadata(text, where)
    shape = (optics.beams, optics.columns)
    found = tuple(stream.meta["rng"]["shape"])
    if found != shape:
        raise FormatError(f"{where}: has {shape} beams and columns, channel rng has {found}")
    return optics, text, where


def radar_geometry(stream: Stream) -> RadarGeometry:
    """Chirps and antennas of a radar; FormatError where they do not fit its samples."""
    text, where = read_text(stream, "radar.json")
    return RadarGeometry.of_metadata(text, where, tuple(stream.meta["iq"]["shape"]))
