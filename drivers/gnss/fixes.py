"""Positions in satellite receivers' messages, each as a part of an epoch.

pyubx2, pynmeagps and pysbf2 decode the messages.  A receiver sends several messages for an epoch
(position, covariance, ...): `drivers.gnss.epochs` joins those of one time.  No I/O and
no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from typing import Any, Final

import numpy as np

from drivers.gnss.packets import NMEA, SBF, UBX, Frame
from drivers.kit.satellite_navigation import (
    FIX,
    GPS_EPOCH_NS,
    POSITION,
    SATELLITES,
    SECOND_NS,
    VELOCITY,
    WEEK_NS,
    convert_gps_to_utc,
    convert_utc_to_gps,
    wrap_to_cycle,
)
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import SourceError, need_extra

NONE, DEAD_RECKONING, FIX_2D, FIX_3D, COMBINED, TIME_ONLY = range(6)
AUTONOMOUS, DIFFERENTIAL, RTK_FIXED, RTK_FLOAT, ESTIMATED = 1, 2, 4, 5, 6
"""Values of the channel ``quality``, as in NMEA's GGA."""
CHANNELS: Final = (
    POSITION,
    VELOCITY,
    FIX,
    ChannelSpec(
        "cov", "raw", "f4", (3, 3), "covariance of the position north, east, down; NaN: unknown",
        "m^2",
    ),
    SATELLITES,
    ChannelSpec("utc", "raw", "i8", (), "UTC since 1970", "ns"),
    ChannelSpec(
        "quality", "raw", "u1", (), "0 none, 1 autonomous, 2 differential, 4 RTK fixed, 5 RTK "
        "float, 6 estimated",
    ),
)  # fmt: skip
NO_VECTOR: Final = (math.nan,) * 3
"""A position or a velocity that is not known."""
_KNOT: Final = 1852 / 3600
_SBF_NONE: Final = -1e10
"""SBF marks unknown values with -2e10."""


def gnss_spec(name: str, rate_hz: float, finite: bool, settings: Mapping[str, Any]) -> StreamSpec:
    """Return the declaration of a receiver's stream."""
    return StreamSpec(
        name=name,
        channels=CHANNELS,
        rate_hz=rate_hz,
        device_clock=True,
        finite=finite,
        description="position on Earth (GNSS)",
        settings=dict(settings),
    )


@dataclass(slots=True)
class Part:
    """Content of one message about an epoch.

    Attributes:
        kind: of the message; an epoch has each kind once.
        day_ns: UTC of the day, ns; None where `gps_ns` is known.
        gps_ns: GPS time, ns since 1980; None if the message does not have it.
        week_ns: GPS time of the week; None if the message does not have it.
        values: of channels.
        last: no further message belongs to the epoch.
        leaps: GPS time minus UTC in s; None if the message does not have it.
        sender: talker of NMEA, device of gpsd; else "".
        timeless: the kind has no time; the message belongs to the epoch that is under way.
    """

    kind: str
    day_ns: int | None = None
    gps_ns: int | None = None
    week_ns: int | None = None
    values: dict[str, Any] = field(default_factory=dict)
    last: bool = False
    leaps: int | None = None
    sender: str = ""
    timeless: bool = False

    @property
    def place(self) -> tuple[float, ...] | None:
        """The message's position; None for a kind without one."""
        found = (self.values.get(key) for key in ("pos", "pos_of_rmc", "pos_exact"))
        return next((place for place in found if place is not None), None)

    @property
    def shared(self) -> tuple[int | None, int | None]:
        """The times that all messages of one epoch share: of the week and of the day, in ns."""
        return self.week_ns, self.day_ns


def make_decoder(protocol: str) -> Callable[[Frame], Part | None]:
    """Return the decoder of a protocol's frames.

    Raises:
        SourceError: the extra is not installed.
    """
    try:
        match protocol:
            case "ubx":
                from pyubx2 import UBXReader as Reader
            case "nmea":
                from pynmeagps import NMEAReader as Reader
            case _:
                from pysbf2 import SBFReader as Reader
    except ImportError as error:
        raise SourceError(f"{need_extra('gnss')}: {error}") from None
    parts = {UBX: _UBX_PARTS, NMEA: _NMEA_PARTS, SBF: _SBF_PARTS}[protocol]

    def decode(frame: Frame) -> Part | None:
        if frame.protocol != protocol or (part := parts.get(frame.name)) is None:
            return None
        try:
            found = part(Reader.parse(frame.data))
        except Exception:  # noqa: BLE001  of a library, for a frame whose checksum is right
            return None
        found.sender = frame.talker
        return found

    return decode


# --- UBX ------------------------------------------------------------------------------------------


def _nav_pvt(m: Any) -> Part:
    fix = int(m.fixType) if m.gnssFixOk else NONE
    valid = fix in (DEAD_RECKONING, FIX_2D, FIX_3D, COMBINED)
    quality = {1: RTK_FLOAT, 2: RTK_FIXED}.get(int(m.carrSoln))
    if quality is None:
        quality = DIFFERENTIAL if m.diffSoln else AUTONOMOUS
    level, upright = m.hAcc / 1e3, m.vAcc / 1e3
    part = Part("NAV-PVT", week_ns=int(m.iTOW) * 1_000_000)
    part.values = {
        "pos": (m.lat, m.lon, m.height / 1e3) if valid else NO_VECTOR,
        "vel": (m.velN / 1e3, m.velE / 1e3, m.velD / 1e3) if valid else NO_VECTOR,
        "fix": fix,
        "sats": int(m.numSV),
        "quality": quality if valid else 0,
    }
    if valid:  # NAV-COV is better, where it is sent
        part.values["accuracy"] = np.diag([level * level, level * level, upright * upright])
    if m.validDate and m.validTime:
        date = datetime(m.year, m.month, m.day, m.hour, m.min, tzinfo=UTC)
        utc_ns = (round(date.timestamp()) + m.second) * SECOND_NS + m.nano
        part.values["utc"] = utc_ns
        # The time of the week has the leap seconds that UTC lacks.
        ahead = (part.week_ns or 0) - (utc_ns - GPS_EPOCH_NS)
        part.leaps = round(wrap_to_cycle(ahead, WEEK_NS) / SECOND_NS)
        part.gps_ns = convert_utc_to_gps(utc_ns, part.leaps)
    return part


def _nav_hpposllh(m: Any) -> Part:
    part = Part("NAV-HPPOSLLH", week_ns=int(m.iTOW) * 1_000_000)
    if not m.invalidLlh:
        part.values["pos_exact"] = (m.lat, m.lon, m.height / 1e3)
    return part


def _nav_cov(m: Any) -> Part:
    part = Part("NAV-COV", week_ns=int(m.iTOW) * 1_000_000)
    if m.posCovValid:
        nn, ne, nd = m.posCovNN, m.posCovNE, m.posCovND
        ee, ed, dd = m.posCovEE, m.posCovED, m.posCovDD
        part.values["cov"] = [[nn, ne, nd], [ne, ee, ed], [nd, ed, dd]]
    return part


def _nav_eoe(m: Any) -> Part:
    return Part("NAV-EOE", week_ns=int(m.iTOW) * 1_000_000, last=True)


_UBX_PARTS: Final = {
    "01 07": _nav_pvt, "01 14": _nav_hpposllh, "01 36": _nav_cov, "01 61": _nav_eoe,
}  # fmt: skip


# --- NMEA -----------------------------------------------------------------------------------------


def _day_ns(value: Any) -> int | None:
    if not isinstance(value, time):
        return None
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * SECOND_NS + value.microsecond * 1000


def read_number(value: Any) -> float:
    """Return a field's number; NaN for an empty field."""
    return math.nan if value in ("", None) else float(value)


def _gga(m: Any) -> Part:
    quality = int(m.quality or 0)
    part = Part("GGA", day_ns=_day_ns(m.time))
    height = read_number(m.alt) + read_number(m.sep)
    part.values = {
        "pos": (read_number(m.lat), read_number(m.lon), height) if quality else NO_VECTOR,
        "sats": int(m.numSV or 0),
        "quality": quality if quality in (1, 2, 4, 5, 6) else min(quality, 1),
        "fix_of_gga": DEAD_RECKONING if quality == ESTIMATED else FIX_3D if quality else NONE,
    }
    return part


def _rmc(m: Any) -> Part:
    part = Part("RMC", day_ns=_day_ns(m.time))
    if m.date not in ("", None) and part.day_ns is not None:
        midnight = datetime(m.date.year, m.date.month, m.date.day, tzinfo=UTC)
        part.values["utc"] = round(midnight.timestamp()) * SECOND_NS + part.day_ns
        part.gps_ns = convert_utc_to_gps(part.values["utc"])
    if m.status == "A":
        speed, course = read_number(m.spd) * _KNOT, math.radians(read_number(m.cog))
        north, east = speed * math.cos(course), speed * math.sin(course)
        if math.isnan(course) and speed < 0.5:  # standing, a receiver gives no course
            north, east = 0.0, 0.0
        part.values["vel"] = (north, east, math.nan)
        part.values["pos_of_rmc"] = (read_number(m.lat), read_number(m.lon), math.nan)
    else:
        part.values |= {"pos_of_rmc": NO_VECTOR, "fix_of_rmc": NONE}
    return part


_GNS_QUALITY: Final = {
    "R": RTK_FIXED, "F": RTK_FLOAT, "D": DIFFERENTIAL, "P": AUTONOMOUS, "A": AUTONOMOUS,
    "E": ESTIMATED, "M": AUTONOMOUS, "S": AUTONOMOUS,
}  # fmt: skip
"""Quality by mode (NMEA 0183 4.11), best first; a GNS has a mode for each satellite system."""


def _gns(m: Any) -> Part:
    part = Part("GNS", day_ns=_day_ns(m.time))
    modes = str(m.posMode or "")
    quality = next((value for mode, value in _GNS_QUALITY.items() if mode in modes), 0)
    height = read_number(m.alt) + read_number(m.sep)
    part.values = {
        "pos": (read_number(m.lat), read_number(m.lon), height) if quality else NO_VECTOR,
        "sats": int(m.numSV or 0),
        "quality": quality,
        "fix_of_gga": DEAD_RECKONING if quality == ESTIMATED else FIX_3D if quality else NONE,
    }
    return part


def _gst(m: Any) -> Part:
    deviations = (read_number(m.stdLat), read_number(m.stdLong), read_number(m.stdAlt))
    return Part("GST", day_ns=_day_ns(m.time), values={"cov": np.diag(np.square(deviations))})


def _zda(m: Any) -> Part:
    part = Part("ZDA", day_ns=_day_ns(m.time))
    if part.day_ns is not None and m.year:
        midnight = datetime(int(m.year), int(m.month), int(m.day), tzinfo=UTC)
        part.values["utc"] = round(midnight.timestamp()) * SECOND_NS + part.day_ns
        part.gps_ns = convert_utc_to_gps(part.values["utc"])
    return part


def _gsa(m: Any) -> Part:
    """Return the part of a GSA sentence, which has no time: it joins the epoch under way."""
    fix = {2: FIX_2D, 3: FIX_3D}.get(int(m.navMode or 1), NONE)
    return Part("GSA", values={"fix": fix}, timeless=True)


_NMEA_PARTS: Final = {
    "GGA": _gga, "GNS": _gns, "RMC": _rmc, "GST": _gst, "ZDA": _zda, "GSA": _gsa,
}  # fmt: skip


# --- SBF ------------------------------------------------------------------------------------------


def _known(*values: float) -> tuple[float, ...]:
    return tuple(math.nan if value < _SBF_NONE else value for value in values)


def _sbf_part(kind: str, m: Any) -> Part:
    if m.TOW == 0xFFFFFFFF:
        return Part(kind)
    week_ns = int(m.TOW) * 1_000_000
    gps_ns = int(m.WNc) * WEEK_NS + week_ns if m.WNc != 0xFFFF else None
    return Part(kind, week_ns=week_ns, gps_ns=gps_ns)


_SBF_QUALITY: Final = {
    1: AUTONOMOUS, 2: DIFFERENTIAL, 3: AUTONOMOUS, 4: RTK_FIXED, 5: RTK_FLOAT, 6: DIFFERENTIAL,
    7: RTK_FIXED, 8: RTK_FLOAT, 10: DIFFERENTIAL,
}  # fmt: skip


def _pvt_geodetic(m: Any) -> Part:
    part = _sbf_part("PVTGeodetic", m)
    mode = int(getattr(m, "Type", getattr(m, "Mode", 0))) & 0x0F
    if m.Error or not mode:
        mode = 0
    latitude, longitude = (math.degrees(v) for v in _known(m.Latitude, m.Longitude))
    north, east, up = _known(m.Vn, m.Ve, m.Vu)
    flat = bool(getattr(m, "2D", 0))
    part.values = {
        "pos": (latitude, longitude, *_known(m.Height)) if mode else NO_VECTOR,
        "vel": (north, east, -up) if mode else NO_VECTOR,
        "fix": NONE if not mode else FIX_2D if flat else FIX_3D,
        "sats": 0 if m.NrSV == 255 else int(m.NrSV),
        "quality": _SBF_QUALITY.get(mode, 0),
    }
    if part.gps_ns is not None:
        part.values["utc"] = convert_gps_to_utc(part.gps_ns)
    return part


def _pos_cov_geodetic(m: Any) -> Part:
    part = _sbf_part("PosCovGeodetic", m)
    if not m.Error:
        nn, ee, uu = _known(m.Cov_latlat, m.Cov_lonlon, m.Cov_hgthgt)
        ne, nu, eu = _known(m.Cov_latlon, m.Cov_lathgt, m.Cov_lonhgt)
        part.values["cov"] = [[nn, ne, -nu], [ne, ee, -eu], [-nu, -eu, uu]]
    return part


def _end_of_pvt(m: Any) -> Part:
    part = _sbf_part("EndOfPVT", m)
    part.last = True
    return part


_SBF_PARTS: Final = {"4007": _pvt_geodetic, "5906": _pos_cov_geodetic, "5921": _end_of_pvt}
