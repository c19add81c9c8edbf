"""Xsens logs for tests: made up ones, and the golden values beside the real ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from drivers.xsens.mtdata2 import Coordinates, MtData2, Precision, encode_mtdata2
from drivers.xsens.packets import MID_MTDATA2, encode_message

Angles = tuple[float, float, float]


def quaternion(roll: float, pitch: float, yaw: float) -> tuple[float, ...]:
    """q_z(yaw) q_y(pitch) q_x(roll), multiplied out step by step."""
    q = (1.0, 0.0, 0.0, 0.0)
    for angle, axis in ((yaw, 3), (pitch, 2), (roll, 1)):
        r = [math.cos(angle / 2), 0.0, 0.0, 0.0]
        r[axis] = math.sin(angle / 2)
        w, x, y, z = q
        a, b, c, d = r
        q = (
            w * a - x * b - y * c - z * d,
            w * b + x * a + y * d - z * c,
            w * c - x * d + y * a + z * b,
            w * d + x * c - y * b + z * a,
        )
    return q


def matrix(roll: float, pitch: float, yaw: float) -> tuple[float, ...]:
    """The rotation matrix of `quaternion`, column by column: where the unit vectors go."""
    w, x, y, z = quaternion(roll, pitch, yaw)
    columns = []
    for vx, vy, vz in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)):
        # v + 2 w (q x v) + 2 q x (q x v)
        cx, cy, cz = y * vz - z * vy, z * vx - x * vz, x * vy - y * vx
        dx, dy, dz = y * cz - z * cy, z * cx - x * cz, x * cy - y * cx
        columns += [vx + 2 * (w * cx + dx), vy + 2 * (w * cy + dy), vz + 2 * (w * cz + dz)]
    return tuple(columns)


def orientation(kind: str, angles: Angles) -> dict[str, Any]:
    """The field of `MtData2` that gives `angles` (rad) in the way `kind`."""
    if kind == "euler_angles":
        return {kind: tuple(math.degrees(angle) for angle in angles)}
    return {kind: quaternion(*angles) if kind == "quaternion" else matrix(*angles)}


def angles_of(k: int) -> Angles:
    """Orientation of the k-th sample of a made up log."""
    return 0.4 * math.sin(0.11 * k), 0.3 * math.cos(0.07 * k), math.pi * math.sin(0.05 * k)


def acceleration_of(k: int) -> tuple[float, ...]:
    """Exact in all four encodings."""
    return (k % 512) / 256, -1.5, 9.8125


def rate_of_turn_of(k: int) -> tuple[float, ...]:
    """Exact in all four encodings."""
    return -(k % 64) / 64, 0.25, 0.5


def message(
    values: MtData2,
    precision: Precision = Precision.FLOAT32,
    coordinates: Coordinates = Coordinates.ENU,
) -> bytes:
    """A whole Xbus message."""
    return encode_message(MID_MTDATA2, encode_mtdata2(values, precision, coordinates))


def sample(
    k: int,
    *,
    counter: int | None = None,
    ticks: int | None = None,
    kind: str | None = "quaternion",
    precision: Precision = Precision.FLOAT32,
    coordinates: Coordinates = Coordinates.ENU,
    **more: Any,
) -> bytes:
    """The k-th inertial message of a made up log."""
    values = MtData2(
        packet_counter=counter,
        sample_time_fine=ticks,
        acceleration=acceleration_of(k),
        rate_of_turn=rate_of_turn_of(k),
        **(orientation(kind, angles_of(k)) if kind else {}),
        **more,
    )
    return message(values, precision, coordinates)


def log(count: int, *, first: int = 0, start_ticks: int = 5_000_000, **form: Any) -> list[bytes]:
    """`count` messages at 100 Hz with packet counter and SampleTimeFine."""
    return [
        sample(k, counter=k % 65536, ticks=(start_ticks + 100 * k) % 2**32, **form)
        for k in range(first, first + count)
    ]


class UtcTime(NamedTuple):
    """UTC time (0x1010); `valid`: bit 0 date, bit 1 time of day, bit 2 fully resolved."""

    nanosecond: int
    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    valid: int


_FIELDS = {
    "Temperature": "temperature",
    "UTCTime": "utc_time",
    "PacketCounter": "packet_counter",
    "SampleTimeFine": "sample_time_fine",
    "EulerAngles": "euler_angles",
    "DeltaV": "delta_v",
    "Acceleration": "acceleration",
    "AltitudeEllipsoid": "altitude_ellipsoid",
    "LatLon": "latitude_longitude",
    "GNSSPVTData": "gnss_pvt",
    "RateOfTurn": "rate_of_turn",
    "DeltaQ": "delta_q",
    "VelocityXYZ": "velocity",
    "StatusByte": "status_byte",
    "StatusWord": "status_word",
}


def read_golden(path: Path) -> Iterator[dict[str, Any]]:
    """Messages of an ``output.golden`` file as mappings of `MtData2` field to value."""
    for block in path.read_text().strip().split("\n\n"):
        values: dict[str, Any] = {}
        for packet in re.split(r"\n(?=\S)", block.strip("\n")):
            title, *lines = packet.split("\n")
            name = _FIELDS[title.rstrip(":").partition("(")[0]]
            texts = [line.strip() for line in lines]
            if name.startswith("status_"):
                values[name] = int(texts[0], 2)
            elif name == "utc_time":
                values[name] = _utc(texts[0])
            else:
                numbers = [
                    float(number) if re.search(r"[.e]", number) else int(number)
                    for number in (text.rpartition(":")[2] for text in texts)
                ]
                values[name] = numbers[0] if len(numbers) == 1 else tuple(numbers)
        yield values


def _utc(text: str) -> UtcTime:
    """The golden file does not tell the validity flags; 0 stands for them."""
    date, _, fraction = text.removesuffix("Z").partition(".")
    t = datetime.fromisoformat(date)
    nanosecond = int(fraction.ljust(9, "0")) if fraction else 0
    return UtcTime(nanosecond, t.year, t.month, t.day, t.hour, t.minute, t.second, 0)
