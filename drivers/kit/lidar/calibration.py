"""Angles of a lidar's channels: from a vendor's file, or from a table of the model's design."""

from __future__ import annotations

import csv
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from recorder.common.errors import FormatError

DEFAULT: Final = "default"
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Angles:
    """Angles of the channels, in their order in the packets.

    Attributes:
        elevation_deg, azimuth_deg: [channels]; azimuths grow clockwise, seen from above, and are
            added to a column's.
        rise_mm: [channels], height of the beams' begin; empty: the file does not tell it.
        unit_mm: unit of the distances that the file names, mm; None: it names none.
        origin: `DEFAULT`, or name of the file.
        sha256: of the file; empty without one.
    """

    elevation_deg: tuple[float, ...]
    azimuth_deg: tuple[float, ...]
    rise_mm: tuple[float, ...] = ()
    unit_mm: float | None = None
    origin: str = DEFAULT
    sha256: str = ""


def read_default(table: Path, model: str) -> Angles:
    """Return the angles of a model's design, from a table of a vendor's models."""
    with table.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == model]
    return Angles(
        tuple(float(row["elevation_deg"]) for row in rows),
        tuple(float(row["azimuth_deg"]) for row in rows),
    )


def read_angles(path: Path, channels: int, unit_mm: float, model: str) -> Angles:
    """Read a file of angles: CSV of Hesai or RoboSense, or YAML of Velodyne.

    Args:
        path: of the file.
        channels, unit_mm: of the model, to which the file must fit.
        model: names the model in errors.

    Raises:
        FormatError: the file is missing, has another form, or is of another model; begins with its
            path.
    """
    try:
        data = path.read_bytes()[: _MOST_BYTES + 1]
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise FormatError(f"{path}: is too long for a file of angles")
    try:
        text = data.decode("utf-8-sig")
        angles = _parse_yaml(text) if path.suffix in (".yaml", ".yml") else _parse_csv(text)
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise FormatError(f"{path}: is no file of a lidar's angles: {error!r:.200}") from None
    found = len(angles.elevation_deg)
    if found != channels:
        raise FormatError(f"{path}: has {found} channels, a {model} has {channels}")
    if angles.unit_mm is not None and not math.isclose(angles.unit_mm, unit_mm, rel_tol=1e-6):
        raise FormatError(
            f"{path}: has distances in {angles.unit_mm:g} mm, a {model} sends {unit_mm:g} mm"
        )
    if not np.isfinite([angles.elevation_deg, angles.azimuth_deg]).all():
        raise FormatError(f"{path}: an angle is not finite")
    digest = hashlib.sha256(data).hexdigest()
    return Angles(
        *(angles.elevation_deg, angles.azimuth_deg, angles.rise_mm, angles.unit_mm),
        *(path.name, digest),
    )


def _parse_csv(text: str) -> Angles:
    """Parse rows of channel, elevation and azimuth, with a headline, or without channel."""
    rows = [row for row in csv.reader(text.splitlines()) if row and row[0].strip()]
    if rows[0][0].strip().lower() in ("laser id", "channel"):
        rows = sorted(rows[1:], key=lambda row: int(row[0]))
        if [int(row[0]) for row in rows] != list(range(1, len(rows) + 1)):
            raise ValueError("its channels are not 1, 2, 3, ...")
        rows = [row[1:] for row in rows]
    return Angles(
        tuple(float(row[0]) for row in rows),
        tuple(float(row[1]) if len(row) > 1 else 0.0 for row in rows),
    )


def _parse_yaml(text: str) -> Angles:
    """Parse Velodyne's file: angles in rad, corrections in m; rotations are counterclockwise."""
    content: Any = yaml.safe_load(text)
    lasers = sorted(content["lasers"], key=lambda laser: int(laser["laser_id"]))
    if [int(laser["laser_id"]) for laser in lasers] != list(range(len(lasers))):
        raise ValueError("its lasers are not 0, 1, 2, ...")
    rises = tuple(1000 * float(laser.get("vert_offset_correction", 0.0)) for laser in lasers)
    resolution = content.get("distance_resolution")
    return Angles(
        tuple(math.degrees(float(laser["vert_correction"])) for laser in lasers),
        tuple(-math.degrees(float(laser["rot_correction"])) for laser in lasers),
        rises if any(rises) else (),
        None if resolution is None else 1000 * float(resolution),
    )
