"""Positions of GNSS/INS devices (MTi-G, MTi-7, MTi-670G, MTi-680G): the stream ``NAME_gnss``.

A device has two positions.  Its filter's position (LatLon, AltitudeEllipsoid, PositionEcef,
VelocityXYZ) comes in the messages of samples.  The receiver's position (GnssPvtData) comes four
times a second in a message of its own, some 50 ms after it was valid; the message's SampleTimeFine
is the time at which it was valid.  Before the first fix, old firmware has another time base there.

A row is a position of the filter, with the receiver's latest data.  Where the filter has sent no
position for two seconds, a row is a position of the receiver.  No I/O and no clock.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from drivers.kit.satellite_navigation import FIX, POSITION, SATELLITES, VELOCITY, geodetic
from drivers.xsens.commands import PVT_HZ, Output
from drivers.xsens.mtdata2 import Coordinates, MtData2, Values
from drivers.xsens.sample_clock import TICK_NS
from recorder.codecs.streams import ChannelSpec, StreamSpec

SUFFIX: Final = "_gnss"
RECEIVER, FILTER = 1, 2
"""Values of the channel ``source``."""

_HELD_NS: Final = 1_000_000_000  # the receiver's data are unknown when they are older
_FILTER_NS: Final = 2_000_000_000  # the receiver's positions are rows when the filter is silent
_LATEST_NS, _EARLIEST_NS = 100_000_000, -500_000_000  # of a message's time after the last sample's
_U16, _U32 = 1 << 16, 1 << 32
_VALID_UTC = 0b011  # date and time of day
_FIX_OK = 0b001
_GNSS_VALID = 0b100  # of StatusByte and StatusWord
_DATE = datetime(1970, 1, 1, tzinfo=UTC)
_NAN3: Values = (math.nan,) * 3
_POSITIONED = frozenset({1, 2, 3, 4})  # fix types with a position

_CHANNELS: Final = (
    POSITION,
    VELOCITY,
    FIX,
    ChannelSpec(
        "cov", "raw", "f4", (3, 3), "covariance of the receiver's position north, east, down; NaN: "
        "unknown", "m^2",
    ),
    SATELLITES,
    ChannelSpec("utc", "raw", "i8", (), "UTC since 1970; 0: unknown", "ns"),
    ChannelSpec("status", "raw", "u4", (), "the device's StatusWord (MT0101P); 0: not sent"),
    ChannelSpec("source", "raw", "u1", (), "of pos and vel: 1 receiver, 2 the device's filter"),
    ChannelSpec("pvt_pos", "raw", "f8", (3,), "the receiver's latest position, as pos", "deg, m"),
    ChannelSpec("pvt_vel", "raw", "f4", (3,), "the receiver's latest velocity, as vel", "m/s"),
    ChannelSpec("pvt_utc", "raw", "i8", (), "UTC of pvt_pos since 1970; 0: unknown", "ns"),
    ChannelSpec(
        "dop", "raw", "f4", (7,), "dilution of precision: geometric, position, time, vertical, "
        "horizontal, north, east; NaN: unknown",
    ),
)  # fmt: skip


class Pvt(NamedTuple):
    """GnssPvtData (0x7010) in the receiver's integer units.

    Longitude and latitude in 1e-7 deg, headings in 1e-5 deg, dilutions of precision in 0.01.
    """

    itow_ms: int
    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    valid: int
    time_accuracy_ns: int
    nanosecond: int
    fix_type: int
    flags: int
    satellites: int
    reserved: int
    longitude_e7: int
    latitude_e7: int
    height_mm: int
    height_msl_mm: int
    horizontal_accuracy_mm: int
    vertical_accuracy_mm: int
    velocity_north_mm_s: int
    velocity_east_mm_s: int
    velocity_down_mm_s: int
    ground_speed_mm_s: int
    heading_of_motion_e5: int
    speed_accuracy_mm_s: int
    heading_accuracy_e5: int
    heading_of_vehicle_e5: int
    gdop_e2: int
    pdop_e2: int
    tdop_e2: int
    vdop_e2: int
    hdop_e2: int
    ndop_e2: int
    edop_e2: int

    @property
    def fix(self) -> int:
        """The fix type; 0 where the receiver calls its fix invalid."""
        return self.fix_type if self.flags & _FIX_OK else 0

    @property
    def position(self) -> Values:
        """Latitude and longitude in deg, height above the ellipsoid in m; NaN without a fix."""
        if self.fix not in _POSITIONED:
            return _NAN3
        return self.latitude_e7 / 1e7, self.longitude_e7 / 1e7, self.height_mm / 1e3

    @property
    def velocity(self) -> Values:
        """North, east, down in m/s; NaN without a fix."""
        if self.fix not in _POSITIONED:
            return _NAN3
        velocity = self.velocity_north_mm_s, self.velocity_east_mm_s, self.velocity_down_mm_s
        return tuple(value / 1e3 for value in velocity)

    @property
    def covariance(self) -> npt.NDArray[np.float64]:
        """Covariance of the position north, east, down, in m^2, [3, 3]; NaN without a fix."""
        if self.fix not in _POSITIONED:
            return np.full((3, 3), np.nan)
        level, upright = self.horizontal_accuracy_mm / 1e3, self.vertical_accuracy_mm / 1e3
        return np.diag([level * level, level * level, upright * upright])

    @property
    def utc_ns(self) -> int:
        """UTC in epoch ns; 0 where the receiver does not know it."""
        return epoch_ns(self[1:7], self.nanosecond, self.valid)


def epoch_ns(date: Iterable[int], nanosecond: int, valid: int) -> int:
    """Return year, month, day, hour, minute, second of UTC as epoch ns; 0 where it is not valid."""
    year, month, day, hour, minute, second = date
    if valid & _VALID_UTC != _VALID_UTC:
        return 0
    try:  # a leap second is second 60
        time = datetime(year, month, day, hour, minute, tzinfo=UTC) - _DATE
    except ValueError:
        return 0
    return (time // timedelta(seconds=1) + second) * 1_000_000_000 + nanosecond


def north_east_down(values: MtData2) -> Values:
    """Return the filter's velocity in m/s; NaN without one."""
    if values.velocity is None:
        return _NAN3
    x, y, z = values.velocity
    ids = [data_id for data_id in values.data_ids if data_id & 0xFFF0 == 0xD010]
    match ids[0] & 0xC if ids else Coordinates.ENU:
        case Coordinates.NED:
            return x, y, z
        case Coordinates.NWU:
            return x, -y, -z
    return y, x, -z


def filter_position(values: MtData2) -> Values | None:
    """Return latitude and longitude in deg, height in m (NaN: not sent); None without both."""
    if values.latitude_longitude is not None:
        height = values.altitude_ellipsoid
        return (*values.latitude_longitude, math.nan if height is None else height)
    return None if values.position_ecef is None else geodetic(values.position_ecef)


def gnss_stream(
    name: str, rate_hz: float, finite: bool, settings: Mapping[str, Any] | None = None
) -> StreamSpec:
    """Return the declaration of a device's positions; `name` is the IMU's."""
    return StreamSpec(
        name=name + SUFFIX,
        channels=_CHANNELS,
        rate_hz=rate_hz,
        device_clock=True,
        finite=finite,
        description="position on Earth (Xsens MTi)",
        settings=dict(settings or {}),
    )


class PositionRate(NamedTuple):
    """Rate of a device's positions in Hz, and whether its filter sends them."""

    hz: float
    filtered: bool


def find_output_rate(outputs: Sequence[Output]) -> PositionRate | None:
    """Return the rate of positions of an output configuration; None without positions."""
    rates = {o.data_type: o.rate_hz for o in outputs if o.rate_hz}
    if filter_hz := rates.get(0x5040) or rates.get(0x5030):
        return PositionRate(filter_hz, True)
    return PositionRate(PVT_HZ, False) if 0x7010 in rates else None


def estimate_message_rate(
    found: Sequence[MtData2], sample_hz: float, receiver: bool
) -> PositionRate | None:
    """Return the rate of positions of a log; None without positions.

    Args:
        found: the first samples.
        sample_hz: of the samples.
        receiver: whether there are messages of the receiver between them.
    """
    placed = [k for k, values in enumerate(found) if filter_position(values) is not None]
    if len(placed) < 2:
        return PositionRate(PVT_HZ, False) if receiver or placed else None
    return PositionRate(sample_hz / statistics.median(b - a for a, b in pairwise(placed)), True)


@dataclass(frozen=True, slots=True)
class Position:
    """A row of the stream.

    Attributes:
        t_ns, t_dev_ns: on the clocks of the samples.
        data: arrays [1, ...] by channel.
        lost: rows missing before this row.
        messages: messages of any kind missing before this row.
        skipped_bytes: bytes of no good message before this row.
        duration_ns: time since the row before.
    """

    t_ns: int
    t_dev_ns: int
    data: dict[str, npt.NDArray[Any]]
    lost: int
    messages: int
    skipped_bytes: int
    duration_ns: int

    @property
    def stamps(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The two times as arrays int64 [1]."""
        return np.array([self.t_ns], np.int64), np.array([self.t_dev_ns], np.int64)


class Positions:
    """Converter of a device's messages to rows.

    Usage::

        positions = Positions(PositionRate(10.0, filtered=True), sample_hz=100.0)
        for message in messages:
            row = positions.add(values, message.skipped, sample)

    Args:
        rate: of the positions.
        sample_hz: of the samples.
    """

    def __init__(self, rate: PositionRate, sample_hz: float) -> None:
        self._period_ns = {FILTER: 1e9 / rate.hz, RECEIVER: 1e9 / PVT_HZ}
        self._messages_a_row = {FILTER: max(1.0, sample_hz / rate.hz), RECEIVER: 1.0}
        self._filtered = rate.filtered
        self._filter_ns: int | None = None  # t_dev_ns of the filter's last position, or the start
        self._counter: int | None = None
        self._missing = self._skipped = 0
        self._status = 0
        self._pvt: tuple[int, Pvt] | None = None  # with its t_dev_ns
        self._last: tuple[int, int, int] | None = None  # t_ns, t_dev_ns, source

    def add(
        self, values: MtData2, skipped: int, sample: tuple[int, int, int | None] | None
    ) -> Position | None:
        """Process the next message; return its row, if any.

        Args:
            values: the message.
            skipped: bytes of no good message before this message.
            sample: t_ns, t_dev_ns and SampleTimeFine of the latest sample, which may be this
                message; None before the first sample.
        """
        self._skipped += skipped
        if values.packet_counter is not None:
            if self._counter is not None:
                self._missing += (values.packet_counter - self._counter - 1) % _U16
            self._counter = values.packet_counter
        status = values.status_byte if values.status_word is None else values.status_word
        self._status = self._status if status is None else status
        position = filter_position(values)
        if sample is None or (position is None and values.gnss_pvt is None):
            return None
        t_ns, t_dev_ns = _place_message(values.sample_time_fine, *sample)
        if position is not None or (self._filter_ns is None and self._filtered):
            self._filter_ns = t_dev_ns
        if values.gnss_pvt is not None:
            pvt = Pvt._make(values.gnss_pvt)
            self._pvt = t_dev_ns, pvt
            if self._filter_ns is None or abs(t_dev_ns - self._filter_ns) > _FILTER_NS:
                return self._row(RECEIVER, values, pvt.position, pvt.velocity, t_ns, t_dev_ns)
        if position is None:
            return None
        return self._row(FILTER, values, position, north_east_down(values), t_ns, t_dev_ns)

    def _row(
        self, source: int, values: MtData2, pos: Values, vel: Values, t_ns: int, t_dev_ns: int
    ) -> Position | None:
        duration_ns = lost = 0
        if self._last is not None:
            last_ns, last_dev_ns, last_source = self._last
            if t_ns <= last_ns:
                return None  # the row that was recorded last is the later one
            duration_ns = t_dev_ns - last_dev_ns
            if last_source == source and self._missing:
                absent = round(duration_ns / self._period_ns[source]) - 1
                most = math.ceil(self._missing / self._messages_a_row[source])
                lost = max(0, min(absent, most))
        row = Position(
            t_ns, t_dev_ns, self._data(source, values, pos, vel, t_dev_ns),
            lost, self._missing, self._skipped, duration_ns,
        )  # fmt: skip
        self._last = t_ns, t_dev_ns, source
        self._missing = self._skipped = 0
        return row

    def _data(
        self, source: int, values: MtData2, pos: Values, vel: Values, t_dev_ns: int
    ) -> dict[str, npt.NDArray[Any]]:
        held = self._pvt
        pvt = held[1] if held is not None and abs(t_dev_ns - held[0]) <= _HELD_NS else None
        pvt_utc = 0 if pvt is None else pvt.utc_ns
        utc = 0
        if values.utc_time is not None:
            nanosecond, *date, valid = values.utc_time
            utc = epoch_ns(date, nanosecond, valid)
        elif pvt_utc and held is not None:
            utc = pvt_utc + t_dev_ns - held[0]
        row: dict[str, Any] = {
            "pos": pos,
            "vel": vel,
            "fix": 3 if pvt is None and self._status & _GNSS_VALID else 0,
            "cov": np.full((3, 3), np.nan),
            "sats": 0,
            "utc": utc,
            "status": self._status,
            "source": source,
            "pvt_pos": _NAN3,
            "pvt_vel": _NAN3,
            "pvt_utc": pvt_utc,
            "dop": (math.nan,) * 7,
        }
        if pvt is not None:
            row |= {
                "fix": pvt.fix, "cov": pvt.covariance, "sats": pvt.satellites,
                "pvt_pos": pvt.position, "pvt_vel": pvt.velocity,
                "dop": [dop / 100 for dop in pvt[-7:]],
            }  # fmt: skip
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf
            return {c.name: np.array([row[c.name]], c.np_dtype) for c in _CHANNELS}


def _place_message(
    ticks: int | None, t_ns: int, t_dev_ns: int, sample_ticks: int | None
) -> tuple[int, int]:
    """Return the times of a message on the clocks of the latest sample."""
    if ticks is None or sample_ticks is None:
        return t_ns, t_dev_ns
    leap = (ticks - sample_ticks) % _U32
    leap_ns = (leap - _U32 if leap >= _U32 // 2 else leap) * TICK_NS
    if not _EARLIEST_NS <= leap_ns <= _LATEST_NS:
        leap_ns = 0  # another time base, or a clock step
    return max(0, t_ns + leap_ns), max(0, t_dev_ns + leap_ns)
