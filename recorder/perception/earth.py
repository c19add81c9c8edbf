"""Positions on Earth: streams that contain them, and the Earth's frames.

A position stream has a channel f8 [3] with latitude and longitude in degrees and the height above
the ellipsoid in m; a position that was not measured is NaN.  The ellipsoid is that of WGS 84 (NIMA
TR8350.2, section 3): semi-major axis 6378137 m, flattening 1 / 298.257223563.  The Earth's frame is
ECEF: x to longitude 0, z to the north pole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import StreamSpec
from recorder.perception.geometry import Floats, apply, invert, transform
from recorder.session.stream import Stream

_SEMI_MAJOR_M = 6_378_137.0
_FLATTENING = 1 / 298.257223563
_ECCENTRICITY_2 = _FLATTENING * (2 - _FLATTENING)


def position_channel(stream: Stream) -> str | None:
    """Return the channel with latitude, longitude (and height) in degrees; None without one."""
    units = {} if stream.spec is None else {c.name: c.unit for c in stream.spec.channels}
    name = _find_position_channel(stream.meta, units)
    return name if name is not None and stream.has_times and len(stream) else None


def declared_position(spec: StreamSpec) -> str | None:
    """Return the channel of positions by a stream's declaration; the stream may have no sample yet.

    See `position_channel`.
    """
    return _find_position_channel(spec.meta(), {c.name: c.unit for c in spec.channels})


def _find_position_channel(
    meta: Mapping[str, Mapping[str, Any]], units: Mapping[str, str]
) -> str | None:
    for name, entry in meta.items():
        if np.dtype(entry["type"]).kind == "f" and entry["shape"] in ([2], [3]):
            about = f"{entry.get('desc', '')} {name}".lower()
            degrees = units.get(name, "").startswith("deg")
            if "latitude" in about and (degrees or "longitude" in about):
                return name
    return None


def is_position(positions: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return where latitude and longitude [..., 2 or 3] are valid: finite, in range, not (0, 0)."""
    latitude, longitude = np.moveaxis(np.asarray(positions)[..., :2], -1, 0)
    inside = (np.abs(latitude) <= 90) & (np.abs(longitude) <= 180)  # False where one is NaN
    found: npt.NDArray[np.bool_] = inside & ((latitude != 0) | (longitude != 0))
    return found


def earth_points(positions: npt.ArrayLike) -> Floats:
    """Convert latitude, longitude (deg) and height (m), f8 [..., 3], to ECEF in m, f8 [..., 3]."""
    latitude, longitude, height = np.moveaxis(np.asarray(positions, np.float64), -1, 0)
    sine, cosine = np.sin(np.radians(latitude)), np.cos(np.radians(latitude))
    normal = _SEMI_MAJOR_M / np.sqrt(1 - _ECCENTRICITY_2 * sine * sine)
    level = (normal + height) * cosine
    east = np.radians(longitude)
    up = (normal * (1 - _ECCENTRICITY_2) + height) * sine
    return np.stack([level * np.cos(east), level * np.sin(east), up], axis=-1)


def local_axes(positions: npt.ArrayLike) -> Floats:
    """Return rotations f8 [..., 3, 3] from east, north, up to ECEF.

    Positions are latitude and longitude in degrees, [..., 2 or 3]; a height is not used.
    """
    latitude, longitude = np.moveaxis(np.radians(np.asarray(positions)[..., :2]), -1, 0)
    sin_lat, cos_lat = np.sin(latitude), np.cos(latitude)
    sin_lon, cos_lon = np.sin(longitude), np.cos(longitude)
    east = np.stack([-sin_lon, cos_lon, 0 * latitude], axis=-1)
    north = np.stack([-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat], axis=-1)
    up = np.stack([cos_lat * cos_lon, cos_lat * sin_lon, sin_lat], axis=-1)
    return np.stack([east, north, up], axis=-1)


def local_to_earth(origin: npt.ArrayLike) -> Floats:
    """Return the transformation f8 [4, 4] from east, north, up (m) at a position [3] to ECEF."""
    return transform(local_axes(origin), earth_points(origin))


def local_track(positions: npt.ArrayLike, origin: Floats | None) -> tuple[Floats, Floats | None]:
    """Convert positions to metres east, north and up of an origin.

    Args:
        positions: latitude, longitude (deg) and height (m) [n, 3], or without the height [n, 2].
        origin: f8 [3]; None: the first position.

    Returns:
        f8 [n, 3], NaN where there is no position; and the origin, None before the first position.
        A height that is not known counts as the origin's, or as 0.
    """
    given = np.asarray(positions, np.float64)
    found = np.full((len(given), 3), np.nan)
    found[:, : given.shape[1]] = given
    good = is_position(found)
    places = found[good]
    if origin is None and len(places):
        origin = np.nan_to_num(places[0], posinf=0.0, neginf=0.0)
    track = np.full((len(given), 3), np.nan)
    if origin is not None:
        places[:, 2] = np.where(np.isfinite(places[:, 2]), places[:, 2], origin[2])
        track[good] = apply(invert(local_to_earth(origin)), earth_points(places))
    return track, origin
