"""Positions on Earth: streams that hold them, and the Earth's frames.

A position stream has a channel f8 [3] with latitude and longitude in degrees and the height above
the ellipsoid in m; a position that was not measured is NaN.  The ellipsoid is that of WGS 84 (NIMA
TR8350.2, section 3): semi-major axis 6378137 m, flattening 1 / 298.257223563.  The Earth's frame is
ECEF: x to longitude 0, z to the north pole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recorder.processing.geometry import Floats, transform
from recorder.session.stream import Stream

_SEMI_MAJOR_M = 6_378_137.0
_FLATTENING = 1 / 298.257223563
_ECCENTRICITY_2 = _FLATTENING * (2 - _FLATTENING)


def position_channel(stream: Stream) -> str | None:
    """The channel with latitude, longitude (and height) in degrees; None without such a channel."""
    units = {} if stream.spec is None else {c.name: c.unit for c in stream.spec.channels}
    for name, entry in stream.meta.items():
        floats = np.dtype(entry["type"]).kind == "f" and entry["shape"] in ([2], [3])
        if floats and stream.has_times and len(stream):
            about = f"{entry.get('desc', '')} {name}".lower()
            degrees = units.get(name, "").startswith("deg")
            if "latitude" in about and (degrees or "longitude" in about):
                return name
    return None


def is_position(positions: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether latitude and longitude [..., 2 or 3] are a position: finite, in range, not (0, 0)."""
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
    """Rotations f8 [..., 3, 3] from east, north, up at positions [..., 2 or 3] (deg) to ECEF."""
    latitude, longitude = np.moveaxis(np.radians(np.asarray(positions)[..., :2]), -1, 0)
    sin_lat, cos_lat = np.sin(latitude), np.cos(latitude)
    sin_lon, cos_lon = np.sin(longitude), np.cos(longitude)
    east = np.stack([-sin_lon, cos_lon, 0 * latitude], axis=-1)
    north = np.stack([-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat], axis=-1)
    up = np.stack([cos_lat * cos_lon, cos_lat * sin_lon, sin_lat], axis=-1)
    return np.stack([east, north, up], axis=-1)


def local_to_earth(origin: npt.ArrayLike) -> Floats:
    """Transformation f8 [4, 4] from east, north, up (m) at a position [3] to ECEF."""
    return transform(local_axes(origin), earth_points(origin))
