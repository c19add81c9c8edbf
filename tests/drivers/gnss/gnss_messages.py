"""Messages of satellite receivers, made by pyubx2, pynmeagps and pysbf2."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from typing import Any

from pynmeagps import NMEAMessage
from pysbf2 import SBFMessage
from pyubx2 import UBXMessage

from drivers.kit.satellite_navigation import GPS_EPOCH_NS, SECOND_NS, WEEK_NS

GET = 0
LATITUDE, LONGITUDE = 48.1234567, -11.7654321


def _week_ms(utc_ns: int) -> int:
    return (utc_ns - GPS_EPOCH_NS + 18 * SECOND_NS) % WEEK_NS // 1_000_000


def pvt(utc_ns: int, **more: Any) -> bytes:
    seconds, nano = divmod(utc_ns, SECOND_NS)
    t = datetime.fromtimestamp(seconds, UTC)
    values = {
        "iTOW": _week_ms(utc_ns), "year": t.year, "month": t.month, "day": t.day, "hour": t.hour,
        "min": t.minute, "second": t.second, "nano": nano, "validDate": 1, "validTime": 1,
        "fixType": 3, "gnssFixOk": 1, "carrSoln": 2, "numSV": 17, "lon": LONGITUDE,
        "lat": LATITUDE, "height": 512_345, "hAcc": 1200, "vAcc": 2500, "velN": 1500,
        "velE": -2250, "velD": 125,
    }  # fmt: skip
    return bytes(UBXMessage("NAV", "NAV-PVT", GET, **(values | more)).serialize())


def cov(utc_ns: int) -> bytes:
    values = dict(
        zip(("NN", "NE", "ND", "EE", "ED", "DD"), (1.5, 0.25, -0.125, 2.5, 0.5, 4.0), strict=True)
    )
    named = {f"posCov{key}": value for key, value in values.items()}
    message = UBXMessage("NAV", "NAV-COV", GET, iTOW=_week_ms(utc_ns), posCovValid=1, **named)
    return bytes(message.serialize())


def hpposllh(utc_ns: int, **more: Any) -> bytes:
    """A position in 1e-9 degrees and 0.1 mm (u-blox F9 HPG interface description, NAV-HPPOSLLH)."""
    values = {
        "version": 0, "reserved": 0, "flags": 0, "iTOW": _week_ms(utc_ns), "lon": -117_654_321,
        "lat": 481_234_567, "height": 512_345, "hMSL": 466_300, "lonHp": 25, "latHp": -31,
        "heightHp": 3, "hMSLHp": 0, "hAcc": 141, "vAcc": 202,
    }  # fmt: skip
    payload = struct.pack("<BHBIiiiibbbbII", *(values | more).values())
    return bytes(UBXMessage("NAV", "NAV-HPPOSLLH", GET, payload=payload).serialize())


def eoe(utc_ns: int) -> bytes:
    return bytes(UBXMessage("NAV", "NAV-EOE", GET, iTOW=_week_ms(utc_ns)).serialize())


def _time(utc_ns: int) -> str:
    t = datetime.fromtimestamp(utc_ns / 1e9, UTC)
    return f"{t:%H%M%S}.{t.microsecond // 10_000:02d}"


def gga(utc_ns: int) -> bytes:
    return _nmea(
        "GGA", _time(utc_ns), *_place(), "5", "12", "0.8", "466.3", "M", "46.0", "M", "1.0", "0000"
    )


def rmc(utc_ns: int) -> bytes:
    day = datetime.fromtimestamp(utc_ns / 1e9, UTC)
    return _nmea("RMC", _time(utc_ns), "A", *_place(), "10.0", "90.0", f"{day:%d%m%y}", "", "", "D")


def gsa() -> bytes:
    return _nmea("GSA", "A", "3", *["05"] * 12, "1.5", "0.8", "1.2", "1")


def gst(utc_ns: int) -> bytes:
    return _nmea("GST", _time(utc_ns), "1.0", "", "", "", "1.2", "1.5", "2.0")


def _place() -> list[str]:
    found = []
    for angle, digits, ends in ((LATITUDE, 2, "NS"), (LONGITUDE, 3, "EW")):
        whole = int(abs(angle))
        found += [f"{whole:0{digits}d}{(abs(angle) - whole) * 60:08.5f}", ends[angle < 0]]
    return found


def _nmea(kind: str, *fields: str) -> bytes:
    return bytes(NMEAMessage("GN", kind, GET, payload=list(fields)).serialize())


def sbf_pvt(gps_ns: int, **more: Any) -> bytes:
    week, rest = divmod(gps_ns, WEEK_NS)
    values: dict[str, Any] = {
        "TOW": rest // 1_000_000, "WNc": week, "Type": 4, "Error": 0, "Height": 512.345,
        "Latitude": math.radians(LATITUDE), "Longitude": math.radians(LONGITUDE),
        "Vn": 1.5, "Ve": -2.25, "Vu": -0.125, "NrSV": 21,
    }  # fmt: skip
    return bytes(SBFMessage("PVTGeodetic", **(values | more)).serialize())


def sbf_cov(gps_ns: int) -> bytes:
    week, rest = divmod(gps_ns, WEEK_NS)
    return bytes(
        SBFMessage(
            "PosCovGeodetic", TOW=rest // 1_000_000, WNc=week, Type=4, Error=0, Cov_latlat=1.5,
            Cov_lonlon=2.5, Cov_hgthgt=4.0, Cov_latlon=0.25, Cov_lathgt=0.125, Cov_lonhgt=-0.5,
        ).serialize()
    )  # fmt: skip


def sentence(body: str) -> bytes:
    """A sentence of NMEA with its checksum."""
    checksum = 0
    for byte in body.encode():
        checksum ^= byte
    return f"${body}*{checksum:02X}\r\n".encode()
