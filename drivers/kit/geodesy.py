"""Positions on Earth: ECEF, and latitude, longitude and height on WGS 84 (NIMA TR8350.2)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_A, _E2 = 6_378_137.0, (2 - 1 / 298.257223563) / 298.257223563


def geodetic(point: tuple[float, ...]) -> tuple[float, float, float]:
    """Convert ECEF in m to latitude and longitude in deg and height in m on WGS 84."""
    x, y, z = point
    level = math.hypot(x, y)
    latitude = math.atan2(z, level * (1 - _E2))
    for _ in range(8):  # converges to 1e-15 rad below 1000 km of height
        normal = _A / math.sqrt(1 - _E2 * math.sin(latitude) ** 2)
        latitude = math.atan2(z + _E2 * normal * math.sin(latitude), level)
    height = level * math.cos(latitude) + z * math.sin(latitude)
    height -= _A * math.sqrt(1 - _E2 * math.sin(latitude) ** 2)
    return math.degrees(latitude), math.degrees(math.atan2(y, x)), height


def earth_fixed(enu_m: Floats, origin: tuple[float, float, float]) -> Floats:
    """Convert points in the world to ECEF in m, f8 [n, 3].

    Args:
        enu_m: east, north, up of the origin, f8 [n, 3].
        origin: latitude and longitude in deg, height above the ellipsoid in m.
    """
    latitude, longitude = (math.radians(angle) for angle in origin[:2])
    sin_lat, cos_lat = math.sin(latitude), math.cos(latitude)
    sin_lon, cos_lon = math.sin(longitude), math.cos(longitude)
    normal = _A / math.sqrt(1 - _E2 * sin_lat * sin_lat)
    level = (normal + origin[2]) * cos_lat
    upright = (normal * (1 - _E2) + origin[2]) * sin_lat
    centre = np.array([level * cos_lon, level * sin_lon, upright])
    rows = [  # east, north, up
        [-sin_lon, cos_lon, 0.0],
        [-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat],
        [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat],
    ]
    found: Floats = centre + enu_m @ np.array(rows)
    return found
