"""Satellite receivers' messages: frames, epochs, GPS time.  The messages are the libraries' own."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.gnss.epochs import Row
from drivers.gnss.gpsd import GpsdReception
from drivers.gnss.stream import Reception
from drivers.kit.satellite_navigation import (
    GPS_EPOCH_NS,
    SECOND_NS,
    convert_gps_to_utc,
    convert_utc_to_gps,
    count_leap_seconds,
)
from tests.drivers.gnss.gnss_messages import (
    LATITUDE,
    LONGITUDE,
    cov,
    eoe,
    gga,
    gsa,
    gst,
    hpposllh,
    pvt,
    rmc,
    sbf_cov,
    sbf_pvt,
)

UTC_NS = round(datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC).timestamp()) * SECOND_NS
GPS_NS = UTC_NS - GPS_EPOCH_NS + 18 * SECOND_NS
CHANNELS = {"pos", "vel", "fix", "cov", "sats", "utc", "quality"}


def rows(data: bytes, protocol: str = "auto", piece: int = 7) -> list[Row]:
    reception = Reception(protocol)
    found: list[Row] = []
    for start in range(0, len(data), piece):
        found += reception.feed(data[start : start + piece])
    return [*found, *reception.finish()]


def value(row: Row, name: str) -> Sequence[float]:
    return [float(v) for v in np.ravel(row.data[name])]


def test_leap_seconds_are_those_of_known_dates() -> None:
    def at(text: str) -> int:
        return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND_NS

    assert [count_leap_seconds(at(day)) for day in ("1980-01-06", "1998-12-31", "2017-01-01")] == [
        0, 12, 18,
    ]  # fmt: skip
    # The example of IS-GPS-200's week numbers: week 2190 began on 2021-12-26.
    assert convert_utc_to_gps(at("2021-12-25T23:59:42")) == 2190 * 604_800 * SECOND_NS


@given(st.integers(GPS_EPOCH_NS, 4 * 10**18))
def test_gps_time_and_utc_are_inverse(utc_ns: int) -> None:
    assert convert_utc_to_gps(utc_ns, 18) - utc_ns == convert_utc_to_gps(0, 18)
    assert convert_gps_to_utc(convert_utc_to_gps(utc_ns, 18), 18) == utc_ns
    assert convert_gps_to_utc(convert_utc_to_gps(utc_ns)) == utc_ns


@pytest.mark.parametrize("ends", [True, False])
def test_an_epoch_of_ubx_is_one_row(ends: bool) -> None:
    epochs = [UTC_NS + k * SECOND_NS // 5 for k in range(4)]
    data = b"".join(pvt(t) + cov(t) + (eoe(t) if ends else b"") for t in epochs)
    found = rows(data)
    assert [row.gps_ns for row in found] == [t - UTC_NS + GPS_NS for t in epochs]
    first = found[0]
    assert value(first, "pos") == pytest.approx([48.1234567, -11.7654321, 512.345], abs=1e-7)
    assert value(first, "vel") == pytest.approx([1.5, -2.25, 0.125])
    assert value(first, "cov") == [1.5, 0.25, -0.125, 0.25, 2.5, 0.5, -0.125, 0.5, 4.0]
    assert value(first, "utc") == [UTC_NS]
    assert [value(first, name) for name in ("fix", "sats", "quality")] == [[3], [17], [4]]


def test_without_a_covariance_the_accuracies_count() -> None:
    (row, *_) = rows(pvt(UTC_NS) + pvt(UTC_NS + SECOND_NS))
    assert value(row, "cov") == pytest.approx([1.44, 0, 0, 0, 1.44, 0, 0, 0, 6.25])


def test_an_epoch_of_nmea_is_one_row() -> None:
    epochs = [UTC_NS + k * SECOND_NS for k in range(3)]
    data = b"".join(rmc(t) + gga(t) + gsa() + gst(t) for t in epochs)
    found = rows(b"\x00garbage$GP" + data)
    assert [row.gps_ns for row in found] == [t - UTC_NS + GPS_NS for t in epochs]
    assert value(found[0], "pos") == pytest.approx([48.1234567, -11.7654321, 512.3], abs=1e-6)
    assert value(found[0], "vel")[:2] == pytest.approx([0.0, 10 * 1852 / 3600], abs=1e-6)
    assert math.isnan(value(found[0], "vel")[2])
    assert np.diag(np.reshape(value(found[0], "cov"), (3, 3))) == pytest.approx([1.44, 2.25, 4.0])
    assert [value(found[0], name) for name in ("fix", "sats", "quality")] == [[3], [12], [5]]


def test_a_day_of_nmea_begins_at_midnight() -> None:
    midnight = round(datetime(2026, 3, 5, tzinfo=UTC).timestamp()) * SECOND_NS
    epochs = [midnight - SECOND_NS, midnight, midnight + SECOND_NS]
    data = rmc(epochs[0]) + gga(epochs[0]) + gga(epochs[1]) + gga(epochs[2])
    found = rows(data)
    assert [convert_gps_to_utc(row.gps_ns) for row in found] == epochs


def test_an_epoch_of_sbf_is_one_row() -> None:
    epochs = [GPS_NS + k * SECOND_NS // 10 for k in range(3)]
    data = b"".join(sbf_pvt(t) + sbf_cov(t) for t in epochs)
    found = rows(data)
    assert [row.gps_ns for row in found] == epochs
    assert value(found[0], "pos") == pytest.approx([48.1234567, -11.7654321, 512.345])
    assert value(found[0], "vel") == pytest.approx([1.5, -2.25, 0.125])
    assert value(found[0], "utc") == [UTC_NS]
    expected = [1.5, 0.25, -0.125, 0.25, 2.5, 0.5, -0.125, 0.5, 4.0]
    assert value(found[0], "cov") == pytest.approx(expected)
    assert [value(found[0], name) for name in ("fix", "sats", "quality")] == [[3], [21], [4]]


def test_the_best_protocol_of_a_mixed_line_is_used() -> None:
    data = b"".join(
        gga(t) + rmc(t) + pvt(t) for t in (UTC_NS, UTC_NS + SECOND_NS, UTC_NS + 2 * SECOND_NS)
    )
    reception = Reception()
    found = [*reception.feed(data), *reception.finish()]
    assert reception.protocol == "ubx" and len(found) == 3
    assert len(rows(data, "nmea")) == 3
    assert value(rows(data, "nmea")[0], "quality") == [5]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("protocol", ["ubx", "nmea", "sbf"])
def test_a_short_log_has_the_rows_that_its_protocol_gives(protocol: str, count: int) -> None:
    def epoch(k: int) -> bytes:
        utc_ns, gps_ns = UTC_NS + k * SECOND_NS, GPS_NS + k * SECOND_NS
        return {
            "ubx": pvt(utc_ns) + cov(utc_ns),
            "nmea": rmc(utc_ns) + gga(utc_ns),
            "sbf": sbf_pvt(gps_ns) + sbf_cov(gps_ns),
        }[protocol]

    data = b"".join(map(epoch, range(count)))
    found, expected = (rows(data, name) for name in ("auto", protocol))
    assert [row.gps_ns for row in found] == [GPS_NS + k * SECOND_NS for k in range(count)]
    assert [(row.gps_ns, value(row, "pos")) for row in found] == [
        (row.gps_ns, value(row, "pos")) for row in expected
    ]


@pytest.mark.parametrize(("before", "protocol"), [(2, "ubx"), (3, "nmea")])
def test_a_better_protocol_may_come_until_an_epoch_has_passed(before: int, protocol: str) -> None:
    reception = Reception()
    for k in range(before):
        list(reception.feed(gga(UTC_NS + k * SECOND_NS)))
    list(reception.feed(pvt(UTC_NS + 9 * SECOND_NS)))
    assert reception.protocol == protocol


def test_without_a_fix_a_row_has_no_position() -> None:
    (row, *_) = rows(pvt(UTC_NS, gnssFixOk=0) + pvt(UTC_NS + SECOND_NS))
    assert np.isnan(value(row, "pos")).all() and np.isnan(value(row, "vel")).all()
    assert value(row, "fix") == value(row, "quality") == [0]


def test_epochs_before_the_time_is_known_are_counted() -> None:
    reception = Reception("ubx")
    data = pvt(UTC_NS, validTime=0) + pvt(UTC_NS + SECOND_NS) + eoe(UTC_NS + SECOND_NS)
    assert len(list(reception.feed(data))) == 1
    assert reception.epochs.untimed == 1


@pytest.mark.parametrize("leaps", [-1, 0, 16, 18, 19])
def test_gps_time_is_right_whatever_leap_seconds_a_receiver_believes_in(leaps: int) -> None:
    """Before it has heard them from a satellite, it takes those that it was built with."""
    week_ns = 604_800 * SECOND_NS
    for t in (UTC_NS, GPS_EPOCH_NS + 2400 * week_ns - 18 * SECOND_NS):
        itow = (t - GPS_EPOCH_NS + leaps * SECOND_NS) % week_ns // 1_000_000
        (row,) = rows(pvt(t, iTOW=itow))
        assert row.gps_ns == t - GPS_EPOCH_NS + leaps * SECOND_NS
        assert value(row, "utc") == [t]


@pytest.mark.parametrize("unknown", [{"WNc": 0xFFFF}, {"TOW": 0xFFFFFFFF}])
def test_what_sbf_calls_unknown_is_no_time(unknown: dict[str, int]) -> None:
    reception = Reception("sbf")
    sent = sbf_pvt(GPS_NS, **unknown) + sbf_pvt(GPS_NS + SECOND_NS) + sbf_cov(GPS_NS + SECOND_NS)
    found = [*reception.feed(sent), *reception.finish()]
    assert [row.gps_ns for row in found] == [GPS_NS + SECOND_NS]
    assert reception.epochs.unrecorded == (0, 0, 1)


def test_epochs_without_any_time_are_not_one_epoch() -> None:
    reception = Reception("sbf")
    for k in range(4):
        list(reception.feed(sbf_pvt(GPS_NS, TOW=0xFFFFFFFF, Height=500.0 + k)))
    assert not list(reception.finish()) and reception.epochs.unrecorded == (0, 0, 4)


def test_a_position_of_high_precision_replaces_the_other() -> None:
    """NAV-PVT has steps of 11 mm: too coarse for RTK.  The receiver chooses the messages' order."""
    exact = [48.123456669, -11.765432075, 512.3453]
    for parts in ([pvt(UTC_NS), hpposllh(UTC_NS)], [hpposllh(UTC_NS), pvt(UTC_NS)]):
        (row,) = rows(b"".join(parts) + eoe(UTC_NS), "ubx")
        assert value(row, "pos") == pytest.approx(exact, abs=1e-10)
    for wrong in (hpposllh(UTC_NS, flags=1), hpposllh(UTC_NS - SECOND_NS)):
        row = rows(wrong + pvt(UTC_NS) + eoe(UTC_NS), "ubx")[-1]
        assert value(row, "pos") == pytest.approx([LATITUDE, LONGITUDE, 512.345], abs=1e-10)
    (row,) = rows(pvt(UTC_NS, gnssFixOk=0) + hpposllh(UTC_NS) + eoe(UTC_NS), "ubx")
    assert np.isnan(value(row, "pos")).all(), "the receiver says that it has no fix"


def test_gpsd_tells_of_satellites_in_reports_of_their_own() -> None:
    reception = GpsdReception()
    reports: list[dict[str, Any]] = [
        {"uSat": 11},
        {"uSat": 12, "nSat": 20},
        {"nSat": 21},
        {"uSat": "many"},
        {"uSat": True},
    ]
    lines = b"".join(
        json.dumps({"class": "SKY", **report}).encode()
        + b"\r\n"
        + tpv(time=f"2024-06-01T12:00:{n:02d}Z")
        for n, report in enumerate(reports)
    )
    found = list(reception.feed(tpv(time="2024-06-01T11:59:59Z") + lines))
    assert [value(row, "sats") for row in found] == [[0], [11], [12], [12], [12], [12]]


def test_gpsd_is_understood() -> None:
    line = (
        b'{"class":"TPV","mode":3,"time":"2026-03-04T05:06:07.250Z","leapseconds":18,"status":3,'
        b'"lat":48.1,"lon":11.5,"altHAE":500.5,"track":90.0,"speed":2.0,"climb":0.5,'
        b'"epx":1.5,"epy":2.0,"epv":3.0}\n'
    )
    reception = GpsdReception()
    found = list(reception.feed(b'{"class":"VERSION"}\n' + line[:50]))
    found += reception.feed(line[50:] + b"no json\n[1]\n")
    (row,) = found
    assert row.gps_ns == GPS_NS + SECOND_NS // 4
    assert value(row, "pos") == [48.1, 11.5, 500.5]
    assert value(row, "vel") == pytest.approx([0.0, 2.0, -0.5], abs=1e-6)
    assert value(row, "cov") == [4.0, 0, 0, 0, 2.25, 0, 0, 0, 9.0]
    assert [value(row, name) for name in ("fix", "quality")] == [[3], [4]]


def stream(rng: random.Random) -> bytes:
    t = UTC_NS + rng.randrange(10**9) * SECOND_NS // 10
    gps = t - UTC_NS + GPS_NS
    makers = [
        pvt(t),
        hpposllh(t),
        cov(t),
        eoe(t),
        gga(t),
        rmc(t),
        gsa(),
        gst(t),
        sbf_pvt(gps),
        sbf_cov(gps),
    ]
    return b"".join(rng.choice(makers) for _ in range(rng.randint(1, 4)))


def tpv(**more: Any) -> bytes:
    report = {"class": "TPV", "mode": 3, "time": "2024-06-01T12:00:00Z", "lat": 48.0, "lon": 11.0}
    return json.dumps(report | more).encode() + b"\r\n"


@pytest.mark.parametrize("year", [1, 1970, 1979, 9999])
def test_a_time_before_gps_or_far_away_is_no_time(year: int) -> None:
    """A receiver that has lost its clock starts at an early date; ``t_dev`` is unsigned."""
    reception = GpsdReception()
    assert not list(reception.feed(tpv(time=f"{year:04d}-01-01T00:00:00Z")))
    assert reception.epochs.untimed == 1
    if year > 1900:
        assert not rows(pvt(UTC_NS, year=year) + eoe(UTC_NS), protocol="ubx")


@pytest.mark.parametrize(("latitude", "longitude"), [(90.5, 11.0), (-91.0, 11.0), (48.0, 180.5)])
def test_a_place_that_is_not_on_earth_is_no_position(latitude: float, longitude: float) -> None:
    (row,) = rows(pvt(UTC_NS, lat=latitude, lon=longitude) + eoe(UTC_NS))
    assert np.isnan(value(row, "pos")).all()
    (row,) = GpsdReception().feed(tpv(lat=latitude, lon=longitude))
    assert np.isnan(value(row, "pos")).all()


def test_gpsd_without_a_zone_is_utc_and_its_velocity_is_used() -> None:
    more = {"time": "2024-06-01T12:00:00", "velN": 1.5, "velE": -2.5, "velD": 0.25, "speed": 9.0}
    (row,) = GpsdReception().feed(tpv(**more))
    assert row.data["utc"].tolist() == [1_717_243_200 * SECOND_NS]
    assert value(row, "vel") == [1.5, -2.5, 0.25]


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": [1]},
        {"status": {}},
        {"mode": None},
        {"lat": "x"},
        {"epx": 1e300},
        {"track": math.inf, "speed": 1.0},
        {"velN": math.inf, "velE": -math.inf},
    ],
)
def test_whatever_gpsd_sends_is_taken_or_left_out(wrong: dict[str, Any]) -> None:
    assert len(list(GpsdReception().feed(tpv(**wrong) + tpv(time="2024-06-01T12:00:01Z")))) in (
        1,
        2,
    )
