"""Times and places of satellite navigation: channels, GPS time and UTC, ECEF and WGS 84.

WGS 84 is that of NIMA TR8350.2.  GPS time counts seconds since 1980-01-06 00:00 UTC without leap
seconds.  The table of leap seconds is that of IERS Bulletin C; none was announced after 2017-01-01.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import ChannelSpec

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


POSITION: Final = ChannelSpec(
    "pos", "raw", "f8", (3,), "latitude, longitude, height above the ellipsoid; NaN: none", "deg, m"
)
VELOCITY: Final = ChannelSpec(
    "vel", "raw", "f4", (3,), "velocity north, east, down; NaN: none", "m/s"
)
FIX: Final = ChannelSpec(
    "fix", "raw", "u1", (), "the receiver's fix: 0 none, 1 dead reckoning, 2 2D, 3 3D, 4 with "
    "dead reckoning, 5 time alone",
)  # fmt: skip
SATELLITES: Final = ChannelSpec("sats", "raw", "u1", (), "satellites in use")

SECOND_NS: Final = 1_000_000_000
WEEK_NS: Final = 604_800 * SECOND_NS
DAY_NS: Final = 86_400 * SECOND_NS
GPS_EPOCH_NS: Final = 315_964_800 * SECOND_NS
"""1980-01-06 as ns since 1970."""
_LEAPS: Final = (  # UTC days before which a second was inserted, since 1980
    *("1981-07-01", "1982-07-01", "1983-07-01", "1985-07-01", "1988-01-01", "1990-01-01"),
    *("1991-01-01", "1992-07-01", "1993-07-01", "1994-07-01", "1996-01-01", "1997-07-01"),
    *("1999-01-01", "2006-01-01", "2009-01-01", "2012-07-01", "2015-07-01", "2017-01-01"),
)
_LEAP_NS: Final = tuple(
    round(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * SECOND_NS for day in _LEAPS
)


def count_leap_seconds(utc_ns: int) -> int:
    """Return GPS time minus UTC in s at epoch ns of UTC, by the table."""
    return bisect_right(_LEAP_NS, utc_ns)


def convert_utc_to_gps(utc_ns: int, leaps: int | None = None) -> int:
    """Convert UTC to GPS time, ns since 1980-01-06.

    Args:
        utc_ns: UTC, ns since 1970.
        leaps: GPS time minus UTC in s, as the receiver reports; None: by the table.
    """
    seconds = count_leap_seconds(utc_ns) if leaps is None else leaps
    return utc_ns - GPS_EPOCH_NS + seconds * SECOND_NS


def convert_gps_to_utc(gps_ns: int, leaps: int | None = None) -> int:
    """Convert GPS time to UTC, ns since 1970; the inverse of `convert_utc_to_gps`."""
    if leaps is None:
        near = gps_ns + GPS_EPOCH_NS - 18 * SECOND_NS
        leaps = count_leap_seconds(near)
        leaps = count_leap_seconds(gps_ns + GPS_EPOCH_NS - leaps * SECOND_NS)
    return gps_ns + GPS_EPOCH_NS - leaps * SECOND_NS


def wrap_to_cycle(difference: int, cycle: int) -> int:
    """Reduce a difference of times, known up to whole cycles, to the nearest cycle."""
    return (difference + cycle // 2) % cycle - cycle // 2
