"""``recorder calibrate-radar SESSION``: measure the calibration of a radar's antennas."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import add_format, emit, note
from recorder.common.errors import UsageError

if TYPE_CHECKING:
    from recorder.session.stream import Stream

_MOST_FRAMES = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session, the reflector and the sensor."""
    parser.add_argument(
        "session", type=Path, metavar="SESSION", help="read this session of a standing vehicle"
    )
    parser.add_argument(
        "--reflector",
        type=_parse_place,
        metavar="RANGE:AZIMUTH:ELEVATION",
        help="use a corner reflector at this place, seen from the radar: m, degrees to the left, "
        "degrees up (default: use static clutter)",
    )
    parser.add_argument(
        "--sensor", metavar="NAME", help="calibrate this radar (default: the only one)"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the ``antennas`` of a calibration file; return 0."""
    from recorder.perception.calibration import Calibration
    from recorder.perception.radar.calibration import (
        as_mapping,
        calibrate_by_clutter,
        calibrate_by_reflector,
    )
    from recorder.perception.sensor_files import radar_geometry
    from recorder.session.reader import Session

    with Session(args.session) as session:
        stream = _find_radar(session.streams, args.sensor)
        geometry = radar_geometry(stream, Calibration())
        if args.reflector is None:
            measured = calibrate_by_clutter(geometry, _read_frames(stream))
        else:
            measured = calibrate_by_reflector(geometry, _read_frames(stream), args.reflector)
        name = stream.name
    result: dict[str, Any] = {
        "frames": measured.frames,
        "cells": measured.cells,
        "level_db": measured.level_db,
        "residual_deg": measured.calibration.residual_deg,
        "sensors": {name: {"antennas": as_mapping(measured, geometry)}},
    }
    emit(result, args, _format_text)
    note(
        f"{measured.frames} frames, {measured.cells} range cells, {measured.level_db:.0f} dB above "
        f"what is beside them; residual {measured.calibration.residual_deg:.1f} degrees"
    )
    if args.reflector is None:
        note(
            "clutter shows neither the boresight, nor a raised transmitter's phase against "
            "elevation, nor the range bias: directions may be off by a constant"
        )
    return 0


def _parse_place(text: str) -> tuple[float, float, float]:
    parts = [float(part) for part in text.split(":")]  # argparse reports a ValueError
    if len(parts) != 3 or not 0 < parts[0] < 1000 or max(map(abs, parts[1:])) >= 90:
        raise argparse.ArgumentTypeError(f"{text!r} is not RANGE:AZIMUTH:ELEVATION")
    return parts[0], parts[1], parts[2]


def _find_radar(streams: Mapping[str, Stream], name: str | None) -> Stream:
    radars = {stream.name: stream for stream in streams.values() if "iq" in stream.meta}
    known = ", ".join(radars) or "none"
    if name is None and len(radars) != 1:
        raise UsageError(f"--sensor is needed; the session's radars: {known}")
    if name is not None and name not in radars:
        raise UsageError(f"no radar {name!r}; the session's radars: {known}")
    return radars[name or next(iter(radars))]


def _read_frames(stream: Stream) -> Iterator[Any]:
    """Yield complete frames, evenly spaced over the session."""
    names = ["iq", "valid"] if "valid" in stream.meta else ["iq"]
    for index in range(0, len(stream), max(1, -(-len(stream) // _MOST_FRAMES))):
        data = stream.sample(index, names)
        if data.get("valid", True):
            yield data["iq"]


def _format_text(result: dict[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(
        {"sensors": result["sensors"]}, sort_keys=False, default_flow_style=None, width=100
    )
    return text
