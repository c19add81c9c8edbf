"""Ouster sweeps as rays: directions of the beams, and distances of their returns.

The geometry is that of Ouster's "Firmware User Manual", section "Lidar Range to XYZ", in the
sensor's frame (x forward, z up), without extrinsics.  A sweep is staggered, as recorded: row r of
column c is the measurement of beam r at the time of column c.

::

    optics = OusterOptics.of_metadata(text, where="lidar/lidar.json")
    rays = optics.rays([range_mm], [reflectivity])
    points = rays.direction * rays.distance_m[0][:, None]

Beams begin some centimetres from the sensor's origin, but rays begin in the origin.  A ray has the
direction of its first return, ``xyz / |xyz|``, which differs from the beam's, and the length
``|xyz|``.  A second return shares the direction of the first return.  Its distance minimizes the
error of its point's position; `Rays.second_error_m` is the largest such error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError

Float32 = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]

_LIDAR_TO_SENSOR = (-1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1, 36.18, 0, 0, 0, 1)
_REFLECTIVITY_RANGE = 255.0
_OWN_RAY_M = 5e-4


@dataclass(frozen=True)
class Rays:
    """One sweep: N = beams * columns rays, row by row, possibly followed by further rays.

    Attributes:
        direction: f4 [N, 3], unit vectors; the beams' directions where there is no return.
        distance_m: f4 [returns, N], NaN where there is no return.
        intensity: f4 [returns, N], 0 to 1, NaN where there is no return.
        second_error_m: largest distance of a second return from its true position; 0 without
            second returns.
        beam_of_ray: int [rays - N], for each further ray the index of the ray that it repeats.
    """

    direction: Float32
    distance_m: Float32
    intensity: Float32
    second_error_m: float = 0.0
    beam_of_ray: npt.NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))


@dataclass(frozen=True)
class SpinningModel:
    """A spinning model: rows by descending elevation, columns along the spin.

    Attributes:
        direction: spin direction, seen from above.
        row_of_beam: int [beams], the model's row of each beam.
        row_elevations_rad, row_azimuth_offsets_rad: f8 [beams], in the order of the rows.
        column_azimuths_rad: f8 [columns], from x.
    """

    direction: Literal["cw", "ccw"]
    row_of_beam: npt.NDArray[np.intp]
    row_elevations_rad: Floats
    row_azimuth_offsets_rad: Floats
    column_azimuths_rad: Floats


@dataclass(frozen=True)
class OusterOptics:
    """The beams of one sensor.

    Attributes:
        beams, columns: shape of a sweep.
        altitude_rad, azimuth_rad: f8 [beams], or [beams, columns] if the angles differ by column.
        settings: further metadata: product, serial number, mode.
    """

    beams: int
    columns: int
    altitude_rad: Floats
    azimuth_rad: Floats
    beam_to_lidar_m: Floats
    lidar_to_sensor_m: Floats
    settings: dict[str, Any] = field(default_factory=dict)
    # Of each beam: direction, start, and the start's part along the beam and square.
    _beams: tuple[Float32, Float32, Float32, Float32] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        direction, start = self._compute_beams()
        along, square = np.sum(direction * start, axis=0), np.sum(start * start, axis=0)
        beams = tuple(values.astype(np.float32) for values in (direction, start, along, square))
        object.__setattr__(self, "_beams", beams)

    @classmethod
    def of_metadata(cls, text: str, where: str) -> OusterOptics:
        """Parse the sensor's metadata (``lidar.json``), in sections or in the older flat form.

        As long as optics are in use, equal texts give the same ones, whose arrays take some MB.

        Raises:
            FormatError: the text is not JSON, or lacks parameters; the message names `where`.
        """
        if (known := _IN_USE.get(text)) is not None:
            return known
        try:
            document = json.loads(text)
            flat: dict[str, Any] = dict(document)
            for section in ("beam_intrinsics", "lidar_intrinsics", "sensor_info", "config_params"):
                flat |= document.get(section) or {}
            layout = document.get("lidar_data_format") or document.get("data_format") or {}
            altitude = np.radians(np.array(flat["beam_altitude_angles"], np.float64))
            azimuth = np.radians(np.array(flat["beam_azimuth_angles"], np.float64))
            beams = int(layout.get("pixels_per_column") or len(altitude))
            mode = str(flat.get("lidar_mode") or "")
            columns = int(layout.get("columns_per_frame") or mode.split("x")[0])
            origin_mm = float(flat.get("lidar_origin_to_beam_origin_mm") or 0.0)
            beam = np.eye(4)
            beam[0, 3] = origin_mm
            if flat.get("beam_to_lidar_transform"):
                beam = np.array(flat["beam_to_lidar_transform"], np.float64).reshape(4, 4)
            mounting = flat.get("lidar_to_sensor_transform") or _LIDAR_TO_SENSOR
            sensor = np.array(mounting, np.float64).reshape(4, 4)
            if azimuth.shape != altitude.shape or altitude.shape[0] != beams:
                raise ValueError(f"{altitude.shape[0]} beam angles for {beams} beams")
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            text = f"{type(error).__name__}: {error}"
            raise FormatError(f"{where}: is not usable Ouster metadata: {text}") from None
        beam[:3, 3] *= 1e-3
        sensor[:3, 3] *= 1e-3
        keys = ("prod_line", "prod_pn", "prod_sn", "lidar_mode", "image_rev", "build_rev")
        settings = {key: str(flat[key]) for key in keys if flat.get(key)}
        if profile := layout.get("udp_profile_lidar"):
            settings["udp_profile_lidar"] = str(profile)
        made = cls(beams, columns, altitude, azimuth, beam, sensor, settings)
        _IN_USE[text] = made
        return made

    @property
    def frequency_hz(self) -> float | None:
        """Sweeps per second, from the mode (``1024x10``); None without a mode."""
        _, _, rate = self.settings.get("lidar_mode", "").partition("x")
        return float(rate) if rate.isdigit() and int(rate) else None

    @property
    def lines(self) -> tuple[Float32, Float32]:
        """The line of each pixel's points: unit vectors, and the points of range 0, in m.

        A point is ``start + direction * range``.

        Returns:
            two arrays f4 [3, beams * columns], in the sensor's frame.
        """
        return self._beams[:2]

    def _compute_beams(self) -> tuple[Floats, Floats]:
        """Return unit vectors of the beams, and points of range 0: f8 [3, beams * columns], m."""
        encoder = 2 * np.pi * (1 - np.arange(self.columns) / self.columns)
        shape = (self.beams, self.columns)
        altitude = np.broadcast_to(_to_columns(self.altitude_rad), shape)
        around = encoder - _to_columns(self.azimuth_rad)
        level = np.cos(altitude)
        beam = np.stack([np.cos(around) * level, np.sin(around) * level, np.sin(altitude)])
        out, up = self.beam_to_lidar_m[0, 3], self.beam_to_lidar_m[2, 3]
        start = np.stack(
            [
                np.broadcast_to(np.cos(encoder) * out, shape),
                np.broadcast_to(np.sin(encoder) * out, shape),
                np.full(shape, up),
            ]
        )
        # Ranges are measured from the lidar's origin, not from the beam's origin.
        start = (start - beam * np.hypot(out, up)).reshape(3, -1)
        turn, shift = self.lidar_to_sensor_m[:3, :3], self.lidar_to_sensor_m[:3, 3:]
        return turn @ beam.reshape(3, -1), turn @ start + shift

    def model(self) -> SpinningModel | None:
        """Return the spinning model; None where the beams cannot be ordered by elevation."""
        if self.altitude_rad.ndim != 1:
            return None
        order = np.argsort(-self.altitude_rad, kind="stable")
        elevations = self.altitude_rad[order]
        if len(elevations) > 1 and (np.diff(elevations.astype(np.float32)) >= 0).any():
            return None
        row_of_beam = np.empty(self.beams, np.intp)
        row_of_beam[order] = np.arange(self.beams)
        turn = self.lidar_to_sensor_m[:3, :3]
        if not np.allclose(turn[2], (0, 0, 1), atol=1e-6):
            return None  # mounted upside down or tilted within its housing
        yaw = np.arctan2(turn[1, 0], turn[0, 0])
        azimuths = yaw - 2 * np.pi * np.arange(self.columns) / self.columns
        azimuths = np.pi - (np.pi - azimuths) % (2 * np.pi)  # in (-pi, pi]
        return SpinningModel("cw", row_of_beam, elevations, -self.azimuth_rad[order], azimuths)

    def rays(
        self,
        ranges_mm: Sequence[npt.NDArray[Any]],
        reflectivity: Sequence[npt.NDArray[np.uint8]],
        *,
        own_rays: bool = False,
    ) -> Rays:
        """Convert a sweep to rays.

        Args:
            ranges_mm: for each return u4 [beams, columns], 0 without a return.
            reflectivity: for each return u1 [beams, columns].
            own_rays: whether second returns more than half a millimetre off the ray of the first
                return get separate rays, after all other rays.
        """
        beam, start, along, square = self._beams
        ranges = [v.reshape(-1).astype(np.float32) * np.float32(1e-3) for v in ranges_mm]
        hits = [values > 0 for values in ranges]
        # The first existing return determines the ray's direction.
        leading = ranges[0]
        for values, hit in zip(ranges[1:], hits[1:], strict=True):
            leading = np.where((leading > 0) | ~hit, leading, values)
        length = np.sqrt(leading * (leading + 2 * along) + square)
        some = leading > 0
        share = np.where(some, leading, np.float32(1)) / np.where(some, length, np.float32(1))
        rest = np.where(some, 1 / np.maximum(length, np.float32(1e-6)), np.float32(0))
        direction = np.empty((len(length), 3), np.float32)
        for axis in range(3):
            direction[:, axis] = beam[axis] * share + start[axis] * rest
        distance = np.empty((len(ranges), len(length)), np.float32)
        intensity = np.empty_like(distance)
        worst = 0.0
        nothing = np.float32(np.nan)
        moved: list[tuple[int, npt.NDArray[np.intp]]] = []
        for number, (values, hit) in enumerate(zip(ranges, hits, strict=True)):
            if number == 0:
                distance[0] = np.where(hit, length, nothing)
            else:
                distance[number], error = _project(values, hit, direction, beam, start)
                if own_rays:
                    moved.append((number, np.flatnonzero(error > _OWN_RAY_M)))
                    error[moved[-1][1]] = 0.0
                worst = max(worst, float(error.max(initial=0.0)))
            rfl = reflectivity[number].reshape(-1) * np.float32(1 / _REFLECTIVITY_RANGE)
            intensity[number] = np.where(hit, np.minimum(rfl, np.float32(1)), nothing)
        made = Rays(direction, distance, intensity, worst)
        for number, at in moved:
            points = (beam[:, at] * ranges[number][at] + start[:, at]).T
            made = _add_own_rays(made, number, at, points)
        return made


_IN_USE: WeakValueDictionary[str, OusterOptics] = WeakValueDictionary()
"""The optics that are in use, by the text of their metadata."""


def pixel_shifts(text: str, optics: OusterOptics, where: str) -> npt.NDArray[np.intp]:
    """Return the shift of each row in columns, so that a column has the same azimuth in all rows.

    Pixel ``c`` of row ``r`` moves to column ``(c + shift[r]) % columns``.  Metadata of old firmware
    have no shifts; they then come from the beams' azimuths.

    Args:
        text: the sensor's metadata, as for `OusterOptics.of_metadata`.
        optics: made of it.
        where: path of the metadata, for messages.

    Raises:
        FormatError: the metadata have shifts that are no whole numbers, or not one for each row.
    """
    document: dict[str, Any] = json.loads(text)
    layout = document.get("lidar_data_format") or document.get("data_format") or {}
    shifts = layout.get("pixel_shift_by_row")
    if not shifts:
        turns = optics.azimuth_rad.reshape(optics.beams, -1).mean(axis=1) / (2 * np.pi)
        return np.asarray(np.rint((turns - turns.min()) * optics.columns), np.intp)
    if not isinstance(shifts, list) or not all(type(shift) is int for shift in shifts):
        raise FormatError(f"{where}: pixel_shift_by_row: needs whole numbers")
    if len(shifts) != optics.beams:
        raise FormatError(
            f"{where}: pixel_shift_by_row: has {len(shifts)} rows, not {optics.beams}"
        )
    return np.array(shifts, np.intp)


def sweep_optics(
    text: str, where: str, shape: tuple[int, ...]
) -> tuple[OusterOptics, npt.NDArray[np.intp]]:
    """Parse the optics of sweeps of a shape, and their pixel shifts, int [beams].

    Raises:
        FormatError: the metadata cannot be used, or the shape is another one.
    """
    optics = OusterOptics.of_metadata(text, where)
    if shape != (optics.beams, optics.columns):
        raise FormatError(
            f"{where}: has {optics.beams} beams and {optics.columns} columns, the channel rng "
            f"has {list(shape)}"
        )
    return optics, pixel_shifts(text, optics, where)


def _add_own_rays(
    rays: Rays, number: int, at: npt.NDArray[np.intp], points: npt.NDArray[np.float32]
) -> Rays:
    """Move the returns with that number, of the rays at `at`, to separate rays."""
    length = np.linalg.norm(points, axis=1).astype(np.float32)
    shape = (len(rays.distance_m), len(at))
    distance = np.full(shape, np.nan, np.float32)
    intensity = distance.copy()
    distance[number], intensity[number] = length, rays.intensity[number, at]
    rays.distance_m[number, at] = rays.intensity[number, at] = np.nan
    return Rays(
        np.concatenate([rays.direction, points / length[:, None]]),
        np.concatenate([rays.distance_m, distance], axis=1),
        np.concatenate([rays.intensity, intensity], axis=1),
        rays.second_error_m,
        np.concatenate([rays.beam_of_ray, at]),
    )


def _project(
    ranges_m: Float32,
    hit: npt.NDArray[np.bool_],
    direction: Float32,
    beam: Float32,
    start: Float32,
) -> tuple[Float32, Floats]:
    """Return distances along rays to the points nearest to the true points, and the errors."""
    distance = np.full(len(ranges_m), np.nan, np.float32)
    error = np.zeros(len(ranges_m))
    at = np.flatnonzero(hit)
    points = (beam[:, at] * ranges_m[at] + start[:, at]).T.astype(np.float64)
    ray = direction[at].astype(np.float64)
    along = np.maximum(np.sum(points * ray, axis=1), 0.0)
    distance[at] = along
    error[at] = np.linalg.norm(points - ray * along[:, None], axis=1)
    return distance, error


def _to_columns(angles: Floats) -> Floats:
    return angles[:, None] if angles.ndim == 1 else angles
