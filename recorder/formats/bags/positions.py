"""Messages with positions on Earth: NavSatFix, LocationFix, and this recorder's JSON.

Positions are those of a position stream: latitude and longitude in degrees and height above the
WGS 84 ellipsoid in m.  The messages' covariances are of east, north, up (sensor_msgs/NavSatFix,
foxglove.LocationFix); a `Position` has north, east, down.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.formats.bags.messages import (
    Decode,
    Floats,
    Kind,
    number_row,
    timestamp,
    whole,
)
from recorder.formats.bags.protobuf import ProtobufReader
from recorder.formats.ros2.codec import decode_message
from recorder.formats.ros2.definitions import NAV_SAT_FIX
from recorder.formats.ros2.messages import NavSatFix

_SECOND: Final = 1_000_000_000
_NAN3: Final = (math.nan,) * 3
_NAN9: Final = (math.nan,) * 9
_ROWS: Final = {"pos": 3, "vel": 3, "cov": 9}
_BYTES: Final = frozenset({"fix", "sats", "quality"})
_STATUS_NO_FIX: Final = -1
_NO_FIX, _FIX_2D, _FIX_3D = 0, 2, 3


@dataclass(frozen=True, slots=True)
class Position:
    """One position.

    Attributes:
        stamp_ns: epoch ns.
        frame_id: frame of the antenna; "": unknown.
        pos: latitude, longitude in deg, height in m [3]; NaN: unknown.
        fix: 0 none, 2 without a height, 3 with a height; the recorder's own streams may have other
            values.
        vel: north, east, down in m/s [3]; NaN: unknown; None: no field for it.
        cov: covariance of north, east, down in m^2 [9], row by row; NaN: unknown; None: no field
            for it.
        more: further channels of the recorder's own streams: ``sats``, ``quality``, ``utc``.
        t_dev_ns: the device's own time; None: unknown.
    """

    stamp_ns: int
    frame_id: str
    pos: Floats
    fix: int
    vel: Floats | None = None
    cov: Floats | None = None
    more: Mapping[str, int] = field(default_factory=dict)
    t_dev_ns: int | None = None


def decode_ros2_position(data: Buffer) -> Position:
    """Decode a ``sensor_msgs/msg/NavSatFix``.

    The status -1 means no fix. Publishers that set no status send -2 (since ROS 2 Rolling), which
    says nothing about the position.
    """
    fix: NavSatFix = decode_message(NAV_SAT_FIX, data)
    known = fix.position_covariance_type != 0
    pos = _NAN3 if fix.status == _STATUS_NO_FIX else (fix.latitude, fix.longitude, fix.altitude)
    cov = _convert_to_ned(fix.position_covariance) if known else _NAN9
    return Position(fix.header.stamp_ns, fix.header.frame_id, pos, _find_fix(pos), cov=cov)


def decode_foxglove_position(data: Buffer) -> Position:
    """Decode a ``foxglove.LocationFix``; its velocity is east, north, up."""
    what = "foxglove.LocationFix"
    fix = ProtobufReader(data, what)
    pos = fix.double(1), fix.double(2), fix.double(3)
    covariance = fix.doubles(4)
    if fix.integer(5) and len(covariance) != 9:
        raise FormatError(f"{what}: position_covariance has {len(covariance)} numbers, not 9")
    cov = _convert_to_ned(covariance) if fix.integer(5) else _NAN9
    vel: Floats = _NAN3
    if fix.messages(11):
        east, north, up = (fix.message(11).double(number) for number in (1, 2, 3))
        vel = north, east, -up
    return Position(timestamp(fix.message(6)), fix.text(7), pos, _find_fix(pos), vel, cov)


def decode_json_position(data: Buffer) -> Position:
    """Decode a sample of a position stream in the JSON of this recorder's archives and live views.

    ``{"timestamp": {"sec", "nsec"}, "pos": [3], "fix"}``, and where they are recorded ``vel``,
    ``cov``, ``sats``, ``quality``, ``utc``, ``t_dev``; null is a value that is not finite.
    """
    what = "JSON of a position"
    try:
        values = json.loads(bytes(data))
        stamp = values["timestamp"]
        stamp_ns = whole(stamp["sec"]) * _SECOND + whole(stamp["nsec"])
        rows = {n: number_row(values, n, size) for n, size in _ROWS.items() if n in values}
        numbers = {name: whole(values[name]) for name in (*_BYTES, "utc") if name in values}
        for name in _BYTES & numbers.keys():
            if not 0 <= numbers[name] <= 255:
                raise ValueError(f"{name} is not a number from 0 to 255")
        pos, fix = rows.pop("pos"), numbers.pop("fix")
        t_dev_ns = whole(values["t_dev"]) if "t_dev" in values else None
    except KeyError as error:
        raise FormatError(f"{what}: has no {error.args[0]}") from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{what}: {type(error).__name__}: {str(error)[:80]}") from None
    vel, cov = rows.get("vel"), rows.get("cov")
    return Position(stamp_ns, "", pos, fix, vel, cov, numbers, t_dev_ns)


def _find_fix(pos: Floats) -> int:
    if not (math.isfinite(pos[0]) and math.isfinite(pos[1])):
        return _NO_FIX
    return _FIX_3D if math.isfinite(pos[2]) else _FIX_2D


def _convert_to_ned(enu: Sequence[float]) -> Floats:
    """Convert a covariance [9] of east, north, up to north, east, down."""
    ee, en, eu, ne, nn, nu, ue, un, uu = enu
    return nn, ne, -nu, en, ee, -eu, -un, -ue, uu


POSITION_DECODERS: Final[Mapping[tuple[str, str], tuple[Kind, Decode]]] = {
    ("cdr", NAV_SAT_FIX): (Kind.POSITIONS, decode_ros2_position),
    ("protobuf", "foxglove.LocationFix"): (Kind.POSITIONS, decode_foxglove_position),
}
"""Kind and decoder by encoding and schema, as `recorder.formats.bags.messages.DECODERS`."""
