"""The simulated device's positions on Earth: those of its filter, and those of its receiver.

Positions and velocities are exact: those of the simulated IMU's place.  World time 0 is
2024-06-01 12:00 UTC, and the world's origin lies at `ORIGIN`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from drivers._protocols.mti_gnss import Pvt, geodetic
from drivers._protocols.xbus_commands import PVT_HZ
from drivers.sim.gnss import earth_fixed
from drivers.sim.imu import Floats, SimulatedImu, Times

ORIGIN: Final = (48.2, 11.5, 480.0)
"""Latitude and longitude in degrees, height above the ellipsoid in m, of the world's origin."""

LATENCY_NS: Final = 45_000_000
"""Time from a position of the receiver to its message; that of a real MTi-G-710."""

_PERIOD_NS = 1_000_000_000 // PVT_HZ
_START = datetime(2024, 6, 1, 12, tzinfo=UTC)
_VALID = 0x37  # date, time, fully resolved; as a real receiver sends it
_GEOID_MM = 45_000


def utc_time(t_ns: int) -> tuple[int, ...]:
    """Return UtcTime (0x1010) of a world time: ns, year, month, day, h, min, s, valid flags."""
    seconds, nanosecond = divmod(t_ns, 1_000_000_000)
    t = _START + timedelta(seconds=seconds)
    return nanosecond, t.year, t.month, t.day, t.hour, t.minute, t.second, _VALID


def positions(imu: SimulatedImu, t_ns: Times) -> tuple[Floats, Floats, Floats]:
    """Return ECEF in m, (latitude, longitude, height), and velocity east, north, up in m/s."""
    enu_m, velocity = imu.place(t_ns / 1e9)
    points = earth_fixed(enu_m, ORIGIN)
    return points, np.array([geodetic(tuple(p)) for p in points.tolist()]), velocity


def receiver_times(first_ns: int, last_ns: int) -> range:
    """Return the world times of the receiver's positions sent after `first_ns`, until `last_ns`."""
    start, stop = (max(0, -(-(t - LATENCY_NS) // _PERIOD_NS)) for t in (first_ns, last_ns))
    return range(start * _PERIOD_NS, stop * _PERIOD_NS, _PERIOD_NS)


def receiver_data(imu: SimulatedImu, t_ns: int) -> Pvt:
    """Return the receiver's data at a world time."""
    _, ((latitude, longitude, height),), ((east, north, up),) = positions(imu, np.array([t_ns]))
    nanosecond, *date, valid = utc_time(t_ns)
    speed = math.hypot(east, north)
    heading = math.degrees(math.atan2(east, north)) % 360
    return Pvt._make(
        round(number)
        for number in (
            (t_ns // 1_000_000 + 561_600_000) % 604_800_000,  # that Saturday's noon, without leaps
            *date, valid, 20, nanosecond, 3, 1, 12, 0,
            longitude * 1e7, latitude * 1e7, height * 1e3, height * 1e3 - _GEOID_MM, 20, 30,
            north * 1e3, east * 1e3, -up * 1e3, speed * 1e3, heading * 1e5, 50, 100_000, 0,
            150, 130, 70, 110, 80, 55, 60,
        )
    )  # fmt: skip
