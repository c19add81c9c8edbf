"""Angles of a lidar's channels: from a vendor's file, or from a table of the model's design."""

from __future__ import annotations

import csv
import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from recorder.codecs.beams import Beams, Mirrors, TwoPoint
from recorder.common.errors import FormatError

DEFAULT: Final = "default"
SENSOR: Final = "sensor"
_MOST_BYTES: Final = 1 << 20
_MIRRORS_MARK: Final = b"\xee\xff"
_MIRRORS_HEAD: Final = 16
_MIRRORS_VERSION: Final = 5
_ADJUSTMENTS: Final = 180
_MIRRORS_VIEW_DEG: Final = (30.0, 150.0)
"""Field of view of an AT128, by its manual."""
_SIDE: Final = "horiz_offset_correction"
_UNIT_DEG: Final = 1 / 25600
"""Unit of the angles of a file with mirrors: the packets', 1/256 of 0.01 deg."""


@dataclass(frozen=True, slots=True)
class Angles:
    """Angles of the channels, in their order in the packets.

    Attributes:
        elevation_deg, azimuth_deg: [channels]; azimuths grow clockwise, seen from above, and are
            added to a column's.
        rise_mm: [channels], height of the beams' begin; empty: the file does not tell it.
        unit_mm: unit of the distances that the file names, mm; None: it names none.
        two_point, mirrors: see `Beams`.
        origin: `DEFAULT`, `SENSOR`, or name of the file.
        sha256: of the file; empty without one.
    """

    elevation_deg: tuple[float, ...]
    azimuth_deg: tuple[float, ...]
    rise_mm: tuple[float, ...] = ()
    unit_mm: float | None = None
    two_point: TwoPoint | None = None
    mirrors: Mirrors | None = None
    origin: str = DEFAULT
    sha256: str = ""


def angles_of(beams: Beams) -> Angles:
    """Return the angles of recorded beams."""
    return Angles(
        tuple(beams.elevation_deg),
        tuple(beams.azimuth_deg),
        tuple(beams.rise_mm),
        origin=beams.calibration,
        sha256=beams.calibration_sha256,
        two_point=beams.two_point,
        mirrors=beams.mirrors,
    )


def read_default(table: Path, model: str) -> Angles:
    """Return the angles of a model's design, from a table of a vendor's models."""
    with table.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == model]
    return Angles(
        tuple(float(row["elevation_deg"]) for row in rows),
        tuple(float(row["azimuth_deg"]) for row in rows),
    )


def read_angles(path: Path, channels: int, unit_mm: float, model: str) -> Angles:
    """Read a file of angles, see `parse_angles`.

    Raises:
        FormatError: see `parse_angles`, or the file is missing; begins with its path.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}") from None
    try:
        return parse_angles(data, path.name, channels, unit_mm, model)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def parse_angles(data: bytes, origin: str, channels: int, unit_mm: float, model: str) -> Angles:
    """Parse angles: CSV of Hesai or RoboSense, Hesai's file of mirrors, or YAML of Velodyne.

    Args:
        data: content of the file, or the sensor's answer.
        origin: name of the file, or `SENSOR`.
        channels, unit_mm: of the model, to which the file must fit.
        model: names the model in errors.

    Raises:
        FormatError: the content has another form, or is of another model.
    """
    if len(data) > _MOST_BYTES:
        raise FormatError("is too long for a file of angles")
    try:
        if data.startswith(_MIRRORS_MARK):
            angles = _parse_mirrors(data)
        elif origin.endswith((".yaml", ".yml")):
            angles = _parse_yaml(data.decode("utf-8-sig"))
        else:
            angles = _parse_csv(data.rstrip(b"\0").decode("utf-8-sig"))
    except (ValueError, KeyError, TypeError, IndexError, yaml.YAMLError) as error:
        raise FormatError(f"is no file of a lidar's angles: {error!r:.200}") from None
    found = len(angles.elevation_deg)
    if found != channels:
        raise FormatError(f"has {found} channels, a {model} has {channels}")
    if angles.unit_mm is not None and not math.isclose(angles.unit_mm, unit_mm, rel_tol=1e-6):
        raise FormatError(
            f"has distances in {angles.unit_mm:g} mm, the packets of a {model} have {unit_mm:g} mm"
        )
    if not np.isfinite([angles.elevation_deg, angles.azimuth_deg]).all():
        raise FormatError("an angle is not finite")
    return replace(angles, origin=origin, sha256=hashlib.sha256(data).hexdigest())


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

    def read(name: str) -> list[float]:
        return [1000 * float(laser.get(name, 0.0)) for laser in lasers]

    rises, far, side = read("vert_offset_correction"), read("dist_correction"), read(_SIDE)
    near = read("dist_correction_x"), read("dist_correction_y")
    corrected = any(far) or any(side) or any(map(any, near))
    resolution = content.get("distance_resolution")
    return Angles(
        tuple(math.degrees(float(laser["vert_correction"])) for laser in lasers),
        tuple(-math.degrees(float(laser["rot_correction"])) for laser in lasers),
        tuple(rises) if any(rises) else (),
        None if resolution is None else 1000 * float(resolution),
        TwoPoint(distance_mm=far, near_x_mm=near[0], near_y_mm=near[1], side_mm=side)
        if corrected
        else None,
    )


def _parse_mirrors(data: bytes) -> Angles:
    """Parse Hesai's file of a lidar with turning mirrors (AT128).

    After the mark: version, u1 twice; numbers of channels, mirrors and frames, u1; 8 bytes of the
    frames; resolution, u1; begins and ends of the mirrors' fields, u4; azimuths and elevations of
    the channels, i4; their adjustments, i1 [channels, 180], every 2 deg of the column's azimuth,
    in 0.01 deg.  All but the adjustments are in 1/25600 deg times the resolution.
    """
    version, channels, mirrors, resolution = data[3], data[4], data[5], data[15]
    if version != _MIRRORS_VERSION:
        raise ValueError(f"its version is {version}, not {_MIRRORS_VERSION}")
    count = channels * _ADJUSTMENTS
    size = _MIRRORS_HEAD + 8 * mirrors + 8 * channels + 2 * count
    if len(data) < size or not mirrors or not resolution:
        raise ValueError(f"it has {len(data)} bytes for {channels} channels, {mirrors} mirrors")
    at = _MIRRORS_HEAD
    fields = np.frombuffer(data, "<u4", 2 * mirrors, at).astype(np.int64) * resolution
    angles = np.frombuffer(data, "<i4", 2 * channels, at + 8 * mirrors) * (resolution * _UNIT_DEG)
    adjust = data[at + 8 * mirrors + 8 * channels : size]
    return Angles(
        tuple(angles[channels:].tolist()),
        tuple((-angles[:channels]).tolist()),
        mirrors=Mirrors(
            begins=fields[:mirrors].tolist(),
            ends=fields[mirrors:].tolist(),
            step=round(2 / _UNIT_DEG),
            view_deg=_MIRRORS_VIEW_DEG,
            azimuth_adjust=adjust[:count],
            elevation_adjust=adjust[count:],
        ),
    )
