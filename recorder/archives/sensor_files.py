"""Reads the metadata files that lie beside the samples of recorded sensors."""

from __future__ import annotations

from recorder.contract.config.options import Option, OptionTable
from recorder.contract.errors import FormatError
from recorder.processing.lidar import OusterOptics
from recorder.processing.radar import RadarGeometry
from recorder.session.stream import Stream

RADAR_OPTIONS: OptionTable = {
    "radar_threshold_db": Option(
        "float", 12.0, "threshold above the noise [dB]", minimum=3, maximum=60
    ),
    "radar_limit": Option("int", 256, "detections per frame", minimum=1, maximum=10_000),
}
"""Options of all archives with detections of radars."""


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


def lidar_returns(stream: Stream) -> list[tuple[int, str]]:
    """Number and channel of the reflectivity of each recorded return of a lidar."""
    channels = ((1, "rng", "rfl"), (2, "rng2", "rfl2"))
    return [(number, rfl) for number, rng, rfl in channels if rng in stream.meta]


def radar_geometry(stream: Stream) -> RadarGeometry:
    """Chirps and antennas of a radar; FormatError where they do not fit its samples."""
    text, where = read_text(stream, "radar.json")
    return RadarGeometry.of_metadata(text, where, tuple(stream.meta["iq"]["shape"]))
