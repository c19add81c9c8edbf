"""The spinning model of a lidar that is known by its points alone.

::

    model = derive_model([points, ...])          # of a few sweeps, with ring and t
    rows, columns = model.elements(points)
    model.spinning, model.frequency_hz, model.error_rad

A lidar spins if the azimuths of each ring change evenly with time.  The elevation of a ring is the
median of its points, and its azimuth offset is what the ring is ahead of the others at one time.
Points near the sensor do not count: beams begin some centimetres from the sensor's origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from recorder.perception.lidar.lidar import Floats, SpinningModel

_NEAR_M: Final = 4.0
_LEAST_POINTS: Final = 24
"""Points of a ring in a sweep from which its spin and its columns are computed."""
_FEWEST_POINTS: Final = 4
"""Points of a ring in a sweep from which its azimuth offset is computed."""
_FASTEST_HZ: Final = 100.0
_STEADY_RAD: Final = np.radians(1.0)
"""Largest typical deviation of a ring's azimuths from an even spin."""
_NEAREST_RAD: Final = np.radians(0.1)
"""Largest median error of the model besides half a column."""
_MOST_COLUMNS: Final = 65_535
_MOST_RINGS: Final = 1024
_TURN: Final = 2 * np.pi

Values = npt.NDArray[Any]
Elements = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class DerivedModel:
    """A spinning model with the places of points in it.

    Attributes:
        spinning: the model; its beams are the rings in `rings`.
        rings: [beams], the values of the field ``ring``, rising.
        frequency_hz: sweeps per second.
        error_rad: angle between a point and its element that 99 percent of the points are within.
    """

    spinning: SpinningModel
    rings: npt.NDArray[np.int64]
    frequency_hz: float
    error_rad: float

    def elements(self, points: Values | Mapping[str, Values]) -> Elements:
        """Return the model's row and column of each point that has a return, u2 [n, 2].

        A ring that had no point when the model was derived gets the row of the nearest elevation.

        Args:
            points: structured array [n], or arrays [n] by name, with x, y, z and ring.
        """
        spinning, columns = self.spinning, len(self.spinning.column_azimuths_rad)
        ring = points["ring"]
        at = np.searchsorted(self.rings, ring)
        np.minimum(at, len(self.rings) - 1, out=at)
        rows = spinning.row_of_beam[at]
        strange = np.flatnonzero(self.rings[at] != ring)
        if len(strange):
            elevation = _angles({axis: points[axis][strange] for axis in "xyz"})[1]
            away = elevation[:, None] - spinning.row_elevations_rad[None, :]
            rows[strange] = np.abs(away).argmin(axis=1)
        sign = 1 if spinning.direction == "ccw" else -1
        ahead_rad = spinning.row_azimuth_offsets_rad + spinning.column_azimuths_rad[0]
        column = np.arctan2(points["y"], points["x"]) - ahead_rad[rows]
        column *= sign * (columns / _TURN)
        np.rint(column, out=column)
        column -= columns * np.floor(column / columns)  # of whole numbers: exact
        made = np.empty((len(rows), 2), np.uint16)
        made[:, 0], made[:, 1] = rows, column
        return made


def derive_model(sweeps: Sequence[Values]) -> DerivedModel | None:
    """Derive the spinning model from points of a few sweeps.

    Args:
        sweeps: structured arrays with the fields x, y, z, ring, and t (ns).

    Returns:
        the model; None where the rings do not spin evenly, or where the median of the points is off
        by more than 0.1 degrees and half a column.
    """
    parts = [part for points in sweeps if len(part := _distant(points))]
    if not parts:
        return None
    pooled = _sort_by_ring(np.concatenate(parts))
    rings = np.unique(pooled["ring"])
    if len(rings) > _MOST_RINGS:
        return None
    spins = [spin for part in parts if (spin := _find_spin(part, rings)) is not None]
    if not spins or len({spin.sign for spin in spins}) > 1:
        return None
    spin = spins[0]
    offsets = _merge_offsets([spin.offsets_rad for spin in spins])
    rings, offsets = rings[~np.isnan(offsets)], offsets[~np.isnan(offsets)]
    _, elevation, _ = _angles(pooled)
    elevations = np.array([np.median(elevation[own]) for own in _find_rings(pooled, rings)])
    order = np.argsort(-elevations, kind="stable")
    if (np.diff(elevations[order].astype(np.float32)) >= 0).any():
        return None
    row_of_beam = np.empty(len(rings), np.intp)
    row_of_beam[order] = np.arange(len(rings))
    known = parts[0][np.isin(parts[0]["ring"], rings)]
    columns = _place_columns(known, rings, offsets, spin)
    if columns is None:
        return None
    direction: Literal["cw", "ccw"] = "ccw" if spin.sign > 0 else "cw"
    spinning = SpinningModel(
        direction, row_of_beam, elevations[order], offsets[order], _wrap(columns)
    )
    rate_hz = float(np.median([each.rate_rad_s for each in spins])) / _TURN
    model = DerivedModel(spinning, rings.astype(np.int64), rate_hz, 0.0)
    median = np.median(_errors_rad(model, pooled))
    if median > _NEAREST_RAD + np.pi / len(columns):
        return None
    return with_error(model, sweeps)


def with_error(model: DerivedModel, sweeps: Sequence[Values]) -> DerivedModel:
    """Return the model with its error, measured on the points of some sweeps."""
    parts = [part for points in sweeps if len(part := _distant(points))]
    if not parts:
        return model
    errors_rad = _errors_rad(model, np.concatenate(parts))
    return replace(model, error_rad=float(np.percentile(errors_rad, 99)))


@dataclass(frozen=True)
class _Spin:
    """How a sweep turned.

    Attributes:
        sign: 1 for counterclockwise seen from above, else -1.
        rate_rad_s: angular rate.
        offsets_rad: [rings], of each ring; NaN where it has too few points.
    """

    sign: int
    rate_rad_s: float
    offsets_rad: Floats


def _find_spin(points: Values, rings: Values) -> _Spin | None:
    places = _find_rings(points, rings)
    counts = [own.stop - own.start for own in places]
    if max(counts) < _LEAST_POINTS:
        return None
    fullest = points[places[counts.index(max(counts))]]
    fullest = fullest[np.argsort(fullest["t"], kind="stable")]
    t_s = fullest["t"].astype(np.float64) * 1e-9
    if t_s[-1] <= t_s[0]:
        return None
    azimuth = np.unwrap(_angles(fullest)[0])
    rate, at_zero = np.polyfit(t_s, azimuth, 1)
    deviation = azimuth - at_zero - rate * t_s
    if not 0 < abs(rate) < _FASTEST_HZ * _TURN or np.median(np.abs(deviation)) > _STEADY_RAD:
        return None
    phases = np.full(len(rings), np.nan)
    ahead = _angles(points)[0] - rate * points["t"].astype(np.float64) * 1e-9 - at_zero
    for at, own in enumerate(places):
        if counts[at] >= _FEWEST_POINTS:
            middle = np.angle(np.exp(1j * ahead[own]).mean())
            phases[at] = middle + np.median(_wrap(ahead[own] - middle))
    return _Spin(1 if rate > 0 else -1, abs(float(rate)), _wrap(phases - np.nanmedian(phases)))


def _merge_offsets(found: Sequence[Floats]) -> Floats:
    """Return the median of each ring over the sweeps that have the ring."""
    stacked = np.stack(found)
    known = ~np.isnan(stacked).all(axis=0)
    merged = np.full(stacked.shape[1], np.nan)
    merged[known] = np.nanmedian(stacked[:, known], axis=0)
    return np.asarray(merged - np.nanmean(merged))


def _place_columns(points: Values, rings: Values, offsets: Floats, spin: _Spin) -> Floats | None:
    """Return the azimuths of the columns of a turn, from the column of the earliest point."""
    of_ring = offsets[np.searchsorted(rings, points["ring"])]
    turned = spin.sign * (_angles(points)[0] - of_ring)
    steps = []
    for own in _find_rings(points, rings):
        between = np.diff(np.sort(turned[own] % _TURN))
        between = between[between > 1e-5]
        if len(between) >= _LEAST_POINTS:
            step = float(np.percentile(between, 20))
            whole = np.rint(between / step)
            steps.append(float(between[whole == 1].mean()))
    if not steps:
        return None
    count = round(_TURN / float(np.median(steps)))
    if not 1 < count <= _MOST_COLUMNS:
        return None
    step = _TURN / count
    # Where in a step the points lie, and the first column of the sweep.
    within = float(np.angle(np.exp(1j * turned * count).mean())) / count
    first = float(turned[points["t"].argmin()])
    start = within + np.floor((first - within) / step + 0.5) * step
    return np.asarray(spin.sign * (start + step * np.arange(count)))


def _errors_rad(model: DerivedModel, points: Values) -> Floats:
    """Return the angle between each point and its element, f8 [n]."""
    rows, columns = model.elements(points).astype(np.intp).T
    azimuth, elevation, _ = _angles(points)
    spinning = model.spinning
    across = azimuth - spinning.row_azimuth_offsets_rad[rows]
    across -= spinning.column_azimuths_rad[columns]
    along = elevation - spinning.row_elevations_rad[rows]
    return np.asarray(np.hypot(_wrap(across) * np.cos(elevation), along))


def _distant(points: Values) -> Values:
    """Return the points that are not near the sensor; all returns of rings with few such points."""
    with np.errstate(invalid="ignore"):
        distance = _angles(points)[2]
        far, near = distance >= _NEAR_M, (distance > 0) & (distance < _NEAR_M)
    rings, counts = np.unique(points["ring"][far], return_counts=True)
    full = np.isin(points["ring"], rings[counts >= _LEAST_POINTS])
    return _sort_by_ring(points[far | (near & ~full)])


def _sort_by_ring(points: Values) -> Values:
    ordered: Values = points[np.argsort(points["ring"], kind="stable")]
    return ordered


def _find_rings(points: Values, rings: Values) -> list[slice]:
    """Return the place of each ring among points that are sorted by ring."""
    first, last = (np.searchsorted(points["ring"], rings, side) for side in ("left", "right"))
    return [slice(start, stop) for start, stop in zip(first.tolist(), last.tolist(), strict=True)]


def _angles(points: Values | Mapping[str, Values]) -> tuple[Floats, Floats, Floats]:
    """Return azimuth from x, elevation (rad), and distance (m) of points, f8 [n] each."""
    x, y, z = (points[axis].astype(np.float64) for axis in "xyz")
    level = np.hypot(x, y)
    return np.arctan2(y, x), np.arctan2(z, level), np.hypot(level, z)


def _wrap(angles: Floats) -> Floats:
    """Return angles in (-pi, pi]."""
    return np.pi - (np.pi - angles) % _TURN
